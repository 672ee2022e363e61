// SPDX-License-Identifier: Apache-2.0
// client.js without a browser: the parser at every cut, the retry policy on a clock of its own, the life of a run against
// a stand-in server over real connections.
// Perf: the cost of the parser.
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { random } from './page_corpus.mjs';
import { KEYS, startMock } from './page_mock.mjs';
import { PERF, figure } from './perf.mjs';

// Under a name that Node takes for a module.
const copy = await mkdtemp(join(tmpdir(), 'sluice-client-'));
await cp(fileURLToPath(new URL('../../gateway/www/client.js', import.meta.url)), join(copy, 'client.mjs'));
const { createClient, SseParser, SluiceError, retryAfterMs } = await import(pathToFileURL(join(copy, 'client.mjs')));

let mock;
before(async () => { mock = await startMock(); });
after(async () => {
  await mock.close();
  await rm(copy, { recursive: true });
});

// ---- the parser -----------------------------------------------------------------------------------------------------

function parsed(pieces, options) {
  const seen = [];
  const parser = new SseParser({ event: (e) => seen.push(e), retry: (ms) => seen.push(ms), comment: (c) => seen.push(c) }, options);
  for (const p of pieces) parser.push(p);
  return seen;
}

const LINES = [': ping', 'id: 1', 'data: {"a":1}', '', ':', 'event: note', 'data:two', 'data:  lines', 'data', 'other: x', '', 'retry: 5', 'retry: 5s', 'retry', 'id: 7', '', 'data: 가🌊나', '',
  'event: empty', '', 'data', '', 'id: a\0b', 'data:x:y', '', 'id', 'data: z', '', '\ufeffdata: not the first', '', 'data: never ended'];
const EVENTS = ['ping',
  { type: 'message', data: '{"a":1}', id: '1', lastEventId: '1' }, '',
  { type: 'note', data: 'two\n lines\n', id: null, lastEventId: '1' }, 5,
  { type: 'message', data: '가🌊나', id: null, lastEventId: '7' },
  { type: 'message', data: '', id: null, lastEventId: '7' },
  { type: 'message', data: 'x:y', id: null, lastEventId: '7' },
  { type: 'message', data: 'z', id: '', lastEventId: '' }];

test('events come out the same wherever the stream is cut, in text and in bytes', () => {
  for (const eol of ['\n', '\r\n', '\r']) {
    for (const mark of ['', '\ufeff']) {
      const text = mark + LINES.join(eol);
      const bytes = new TextEncoder().encode(text);
      assert.deepEqual(parsed([text]), EVENTS);
      assert.deepEqual(parsed([...text]), EVENTS);
      assert.deepEqual(parsed(Array.from(bytes, (b) => Uint8Array.of(b))), EVENTS);
      for (let i = 0; i <= bytes.length; i++) {
        assert.deepEqual(parsed([bytes.subarray(0, i), bytes.subarray(i)]), EVENTS, `cut at ${i}`);
        for (let j = i; j <= bytes.length; j += 7) assert.deepEqual(parsed([bytes.subarray(0, i), bytes.subarray(i, j), bytes.subarray(j)]), EVENTS);
      }
    }
  }
});

test('mixed line ends: CR LF is one, LF CR are two', () => {
  assert.deepEqual(parsed(['data: a\r', '\n', '\r', 'data: b\n\r\n']).map((e) => e.data), ['a', 'b']);
  assert.deepEqual(parsed(['data: a\n\r', 'data: b\r\r']).map((e) => e.data), ['a', 'b']);
});

test('the parser’s memory is bounded by an event, its cost by the text', () => {
  assert.throws(() => parsed(Array(5).fill('a'.repeat(1 << 20))), SluiceError);
  assert.throws(() => parsed(Array(50).fill('data: aaaaa\n'), { maxEventChars: 300 }), { code: 'malformed_answer' });
  assert.equal(parsed(Array(50).fill('data: aaaaa\n\n'), { maxEventChars: 300 }).length, 50);
  assert.equal(parsed(Array(500).fill(': ping\n'), { maxEventChars: 300 }).length, 500);
  if (!PERF) return;
  const timed = (n) => {
    const parser = new SseParser(() => {});
    const from = process.cpuUsage(); // what others do on this machine does not count
    for (let i = 0; i < n; i++) parser.push('aaaa');
    const { user, system } = process.cpuUsage(from);
    return (user + system) / 1e3 + 1;
  };
  timed(1000);
  let ratio = Infinity; // the least of a few: a pause of the machine only adds
  for (let i = 0; i < 5 && ratio >= 9; i++) ratio = Math.min(ratio, timed(120_000) / timed(30_000));
  figure(ratio < 9, `client: four times the pieces take ${ratio.toFixed(1)} times as long`);
});

// ---- the policy -----------------------------------------------------------------------------------------------------

test('Retry-After in seconds, milliseconds or as a date', () => {
  const of = (h) => retryAfterMs(new Headers(h), Date.parse('2026-01-01T00:00:00Z'));
  assert.equal(of({ 'retry-after': '3' }), 3000);
  assert.equal(of({ 'retry-after': '3', 'retry-after-ms': '150' }), 150);
  assert.equal(of({ 'retry-after': '3', 'retry-after-ms': 'soon' }), 3000);
  assert.equal(of({ 'retry-after': 'Thu, 01 Jan 2026 00:00:09 GMT' }), 9000);
  assert.equal(of({ 'retry-after': 'Wed, 31 Dec 2025 23:59:00 GMT' }), 0);
  assert.equal(of({ 'retry-after': 'soon' }), null);
  assert.equal(of({}), null);
});

const chunk = (delta, finish = null) => `data: ${JSON.stringify({ model: 'm', choices: [{ index: 0, delta, finish_reason: finish }], usage: null })}\n\n`;
const DONE = 'data: [DONE]\n\n';
const numbered = (texts, from = 0) => texts.map((t, i) => `id: ${from + i}\n${t}`);

/** A reply: pieces of a body, where 'break' is a connection that fails and 'hang' one that falls silent. */
function reply(status, headers = {}, pieces = ['{}']) {
  return (options) => {
    const left = [...pieces];
    const body = status === 204 ? null : new ReadableStream({
      start(controller) {
        options.signal?.addEventListener('abort', () => { try { controller.error(options.signal.reason); } catch { /* closed */ } });
      },
      async pull(controller) { // only on demand: an error takes what was not read with it
        const p = left.shift();
        if (p === 'hang') await new Promise(() => {});
        else if (p === 'break') controller.error(new TypeError('network'));
        else if (p === undefined) controller.close();
        else controller.enqueue(typeof p === 'string' ? new TextEncoder().encode(p) : p);
      },
    }, { highWaterMark: 0 });
    return new Response(body, { status, headers });
  };
}
const stream = (pieces, headers = {}) => reply(200, { 'content-type': 'text/event-stream; charset=utf-8', ...headers }, pieces);
const resumable = (pieces) => stream(pieces, { 'x-sluice-stream-id': 's-1' });
const refuse = () => { throw new TypeError('refused'); };

/** A client whose server gives these replies in turn, on a clock that only its waits move. */
function world(replies, options = {}) {
  const w = { calls: [], waits: [], now: 0 };
  const clock = { now: () => w.now, random: () => 1, pause: async (ms) => { w.waits.push(ms); w.now += ms; } };
  const fetch = async (url, init) => {
    w.calls.push({ url, method: init.method, headers: init.headers, body: init.body && JSON.parse(init.body), keepalive: init.keepalive });
    if (init.signal?.aborted) throw init.signal.reason;
    return (replies[w.calls.length - 1] ?? replies.at(-1))(init);
  };
  w.client = createClient({ apiKey: 'sk-test', fetch, clock, ...options });
  return w;
}
const ASK = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const OK = stream([chunk({ content: 'ok' }, 'stop'), DONE]);

test('what is retried before the first byte, how often and after which wait', async () => {
  const cases = [
    // replies, attempts, waits, error
    [[OK], 1, []],
    [[reply(503), reply(500), OK], 3, [500, 1000]],
    [[reply(408), OK], 2, [500]],
    [[reply(409), OK], 2, [500]],
    [[refuse, OK], 2, [500]],
    [[reply(429, { 'retry-after': '3' }), reply(429, { 'retry-after-ms': '20', 'retry-after': '9' }), OK], 3, [3500, 1020]],
    [[reply(503)], 3, [500, 1000], { status: 503, retryable: true }],
    [[refuse], 3, [500, 1000], { code: 'connection_failed', status: 0 }],
    [[reply(400)], 1, [], { status: 400, retryable: false }],
    [[reply(404)], 1, [], { status: 404, code: null }],
    [[reply(503, { 'x-should-retry': 'false' })], 1, [], { status: 503, retryable: false }],
    [[reply(400, { 'x-should-retry': 'true' }), OK], 2, [500]],
    [[reply(429, { 'retry-after': '61' })], 1, [], { status: 429, retryAfterMs: 61_000, retryable: true }],
  ];
  for (const [replies, attempts, waits, error] of cases) {
    const w = world(replies);
    const run = w.client.chat(ASK);
    if (error) await assert.rejects(run.answer(), { name: 'SluiceError', ...error });
    else assert.equal(await run.answer(), 'ok');
    assert.equal(run.status, error ? 'failed' : 'done');
    assert.deepEqual([w.calls.length, w.waits], [attempts, waits]);
    assert.ok(w.calls.every((c) => c.url === 'v1/chat/completions' && c.headers.Authorization === 'Bearer sk-test' && c.headers['x-sluice-events'] === '1'));
    assert.deepEqual(w.calls[0].body, { ...ASK, stream: true, stream_options: { include_usage: true } });
  }
});

test('waits are drawn from the whole of a range that doubles up to a bound', async () => {
  const w = world([reply(503)], { maxRetries: 8 });
  await assert.rejects(w.client.models(), { status: 503 });
  assert.deepEqual(w.waits, [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000]);
  const least = world([reply(503), OK], { clock: { now: () => 0, random: () => 0, pause: async (ms) => assert.equal(ms, 0) } });
  assert.equal(await least.client.chat(ASK).answer(), 'ok');
});

test('errors carry what the server said', async () => {
  const body = JSON.stringify({ error: { message: 'no such model', type: 'invalid_request_error', param: 'model', code: 'model_not_found' } });
  await assert.rejects(world([reply(404, { 'x-request-id': 'r-1' }, [body])]).client.chat(ASK).result(), {
    name: 'SluiceError', message: 'no such model', type: 'invalid_request_error', param: 'model', code: 'model_not_found', status: 404, requestId: 'r-1', retryAfterMs: null });
  for (const odd of ['', '<html>', 'null', '7', '{"error":"text"}', '{"error":null}']) {
    await assert.rejects(world([reply(500, { 'x-should-retry': 'false' }, [odd])]).client.models(), { status: 500, code: null });
  }
  await assert.rejects(world([reply(200, {}, ['<p>'])]).client.models(), { code: 'malformed_answer' });
  await assert.rejects(world([reply(200, {}, ['{"data":', 'break'])], { maxRetries: 0 }).client.models(), { code: 'connection_lost' });
  const inside = stream([chunk({ content: 'a' }), 'data: {"error":{"message":"device","type":"server_error","param":null,"code":"device_lost"}}\n\n'], { 'x-request-id': 'r-2' });
  const run = world([inside]).client.chat(ASK);
  await assert.rejects(run.result(), { status: 0, code: 'device_lost', type: 'server_error', message: 'device', requestId: 'r-2' });
  assert.equal(run.text, 'a');
  await assert.rejects(world([stream(['data: {nonsense\n\n'])]).client.chat(ASK).result(), { code: 'malformed_answer' });
  await assert.rejects(world([reply(200, { 'content-type': 'text/html' }, ['<p>'])]).client.chat(ASK).result(), { code: 'malformed_answer' });
});

test('addresses and tokens', async () => {
  for (const [baseURL, url] of [['', 'v1/models'], ['https://h', 'https://h/v1/models'], ['https://h/v1/', 'https://h/v1/models'], ['https://h/p/v1', 'https://h/p/v1/models'], ['/', '/v1/models']]) {
    const w = world([reply(200, {}, ['{"data":[{"id":"a"},{"id":7},null,{"id":"b"}]}'])], { baseURL });
    assert.deepEqual((await w.client.models()).map((m) => m.id), ['a', 'b']);
    assert.equal(w.calls[0].url, url);
  }
  let n = 0;
  const w = world([reply(503), reply(200, {}, ['{"data":[]}'])], { apiKey: undefined, getToken: async () => `t${n++}`, headers: { 'x-tenant': 'a' } });
  assert.deepEqual(await w.client.request('/v1/embeddings', { body: { input: 'x' } }), { data: [] });
  assert.deepEqual(w.calls.map((c) => [c.method, c.url, c.headers.Authorization, c.headers['x-tenant'], c.body.input]),
    [['POST', 'v1/embeddings', 'Bearer t0', 'a', 'x'], ['POST', 'v1/embeddings', 'Bearer t1', 'a', 'x']]);
  assert.equal('Authorization' in (await world([reply(200)], { apiKey: '' }).client.request('live'), {}), false);
});

// ---- a run ----------------------------------------------------------------------------------------------------------

test('the events of a run, and what it knows in the end', async () => {
  const usage = { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 };
  const w = world([stream([chunk({ role: 'assistant', content: '' }), chunk({ reasoning_content: 'hm' }), chunk({ content: '가' }), chunk({ tool_calls: [{ index: 0 }] }), chunk({}, 'stop'),
    `data: ${JSON.stringify({ choices: [], usage })}\n\n`, DONE, chunk({ content: 'after the end' })])]);
  const heard = [];
  const run = w.client.chat(ASK, { onEvent: (e) => heard.push(e.type) });
  const result = await run.result();
  assert.deepEqual(result, { text: '가', reasoning: 'hm', finishReason: 'stop', usage, model: 'm', status: 'done' });
  assert.deepEqual(heard, ['open', 'delta', 'delta', 'delta', 'finish', 'usage', 'done']);
  assert.equal(run.state, null);
  assert.throws(() => run[Symbol.asyncIterator](), TypeError);
  const both = [];
  for await (const event of world([OK]).client.chat(ASK, { onEvent: (e) => both.push(e.type) })) both.push(event.type);
  assert.deepEqual(both, ['open', 'open', 'delta', 'delta', 'finish', 'finish', 'done', 'done']);

  const read = [];
  for await (const event of world([OK]).client.chat(ASK)) read.push(event.type);
  assert.deepEqual(read, ['open', 'delta', 'finish', 'done']);
  const json = reply(200, { 'content-type': 'application/json' }, [JSON.stringify({ choices: [{ index: 0, message: { content: 'at once' }, finish_reason: 'stop' }] })]);
  assert.equal(await world([json]).client.chat(ASK).answer(), 'at once');
});

test('several choices are told apart; the text is that of the first', async () => {
  const one = (index, content) => `data: ${JSON.stringify({ choices: [{ index, delta: { content }, finish_reason: null }] })}\n\n`;
  const texts = ['', ''];
  const run = world([stream([one(0, 'a'), one(1, 'x'), one(1, 'y'), one(0, 'b'), DONE])]).client.chat({ ...ASK, n: 2 });
  for await (const e of run) if (e.type === 'delta') texts[e.index] += e.text;
  assert.deepEqual([texts, run.text], [['ab', 'xy'], 'ab']);
});

test('a cut without numbered events is an error, and what came stands', async () => {
  for (const end of [[], ['break']]) {
    const run = world([stream([chunk({ content: 'half' }), ...end])]).client.chat(ASK);
    await assert.rejects(run.result(), { code: 'connection_lost', retryable: true });
    assert.deepEqual([run.text, run.state, run.status], ['half', null, 'failed']);
  }
  const off = world([OK], { resume: false });
  await off.client.chat(ASK).answer();
  assert.equal(off.calls[0].headers['x-sluice-events'], undefined);
});

const PARTS = [...'abcdef'].map((c) => chunk({ content: c })).concat(chunk({}, 'stop'), DONE);
const ALL = numbered(PARTS);

test('a cut with numbered events goes on where it was, also in the midst of an event', async () => {
  const bytes = new TextEncoder().encode(`retry: 300\n${ALL.join('')}`);
  const ends = ALL.map((_, i) => new TextEncoder().encode(`retry: 300\n${ALL.slice(0, i + 1).join('')}`).length);
  for (let cut = 0; cut < bytes.length; cut++) {
    const had = ends.filter((e) => e <= cut).length;
    if (had === ALL.length) continue;
    for (const how of [[], ['break']]) {
      const w = world([resumable([bytes.subarray(0, cut), ...how]), resumable(['retry: 1000\n', ...ALL.slice(had)])]);
      assert.equal(await w.client.chat(ASK).answer(), 'abcdef', `cut at ${cut}`);
      const [, again] = w.calls;
      assert.deepEqual([again.method, again.url, again.headers['Last-Event-ID'], again.headers.Authorization], ['GET', 'v1/streams/s-1', had === 0 ? undefined : String(had - 1), 'Bearer sk-test']);
      assert.deepEqual(w.waits, [cut < 'retry: 300\n'.length ? 500 : 300]);
    }
  }
});

test('the error of a stream that is not continued counts, also under a number that was seen', async () => {
  const late = `id: 1\ndata: ${JSON.stringify({ error: { message: 'gone', type: 'server_error', code: 'not_continued' } })}\n\n`;
  const w = world([resumable([...ALL.slice(0, 3), 'break']), stream([late])]);
  await assert.rejects(w.client.chat(ASK).answer(), { code: 'not_continued' });
  assert.equal(w.calls.length, 2, 'it does not ask again');
});

test('what comes twice is taken once, what is missing is an error', async () => {
  const w = world([resumable([...ALL.slice(0, 4), 'break']), resumable(ALL.slice(1))]);
  assert.equal(await w.client.chat(ASK).answer(), 'abcdef');
  await assert.rejects(world([resumable([...ALL.slice(0, 2), ...ALL.slice(3)])]).client.chat(ASK).answer(), { code: 'stream_lost' });
  // An event without a number, such as an error from elsewhere, is taken as it comes.
  await assert.rejects(world([resumable([ALL[0], 'data: {"error":{"message":"x"}}\n\n'])]).client.chat(ASK).answer(), { message: 'x' });
});

test('the waits between the connections of one answer', async () => {
  const cut = resumable([...ALL.slice(0, 2), 'break']);
  const far = world([cut, refuse, reply(503), reply(502), refuse, resumable(ALL.slice(2))]);
  const seen = [];
  const run = far.client.chat(ASK, { onEvent: (e) => { if (e.type === 'waiting' || e.type === 'open') seen.push([e.type, e.resuming ?? e.resumed]); } });
  assert.equal((await run.result()).text, 'abcdef');
  assert.deepEqual(far.waits, [500, 1000, 2000, 4000, 8000]);
  assert.deepEqual(seen, [['open', false], ...Array(5).fill(['waiting', true]), ['open', true]]);

  const never = world([cut, refuse]);
  const lost = never.client.chat(ASK);
  await assert.rejects(lost.result(), { code: 'connection_lost', retryable: true });
  assert.ok(never.now <= 30_000 && never.now > 15_000, `${never.now} ms`);
  assert.deepEqual(lost.state, { id: 's-1', lastEventId: 1 });

  const empty = world([cut, resumable(['retry: 900\n'])]); // connections are made, but nothing comes
  await assert.rejects(empty.client.chat(ASK).answer(), { code: 'connection_lost' });
  assert.ok(empty.now <= 30_000 && empty.now > 15_000, `${empty.now} ms`);
  const beat = world([cut, ...Array(9).fill(resumable([': ping\n'])), resumable(ALL.slice(2))]); // a long prefill, heartbeats come
  assert.equal(await beat.client.chat(ASK).answer(), 'abcdef');
  assert.ok(beat.now > 30_000, `${beat.now} ms`);

  const progress = world([cut, resumable([ALL[2], 'break']), resumable([ALL[3], 'break']), resumable(ALL.slice(4))]);
  assert.equal(await progress.client.chat(ASK).answer(), 'abcdef');
  assert.deepEqual(progress.waits, [500, 500, 500], 'an event that came begins the count anew');

  const asked = world([cut, reply(503, { 'retry-after': '4' }), resumable(ALL.slice(2))]);
  assert.equal(await asked.client.chat(ASK).answer(), 'abcdef');
  assert.deepEqual(asked.waits, [500, 5000]);
});

test('the answers to a return: 204 is the end, 404 is lost, 401 is told at once', async () => {
  const cut = resumable([...ALL.slice(0, 7), 'break']);
  assert.equal(await world([cut, reply(204)]).client.chat(ASK).answer(), 'abcdef');
  for (const status of [404, 410]) {
    const w = world([cut, reply(status)]);
    await assert.rejects(w.client.chat(ASK).answer(), { code: 'stream_lost', status, retryable: false });
    assert.equal(w.calls.length, 2);
  }
  await assert.rejects(world([cut, reply(401)]).client.chat(ASK).answer(), { status: 401 });
});

test('state is plain data, and right at every event', async () => {
  const states = [];
  const run = world([resumable(ALL)]).client.chat(ASK);
  for await (const e of run) if (e.type === 'delta') states.push([run.text, JSON.parse(JSON.stringify(run.state))]);
  for (const [text, state] of states) {
    const w = world([resumable(ALL.slice(state.lastEventId + 1))]);
    assert.equal(text + await w.client.resume(state).answer(), 'abcdef');
    assert.equal(w.calls[0].headers['Last-Event-ID'], String(state.lastEventId));
  }
  const whole = world([refuse, resumable(ALL)]);
  assert.equal(await whole.client.resume({ id: 's-1' }).answer(), 'abcdef');
  assert.equal(whole.calls[1].headers['Last-Event-ID'], undefined);
  assert.throws(() => whole.client.resume({}), TypeError);
});

test('stop tells the server, and the loop just ends', async () => {
  for (const how of ['stop', 'break']) {
    const w = world([resumable([...ALL.slice(0, 3), 'hang']), reply(204)]);
    const run = w.client.chat(ASK);
    for await (const e of run) {
      if (e.type !== 'delta') continue;
      if (how === 'break') break;
      run.stop();
    }
    assert.deepEqual([run.text, run.status], ['a', 'stopped']);
    assert.equal((await run.result()).status, 'stopped');
    const [, stop] = w.calls;
    assert.deepEqual([stop.method, stop.url, stop.headers.Authorization, stop.keepalive], ['DELETE', 'v1/streams/s-1', 'Bearer sk-test', true]);
    assert.equal(w.calls.length, 2);
  }
  const none = world([OK]);
  const run = none.client.chat(ASK);
  run.stop();
  assert.deepEqual([(await run.result()).status, none.calls.length], ['stopped', 0]);
  const other = world([reply(204)]); // of a run that another page began
  await other.client.resume({ id: 's-2' }).stop();
  assert.deepEqual([other.calls[0].method, other.calls[0].url, other.calls[0].headers.Authorization], ['DELETE', 'v1/streams/s-2', 'Bearer sk-test']);
});

test('a signal stops a run while it waits and while it reads; detach leaves it running', async () => {
  const abort = new AbortController();
  const w = world([resumable([ALL[0], 'hang']), reply(204)]);
  const run = w.client.chat(ASK, { signal: abort.signal });
  await assert.rejects(async () => { for await (const e of run) if (e.type === 'delta') setImmediate(() => abort.abort()); }, { name: 'AbortError' });
  await assert.rejects(run.result(), { name: 'AbortError' });
  assert.deepEqual(w.calls.map((c) => c.method), ['POST', 'DELETE']);

  const waiting = new AbortController();
  const late = world([reply(503, { 'retry-after': '50' })], { clock: undefined });
  const slow = late.client.chat(ASK, { signal: waiting.signal, onEvent: (e) => { if (e.type === 'waiting') setImmediate(() => waiting.abort()); } });
  await assert.rejects(slow.result(), { name: 'AbortError' });
  assert.equal(late.calls.length, 1);
  await assert.rejects(world([OK]).client.chat(ASK, { signal: AbortSignal.abort() }).result(), { name: 'AbortError' });
  await assert.rejects(world([OK]).client.models({ signal: AbortSignal.abort() }), { name: 'AbortError' });

  const left = world([resumable([ALL[0], 'hang'])]);
  const going = left.client.chat(ASK, { onEvent: (e) => { if (e.type === 'delta') going.detach(); } });
  assert.equal((await going.result()).status, 'detached');
  assert.deepEqual([left.calls.length, going.state], [1, { id: 's-1', lastEventId: 0 }]);
});

test('silence counts as a cut, and headers that do not come as a failure', async () => {
  const w = world([resumable([ALL[0], 'hang']), resumable(ALL.slice(1))], { stallMs: 20 });
  assert.equal(await w.client.chat(ASK).answer(), 'abcdef');
  const never = () => new Promise(() => {});
  const mute = world([never], { timeoutMs: 20, maxRetries: 1 });
  await assert.rejects(mute.client.chat(ASK).answer(), { code: 'timeout', retryable: true });
  assert.equal(mute.calls.length, 2);
});

test('the types name what the module has', async () => {
  const www = new URL('../../gateway/www/', import.meta.url);
  const types = await readFile(new URL('client.d.ts', www), 'utf8');
  const exported = (text) => [...text.matchAll(/^export (?:async )?(?:function|class|const) (\w+)/gm)].map((m) => m[1]).sort();
  assert.deepEqual(exported(types), exported(await readFile(new URL('client.js', www), 'utf8')));
  const declared = (name) => [.../^\}/m[Symbol.split](types.slice(types.indexOf(`interface ${name} `)))[0].matchAll(/^  (?:readonly )?(\w+)[?<(:]/gm)].map((m) => m[1]);
  const { client } = world([OK]);
  assert.deepEqual(declared('Client').sort(), Object.keys(client).sort());
  const run = client.chat(ASK);
  for (const name of declared('Run')) assert.ok(name in run, name);
  assert.deepEqual(declared('Result').sort(), Object.keys(await run.result()).sort());
  const source = await readFile(new URL('client.js', www), 'utf8');
  for (const name of declared('ClientOptions')) assert.match(source.slice(source.indexOf('const settings'), source.indexOf('export function createClient')), new RegExp(`\\b${name}:`), name);
});

// ---- over real connections ------------------------------------------------------------------------------------------

const real = (options) => createClient({ baseURL: mock.origin, apiKey: KEYS.free, ...options });
const COUNTED = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');

test('a stream cut fifty times is the same as an uncut one', async () => {
  const rnd = random(77);
  const cuts = new Set();
  while (cuts.size < 50) cuts.add(rnd(200));
  mock.next({ text: COUNTED, everyMs: 0, retryMs: 5, pings: true, crlf: true, cuts: [...cuts] });
  const before = mock.cuts;
  const run = real().chat(ASK);
  assert.equal(await run.answer(), COUNTED);
  assert.equal(mock.cuts - before, 50);
  assert.deepEqual([run.finishReason, run.usage.completion_tokens], ['stop', 200]);
});

test('a run that was left is taken up by another client; its stop reaches the server', async () => {
  mock.next({ text: COUNTED, everyMs: 1 });
  const run = real().chat(ASK);
  for await (const e of run) if (e.type === 'delta' && run.text.length > 100) run.detach();
  const rest = real().resume(run.state);
  assert.equal(run.text + await rest.answer(), COUNTED);

  mock.next({ text: COUNTED, everyMs: 20 });
  const long = real().chat(ASK);
  for await (const e of long) if (e.type === 'delta') break;
  await long.stop();
  for (let i = 0; i < 6000 && mock.running > 0; i++) await new Promise((resolve) => { setTimeout(resolve, 5); });
  assert.equal(mock.running, 0);
  await assert.rejects(createClient({ baseURL: mock.origin, apiKey: KEYS.paid }).resume(long.state).answer(), { code: 'stream_lost' });
});

test('one client serves another server’s plain streams, and knows an unreachable one', async () => {
  mock.next({ text: 'plain text', plain: true });
  const run = real().chat(ASK);
  assert.deepEqual([await run.answer(), run.state], ['plain text', null]);
  await assert.rejects(createClient({ baseURL: mock.origin, apiKey: 'sk-wrong' }).models(), { status: 401, code: 'invalid_api_key' });
  await assert.rejects(createClient({ baseURL: 'http://127.0.0.1:9', maxRetries: 0 }).models(), { code: 'connection_failed' });
});
