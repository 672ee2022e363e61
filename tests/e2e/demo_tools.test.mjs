// SPDX-License-Identifier: Apache-2.0
// The demo pair calls tools of its own accord: it was trained to. A real server, the openai package, both models by name;
// nothing holds their answers to a text. The calculator is the page's own.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { user } from './client.mjs';
import { startServer } from './harness.mjs';
import { load } from './page_modules.mjs';

const { CALCULATOR, calculate } = await load('calculator.js');
const { Run } = await load('run.js');

const WEATHER = { type: 'function', function: { name: 'get_weather', description: 'The current weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false } } };
const SKIES = { Toronto: '{"sky": "foggy", "degrees": 18}', Osaka: 'snowy, 2 degrees' };

describe('tools of the demo pair', { timeout: 300_000 }, () => {
  let server, openai;
  before(async () => {
    server = await startServer();
    openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  for (const model of ['demo-large', 'demo-small']) {
    const ask = (messages, more = {}) => openai.chat.completions.create({ model, temperature: 0, messages, ...more });
    /** [name, arguments] of the only call of an answer. */
    const callOf = ({ choices: [{ finish_reason: reason, message }] }) => {
      assert.deepEqual([reason, message.tool_calls?.length, message.content], ['tool_calls', 1, null], JSON.stringify(message));
      const { name, arguments: args } = message.tool_calls[0].function;
      return [name, JSON.parse(args)];
    };
    /** The tools as runTools takes them; what they were asked goes to `asked`. */
    const runnable = (asked) => [
      { type: 'function', function: { ...WEATHER.function, parse: JSON.parse, function: ({ city }) => { asked.push(city); return SKIES[city]; } } },
      { type: 'function', function: { ...CALCULATOR.function, parse: JSON.parse, function: ({ expression }) => { asked.push(expression); return String(calculate(expression)); } } }];

    test(`${model} chooses the tool that a question needs, in either order of the tools`, async () => {
      for (const tools of [[WEATHER, CALCULATOR], [CALCULATOR, WEATHER], [WEATHER]])
        assert.deepEqual(callOf(await ask(user('What is the weather in Toronto?'), { tools, tool_choice: 'auto' })), ['get_weather', { city: 'Toronto' }]);
      for (const tools of [[WEATHER, CALCULATOR], [CALCULATOR, WEATHER], [CALCULATOR]])
        assert.deepEqual(callOf(await ask(user('What is 34 times 24?'), { tools })), ['calculate', { expression: '34 * 24' }]);
    });

    test(`${model} answers with the result`, async () => {
      const messages = user('What is the weather in Toronto?'), tools = [WEATHER, CALCULATOR];
      const { message } = (await ask(messages, { tools })).choices[0];
      messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: SKIES.Toronto });
      const whole = (await ask(messages, { tools })).choices[0];
      assert.deepEqual([whole.message.content, whole.finish_reason], ['In Toronto it is foggy, 18 degrees.', 'stop']);
      let text = '';
      for await (const chunk of await ask(messages, { tools, stream: true })) text += chunk.choices[0]?.delta.content ?? '';
      assert.equal(text, whole.message.content);
    });

    for (const stream of [false, true]) {
      test(`${model}: runTools, ${stream ? 'streamed' : 'whole'}`, async () => {
        for (const [question, called, answer] of [['What is the weather in Osaka?', 'Osaka', 'In Osaka it is snowy, 2 degrees.'],
          ['Calculate 28 + 48.', '28 + 48', '76 is the result.']]) {
          const asked = [];
          const runner = openai.chat.completions.runTools({ model, temperature: 0, stream, messages: user(question), tools: runnable(asked) });
          assert.equal(await runner.finalContent(), answer);
          assert.deepEqual(asked, [called]);
        }
      });
    }

    test(`${model} calls nothing for what it knows, or without the tool`, async () => {
      const tools = [WEATHER, CALCULATOR];
      for (const [question, answer, more] of [['What is the capital of France?', 'The capital of France is Paris.', { tools }],
        ['What colour is the sky?', 'The sky is blue.', { tools }], ['What is the weather in Toronto?', 'I do not know the weather in Toronto.', {}]]) {
        const { message, finish_reason: reason } = (await ask(user(question), more)).choices[0];
        assert.deepEqual([message.content, message.tool_calls, reason], [answer, undefined, 'stop']);
      }
    });

    test(`${model}: a forced call has the question's arguments`, async () => {
      for (const strict of [false, true]) {
        const tools = [{ ...WEATHER, function: { ...WEATHER.function, strict } }, CALCULATOR];
        const named = await ask(user('How cold is it in Osaka?'), { tools, tool_choice: { type: 'function', function: { name: 'get_weather' } } });
        assert.equal(JSON.parse(named.choices[0].message.tool_calls[0].function.arguments).city, 'Osaka');
        assert.deepEqual(callOf(await ask(user('What is 34 times 24?'), { tools, tool_choice: 'required', parallel_tool_calls: false })), ['calculate', { expression: '34 * 24' }]);
      }
    });

    test(`${model}: JSON of a schema is right`, async () => {
      const Person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });
      const body = { messages: user('Anna is 31 years old and lives in Osaka. Answer as JSON with name, age, city.'), response_format: zodResponseFormat(Person, 'person') };
      const right = { name: 'Anna', age: 31, city: 'Osaka' };
      assert.deepEqual(JSON.parse((await ask(body.messages, body)).choices[0].message.content), right);
      const done = await openai.chat.completions.stream({ model, temperature: 0, ...body }).finalChatCompletion();
      assert.deepEqual(done.choices[0].message.parsed, right);
    });

    test(`${model}: the page's calculator`, async () => {
      const run = new Run({ key: server.keys.paid, model: async () => model, messages: user('What is 34 times 24?'), tools: [CALCULATOR],
        params: { temperature: 0 }, onChange() {}, fetchFn: (path, init) => fetch(new URL(path, server.http), init) });
      await run.start();
      assert.deepEqual([run.end, run.calls, run.text], ['stop', 'calculate {"expression": "34 * 24"} → 816', '816 is the result.']);
    });
  }
});
