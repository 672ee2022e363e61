// SPDX-License-Identifier: Apache-2.0
// Several upstreams behind one gateway: prompts that begin alike go to the same one, what an upstream's own metrics say counts, and
// which kind of engine gets requests first. The upstreams are stand-ins that count what they are asked.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { records } from './engines_traffic.mjs';
import { request, startPair, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';
import { startMock } from './upstream_mock.mjs';

const PATIENCE = 60_000;
const folder = mkdtempSync(join(tmpdir(), 'sluice-upstreams-'));
chmodSync(folder, 0o777);
after(() => rmSync(folder, { recursive: true, force: true }));
const figures = async (server) => samples(await server.metrics());
const up = (server, n) => until(async () => sum(await figures(server), 'sluice_engine_link_up') === n, PATIENCE);
const modelsUp = (server, name) => until(async () => JSON.parse((await request(server.http, '/health')).body).models.find((m) => m.id === name)?.state === 'ready', PATIENCE);

/** A server over these stand-ins, named u0 …; the first one is `engine`, unless it is local. */
async function over(mocks, { sets = [], local = [], names = ['fine'] } = {}) {
  const models = (indent) => names.map((n) => `${indent}- {name: ${n}, role: none}\n`).join('');
  const items = mocks.slice(local.length ? 0 : 1).map((m, i) => `  - name: u${i + (local.length ? 0 : 1)}\n    models: [${names}]\n    echo:\n      enabled: false\n    upstream:\n      url: ${m.url}\n`).join('');
  const server = await startServer({ edit: (text) => text.replace(/^engines: \[\]$/m, `engines:\n${items}`).replace(/^( {4})models: \[\]$/m, `$1models:\n${models('      ')}`),
    sets: ['gateway.threads=1', 'cache.store=memory', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off', 'gateway.tiers.paid.concurrency=1000',
      'engine.upstream.health_interval=100ms', ...(local.length ? local : [`engine.upstream.url=${mocks[0].url}`]), ...sets] });
  assert.ok(await up(server, mocks.length + (local.length ? 1 : 0)), server.log());
  assert.ok(await modelsUp(server, names[0]), server.log());
  return server;
}

const PREFIX = (i) => `Text number ${i}: ${`${i * 7919} sheep, `.repeat(60)}`;
const prefixOf = (body) => Number(/^Text number (\d+):/.exec(body.messages[0].content)[1]);
const ask = (server, i, more = {}, how = {}) => chat(server.http, server.keys.paid, { model: 'fine', max_tokens: 8, messages: [{ role: 'system', content: PREFIX(i) }, ...user(`q${Math.random()}`)], ...more }, how);

for (const policy of ['cost', 'prefix']) test(`prompts that begin alike go to the same upstream (${policy}); few move when one goes`, { timeout: 120_000 }, async () => {
  const mocks = await Promise.all([0, 1, 2].map(() => startMock())), PREFIXES = 18, EACH = 4;
  const server = await over(mocks, { sets: [`gateway.routing.policy=${policy}`, 'engine.upstream.failures=1', 'engine.upstream.cool_down=10m'] });
  try {
    /** Which stand-ins got each prefix since they were last counted. */
    const round = async () => {
      mocks.forEach((m) => { m.asked.length = 0; });
      for (let i = 0; i < PREFIXES * EACH; i++) {
        const r = await ask(server, i % PREFIXES);
        assert.deepEqual([r.status, r.done], [200, true], r.body);
      }
      const homes = Array.from({ length: PREFIXES }, () => new Set());
      mocks.forEach((m, k) => m.asked.forEach(({ body }) => homes[prefixOf(body)].add(k)));
      return homes.map((s) => { assert.equal(s.size, 1, `a prefix was sent to ${[...s]}`); return [...s][0]; });
    };
    const before = await round();
    assert.deepEqual([...new Set(before)].sort(), [0, 1, 2], `all get some: ${before}`);
    assert.deepEqual(await round(), before);
    await mocks[2].stop();
    assert.ok(await until(async () => sum(await figures(server), 'sluice_upstream_open') >= 1, PATIENCE), 'it is not found out');
    const after = await round();
    before.forEach((home, i) => { if (home !== 2) assert.equal(after[i], home, `prefix ${i} moved without need`); else assert.ok(after[i] < 2); });
  } finally {
    assert.equal(await server.stop(), 0, server.log());
    await Promise.all(mocks.slice(0, 2).map((m) => m.stop()));
  }
});

test('one beginning that everybody sends at once stays within 5/4 of the average', { timeout: 120_000 }, async () => {
  const mocks = await Promise.all([0, 1, 2].map(() => startMock())), N = 36;
  const server = await over(mocks, { names: ['waits'], sets: ['gateway.routing.policy=prefix'] });
  try {
    const all = Array.from({ length: N }, () => { let leave = false; return { stop: () => { leave = true; }, done: ask(server, 1, { model: 'waits' }, { onEvent: () => (leave ? 'abort' : undefined) }) }; });
    assert.ok(await until(() => mocks.reduce((n, m) => n + m.asked.length, 0) === N, PATIENCE), 'they do not come');
    const each = mocks.map((m) => m.asked.length);
    assert.ok(each.every((n) => n <= Math.ceil(1.25 * N / 3)), each.join());
    assert.ok(Math.max(...each) > N / 3, `${each}: the bound, not the turn, spreads them`);
    mocks.forEach((m) => m.stop());
    await Promise.all(all.map(({ done }) => done));
  } finally {
    await server.stop();
  }
});

const load = (running, waiting, kv = 0) => `vllm:num_requests_running{model_name="fine"} ${running}\nvllm:num_requests_waiting{model_name="fine"} ${waiting}\nvllm:kv_cache_usage_perc{model_name="fine"} ${kv}\n`;
/** Reported by the gateway's own metrics. */
const reported = (server, name, n) => until(async () => sum(await figures(server), name) === n, PATIENCE);

test('what others have an upstream do counts, by its metrics', { timeout: 120_000 }, async () => {
  const mocks = await Promise.all([startMock(), startMock()]);
  mocks[0].metrics = load(40, 5, 0.9);
  mocks[1].metrics = load(0, 0);
  const server = await over(mocks, { sets: ['engine.upstream.metrics=/metrics', 'engine.upstream.metrics_interval=100ms'] });
  try {
    const round = async () => {
      mocks.forEach((m) => { m.asked.length = 0; });
      for (let i = 0; i < 10; i++) assert.equal((await ask(server, i)).status, 200);
      return mocks.map((m) => m.asked.length);
    };
    assert.ok(await reported(server, 'sluice_upstream_others', 45), server.log());
    assert.deepEqual(await round(), [0, 10]);
    [mocks[0].metrics, mocks[1].metrics] = [load(0, 0), 'sglang:num_running_reqs 30\nsglang:num_queue_reqs 0\n'];
    assert.ok(await reported(server, 'sluice_upstream_others', 30), server.log());
    assert.deepEqual(await round(), [10, 0]);
    assert.equal(sum(await figures(server), 'sluice_upstream_metrics_failures_total'), 0);
  } finally {
    assert.equal(await server.stop(), 0, server.log());
    await Promise.all(mocks.map((m) => m.stop()));
  }
});

test('metrics that lie, never end or never come: one line, counted, and requests go on', { timeout: 120_000 }, async () => {
  const mocks = await Promise.all([startMock(), startMock()]);
  let written = 0;
  const endless = (req, res) => {
    res.writeHead(200, { 'content-type': 'text/plain' });
    const line = `vllm:num_requests_running{x="${'y'.repeat(1000)}"} 0\n`;
    const more = () => { while (!res.destroyed) { written += line.length; if (!res.write(line)) break; } };
    res.on('drain', more).on('error', () => {});
    more();
  };
  mocks[0].metrics = endless;
  mocks[1].metrics = load(-3, 0);
  const server = await over(mocks, { sets: ['engine.upstream.metrics=/metrics', 'engine.upstream.metrics_interval=100ms'] });
  const lines = (text) => server.log().split('\n').filter((l) => l.includes(text));
  try {
    assert.ok(await until(async () => sum(await figures(server), 'sluice_upstream_metrics_failures_total') >= 6, PATIENCE), server.log());
    assert.ok(written < 16 << 20, `${written} bytes of an endless body were taken`);
    for (let i = 0; i < 6; i++) assert.equal((await ask(server, i)).status, 200);
    assert.equal(lines('its metrics (/metrics) are not used for now').length, 2, server.log());
    assert.equal(lines("its vllm:num_requests_running can't be -3").length, 1);
    assert.equal(lines('are not used for now: the response is too long').length, 1);
    const f = await figures(server);
    assert.deepEqual([sum(f, 'sluice_upstream_others'), sum(f, 'sluice_upstream_open'), sum(f, 'sluice_upstream_faults_total')], [0, 0, 0]);
    mocks[1].metrics = load(2, 0);
    assert.ok(await reported(server, 'sluice_upstream_others', 2), 'they are not used again');
    assert.equal(lines('its metrics are used again').length, 1);
    mocks[0].metrics = (req, res) => { res.socket.pause(); };
    const { looks } = mocks[0];
    assert.ok(await until(() => mocks[0].looks > looks + 1, PATIENCE), 'it waits without end');
    assert.equal((await ask(server, 1)).status, 200);
  } finally {
    await server.stop();
    await Promise.all(mocks.map((m) => m.stop()));
  }
});

test('another Sluice reports its load by the names of vLLM', { timeout: 120_000 }, async () => {
  const pair = await startPair({ echo: true, engine: ['gateway.metrics_public=true'], sets: ['engine.upstream.metrics=/metrics', 'engine.upstream.metrics_interval=100ms'] });
  try {
    assert.ok(await until(async () => sum(await figures(pair.front), 'sluice_upstream_metrics_reads_total') >= 3, PATIENCE), pair.front.log());
    assert.equal(sum(await figures(pair.front), 'sluice_upstream_metrics_failures_total'), 0, pair.front.log());
    let leave = false;
    const body = { model: 'demo-large', max_tokens: 4000, messages: user('word '.repeat(3000)) };
    const direct = chat(pair.back.http, pair.back.keys.paid, body, { onEvent: () => (leave ? 'abort' : undefined) });
    assert.ok(await reported(pair.front, 'sluice_upstream_others', 1), 'a request of another client is not seen');
    leave = true;
    await direct;
    assert.ok(await reported(pair.front, 'sluice_upstream_others', 0), 'it has gone');
  } finally {
    await pair.front.stop();
    await pair.back.stop();
  }
});

const ECHO = ['engine.echo.enabled=true', 'engine.echo.slots=2', 'engine.echo.rate=20', 'gateway.routing.saturated_wait=10m'];

test('local first, and remote while the local engine is saturated', { timeout: 120_000 }, async () => {
  const mock = await startMock();
  mock.models['demo-large'] = mock.models.fine;
  const server = await over([mock], { names: ['demo-large'], local: ECHO, sets: ['gateway.routing.first=local', `log.requests.to=${join(folder, 'spilled.jsonl')}`] });
  try {
    const small = { model: 'demo-large', max_tokens: 2 }, held = [];
    for (let i = 0; i < 6; i++) assert.equal((await ask(server, i, small)).status, 200);
    assert.equal(mock.asked.length, 0, 'the local engine has room');
    for (let i = 0; i < 2; i++) {
      const h = { leave: false };
      await new Promise((begun) => { h.done = ask(server, i, { model: 'demo-large', max_tokens: 2000 }, { onEvent: () => { begun(); return h.leave ? 'abort' : undefined; } }); });
      held.push(h);
    }
    for (let i = 0; i < 4; i++) assert.equal((await ask(server, i, small)).status, 200);
    assert.equal(mock.asked.length, 4, 'the local engine has no room');
    const f = await figures(server);
    assert.deepEqual([sum(f, 'sluice_routed_spilled_total', { engine: 'u0' }), sum(f, 'sluice_routed_spilled_total', { engine: 'engine' })], [4, 0]);
    held.forEach((h) => { h.leave = true; });
    await Promise.all(held.map((h) => h.done));
    assert.ok(await until(async () => sum(await figures(server), 'sluice_engine_link_running', { engine: 'engine' }) === 0, PATIENCE));
    assert.equal((await ask(server, 1, small)).status, 200);
    assert.equal(mock.asked.length, 4, 'it has room again');
    const all = await until(() => { const r = records(join(folder, 'spilled.jsonl')); return r.length === 13 && r; }, PATIENCE);
    assert.deepEqual(all.map((r) => r.engine === 'u0'), all.map((r) => r.routing.spilled === true), 'a record says why');
    assert.equal(all.filter((r) => r.routing.spilled).length, 4);
  } finally {
    assert.equal(await server.stop(), 0, server.log());
    await mock.stop();
  }
});

test('remote first, and local while the upstream is saturated by others', { timeout: 120_000 }, async () => {
  const mock = await startMock();
  mock.models['demo-large'] = mock.models.fine;
  mock.metrics = load(0, 0);
  const server = await over([mock], { names: ['demo-large'], local: ECHO, sets: ['gateway.routing.first=remote', 'engine.upstream.metrics=/metrics', 'engine.upstream.metrics_interval=100ms'] });
  try {
    const small = { model: 'demo-large', max_tokens: 2 };
    for (let i = 0; i < 4; i++) assert.equal((await ask(server, i, small)).status, 200);
    assert.equal(mock.asked.length, 4);
    mock.metrics = load(64, 7);
    assert.ok(await reported(server, 'sluice_upstream_waiting', 7), server.log());
    for (let i = 0; i < 4; i++) assert.equal((await ask(server, i, small)).status, 200);
    assert.equal(mock.asked.length, 4, 'nothing is sent while requests wait there');
    assert.equal(sum(await figures(server), 'sluice_routed_spilled_total', { engine: 'engine' }), 4);
    mock.metrics = load(1, 0);
    assert.ok(await reported(server, 'sluice_upstream_waiting', 0), server.log());
    assert.equal((await ask(server, 9, small)).status, 200);
    assert.equal(mock.asked.length, 5);
  } finally {
    assert.equal(await server.stop(), 0, server.log());
    await mock.stop();
  }
});
