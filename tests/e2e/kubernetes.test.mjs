// SPDX-License-Identifier: Apache-2.0
// The manifests of etc/kubernetes: valid by Kubernetes' published schemas, true to each other, and their configuration serves.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1/NetworkPolicy';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { ConfigMap } from 'kubernetes-models/v1/ConfigMap';
import { Service } from 'kubernetes-models/v1/Service';
import { metric } from './client.mjs';
import { request, ROOT, SLUICE, startServer } from './harness.mjs';

const kinds = { ConfigMap, Deployment, HorizontalPodAutoscaler, NetworkPolicy, PodDisruptionBudget, Service };
const documents = parseAllDocuments(readFileSync(join(ROOT, 'etc/kubernetes/sluice.yaml'), 'utf8'));
const all = Object.fromEntries(documents.map((d) => [d.toJS().kind, d.toJS()]));
const seconds = (text) => { const [, n, unit] = /^(\d+)(s|m)$/.exec(text); return Number(n) * (unit === 'm' ? 60 : 1); };

test('each document is valid, and every kind is there once', () => {
  assert.deepEqual(Object.keys(all).sort(), Object.keys(kinds).sort());
  assert.equal(documents.length, Object.keys(kinds).length);
  for (const d of documents) {
    assert.deepEqual(d.errors, []);
    new kinds[d.toJS().kind](d.toJS()).validate();
  }
});

// The schemas let unknown fields pass, as an old API server does; a name that no kind has is a slip.
const packed = join(ROOT, 'tests/e2e/node_modules/kubernetes-models');
const known = new Set(['apps/v1', 'autoscaling/v2', 'networking.k8s.io/v1', 'policy/v1', 'v1'].flatMap((group) => readdirSync(join(packed, group))
  .filter((f) => f.endsWith('.d.ts'))
  .flatMap((f) => [...readFileSync(join(packed, group, f), 'utf8').matchAll(/^\s*"?([A-Za-z]\w*)"?\??:/gm)].map(([, name]) => name))));
for (const name of ['apiVersion', 'kind', 'metadata', 'name', 'namespace', 'labels', 'annotations', 'matchLabels']) known.add(name);
const FREE = new Set(['labels', 'annotations', 'matchLabels', 'data', 'selector', 'requests', 'limits']);
const slips = (value) => typeof value !== 'object' || value === null ? [] : Array.isArray(value) ? value.flatMap(slips)
  : Object.entries(value).flatMap(([name, inner]) => known.has(name) ? FREE.has(name) && !inner.matchLabels ? [] : slips(inner) : [name]);

test('every field is one of Kubernetes', () => {
  for (const d of documents) assert.deepEqual(slips(d.toJS()), []);
});

test('what is invalid is seen', () => {
  const [container] = all.Deployment.spec.template.spec.containers;
  const wrong = (changes) => {
    const d = structuredClone(all.Deployment);
    Object.assign(d.spec.template.spec.containers[0], changes);
    return d;
  };
  assert.throws(() => new Deployment(wrong({ ports: [{ containerPort: 'http' }] })).validate(), /containerPort/);
  assert.throws(() => new Deployment(wrong({ livenessProbe: { httpGet: { path: '/health' } } })).validate(), /port/);
  assert.deepEqual(slips(wrong({ livenesProbe: container.livenessProbe })), ['livenesProbe']);
});

test('they name each other', () => {
  const { template, selector, replicas } = all.Deployment.spec, [container] = template.spec.containers;
  for (const labels of [selector.matchLabels, all.Service.spec.selector, all.PodDisruptionBudget.spec.selector.matchLabels,
    all.NetworkPolicy.spec.podSelector.matchLabels]) {
    for (const [k, v] of Object.entries(labels)) assert.equal(template.metadata.labels[k], v);
  }
  const port = container.ports[0].name;
  assert.equal(all.Service.spec.ports[0].targetPort, port);
  for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) assert.equal(container[probe].httpGet.port, port);
  assert.equal(all.HorizontalPodAutoscaler.spec.scaleTargetRef.name, all.Deployment.metadata.name);
  assert.equal(all.HorizontalPodAutoscaler.spec.minReplicas, replicas);
  for (const v of container.volumeMounts) assert.ok(template.spec.volumes.some(({ name }) => name === v.name), v.name);
  assert.equal(template.spec.volumes.find(({ name }) => name === 'config').configMap.name, all.ConfigMap.metadata.name);
  assert.equal(new Set(documents.map((d) => d.toJS().metadata.namespace)).size, 1);
});

describe('the configuration', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-kubernetes-')), file = join(dir, 'sluice.yaml');
  let server, upstream;
  before(() => writeFileSync(file, all.ConfigMap.data['sluice.yaml']));
  after(async () => {
    if (server) assert.equal(await server.stop(), 0, server.log());
    if (upstream) assert.equal(await upstream.stop(), 0, upstream.log());
    rmSync(dir, { recursive: true, force: true });
  });

  test('is good, and fits the pod', () => {
    const said = spawnSync(SLUICE, ['config', 'check', '-c', file], { encoding: 'utf8' });
    assert.equal(said.status, 0, said.stdout + said.stderr);
    const { template } = all.Deployment.spec, [container] = template.spec.containers;
    const config = parseAllDocuments(all.ConfigMap.data['sluice.yaml'])[0].toJS();
    const pause = Number(container.lifecycle.preStop.exec.command.at(-1));
    assert.ok(seconds(config.gateway.drain) < seconds(config.supervisor.drain), 'answers have less time than the process');
    assert.ok(pause + seconds(config.supervisor.drain) < template.spec.terminationGracePeriodSeconds, 'the pod is killed before it has drained');
    assert.equal(config.gateway.http, `*:${container.ports[0].containerPort}`);
    const mounts = Object.fromEntries(container.volumeMounts.map((m) => [m.name, m.mountPath]));
    for (const path of [config.cache.password_file, config.cache.sentinel_password_file, config.engine.upstream.key_file])
      assert.ok(path.startsWith(`${mounts.secrets}/`), path);
    assert.equal(config.state, mounts.state);
    assert.ok(container.args.includes(join(mounts.config, 'sluice.yaml')));
    assert.equal(config.cache.gateways, all.Deployment.spec.replicas);
  });

  test('serves what the probes, the autoscaler and a client ask for', async () => {
    upstream = await startServer({ echo: true });
    const key = join(dir, 'key');
    writeFileSync(key, `${upstream.keys.paid}\n`, { mode: 0o600 });
    server = await startServer({ config: file, sets: ['cache.store=memory', 'cache.address=', 'cache.password_file=', 'cache.sentinel_password_file=',
      'supervisor.user=', `engine.upstream.url=${upstream.http}/v1`, `engine.upstream.key_file=${key}`, 'gateway.dev_keys=true', 'gateway.drain=5s'] });
    const [container] = all.Deployment.spec.template.spec.containers;
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe'])
      assert.equal((await request(server.http, container[probe].httpGet.path)).status, 200, probe);
    const said = await request(server.http, '/v1/chat/completions', { method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` },
      body: JSON.stringify({ model: 'default', messages: [{ role: 'user', content: 'one two three' }], max_tokens: 8 }) });
    assert.equal(said.status, 200, said.body);
    const metrics = await request(server.http, all.Deployment.spec.template.metadata.annotations['prometheus.io/path']);
    assert.equal(metrics.status, 200);
    for (const m of all.HorizontalPodAutoscaler.spec.metrics.filter(({ type }) => type === 'Pods'))
      assert.equal(metric(metrics.body, m.pods.metric.name), 0, m.pods.metric.name);
  });
});
