// SPDX-License-Identifier: Apache-2.0
// Tools and reasoning: the demonstration model with templates that write them, through the openai package and the Vercel AI
// SDK. Its own words are held to a text by a regular expression, so that each case has the call it needs.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { user } from './client.mjs';
import { request } from './harness.mjs';
import { MARKER, callText as call, quoted, startToolServer } from './tool_model.mjs';

const WEATHER = { type: 'function', function: { name: 'get_weather', description: 'The weather', parameters: { type: 'object', properties: {
  city: { type: 'string', maxLength: 10 }, days: { type: 'integer', minimum: 1, maximum: 7 } }, required: ['city'], additionalProperties: false } } };
const NOTE = { type: 'function', function: { name: 'note', parameters: { type: 'object', properties: { text: { type: 'string', maxLength: 8 } }, required: ['text'], additionalProperties: false } } };
const tools = [WEATHER, NOTE];

describe('strict tools, called at will', { timeout: 300_000 }, () => {
  let server, openai;
  before(async () => {
    server = await startToolServer({ marked: true });
    openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(() => server?.stop());

  const set = (strict) => [{ type: 'function', function: { name: 'set', strict, parameters: { type: 'object', properties: { city: { enum: ['Paris', 'Lima'] } },
    required: ['city'], additionalProperties: false } } }];
  const ask = { model: 'demo-large', messages: user('Paris?'), max_tokens: 100, seed: 5 };

  test('once a call has begun, its name and arguments are held', async () => {
    for (const temperature of [0, 1.5]) {
      const body = { ...ask, temperature, logit_bias: { [MARKER]: 100 } };
      const held = (await openai.chat.completions.create({ ...body, tools: set(true), parallel_tool_calls: false })).choices[0];
      assert.equal(held.finish_reason, 'tool_calls', JSON.stringify(held));
      assert.equal(held.message.tool_calls[0].function.name, 'set');
      assert.match(JSON.parse(held.message.tool_calls[0].function.arguments).city, /^(Paris|Lima)$/);
      const free = (await openai.chat.completions.create({ ...body, tools: set(false) })).choices[0];
      assert.equal(free.message.tool_calls, undefined, 'without strict, the model writes what it writes');
    }
  });

  test('an answer without a call is the same as without strict', async () => {
    const [held, free] = await Promise.all([true, false].map((strict) => openai.chat.completions.create({ ...ask, temperature: 1, tools: set(strict) })));
    assert.equal(held.choices[0].message.content, free.choices[0].message.content);
    assert.equal(held.choices[0].finish_reason, free.choices[0].finish_reason);
  });
});

describe('tools and reasoning', { timeout: 300_000 }, () => {
  let server, openai;
  before(async () => {
    server = await startToolServer();
    openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(() => server?.stop());

  const ask = { model: 'demo-large', messages: user('What is the weather in Paris?'), max_tokens: 300, seed: 11 };
  const says = (text) => ({ regex: quoted(text) });

  test('a call, whole', async () => {
    const r = await openai.chat.completions.create({ ...ask, tools, ...says(call('get_weather', '{"city": "Paris", "days": 3}')) });
    const { message, finish_reason: reason } = r.choices[0];
    assert.equal(reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    assert.equal(message.tool_calls[0].type, 'function');
    assert.match(message.tool_calls[0].id, /^call_[0-9a-f]{16}$/);
    assert.equal(message.tool_calls[0].function.name, 'get_weather');
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Paris', days: 3 });
  });

  test('calls, streamed: the name first, arguments as they come', async () => {
    const text = `I look.\n${call('get_weather', '{"city": "Paris"}')}\n${call('note', '{"text": "a \\"b\\""}')}`;
    const calls = [], names = [];
    let content = '', pieces = 0, reason = null;
    for await (const chunk of await openai.chat.completions.create({ ...ask, tools, stream: true, ...says(text) })) {
      const c = chunk.choices[0];
      content += c.delta.content ?? '';
      reason = c.finish_reason ?? reason;
      for (const t of c.delta.tool_calls ?? []) {
        if (t.id) { names.push(t.function.name); calls[t.index] = ''; assert.equal(t.type, 'function'); }
        if (t.function.arguments) pieces++;
        calls[t.index] += t.function.arguments ?? '';
      }
    }
    assert.equal(content.trim(), 'I look.');
    assert.deepEqual(names, ['get_weather', 'note']);
    assert.deepEqual(calls.map((c) => JSON.parse(c)), [{ city: 'Paris' }, { text: 'a "b"' }]);
    assert.ok(pieces > 2, `${pieces} pieces`);
    assert.equal(reason, 'tool_calls');
  });

  test('a required call is of its schema; a named one, too', async () => {
    for (const [choice, names] of [['required', ['get_weather', 'note']], [{ type: 'function', function: { name: 'note' } }, ['note']]]) {
      for (const temperature of [0, 1.5]) {
        const r = await openai.chat.completions.create({ ...ask, tools, tool_choice: choice, parallel_tool_calls: false, temperature, seed: 5 });
        const c = r.choices[0];
        assert.equal(c.finish_reason, 'tool_calls', JSON.stringify(r));
        assert.equal(c.message.tool_calls.length, 1);
        const { name, arguments: args } = c.message.tool_calls[0].function;
        assert.ok(names.includes(name), name);
        const o = JSON.parse(args);
        if (name === 'note') assert.deepEqual(Object.keys(o), ['text']);
        else assert.ok(typeof o.city === 'string', args);
      }
    }
  });

  test('without tools, or with an unknown one, the same text is content', async () => {
    const text = call('other', '{"a": 1}');
    for (const more of [{}, { tools }, { tools, tool_choice: 'none' }]) {
      const r = await openai.chat.completions.create({ ...ask, ...more, ...says(text) });
      assert.equal(r.choices[0].message.content, text);
      assert.equal(r.choices[0].finish_reason, 'stop');
    }
  });

  test('reasoning is apart, whole and streamed', async () => {
    const text = '<think>\nhm, Paris\n</think>\n\nIt is Paris.';
    const r = await openai.chat.completions.create({ ...ask, ...says('It is Paris.'), chat_template_kwargs: { enable_thinking: true }, thinking_budget: 8 });
    assert.ok(r.choices[0].message.reasoning_content.length > 0, JSON.stringify(r));
    assert.equal(r.choices[0].message.content, 'It is Paris.');
    assert.ok(r.usage.completion_tokens_details.reasoning_tokens >= 8);
    let content = '', reasoning = '';
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true, ...says('It is Paris.'), chat_template_kwargs: { enable_thinking: true }, thinking_budget: 8 })) {
      content += chunk.choices[0]?.delta.content ?? '';
      reasoning += chunk.choices[0]?.delta.reasoning_content ?? '';
    }
    assert.equal(content, r.choices[0].message.content);
    assert.equal(reasoning, r.choices[0].message.reasoning_content);
    assert.ok(text.length > 0);
  });

  test('responses: items and events of calls', async () => {
    const body = { model: 'demo-large', input: 'What is the weather in Paris?', max_output_tokens: 300,
      tools: tools.map((t) => ({ type: 'function', ...t.function })), tool_choice: 'required', parallel_tool_calls: false };
    const r = await openai.responses.create(body);
    assert.equal(r.status, 'completed', JSON.stringify(r));
    assert.equal(r.output.length, 1);
    assert.equal(r.output[0].type, 'function_call');
    JSON.parse(r.output[0].arguments);
    const types = [];
    let args = '', done;
    for await (const e of await openai.responses.create({ ...body, stream: true })) {
      types.push(e.type);
      if (e.type === 'response.function_call_arguments.delta') args += e.delta;
      if (e.type === 'response.output_item.done') done = e.item;
    }
    assert.deepEqual(types.slice(0, 3), ['response.created', 'response.in_progress', 'response.output_item.added']);
    assert.deepEqual(types.slice(-3), ['response.function_call_arguments.done', 'response.output_item.done', 'response.completed']);
    assert.equal(args, done.arguments);
    // The result goes back in.
    const next = await openai.responses.create({ model: 'demo-large', previous_response_id: r.id, max_output_tokens: 20,
      input: [{ type: 'function_call_output', call_id: r.output[0].call_id, output: '{"t": 3}' }], tools: body.tools });
    assert.ok(['completed', 'incomplete'].includes(next.status), JSON.stringify(next));
  });

  test('the result of a call goes back in; runTools', async () => {
    const asked = [];
    const runner = openai.chat.completions.runTools({ ...ask, tool_choice: { type: 'function', function: { name: 'get_weather' } },
      tools: [{ type: 'function', function: { ...WEATHER.function, function: (a) => { asked.push(a); return 'sunny'; }, parse: JSON.parse } }] });
    await runner.done();
    assert.equal(asked.length, 1);
    assert.ok(typeof asked[0].city === 'string');
  });

  test('fields that exclude one another are refused by name', async () => {
    const r = await request(server.http, '/v1/chat/completions', { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...ask, tools, tool_choice: 'required', guided_choice: ['a'] }) });
    assert.equal(r.status, 400);
    assert.equal(JSON.parse(String(r.body)).error.param, 'tool_choice');
  });
});
