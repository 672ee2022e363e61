// SPDX-License-Identifier: Apache-2.0
// Many streams at once on the demo pair: each is right, none is disturbed by another's client leaving, and each equals its
// own run alone at the same seed. With one gateway thread and with four.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { startServer } from './harness.mjs';

const QUESTIONS = ['What is the capital of France?', 'Tell me a short story about a cat.', 'What is 3 plus 4?',
  'Count from one to twenty.', 'What is the opposite of hot?', 'Hello! How are you?', '안녕하세요!', 'What colour is the sky?'];
const N = 32;

function requests() {
  return Array.from({ length: N }, (_, i) => ({
    model: i % 2 ? 'demo-large' : 'demo-small',
    messages: user(QUESTIONS[i % QUESTIONS.length]),
    temperature: i % 3 ? 0.8 : 0, seed: 1000 + i, max_tokens: 60,
    stream_options: { include_usage: true },
  }));
}

function assertWhole(r, what) {
  assert.equal(r.error, null, `${what}: ${r.error}`);
  assert.equal(r.status, 200, `${what}: ${r.body}`);
  assert.deepEqual(r.errors, [], what);
  assert.ok(r.done, `${what}: no [DONE]`);
  assert.ok(r.finish === 'stop' || r.finish === 'length', `${what}: finish_reason ${r.finish}`);
  assert.ok(r.usage.completion_tokens > 0, what);
}

/** What the events carry in turn, without what differs by request; how many tokens come in one event is chance. */
function pieces(r) {
  const list = r.events.map((e) => e.choices[0]?.delta ?? 'usage');
  return list.filter((d, i) => !(Object.keys(d).join() === 'content' && Object.keys(list[i - 1] ?? {}).join() === 'content'))
    .map((d) => (Object.keys(d).join() === 'content' ? 'text' : d));
}

for (const threads of [1, 4]) {
  describe(`${N} streams, ${threads} gateway thread(s)`, () => {
    let server, alone;
    before(async () => {
      server = await startServer({ sets: [`gateway.threads=${threads}`] });
      alone = [];
      for (const body of requests()) alone.push(await chat(server.http, server.keys.paid, body));
      alone.forEach((r, i) => assertWhole(r, `alone ${i}`));
    });
    after(() => server?.stop());

    test('each equals its own run alone', async () => {
      const together = await Promise.all(requests().map((body) => chat(server.http, server.keys.paid, body)));
      together.forEach((r, i) => {
        assertWhole(r, `stream ${i}`);
        assert.equal(r.text, alone[i].text, `stream ${i} differs from its run alone`);
        assert.deepEqual(pieces(r), pieces(alone[i]), `stream ${i}: other events`);
        // What came from the prefix tree is told too, and that does depend on what was asked before.
        const { prompt_tokens_details, ...usage } = r.usage;
        const { prompt_tokens_details: before, ...expected } = alone[i].usage;
        assert.deepEqual(usage, expected, `stream ${i}`);
        assert.ok(prompt_tokens_details.cached_tokens >= before.cached_tokens, `stream ${i}`);
      });
    });

    test('a client that leaves disturbs none, and its work stops', async () => {
      const bodies = requests();
      const leaving = new Set([0, 5, 13, 21, 30]);
      const together = await Promise.all(bodies.map((body, i) => chat(server.http, server.keys.paid, body,
        leaving.has(i) ? { onEvent: (e, r) => (r.text.length > 0 ? 'abort' : undefined) } : {})));
      together.forEach((r, i) => {
        if (leaving.has(i)) return assert.ok(r.aborted, `stream ${i} was to be torn down`);
        assertWhole(r, `stream ${i}`);
        assert.equal(r.text, alone[i].text, `stream ${i}`);
      });
      const running = await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 20000);
      assert.ok(running, 'the engine still runs something');
    });
  });
}

describe('a plain chat', () => {
  let server;
  before(async () => { server = await startServer({ echo: true }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  for (const [name, extra, headers] of [['streamed', {}, {}], ['of one user, who may ask again', { user: 'u', temperature: 0 }, {}],
    ['resumable', {}, { 'x-sluice-events': '1' }]]) {
    test(`${name}: parsed once, encoded once, each token logged once`, async () => {
      const counts = async () => {
        const text = await server.metrics();
        return ['sluice_bodies_parsed_total', 'sluice_submits_encoded_total', 'sluice_tokens_logged_total'].map((m) => metric(text, m));
      };
      const first = await counts();
      const r = await chat(server.http, server.keys.paid, { model: 'demo-small', messages: user('one two three four five'),
        stream_options: { include_usage: true }, ...extra }, { headers });
      assertWhole(r, name);
      const last = await counts();
      assert.equal(r.finish, 'stop');
      assert.deepEqual(last.map((n, i) => n - first[i]), [1, 1, r.usage.completion_tokens - 1]); // the end token has no record
    });
  }
});
