// SPDX-License-Identifier: Apache-2.0
// Conversations that grow too long: a summary by the small model, checked, takes the place of their oldest turns, or they
// are trimmed; never what is pinned, the system's or the last turn; and every answer tells what was done.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { ROOT, request, startServer } from './harness.mjs';

const open = (server, key) => new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys[key], maxRetries: 0 });

/** Value of a metric, 0 where it is not there yet. */
async function metric(server, name, labels = '') {
  const text = await server.metrics();
  const line = text.split('\n').find((l) => l.startsWith(`${name}${labels ? `{${labels}}` : ''} `));
  return Number(line?.split(' ').at(-1) ?? NaN);
}
const outcome = (server, result) => metric(server, 'sluice_compress_summaries_total', `result="${result}"`);

describe('the echo engine', () => {
  // Its tokens are words, its answer is the last user message, so its summary is a transcript's beginning.
  const CONTEXT = 400, LIMIT = CONTEXT * 3 / 4;
  let server, paid, free;
  const turn = (i, said, answer = 'Fine, thank you.') => [
    { role: 'user', content: `${said} ${'and so on '.repeat(8).trim()} in turn number ${i}.` }, { role: 'assistant', content: answer }];
  /** Facts are near the front of each block (they pass), or so late in it that a short summary hasn't got there. */
  const early = (n) => Array.from({ length: n }, (_, i) => turn(i, i % 3 === 0 ? `We met Quentin${i}x at dawn` : 'we talked')).flat();
  const ask = (client, messages, more = {}) => client.chat.completions.create({ model: 'default', messages, ...more });
  before(async () => {
    server = await startServer({ echo: true, sets: [`engine.echo.context=${CONTEXT}`, 'engine.echo.rate=0', 'engine.echo.ttft=1ms'],
      edit: (yaml) => yaml.replace('compress: summary', 'compress: trim') });
    free = open(server, 'free'); // trims
    paid = open(server, 'paid');
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('a short conversation stays as it is', async () => {
    const r = await ask(paid, [...early(3), { role: 'user', content: 'Good bye' }]);
    assert.equal(r.sluice, undefined);
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
  });

  test('a long one is answered within the context', async () => {
    const messages = [{ role: 'system', content: 'Be kind.' }, ...early(40), { role: 'user', content: 'Good bye' }];
    const r = await ask(free, messages);
    const c = r.sluice.compressed;
    assert.equal(c.how, 'trim');
    assert.equal(c.summary_tokens, 0);
    assert.equal(c.cached, false);
    assert.ok(c.removed_messages >= 20 && c.removed_messages < 80 && c.removed_messages % 2 === 0, JSON.stringify(c));
    assert.ok(c.removed_tokens > 400, JSON.stringify(c));
    assert.ok(r.usage.prompt_tokens <= LIMIT, JSON.stringify(r.usage));
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
  });
});
