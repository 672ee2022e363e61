// SPDX-License-Identifier: Apache-2.0
// What clients do with a server, as functions of its address: the openai packages, the Vercel AI SDK, curl and plain
// requests. The same suite runs against the server itself and through each proxy. The engine is the echo engine: an answer
// is the question's words, `repeat …` goes round, and `clock` answers with the time at which each token was made.
import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import OpenAI4 from 'openai-4';
import OpenAI5 from 'openai-5';
import OpenAI7 from 'openai-7';
import { chat, curl, metric, until, user } from './client.mjs';
import { request } from './harness.mjs';

/** openai 4 brings node-fetch 2, to which some releases of Node make every whole answer in chunks look broken off. Why it can't run. */
async function nodeFetchFails() {
  const answer = '{"object":"list","data":[]}';
  const server = net.createServer((c) => {
    c.on('error', () => {});
    c.once('data', () => c.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n${answer.length.toString(16)}\r\n${answer}\r\n0\r\n\r\n`));
    c.unref();
  });
  await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
  try {
    await new OpenAI4({ baseURL: `http://127.0.0.1:${server.address().port}`, apiKey: 'x', maxRetries: 0 }).models.list();
    return false;
  } catch (e) {
    if (!/Premature close/.test(e.message)) throw e;
    return `its node-fetch can't read a whole answer with Node ${process.version} (Premature close)`;
  } finally {
    server.close();
  }
}

/** [name, package, why it can't run here or false]. The one that the other suites use is the newest that admits Debian's Node. */
export const CURRENT = ['openai 6', OpenAI, false];
/** Its majors. */
export const LIBRARIES = [['openai 4', OpenAI4, await nodeFetchFails()], ['openai 5', OpenAI5, false], CURRENT, ['openai 7', OpenAI7, false]];

/** Of a server for this suite: the free tier is slow and has one place, so that refusals and silence can be had. */
export const SUITE_SETS = ['gateway.threads=2', 'engine.echo.rate=200', 'engine.echo.ttft=5ms', 'gateway.heartbeat=100ms', 'supervisor.hang=30s',
  'gateway.tiers.free.concurrency=1', 'gateway.tiers.free.pace_tps=4', 'gateway.tiers.free.burst=1',
  'gateway.trusted_proxies=127.0.0.1', 'gateway.forwarded=x-forwarded-for'];

const LONG = `repeat ${'over and '.repeat(20)}`;

const running = async (server) => metric(await server.metrics(), 'sluice_engine_running');
export const isIdle = (server) => until(async () => await running(server) === 0, 60_000);
const isBusy = (server) => until(async () => await running(server) > 0, 60_000);

/** fetch that notes the answers: [{status, at (milliseconds), headers}]; refused: called when one is refused. */
function noted(list, refused = () => {}) {
  return async (...args) => {
    const r = await fetch(...args);
    list.push({ status: r.status, at: performance.now(), headers: r.headers });
    if (!r.ok) refused();
    return r;
  };
}

/** Each further attempt came no sooner than the one before had asked for. */
function assertWaited(attempts) {
  for (let i = 1; i < attempts.length; i++) {
    const asked = Number(attempts[i - 1].headers.get('retry-after')) * 1000;
    assert.ok(asked >= 1000, `no retry-after beside ${attempts[i - 1].status}`);
    // The second stamp is of the next answer, which is after its request.
    assert.ok(attempts[i].at - attempts[i - 1].at >= asked - 5, 'the next attempt came too soon');
  }
}

/** x: {server, http (base address of what is tested)}, known once the tests run. */
function librarySuite([name, Library, skip], x, { toldOfWhole }) {
  const of = (title, run) => test(`${name}: ${title}`, { skip }, run);
  const library = (key, more = {}) => new Library({ baseURL: `${x.http}/v1`, apiKey: x.server.keys[key], maxRetries: 0, ...more });
  const paid = (more) => library('paid', more);

  of('a whole answer', async () => {
    const { data, response } = await paid().chat.completions.create({ model: 'demo-small', messages: user('안녕 "q"\n\u{1F600}') }).withResponse();
    assert.equal(data.choices[0].message.content, '안녕 "q"\n\u{1F600}');
    assert.equal(data.choices[0].finish_reason, 'stop');
    assert.equal(data.model, 'demo-small');
    assert.match(response.headers.get('x-request-id'), /^req_/);
    assert.match((await paid().models.list()).data.map((m) => m.id).sort().join(), /^auto,demo-large,demo-small$/);
  });

  of('a stream, and usage in its last chunk', async () => {
    const chunks = [];
    for await (const c of await paid().chat.completions.create({ model: 'default', messages: user('one zwei 셋 four'), stream: true,
      stream_options: { include_usage: true } })) chunks.push(c);
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'one zwei 셋 four');
    assert.equal(new Set(chunks.map((c) => `${c.id} ${c.created} ${c.model}`)).size, 1);
    assert.ok(chunks.slice(0, -1).every((c) => c.usage === null));
    assert.deepEqual(chunks.map((c) => c.choices[0]?.finish_reason).filter(Boolean), ['stop']);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, 5); // the words and the end
    assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + 5);
  });

  of('the streaming helper', async () => {
    const chats = paid().chat.completions.stream ? paid().chat.completions : paid().beta.chat.completions;
    const stream = chats.stream({ model: 'default', messages: user('helped along'), stream_options: { include_usage: true } });
    const deltas = [];
    stream.on('content', (delta, snapshot) => { deltas.push(delta); assert.equal(snapshot, deltas.join('')); });
    const done = await stream.finalChatCompletion();
    assert.deepEqual([deltas.join(''), done.choices[0].message.content], ['helped along', 'helped along']);
    assert.equal(done.choices[0].finish_reason, 'stop');
    assert.equal((await stream.totalUsage()).completion_tokens, 3);
  });

  of('several choices with log probabilities', async () => {
    const body = { model: 'default', messages: user('a b c'), n: 2, logprobs: true };
    const whole = await paid().chat.completions.create(body);
    assert.deepEqual(whole.choices.map((c) => c.index), [0, 1]);
    const first = whole.choices[0].logprobs.content;
    assert.deepEqual(first.map((t) => t.token), ['a ', 'b ', 'c']);
    assert.ok(first.every((t) => t.logprob <= 0 && Buffer.from(t.bytes).toString() === t.token));
    const told = new Map([[0, []], [1, []]]), ends = [];
    for await (const c of await paid().chat.completions.create({ ...body, stream: true })) {
      for (const choice of c.choices) {
        told.get(choice.index).push(...(choice.logprobs?.content ?? []));
        if (choice.finish_reason) ends.push(choice.index);
      }
    }
    assert.deepEqual(told.get(0), first);
    assert.deepEqual(ends.sort(), [0, 1]);
  });

  of('leaving a stream stops the work', async () => {
    const stream = await paid().chat.completions.create({ model: 'default', messages: user(LONG), stream: true });
    let n = 0;
    for await (const c of stream) {
      if (c.choices[0].delta.content && ++n === 3) break;
    }
    assert.ok(await isIdle(x.server), 'the engine still runs it');
    if (!toldOfWhole) return;
    const asked = new AbortController();
    const whole = paid().chat.completions.create({ model: 'default', messages: user(LONG) }, { signal: asked.signal });
    assert.ok(await isBusy(x.server));
    asked.abort();
    await assert.rejects(whole, Library.APIUserAbortError);
    assert.ok(await isIdle(x.server), 'the engine still makes the answer that nobody waits for');
  });

  of('typed errors', async () => {
    const ask = (more, key = 'paid') => library(key).chat.completions.create({ model: 'default', messages: user('x'), ...more });
    for (const stream of [false, true]) {
      await assert.rejects(ask({ model: 'nope', stream }), (e) => e instanceof Library.NotFoundError && e.code === 'model_not_found' && e.param === 'model');
      await assert.rejects(ask({ temperature: 3, stream }), (e) => e instanceof Library.BadRequestError && e.param === 'temperature');
      // A million bytes: little less than a body may have.
      await assert.rejects(ask({ messages: user('word '.repeat(200_000)), stream }),
        (e) => e instanceof Library.BadRequestError && e.code === 'context_length_exceeded' && e.type === 'invalid_request_error');
      await assert.rejects(ask({ stream }, 'admin'), Library.PermissionDeniedError);
      const wrong = new Library({ baseURL: `${x.http}/v1`, apiKey: 'sk-wrong', maxRetries: 0 });
      await assert.rejects(wrong.chat.completions.create({ model: 'default', messages: user('x'), stream }),
        (e) => e instanceof Library.AuthenticationError && e.code === 'invalid_api_key' && /^req_/.test(e.request_id ?? e.requestID));
    }
  });

  of('a place that is taken is waited for', async () => {
    const free = { model: 'default', messages: user('slow') };
    const attempts = [];
    // An answer that goes on until an attempt was refused.
    const stream = await library('free').chat.completions.create({ model: 'default', messages: user(LONG), stream: true });
    await assert.rejects(library('free').chat.completions.create(free),
      (e) => e instanceof Library.RateLimitError && e.code === 'concurrency_limit' && e.type === 'rate_limit_error');
    const second = library('free', { maxRetries: 2, fetch: noted(attempts, () => stream.controller.abort()) }).chat.completions.create(free);
    assert.equal((await second).choices[0].message.content, 'slow');
    assert.match(attempts.map((a) => a.status).join(), /^429,(429,)?200$/);
    assertWaited(attempts);
  });

  of('an engine that dies is waited for', async () => {
    const attempts = [];
    const text = Array(300).fill('w').join(' ');
    const answer = paid({ maxRetries: 2, fetch: noted(attempts) }).chat.completions.create({ model: 'default', messages: user(text) });
    assert.ok(await isBusy(x.server));
    process.kill((await x.server.pids()).engine, 'SIGKILL');
    assert.equal((await answer).choices[0].message.content, text);
    assert.match(attempts.map((a) => a.status).join(), /^503,(503,)?200$/);
    assertWaited(attempts);
  });

  of('completions', async () => {
    const whole = await paid().completions.create({ model: 'default', prompt: ['one two', 'three'] });
    assert.deepEqual(whole.choices.map((c) => [c.index, c.text, c.finish_reason]), [[0, 'one two', 'stop'], [1, 'three', 'stop']]);
    let text = '', finish = null;
    for await (const c of await paid().completions.create({ model: 'default', prompt: 'uno dos', stream: true })) {
      text += c.choices[0].text;
      finish ??= c.choices[0].finish_reason;
    }
    assert.deepEqual([text, finish], ['uno dos', 'stop']);
  });

  of('responses', async () => {
    const openai = paid();
    const made = await openai.responses.create({ model: 'default', input: 'alpha beta' });
    const said = (r) => r.output[0].content[0].text; // output_text is not everywhere in older ones
    assert.equal(said(made), 'alpha beta');
    assert.equal(said(await openai.responses.retrieve(made.id)), 'alpha beta');
    const events = [];
    const next = { model: 'default', input: 'gamma delta', previous_response_id: made.id, stream: true };
    for await (const e of await openai.responses.create(next)) events.push(e);
    assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
    assert.equal(events[0].type, 'response.created');
    assert.equal(events.at(-1).type, 'response.completed');
    assert.equal(events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join(''), 'gamma delta');
    const final = await openai.responses.stream({ model: 'default', input: 'epsilon' }).finalResponse();
    assert.equal(said(final), 'epsilon');
    await (openai.responses.delete ?? openai.responses.del).call(openai.responses, made.id);
    await assert.rejects(openai.responses.retrieve(made.id), Library.NotFoundError);
  });
}

function vercelSuite(x, { direct }) {
  const model = (name = 'default', key = 'paid', more = {}) => createOpenAICompatible({ name: 'sluice', baseURL: `${x.http}/v1`,
    apiKey: x.server.keys[key], includeUsage: true, ...more })(name);

  test('Vercel AI SDK: generateText', async () => {
    const r = await generateText({ model: model(), prompt: 'Grüße an alle', maxRetries: 0 });
    assert.deepEqual([r.text, r.finishReason, r.usage.outputTokens], ['Grüße an alle', 'stop', 4]);
    const cut = await generateText({ model: model(), prompt: 'a b c d', maxOutputTokens: 2, maxRetries: 0 });
    assert.deepEqual([cut.text, cut.finishReason], ['a b ', 'length']);
  });

  test('Vercel AI SDK: streamText', async () => {
    const errors = [];
    const r = streamText({ model: model(), system: 'Be brief.', prompt: 'one two three', maxRetries: 0, onError: (e) => errors.push(e) });
    const deltas = [];
    for await (const piece of r.textStream) deltas.push(piece);
    assert.equal(deltas.join(''), 'one two three');
    assert.equal(await r.finishReason, 'stop');
    assert.equal((await r.usage).outputTokens, 4);
    assert.deepEqual(errors, []);
  });

  test('Vercel AI SDK: leaving and errors', async () => {
    const left = new AbortController();
    const r = streamText({ model: model(), prompt: LONG, maxRetries: 0, abortSignal: left.signal });
    for await (const piece of r.textStream) { if (piece) left.abort(); }
    assert.ok(await isIdle(x.server), 'the engine still runs it');
    await assert.rejects(generateText({ model: model('nope'), prompt: 'x', maxRetries: 0 }),
      (e) => e.name === 'AI_APICallError' && e.statusCode === 404 && !e.isRetryable && /does not exist/.test(e.message));
  });

  if (direct) test('Vercel AI SDK: a place that is taken is waited for', async () => {
    // The place of the key is taken until an attempt was refused: the SDK's retry finds it free.
    let taken, leave = false;
    await new Promise((begun) => {
      taken = chat(x.http, x.server.keys.free, { model: 'default', messages: user(LONG) }, { onEvent: () => { begun(); return leave ? 'abort' : undefined; } });
    });
    await assert.rejects(generateText({ model: model('default', 'free'), prompt: 'x', maxRetries: 0 }),
      (e) => e.statusCode === 429 && e.isRetryable);
    const attempts = [];
    const patient = model('default', 'free', { fetch: noted(attempts, () => { leave = true; }) });
    assert.equal((await generateText({ model: patient, prompt: 'later', maxRetries: 2 })).text, 'later');
    assert.match(attempts.map((a) => a.status).join(), /^429,(429,)?200$/);
    assert.ok((await taken).aborted);
  });
}

const CHUNK = /^data: (?:\{.*"object":"chat\.completion\.chunk".*\}|\[DONE\])$/;

function plainSuite(x, { direct, toldOfWhole }) {
  test('curl -N over every version of HTTP', async () => {
    const body = JSON.stringify({ model: 'default', stream: true, messages: user('same wörds here') });
    const seen = new Set();
    const ways = [['--http1.1', x.http], ['--http1.1', x.https], ['--http2', x.https], ...(direct ? [['--http2-prior-knowledge', x.http]] : [])];
    for (const [version, base] of ways) {
      const r = await curl(['-sSN', '--cacert', x.server.caFile, version, '-H', `authorization: Bearer ${x.server.keys.paid}`, '-H',
        'content-type: application/json', '-d', body, '-m', '10', '-w', '%{stderr}%{http_version} %{http_code} %{content_type}', `${base}/v1/chat/completions`]);
      assert.equal(r.status, 0, r.stderr);
      assert.equal(r.stderr, `${version === '--http1.1' ? '1.1' : '2'} 200 text/event-stream`);
      const lines = r.stdout.split('\n').filter((l) => l !== '' && l !== ': ping');
      assert.ok(lines.every((l) => CHUNK.test(l)), r.stdout);
      // How many tokens come in one event is chance on a busy machine.
      const events = lines.slice(0, -1).map((l) => JSON.parse(l.slice(6)));
      assert.equal(lines.at(-1), 'data: [DONE]');
      seen.add(JSON.stringify([events.map((e) => e.choices[0].delta.content ?? '').join(''), events.map((e) => e.choices[0].finish_reason).filter(Boolean),
        [...new Set(events.map((e) => Object.keys(e).join()))]]));
    }
    assert.equal(seen.size, 1, [...seen].join('\n\n'));
  });

  test('short answers come whole', async () => {
    for (let i = 0; i < 8; i++) {
      const all = await Promise.all(Array.from({ length: 8 }, (_, k) => chat(x.http, x.server.keys.paid, { model: 'default', messages: user(`${i} ${k}`) })));
      for (const [k, r] of all.entries()) assert.ok(r.done && r.finish === 'stop' && r.text === `${i} ${k}`, r.body);
    }
  });

  test('curl that leaves', async () => {
    for (const [version, base] of [['--http1.1', x.http], ['--http2', x.https]]) {
      for (const stream of [true, false]) {
        if (!stream && version === '--http1.1' && !toldOfWhole) continue;
        const r = await curl(['-sN', '-m', '0.2', '--cacert', x.server.caFile, version, '-H', `authorization: Bearer ${x.server.keys.paid}`,
          '-H', 'content-type: application/json', '-d', JSON.stringify({ model: 'default', stream, messages: user(LONG) }),
          `${base}/v1/chat/completions`]);
        assert.equal(r.status, 28, `curl was to run into its time limit: ${r.stderr} ${r.stdout}`);
        assert.ok(await isIdle(x.server), `the engine still runs it (${version}, stream: ${stream})`);
      }
    }
  });

  test('heartbeats pass between the events', async () => {
    const r = await chat(x.http, x.server.keys.free, { model: 'default', messages: user('a b c') });
    assert.equal(r.text, 'a b c');
    assert.ok(r.done);
    // 250 ms between two tokens, a comment each 100 ms.
    assert.ok(r.comments >= 3, r.body);
    assert.doesNotMatch(r.body, /: ping\n\n/);
    const { 'content-type': type, 'cache-control': cache, 'content-encoding': encoding } = r.headers;
    assert.deepEqual([type, cache, encoding], ['text/event-stream', 'no-cache, no-transform', undefined]);
  });

  test('cross-origin requests', async () => {
    const headers = { origin: 'http://localhost:5173', 'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization, content-type, x-stainless-os' };
    const r = await request(x.http, '/v1/chat/completions', { method: 'OPTIONS', headers });
    assert.equal(r.status, 204);
    assert.equal(r.headers['access-control-allow-origin'], 'http://localhost:5173');
    assert.match(r.headers['access-control-allow-headers'], /authorization.*x-stainless-os/);
  });

  test('a connection is used again', async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const ports = new Set();
    for (let i = 0; i < 5; i++) {
      await new Promise((done, failed) => {
        const req = http.request(new URL('/v1/chat/completions', x.http), { method: 'POST', agent,
          headers: { authorization: `Bearer ${x.server.keys.paid}`, 'content-type': 'application/json' } }, (res) => {
          ports.add(res.socket.localPort);
          res.resume().on('end', done);
        });
        req.on('error', failed);
        req.end(JSON.stringify({ model: 'default', stream: true, messages: user('x') }));
      });
    }
    agent.destroy();
    assert.equal(ports.size, 1);
  });
}

/**
 * Defines the tests. x: {server, http, https}: what startServer gave, and the addresses of what is tested; filled in before
 * they run. libraries: of LIBRARIES; direct: there is no proxy, so x.http speaks HTTP/2 too, and what proxies can't change is
 * tested as well; toldOfWhole: false for a proxy that notices only in a stream that an HTTP/1.1 client has left.
 */
export function clientSuite(x, { libraries = LIBRARIES, direct = false, toldOfWhole = true } = {}) {
  for (const library of libraries) librarySuite(library, x, { toldOfWhole });
  vercelSuite(x, { direct });
  plainSuite(x, { direct, toldOfWhole });
}
