// SPDX-License-Identifier: Apache-2.0
// Several engines behind one gateway: where requests go and why, what a dead engine takes with it, and what is made again.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { localOnly, request, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { sum } from './prometheus.mjs';
import { TWO, figures, records, traffic, words } from './engines_traffic.mjs';

const PATIENCE = 60_000;
const folder = mkdtempSync(join(tmpdir(), 'sluice-engines-'));
chmodSync(folder, 0o777);
after(() => rmSync(folder, { recursive: true, force: true }));

const post = (server, path, body) => request(server.http, path, { method: 'POST', body: JSON.stringify(body),
  headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' } });
const record = (file, id) => until(() => records(file).find((r) => r.request_id === id), PATIENCE);

test('prompts that begin alike go where their beginning is cached: fewer tokens are computed', { timeout: 300_000, ...localOnly('several engines of one machine') }, async (t) => {
  const aware = await traffic('cost', join(folder, 'cost.jsonl')), blind = await traffic('round_robin', join(folder, 'turns.jsonl'));
  const p99 = (r) => r.ttft[Math.floor(0.99 * r.ttft.length)];
  t.diagnostic(`computed ${aware.computed} of ${aware.tokens} prompt tokens by cost, ${blind.computed} by turns: ${(aware.computed / blind.computed).toFixed(3)}; p99 TTFT ${p99(aware)} and ${p99(blind)} ms`);
  assert.equal(aware.tokens, blind.tokens);
  assert.ok(aware.computed <= 0.6 * blind.computed, `${aware.computed} and ${blind.computed}`);
  assert.ok(aware.each.every((n) => n >= 40), aware.each.join());
  assert.deepEqual(blind.each, [250, 250]);
});

/** One chat; logged: it can be resumed. */
const stream = (server, body, id, { logged = false, key = server.keys.paid, onEvent } = {}) => chat(server.http, key, body,
  { headers: { 'x-request-id': id, ...(logged ? { 'x-sluice-events': '1' } : {}) }, onEvent });

test('a record says which engine a request went to and why', { timeout: 120_000, ...localOnly('several engines of one machine') }, async () => {
  const file = join(folder, 'why.jsonl');
  const server = await startServer({ sets: [...TWO, `log.requests.to=${file}`, 'log.format=json', 'engines.b.models=demo-small'] });
  try {
    const rnd = random(3), system = words(rnd, 150);
    const ask = async (id, model = 'demo-small', key = server.keys.paid) => {
      const r = await stream(server, { model, max_tokens: 2, messages: [{ role: 'system', content: system }, ...user(id)] }, id, { key });
      assert.equal(r.status, 200, r.body);
      return record(file, id);
    };
    const first = await ask('first');
    assert.ok(await until(async () => sum(await figures(server), 'sluice_engine_link_prefixes', { engine: first.engine }) > 0, PATIENCE), 'nothing was published');
    const second = await ask('second');
    assert.equal(second.engine, first.engine);
    const { policy, of, cost, cached, ...parts } = second.routing;
    assert.deepEqual([policy, of], ['cost', 2]);
    assert.ok(cached > 0.9 && Math.abs(parts.cache + 10 * cached) < 0.01, JSON.stringify(second));
    const total = ['occupancy', 'active', 'cache', 'queue', 'recent'].reduce((n, p) => n + parts[p], 0);
    assert.ok(Math.abs(total - cost) < 0.01, JSON.stringify(second));
    assert.ok(second.tokens_cached > 0.9 * second.tokens_in, JSON.stringify(second));
    // Another tenant's beginning is another one, and what only one engine has goes there without a choice.
    assert.equal((await ask('other', 'demo-small', server.keys.free)).routing.cached, 0);
    for (const id of ['l1', 'l2', 'l3']) assert.deepEqual((({ engine, routing }) => [engine, routing.of])(await ask(id, 'demo-large')), ['engine', 1]);
    const line = await until(() => server.log().split('\n').find((l) => l.includes('"request_id":"second"')), PATIENCE);
    const logged = JSON.parse(line);
    assert.deepEqual([logged.engine, logged.routing, logged.route_of], [second.engine, 'cost', 2]);
    const health = JSON.parse((await request(server.http, '/health')).body);
    assert.deepEqual(health.engines, [{ name: 'engine', state: 'up' }, { name: 'b', state: 'up' }]);
    assert.deepEqual(health.models.map((m) => m.id), ['demo-small', 'demo-large']);
  } finally { await server.stop(); }
});

test('each model of a pair on its own engine: every door finds it, and the cascade runs over both', { timeout: 120_000, ...localOnly('several engines of one machine') }, async () => {
  const file = join(folder, 'pair.jsonl');
  const server = await startServer({ sets: [...TWO, `log.requests.to=${file}`, 'engine.serves=demo-large', 'engines.b.models=demo-small', 'engines.b.cores=0'] });
  try {
    for (const [model, engine] of [['demo-small', 'b'], ['demo-large', 'engine']]) {
      const r = await stream(server, { model, max_tokens: 3, messages: user('hello') }, `at-${model}`);
      assert.equal(r.status, 200, r.body);
      assert.equal((await record(file, `at-${model}`)).engine, engine);
      const counted = await post(server, '/tokenize', { model, prompt: 'one two three' });
      assert.equal(counted.status, 200, counted.body);
      assert.ok(JSON.parse(counted.body).tokens.length > 0, counted.body);
    }
    const models = JSON.parse((await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.paid}` } })).body);
    assert.deepEqual(models.data.map((m) => m.id).sort(), ['auto', 'demo-large', 'demo-small']);
    const auto = await stream(server, { model: 'auto', max_tokens: 24, messages: user('Write three words about rivers.') }, 'auto');
    assert.deepEqual([auto.status, auto.errors, auto.done], [200, [], true]);
    assert.match((await record(file, 'auto')).cascade, /small \d+ of \d+, large \d+ of \d+/);
    assert.match(readFileSync(`/proc/${(await server.pids())['engine b']}/status`, 'utf8'), /^Cpus_allowed_list:\s+0$/m);
  } finally { await server.stop(); }
});

for (const signal of ['SIGKILL', 'SIGTERM']) test(`an engine that ends (${signal}) takes its own streams only: each gets one error, and those that can be resumed go on`, { timeout: 240_000, ...localOnly('several engines of one machine') }, async () => {
  const file = join(folder, `${signal}.jsonl`);
  const server = await startServer({ sets: [...TWO, `log.requests.to=${file}`, 'gateway.routing.policy=round_robin', 'engine.models=', 'engine.models.m.path=etc/models/demo-small.gguf',
    'gateway.default_model=m', 'engine.max_sequences=32'], edit: (yaml) => yaml.replaceAll(/pace_tps: \d+/g, 'pace_tps: 20').replaceAll(/concurrency: \d+/g, 'concurrency: 64').replaceAll('coalesce: user', 'coalesce: "off"') });
  try {
    const bodies = Array.from({ length: 8 }, (_, i) => ({ model: 'm', max_tokens: 150, temperature: 0.9, seed: 1000 + i, ignore_eos: true,
      messages: user(`Tell a long story, number ${i}.`) }));
    const want = await Promise.all(bodies.map((b) => stream(server, b, `want-${b.seed}`)));
    assert.ok(want.every((r) => r.finish === 'length'), JSON.stringify(want.map((r) => r.finish)));
    let begun = 0, go;
    const all = new Promise((done) => { go = done; });
    const run = (body, i) => { let seen = 0;
      return stream(server, body, `run-${i}`, { logged: i % 2 === 1, onEvent: () => { if (++seen === 5 && ++begun === 16) go(); } }); };
    // Each of them twice, on either engine, as a plain stream and as one that can be resumed.
    const runs = [...bodies, ...bodies].map((b, i) => run({ ...b, seed: b.seed }, Math.floor(i / 2) % 2 === 0 ? i : i ^ 1));
    await all;
    process.kill((await server.pids())['engine b'], signal);
    const got = await Promise.all(runs);
    const lines = await until(() => { const l = records(file).filter((r) => r.request_id.startsWith('run-')); return l.length === 16 && l; }, PATIENCE);
    const line = (i) => lines.find((r) => r.request_id === `run-${i}`);
    let lost = 0, remade = 0;
    [...bodies, ...bodies].forEach((b, at) => {
      const i = Math.floor(at / 2) % 2 === 0 ? at : at ^ 1, r = got[at], reference = want[b.seed - 1000].text;
      assert.ok(reference.startsWith(r.text), `run-${i} has foreign text`);
      if (line(i).ended_by === 'error') {
        lost++;
        assert.deepEqual([i % 2, line(i).engine, r.errors.length, r.done], [0, 'b', 1, false], `run-${i}`);
        return;
      }
      assert.deepEqual([r.errors.length, r.done, r.finish, r.text === reference], [0, true, 'length', true], `run-${i}`);
      if (line(i).remade) { remade++; assert.deepEqual([i % 2, line(i).engine, line(i).remade], [1, 'engine', 1]); }
    });
    assert.equal(lost + remade, 8, `${lost} lost and ${remade} made again of 16`);
    assert.ok(lost > 0 && remade > 0, `${lost} lost and ${remade} made again`);
    const f = await figures(server);
    assert.equal(sum(f, 'sluice_generations_remade_total'), remade);
    assert.match(server.log(), /the engine b has gone/);
    assert.equal((await stream(server, { model: 'm', max_tokens: 2, messages: user('still there?') }, 'still')).status, 200);
    assert.ok(await until(async () => JSON.parse((await request(server.http, '/health')).body).status === 'ok', PATIENCE), 'the engine b does not come back');
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

test('an engine of its own beside the models of another server: requests go to both by turns, whose key only one may read', { timeout: 120_000 }, async () => {
  const far = await startServer({ direct: true }), key = join(folder, 'far.key'), file = join(folder, 'far.jsonl');
  writeFileSync(key, `${far.keys.paid}\n`, { mode: 0o600 });
  const item = `engines:\n  - name: far\n    models: [demo-small, demo-large]\n    upstream:\n      url: ${far.http}/v1\n      key_file: ${key}\n`;
  const server = await startServer({ direct: true, edit: (text) => text.replace(/^engines: \[\]$/m, item), sets: ['gateway.routing.policy=round_robin', `log.requests.to=${file}`] });
  try {
    await until(async () => (await (await request(server.http, '/metrics', { headers: { authorization: `Bearer ${server.keys.admin}` } })).body).includes('engine="far"} 1'), PATIENCE);
    const said = [];
    for (let i = 0; i < 4; i++) {
      const r = await post(server, '/v1/chat/completions', { model: 'demo-small', max_tokens: 8, temperature: 0, messages: [{ role: 'user', content: 'What is the capital of France?' }] });
      assert.equal(r.status, 200, r.body);
      said.push(JSON.parse(r.body).choices[0].message.content);
    }
    assert.equal(new Set(said).size, 1, said.join('|'));
    const all = await until(() => records(file).length === 4 && records(file), PATIENCE);
    assert.deepEqual(all.map((x) => x.engine).sort(), ['engine', 'engine', 'far', 'far']);
    assert.doesNotMatch(server.log(), /requested a file/);
  } finally {
    assert.equal(await server.stop(), 0, server.log());
    assert.equal(await far.stop(), 0, far.log());
  }
});
