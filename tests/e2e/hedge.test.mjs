// SPDX-License-Identifier: Apache-2.0
// A second engine for a late first token: two stand-ins whose delays the tests script, and two echo engines of which one is stopped.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { records } from './engines_traffic.mjs';
import { localOnly, request, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';
import { startMock } from './upstream_mock.mjs';

const PATIENCE = 60_000;
const folder = mkdtempSync(join(tmpdir(), 'sluice-hedge-'));
chmodSync(folder, 0o777);
after(() => rmSync(folder, { recursive: true, force: true }));

const COMMON = ['gateway.threads=1', 'cache.store=memory', 'gateway.routing.policy=round_robin', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off', 'gateway.tiers.paid.hedge=true',
  'gateway.hedge.percentile=0.5', 'gateway.hedge.share=1'];
const figures = async (server) => samples(await server.metrics());
let n = 0;
const ask = (server, model, { more = {}, logged = true, id = `r${n++}`, onEvent } = {}) => chat(server.http, server.keys.paid, { model, max_tokens: 8, seed: 7, messages: user(`Hello ${n}`), ...more },
  { headers: { 'x-request-id': id, ...(logged ? { 'x-sluice-events': '1' } : {}) }, onEvent });
const record = (file, id) => until(() => records(file).find((r) => r.request_id === id), PATIENCE);

/** Two stand-ins, of which both are known to answer at once. */
async function pair(name, sets = []) {
  const mocks = [await startMock(), await startMock()], file = join(folder, `${name}.jsonl`);
  const server = await startServer({ edit: (text) => text.replace(/^engines: \[\]$/m, `engines:\n  - name: b\n    models: [fine]\n    upstream:\n      url: ${mocks[1].url}\n`),
    sets: [...COMMON, `engine.upstream.url=${mocks[0].url}`, 'engine.upstream.failures=1000', `log.requests.to=${file}`, ...sets] });
  assert.ok(await until(async () => sum(await figures(server), 'sluice_engine_link_up') === 2 && JSON.parse((await request(server.http, '/health')).body).models.find((m) => m.id === 'fine')?.state === 'ready', PATIENCE), server.log());
  for (let i = 0; i < 60; i++) assert.equal((await ask(server, 'fine')).status, 200);
  mocks.forEach((m, i) => { assert.ok(m.asked.length >= 20, `${i} got ${m.asked.length}`); m.asked.length = 0; m.closed.length = 0; m.quick = m.models.fine; });
  /** delays: of each stand-in's first token, Infinity: none comes. Asks until the first one was asked first and, if there is to be a
   * hedge, the second one was known to be idle when it was late. */
  const run = async (delays, { hedged = false, ...how } = {}) => {
    for (;;) {
      let first = -1;
      mocks.forEach((m, k) => {
        m.asked.length = m.closed.length = 0;
        m.models.fine = (req, res) => { if (first < 0) first = k; if (delays[k] === 'fails') { res.writeHead(500); res.end('{}'); } else if (delays[k] < Infinity) setTimeout(() => m.quick(req, res), delays[k]); };
      });
      const id = `try-${n++}`;
      const r = await ask(server, 'fine', { id, ...how });
      const line = first === 0 && await record(file, id);
      if (line && (line.hedge || !hedged)) return { r, line };
    }
  };
  return { mocks, server, file, run, stop: async () => { assert.equal(await server.stop(), 0, server.log()); await Promise.all(mocks.map((m) => m.stop())); } };
}

const TEXT = 'Hello brave new world';

test('the second engine answers for one that does not; the first one is cancelled, and the answer is charged once', { timeout: 120_000 }, async () => {
  const { mocks, server, file, run, stop } = await pair('won');
  try {
    const before = await figures(server);
    const { r, line } = await run([8000, 0], { hedged: true });
    assert.deepEqual([r.status, r.done, r.errors, r.text], [200, true, [], TEXT], r.body);
    assert.equal(mocks.reduce((k, m) => k + m.asked.length, 0), 2);
    assert.deepEqual(mocks[1].asked[0].body, mocks[0].asked[0].body, 'the same request, with the same seed');
    assert.ok(await until(() => mocks[0].closed.includes('fine'), PATIENCE), 'the first one goes on');
    assert.deepEqual([line.engine, line.hedge.end, line.hedge.from, line.hedge.to, line.tokens_out], ['b', 'won', 'engine', 'b', 4], JSON.stringify(line));
    assert.ok(line.hedge.after_ms >= 50, 'not before gateway.hedge.least');
    const now = await figures(server), grown = (name, labels) => sum(now, name, labels) - sum(before, name, labels);
    const spent = (f) => sum(f, 'sluice_tokens_total', { kind: 'completion' });
    const all = records(file).filter((l) => l.request_id.startsWith('try-'));
    assert.equal(grown('sluice_hedges_total', { end: 'won' }), all.filter((l) => l.hedge?.end === 'won').length);
    assert.equal(grown('sluice_generations_ended_total', { how: 'finished' }), all.length, 'each is one generation');
    assert.equal(spent(now) - spent(before), 4 * all.length, 'and charged once');
  } finally { await stop(); }
});

test('the first engine may still win, and the second one fail', { timeout: 120_000 }, async () => {
  const { mocks, run, stop } = await pair('lost');
  try {
    const lost = await run([3000, Infinity], { hedged: true });
    assert.deepEqual([lost.r.done, lost.r.text], [true, TEXT]);
    assert.ok(await until(() => mocks[1].closed.includes('fine'), PATIENCE), 'the second one goes on');
    assert.deepEqual([lost.line.engine, lost.line.hedge.end], ['engine', 'lost']);
    const failed = await run([3000, 'fails'], { hedged: true });
    assert.deepEqual([failed.r.done, failed.r.errors, failed.r.text], [true, [], TEXT]);
    assert.deepEqual([failed.line.engine, failed.line.hedge.end], ['engine', 'failed']);
  } finally { await stop(); }
});

test('what can not be resumed, what a grammar holds and several choices are computed once', { timeout: 120_000 }, async () => {
  const { mocks, server, run, stop } = await pair('never');
  try {
    for (const how of [{ logged: false }, { more: { response_format: { type: 'json_object' } } }, { more: { n: 2 } }]) {
      await run([400, 400], how);
      assert.deepEqual(mocks.map((m) => m.asked.length), [1, 0], JSON.stringify(how));
    }
    assert.equal(sum(await figures(server), 'sluice_hedges_total'), 0);
  } finally { await stop(); }
});

test('no more than the budget', { timeout: 120_000 }, async () => {
  const { mocks, server, run, stop } = await pair('bounded', ['gateway.hedge.share=0.01']);
  try {
    await run([400, 400]);
    assert.deepEqual(mocks.map((m) => m.asked.length), [1, 0], '60 requests are less than one hedge at 1 %');
    assert.ok(sum(await figures(server), 'sluice_hedges_refused_total', { why: 'budget' }) >= 1);
  } finally { await stop(); }
});

test('an engine with other work is not used', { timeout: 120_000 }, async () => {
  const { mocks, server, run, stop } = await pair('busy', ['engine.upstream.metrics=/metrics', 'engine.upstream.metrics_interval=2s']);
  const busy = async (k) => {
    mocks.forEach((m) => { m.metrics = `vllm:num_requests_running ${k}\n`; });
    assert.ok(await until(async () => sum(await figures(server), 'sluice_upstream_others') === 2 * k, PATIENCE), server.log());
  };
  try {
    await busy(3);
    await run([400, 0]);
    assert.deepEqual(mocks.map((m) => m.asked.length), [1, 0]);
    const f = await figures(server);
    assert.ok(sum(f, 'sluice_hedges_refused_total', { why: 'busy' }) >= 1);
    assert.equal(sum(f, 'sluice_hedges_total'), 0);
    await busy(0);
    assert.equal((await run([3000, 0], { hedged: true })).line.hedge.end, 'won');
  } finally { await stop(); }
});

test('an engine of this machine that is slow: the second one is cancelled once the first has a token', { timeout: 120_000, ...localOnly('an engine of this machine') }, async () => {
  const file = join(folder, 'echo.jsonl');
  const server = await startServer({ echo: true, sets: [...COMMON, 'engine.echo.rate=0', 'engine.echo.ttft=1ms', 'engines.b.echo.burst=1', `log.requests.to=${file}`] });
  try {
    for (let i = 0; i < 60; i++) await ask(server, 'demo-large');
    const cancelled = async () => sum(await figures(server), 'sluice_engine_cancelled_total');
    let line, before;
    do { // until the other one was known to be idle
      before = await cancelled();
      const id = `slow-${n++}`, r = await ask(server, 'demo-large', { id, more: { max_tokens: 100, messages: user('slow-large@1500 and some words') } });
      assert.deepEqual([r.done, r.errors, r.text.trim()], [true, [], 'slow-large@1500 and some words']);
      line = await record(file, id);
    } while (!line.hedge);
    assert.deepEqual([line.hedge.end, line.engine], ['lost', line.hedge.from], JSON.stringify(line));
    assert.ok(await until(async () => await cancelled() > before, PATIENCE), 'the second one goes on');
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

test('off by default', { timeout: 120_000 }, async () => {
  const { mocks, server, run, stop } = await pair('off', ['gateway.tiers.paid.hedge=false']);
  try {
    await run([400, 400]);
    assert.deepEqual(mocks.map((m) => m.asked.length), [1, 0]);
    const f = await figures(server);
    assert.equal(sum(f, 'sluice_hedges_total') + sum(f, 'sluice_hedges_refused_total'), 0);
  } finally { await stop(); }
});
