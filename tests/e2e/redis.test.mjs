// SPDX-License-Identifier: Apache-2.0
// The store behind a whole server: the private Redis, killed, stopped and started again under load; limits that hold to
// the request and to the token, over two gateways on one Redis too; and what there is without any Redis.
// Perf: the loop without Redis.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { hasRedis, request, SLUICE, startServer } from './harness.mjs';
import { figure, PERF } from './perf.mjs';
import { startSecondGateway } from './second.mjs';

const skip = hasRedis() ? false : 'redis-server is not installed';
// No request waits longer for the store. As configured where that is measured; else long enough for a busy machine, on which
// the memory store, which answers in its stead, has no more than this either.
const quick = `cache.timeout=${PERF ? '100ms' : '2s'}`;
const fast = ['engine.echo.ttft=0ms', 'engine.echo.rate=0', quick];
const tier = (name, limits) => Object.entries(limits).map(([k, v]) => `gateway.tiers.${name}.${k}=${v}`);
const small = { model: 'default', messages: user('one two three'), max_tokens: 4 };

const post = async (base, key, path, body) => {
  const r = await request(base, path, { method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` } });
  return { ...r, json: JSON.parse(r.body) };
};
const ask = (base, key, body = small) => post(base, key, '/v1/chat/completions', body);

describe('the private Redis', { skip }, () => {
  let server;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'engine.echo.rate=40', quick, 'gateway.threads=2',
      'gateway.tiers.paid.concurrency=200', ...tier('paid', { requests_per_minute: 0, tokens_per_minute: 0, tokens_per_day: 1000000 })] });
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  const up = () => until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100_000);
  const left = (r) => Number(r.headers['x-ratelimit-remaining-tokens']);

  test('is told of in one line and lies in the state folder', () => {
    assert.equal(server.log().split('\n').filter((l) => /store: /.test(l) && /sluice:/.test(l)).length, 1, server.log());
    assert.match(server.log(), /store: a redis-server of its own in .*\/redis/);
  });

  const streams = (n) => {
    let showing = 0, all;
    const shown = new Promise((r) => { all = r; });
    const done = Array.from({ length: n }, (_, i) => {
      let seen = false;
      return chat(server.http, server.keys.paid, { model: 'default', messages: user(`Stream ${i} ${'word '.repeat(60)}`), max_tokens: 60,
        stream_options: { include_usage: true } }, { onEvent: () => { if (!seen) { seen = true; if (++showing === n) all(); } } });
    });
    return { shown, done: Promise.all(done) };
  };
  const assertWhole = (list) => list.forEach((r, i) => {
    assert.equal(r.error, null, `stream ${i}`);
    assert.deepEqual(r.errors, [], `stream ${i}`);
    assert.ok(r.done && r.usage.completion_tokens > 0, `stream ${i}: ${r.body.slice(-300)}`);
  });

  test('killed under load: no stream is lost, nobody waits, nothing is forgotten', async () => {
    assert.ok(await up(), server.log());
    const before = await ask(server.http, server.keys.paid);
    assert.equal(before.status, 200, before.body);
    const { redis } = await server.pids();
    const { shown, done } = streams(48);
    await shown;
    process.kill(redis, 'SIGKILL');
    for (let i = 0; i < 20; i++) {
      const t0 = Date.now(), r = await ask(server.http, server.keys.paid, { ...small, max_tokens: 1 });
      assert.equal(r.status, 200, r.body);
      figure(Date.now() - t0 < 1000, `Redis killed: request ${i} took ${Date.now() - t0} ms`);
    }
    const list = await done;
    assertWhole(list);
    assert.ok(await until(async () => { const now = (await server.pids()).redis; return now && now !== redis; }, 50_000), server.log());
    assert.ok(await up(), server.log());
    const after = await ask(server.http, server.keys.paid);
    // What Redis knew it knows again; the streams are charged what they used, and never more.
    const most = list.reduce((n, r) => n + r.usage.total_tokens, 0) + 21 * 12 + 12;
    assert.ok(left(after) <= left(before), `${left(after)} left after ${left(before)}`);
    // Reservations that were made at the moment of the kill are released within a few seconds.
    const released = await until(async () => {
      const r = await ask(server.http, server.keys.paid);
      return left(r) >= left(before) - most - 200;
    }, 100_000, 500);
    assert.ok(released, `more than ${most} tokens were charged: ${left(before)} → ${left(await ask(server.http, server.keys.paid))}`);
  });

  test('stopped: streams and requests go on, and the gateway stays quick', async () => {
    assert.ok(await up());
    const { redis } = await server.pids();
    /** Samples of the loop's lag: [all, those of at most 10 ms]. */
    const lag = async () => {
      const text = await server.metrics();
      return [metric(text, 'sluice_gateway_loop_lag_seconds_count'), Number(/loop_lag_seconds_bucket\{le="0.01"\} (\d+)/.exec(text)[1])];
    };
    /** Forty requests beside 32 streams: the share of the loop's turns that were late, and what nine of ten /live took, in ms. */
    const round = async (begin) => {
      const { shown, done } = streams(32);
      await shown;
      const [all, soon] = await lag();
      begin();
      const waits = [];
      let longest = 0;
      for (let i = 0; i < 40; i++) {
        const t0 = performance.now();
        const [live, r] = await Promise.all([request(server.http, '/live').then((x) => { waits.push(performance.now() - t0); return x; }),
          ask(server.http, server.keys.paid, { ...small, max_tokens: 1 })]);
        assert.equal(live.status, 200);
        assert.equal(r.status, 200, r.body);
        longest = Math.max(longest, performance.now() - t0);
      }
      assertWhole(await done);
      const [allThen, soonThen] = await lag();
      assert.ok(allThen - all > 10, `${allThen - all} turns`);
      return { longest, late: 1 - (soonThen - soon) / (allThen - all), live: waits.sort((a, b) => a - b)[Math.floor(waits.length * 0.9)] };
    };
    // What the machine itself costs is seen in a round with Redis answering.
    const plain = await round(() => {});
    let stopped;
    try {
      stopped = await round(() => process.kill(redis, 'SIGSTOP'));
    } finally {
      process.kill(redis, 'SIGCONT');
    }
    const told = `without Redis ${JSON.stringify(stopped)}, with it ${JSON.stringify(plain)}`;
    figure(stopped.late <= Math.max(0.05, 1.5 * plain.late) && stopped.live < Math.max(50, 2 * plain.live) && stopped.longest < 1500, told);
    const text = await server.metrics();
    assert.match(text, /sluice_cache_failures_total\{reason="timeout"\} [1-9]/);
    assert.match(text, /sluice_cache_degraded_total\{kind="limit"\} [1-9]/);
    assert.ok(await up(), server.log());
    assert.equal((await server.pids()).redis, redis, 'nobody killed it');
  });

  test('a stored response outlives the gateway and the whole server', async () => {
    assert.ok(await up());
    const made = await post(server.http, server.keys.paid, '/v1/responses', { model: 'default', input: 'remember me', max_output_tokens: 8 });
    assert.equal(made.status, 200, made.body);
    const get = () => request(server.http, `/v1/responses/${made.json.id}`, { headers: { authorization: `Bearer ${server.keys.paid}` } });
    assert.equal((await get()).status, 200);
    const { gateway } = await server.pids();
    process.kill(gateway, 'SIGKILL');
    const back = await until(async () => { try { const r = await get(); return r.status === 200 && r; } catch { return null; } }, 100_000);
    assert.ok(back, server.log());
    assert.deepEqual(JSON.parse(back.body).output, made.json.output);
    const { state } = server;
    assert.equal(await server.stop(), 0, server.log());
    assert.deepEqual(server.left().filter((f) => f.endsWith('.sock')), []);
    server = await startServer({ echo: true, state, sets: [...fast, 'gateway.threads=2',
      ...tier('paid', { requests_per_minute: 0, tokens_per_minute: 0, tokens_per_day: 1000000 })] });
    assert.ok(await up(), server.log());
    const again = await get();
    assert.equal(again.status, 200, again.body);
    assert.deepEqual(JSON.parse(again.body).output, made.json.output);
    // The streams of the tests above used thousands; what was merely reserved may have come back.
    assert.ok(left(await ask(server.http, server.keys.paid)) < 1000000 - 2000, 'the day began anew');
  });
});

describe('limits', { skip }, () => {
  let server, second;
  // The store's limits, not those that a gateway enforces alone while Redis does not answer.
  const patient = ['engine.echo.ttft=0ms', 'engine.echo.rate=0', 'cache.timeout=30s', 'cache.connect_timeout=30s'];
  const key = 'sk-shared-key-of-two-gateways';
  const keys = [`gateway.keys.shared.sha256=${createHash('sha256').update(key).digest('hex')}`, 'gateway.keys.shared.tier=shared',
    'gateway.tiers.shared.concurrency=1000', 'gateway.tiers.shared.max_output=64'];
  let base2;
  const limits = tier('shared', { requests_per_minute: 0, tokens_per_minute: 0, tokens_per_day: 1000 });
  before(async () => {
    server = await startServer({ echo: true, sets: [...patient, ...keys, ...limits, 'gateway.tiers.free.concurrency=1000',
      ...tier('free', { requests_per_minute: 120, tokens_per_minute: 0, tokens_per_day: 0 })] });
    second = await startSecondGateway(server, [...patient, ...keys, ...limits]);
    base2 = second.http;
  });
  after(async () => {
    second?.stop();
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('are told in every answer, and end at the exact request', async () => {
    const t0 = Date.now();
    const list = await Promise.all(Array.from({ length: 200 }, () => ask(server.http, server.keys.free, { ...small, max_tokens: 1 })));
    const seconds = (Date.now() - t0) / 1000;
    const good = list.filter((r) => r.status === 200), refused = list.filter((r) => r.status === 429);
    assert.equal(good.length + refused.length, 200);
    assert.ok(good.length >= 120 && good.length <= 120 + 2 * seconds + 1, `${good.length} of 120 in ${seconds} s`);
    for (const r of list) assert.equal(r.headers['x-ratelimit-limit-requests'], '120');
    const remaining = new Set(good.map((r) => r.headers['x-ratelimit-remaining-requests']));
    assert.ok(remaining.has('119') && remaining.has('0') && remaining.size > 100, [...remaining].join(' '));
    for (const r of refused) {
      assert.equal(r.json.error.code, 'rate_limit_exceeded');
      assert.equal(r.json.error.type, 'requests');
      assert.equal(r.headers['x-should-retry'], 'true');
      assert.equal(r.headers['x-ratelimit-remaining-requests'], '0');
      assert.match(r.headers['x-ratelimit-reset-requests'], /^(1m0s|5\d(\.\d+)?s)$/);
      const ms = Number(r.headers['retry-after-ms']);
      assert.ok(ms >= 1 && ms <= 500, `${ms} ms`);
      assert.equal(r.headers['retry-after'], '1');
    }
    // True to what is promised: after that time one is let in. (Meanwhile a slow machine may have saved up some.)
    let last;
    for (let i = 0; i < 200 && last?.status !== 429; i++) last = await ask(server.http, server.keys.free);
    assert.equal(last.status, 429, 'none is refused');
    await new Promise((r) => setTimeout(r, Number(last.headers['retry-after-ms'])));
    const then = await ask(server.http, server.keys.free);
    assert.equal(then.status, 200, then.body);
  });

  test('of a day are one over two gateways, to the token', async () => {
    let used = 0, refused = 0;
    const body = { model: 'default', messages: user('word '.repeat(20)), max_tokens: 20 };
    for (let round = 0; refused === 0 && round < 20; round++) {
      const list = await Promise.all(Array.from({ length: 50 }, (_, i) => ask(i % 2 ? base2 : server.http, key, body)));
      for (const r of list) {
        if (r.status === 200) used += r.json.usage.total_tokens;
        else if (r.status === 429) refused++;
        else assert.fail(r.body);
        assert.equal(r.headers['x-ratelimit-limit-tokens'], '1000');
      }
      assert.ok(used <= 1000, `${used} tokens of 1000`);
    }
    // What is left is too little for the prompt; a smaller one gets all of it.
    for (let i = 0; i < 200; i++) {
      const r = await ask(i % 2 ? base2 : server.http, key, { model: 'default', messages: user('a'), max_tokens: 40 });
      if (r.status !== 200) {
        assert.equal(r.status, 429, r.body);
        assert.equal(r.json.error.type, 'tokens');
        assert.equal(Number(r.headers['x-ratelimit-remaining-tokens']), 1000 - used);
        assert.equal(r.headers['x-should-retry'], 'false');
        break;
      }
      used += r.json.usage.total_tokens;
      assert.ok(used <= 1000, `${used} tokens of 1000`);
    }
    assert.ok(used > 970, `only ${used} of 1000 tokens could be used`);
  });
});

describe('without a Redis', () => {
  let server;
  afterEach(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); server = null; });
  const health = async () => {
    const said = JSON.parse((await request(server.http, '/health')).body);
    return [said.status, said.store];
  };

  // Five requests per minute: one more becomes free every 12 seconds that the requests take.
  const timedList = async (n) => {
    const t0 = Date.now(), list = await Promise.all(Array.from({ length: n }, () => ask(server.http, server.keys.free)));
    return { list, ms: Date.now() - t0 };
  };
  const assertFive = ({ list, ms }) => {
    const good = list.filter((r) => r.status === 200).length;
    assert.ok(good >= 5 && good <= 5 + Math.floor(ms / 12000), `${good} of 5 in ${ms} ms`);
  };

  test('an address where none is: everything works, limits are this gateway\'s', async () => {
    server = await startServer({ echo: true, sets: [...fast, 'cache.address=127.0.0.1:1', 'gateway.tiers.free.concurrency=100',
      ...tier('free', { requests_per_minute: 5, tokens_per_minute: 0, tokens_per_day: 0 })] });
    assert.equal((await server.pids()).redis, undefined);
    assertFive(await timedList(20));
    assert.match(await server.metrics(), /sluice_cache_degraded_total\{kind="limit"\} [1-9]/);
    assert.match(server.log(), /Redis is not used until it works again/);
    assert.deepEqual(await health(), ['degraded', 'down']);
    assert.equal((await request(server.http, '/ready')).status, 200, 'requests are served all the same');
  });

  const streamed = async (body) => {
    const r = await request(server.http, '/v1/responses', { method: 'POST', body: JSON.stringify({ model: 'default', input: 'a b c', stream: true, ...body }),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
    return r.body.split('\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)));
  };

  test('a response that can\'t be stored is told whole, and ends as failed; what was is asked for in vain', async () => {
    server = await startServer({ echo: true, sets: [...fast, 'cache.address=127.0.0.1:1'] });
    const make = (body) => post(server.http, server.keys.paid, '/v1/responses', { model: 'default', input: 'a b c', ...body });
    const made = await make({});
    const seen = (r) => [r.status, r.error?.code, r.store, r.output[0].content[0].text, r.output[0].status];
    assert.equal(made.status, 200);
    assert.deepEqual(seen(made.json), ['failed', 'store_unavailable', false, 'a b c', 'completed']);
    assert.ok(made.json.usage.output_tokens > 0, 'it was made, and is paid for');
    const events = await streamed({}), last = events.at(-1);
    assert.deepEqual([last.type, ...seen(last.response)], ['response.failed', 'failed', 'store_unavailable', false, 'a b c', 'completed']);
    assert.equal(events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join(''), 'a b c');
    assert.deepEqual(events.slice(-3, -1).map((e) => e.type), ['response.content_part.done', 'response.output_item.done']);
    // What need not be stored is as ever; what must be, because nobody waits for it, is not begun.
    const free = await make({ store: false });
    assert.deepEqual([free.json.status, free.json.error, (await streamed({ store: false })).at(-1).type], ['completed', null, 'response.completed']);
    const background = await make({ background: true });
    assert.deepEqual([background.status, background.json.error.code, background.headers['retry-after']], [503, 'store_unavailable', '1']);
    const away = async (method, path) => {
      const r = await request(server.http, path, { method, headers: { authorization: `Bearer ${server.keys.paid}` } });
      return [r.status, JSON.parse(r.body).error.code];
    };
    for (const [method, path] of [['GET', ''], ['GET', '/input_items'], ['POST', '/cancel'], ['DELETE', '']])
      assert.deepEqual(await away(method, `/v1/responses/${made.json.id}${path}`), [503, 'store_unavailable'], method + path);
    const continued = await make({ previous_response_id: made.json.id });
    assert.deepEqual([continued.status, continued.json.error.code], [503, 'store_unavailable']);
  });

  test('a response that is larger than what the store takes says that', async () => {
    server = await startServer({ echo: true, sets: [...fast, 'cache.store=memory', 'cache.value_bytes=1KiB'] });
    const last = (await streamed({ input: 'word '.repeat(300) })).at(-1);
    assert.deepEqual([last.type, last.response.error.code], ['response.failed', 'store_limit_exceeded']);
  });

  test('memory, as configured', async () => {
    server = await startServer({ echo: true, sets: [...fast, 'cache.store=memory', 'gateway.threads=4', 'gateway.tiers.free.concurrency=100',
      ...tier('free', { requests_per_minute: 5, tokens_per_minute: 0, tokens_per_day: 0 })] });
    assert.match(server.log(), /store: memory/);
    assert.deepEqual(await health(), ['ok', 'memory'], 'what was asked for is no fault');
    assert.equal((await server.pids()).redis, undefined);
    // One limit for all threads.
    assertFive(await timedList(40));
  });

  test('a configuration that says two things is refused with its line', () => {
    const check = (...sets) => spawnSync(SLUICE, ['config', 'check', '-c', 'etc/sluice.yaml', ...sets.flatMap((s) => ['--set', s])], { encoding: 'utf8' });
    const cases = [[['cache.store=memory', 'cache.address=localhost:6379'], /cache\.address: given, but cache\.store is memory/],
      [['cache.memory=16MiB'], /cache\.memory: must be at least 12 times/], [['cache.prefix=a b'], /cache\.prefix: is made of/],
      [['cache.backoff_min=6s'], /cache\.backoff_max: must be at least/]];
    for (const [sets, said] of cases) {
      const r = check(...sets);
      assert.equal(r.status, 78, r.stderr);
      assert.match(r.stderr, said);
    }
    assert.equal(check('cache.address=unix:/run/redis.sock', 'cache.store=redis').status, 0);
  });

  test('memory, when none is installed', async () => {
    const path = process.env.PATH;
    process.env.PATH = '/nonexistent';
    try {
      server = await startServer({ echo: true, sets: fast });
    } finally {
      process.env.PATH = path;
    }
    assert.match(server.log(), /store: memory.*redis-server is not installed/);
    assert.equal((await ask(server.http, server.keys.free)).status, 200);
  });
});
