// SPDX-License-Identifier: Apache-2.0
// Models that another server runs: another Sluice, compared with asking it directly, and a stand-in that fails in every way.
// The openai package is the client.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { chat, metric, until, user } from './client.mjs';
import { freePorts, request, startPair, startServer } from './harness.mjs';
import { startMock } from './upstream_mock.mjs';

const PATIENCE = 60_000;
const client = (server) => new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
const fault = (text, kind) => {
  const line = text.split('\n').find((l) => l.startsWith(`sluice_upstream_faults_total{fault="${kind}"}`));
  return line ? Number(line.slice(line.lastIndexOf(' ') + 1)) : 0;
};
/** An administrator's whole list, until it is as wanted. */
const modelsOf = async (server) => JSON.parse((await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.paid}` } })).body).data;
const stateOf = async (server, name) => (await modelsOf(server)).find((m) => m.id === name)?.state;

const WEATHER = { type: 'function', function: { name: 'get_weather', description: 'The current weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false } } };
const SUM = { type: 'function', function: { name: 'calculate', description: 'Evaluates an expression',
  parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'], additionalProperties: false } } };

describe('another Sluice runs the models', { timeout: 300_000 }, () => {
  let pair, direct, through;
  before(async () => {
    pair = await startPair();
    [direct, through] = [client(pair.back), client(pair.front)];
    assert.ok(await until(async () => await stateOf(pair.front, 'demo-large') === 'ready' && await stateOf(pair.front, 'demo-small') === 'ready', PATIENCE), pair.front.log());
  });
  after(async () => {
    for (const s of [pair?.front, pair?.back]) if (s) assert.equal(await s.stop(), 0, s.log());
  });

  /** The same request to both: what they answer, without what differs between any two answers. */
  const both = async (ask) => {
    const plain = (r) => JSON.parse(JSON.stringify(r, (k, v) => (['id', 'created', 'cached_tokens', 'system_fingerprint'].includes(k) ? undefined : v)));
    const [a, b] = [plain(await ask(direct)), plain(await ask(through))];
    assert.deepEqual(b, a);
    return b;
  };
  const chatOf = (more) => (openai) => openai.chat.completions.create({ model: 'demo-large', max_tokens: 40, seed: 7, messages: user('Write about a river.'), ...more });
  const long = { temperature: 2, ignore_eos: true, max_tokens: 30 };

  test('a chat, whole: text, usage, finish', async () => {
    const r = await both(chatOf({}));
    assert.ok(r.choices[0].message.content.length > 0 && r.usage.completion_tokens > 0 && r.usage.prompt_tokens > 0);
    await both(chatOf({ model: 'demo-small', temperature: 0 }));
    assert.equal((await both(chatOf({ max_tokens: 3 }))).choices[0].finish_reason, 'length');
  });

  test('a chat, streamed', async () => {
    const whole = await chatOf(long)(direct);
    let text = '', usage = null, chunks = 0;
    for await (const chunk of await chatOf({ ...long, stream: true, stream_options: { include_usage: true } })(through)) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
      chunks++;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [whole.usage.prompt_tokens, whole.usage.completion_tokens]);
    assert.ok(chunks > 5, 'it comes in pieces');
  });

  test('sampling fields, stops and biases reach it', async () => {
    await both(chatOf({ temperature: 1.5, top_p: 0.7, presence_penalty: 1, frequency_penalty: -0.5, seed: 3 }));
    await both(chatOf({ temperature: 1.2, top_k: 5, min_p: 0.05, repetition_penalty: 1.1, min_tokens: 10 }));
    await both(chatOf({ temperature: 0, stop: [' the', '.'] }));
    await both(chatOf({ temperature: 0, stop: ['.'], include_stop_str_in_output: true }));
    await both(chatOf({ temperature: 0, logit_bias: { 5: -100, 50: 5 } }));
    await both(chatOf({ temperature: 0, ignore_eos: true, max_tokens: 60 }));
  });

  test('several choices', async () => {
    const r = await both(async (openai) => {
      const all = await chatOf({ n: 3, ...long })(openai);
      all.choices.sort((a, b) => a.index - b.index);
      return all;
    });
    assert.equal(new Set(r.choices.map((c) => c.message.content)).size, 3);
  });

  test('log probabilities', async () => {
    const ask = (openai) => chatOf({ logprobs: true, top_logprobs: 3, max_tokens: 12 })(openai);
    const [a, b] = [await ask(direct), await ask(through)];
    const list = (r) => r.choices[0].logprobs.content.map((t) => [t.token, t.logprob.toFixed(3), t.top_logprobs.map((o) => [o.token, o.logprob.toFixed(3)])]);
    assert.deepEqual(list(b), list(a));
    assert.equal(list(b).length, b.usage.completion_tokens - (b.choices[0].finish_reason === 'stop'));
  });

  test('completions: text, tokens, several, log probabilities', async () => {
    const ask = (more) => (openai) => openai.completions.create({ model: 'demo-large', prompt: 'The river', max_tokens: 20, seed: 5, ...more });
    await both(ask({}));
    await both(ask({ prompt: [5, 6, 7] }));
    await both(ask({ n: 2, temperature: 1 }));
    const [a, b] = [await ask({ logprobs: 2 })(direct), await ask({ logprobs: 2 })(through)];
    assert.deepEqual(b.choices[0].logprobs.tokens, a.choices[0].logprobs.tokens);
    assert.equal(b.choices[0].text, a.choices[0].text);
  });

  test('tools: of its own accord, required, named, and their results', async () => {
    const tools = [WEATHER, SUM], ask = (more) => through.chat.completions.create({ model: 'demo-large', temperature: 0, tools, ...more });
    const called = (r) => [r.choices[0].finish_reason, r.choices[0].message.tool_calls?.map((c) => [c.function.name, JSON.parse(c.function.arguments)])];
    const messages = user('What is the weather in Toronto?');
    const r = await ask({ messages });
    assert.deepEqual(called(r), ['tool_calls', [['get_weather', { city: 'Toronto' }]]]);
    const { message } = r.choices[0];
    const result = await ask({ messages: [...messages, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'foggy, 18 degrees' }] });
    assert.match(result.choices[0].message.content, /Toronto.*foggy/);
    const named = await ask({ messages: user('Hello'), tool_choice: { type: 'function', function: { name: 'calculate' } }, max_tokens: 60 });
    assert.equal(named.choices[0].message.tool_calls[0].function.name, 'calculate');
    const required = await ask({ messages: user('What is 34 times 24?'), tool_choice: 'required', parallel_tool_calls: false, max_tokens: 60 });
    assert.deepEqual(called(required)[1], [['calculate', { expression: '34 * 24' }]]);
    let name = '', text = '';
    for await (const chunk of await ask({ messages, stream: true }))
      for (const t of chunk.choices[0]?.delta.tool_calls ?? []) { name += t.function.name ?? ''; text += t.function.arguments ?? ''; }
    assert.deepEqual([name, JSON.parse(text)], ['get_weather', { city: 'Toronto' }]);
  });

  test('structured output', async () => {
    const schema = { type: 'object', properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 1, maximum: 99 } }, required: ['name', 'age'], additionalProperties: false };
    const r = await both(chatOf({ response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema } }, max_tokens: 100 }));
    assert.deepEqual(Object.keys(JSON.parse(r.choices[0].message.content)), ['name', 'age']);
    await both(chatOf({ guided_regex: '(red|green) [0-9]{3}' }));
    await both(chatOf({ guided_choice: ['yes', 'no'] }));
    const object = await both(chatOf({ response_format: { type: 'json_object' }, max_tokens: 400, temperature: 0 }));
    assert.equal(object.choices[0].message.content.trimStart()[0], '{');
  });

  test('responses and their conversations', async () => {
    const ask = (openai, more) => openai.responses.create({ model: 'demo-large', input: 'Write about a river.', max_output_tokens: 30, temperature: 0, ...more });
    const [a, b] = [await ask(direct), await ask(through)];
    assert.equal(b.output_text, a.output_text);
    const next = await ask(through, { input: 'And a hill.', previous_response_id: b.id });
    assert.equal(next.output_text, (await ask(direct, { input: 'And a hill.', previous_response_id: a.id })).output_text);
  });

  test('responses: log probabilities come with the deltas and with the whole', async () => {
    const body = { model: 'demo-large', input: 'Write about a river.', temperature: 0, max_output_tokens: 12, top_logprobs: 2, include: ['message.output_text.logprobs'] };
    const whole = (await through.responses.create(body)).output[0].content[0].logprobs, deltas = [];
    let last;
    for await (const e of await through.responses.create({ ...body, stream: true })) {
      if (e.type === 'response.output_text.delta') deltas.push(...e.logprobs);
      last = e;
    }
    assert.ok(whole.length > 5 && whole.every((t) => t.top_logprobs.length === 2));
    assert.deepEqual(deltas, whole);
    assert.deepEqual(last.response.output[0].content[0].logprobs, whole);
  });

  test('what it does not have is refused by name', async () => {
    for (const [field, more] of [['typical_p', { typical_p: 0.5 }], ['best_of', { best_of: 4 }], ['use_beam_search', { use_beam_search: true, best_of: 2 }], ['prompt_logprobs', { prompt_logprobs: 1 }],
      ['return_tokens_as_token_ids', { return_tokens_as_token_ids: true, logprobs: true, top_logprobs: 2 }]])
      await assert.rejects(chatOf(more)(through), (e) => e.status === 400 && e.param === field, field);
  });

  test('ids of tokens, whole and streamed, of chats and completions, beside log probabilities', async () => {
    const whole = await both(chatOf({ return_token_ids: true })), ids = [];
    assert.ok(whole.choices[0].token_ids.length > 5);
    for await (const chunk of await chatOf({ return_token_ids: true, stream: true })(through)) ids.push(...chunk.choices[0]?.token_ids ?? []);
    assert.deepEqual(ids, whole.choices[0].token_ids);
    const prompt = (more) => (openai) => openai.completions.create({ model: 'demo-large', prompt: 'The river', max_tokens: 20, seed: 5, return_token_ids: true, ...more });
    await both(prompt({}));
    await both(prompt({ n: 2, temperature: 1, logprobs: 1 }));
    const named = await both(chatOf({ logprobs: true, return_tokens_as_token_ids: true }));
    assert.deepEqual(named.choices[0].logprobs.content.map((t) => t.token), whole.choices[0].token_ids.map((id) => `token_id:${id}`));
    const stopped = await both(chatOf({ return_token_ids: true, logit_bias: { 65: 100 }, stop_token_ids: [65] }));
    assert.equal(stopped.choices[0].stop_reason, 65);
  });

  test('tokens are counted, listed and spelled there', async () => {
    const send = async (server, path, body) => {
      const r = await request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' }, body: JSON.stringify({ model: 'demo-large', ...body }) });
      return [r.status, JSON.parse(r.body)];
    };
    const same = async (path, body) => {
      const [there, here] = [await send(pair.back, path, body), await send(pair.front, path, body)];
      assert.deepEqual(here, there);
      return here[1];
    };
    const { tokens } = await same('/tokenize', { prompt: 'Hello, wörld', add_special_tokens: false });
    assert.equal((await same('/detokenize', { tokens })).prompt, 'Hello, wörld');
    await same('/tokenize', { messages: user('Write about a river.'), tools: [WEATHER] });
    const { input_tokens: counted } = await same('/v1/responses/input_tokens', { input: 'Write about a river.' });
    assert.equal(counted, (await chatOf({})(direct)).usage.prompt_tokens);
    const [status, refused] = await send(pair.front, '/detokenize', { tokens: [2 ** 28] });
    assert.deepEqual([status, refused.error.param], [400, 'tokens']);
  });

  test('a stream that is refused there has the status of the refusal, and its field', async () => {
    for (const [more, code, param] of [[{ messages: user('word '.repeat(40000)) }, 'context_length_exceeded', 'messages'], [{ stop_token_ids: [2 ** 30] }, 'invalid_value', 'stop_token_ids'],
      [{ logit_bias: { [2 ** 30]: 1 } }, 'invalid_value', 'logit_bias'], [{ documents: ['x'] }, 'invalid_value', 'documents']])
      for (const stream of [true, false]) await assert.rejects(chatOf({ ...more, stream })(through), (e) => { assert.deepEqual([e.status, e.code, e.param], [400, code, param], e.message); return true; });
  });

  test('a client that leaves ends the generation there', async () => {
    const before = metric(await pair.back.metrics(), 'sluice_engine_cancelled_total');
    const r = await chat(pair.front.http, pair.front.keys.paid, { model: 'demo-large', messages: user('Write about a river.'), max_tokens: 2000, ignore_eos: true }, { onEvent: (e, all) => (all.text.length > 20 ? 'abort' : undefined) });
    assert.ok(r.aborted);
    assert.ok(await until(async () => metric(await pair.back.metrics(), 'sluice_engine_cancelled_total') > before, PATIENCE), 'it goes on');
  });
});

describe('the cascade over an upstream', { timeout: 300_000 }, () => {
  let pair;
  before(async () => {
    pair = await startPair({ echo: true, engine: ['engine.echo.rate=0', 'engine.echo.ttft=1ms'] });
    assert.ok(await until(async () => await stateOf(pair.front, 'demo-large') === 'ready', PATIENCE));
  });
  after(async () => {
    for (const s of [pair?.front, pair?.back]) if (s) assert.equal(await s.stop(), 0, s.log());
  });

  test('auto is answered, and so are identical requests at once', async () => {
    const openai = client(pair.front);
    const ask = (content) => openai.chat.completions.create({ model: 'auto', messages: user(content), max_tokens: 50 });
    assert.equal((await ask('Hello brave new world')).choices[0].message.content, 'Hello brave new world');
    const all = await Promise.all(Array.from({ length: 8 }, () => ask('The same words to all')));
    assert.deepEqual(new Set(all.map((r) => r.choices[0].message.content)), new Set(['The same words to all']));
  });

  test('a stream is read again from its log after its upstream has died', async () => {
    const words = Array.from({ length: 40 }, (_, i) => `w${i}`).join(' ');
    const r = await chat(pair.front.http, pair.front.keys.paid, { model: 'demo-large', messages: user(words), max_tokens: 100, stream: true }, { headers: { 'x-sluice-events': '1' } });
    assert.equal(r.text, words);
    const id = r.events[0].id;
    await pair.back.stop();
    const again = await request(pair.front.http, `/v1/streams/${id}`, { headers: { authorization: `Bearer ${pair.front.keys.paid}`, 'last-event-id': '0' } });
    assert.equal(again.status, 200, again.body);
    assert.ok(again.body.includes('[DONE]') && again.body.includes('w39'));
    const dead = await chat(pair.front.http, pair.front.keys.paid, { model: 'demo-large', messages: user('x') });
    assert.ok(dead.status === 503 || dead.errors.length === 1, JSON.stringify(dead));
    assert.ok(await until(async () => await stateOf(pair.front, 'demo-large') === 'failed', PATIENCE), 'a dead upstream is skipped');
  });
});

describe('TLS and HTTP/2 to the upstream', { timeout: 300_000 }, () => {
  test('with its certificate, many streams share a connection; without, nothing is sent', async () => {
    const pair = await startPair({ echo: true, https: true, engine: ['engine.echo.rate=100'] });
    try {
      assert.ok(await until(async () => await stateOf(pair.front, 'demo-large') === 'ready', PATIENCE), pair.front.log());
      const openai = client(pair.front);
      const texts = await Promise.all(Array.from({ length: 12 }, (_, i) => openai.chat.completions.create({ model: 'demo-large', messages: user(`stream number ${i} of many`) })));
      texts.forEach((r, i) => assert.equal(r.choices[0].message.content, `stream number ${i} of many`));
      const seen = await pair.back.metrics();
      assert.equal(metric(seen, 'sluice_http_connections{proto="h2"}'), 1);
      assert.ok(metric(seen, 'sluice_http_requests_total{proto="h2"}') >= 13);
      await pair.front.stop();
      const asked = metric(await pair.back.metrics(), 'sluice_engine_submitted_total');
      const other = await startServer({ unready: /is not used for now/, sets: [`engine.upstream.url=${pair.back.https}/v1`, 'engine.upstream.models.demo-large.role=none', 'engine.upstream.cool_down=100ms'] });
      await other.stop();
      assert.match(other.log(), /: tls: SSL certificate problem/);
      assert.equal(metric(await pair.back.metrics(), 'sluice_engine_submitted_total'), asked);
    } finally {
      await pair.front.stop();
      await pair.back.stop();
    }
  });

  test('a reader that stands still holds up no other stream of the connection', async () => {
    const pair = await startPair({ echo: true, https: true, engine: ['engine.echo.rate=0', 'engine.echo.context=1000000'], sets: ['gateway.tiers.paid.max_output=1000000'] });
    try {
      assert.ok(await until(async () => await stateOf(pair.front, 'demo-large') === 'ready', PATIENCE), pair.front.log());
      const url = new URL(pair.front.http), socket = net.connect(url.port, url.hostname);
      const body = JSON.stringify({ model: 'demo-large', messages: user(`repeat ${'x'.repeat(60)} `), max_tokens: 500000, stream: true });
      socket.pause();
      socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${pair.front.keys.paid}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      let last = -1, still = 0;
      const made = async () => metric(await pair.back.metrics(), 'sluice_engine_decode_tokens_total');
      assert.ok(await until(async () => { const now = await made(); still = now === last && now > 0 ? still + 1 : 0; last = now; return still > 10; }, PATIENCE, 100), 'it is read without end');
      const other = await client(pair.front).chat.completions.create({ model: 'demo-large', messages: user('Hello there') }, { timeout: PATIENCE });
      assert.equal(other.choices[0].message.content, 'Hello there');
      assert.equal(metric(await pair.back.metrics(), 'sluice_http_connections{proto="h2"}'), 1);
      socket.destroy();
    } finally {
      await pair.front.stop();
      await pair.back.stop();
    }
  });

  test('a handshake that stalls, a port that refuses, a name without an address', async () => {
    const deaf = net.createServer(() => {}).listen(0, '127.0.0.1');
    await new Promise((done) => deaf.once('listening', done));
    const [closed] = await freePorts(1);
    for (const [url, kind] of [[`https://127.0.0.1:${deaf.address().port}/v1`, 'tls'], [`http://127.0.0.1:${closed}/v1`, 'connect'], ['http://no-such-host.invalid/v1', 'resolve']]) {
      const server = await startServer({ unready: /is not used for now/, sets: [`engine.upstream.url=${url}`, 'engine.upstream.models.m.context=100', 'engine.upstream.connect_timeout=300ms', 'engine.upstream.cool_down=100ms'] });
      await server.stop();
      assert.match(server.log(), new RegExp(` warn engine: upstream ${url}: ${kind}: `));
    }
    deaf.close();
  });
});

describe('an upstream that misbehaves', { timeout: 300_000 }, () => {
  let mock, server, openai;
  before(async () => {
    mock = await startMock();
    server = await startServer({ sets: [`engine.upstream.url=${mock.url}`, 'engine.upstream.failures=1000', 'engine.upstream.idle_timeout=1s', 'engine.upstream.total_timeout=4s', 'engine.upstream.health_interval=100ms',
      ...mock.names.map((n) => `engine.upstream.models.${n}.${n.includes('vectors') ? 'embeddings=2' : 'role=none'}`)] });
    openai = client(server);
    assert.ok(await until(async () => await stateOf(server, 'fine') === 'ready', PATIENCE), server.log());
  });
  after(async () => {
    if (server) assert.equal(await server.stop(), 0, server.log());
    await mock?.stop();
  });
  const ask = (model, more) => openai.chat.completions.create({ model, messages: user('Hello'), max_tokens: 50, ...more });

  test('one that does not', async () => {
    const r = await ask('fine', { temperature: 0.5, seed: 9 });
    assert.deepEqual([r.choices[0].message.content, r.usage.prompt_tokens, r.usage.completion_tokens], ['Hello brave new world', 7, 4]);
    const { path, body } = mock.asked.at(-1);
    assert.deepEqual([path, body], ['/v1/chat/completions', { model: 'fine', messages: user('Hello'), temperature: 0.5, seed: 9, max_tokens: 50, stream: true, stream_options: { include_usage: true } }]);
    assert.equal((await modelsOf(server)).find((m) => m.id === 'fine').context_length, 12345, 'as its list says');
  });

  test('embeddings', async () => {
    const r = await openai.embeddings.create({ model: 'vectors', input: ['one text', 'another'], encoding_format: 'float' });
    for (const { embedding } of r.data) embedding.forEach((v, i) => assert.ok(Math.abs(v - [0.6, 0.8][i]) < 1e-6, String(v)));
    assert.deepEqual([r.data.length, mock.asked.at(-1).path], [2, '/v1/embeddings']);
    assert.deepEqual(mock.asked.slice(-2).map((a) => a.body.input).sort(), ['another', 'one text']);
    await assert.rejects(openai.embeddings.create({ model: 'short_vectors', input: 'x' }), (e) => e.status === 500);
    await assert.rejects(ask('vectors'), (e) => e.status === 400 || e.status === 404);
  });

  test('tokens of a server that has no such path are estimated, and not listed', async () => {
    const ask = async (path, body) => {
      const r = await request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' }, body: JSON.stringify({ model: 'fine', ...body }) });
      return [r.status, JSON.parse(r.body)];
    };
    const [status, counted] = await ask('/v1/responses/input_tokens', { input: 'Hello brave new world' });
    assert.ok(status === 200 && counted.input_tokens > 2 && counted.input_tokens < 20, JSON.stringify(counted));
    assert.equal((await ask('/tokenize', { prompt: 'Hello' }))[0], 400);
  });

  test('without usage its deltas are counted', async () => {
    const { usage } = await ask('uncounted');
    assert.equal(usage.completion_tokens, 3);
    assert.ok(usage.prompt_tokens > 0);
  });

  test('reasoning and calls come through whatever their text is', async () => {
    const { message } = (await ask('thinks')).choices[0];
    assert.deepEqual([message.reasoning_content, message.content], ['Let me see </think>', 'It is <think>, <tool_call>.']);
    const tools = [{ type: 'function', function: { name: 'find', parameters: { type: 'object' } } }];
    const r = (await ask('calls', { tools })).choices[0];
    assert.deepEqual([r.finish_reason, r.message.content, r.message.tool_calls.map((c) => c.function.arguments)],
      ['tool_calls', 'I look.', ['{"text": "a \\"b\\" </tool_call> \\u00e9 é"}', '{oops\\']]);
    assert.deepEqual(mock.asked.at(-1).body.tools, tools);
  });

  for (const [model, status, code, kind, begins = ''] of [
    ['key', 503, 'engine_unavailable', 'key'], ['unknown', 503, 'engine_unavailable', 'no_model'], ['limited', 503, 'overloaded', 'limited'], ['refused', 400, 'invalid_value', 'refused'],
    ['too_long', 400, 'context_length_exceeded', 'refused'], ['broken', 500, 'engine_error', 'server'], ['full', 503, 'overloaded', 'limited'], ['away', 503, 'engine_unavailable', 'away'],
    ['full_event', 503, 'overloaded', 'limited', 'begins '], ['away_event', 503, 'engine_unavailable', 'away', 'begins '], ['redirect', 500, 'engine_error', 'redirect'], ['header_bomb', 500, 'engine_error', 'headers'],
    ['header_line', 500, 'engine_error', 'headers'], ['no_stream', 500, 'engine_error', 'no_stream'], ['garbage', 500, 'engine_error', 'no_stream'], ['endless_line', 500, 'engine_error', 'long', 'begins '],
    ['bad_json', 500, 'engine_error', 'event', 'begins '], ['wrong_index', 500, 'engine_error', 'event'], ['deep', 500, 'engine_error', 'event'], ['cut', 500, 'engine_error', 'cut', 'begins well '],
    ['ends_early', 500, 'engine_error', 'cut', 'begins well '], ['done_early', 500, 'engine_error', 'cut', 'begins '], ['stall', 500, 'engine_error', 'stall', 'begins '], ['silent', 500, 'engine_error', 'stall'],
    ['slow', 500, 'engine_error', 'slow', 'begins '], ['error_event', 500, 'engine_error', 'server', 'begins '], ['filtered', 500, 'engine_error', 'server', 'begins ']]) {
    test(`${model}: one truthful error, counted`, async () => {
      const before = fault(await server.metrics(), kind);
      await assert.rejects(ask(model), (e) => {
        assert.deepEqual([e.status, e.code], [status, code], e.message);
        assert.doesNotMatch(e.message, /secret|sk-123/);
        if (model === 'limited' || model === 'full') assert.equal(e.headers.get('retry-after'), '7');
        if (model === 'refused') assert.match(e.message, /'temperature' must be below 1/);
        return true;
      });
      const r = await chat(server.http, server.keys.paid, { model, messages: user('Hello'), max_tokens: 50 });
      if (r.status === 200) assert.deepEqual([r.errors.length, r.errors[0].code, r.text.trim(), r.done], [1, code, begins.trim(), false], r.body);
      else assert.equal(r.status, status);
      assert.ok(await until(async () => fault(await server.metrics(), kind) >= before + 2, PATIENCE), `${kind} is not counted`);
      assert.equal(mock.elsewhere.length, 0, 'nothing follows a redirect');
    });
  }

  test('a false usage is bounded and counted', async () => {
    const before = metric(await server.metrics(), 'sluice_upstream_false_usages_total');
    for (const model of ['negative', 'huge', 'huge_prompt']) {
      const { usage } = await ask(model);
      assert.equal(usage.completion_tokens, 2, model);
      assert.ok(usage.prompt_tokens > 0 && usage.prompt_tokens < 100, model);
    }
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_upstream_false_usages_total') === before + 3, PATIENCE));
  });

  test('what was not begun is sent once more', async () => {
    assert.equal((await ask('flaky')).choices[0].message.content, 'Hello brave new world');
    assert.equal(mock.flaky, 2);
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_upstream_retries_total') >= 1, PATIENCE));
  });

  test('a client that leaves closes the stream there', async () => {
    const r = await chat(server.http, server.keys.paid, { model: 'waits', messages: user('Hello') }, { onEvent: (e, all) => (all.text ? 'abort' : undefined) });
    assert.ok(r.aborted);
    assert.ok(await until(() => mock.closed.includes('waits'), PATIENCE), 'the upstream does not see it');
  });

  test('the log names each kind of fault once, and no key', async () => {
    for (const kind of ['redirect', 'headers', 'event'])
      assert.equal(server.log().split('\n').filter((l) => l.includes(` warn engine: upstream ${mock.url}: ${kind}: `)).length, 1, kind);
    assert.doesNotMatch(server.log(), /sk-123|Bearer/);
  });
});

describe('a slow reader, a dead upstream', { timeout: 300_000 }, () => {
  test('without credit nothing more is read', async () => {
    const mock = await startMock();
    const server = await startServer({ sets: [`engine.upstream.url=${mock.url}`, 'engine.upstream.models.endless.role=none', 'gateway.tiers.paid.max_output=1000000'] });
    try {
      assert.ok(await until(async () => await stateOf(server, 'endless') === 'ready', PATIENCE), server.log());
      const url = new URL(server.http);
      const socket = net.connect(url.port, url.hostname);
      const body = JSON.stringify({ model: 'endless', messages: user('Hello'), max_tokens: 1000000, stream: true });
      socket.pause();
      socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.paid}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      let last = -1, still = 0;
      assert.ok(await until(() => { still = mock.written === last && last > 0 ? still + 1 : 0; last = mock.written; return still > 10; }, PATIENCE, 100), 'it is read without end');
      assert.ok(mock.written < 24 << 20, `${mock.written} bytes`);
      socket.resume();
      const from = mock.written;
      assert.ok(await until(() => mock.written > from, PATIENCE), 'it does not go on');
      socket.destroy();
    } finally {
      await server.stop();
      await mock.stop();
    }
  });

  test('it is found out, skipped, and used again', async () => {
    let mock = await startMock();
    const { port } = mock;
    const server = await startServer({ sets: [`engine.upstream.url=${mock.url}`, 'engine.upstream.health_interval=100ms', 'engine.upstream.cool_down=300ms', ...['fine', 'waits'].map((n) => `engine.upstream.models.${n}.role=none`)] });
    try {
      assert.ok(await until(async () => await stateOf(server, 'fine') === 'ready', PATIENCE), server.log());
      const stream = chat(server.http, server.keys.paid, { model: 'waits', messages: user('Hello') });
      assert.ok(await until(() => mock.asked.length > 0, PATIENCE));
      await mock.stop();
      assert.equal((await stream).errors.length, 1, 'its own stream has one error');
      assert.ok(await until(async () => await stateOf(server, 'fine') === 'failed', PATIENCE), server.log());
      await assert.rejects(client(server).chat.completions.create({ model: 'fine', messages: user('x') }), (e) => e.status === 503);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_upstream_open') === 1, PATIENCE));
      assert.ok(await until(async () => fault(await server.metrics(), 'connect') + fault(await server.metrics(), 'cut') >= 3, PATIENCE));
      mock = await startMock({ port });
      assert.ok(await until(async () => await stateOf(server, 'fine') === 'ready', PATIENCE), server.log());
      assert.equal((await client(server).chat.completions.create({ model: 'fine', messages: user('x') })).choices[0].message.content, 'Hello brave new world');
    } finally {
      await server.stop();
      await mock.stop();
    }
  });

  test('one that lists its models but runs none', async () => {
    const mock = await startMock();
    const server = await startServer({ sets: [`engine.upstream.url=${mock.url}`, 'engine.upstream.cool_down=10m', ...['broken', 'fine'].map((n) => `engine.upstream.models.${n}.role=none`)] });
    try {
      assert.ok(await until(async () => await stateOf(server, 'broken') === 'ready', PATIENCE), server.log());
      for (let i = 0; i < 3; i++) await assert.rejects(client(server).chat.completions.create({ model: 'broken', messages: user('x') }), (e) => e.status === 500);
      assert.ok(await until(async () => await stateOf(server, 'broken') === 'failed', PATIENCE), server.log());
      const asked = mock.asked.length;
      await assert.rejects(client(server).chat.completions.create({ model: 'fine', messages: user('x') }), (e) => e.status === 503);
      assert.equal(mock.asked.length, asked, 'nothing is sent');
    } finally {
      await server.stop();
      await mock.stop();
    }
  });
});
