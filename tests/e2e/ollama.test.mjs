// SPDX-License-Identifier: Apache-2.0
// Ollama's API: its lines by hand first, then the ollama package, against the echo engine and models.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Ollama } from 'ollama';
import { metric, until, user } from './client.mjs';
import { HERMES, withTemplate } from './gguf.mjs';
import { ROOT, SLUICE, request, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const linesOf = (body) => {
  assert.ok(body.endsWith('\n'), body);
  return body.slice(0, -1).split('\n').map((line) => JSON.parse(line));
};
const poster = (server) => async (path, body, headers = { authorization: `Bearer ${server.keys.paid}` }, method = 'POST') => {
  const r = await request(server.http, path, { method, headers: { 'content-type': 'application/json', ...headers }, body: body && JSON.stringify(body) });
  return { ...r, json: r.body.startsWith('{') && !r.body.includes('}\n') ? JSON.parse(r.body) : null };
};
const COUNTS = ['total_duration', 'load_duration', 'prompt_eval_count', 'prompt_eval_duration', 'eval_count', 'eval_duration'];

describe('ollama, of the echo engine', { timeout: 120_000 }, () => {
  let server, post, doc;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms'] });
    post = poster(server);
    doc = JSON.parse((await request(server.http, '/openapi.json')).body);
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));
  const chat = { model: 'demo-small', messages: user('one two three') };
  const fits = (path, type, v, method = 'post') => assert.deepEqual(violations(doc, doc.paths[path][method].responses[200].content[type].schema, v), [], JSON.stringify(v));

  test('a chat: lines by default, whole with stream false', async () => {
    const r = await post('/api/chat', chat);
    assert.deepEqual([r.status, r.headers['content-type']], [200, 'application/x-ndjson'], r.body);
    const lines = linesOf(r.body);
    for (const line of lines) fits('/api/chat', 'application/x-ndjson', line);
    assert.equal(lines.map((l) => l.message.content).join(''), 'one two three');
    assert.deepEqual(lines.map((l) => l.done), [...lines.slice(1).map(() => false), true]);
    assert.ok(lines.every((l) => l.model === 'demo-small' && l.message.role === 'assistant' && Date.parse(l.created_at) > 0));
    const last = lines.at(-1);
    assert.equal(last.done_reason, 'stop');
    for (const name of COUNTS) assert.ok(Number.isInteger(last[name]) && last[name] >= 0, name);
    assert.ok(last.prompt_eval_count > 0 && last.eval_count > 0);

    const whole = await post('/api/chat', { ...chat, stream: false });
    assert.equal(whole.headers['content-type'], 'application/json');
    fits('/api/chat', 'application/json', whole.json);
    assert.deepEqual(whole.json.message, { role: 'assistant', content: 'one two three' });
    assert.deepEqual([whole.json.done, whole.json.done_reason, whole.json.eval_count], [true, 'stop', last.eval_count]);
  });

  test('a prompt: with the template, without it, with the system\'s text', async () => {
    for (const more of [{}, { raw: true }, { system: 'Be brief.' }]) {
      const r = await post('/api/generate', { model: 'demo-small', prompt: 'four five', ...more });
      const lines = linesOf(r.body);
      for (const line of lines) fits('/api/generate', 'application/x-ndjson', line);
      assert.match(lines.map((l) => l.response).join(''), /four five$/);
      assert.equal(lines.at(-1).done_reason, 'stop');
      const whole = await post('/api/generate', { model: 'demo-small', prompt: 'four five', stream: false, ...more });
      fits('/api/generate', 'application/json', whole.json);
      assert.equal(whole.json.response, lines.map((l) => l.response).join(''));
    }
  });

  test('options', async () => {
    const cut = await post('/api/chat', { ...chat, stream: false, options: { num_predict: 1, num_ctx: 4096 }, keep_alive: '5m' });
    assert.deepEqual([cut.json.done_reason, cut.json.eval_count], ['length', 1]);
    assert.deepEqual(cut.headers['x-sluice-ignored-fields'].split(', ').sort(), ['options.num_ctx']);
    for (const n of [-1, -2]) assert.equal((await post('/api/chat', { ...chat, stream: false, options: { num_predict: n } })).json.done_reason, 'stop');
  });

  test('without a prompt a model is asked to be loaded', async () => {
    for (const [path, body] of [['/api/chat', { model: 'demo-small' }], ['/api/chat', { model: 'demo-small', messages: [] }], ['/api/generate', { model: 'demo-small:latest' }]]) {
      const r = await post(path, body);
      fits(path, 'application/json', r.json);
      assert.deepEqual([r.json.model, r.json.done, r.json.done_reason], ['demo-small', true, 'load']);
      assert.equal((await post(path, { ...body, keep_alive: 0 })).json.done_reason, 'unload');
    }
    assert.equal((await post('/api/chat', chat)).status, 200); // it is still there
    assert.equal((await post('/api/generate', { model: 'none' })).status, 404);
  });

  test('a key is asked for; errors have the API\'s shape and name the field', async () => {
    for (const path of ['/api/chat', '/api/generate', '/api/embed', '/api/embeddings', '/api/show'])
      assert.equal((await post(path, chat, {})).status, 401, path);
    for (const path of ['/api/tags', '/api/ps', '/api/version']) assert.equal((await post(path, null, {}, 'GET')).status, 401, path);
    const cases = [
      ['/api/chat', { messages: user('x') }, 400, /'model'/],
      ['/api/chat', { ...chat, model: 'other' }, 404, /'other'/],
      ['/api/chat', { ...chat, messages: [{ role: 'user', content: 'x', images: ['aGk='] }] }, 400, /'messages\[0\]\.images'/],
      ['/api/chat', { ...chat, options: { temperature: 'hot' } }, 400, /'options\.temperature'/],
      ['/api/chat', { ...chat, options: { stop: ['a', ''] } }, 400, /'options\.stop\[1\]'/],
      ['/api/chat', { ...chat, format: 'yaml' }, 400, /'format'/],
      ['/api/generate', { model: 'demo-small', prompt: 'x', context: [1, 2] }, 400, /'context'.*\/api\/chat/],
      ['/api/generate', { model: 'demo-small', prompt: 'x', template: '{{ .Prompt }}' }, 400, /'template'/],
      ['/api/generate', { model: 'demo-small', prompt: 'x', suffix: 'y' }, 400, /'suffix'/],
      ['/api/generate', { model: 'demo-small', prompt: 'x', images: ['aGk='] }, 400, /'images'/],
      ['/api/show', { model: 'none' }, 404, /'none'/],
      ['/api/embed', { model: 'demo-small' }, 400, /'input'/],
      ['/api/embeddings', { model: 'demo-small', prompt: '' }, 400, /'prompt'/],
      ['/api/pull', { model: 'x' }, 404, /engine\.models/],
      ['/api/create', { model: 'x' }, 404, /engine\.models/],
      ['/api/unknown', {}, 404, /\/api\/unknown/],
    ];
    for (const [path, body, status, words] of cases) {
      const r = await post(path, body);
      assert.equal(r.status, status, r.body);
      assert.deepEqual(Object.keys(r.json), ['error'], r.body);
      assert.match(r.json.error, words);
    }
    for (const [method, path] of [['DELETE', '/api/delete'], ['HEAD', '/api/blobs/sha256:00']]) assert.equal((await post(path, null, undefined, method)).status, 404);
    assert.equal((await post('/api/tags', null, undefined, 'POST')).headers.allow, 'GET, HEAD, OPTIONS');
  });

  test('models', async () => {
    const tags = await post('/api/tags', null, undefined, 'GET'), ps = await post('/api/ps', null, undefined, 'GET');
    for (const [path, r] of [['/api/tags', tags], ['/api/ps', ps]]) {
      fits(path, 'application/json', r.json, 'get');
      assert.ok(r.json.models.some((m) => m.name === 'demo-small' && m.model === 'demo-small' && /^[0-9a-f]{64}$/.test(m.digest)));
    }
    for (const body of [{ model: 'demo-small' }, { name: 'demo-small:latest' }]) {
      const r = await post('/api/show', body);
      fits('/api/show', 'application/json', r.json);
      assert.ok(r.json.capabilities.includes('completion'));
      assert.ok(r.json.model_info['general.parameter_count'] >= 0);
    }
    const version = await post('/api/version', null, undefined, 'GET');
    assert.deepEqual(version.json, { version: readFileSync(join(ROOT, 'VERSION'), 'utf8').trim() });
  });

  test('a repeated request with its key gets the same lines', async () => {
    const headers = { authorization: `Bearer ${server.keys.paid}`, 'idempotency-key': 'o-1' };
    const first = await post('/api/chat', chat, headers);
    // Until the answer is stored a repetition joins it, and its lines have times of their own.
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_idempotent_unstored_bytes') === 0, 60_000));
    const second = await post('/api/chat', chat, headers);
    assert.deepEqual([second.status, second.body, second.headers['content-type']], [200, first.body, 'application/x-ndjson']);
    assert.equal(second.headers['x-sluice-idempotent-replay'], 'true');
  });
});

describe('ollama, when the engine fails', { timeout: 120_000 }, () => {
  let server;
  before(async () => { server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'engine.echo.rate=2', 'gateway.heartbeat=100ms'] }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('lines without text keep a stream open; an error is its last line', async () => {
    const r = await fetch(`${server.http}/api/chat`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` },
      body: JSON.stringify({ model: 'demo-small', messages: user('repeat a b c') }) });
    let body = '', killed = false;
    for await (const piece of r.body) {
      body += Buffer.from(piece).toString();
      if (killed || !body.includes('"content":""') || !/"content":"[abc ]/.test(body)) continue;
      killed = true;
      process.kill((await server.pids()).engine, 'SIGKILL');
    }
    const lines = linesOf(body);
    assert.deepEqual([Object.keys(lines.at(-1)), lines.filter((l) => l.error).length], [['error'], 1], JSON.stringify(lines.at(-1)));
    assert.ok(lines.slice(0, -1).every((l) => l.done === false));
  });
});

describe('ollama, of models, by its package', { timeout: 300_000 }, () => {
  let server, ollama, dir, post;
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-ollama-'));
    withTemplate(join(ROOT, 'etc/models/demo-large.gguf'), join(dir, 'tools.gguf'), HERMES);
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-embedding', '--type', 'f32', join(dir, 'embed.gguf')]);
    server = await startServer({ sets: ['engine.models=', `engine.models.demo-large.path=${join(dir, 'tools.gguf')}`, `engine.models.embed.path=${join(dir, 'embed.gguf')}`, 'engine.models.embed.matryoshka=on'] });
    ollama = new Ollama({ host: server.http, headers: { Authorization: `Bearer ${server.keys.paid}` } });
    post = poster(server);
  });
  after(async () => {
    const how = await server?.stop();
    rmSync(dir, { recursive: true, force: true });
    assert.equal(how, 0, server?.log());
  });
  const ask = { model: 'demo-large', messages: user('What is the weather in Paris?'), options: { temperature: 0, num_predict: 300 } };
  const tools = ['get_weather', 'note'].map((name) => ({ type: 'function', function: { name, description: name,
    parameters: { type: 'object', properties: { text: { type: 'string', maxLength: 8 } }, required: ['text'], additionalProperties: false } } }));
  const all = async (stream) => { const parts = []; for await (const p of await stream) parts.push(p); return parts; };

  test('text, whole and streamed; chat and generate', async () => {
    const options = { temperature: 0, num_predict: 12 };
    const whole = await ollama.chat({ ...ask, options });
    const parts = await all(ollama.chat({ ...ask, options, stream: true }));
    assert.equal(parts.map((p) => p.message.content).join(''), whole.message.content);
    assert.ok(whole.message.content.length > 0);
    assert.equal(parts.at(-1).eval_count, whole.eval_count);
    const one = await ollama.generate({ model: 'demo-large', prompt: ask.messages[0].content, options });
    assert.equal(one.response, whole.message.content); // the same prompt by another way
    assert.equal((await all(ollama.generate({ model: 'demo-large', prompt: ask.messages[0].content, options, stream: true }))).map((p) => p.response).join(''), one.response);
    const raw = await ollama.generate({ model: 'demo-large', prompt: 'Paris is', raw: true, options });
    assert.ok(raw.prompt_eval_count < one.prompt_eval_count);
  });

  test('seed and stop strings', async () => {
    const options = { temperature: 1.5, seed: 7, num_predict: 12 };
    const [a, b] = [await ollama.chat({ ...ask, options }), await ollama.chat({ ...ask, options })];
    assert.equal(a.message.content, b.message.content);
    const plain = await ollama.chat({ ...ask, options: { temperature: 0, num_predict: 12 } });
    const word = plain.message.content.split(' ')[1];
    const r = await ollama.chat({ ...ask, options: { temperature: 0, num_predict: 12, stop: [word] } });
    assert.equal(r.message.content, plain.message.content.slice(0, plain.message.content.indexOf(word)));
    assert.equal(r.done_reason, 'stop');
  });

  test('an answer of a schema, and any JSON', async () => {
    const format = tools[0].function.parameters;
    assert.deepEqual(Object.keys(JSON.parse((await ollama.chat({ ...ask, format })).message.content)), ['text']);
    assert.deepEqual(Object.keys(JSON.parse((await ollama.generate({ model: 'demo-large', prompt: 'x', format, options: ask.options })).response)), ['text']);
    const any = await ollama.chat({ ...ask, format: 'json' });
    if (any.done_reason === 'stop') assert.equal(typeof JSON.parse(any.message.content), 'object');
  });

  test('calls: arguments are an object; their results go back in', async () => {
    const body = { ...ask, tools, tool_choice: 'required' };
    const whole = await ollama.chat(body);
    const parts = await all(ollama.chat({ ...body, stream: true }));
    const calls = parts.flatMap((p) => p.message.tool_calls ?? []);
    assert.ok(whole.message.tool_calls.length > 0, JSON.stringify(whole));
    assert.deepEqual(calls.map((c) => c.function), whole.message.tool_calls.map((c) => c.function));
    assert.equal(typeof calls[0].function.arguments.text, 'string');
    assert.deepEqual([whole.done_reason, parts.at(-1).done_reason], ['stop', 'stop']);
    const history = [...ask.messages, { role: 'assistant', content: '', tool_calls: [{ function: { name: 'note', arguments: { text: 'a' } } }] }, { role: 'tool', tool_name: 'note', content: 'done' }];
    const next = await ollama.chat({ model: 'demo-large', messages: history, tools, options: { num_predict: 5 } });
    assert.ok(next.eval_count > 0);
    const named = await ollama.chat({ ...ask, tools, tool_choice: { type: 'function', function: { name: 'note' } } });
    assert.equal(named.message.tool_calls[0].function.name, 'note');
  });

  test('thinking is apart', async () => {
    const format = { type: 'string', maxLength: 4 };
    const body = { ...ask, think: true, options: { temperature: 0, num_predict: 30 } };
    const whole = await ollama.chat(body);
    assert.ok(whole.message.thinking.length > 0, JSON.stringify(whole));
    const parts = await all(ollama.chat({ ...body, stream: true }));
    assert.equal(parts.map((p) => p.message.thinking ?? '').join(''), whole.message.thinking);
    assert.equal(parts.map((p) => p.message.content).join(''), whole.message.content);
    assert.equal((await ollama.chat({ ...body, think: false, format })).message.thinking, undefined);
  });

  test('log probabilities', async () => {
    const r = await post('/api/chat', { ...ask, logprobs: true, top_logprobs: 2, stream: false, options: { temperature: 0, num_predict: 4 } });
    assert.equal(r.json.logprobs.map((t) => t.token).join(''), r.json.message.content, r.body);
    assert.ok(r.json.logprobs.every((t) => t.top_logprobs.length === 2));
    const lines = linesOf((await post('/api/chat', { ...ask, logprobs: true, top_logprobs: 2, options: { temperature: 0, num_predict: 4 } })).body);
    assert.deepEqual(lines.flatMap((l) => l.logprobs ?? []), r.json.logprobs);
  });

  test('embeddings', async () => {
    const { embeddings, prompt_eval_count: n } = await ollama.embed({ model: 'embed', input: ['a b', 'c'] });
    assert.deepEqual([embeddings.length, n > 0], [2, true]);
    assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-4);
    const { embedding } = await ollama.embeddings({ model: 'embed', prompt: 'c' });
    assert.deepEqual(embedding, embeddings[1]);
    assert.deepEqual((await ollama.embed({ model: 'embed:latest', input: 'c', dimensions: 8 })).embeddings[0].length, 8);
    assert.ok((await ollama.show({ model: 'embed' })).capabilities.includes('embedding'));
  });

  test('models and errors by the package', async () => {
    assert.deepEqual((await ollama.list()).models.map((m) => m.name).sort(), ['demo-large', 'embed']);
    assert.deepEqual((await ollama.ps()).models.map((m) => m.name).sort(), ['demo-large', 'embed']);
    assert.deepEqual((await ollama.show({ model: 'demo-large' })).capabilities, ['completion', 'tools', 'thinking']);
    await assert.rejects(ollama.chat({ ...ask, model: 'none' }), (e) => e.status_code === 404 && /'none'/.test(e.message));
    await assert.rejects(ollama.pull({ model: 'x' }), (e) => e.status_code === 404 && /engine\.models/.test(e.message));
    await until(async () => (await ollama.version()).version.length > 0, 1000) || assert.fail('no version');
  });
});
