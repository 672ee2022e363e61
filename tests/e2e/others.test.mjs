// SPDX-License-Identifier: Apache-2.0
// What the API has beside OpenAI's: names and fields of other servers, stop reasons, token ids, log probabilities of
// prompts, beam search, tokens that may and may not be chosen, /tokenize and /detokenize, and paths that are not served.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { user } from './client.mjs';
import { localOnly, request, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

let server, openai, doc;
before(async () => {
  server = await startServer();
  openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  doc = JSON.parse((await request(server.http, '/openapi.json')).body);
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

const model = 'demo-small';
const question = { model, messages: user('What is the capital of France?'), temperature: 0, max_tokens: 12 };

async function send(path, body, method = 'POST') {
  const r = await request(server.http, path, { method, body: body && JSON.stringify(body),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
  return { status: r.status, headers: r.headers, text: r.body, json: r.body.startsWith('{') ? JSON.parse(r.body) : null };
}
async function ask(path, body) {
  const r = await send(path, body);
  assert.equal(r.status, 200, r.text);
  const schema = doc.paths[path].post.responses[200].content['application/json'].schema;
  assert.deepEqual(violations(doc, schema, r.json), [], r.text);
  return r.json;
}
const chat = async (fields) => (await ask('/v1/chat/completions', { ...question, ...fields })).choices[0];
const refused = async (path, body, param, code) => {
  const r = await send(path, body);
  assert.deepEqual([r.status, r.json.error.param, r.json.error.code], [400, param, code], r.text);
  return r.json.error.message;
};

test('other names are the same fields', async () => {
  const plain = await chat({});
  for (const name of ['max_new_tokens', 'n_predict', 'num_predict']) {
    const { max_tokens, ...rest } = question;
    const r = await openai.chat.completions.create({ ...rest, [name]: max_tokens });
    assert.equal(r.choices[0].message.content, plain.message.content, name);
  }
  const penalised = await chat({ repetition_penalty: 1.5 });
  assert.equal((await chat({ repeat_penalty: 1.5 })).message.content, penalised.message.content);
  assert.equal((await chat({ temperature: undefined, do_sample: false })).message.content, plain.message.content);
});

test('unknown fields are named by a header', async () => {
  const { response } = await openai.chat.completions.create({ ...question, max_tokens: 2, foo: 1, 'b\r\na': 2, stream_options: null })
    .withResponse();
  assert.equal(response.headers.get('x-sluice-ignored-fields'), 'foo, b__a');
  const stream = await openai.chat.completions.create({ ...question, max_tokens: 2, stream: true, foo: 1 }).withResponse();
  assert.equal(stream.response.headers.get('x-sluice-ignored-fields'), 'foo');
  for await (const _ of stream.data);
  const many = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`f${i}`, i]));
  const r = await send('/v1/completions', { model, prompt: 'x', max_tokens: 1, ...many });
  assert.match(r.headers['x-sluice-ignored-fields'], /^f0, .*, f15, \+4$/);
  assert.equal((await send('/v1/responses', { model, input: 'x', max_output_tokens: 2 })).headers['x-sluice-ignored-fields'], undefined);
});

test('what stopped an answer', async () => {
  const { message: { content } } = await chat({});
  const word = content.split(' ')[1];
  const stopped = await chat({ stop: ['never said', word] });
  assert.deepEqual([stopped.finish_reason, stopped.stop_reason], ['stop', word]);
  assert.equal(stopped.message.content, content.slice(0, content.indexOf(word)));
  const kept = await chat({ stop: [word], include_stop_str_in_output: true });
  assert.equal(kept.message.content, content.slice(0, content.indexOf(word) + word.length));
  const forced = { logit_bias: { 65: 100 }, stop_token_ids: [65] };
  assert.deepEqual((({ stop_reason, message }) => [stop_reason, message.content])(await chat(forced)), [65, '']);
  const [text] = (await ask('/detokenize', { model, tokens: [65] })).prompt;
  assert.equal((await chat({ ...forced, include_stop_str_in_output: true })).message.content, text);
  assert.equal((await chat({})).stop_reason, undefined);
  const reasons = [];
  for await (const chunk of await openai.chat.completions.create({ ...question, stop: [word], stream: true }))
    reasons.push(chunk.choices[0].stop_reason);
  assert.equal(reasons.pop(), word);
  assert.ok(reasons.every((r) => r === undefined));
  const both = (await ask('/v1/chat/completions', { ...question, stop: [word], n: 2 })).choices;
  assert.deepEqual(both.map((c) => c.stop_reason), [word, word]);
});

test('ids of tokens', async () => {
  const whole = await chat({ return_token_ids: true });
  const text = (await ask('/detokenize', { model, tokens: whole.token_ids })).prompt;
  assert.equal(text, whole.message.content);
  const ids = [];
  for await (const chunk of await openai.chat.completions.create({ ...question, return_token_ids: true, stream: true }))
    ids.push(...chunk.choices[0].token_ids ?? []);
  assert.deepEqual(ids, whole.token_ids);
  const named = await chat({ logprobs: true, return_tokens_as_token_ids: true });
  assert.deepEqual(named.logprobs.content.map((t) => t.token), whole.token_ids.map((id) => `token_id:${id}`));
});

test('tokens of texts and chats', async () => {
  const { prompt_tokens } = (await ask('/v1/chat/completions', question)).usage;
  const counted = await ask('/tokenize', { model, messages: question.messages });
  assert.deepEqual([counted.count, counted.tokens.length], [prompt_tokens, prompt_tokens]);
  assert.ok(counted.max_model_len > counted.count);
  const text = 'Hello, wörld';
  const plain = await ask('/tokenize', { model, prompt: text, add_special_tokens: false });
  assert.equal((await ask('/detokenize', { model, tokens: plain.tokens })).prompt, text);
  const usage = (await ask('/v1/completions', { model, prompt: text, max_tokens: 1 })).usage;
  assert.equal((await ask('/tokenize', { model, prompt: text })).count, usage.prompt_tokens);
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
  assert.ok((await ask('/tokenize', { model, messages: question.messages, tools })).count >= counted.count);
  const body = { model, input: 'What is the capital of France?' };
  const { usage: of } = await openai.responses.create({ ...body, max_output_tokens: 1 });
  assert.deepEqual(await ask('/v1/responses/input_tokens', body), { object: 'response.input_tokens', input_tokens: of.input_tokens });
  const first = await openai.responses.create({ ...body, max_output_tokens: 2 });
  const next = { model, input: 'And of Spain?', previous_response_id: first.id };
  const second = await openai.responses.create({ ...next, max_output_tokens: 1 });
  assert.equal((await ask('/v1/responses/input_tokens', next)).input_tokens, second.usage.input_tokens);
  await refused('/detokenize', { model, tokens: [2 ** 30] }, 'tokens', 'invalid_value');
  await refused('/tokenize', { model }, 'prompt', 'missing_required_parameter');
});

test('log probabilities of a prompt', localOnly('log probabilities of prompts come with whole answers, which are streamed from there'), async () => {
  const r = await ask('/v1/completions', { model, prompt: 'one two three', max_tokens: 1, prompt_logprobs: 2 });
  const { tokens } = await ask('/tokenize', { model, prompt: 'one two three' });
  const [{ prompt_logprobs: of }] = r.choices;
  assert.equal(of.length, tokens.length);
  assert.equal(of[0], null);
  for (let i = 1; i < tokens.length; i++) {
    assert.ok(of[i][tokens[i]].logprob <= 0);
    assert.ok(Object.keys(of[i]).length >= 2 && Object.keys(of[i]).length <= 3);
  }
  const whole = await ask('/v1/chat/completions', { ...question, prompt_logprobs: 0 });
  assert.equal(whole.prompt_logprobs.length, whole.usage.prompt_tokens);
  await refused('/v1/chat/completions', { ...question, model: 'auto', prompt_logprobs: 0 }, 'prompt_logprobs', 'invalid_value');
});

test('beam search', localOnly('beams come with whole answers, which are streamed from there'), async () => {
  const greedy = await chat({});
  const { choices } = await openai.chat.completions.create({ ...question, use_beam_search: true, best_of: 4, n: 2 });
  assert.equal(choices.length, 2);
  assert.notEqual(choices[0].message.content, choices[1].message.content);
  assert.equal((await chat({ num_beams: 1 })).message.content, greedy.message.content);
  const again = (await ask('/v1/chat/completions', { ...question, num_beams: 4, n: 2 })).choices;
  assert.deepEqual(again.map((c) => c.message.content), choices.map((c) => c.message.content));
  await refused('/v1/chat/completions', { ...question, temperature: 1, num_beams: 2 }, 'temperature', 'invalid_value');
});

test('tokens that may and may not be chosen', async () => {
  const plain = await chat({ return_token_ids: true });
  const allowed = plain.token_ids.slice(0, 2);
  const only = await chat({ return_token_ids: true, allowed_token_ids: allowed, temperature: 2, seed: 1, logit_bias: { 65: 100 } });
  assert.equal(only.finish_reason, 'length');
  assert.ok(only.token_ids.every((id) => allowed.includes(id)), `${only.token_ids}`);
  const { tokens: [bang, ...rest] } = await ask('/tokenize', { model, prompt: '!', add_special_tokens: false });
  const spaced = await ask('/tokenize', { model, prompt: ' !', add_special_tokens: false });
  if (rest.length > 0 || spaced.tokens.length > 1) {
    await refused('/v1/chat/completions', { ...question, bad_words: ['!'] }, 'bad_words', 'invalid_value');
  } else {
    const without = await chat({ return_token_ids: true, logit_bias: { [bang]: 100 }, bad_words: ['!'] });
    assert.ok(!without.token_ids.includes(bang));
  }
  const long = await refused('/v1/chat/completions', { ...question, bad_words: ['a longer text of many tokens'] }, 'bad_words', 'invalid_value');
  assert.match(long, /Word 0 of 'bad_words' is not one token/);
});

test('prefixes with another salt are not shared', async () => {
  const body = { model, prompt: `${'salt and pepper '.repeat(40)}`, max_tokens: 1 };
  const cached = async (fields) => (await ask('/v1/completions', { ...body, ...fields })).usage.prompt_tokens_details.cached_tokens;
  assert.equal(await cached({ cache_salt: 'a' }), 0);
  assert.ok(await cached({ cache_salt: 'a' }) > 0);
  assert.equal(await cached({ cache_salt: 'b' }), 0);
  assert.equal(await cached({}), 0);
});

test('paths that are not served say what to use', async () => {
  const cases = [['GET', '/v1/chat/completions'], ['DELETE', '/v1/chat/completions/x'], ['DELETE', '/v1/models/demo-small'], ['POST', '/v1/moderations'],
    ['POST', '/v1/audio/speech'], ['POST', '/v1/uploads'], ['POST', '/v1/batches'], ['POST', '/v1/fine_tuning/jobs'], ['GET', '/v1/assistants'],
    ['POST', '/v1/responses/compact'], ['POST', '/v1/complete'], ['POST', '/rerank'], ['POST', '/generate'], ['POST', '/completion']];
  for (const [method, path] of cases) {
    const r = await send(path, method === 'POST' ? {} : undefined, method);
    assert.deepEqual([r.status, r.json.error.code], [404, 'unsupported_endpoint'], `${method} ${path}: ${r.text}`);
    assert.match(r.json.error.message, /is not supported by this version\. \w.*\.$/);
  }
  // Whole interfaces, whatever the method, and below them.
  const roots = ['assistants', 'threads', 'audio', 'images', 'videos', 'realtime', 'batches', 'uploads', 'vector_stores', 'containers', 'skills',
    'fine_tuning', 'fine-tunes', 'evals', 'graders', 'chatkit', 'moderations', 'edits', 'engines', 'organization', 'projects'];
  for (const root of roots) {
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
      for (const path of [`/v1/${root}`, `/v1/${root}/x_1/y`]) {
        const r = await send(path, method === 'GET' || method === 'DELETE' ? undefined : {}, method);
        assert.deepEqual([r.status, r.json.error?.code], [404, 'unsupported_endpoint'], `${method} ${path}: ${r.text}`);
        assert.match(r.json.error.message, /is not supported by this version\. \w.*\.$/);
      }
    }
  }
  await assert.rejects(openai.moderations.create({ input: 'x' }), OpenAI.NotFoundError);
  await assert.rejects(openai.batches.list(), OpenAI.NotFoundError);
});
