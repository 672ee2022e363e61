// SPDX-License-Identifier: Apache-2.0
// Tools, forms and embeddings through the helpers of the openai package and of the Vercel AI SDK, whole and streamed; the
// frameworks built on them are in frameworks.test.mjs. A forced call is the model's own, under its grammar; where the choice
// is the model's, its text is given (tool_model.mjs).
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
import { SLUICE } from './harness.mjs';
import { callText, scripted, startToolServer } from './tool_model.mjs';

const Place = z.object({ city: z.enum(['Paris', 'Seoul', 'Lima']), days: z.number().int().min(1).max(7) });
const PARIS = '{"city": "Paris", "days": 3}';
const question = 'What is the weather in Paris?';
const folder = mkdtempSync(join(tmpdir(), 'sluice-libraries-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

describe('libraries', { timeout: 300_000 }, () => {
  let server;
  before(async () => {
    const bert = join(folder, 'bert.gguf');
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-bert', '--type', 'f32', bert]);
    server = await startToolServer({ sets: [`engine.models.bert.path=${bert}`] });
  });
  after(() => server?.stop());

  const library = (more = {}) => new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0, fetch: scripted().fetch, ...more });
  const ask = { model: 'demo-large', messages: user(question), max_tokens: 300, seed: 11 };
  const weather = (asked) => zodFunction({ name: 'get_weather', description: 'The weather', parameters: Place,
    function: (a) => { asked.push(a); return { sky: 'clear' }; } });

  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'whole';

    test(`openai: runTools, forced, ${how}`, async () => {
      const asked = [];
      const runner = library().chat.completions.runTools({ ...ask, stream, tools: [weather(asked)], tool_choice: { type: 'function', function: { name: 'get_weather' } } });
      await runner.done();
      assert.equal(asked.length, 1);
      Place.parse(asked[0]);
    });

    test(`openai: runTools, of its own accord, ${how}`, async () => {
      const asked = [], script = scripted(callText('get_weather', PARIS), 'It is clear.');
      const runner = library({ fetch: script.fetch }).chat.completions.runTools({ ...ask, stream, tools: [weather(asked)] });
      assert.equal(await runner.finalContent(), 'It is clear.');
      assert.deepEqual(asked, [{ city: 'Paris', days: 3 }]);
      assert.deepEqual(script.bodies[1].messages.map((m) => m.role), ['user', 'assistant', 'tool']);
      assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, 'stop');
      assert.ok((await runner.totalUsage()).prompt_tokens > 0 || stream); // a stream has it only where it is asked for
    });

    test(`openai: chat.completions parsed by a schema, ${how}`, async () => {
      const body = { ...ask, response_format: zodResponseFormat(Place, 'place') };
      const r = stream ? await library().chat.completions.stream(body).finalChatCompletion() : await library().chat.completions.parse(body);
      Place.parse(r.choices[0].message.parsed);
      assert.equal(r.choices[0].message.refusal ?? null, null);
      const called = { ...ask, tools: [weather([])], tool_choice: 'required', parallel_tool_calls: false };
      const t = stream ? await library().chat.completions.stream(called).finalChatCompletion() : await library().chat.completions.parse(called);
      Place.parse(t.choices[0].message.tool_calls[0].function.parsed_arguments);
    });

    test(`openai: responses with tools, there and back, ${how}`, async () => {
      const openai = library(), asked = [];
      const tools = [zodResponsesFunction({ name: 'get_weather', parameters: Place, function: (a) => asked.push(a) })];
      const body = { model: 'demo-large', tools, max_output_tokens: 300, parallel_tool_calls: false };
      const send = (more) => (stream ? openai.responses.stream({ ...body, ...more }).finalResponse() : openai.responses.parse({ ...body, ...more }));
      const input = [{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: question }];
      const first = await send({ input, tool_choice: { type: 'function', name: 'get_weather' } });
      const [call] = first.output;
      assert.deepEqual([first.status, call.type, call.status, call.name], ['completed', 'function_call', 'completed', 'get_weather']);
      Place.parse(JSON.parse(call.arguments)); // this version's parsed_arguments are the item, or null in a stream
      // As the library gave it, with whatever else it has put there.
      input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: [{ type: 'input_text', text: 'clear' }] });
      const second = await send({ input, tool_choice: 'none', store: false, include: ['reasoning.encrypted_content'], max_output_tokens: 20 });
      assert.equal(second.output[0].type, 'message');
      assert.equal(second.output_text ?? second.output[0].content[0].text, second.output[0].content[0].text); // a stream's has none
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
      const asked = [], script = scripted(undefined, 'It is clear.');
      const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid, includeUsage: true, fetch: script.fetch });
      const options = { model: provider('demo-large'), prompt: question, maxRetries: 0, maxOutputTokens: 300, seed: 3, stopWhen: stepCountIs(3),
        tools: { get_weather: tool({ description: 'The weather', inputSchema: Place, execute: async (a) => { asked.push(a); return { sky: 'clear' }; } }) },
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'get_weather' } : 'auto' }) };
      const r = stream ? streamText(options) : await generateText(options);
      assert.equal(await r.text, 'It is clear.');
      Place.parse(asked[0]);
      const steps = await r.steps;
      assert.deepEqual(steps.map((s) => s.finishReason), ['tool-calls', 'stop']);
      assert.deepEqual(steps[0].toolCalls[0].input, asked[0]);
      assert.ok((await r.totalUsage).outputTokens > 0);
    });

    for (const structured of [true, false]) {
      test(`Vercel AI SDK: an object of a schema, ${how}${structured ? '' : ', as JSON alone'}`, async () => {
        const script = scripted(...(structured ? [] : [PARIS]));
        const provider = createOpenAICompatible({ name: 'sluice', baseURL: `${server.http}/v1`, apiKey: server.keys.paid, supportsStructuredOutputs: structured,
          ...(structured ? {} : { transformRequestBody: (b) => ({ ...b, response_format: undefined }) }), fetch: script.fetch });
        const options = { model: provider('demo-large'), prompt: question, schema: Place, maxRetries: 0, maxOutputTokens: 300 };
        if (!stream) {
          Place.parse((await generateObject(options)).object);
          return;
        }
        const r = streamObject(options), partial = [];
        for await (const p of r.partialObjectStream) partial.push(p);
        assert.deepEqual(partial.at(-1), await r.object);
        Place.parse(await r.object);
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
