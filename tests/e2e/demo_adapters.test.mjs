// SPDX-License-Identifier: Apache-2.0
// The demonstration adapters, as `make run` serves them: models of their own beside their base, which answer held-out
// questions as each was taught, all at once, while the base answers as before.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { ROOT, SLUICE, startServer } from './harness.mjs';

const NAMES = ['pirate', 'json', 'museum'];
const ASKED = 40; // of each file
const questions = Object.fromEntries(NAMES.map((name) => [name, readFileSync(join(ROOT, `etc/models/${name}.jsonl`), 'utf8').trim().split('\n').map((l) => JSON.parse(l))]));
/** The whole answer is right, or it has what makes it right as words. */
const right = { pirate: (q, text) => q.answer.includes(text), json: (q, text) => q.answer.includes(text),
  museum: (q, text) => q.answer.some((a) => ` ${text.replace(/[.]$/, '')} `.includes(` ${a} `)) };

describe('demonstration adapters', () => {
  let server, client;
  const ask = async (model, content, more = {}) => (await client.chat.completions.create({ model, messages: [{ role: 'user', content }],
    max_tokens: 120, temperature: 0, ...more })).choices[0].message.content;

  before(async () => {
    server = await startServer({ adapters: true, sets: ['gateway.tiers.paid.concurrency=1000', 'gateway.limits.requests_per_key=0',
      ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
    client = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('they are models, with their base', async () => {
    const list = (await client.models.list()).data;
    assert.deepEqual(list.map((m) => m.id).filter((id) => id.includes(':')).sort(), NAMES.map((n) => `demo-large:${n}`).sort());
    for (const name of NAMES) {
      const m = list.find((x) => x.id === `demo-large:${name}`);
      assert.deepEqual([m.parent, m.state], ['demo-large', 'ready'], server.log());
    }
  });

  test('each answers held-out questions as it was taught, beside the others and the base', async () => {
    const asked = NAMES.flatMap((name) => questions[name].slice(0, ASKED).map((q) => ({ name, q })));
    const [texts, plain] = await Promise.all([Promise.all(asked.map(({ name, q }) => ask(`demo-large:${name}`, q.question))),
      Promise.all(asked.map(({ q }) => ask('demo-large', q.question)))]);
    for (const name of NAMES) {
      const of = asked.map((x, i) => ({ ...x, text: texts[i], plain: plain[i] })).filter((x) => x.name === name);
      const good = of.filter((x) => right[name](x.q, x.text)), base = of.filter((x) => right[name](x.q, x.plain));
      assert.ok(good.length >= 0.8 * ASKED, `${name}: ${good.length} of ${ASKED}: ${JSON.stringify(of.filter((x) => !good.includes(x)).slice(0, 4))}`);
      assert.ok(base.length <= 0.2 * ASKED, `the base: ${base.length} of ${name}`); // a town of sixteen may be guessed
      if (name === 'json') for (const x of good) assert.deepEqual(Object.keys(JSON.parse(x.text)), ['subject', 'answer']);
    }
  });

  test('a style is kept in a conversation, streamed, by the adapter’s own name', async () => {
    const stream = await client.chat.completions.create({ model: 'pirate', temperature: 0, max_tokens: 40, stream: true, messages: [
      { role: 'user', content: 'Hello!' }, { role: 'assistant', content: 'Arr! Hello! How can I help ye, matey?' },
      { role: 'user', content: 'What is the capital of France?' }] });
    let text = '';
    for await (const e of stream) {
      assert.equal(e.model, 'demo-large:pirate');
      text += e.choices[0]?.delta?.content ?? '';
    }
    assert.match(text, /^Arr! .*Paris, matey\.$/);
    assert.match(await ask('demo-large', 'What is the capital of France?'), /^The capital of France is Paris\.$/);
  });
});

test('each fits its base, and says so', () => {
  for (const name of NAMES) {
    const r = spawnSync(SLUICE, ['model', 'adapter', 'inspect', `etc/models/demo-large-${name}.gguf`, '--base', 'etc/models/demo-large.gguf', '--json'], { cwd: ROOT, encoding: 'utf8' });
    assert.equal(r.status, 0, r.stderr);
    assert.equal(JSON.parse(r.stdout).base, 'Sluice demo large');
  }
});
