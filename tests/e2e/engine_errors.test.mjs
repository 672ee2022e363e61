// SPDX-License-Identifier: Apache-2.0
// An engine that fails three requests in ten: the gateway sends it few at a time, refuses the others at once and says when to come
// back, and serves all again once it has stopped failing. Times are those of tests/unit/gateway/admission/test_error_limit.c.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { startServer } from './harness.mjs';

const CLIENTS = 32, EACH = 12, TOKENS = 20;
let server;
before(async () => {
  server = await startServer({ echo: true, direct: true, sets: ['engine.echo.rate=100', 'engine.echo.ttft=20ms', 'gateway.threads=2',
    'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off'] });
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

const value = async (name) => {
  const v = metric(await server.metrics(), name);
  return Number.isNaN(v) ? 0 : v;
};
const lines = (what) => server.log().split('\n').filter((l) => what.test(l)).length;
const ask = (model, words) => chat(server.http, server.keys.paid, { model, messages: user(words), max_tokens: TOKENS });

/** Many clients at once; fails(k): does the k-th request of a client fail, and after how many tokens? */
async function load(model, fails) {
  const all = [];
  await Promise.all(Array.from({ length: CLIENTS }, async (_, c) => {
    for (let k = 0; k < EACH; k++) {
      const after = fails(c * EACH + k);
      const r = await ask(model, `repeat these words ${after >= 0 ? `fail-${model.slice(5)}@${after} ` : ''}${c} ${k}`);
      all.push({ ...r, planned: after });
    }
  }));
  return all;
}

test('an engine that fails gets few requests, and all of them again when it has recovered', async () => {
  const before = await load('demo-large', () => -1);
  assert.ok(before.every((r) => r.status === 200 && r.done), 'all are served');
  assert.equal(await value('sluice_error_limits'), 0);

  const bad = await load('demo-large', (i) => (i % 10 < 3 ? i % 2 : -1));
  const refused = bad.filter((r) => r.status === 503), served = bad.filter((r) => r.status === 200 && r.errors.length === 0);
  const failed = bad.filter((r) => r.planned >= 0 && r.status !== 503);
  assert.ok(refused.length > CLIENTS / 2, `${refused.length} of ${bad.length} refused`); // how many depends on how long the load takes
  assert.ok(served.length > 0 && failed.length > 0);
  for (const r of refused) {
    const wait = Number(r.headers['retry-after']);
    assert.ok(wait >= 1 && wait <= 8, `retry-after: ${r.headers['retry-after']}`);
    assert.equal(JSON.parse(r.body).error.code, 'overloaded');
  }
  // None of the refused ones was sent to the engine, and what the failed ones had made is little.
  assert.equal(await value('sluice_load_refused_total{reason="errors"}'), refused.length);
  assert.equal(await value('sluice_load_unsubmitted_total'), refused.length);
  const wasted = failed.reduce((n, r) => n + r.planned, 0), useful = served.length * TOKENS;
  assert.ok(wasted * 20 <= wasted + useful, `${wasted} tokens of ${wasted + useful} were made for nothing`);
  assert.equal(await value('sluice_engine_errors_total'), failed.length);
  assert.equal(lines(/of the requests for demo-large fail/), await value('sluice_error_limits_total'));

  // Without any request it opens again.
  assert.ok(await until(async () => await value('sluice_error_limits') === 0, 100_000), 'nothing is limited any more');
  const then = await load('demo-large', () => -1);
  assert.ok(then.every((r) => r.status === 200 && r.done), 'all are served again');
  assert.equal(await value('sluice_load_refused_total{reason="errors"}'), refused.length);
  assert.equal(lines(/requests for demo-large do not fail any more/), await value('sluice_error_limits_ended_total'));
  assert.equal(await value('sluice_error_limits_total'), await value('sluice_error_limits_ended_total'));
});

test('a model that fails does not limit another one of the same engine', async () => {
  const errors = await value('sluice_load_refused_total{reason="errors"}');
  const [, other] = await Promise.all([load('demo-large', (i) => (i % 2 ? 0 : -1)), load('demo-small', () => -1)]);
  assert.ok(await value('sluice_load_refused_total{reason="errors"}') > errors);
  assert.ok(other.every((r) => r.status === 200 && r.done), 'the other model serves all');
});
