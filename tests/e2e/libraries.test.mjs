// SPDX-License-Identifier: Apache-2.0
// Tools, forms and embeddings through the helpers of the openai package and of the Vercel AI SDK, whole and streamed; the
// frameworks built on them are in frameworks.test.mjs. The model is the demo pair's large one, which calls tools of its own accord.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { user } from './client.mjs';
import { SLUICE, startServer } from './harness.mjs';
import { noted } from './tool_model.mjs';

const Place = z.object({ city: z.enum(['Paris', 'Seoul', 'Lima']), days: z.number().int().min(1).max(7) });
const City = z.object({ city: z.string() });
const Person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });
const person = 'Anna is 31 years old and lives in Oslo. Answer as JSON with name, age, city.';
const anna = { name: 'Anna', age: 31, city: 'Oslo' };
const answer = 'In Paris it is clear.';
const question = 'What is the weather in Paris?';
const folder = mkdtempSync(join(tmpdir(), 'sluice-libraries-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

describe('libraries', { timeout: 300_000 }, () => {
  let server;
  before(async () => {
    const bert = join(folder, 'bert.gguf');
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-bert', '--type', 'f32', bert]);
    server = await startServer({ sets: [`engine.models.bert.path=${bert}`] });
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  const library = (more = {}) => new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0, fetch: noted().fetch, ...more });
  const ask = { model: 'demo-large', messages: user(question), max_tokens: 300, seed: 11, temperature: 0 };
  const weather = (asked) => zodFunction({ name: 'get_weather', description: 'The weather', parameters: City,
    function: (a) => { asked.push(a); return { sky: 'clear' }; } });

  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'whole';

    test(`openai: runTools, forced, ${how}`, async () => {
      const asked = [];
      const runner = library().chat.completions.runTools({ ...ask, stream, tools: [weather(asked)], tool_choice: { type: 'function', function: { name: 'get_weather' } } });
      await runner.done();
      assert.deepEqual(asked, [{ city: 'Paris' }]);
    });

    test(`openai: runTools, of its own accord, ${how}`, async () => {
      const asked = [], sent = noted();
      const runner = library({ fetch: sent.fetch }).chat.completions.runTools({ ...ask, stream, tools: [weather(asked)] });
      assert.equal(await runner.finalContent(), answer);
      assert.deepEqual(asked, [{ city: 'Paris' }]);
      assert.deepEqual(sent.bodies[1].messages.map((m) => m.role), ['user', 'assistant', 'tool']);
      assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, 'stop');
      assert.ok((await runner.totalUsage()).prompt_tokens > 0 || stream); // a stream has it only where it is asked for
    });

    test(`openai: chat.completions parsed by a schema, ${how}`, async () => {
      const body = { ...ask, messages: user(person), response_format: zodResponseFormat(Person, 'person') };
      const r = stream ? await library().chat.completions.stream(body).finalChatCompletion() : await library().chat.completions.parse(body);
      assert.deepEqual(r.choices[0].message.parsed, anna);
      assert.equal(r.choices[0].message.refusal ?? null, null);
      const called = { ...ask, tools: [weather([])], tool_choice: 'required', parallel_tool_calls: false };
      const t = stream ? await library().chat.completions.stream(called).finalChatCompletion() : await library().chat.completions.parse(called);
      assert.deepEqual(t.choices[0].message.tool_calls[0].function.parsed_arguments, { city: 'Paris' });
    });

    test(`openai: responses with tools, there and back, ${how}`, async () => {
      const openai = library(), asked = [];
      const tools = [zodResponsesFunction({ name: 'get_weather', parameters: City, function: (a) => asked.push(a) })];
      const body = { model: 'demo-large', tools, temperature: 0, max_output_tokens: 300, parallel_tool_calls: false };
      const send = (more) => (stream ? openai.responses.stream({ ...body, ...more }).finalResponse() : openai.responses.parse({ ...body, ...more }));
      const input = [{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: question }];
      const first = await send({ input, tool_choice: { type: 'function', name: 'get_weather' } });
      const [call] = first.output;
      assert.deepEqual([first.status, call.type, call.status, call.name], ['completed', 'function_call', 'completed', 'get_weather']);
      assert.deepEqual(JSON.parse(call.arguments), { city: 'Paris' }); // this version's parsed_arguments are the item, or null in a stream
      // As the library gave it, with whatever else it has put there.
      input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: [{ type: 'input_text', text: 'clear' }] });
      const second = await send({ input, tool_choice: 'auto', store: false, include: ['reasoning.encrypted_content'], max_output_tokens: 20 });
      assert.equal(second.output[0].content?.[0].text, answer, JSON.stringify(second.output));
      assert.equal(second.output_text ?? answer, answer); // a stream's has none
      const next = await send({ previous_response_id: first.id, max_output_tokens: 20, tool_choice: 'none',
        input: [{ type: 'function_call_output', call_id: call.call_id, output: 'clear' }] });
      assert.equal(next.previous_response_id, first.id);
    });

    test(`openai: responses parsed by a schema, ${how}`, async () => {
      const body = { model: 'demo-large', input: question, instructions: 'Be brief.', max_output_tokens: 300, text: { format: zodTextFormat(Place, 'place') } };
      const r = stream ? await library().responses.stream(body).finalResponse() : await library().responses.parse(body);
      Place.parse(r.output_parsed);
      assert.equal(r.text.format.name, 'place');
    });

    test(`Vercel AI SDK: tools in several steps, ${how}`, async () => {
      const asked = [];
      const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid, includeUsage: true });
      const options = { model: provider('demo-large'), prompt: question, maxRetries: 0, maxOutputTokens: 300, temperature: 0, stopWhen: stepCountIs(3),
        tools: { get_weather: tool({ description: 'The weather', inputSchema: City, execute: async (a) => { asked.push(a); return { sky: 'clear' }; } }) },
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'get_weather' } : 'auto' }) };
      const r = stream ? streamText(options) : await generateText(options);
      assert.equal(await r.text, answer);
      assert.deepEqual(asked, [{ city: 'Paris' }]);
      const steps = await r.steps;
      assert.deepEqual(steps.map((s) => s.finishReason), ['tool-calls', 'stop']);
      assert.deepEqual(steps[0].toolCalls[0].input, asked[0]);
      assert.ok((await r.totalUsage).outputTokens > 0);
    });

    for (const structured of [true, false]) {
      test(`Vercel AI SDK: an object of a schema, ${how}${structured ? '' : ', as JSON alone'}`, async () => {
        const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid, supportsStructuredOutputs: structured,
          ...(structured ? {} : { transformRequestBody: (b) => ({ ...b, response_format: undefined }) }) });
        const options = { model: provider('demo-large'), prompt: person, schema: Person, maxRetries: 0, maxOutputTokens: 300, temperature: 0 };
        if (!stream) {
          assert.deepEqual((await generateObject(options)).object, anna);
          return;
        }
        const r = streamObject(options), partial = [];
        for await (const p of r.partialObjectStream) partial.push(p);
        assert.deepEqual(partial.at(-1), anna);
        assert.deepEqual(await r.object, anna);
      });
    }
  }

  test('openai: embeddings, by its own default, as numbers, and of tokens', async () => {
    const openai = library(), input = ['the fox', 'a hen'];
    const made = await openai.embeddings.create({ model: 'bert', input });
    assert.ok(made.data.length === 2 && made.data.every((d) => Array.isArray(d.embedding) && d.embedding.length === 256));
    const plain = await openai.embeddings.create({ model: 'bert', input, encoding_format: 'float' });
    plain.data.forEach((d, i) => d.embedding.forEach((v, k) => assert.ok(Math.abs(v - made.data[i].embedding[k]) < 1e-6)));
    const tokens = await openai.embeddings.create({ model: 'bert', input: [[5, 6, 7], [8, 9]] });
    assert.equal(tokens.data.length, 2);
  });

  test('Vercel AI SDK: embedMany', async () => {
    const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid });
    const { embeddings, usage } = await embedMany({ model: provider.textEmbeddingModel('bert'), values: ['the fox', 'a hen', 'x'], maxRetries: 0 });
    assert.deepEqual(embeddings.map((e) => e.length), [256, 256, 256]);
    assert.ok(usage.tokens > 0);
  });
});
