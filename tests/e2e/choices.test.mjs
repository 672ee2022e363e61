// SPDX-License-Identifier: Apache-2.0
// Several choices and log probabilities, as chat and as completions tell them, on the demo pair; lists of prompts, prompts
// of tokens and echo on completions. What is streamed equals what comes whole.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { user } from './client.mjs';
import { localOnly, request, startServer } from './harness.mjs';

let server, openai;
before(async () => {
  server = await startServer();
  openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

/** A stream's choices put together, in the shape of the whole answer's. */
async function gathered(stream, add) {
  const choices = [];
  const reasons = [];
  for await (const chunk of stream) {
    for (const c of chunk.choices) {
      add((choices[c.index] ??= { index: c.index, text: '', logprobs: null }), c);
      if (c.finish_reason) {
        assert.equal(reasons[c.index], undefined, 'a choice ends once');
        reasons[c.index] = choices[c.index].finish_reason = c.finish_reason;
      } else {
        assert.equal(reasons[c.index], undefined, 'nothing after a choice has ended');
      }
    }
  }
  return choices;
}

const addChat = (to, c) => {
  to.text += c.delta.content ?? '';
  if (c.logprobs) (to.logprobs ??= []).push(...c.logprobs.content);
};
const addText = (to, c) => {
  to.text += c.text;
  for (const [k, v] of Object.entries(c.logprobs ?? {})) ((to.logprobs ??= {})[k] ??= []).push(...v);
};

function checkLogprobs(list, text, n) {
  assert.ok(list.length > 0);
  const bytes = list.flatMap((t) => t.bytes);
  // The last token may have been cut by a stop; here none is given, so the bytes are the text.
  assert.equal(Buffer.from(bytes).toString('utf8'), text);
  for (const t of list) {
    assert.ok(t.logprob <= 0 && t.logprob >= -9999);
    assert.equal(t.top_logprobs.length, n);
    assert.ok(t.top_logprobs.every((x, i, all) => i === 0 || x.logprob <= all[i - 1].logprob), 'the likeliest first');
    assert.ok(t.top_logprobs.reduce((sum, x) => sum + Math.exp(x.logprob), 0) < 1.001);
    if (n > 0 && t.top_logprobs.some((x) => x.token === t.token)) {
      const same = t.top_logprobs.find((x) => Buffer.compare(Buffer.from(x.bytes), Buffer.from(t.bytes)) === 0);
      assert.ok(Math.abs(same.logprob - t.logprob) < 1e-3);
    }
  }
}

test('chat: n choices, streamed as they come whole, and different from each other', async () => {
  const body = { model: 'demo-large', messages: user('Tell me a story about a cat.'), n: 3, seed: 11, temperature: 1.1, max_tokens: 24 };
  const whole = await openai.chat.completions.create(body);
  assert.deepEqual(whole.choices.map((c) => c.index), [0, 1, 2]);
  assert.ok(new Set(whole.choices.map((c) => c.message.content)).size > 1);
  assert.ok(whole.usage.completion_tokens > 24);
  const streamed = await gathered(await openai.chat.completions.create({ ...body, stream: true }), addChat);
  assert.deepEqual(streamed.map((c) => [c.text, c.finish_reason]), whole.choices.map((c) => [c.message.content, c.finish_reason]));
});

test('chat: log probabilities are of the tokens that make the text', async () => {
  const body = { model: 'demo-large', messages: user('What is the capital of France? 안녕'), logprobs: true, top_logprobs: 4, seed: 3,
    temperature: 0.7, max_tokens: 20 };
  const whole = await openai.chat.completions.create(body);
  const [choice] = whole.choices;
  const told = choice.logprobs.content;
  const visible = told.filter((t, i) => !(i === told.length - 1 && choice.finish_reason === 'stop' && t.bytes.length && !choice.message.content.endsWith(t.token)));
  checkLogprobs(visible, choice.message.content, 4);
  const streamed = await gathered(await openai.chat.completions.create({ ...body, stream: true }), addChat);
  assert.deepEqual(streamed[0].logprobs, told);
  const none = await openai.chat.completions.create({ ...body, top_logprobs: undefined });
  assert.ok(none.choices[0].logprobs.content.every((t) => t.top_logprobs.length === 0));
  assert.equal((await openai.chat.completions.create({ ...body, logprobs: false, top_logprobs: undefined })).choices[0].logprobs, null);
});

test('completions: log probabilities in four lists side by side', async () => {
  const body = { model: 'demo-large', prompt: 'The capital of France', logprobs: 2, temperature: 0, max_tokens: 12 };
  const whole = await openai.completions.create(body);
  const { text, logprobs } = whole.choices[0];
  const n = logprobs.tokens.length;
  assert.ok(n > 0);
  assert.deepEqual([logprobs.token_logprobs.length, logprobs.top_logprobs.length, logprobs.text_offset.length], [n, n, n]);
  logprobs.tokens.forEach((t, i) => {
    assert.ok(logprobs.token_logprobs[i] <= 0);
    assert.ok(t in logprobs.top_logprobs[i], 'the chosen one is among them');
    assert.ok(Object.keys(logprobs.top_logprobs[i]).length <= 3);
    if (i > 0) assert.ok(logprobs.text_offset[i] >= logprobs.text_offset[i - 1]);
    if (/^[ -~]+$/.test(t) && text.length > logprobs.text_offset[i])
      assert.ok(text.startsWith(t, logprobs.text_offset[i]), `${t} at ${logprobs.text_offset[i]} of ${text}`);
  });
  const streamed = await gathered(await openai.completions.create({ ...body, stream: true }), addText);
  assert.deepEqual([streamed[0].text, streamed[0].logprobs], [text, logprobs]);
});

test('completions: a list of prompts with several choices each, in order', async () => {
  const body = { model: 'demo-large', prompt: ['The sky is', 'Two plus two', 'Once upon a time'], n: 2, seed: 5, temperature: 0.9, max_tokens: 10 };
  const whole = await openai.completions.create(body);
  assert.equal(whole.object, 'text_completion');
  assert.deepEqual(whole.choices.map((c) => c.index), [0, 1, 2, 3, 4, 5]);
  for (let i = 0; i < 3; i++) {
    const alone = await openai.completions.create({ ...body, prompt: body.prompt[i] });
    assert.deepEqual(alone.choices.map((c) => c.text), whole.choices.slice(2 * i, 2 * i + 2).map((c) => c.text), `prompt ${i} alone`);
  }
  const streamed = await gathered(await openai.completions.create({ ...body, stream: true }), addText);
  assert.deepEqual(streamed.map((c) => [c.text, c.finish_reason]), whole.choices.map((c) => [c.text, c.finish_reason]));
});

test('completions: echo puts the prompt before the text, whole and streamed', async () => {
  const body = { model: 'demo-large', prompt: ['Hello "you"', '안녕'], temperature: 0, max_tokens: 6 };
  const plain = await openai.completions.create(body);
  const echoed = await openai.completions.create({ ...body, echo: true });
  assert.deepEqual(echoed.choices.map((c) => c.text), plain.choices.map((c, i) => body.prompt[i] + c.text));
  const streamed = await gathered(await openai.completions.create({ ...body, echo: true, stream: true }), addText);
  assert.deepEqual(streamed.map((c) => c.text), echoed.choices.map((c) => c.text));
});

test('completions: prompts of tokens, alone and in a list', async () => {
  const body = { model: 'demo-large', temperature: 0, max_tokens: 5 };
  const one = await openai.completions.create({ ...body, prompt: [40, 50, 60] });
  assert.equal(one.usage.prompt_tokens, 3);
  const two = await openai.completions.create({ ...body, prompt: [[40, 50, 60], [70]] });
  assert.equal(two.choices[0].text, one.choices[0].text);
  assert.equal(two.usage.prompt_tokens, 4);
  await assert.rejects(openai.completions.create({ ...body, prompt: [1, 999999999] }), (e) => e.status === 400 && e.param.startsWith('prompt'));
});

test('completions: the best of several', localOnly('the best of several come with whole answers, which are streamed from there'), async () => {
  const body = { model: 'demo-large', prompt: 'Once upon a time', seed: 9, temperature: 1.2, max_tokens: 8 };
  const best = await openai.completions.create({ ...body, best_of: 4 });
  assert.equal(best.choices.length, 1);
  assert.ok(best.usage.completion_tokens > 8, 'all that were made are counted');
  await assert.rejects(openai.completions.create({ ...body, best_of: 4, stream: true }), (e) => e.status === 400 && e.param === 'best_of');
});

test('responses: log probabilities of the output', async () => {
  const body = { model: 'demo-large', input: 'What is the capital of France?', top_logprobs: 2, include: ['message.output_text.logprobs'],
    temperature: 0, max_output_tokens: 12 };
  const whole = await openai.responses.create(body);
  const part = whole.output[0].content[0];
  assert.ok(part.logprobs.length > 0 && part.logprobs.every((t) => t.top_logprobs.length === 2));
  const deltas = [];
  let last;
  for await (const e of await openai.responses.create({ ...body, stream: true })) {
    if (e.type === 'response.output_text.delta') deltas.push(...e.logprobs);
    last = e;
  }
  assert.deepEqual(deltas, part.logprobs);
  assert.deepEqual(last.response.output[0].content[0].logprobs, part.logprobs);
});

test('an event can be padded against who guesses words by its length', async () => {
  const r = await request(server.http, '/v1/chat/completions', { method: 'POST',
    headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo-large', messages: user('Count from one to twenty.'), stream: true, temperature: 0, max_tokens: 30,
      stream_options: { include_obfuscation: true } }) });
  const events = r.body.split('\n\n').filter((e) => e.includes('"content":"') && e.includes('obfuscation'));
  assert.ok(events.length > 1);
  assert.ok(events.every((e) => (Buffer.byteLength(e) + 2) % 64 === 0), 'few lengths');
});
