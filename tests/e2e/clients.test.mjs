// SPDX-License-Identifier: Apache-2.0
// Real clients against a real server: see client_suite.mjs and browser_suite.mjs for what each does. proxies.test.mjs runs the
// same behind nginx, HAProxy and others.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { streamText } from 'ai';
import { browserSuite, launchBrowsers } from './browser_suite.mjs';
import { chat, user } from './client.mjs';
import { LIBRARIES, SUITE_SETS, clientSuite } from './client_suite.mjs';
import { startServer } from './harness.mjs';

describe('clients', { timeout: 600_000 }, () => {
  const x = {}, browsers = new Map();
  let close;
  before(async () => {
    x.server = await startServer({ echo: true, sets: SUITE_SETS });
    Object.assign(x, { http: x.server.http, https: x.server.https });
    close = await launchBrowsers(browsers);
  });
  after(async () => {
    await close?.();
    const how = await x.server?.stop();
    assert.equal(how, 0, x.server?.log());
  });
  clientSuite(x, { direct: true });
  browserSuite(x, browsers);
});

describe('clients of the demo pair', { timeout: 600_000 }, () => {
  let server;
  before(async () => { server = await startServer({}); });
  after(() => server?.stop());

  for (const [name, Library, skip] of LIBRARIES) {
    test(`${name}: choices that differ, with the likeliest tokens`, { skip }, async () => {
      const openai = new Library({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
      const body = { model: 'demo-large', messages: user('Tell me a short story about a cat.'), n: 4, seed: 3, temperature: 1.2, max_tokens: 24,
        logprobs: true, top_logprobs: 3 };
      const whole = await openai.chat.completions.create(body);
      const texts = whole.choices.map((c) => c.message.content);
      assert.ok(texts.length === 4 && new Set(texts).size > 1, texts);
      for (const c of whole.choices) {
        for (const t of c.logprobs.content) {
          assert.equal(t.top_logprobs.length, 3);
          const likeliest = t.top_logprobs.map((o) => o.logprob);
          assert.deepEqual(likeliest, [...likeliest].sort((a, b) => b - a));
          assert.ok(t.logprob <= likeliest[0] + 1e-6);
        }
      }
      const streamed = ['', '', '', ''], tokens = [[], [], [], []];
      for await (const chunk of await openai.chat.completions.create({ ...body, stream: true })) {
        for (const c of chunk.choices) {
          streamed[c.index] += c.delta.content ?? '';
          tokens[c.index].push(...(c.logprobs?.content ?? []));
        }
      }
      assert.deepEqual(streamed, texts);
      assert.deepEqual(tokens, whole.choices.map((c) => c.logprobs.content));
    });
  }

  test('Vercel AI SDK: it knows Paris', async () => {
    const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid, includeUsage: true });
    const r = streamText({ model: provider('default'), prompt: 'What is the capital of France?', temperature: 0, maxRetries: 0 });
    let text = '';
    for await (const piece of r.textStream) text += piece;
    assert.match(text, /Paris/);
    assert.equal(await r.finishReason, 'stop');
    assert.ok((await r.usage).outputTokens > 0);
  });
});

describe('a wait that the libraries would not keep', { timeout: 600_000 }, () => {
  let server;
  // Something has to run: an idle server refuses nothing.
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=300s', 'gateway.limits.first_token=60s'] });
    chat(server.http, server.keys.paid, { model: 'default', messages: user('first') }).catch(() => {});
    while (!/^sluice_generations\{state="running"\} 1$/m.test(await server.metrics())) await new Promise((done) => setTimeout(done, 5));
  });
  after(() => server?.stop());

  for (const [name, Library, skip] of LIBRARIES) {
    test(`${name}: no retry`, { skip }, async () => {
      const answers = [];
      const openai = new Library({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 2,
        fetch: async (...args) => { const r = await fetch(...args); answers.push(r); return r; } });
      await assert.rejects(openai.chat.completions.create({ model: 'default', messages: user('x') }), Library.InternalServerError);
      assert.deepEqual(answers.map((r) => [r.status, r.headers.get('x-should-retry')]), [[503, 'false']]);
      assert.ok(Number(answers[0].headers.get('retry-after')) > 60);
    });
  }
});
