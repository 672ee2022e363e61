// SPDX-License-Identifier: Apache-2.0
// Conversations that grow too long: a summary by the small model, checked, takes the place of their oldest turns, or they
// are trimmed; never what is pinned, the system's or the last turn; and every answer and the metrics tell what was done.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { startServer } from './harness.mjs';

const open = (server, key) => new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys[key], maxRetries: 0 });

/** A metric's value. */
async function metric(server, name, labels) {
  const line = (await server.metrics()).split('\n').find((l) => l.startsWith(`${name}${labels ? `{${labels}}` : ''} `));
  return Number(line?.split(' ').at(-1));
}
const outcome = (server, result) => metric(server, 'sluice_compress_summaries_total', `result="${result}"`);
const requests = (server, how) => metric(server, 'sluice_compressed_requests_total', `how="${how}"`);

/** Waits until something is so. */
async function until(what, ok) {
  for (let i = 0; i < 400; i++) {
    if (await ok()) return;
    await new Promise((r) => { setTimeout(r, 25); });
  }
  assert.fail(`in vain: ${what}`);
}

// The echo engine's tokens are words and its answer is the last user's message, so that its summary of a transcript is the
// transcript's beginning: it has the facts that stand early in a block and lacks those that stand late.
const CONTEXT = 400, LIMIT = CONTEXT * 3 / 4;
const letters = (i) => String.fromCharCode(97 + i % 26) + String.fromCharCode(97 + (i * 7) % 26);
const and = (n) => Array(n).fill('and so on').join(' ');
const turn = (said) => [{ role: 'user', content: said }, { role: 'assistant', content: 'Fine, thank you.' }];
const early = (n) => Array.from({ length: n }, (_, i) => turn(`yes, we met Quentin${letters(i)} at dawn ${and(24)}.`)).flat();
const late = (n) => Array.from({ length: n }, (_, i) => turn(`well, ${and(24)} we met Quentin${letters(i)} at dusk.`)).flat();
const WORDS = 5 + 72 + 4; // of a turn
const bye = { role: 'user', content: 'Good bye' };
const ask = (client, messages, more = {}) => client.chat.completions.create({ model: 'default', messages, ...more });
const ECHO = [`engine.echo.context=${CONTEXT}`, 'engine.echo.rate=0', 'engine.echo.ttft=1ms'];
/** The free tier trims, the paid one summarizes. */
const edit = (yaml) => yaml.replace('compress: summary', 'compress: trim');

describe('with the echo engine', () => {
  let server, paid, free;
  before(async () => {
    server = await startServer({ echo: true, sets: ECHO, edit });
    free = open(server, 'free');
    paid = open(server, 'paid');
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('a short conversation stays as it is', async () => {
    const r = await ask(paid, [...early(2), bye]);
    assert.equal(r.sluice, undefined);
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
  });

  test('of one long message the paragraphs that matter are extracted', async () => {
    const before = await requests(server, 'extract');
    const filler = (i) => `paragraph ${letters(i)} ${and(8)}`;
    const parts = ['Please read this.', ...Array.from({ length: 20 }, (_, i) => filler(i)), 'the bicycle was left with Marlow at the station.', ...Array.from({ length: 20 }, (_, i) => filler(i + 20)),
      'they paid $4,250 for it.', 'Where is the bicycle?'];
    const r = await ask(free, [{ role: 'system', content: 'Be kind.' }, { role: 'user', content: parts.join('\n\n') }], { max_tokens: 100 });
    const c = r.sluice.compressed, said = r.choices[0].message.content;
    assert.equal(c.how, 'extract');
    assert.ok(c.removed_paragraphs > 20 && c.removed_tokens > 500 && c.removed_messages === 0, JSON.stringify(c));
    assert.ok(r.usage.prompt_tokens <= LIMIT, JSON.stringify(r.usage));
    // The echo says what it was sent.
    for (const part of ['Please read this.', 'Marlow at the station', '[…]']) assert.ok(said.includes(part), said);
    assert.equal(await requests(server, 'extract'), before + 1);
    // Beside turns that can go, it stays as it is where these make room enough.
    const both = await ask(free, [...early(20), { role: 'user', content: parts.slice(0, 12).join('\n\n') }]);
    assert.deepEqual([both.sluice.compressed.how, both.sluice.compressed.removed_paragraphs], ['trim', 0]);
  });

  test('one that would not fit is trimmed and answered', async () => {
    const before = await requests(server, 'trim');
    const r = await ask(free, [{ role: 'system', content: 'Be kind.' }, ...early(20), bye]), c = r.sluice.compressed;
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
    assert.equal(r.choices[0].finish_reason, 'stop');
    assert.ok(r.usage.prompt_tokens <= LIMIT, JSON.stringify(r.usage));
    assert.equal(c.how, 'trim');
    assert.equal(c.summary_tokens, 0);
    assert.equal(c.cached, false);
    assert.ok(c.removed_messages >= 26 && c.removed_messages < 40 && c.removed_messages % 2 === 0, JSON.stringify(c));
    assert.equal(c.removed_tokens, c.removed_messages / 2 * WORDS);
    assert.equal(await requests(server, 'trim'), before + 1);
  });

  test('what is pinned stays', async () => {
    const messages = [...early(20), bye], n = WORDS * 20 + 2;
    messages[2] = { ...messages[2], pinned: true };
    const r = await ask(free, messages), c = r.sluice.compressed;
    assert.equal(r.usage.prompt_tokens + c.removed_tokens, n);
    // Everything may go but three turns, one of them the pinned one and one the last.
    messages.forEach((m, i) => { messages[i] = { ...m, pinned: i < 4 }; });
    const two = await ask(free, messages);
    assert.equal(two.usage.prompt_tokens + two.sluice.compressed.removed_tokens, n);
    assert.ok(two.usage.prompt_tokens >= 2 * WORDS + 2);
    // Where all is pinned nothing goes, and then it doesn't fit.
    await assert.rejects(ask(free, messages.map((m) => ({ ...m, pinned: true }))), (e) => e.status === 400 && e.code === 'context_length_exceeded');
    await assert.rejects(ask(free, [{ ...bye, pinned: 'yes' }]), (e) => e.status === 400 && e.param === 'messages[0].pinned');
  });

  test('a summary that passes the check, made once', async () => {
    const messages = [...early(6), bye];
    const before = [await outcome(server, 'made') + await outcome(server, 'repaired'), await requests(server, 'summary'), await outcome(server, 'cached')];
    const r = await ask(paid, messages), c = r.sluice.compressed;
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
    assert.ok(r.usage.prompt_tokens <= LIMIT, JSON.stringify(r.usage));
    assert.equal(c.how, 'summary');
    assert.equal(c.cached, false);
    assert.ok(c.summary_tokens > 20, JSON.stringify(c));
    assert.equal(r.usage.prompt_tokens, WORDS * 6 + 2 - c.removed_tokens + c.summary_tokens);
    const made = await outcome(server, 'made') + await outcome(server, 'repaired') - before[0];
    assert.ok(made >= 1 && made <= c.removed_messages / 2, `${made} summaries of ${c.removed_messages} messages`);
    const cost = await metric(server, 'sluice_compress_summary_tokens_total');
    // The next turn finds it, whatever comes behind.
    const next = await ask(paid, [...messages, { role: 'assistant', content: 'Bye.' }, { role: 'user', content: 'Good night' }]);
    assert.equal(next.choices[0].message.content.trim(), 'Good night');
    assert.equal(next.sluice.compressed.cached, true);
    assert.equal(next.sluice.compressed.how, 'summary');
    assert.equal(next.sluice.compressed.removed_messages, c.removed_messages);
    assert.equal(await metric(server, 'sluice_compress_summary_tokens_total'), cost);
    assert.equal(await requests(server, 'summary'), before[1] + 2);
    assert.ok(await outcome(server, 'cached') > before[2]);
  });

  test('a failed check falls back, and is remembered', async () => {
    const messages = [...late(6), bye];
    const before = [await outcome(server, 'check_failed'), await outcome(server, 'cached_failed'), await requests(server, 'trim')];
    const r = await ask(paid, messages), c = r.sluice.compressed;
    assert.equal(r.choices[0].message.content.trim(), 'Good bye');
    assert.deepEqual([c.how, c.summary_tokens, c.cached], ['trim', 0, false]);
    assert.ok(await outcome(server, 'check_failed') > before[0]);
    assert.equal(await requests(server, 'trim'), before[2] + 1);
    const cost = await metric(server, 'sluice_compress_summary_tokens_total');
    assert.equal((await ask(paid, messages)).sluice.compressed.how, 'trim');
    assert.ok(await outcome(server, 'cached_failed') > before[1]);
    assert.equal(await metric(server, 'sluice_compress_summary_tokens_total'), cost);
  });

  test('streams tell it with the end, and so do responses', async () => {
    const messages = [...early(7), bye];
    const events = [];
    for await (const e of await ask(paid, messages, { stream: true, stream_options: { include_usage: true } })) events.push(e);
    const told = events.filter((e) => e.sluice);
    assert.equal(told.length, 1);
    assert.equal(told[0].choices[0].finish_reason, 'stop');
    assert.equal(told[0].sluice.compressed.how, 'summary');
    assert.ok(events.at(-1).usage.prompt_tokens <= LIMIT);

    let previous = null, r;
    for (let i = 0; i < 6; i++) {
      r = await paid.responses.create({ model: 'default', input: messages[2 * i].content, previous_response_id: previous, store: true });
      assert.equal(r.status, 'completed');
      previous = r.id;
    }
    assert.ok(r.sluice.compressed.removed_messages >= 2, JSON.stringify(r.sluice));
    assert.ok(r.usage.input_tokens <= LIMIT);
    // What is stored is all of it.
    const items = await paid.responses.inputItems.list(r.id, { limit: 100 });
    assert.equal(items.data.length, 11);
    assert.deepEqual((await paid.responses.retrieve(r.id)).sluice, r.sluice);
  });

  test('what the answer needs is left free for it', async () => {
    const messages = [...early(3), bye]; // 245 tokens
    assert.equal((await ask(free, messages)).sluice, undefined);
    const r = await ask(free, messages, { max_tokens: 150 });
    assert.ok(r.usage.prompt_tokens <= (CONTEXT - 150) * 3 / 4, JSON.stringify(r.usage));
  });

  test('nothing of it is in the log', async () => {
    assert.doesNotMatch(server.log(), /Quentin|dawn|dusk/);
  });
});

describe('when something is amiss', () => {
  test('limits of a key: summaries are charged, and refused where nothing is left', async () => {
    const day = 3000;
    const server = await startServer({ echo: true, sets: ECHO, edit: (yaml) => yaml.replaceAll('tokens_per_day: 0', `tokens_per_day: ${day}`) });
    try {
      const paid = open(server, 'paid');
      const left = async () => (await ask(paid, [bye]).withResponse()).response.headers.get('x-ratelimit-remaining-tokens');
      const first = Number(await left());
      const r = await ask(paid, [...early(6), bye]);
      const cost = await metric(server, 'sluice_compress_summary_tokens_total');
      assert.ok(cost > 100);
      await until('the charge', async () => Number(await left()) < first - cost - r.usage.total_tokens + 1);
      // A conversation that is always new: summaries and answers use the day up, then only answers are refused.
      let refused = 0;
      for (let i = 0; i < 12 && !await outcome(server, 'refused'); i++) {
        const more = early(6).map((m) => ({ ...m, content: `${m.content} Number ${i}` }));
        await ask(paid, [...more, bye]).catch((e) => { assert.equal(e.status, 429); refused++; });
      }
      assert.ok(refused >= 1);
      assert.ok(await outcome(server, 'refused') >= 1);
    } finally {
      assert.equal(await server.stop(), 0, server.log());
    }
  });

  test('a small model that hangs: the time is over, and the rest is trimmed; who leaves ends it', async () => {
    const server = await startServer({ echo: true, sets: [...ECHO, 'engine.echo.hang_after=3', 'gateway.compress.wait=300ms'] });
    try {
      const paid = open(server, 'paid');
      const r = await ask(paid, [...early(6), bye]);
      assert.equal(r.sluice.compressed.how, 'trim');
      assert.ok(await outcome(server, 'not_made') >= 1);
      const before = await metric(server, 'sluice_generations', 'state="running"');
      assert.equal(before, 0);
      const leave = new AbortController();
      const gone = ask(paid, [...early(7), bye], { stream: true }).catch(() => {}); // eslint-disable-line no-unused-vars
      const left = paid.chat.completions.create({ model: 'default', messages: [...late(7), bye] }, { signal: leave.signal });
      await until('a summary', async () => await metric(server, 'sluice_generations', 'state="running"') > 0);
      leave.abort();
      await assert.rejects(left);
      await gone;
      await until('its end', async () => await metric(server, 'sluice_generations', 'state="running"') === 0);
    } finally {
      assert.equal(await server.stop(), 0, server.log());
    }
  });

  test('an engine that dies in the middle of a summary: as otherwise', async () => {
    const server = await startServer({ echo: true, sets: [...ECHO, 'engine.echo.die_after=10'] });
    try {
      await assert.rejects(ask(open(server, 'paid'), [...early(6), bye]), (e) => e.status === 503);
    } finally {
      await server.stop();
    }
  });

  test('without a tier that wants it a conversation that is too long is refused', async () => {
    const server = await startServer({ echo: true, sets: ECHO, edit: (yaml) => yaml.replaceAll('compress: summary', 'compress: off') });
    try {
      await assert.rejects(ask(open(server, 'paid'), [...early(20), bye]), (e) => e.status === 400 && e.code === 'context_length_exceeded');
    } finally {
      assert.equal(await server.stop(), 0, server.log());
    }
  });
});

describe('with the demo pair', () => {
  // The facts are asked for whenever more of the conversation has gone, for then the summary is near.
  const facts = [['My name is Sam.', 'What is my name?', 'Sam'], ['I live in Zubo.', 'Which city do I live in?', 'Zubo'],
    ["My cat's name is Tiger.", 'What is my cat called?', 'Tiger']];
  const others = ['What is the capital of France?', 'What is the opposite of hot?', 'Say in a few words what a sailor is.',
    'What is the capital of Spain?', 'Tell me a joke.', 'How are you?', 'What comes after Monday?', 'What colour is the sky?',
    'How many days are in a week?', 'What does a dog say?'];
  test('60 turns are answered within the context, and what was said at the beginning is still known', { timeout: 600_000 }, async () => {
    const server = await startServer({ sets: ['gateway.compress.wait=10m'] });
    try {
      const paid = open(server, 'paid'), messages = [], asks = [], known = new Set();
      let gone = 0, all = 0, times = 0;
      for (let i = 0; i < 60; i++) {
        const question = i < facts.length ? facts[i][0] : asks.shift() ?? others[i % others.length];
        messages.push({ role: 'user', content: question });
        const r = await ask(paid, messages, { temperature: 0, max_tokens: 1024 });
        const answer = r.choices[0].message.content, c = r.sluice?.compressed;
        messages.push({ role: 'assistant', content: answer });
        assert.ok(r.usage.prompt_tokens <= (2048 - 1024) * 3 / 4, JSON.stringify(r.usage));
        assert.equal(r.choices[0].finish_reason, 'stop', answer);
        all = r.usage.prompt_tokens + (c ? c.removed_tokens - c.summary_tokens : 0);
        const fact = facts.find(([, q]) => q === question);
        if (fact && answer.includes(fact[2])) known.add(fact[2]);
        if (c && c.removed_messages > gone) {
          gone = c.removed_messages;
          times++;
          asks.push(...facts.map(([, q]) => q));
        }
      }
      const said = `${times} times, ${gone} messages of ${all} tokens; known: ${[...known]}`;
      console.log(said);
      assert.ok(all > (2048 - 1024), said); // it would not have fitted
      assert.ok(times >= 2 && known.size >= 2, said);
      assert.ok(await requests(server, 'summary') > 20);
      assert.ok(await outcome(server, 'cached') > 20);
    } finally {
      assert.equal(await server.stop(), 0, server.log());
    }
  });
});
