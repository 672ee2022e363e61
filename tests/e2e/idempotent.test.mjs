// SPDX-License-Identifier: Apache-2.0
// An Idempotency-Key over two gateways that share a Redis, over restarts and kills of one of them. (Of one gateway:
// twins.test.mjs.)
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { metric, submittedGenerations, until, user } from './client.mjs';
import { hasRedis, request, startServer } from './harness.mjs';
import { startSecondGateway } from './second.mjs';

const key = 'sk-key-of-two-gateways', admin = 'sk-admin-of-two-gateways';
const digest = (k) => createHash('sha256').update(k).digest('hex');
const sets = [`gateway.keys.both.sha256=${digest(key)}`, 'gateway.keys.both.tier=free', `gateway.keys.reader.sha256=${digest(admin)}`, 'gateway.keys.reader.tier=admin',
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
    return { status: r.status, id, code: error?.code, again: r.headers['retry-after'], replayed: r.headers['x-sluice-idempotent-replay'] === 'true' };
  };
  /** How many requests both gateways have given to the engine. */
  const given = async () => {
    let n = 0;
    for (const at of [server, other]) {
      const r = await request(at.http, '/metrics', { headers: { authorization: `Bearer ${admin}` } });
      assert.equal(r.status, 200, r.body);
      n += submittedGenerations(r.body);
    }
    return n;
  };
  const isStored = async () => metric(await server.metrics(), 'sluice_idempotent_unstored_bytes') === 0;
  const cost = async (what) => {
    const from = await given(), out = await what();
    return { out, n: await given() - from };
  };

  test('that comes to both at once is answered once; another body is refused at either', async () => {
    const { out, n } = await cost(() => Promise.all([server, other, server, other].map((at) => ask(at, 'once', words(40)))));
    assert.deepEqual(out.map((r) => r.status), [200, 200, 200, 200]);
    assert.equal(new Set(out.map((r) => r.id)).size, 1);
    assert.equal(n, 1);
    for (const at of [server, other]) assert.deepEqual([(await ask(at, 'once', 'something else')).code], ['idempotency_key_reused']);
    const from = await given(), first = ask(server, 'runs', words(60));
    assert.ok(await until(async () => await given() > from, 30000));
    assert.equal((await ask(other, 'runs', 'something else')).code, 'idempotency_key_reused', 'while it is answered');
    assert.equal((await first).status, 200);
  });

  test('is answered from the store after a restart; whose gateway was killed is free at once, for one of many', async () => {
    const stored = await ask(server, 'stored', 'a b');
    assert.ok(await until(isStored, 200000));
    const from = await given(), lost = ask(server, 'lost', words(90)).catch(() => null);
    assert.ok(await until(async () => await given() > from, 30000));
    assert.equal((await ask(other, 'lost', 'not that')).code, 'idempotency_key_reused', 'it is held');
    process.kill((await server.pids()).gateway, 'SIGKILL');
    assert.equal(await lost, null, 'it ended with its gateway');
    assert.ok(await until(async () => { try { return (await request(server.http, '/ready')).status === 200; } catch { return false; } }, 100000));
    const again = await ask(server, 'stored', 'a b');
    assert.deepEqual([again.id, again.replayed], [stored.id, true]);
    const { out, n } = await cost(() => Promise.all(Array.from({ length: 8 }, (_, i) => ask(i % 2 ? server : other, 'lost', words(90)))));
    // Who waits for the other gateway's answer does so for five seconds; this one takes three.
    assert.deepEqual(out.map((r) => r.status), out.map(() => 200), JSON.stringify(out));
    assert.equal(new Set(out.map((r) => r.id)).size, 1);
    assert.equal(n, 1);
  });

  const retried = async (what) => {
    let r;
    assert.ok(await until(async () => (r = await what()).status === 200, 200000), JSON.stringify(r));
    return r;
  };
  const redisStopped = async (what) => {
    const { redis } = await server.pids();
    process.kill(redis, 'SIGSTOP');
    try { return await what(); } finally { process.kill(redis, 'SIGCONT'); }
  };

  test('is not run while Redis hangs and its key\'s state is not known; then it is answered as ever', async () => {
    const first = await ask(server, 'before', 'a b');
    assert.equal(first.status, 200);
    assert.ok(await until(isStored, 200000));
    const { out, n } = await cost(() => redisStopped(async () => {
      const all = [];
      for (let i = 0; i < 3; i++) all.push(...await Promise.all([server, other].flatMap((at) => [ask(at, 'before', 'a b'), ask(at, `new ${i}`, 'c d')])));
      return all;
    }));
    assert.deepEqual(out.map((r) => [r.status, r.code, r.again]), out.map(() => [503, 'store_unavailable', '1']));
    assert.equal(n, 0);
    const after = await cost(async () => [await retried(() => ask(other, 'before', 'a b')), await retried(() => ask(server, 'new 0', 'c d')),
      await retried(() => ask(other, 'new 0', 'c d'))]);
    assert.deepEqual([after.out[0].id, after.out[0].replayed, after.out[2].id, after.n], [first.id, true, after.out[1].id, 1]);
  });

  test('has its answer kept by its gateway until a Redis that hung, or was killed meanwhile, takes it', async () => {
    const breaks = { hangs: (pid) => { process.kill(pid, 'SIGSTOP'); return () => process.kill(pid, 'SIGCONT'); },
      dies: (pid) => { process.kill(pid, 'SIGKILL'); return () => {}; } };
    for (const [how, break_] of Object.entries(breaks)) {
      const from = await given(), first = ask(server, how, words(30));
      assert.ok(await until(async () => await given() > from, 30000));
      const mend = break_((await server.pids()).redis);
      try {
        const made = await first;
        assert.equal(made.status, 200);
        const again = await ask(server, how, words(30));
        assert.deepEqual([again.status, again.id], [200, made.id], 'this gateway has it');
        mend();
        const there = await retried(() => ask(other, how, words(30)));
        assert.deepEqual([there.id, there.replayed], [made.id, true], how);
      } finally { mend(); }
      assert.equal(await given() - from, 1, how);
      assert.ok(await until(isStored, 200000));
    }
  });
});
