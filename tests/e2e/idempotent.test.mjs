// SPDX-License-Identifier: Apache-2.0
// An Idempotency-Key over two gateways that share a Redis, over restarts and kills of one of them. (Of one gateway:
// twins.test.mjs.)
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { metric, until, user } from './client.mjs';
import { hasRedis, request, startServer } from './harness.mjs';
import { startSecondGateway } from './second.mjs';

const key = 'sk-key-of-two-gateways';
const sets = [`gateway.keys.both.sha256=${createHash('sha256').update(key).digest('hex')}`, 'gateway.keys.both.tier=free',
  'gateway.tiers.free.concurrency=100', ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.free.${l}=0`)];
const words = (n) => Array.from({ length: n }, (_, i) => `w${i}`).join(' ');

describe('a request with a key, at two gateways', { skip: hasRedis() ? false : 'redis-server is not installed' }, () => {
  let server, other;
  before(async () => {
    server = await startServer({ echo: true, sets: [...sets, 'engine.echo.ttft=0ms', 'engine.echo.rate=50'] });
    other = await startSecondGateway(server, sets);
  });
  after(async () => {
    other?.stop();
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  const ask = async (at, name, text) => {
    const r = await request(at.http, '/v1/chat/completions', { method: 'POST', body: JSON.stringify({ model: 'default', messages: user(text), max_tokens: 400 }),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, 'idempotency-key': name } });
    const { id, error } = JSON.parse(r.body);
    return { status: r.status, id, code: error?.code, replayed: r.headers['x-sluice-idempotent-replay'] === 'true' };
  };
  const given = async () => metric(await server.metrics(), 'sluice_engine_submitted_total');
  /** How many requests the engine got for it. Its figures come every few dozen milliseconds. */
  const cost = async (what) => {
    const from = await given(), out = await what();
    await new Promise((r) => setTimeout(r, 300));
    return { out, n: await given() - from };
  };

  test('that comes to both at once is answered once; another body is refused at either', async () => {
    const { out, n } = await cost(() => Promise.all([server, other, server, other].map((at) => ask(at, 'once', words(40)))));
    assert.deepEqual(out.map((r) => r.status), [200, 200, 200, 200]);
    assert.equal(new Set(out.map((r) => r.id)).size, 1);
    assert.equal(n, 1);
    for (const at of [server, other]) assert.deepEqual([(await ask(at, 'once', 'something else')).code], ['idempotency_key_reused']);
    const from = await given(), first = ask(server, 'runs', words(60));
    assert.ok(await until(async () => await given() > from, 3000));
    assert.equal((await ask(other, 'runs', 'something else')).code, 'idempotency_key_reused', 'while it is answered');
    assert.equal((await first).status, 200);
  });

  test('is answered from the store after a restart; whose gateway was killed is free at once, for one of many', async () => {
    const stored = await ask(server, 'stored', 'a b');
    await new Promise((r) => setTimeout(r, 300));
    const from = await given(), lost = ask(server, 'lost', words(90)).catch(() => null);
    assert.ok(await until(async () => await given() > from, 3000));
    assert.equal((await ask(other, 'lost', 'not that')).code, 'idempotency_key_reused', 'it is held');
    process.kill((await server.pids()).gateway, 'SIGKILL');
    assert.equal(await lost, null, 'it ended with its gateway');
    assert.ok(await until(async () => { try { return (await request(server.http, '/ready')).status === 200; } catch { return false; } }, 10000));
    const again = await ask(server, 'stored', 'a b');
    assert.deepEqual([again.id, again.replayed], [stored.id, true]);
    await new Promise((r) => setTimeout(r, 300));
    const { out, n } = await cost(() => Promise.all(Array.from({ length: 8 }, (_, i) => ask(i % 2 ? server : other, 'lost', words(90)))));
    // Who waits for the other gateway's answer does so for five seconds; this one takes three.
    assert.deepEqual(out.map((r) => r.status), out.map(() => 200), JSON.stringify(out));
    assert.equal(new Set(out.map((r) => r.id)).size, 1);
    assert.equal(n, 1);
  });
});
