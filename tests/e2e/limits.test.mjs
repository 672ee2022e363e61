// SPDX-License-Identifier: Apache-2.0
// What a tier allows its keys: requests and tokens a minute, tokens a day. Each answer says what is left in the fields that
// clients know, a refusal says when to come back, and an answer ends at what the day has left.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { chat, user } from './client.mjs';
import { localOnly, startServer } from './harness.mjs';


/** The tiers of etc/sluice.yaml with other numbers. */
function tiers(yaml) {
  const [before, free, paid] = yaml.split(/(?=    - name: (?:free|paid)\n)/);
  const put = (text, key, n) => text.replace(new RegExp(`${key}: \\d+`), `${key}: ${n}`);
  assert.ok(free.startsWith('    - name: free'));
  return before + put(put(free, 'requests_per_minute', 3), 'tokens_per_minute', 100000)
    + put(put(put(paid, 'tokens_per_day', 60), 'tokens_per_minute', 1000), 'max_output', 20);
}

for (const store of ['memory', 'auto']) {
  describe(`limits, store ${store}`, () => {
    let server, free, paid;
    before(async () => {
      server = await startServer({ echo: true, edit: tiers, sets: ['engine.echo.rate=0', 'engine.echo.ttft=1ms', `cache.store=${store}`] });
      free = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.free, maxRetries: 0 });
      paid = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
    });
    after(async () => assert.equal(await server?.stop(), 0, server?.log()));

    test('requests a minute: told with each answer, then refused with when to come back', async () => {
      for (let left = 2; left >= 0; left--) {
        const { response } = await free.chat.completions.create({ model: 'default', messages: user('a b'), max_tokens: 5 }).withResponse();
        assert.equal(response.headers.get('x-ratelimit-limit-requests'), '3');
        assert.equal(response.headers.get('x-ratelimit-remaining-requests'), String(left));
        assert.match(response.headers.get('x-ratelimit-reset-requests'), /^(\d+h)?(\d+m)?(\d+(\.\d+)?s|\d+ms)$/);
        assert.ok(Number(response.headers.get('x-ratelimit-remaining-tokens')) > 0);
      }
      const error = await free.chat.completions.create({ model: 'default', messages: user('a b') }).catch((e) => e);
      assert.ok(error instanceof OpenAI.RateLimitError, String(error));
      assert.deepEqual([error.type, error.code], ['requests', 'rate_limit_exceeded']);
      const after = Number(error.headers.get?.('retry-after-ms') ?? error.headers['retry-after-ms']);
      assert.ok(after > 1000 && after <= 20000, `${after} ms`);
      assert.equal(error.headers.get?.('x-should-retry') ?? error.headers['x-should-retry'], 'true');
      const streamed = await chat(server.http, server.keys.free, { model: 'default', messages: user('x') });
      assert.equal(streamed.status, 429, 'a stream is refused before it begins');
    });

    test('tokens a day: the answer ends at what is left, and the next is refused', localOnly('how many tokens a prompt has before it is answered'), async () => {
      const words = Array.from({ length: 15 }, (_, i) => `w${i}`).join(' ');
      // 15 + 16 tokens of 60.
      const first = await paid.chat.completions.create({ model: 'default', messages: user(words) });
      assert.equal(first.choices[0].finish_reason, 'stop');
      const used = first.usage.total_tokens;
      const second = await chat(server.http, server.keys.paid, { model: 'default', messages: user(words), stream_options: { include_usage: true } });
      const left = 60 - used - 15;
      assert.equal(second.finish, 'length');
      assert.equal(second.usage.completion_tokens, left);
      assert.equal(second.text.trim(), words.split(' ').slice(0, left).join(' '));
      const third = await paid.chat.completions.create({ model: 'default', messages: user('a') }).catch((e) => e);
      assert.ok(third instanceof OpenAI.RateLimitError);
      assert.equal(third.headers.get?.('x-should-retry') ?? third.headers['x-should-retry'], 'false');
      assert.match(third.message, /day/);
    });
  });
}
