// SPDX-License-Identifier: Apache-2.0
// One budget of tokens a day under a thousand requests at once, over two gateways on one Redis: never more than it, and all
// of it while anybody still wants some; what was reserved and not used comes back.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { hasRedis, OVER_UPSTREAM, request, startServer } from './harness.mjs';
import { startSecondGateway } from './second.mjs';

const skip = hasRedis() ? false : 'redis-server is not installed';
const BUDGET = 10000, REQUESTS = 1000;
const keys = { crowd: 'sk-a-key-of-a-crowd', leaver: 'sk-a-key-that-leaves' };

describe('a budget of the day', { skip }, () => {
  let server, second;
  before(async () => {
    const sets = [...Object.entries(keys).flatMap(([name, key]) => [
      `gateway.keys.${name}.sha256=${createHash('sha256').update(key).digest('hex')}`, `gateway.keys.${name}.tier=budget`]),
      'gateway.tiers.budget.concurrency=2000', 'gateway.tiers.budget.max_output=64', 'gateway.tiers.budget.coalesce=off',
      'gateway.tiers.budget.requests_per_minute=0', 'gateway.tiers.budget.tokens_per_minute=0',
      `gateway.tiers.budget.tokens_per_day=${BUDGET}`, 'gateway.limits.quota_wait=30s', 'gateway.limits.requests_per_key=0',
      'gateway.limits.connections_per_address=0', 'cache.timeout=10s', 'cache.gateways=2'];
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=5ms', 'engine.echo.rate=200', 'gateway.threads=2', ...sets] });
    second = await startSecondGateway(server, sets);
  });
  after(async () => {
    second?.stop();
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  const left = async (key) => {
    const r = await request(server.http, '/v1/usage', { headers: { authorization: `Bearer ${key}` } });
    return JSON.parse(r.body).remaining.tokens_per_day.remaining;
  };

  test('is used to the last token that is of any use, and not beyond', async () => {
    const lengths = Array.from({ length: REQUESTS }, (_, i) => 2 + (i * 7919) % 30);
    const list = await Promise.all(lengths.map((n, i) => chat(i % 2 ? second.http : server.http, keys.crowd,
      { model: 'default', messages: user(Array.from({ length: n }, (_, k) => `w${k}`).join(' ')), stream_options: { include_usage: true } })));
    let used = 0, cut = 0;
    const refused = [];
    list.forEach((r, i) => {
      if (r.status === 200) {
        assert.ok(r.done && r.usage && r.errors.length === 0, `request ${i}: ${r.body.slice(-300)}`);
        const words = r.text.trim().split(' ').length, n = r.usage.completion_tokens;
        // The end token counts as well, if the budget has one for it.
        assert.ok(n === words || (r.finish === 'stop' && n === words + 1), `request ${i}: ${words} words, ${n} tokens`);
        assert.ok(r.finish === 'length' || words === lengths[i], `request ${i}: ${words} of ${lengths[i]}`);
        used += r.usage.total_tokens;
        cut += r.finish === 'length';
      } else {
        assert.equal(r.status, 429, `request ${i}: ${r.status} ${r.error} ${r.body}`);
        refused.push(lengths[i]);
      }
    });
    const rest = BUDGET - used;
    assert.ok(refused.length > 100, 'they did not want more than there is');
    assert.ok(rest >= 0, `${used} tokens of ${BUDGET}`);
    // Nobody who could have used what is left was refused or cut, unless an upstream counted a prompt as shorter than it seemed.
    assert.ok(OVER_UPSTREAM || rest <= Math.min(...refused), `${rest} tokens were left, and ${Math.min(...refused)} and one were wanted`);
    assert.ok(OVER_UPSTREAM || rest === 0 || cut === 0, `${cut} answers were cut, and ${rest} tokens were left`);
    assert.ok(await until(async () => await left(keys.crowd) === rest, 50000), `${await left(keys.crowd)}, not ${rest}`);
  });

  test('what was reserved and not used is back', async () => {
    const STREAMS = 100;
    let events = 0, showing = 0;
    const list = await Promise.all(Array.from({ length: STREAMS }, (_, i) => {
      let mine = 0;
      return chat(i % 2 ? second.http : server.http, keys.leaver, { model: 'default', messages: user('word '.repeat(40)) },
        { onEvent: () => { events++; showing += ++mine === 3; return showing === STREAMS || mine === 20 ? 'abort' : undefined; } });
    }));
    assert.equal(list.filter((r) => r.aborted).length, STREAMS);
    // 64 tokens each were reserved; made were about as many as were seen, and those that were on their way.
    const most = STREAMS * 40 + events + STREAMS * 24;
    const back = await until(async () => BUDGET - await left(keys.leaver) <= most, 100_000);
    assert.ok(back, `${BUDGET - await left(keys.leaver)} of ${BUDGET} are still taken, ${most} could have been used`);
  });
});
