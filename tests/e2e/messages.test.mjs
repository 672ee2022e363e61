// SPDX-License-Identifier: Apache-2.0
// Anthropic's Messages API: its bytes by hand first, then the @anthropic-ai/sdk package, against the echo engine and a model.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { metric, until, user } from './client.mjs';
import { HERMES, withTemplate } from './gguf.mjs';
import { ROOT, request, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const VERSION = { 'anthropic-version': '2023-06-01' };
const eventsOf = (body) => body.split('\n\n').filter(Boolean).map((event) => {
  const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? assert.fail(event);
  const value = JSON.parse(data);
  assert.equal(value.type, name);
  return value;
});
/** The message that a stream's events build, as the SDK does it, with every rule of their order. */
function build(events) {
  assert.equal(events[0].type, 'message_start');
  const message = structuredClone(events[0].message);
  const open = new Map();
  for (const e of events.slice(1).filter((x) => x.type !== 'ping')) {
    if (e.type === 'content_block_start') {
      assert.equal(e.index, message.content.length);
      assert.equal(open.size, 0);
      message.content.push(structuredClone(e.content_block));
      open.set(e.index, '');
    } else if (e.type === 'content_block_delta') {
      const block = message.content[e.index];
      assert.ok(open.has(e.index));
      if (e.delta.type === 'text_delta') block.text += e.delta.text;
      else if (e.delta.type === 'thinking_delta') block.thinking += e.delta.thinking;
      else if (e.delta.type === 'input_json_delta') open.set(e.index, open.get(e.index) + e.delta.partial_json);
      else assert.fail(e.delta.type);
    } else if (e.type === 'content_block_stop') {
      if (message.content[e.index].type === 'tool_use') message.content[e.index].input = JSON.parse(open.get(e.index));
      assert.ok(open.delete(e.index));
    } else if (e.type === 'message_delta') {
      assert.equal(open.size, 0);
      Object.assign(message, e.delta);
      Object.assign(message.usage, e.usage);
    } else assert.equal(e.type, 'message_stop');
  }
  assert.equal(events.at(-1).type, 'message_stop');
  return message;
}
const poster = (server) => async (path, body, headers = { 'x-api-key': server.keys.paid, ...VERSION }, method = 'POST') => {
  const r = await request(server.http, path, { method, headers: { 'content-type': 'application/json', ...headers }, body: body && JSON.stringify(body) });
  return { ...r, json: r.body.startsWith('{') ? JSON.parse(r.body) : null };
};

describe('messages, of the echo engine', { timeout: 120_000 }, () => {
  let server, post, doc;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'gateway.cors_origins=https://page.example'] });
    post = poster(server);
    doc = JSON.parse((await request(server.http, '/openapi.json')).body);
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));
  const ask = { model: 'demo-small', max_tokens: 100, messages: user('one two three') };
  const schemaOf = (path, status = 200) => doc.paths[path].post.responses[status].content;

  test('whole', async () => {
    const r = await post('/v1/messages', ask);
    assert.equal(r.status, 200, r.body);
    assert.match(r.headers['request-id'], /^req_/);
    assert.match(r.json.id, /^msg_/);
    assert.deepEqual({ ...r.json, id: '', usage: 0 }, { id: '', type: 'message', role: 'assistant', model: 'demo-small',
      content: [{ type: 'text', text: 'one two three' }], stop_reason: 'end_turn', stop_sequence: null, usage: 0 });
    assert.ok(r.json.usage.input_tokens > 0 && r.json.usage.output_tokens > 0);
    assert.deepEqual(violations(doc, schemaOf('/v1/messages')['application/json'].schema, r.json), []);
  });

  test('streamed: the same message', async () => {
    const r = await post('/v1/messages', { ...ask, stream: true });
    assert.match(r.headers['content-type'], /^text\/event-stream/);
    const events = eventsOf(r.body);
    for (const e of events) assert.deepEqual(violations(doc, schemaOf('/v1/messages')['text/event-stream'].schema, e), []);
    assert.equal(events[0].message.stop_reason, null);
    const message = build(events);
    assert.deepEqual(message.content, [{ type: 'text', text: 'one two three' }]);
    assert.equal(message.stop_reason, 'end_turn');
    assert.ok(message.usage.output_tokens > 0);
  });

  test('an answer that is cut short', async () => {
    const cut = await post('/v1/messages', { ...ask, max_tokens: 1 });
    assert.equal(cut.json.stop_reason, 'max_tokens');
  });

  test('the system\'s text and blocks', async () => {
    const r = await post('/v1/messages', { ...ask, system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      messages: [{ role: 'user', content: [{ type: 'text', text: 'a ' }, { type: 'text', text: 'b' }] }, { role: 'assistant', content: 'c' }, ...user('d e')] });
    assert.equal(r.json.content[0].text, 'd e', r.body);
    const merged = await post('/v1/messages', { ...ask, messages: [...user('a'), ...user('b')] });
    assert.equal(merged.json.content[0].text.replace(/\s+/g, ' '), 'a b');
  });

  test('a key in either header, and only one', async () => {
    assert.equal((await post('/v1/messages', ask, { authorization: `Bearer ${server.keys.paid}` })).status, 200);
    for (const headers of [{}, { 'x-api-key': 'sk-wrong' }, { authorization: 'Bearer sk-wrong', 'x-api-key': server.keys.paid }]) {
      const r = await post('/v1/messages', ask, headers);
      assert.equal(r.status, 401);
      assert.equal(r.json.error.type, 'authentication_error');
    }
    const elsewhere = await post('/v1/chat/completions', { model: 'demo-small', messages: user('x') });
    assert.equal(elsewhere.status, 401);
  });

  test('errors have the API\'s shape, and name the field', async () => {
    const cases = [
      [{ ...ask, max_tokens: undefined }, 400, 'invalid_request_error', /'max_tokens'/],
      [{ ...ask, messages: [] }, 400, 'invalid_request_error', /'messages'/],
      [{ ...ask, messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] }, 400, 'invalid_request_error', /'messages\[0\]\.content\[0\]\.type' is 'image'/],
      [{ ...ask, tools: [{ name: 'f' }] }, 400, 'invalid_request_error', /'tools\[0\]\.input_schema'/],
      [{ ...ask, stop_sequences: [''] }, 400, 'invalid_request_error', /'stop_sequences\[0\]'/],
      [{ ...ask, model: 'other' }, 404, 'not_found_error', /'other'/],
      ['{', 400, 'invalid_request_error', /JSON/],
    ];
    for (const [body, status, type, words] of cases) {
      const r = await request(server.http, '/v1/messages', { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body),
        headers: { 'content-type': 'application/json', 'x-api-key': server.keys.paid } });
      const json = JSON.parse(r.body);
      assert.deepEqual([r.status, json.type, json.error.type, json.request_id], [status, 'error', type, r.headers['request-id']], r.body);
      assert.match(json.error.message, words);
      assert.deepEqual(violations(doc, doc.components.schemas.MessagesError, json), []);
    }
    const method = await post('/v1/messages', null, undefined, 'GET');
    assert.deepEqual([method.status, method.json.error.type, method.headers.allow], [405, 'invalid_request_error', 'POST, OPTIONS']);
    const batches = await post('/v1/messages/batches', { requests: [] });
    assert.deepEqual([batches.status, batches.json.error.type], [404, 'not_found_error']);
  });

  test('fields without effect are named', async () => {
    const r = await post('/v1/messages', { ...ask, context_management: {}, whatever: 1, metadata: { user_id: 'u', more: 1 }, service_tier: 'auto' });
    assert.equal(r.status, 200, r.body);
    assert.deepEqual(r.headers['x-sluice-ignored-fields'].split(', ').sort(), ['context_management', 'metadata.more', 'whatever']);
  });

  test('tokens are counted, without max_tokens', async () => {
    const r = await post('/v1/messages/count_tokens', { ...ask, max_tokens: undefined });
    assert.equal(r.status, 200, r.body);
    const whole = await post('/v1/messages', ask);
    assert.deepEqual(r.json, { input_tokens: whole.json.usage.input_tokens + whole.json.usage.cache_read_input_tokens });
    const longer = await post('/v1/messages/count_tokens', { ...ask, system: 'Some more words here.' });
    assert.ok(longer.json.input_tokens > r.json.input_tokens);
    const wrong = await post('/v1/messages/count_tokens', { model: 'demo-small' });
    assert.deepEqual([wrong.status, wrong.json.error.type], [400, 'invalid_request_error']);
  });

  test('models, as the API has them where its header is sent', async () => {
    const r = await post('/v1/models', null, undefined, 'GET');
    assert.equal(r.json.has_more, false);
    assert.deepEqual([r.json.first_id, r.json.last_id], [r.json.data[0].id, r.json.data.at(-1).id]);
    const small = r.json.data.find((m) => m.id === 'demo-small');
    assert.deepEqual({ ...small, created_at: '' }, { type: 'model', id: 'demo-small', display_name: 'demo-small', created_at: '' });
    assert.ok(Date.parse(small.created_at) > 0);
    assert.equal((await post('/v1/models/demo-small', null, undefined, 'GET')).json.type, 'model');
    assert.equal((await post('/v1/models/none', null, undefined, 'GET')).json.error.type, 'not_found_error');
    assert.equal((await post('/v1/models', null, { authorization: `Bearer ${server.keys.paid}` }, 'GET')).json.object, 'list');
  });

  test('a repeated request with its key is answered once', async () => {
    const headers = { 'x-api-key': server.keys.paid, ...VERSION, 'idempotency-key': 'm-1' };
    for (const stream of [false, true]) {
      const own = { ...headers, 'idempotency-key': `m-${stream}` };
      const first = await post('/v1/messages', { ...ask, stream }, own);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_idempotent_unstored_bytes') === 0, 60_000)); // else it is joined
      const second = await post('/v1/messages', { ...ask, stream }, own);
      // The same message; a stream's deltas may be cut otherwise.
      const message = ({ body }) => (stream ? [/msg_\w+/.exec(body)[0], [...body.matchAll(/"text_delta","text":"([^"]*)"/g)].map((m) => m[1]).join('')] : body);
      assert.deepEqual([second.status, message(second)], [200, message(first)]);
      assert.equal(second.headers['x-sluice-idempotent-replay'], 'true');
      assert.equal(second.headers['content-type'], first.headers['content-type']);
    }
  });

  test('pages of other sites may send the API\'s headers', async () => {
    const r = await request(server.http, '/v1/messages', { method: 'OPTIONS', headers: { origin: 'https://page.example',
      'access-control-request-method': 'POST', 'access-control-request-headers': 'anthropic-version,x-api-key,anthropic-beta,anthropic-dangerous-direct-browser-access' } });
    const allowed = r.headers['access-control-allow-headers'].split(', ');
    for (const name of ['x-api-key', 'anthropic-version', 'anthropic-beta', 'anthropic-dangerous-direct-browser-access']) assert.ok(allowed.includes(name), name);
  });
});

// What a chat gets, a message gets: the tests of each part use chats.
describe('messages and lines, on the way of a chat', { timeout: 120_000 }, () => {
  let server, post;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.context=400', 'engine.echo.rate=0', 'engine.echo.ttft=1500ms'],
      edit: (yaml) => yaml.replaceAll('compress: summary', 'compress: trim').replace('requests_per_minute: 600', 'requests_per_minute: 1') });
    post = poster(server);
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));
  const ways = [
    ['/v1/messages', (messages) => ({ model: 'default', max_tokens: 50, messages, metadata: { user_id: 'u' } }), (json) => json.content[0].text, (json) => json.usage.input_tokens + json.usage.cache_read_input_tokens],
    ['/api/chat', (messages) => ({ model: 'default', messages, stream: false, options: { temperature: 0 } }), (json) => json.message.content, (json) => json.prompt_eval_count]];
  const both = (key = 'paid') => ({ authorization: `Bearer ${server.keys[key]}` });

  for (const [path, body, textOf, promptOf] of ways) {
    test(`${path}: too long a conversation is shortened`, async () => {
      const turn = (i) => [...user(`yes, we met Quentin${i} at dawn ${Array(24).fill('and so on').join(' ')}.`), { role: 'assistant', content: 'Fine.' }];
      const r = await post(path, body([...Array.from({ length: 20 }, (_, i) => turn(i)).flat(), ...user('Good bye')]), both());
      assert.equal(r.status, 200, r.body);
      assert.equal(textOf(r.json).trim(), 'Good bye');
      assert.equal(r.json.sluice.compressed.how, 'trim');
      assert.ok(promptOf(r.json) <= 300, r.body);
    });

    test(`${path}: requests that are alike share a generation`, async () => {
      const before = metric(await server.metrics(), 'sluice_twins_joined_total');
      const same = await Promise.all([1, 2].map(() => post(path, body(user(`share this of ${path}`)), both())));
      assert.deepEqual(same.map((r) => textOf(r.json)), Array(2).fill(`share this of ${path}`));
      assert.equal(metric(await server.metrics(), 'sluice_twins_joined_total'), before + 1);
    });
  }

  test('a key over its limit gets 429 of each API', async () => {
    const statuses = [];
    for (let i = 0; i < 3; i++) {
      const [path, body] = ways[i % 2];
      const r = await post(path, body(user('x')), both('free'));
      statuses.push(r.status);
      if (i < 1) continue;
      assert.ok(Number(r.headers['retry-after']) > 0, r.body);
      assert.equal(i % 2 === 0 ? r.json.error.type : typeof r.json.error, i % 2 === 0 ? 'rate_limit_error' : 'string');
    }
    assert.deepEqual(statuses, [200, 429, 429]);
  });
});

describe('messages, when the engine fails or is slow', { timeout: 120_000 }, () => {
  let server, post;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'engine.echo.rate=2', 'gateway.heartbeat=100ms'] });
    post = poster(server);
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('pings between events; an error is an event', async () => {
    const r = await fetch(`${server.http}/v1/messages`, { method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': server.keys.paid },
      body: JSON.stringify({ model: 'demo-small', max_tokens: 10000, stream: true, messages: user('repeat a b c') }) });
    let body = '', killed = false;
    for await (const piece of r.body) {
      body += Buffer.from(piece).toString();
      if (killed || !body.includes('event: ping') || !body.includes('text_delta')) continue;
      killed = true;
      process.kill((await server.pids()).engine, 'SIGKILL');
    }
    const events = eventsOf(body);
    assert.equal(events.find((e) => e.type !== 'ping').type, 'message_start');
    assert.deepEqual([events.at(-1).type, events.filter((e) => e.type === 'error').length], ['error', 1], JSON.stringify(events.at(-1)));
    assert.match(events.at(-1).request_id, /^req_/);
  });

  test('an engine that is away is status 529', async () => {
    await until(async () => {
      const { engine } = await server.pids();
      if (engine) process.kill(engine, 'SIGKILL');
      const r = await post('/v1/messages', { model: 'demo-small', max_tokens: 1, messages: user('x') });
      return r.status === 529 && r.json.error.type === 'overloaded_error' && r.headers['retry-after'] === '1';
    }, 60_000) || assert.fail('never');
    await until(async () => (await post('/v1/messages', { model: 'demo-small', max_tokens: 1, messages: user('x') })).status === 200, 60_000) || assert.fail('not back');
  });
});

describe('messages, of a model with tools, by the SDK', { timeout: 300_000 }, () => {
  let server, anthropic, dir, post;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-messages-'));
    withTemplate(join(ROOT, 'etc/models/demo-large.gguf'), join(dir, 'tools.gguf'), HERMES);
    server = await startServer({ sets: ['engine.models=', `engine.models.demo-large.path=${join(dir, 'tools.gguf')}`] });
    anthropic = new Anthropic({ baseURL: server.http, apiKey: server.keys.paid, maxRetries: 0 });
    post = poster(server);
  });
  after(async () => {
    const how = await server?.stop();
    rmSync(dir, { recursive: true, force: true });
    assert.equal(how, 0, server?.log());
  });
  const ask = { model: 'demo-large', max_tokens: 300, messages: user('What is the weather in Paris?') };
  const tools = [
    { name: 'get_weather', description: 'The weather', input_schema: { type: 'object', properties: { city: { type: 'string', maxLength: 10 } }, required: ['city'], additionalProperties: false } },
    { name: 'note', input_schema: { type: 'object', properties: { text: { type: 'string', maxLength: 8 } }, required: ['text'], additionalProperties: false } }];

  test('text, whole and streamed', async () => {
    const whole = await anthropic.messages.create({ ...ask, max_tokens: 20, temperature: 0 });
    assert.equal(whole.type, 'message');
    assert.match(whole._request_id, /^req_/);
    const stream = anthropic.messages.stream({ ...ask, max_tokens: 20, temperature: 0 });
    let text = '';
    stream.on('text', (piece) => { text += piece; });
    const final = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual([final.content, final.stop_reason], [whole.content, whole.stop_reason]);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  });

  test('a stop sequence is named', async () => {
    const plain = await anthropic.messages.create({ ...ask, max_tokens: 20, temperature: 0 });
    const word = plain.content[0].text.split(' ')[1];
    for (const stream of [false, true]) {
      const body = { ...ask, max_tokens: 20, temperature: 0, stop_sequences: ['\u0001', word] };
      const r = stream ? await anthropic.messages.stream(body).finalMessage() : await anthropic.messages.create(body);
      assert.deepEqual([r.stop_reason, r.stop_sequence], ['stop_sequence', word], plain.content[0].text);
      assert.equal(r.content[0]?.text ?? '', plain.content[0].text.slice(0, plain.content[0].text.indexOf(word)));
    }
  });

  test('calls are forced by tool_choice, whole and streamed, and go back in', async () => {
    for (const tool_choice of [{ type: 'any', disable_parallel_tool_use: true }, { type: 'tool', name: 'note', disable_parallel_tool_use: true }]) {
      const whole = await anthropic.messages.create({ ...ask, tools, tool_choice, temperature: 0 });
      const final = await anthropic.messages.stream({ ...ask, tools, tool_choice, temperature: 0 }).finalMessage();
      for (const message of [whole, final]) {
        assert.equal(message.stop_reason, 'tool_use', JSON.stringify(message));
        const [call] = message.content;
        assert.deepEqual([message.content.length, call.type, typeof call.id], [1, 'tool_use', 'string']);
        assert.ok(tool_choice.name ? call.name === tool_choice.name : tools.some((t) => t.name === call.name));
        assert.equal(typeof call.input[call.name === 'note' ? 'text' : 'city'], 'string');
      }
      assert.deepEqual(final.content.map((c) => c.input), whole.content.map((c) => c.input));
      const next = await anthropic.messages.create({ ...ask, max_tokens: 10, tools, messages: [...ask.messages, { role: 'assistant', content: whole.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: whole.content[0].id, content: [{ type: 'text', text: 'sunny' }], is_error: false }, { type: 'text', text: 'So?' }] }] });
      assert.ok(next.usage.output_tokens > 0);
    }
  });

  test('a tool runner calls the tool with its input', async () => {
    const asked = [];
    const runner = anthropic.beta.messages.toolRunner({ ...ask, max_iterations: 1, tool_choice: { type: 'tool', name: 'get_weather', disable_parallel_tool_use: true },
      tools: [{ ...tools[0], type: 'custom', parse: (x) => x, run: (input) => { asked.push(input); return 'sunny'; } }] });
    await runner;
    await runner.generateToolResponse();
    assert.ok(asked.length >= 1 && typeof asked[0].city === 'string', JSON.stringify(asked));
  });

  test('none and auto: what is written as a call is one only with its tool', async () => {
    for (const tool_choice of [{ type: 'none' }, { type: 'auto' }]) {
      const r = await anthropic.messages.create({ ...ask, max_tokens: 5, tools, tool_choice });
      assert.equal(r.stop_reason, 'max_tokens');
    }
  });

  test('thinking, where it is asked for', async () => {
    const thinking = { type: 'enabled', budget_tokens: 8 };
    const whole = await anthropic.messages.create({ ...ask, max_tokens: 40, thinking, temperature: 0 });
    assert.equal(whole.content[0].type, 'thinking', JSON.stringify(whole));
    assert.equal(typeof whole.content[0].signature, 'string');
    const final = await anthropic.messages.stream({ ...ask, max_tokens: 40, thinking, temperature: 0 }).finalMessage();
    assert.deepEqual(final.content, whole.content);
    const back = await anthropic.messages.create({ ...ask, max_tokens: 5, messages: [...ask.messages, { role: 'assistant', content: whole.content }, ...user('And?')] });
    assert.ok(back.content.every((c) => c.type === 'text'));
    const longer = await anthropic.messages.countTokens({ model: ask.model, messages: [...ask.messages, { role: 'assistant', content: whole.content }] });
    const shorter = await anthropic.messages.countTokens({ model: ask.model, messages: ask.messages });
    assert.ok(longer.input_tokens > shorter.input_tokens);
  });

  test('an answer of a schema', async () => {
    const schema = { type: 'object', properties: { city: { type: 'string', maxLength: 8 } }, required: ['city'], additionalProperties: false };
    const r = await post('/v1/messages', { ...ask, output_config: { format: { type: 'json_schema', schema } } });
    assert.equal(typeof JSON.parse(r.json.content[0].text).city, 'string', r.body);
    const beta = await post('/v1/messages', { ...ask, output_format: { type: 'json_schema', schema } });
    assert.deepEqual(Object.keys(JSON.parse(beta.json.content[0].text)), ['city']);
    const both = await post('/v1/messages', { ...ask, tools, tool_choice: { type: 'any' }, output_format: { type: 'json_schema', schema } });
    assert.equal(both.status, 400);
    assert.match(both.json.error.message, /'tool_choice'/);
  });

  test('the assistant\'s last message goes on', async () => {
    const r = await post('/v1/messages/count_tokens', { ...ask, messages: [...ask.messages, { role: 'assistant', content: 'It is' }] });
    const open = await post('/v1/messages/count_tokens', ask);
    const closed = await post('/v1/messages/count_tokens', { ...ask, messages: [...ask.messages, { role: 'assistant', content: 'It is' }, ...user('x')] });
    assert.ok(open.json.input_tokens < r.json.input_tokens && r.json.input_tokens < closed.json.input_tokens);
    const answer = await anthropic.messages.create({ ...ask, max_tokens: 5, messages: [...ask.messages, { role: 'assistant', content: 'It is' }] });
    assert.ok(answer.usage.output_tokens > 0);
  });

  test('errors and models by the SDK', async () => {
    await assert.rejects(anthropic.messages.create({ ...ask, model: 'none' }), (e) => e instanceof Anthropic.NotFoundError && e.status === 404 && /'none'/.test(e.message));
    await assert.rejects(anthropic.messages.create({ ...ask, max_tokens: 0 }), (e) => e instanceof Anthropic.BadRequestError && /'max_tokens'/.test(e.message));
    const wrong = new Anthropic({ baseURL: server.http, apiKey: 'sk-wrong', maxRetries: 0 });
    await assert.rejects(wrong.messages.create(ask), (e) => e instanceof Anthropic.AuthenticationError);
    const names = [];
    for await (const m of anthropic.models.list()) names.push(m.id);
    assert.deepEqual(names, ['demo-large']);
    assert.equal((await anthropic.models.retrieve('demo-large')).type, 'model');
  });
});
