// SPDX-License-Identifier: Apache-2.0
// The fields of requests over the wire: what /openapi.json and etc/api.md say of each is what the running server does, and
// what is honoured changes the answers of a real model.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { user } from './client.mjs';
import { request, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const endpoints = [
  { path: '/v1/chat/completions', base: { messages: user('x'), max_tokens: 2 }, column: 1 },
  { path: '/v1/completions', base: { prompt: 'x', max_tokens: 2 }, column: 2 },
  { path: '/v1/responses', base: { input: 'x', max_output_tokens: 2 }, column: 3 },
];

const poster = (server) => async (path, body) => {
  const r = await request(server.http, path, { method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
  return { status: r.status, text: r.body, json: r.body.startsWith('{') ? JSON.parse(r.body) : null };
};

describe('fields', () => {
  let server, doc, post;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms'] });
    post = poster(server);
    doc = JSON.parse((await request(server.http, '/openapi.json')).body);
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  const schemaOf = (path) => {
    const { $ref } = doc.paths[path].post.requestBody.content['application/json'].schema;
    return doc.components.schemas[$ref.split('/').pop()];
  };
  const bodyWith = ({ base }, owner, key, value) => {
    const body = { model: 'default', ...base };
    if ((owner ?? key) === 'stream_options') body.stream = true;
    if (owner) body[owner] = owner === 'prompt' ? { id: 'p', [key]: value } : { [key]: value };
    else body[key] = value;
    return body;
  };
  const samples = { boolean: true, integer: 2, number: 0.5, string: 'x', array: [1], object: { type: 'x' } };

  async function check(end, owner, schema) {
    let n = 0;
    for (const [key, p] of Object.entries(schema.properties)) {
      const types = [p.type].flat();
      const name = owner ? `${owner}.${key}` : key;
      const refused = async (value, code) => {
        const r = await post(end.path, bodyWith(end, owner, key, value));
        const about = `${end.path} ${name} ${JSON.stringify(value)}: ${r.text}`;
        assert.equal(r.status, 400, about);
        assert.deepEqual({ ...r.json.error, message: '' }, { message: '', type: 'invalid_request_error', param: name, code }, about);
        n++;
      };
      const taken = async (value) => {
        const r = await post(end.path, bodyWith(end, owner, key, value));
        assert.equal(r.status, 200, `${end.path} ${name} ${JSON.stringify(value)}: ${r.text}`);
        n++;
      };
      const [wrong] = Object.keys(samples).filter((t) => !types.includes(t) && !(t === 'integer' && types.includes('number')));
      await refused(samples[wrong], 'invalid_type');
      if (p['x-sluice'] === 'refused') {
        for (const t of types.filter((x) => x !== 'null')) await refused(t === 'boolean' ? !p.examples[0] : samples[t], 'unsupported_parameter');
        for (const value of [null, ...p.examples ?? []]) await taken(value);
      }
      if (p['x-sluice'] === 'ignored')
        for (const value of p.enum ?? types.map((t) => (t === 'object' ? {} : samples[t] ?? null))) await taken(value);
      if (p['x-sluice'] === 'honoured') {
        if (p.maximum !== undefined) await refused(p.maximum + 1, 'invalid_value');
        if (!types.includes('null')) await refused(null, 'missing_required_parameter');
      }
      if (p.properties && p['x-sluice'] !== 'refused') n += await check(end, key, p);
    }
    return n;
  }

  for (const end of endpoints) {
    test(end.path, async () => {
      assert.ok(await check(end, null, schemaOf(end.path)) > 100);
    });
  }

  test('etc/api.md says the same', () => {
    const said = { honoured: 'yes', ignored: 'ignored', refused: 'refused' };
    const rows = readFileSync('etc/api.md', 'utf8').split('\n').map((line) => /^\| `([\w.]+)` \|(.*)$/.exec(line)).filter(Boolean)
      .map(([, name, rest]) => [name, ...rest.split('|').map((s) => s.trim())]).filter((row) => row.length > 4);
    let n = 0;
    const compare = (end, prefix, schema) => {
      for (const [key, p] of Object.entries(schema.properties)) {
        const own = rows.filter((r) => r[0] === prefix + key && r[end.column] !== '–');
        assert.equal(own.length, 1, `${end.path} ${prefix}${key}`);
        assert.equal(own[0][end.column], said[p['x-sluice']], `${end.path} ${prefix}${key}`);
        n++;
        if (p.properties) compare(end, `${key}.`, p);
      }
    };
    for (const end of endpoints) compare(end, '', schemaOf(end.path));
    assert.equal(n, rows.flatMap((r) => r.slice(1, 4)).filter((c) => c !== '–').length);
  });

  test('answers are what is said', async () => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` };
    async function ask(method, path, body, as = path) {
      const r = await request(server.http, path, { method, headers, body: body && JSON.stringify({ model: 'default', ...body }) });
      assert.equal(r.status, 200, r.body);
      const { content } = doc.paths[as][method.toLowerCase()].responses[200];
      const type = r.headers['content-type'].split(';')[0];
      const all = type === 'application/json' ? [r.body] : r.body.split('\n').filter((l) => l.startsWith('data: {')).map((l) => l.slice(6));
      assert.ok(all.length > 0);
      for (const one of all) assert.deepEqual(violations(doc, content[type].schema, JSON.parse(one)), [], one);
      return JSON.parse(all.at(-1));
    }
    const chat = '/v1/chat/completions', completions = '/v1/completions', responses = '/v1/responses', one = '/v1/responses/{id}';
    const events = { stream: true, stream_options: { include_obfuscation: true } };
    await ask('POST', chat, { messages: user('a b'), logprobs: true, top_logprobs: 2, n: 2 });
    await ask('POST', chat, { messages: user('a b'), logprobs: true, stream: true, stream_options: { include_usage: true } });
    await ask('POST', chat, { messages: user('a b'), ...events });
    await ask('POST', completions, { prompt: ['a b', 'c'], logprobs: 2 });
    await ask('POST', completions, { prompt: 'a b', echo: true, ...events, n: 2 });
    const first = await ask('POST', responses, { input: 'a b', top_logprobs: 2, metadata: { a: 'b' }, instructions: 'x',
      reasoning: { effort: 'low' }, text: { format: { type: 'text' }, verbosity: 'low' }, tools: [], tool_choice: 'none' });
    await ask('POST', responses, { input: 'c', previous_response_id: first.id, max_output_tokens: 1, ...events });
    await ask('GET', `${responses}/${first.id}`, null, one);
    await ask('GET', `${responses}/${first.id}/input_items?limit=1&order=asc`, null, `${one}/input_items`);
    const back = await ask('POST', responses, { input: 'a b', background: true });
    await ask('GET', `${responses}/${back.id}?stream=true&starting_after=0`, null, one);
    await ask('DELETE', `${responses}/${first.id}`, null, one);
    await ask('GET', '/v1/models');
    await ask('GET', '/v1/models/demo-small', null, '/v1/models/{model}');
    for (const path of ['/live', '/ready', '/health']) await ask('GET', path);
    const error = JSON.parse((await request(server.http, chat, { method: 'POST', headers, body: '{}' })).body);
    assert.deepEqual(violations(doc, doc.components.schemas.Error, error), []);
    assert.notDeepEqual(violations(doc, doc.components.schemas.Error, { ...error, more: 1 }), []);
    assert.notDeepEqual(violations(doc, doc.components.schemas.Response, { ...first, status: 'queued' }), []);
    assert.notDeepEqual(violations(doc, doc.components.schemas.Response, { ...first, output: [{ type: 'message' }] }), []);
  });
});

describe('what is honoured', () => {
  let server, ask;
  before(async () => {
    server = await startServer();
    const post = poster(server);
    ask = async (fields) => {
      const r = await post('/v1/chat/completions', { model: 'demo-small', messages: user('What is the capital of France?'), max_tokens: 12, ...fields });
      assert.equal(r.status, 200, r.text);
      return r.json.choices;
    };
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });
  const texts = (choices) => choices.map((c) => c.message.content);

  test('seed, temperature, n', async () => {
    const fields = { seed: 7, temperature: 2, n: 4 };
    const once = texts(await ask(fields));
    assert.equal(once.length, 4);
    assert.ok(new Set(once).size > 1, `${once}`);
    assert.deepEqual(texts(await ask(fields)), once);
    const [greedy] = texts(await ask({ temperature: 0 }));
    for (const one of [{ top_k: 1 }, { top_p: 1e-9 }, { min_p: 1 }]) assert.deepEqual(texts(await ask({ ...one, seed: 3 })), [greedy], JSON.stringify(one));
  });

  test('logprobs, logit_bias, stop, stop_token_ids, lengths', async () => {
    const [plain] = await ask({ temperature: 0, logprobs: true, top_logprobs: 3 });
    const tokens = plain.logprobs.content;
    assert.equal(tokens.map((t) => t.token).join(''), plain.message.content);
    for (const t of tokens) {
      assert.ok(t.logprob <= 0 && t.top_logprobs.length === 3 && t.top_logprobs[0].logprob === t.logprob);
      assert.deepEqual(Buffer.from(t.bytes).toString(), t.token);
    }
    const word = plain.message.content.split(' ')[1];
    assert.deepEqual(texts(await ask({ temperature: 0, stop: [`${word}`] })), [plain.message.content.slice(0, plain.message.content.indexOf(word))]);
    const [forced] = await ask({ temperature: 0, logit_bias: { 65: 100 }, max_tokens: 3 });
    assert.notEqual(forced.message.content, plain.message.content.slice(0, forced.message.content.length));
    assert.equal(forced.finish_reason, 'length');
    const [stopped] = await ask({ temperature: 0, logit_bias: { 65: 100 }, stop_token_ids: [65] });
    assert.deepEqual([stopped.message.content, stopped.finish_reason], ['', 'stop']);
    const [long] = await ask({ temperature: 0, ignore_eos: true, max_tokens: 200 });
    assert.equal(long.finish_reason, 'length');
    const [least] = await ask({ temperature: 0, min_tokens: 60, max_tokens: 60 });
    assert.equal(least.finish_reason, 'length');
  });

  test('what the engine refuses names its field', async () => {
    const post = poster(server);
    const most = 2 ** 31 - 1;
    const cases = [
      ['logit_bias', { logit_bias: { 5: 1, [most]: 1 } }, String(most)],
      ['stop_token_ids', { stop_token_ids: [5, most] }, String(most)],
      ['documents', { documents: ['x'] }, 'documents[0]'],
      ['chat_template_kwargs', { chat_template_kwargs: { messages: 1 } }, 'messages'],
    ];
    for (const stream of [false, true]) {
      for (const [param, fields, quoted] of cases) {
        const r = await post('/v1/chat/completions', { model: 'demo-small', messages: user('Hello'), max_tokens: 2, stream, ...fields });
        assert.deepEqual([r.status, r.json.error.param, r.json.error.code], [400, param, 'invalid_value'], r.text);
        assert.ok(r.json.error.message.includes(quoted), r.text);
      }
    }
    const plain = { model: 'demo-small', max_tokens: 2 };
    for (const [path, body] of [['/v1/completions', { ...plain, prompt: 'x' }], ['/v1/responses', { model: 'demo-small', input: 'x' }]]) {
      for (const [param, fields] of cases.slice(0, 2)) {
        const r = await post(path, { ...body, ...fields });
        assert.deepEqual([r.status, r.json.error.param], [400, param], r.text);
      }
    }
    const tokens = await post('/v1/completions', { ...plain, prompt: [5, most] });
    assert.deepEqual([tokens.status, tokens.json.error.param], [400, 'prompt'], tokens.text);
    const below = await post('/v1/chat/completions', { ...plain, messages: user('x'), stop_token_ids: [-1] });
    assert.deepEqual([below.status, below.json.error.param], [400, 'stop_token_ids[0]'], below.text);
    assert.match(below.json.error.message, /must be between 0 and 2147483647, not -1\.$/);
  });

  test('messages of tools and of an assistant that called them', async () => {
    const choices = await ask({ messages: [...user('What is 3 plus 4?'),
      { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: { name: 'add', arguments: '{"a":3,"b":4}' } }] },
      { role: 'tool', tool_call_id: 'a', content: '7' }], tools: [{ type: 'function', function: { name: 'add' } }], tool_choice: 'none' });
    assert.equal(choices.length, 1);
  });
});
