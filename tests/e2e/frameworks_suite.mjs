// SPDX-License-Identifier: Apache-2.0
// LangChain, OpenAI's Agents SDK and LlamaIndex, whole and streamed: tools there and back, answers of a schema, handoffs and
// embeddings. The model is the demo pair's large one, which calls tools of its own accord.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { LLMAgent } from '@llamaindex/core/agent';
import { FunctionTool } from '@llamaindex/core/tools';
import { OpenAIEmbedding, openai as llama, openaiResponses as llamaResponses } from '@llamaindex/openai';
import { Agent, run, setDefaultModelProvider, setTracingDisabled, tool as agentTool } from '@openai/agents-core';
import { OpenAIChatCompletionsModel, OpenAIProvider, OpenAIResponsesModel } from '@openai/agents-openai';
import OpenAI from 'openai';
import { z } from 'zod';
import { SLUICE, startServer } from './harness.mjs';
import { noted } from './tool_model.mjs';

const Place = z.object({ city: z.enum(['Paris', 'Seoul', 'Lima']), days: z.number().int().min(1).max(7) });
const City = z.object({ city: z.string() });
const PARIS = { city: 'Paris' };
const clear = 'In Paris it is clear.';
const question = 'What is the weather in Paris?';
const folder = mkdtempSync(join(tmpdir(), 'sluice-frameworks-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
setTracingDisabled(true);

describe('frameworks', { timeout: 300_000 }, () => {
  let server, baseURL, apiKey;
  before(async () => {
    const bert = join(folder, 'bert.gguf');
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-bert', '--type', 'f32', bert]);
    server = await startServer({ sets: [`engine.models.bert.path=${bert}`] });
    [baseURL, apiKey] = [`${server.http}/v1`, server.keys.paid];
    setDefaultModelProvider(new OpenAIProvider({ openAIClient: new OpenAI({ baseURL, apiKey }) }));
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  for (const useResponsesApi of [false, true]) {
    const of = (title, body) => test(`LangChain, ${useResponsesApi ? 'responses' : 'chat completions'}: ${title}`, body);
    const model = (more = {}) => new ChatOpenAI({ model: 'demo-large', apiKey, useResponsesApi, maxRetries: 0, maxTokens: 300, temperature: 0,
      configuration: { baseURL, fetch: more.fetch ?? noted().fetch } });
    const weather = langchainTool(async () => 'clear', { name: 'get_weather', description: 'The weather', schema: City });
    /** The whole answer, in one piece or put together from a stream's. */
    const answer = async (runnable, input, stream) => {
      if (!stream) return runnable.invoke(input);
      let all;
      for await (const piece of await runnable.stream(input)) all = all === undefined ? piece : all.concat(piece);
      return all;
    };

    for (const stream of [false, true]) {
      const how = stream ? 'streamed' : 'whole';
      of(`a tool there and back, ${how}`, async () => {
        const messages = [new SystemMessage('Be brief.'), new HumanMessage(question)];
        const called = await answer(model().bindTools([weather], { tool_choice: 'get_weather', parallel_tool_calls: false }), messages, stream);
        assert.equal(called.tool_calls.length, 1, JSON.stringify(called));
        assert.deepEqual(called.tool_calls[0].args, PARIS);
        const result = await weather.invoke({ ...called.tool_calls[0], type: 'tool_call' });
        assert.ok(result instanceof ToolMessage);
        const notes = noted();
        const last = await answer(model({ fetch: notes.fetch }).bindTools([weather]), [...messages, called, result], stream);
        assert.equal(last.text, clear);
        assert.ok(last.usage_metadata.output_tokens > 0);
        const sent = JSON.stringify(notes.bodies[0]);
        assert.ok(sent.includes(called.tool_calls[0].id), sent);
      });

      of(`a call of its own accord, with strict, ${how}`, async () => {
        const r = await answer(model().bindTools([weather], { strict: true }), question, stream);
        assert.deepEqual(r.tool_calls.map((c) => [c.name, c.args]), [['get_weather', PARIS]]);
      });

      for (const method of ['jsonSchema', 'functionCalling']) {
        if (stream && useResponsesApi && method === 'functionCalling') continue; // its parser takes no streamed items, whoever serves them
        of(`withStructuredOutput by ${method}, ${how}`, async () => {
          const form = model().withStructuredOutput(Place, { method, name: 'place', strict: true });
          let r;
          if (stream) for await (const piece of await form.stream(question)) r = piece;
          else r = await form.invoke(question);
          Place.parse(r);
        });
      }
    }
  }

  test('LangChain: embeddings', async () => {
    const embeddings = new OpenAIEmbeddings({ model: 'bert', apiKey, configuration: { baseURL } });
    const two = await embeddings.embedDocuments(['the fox', 'a hen']);
    assert.deepEqual(two.map((v) => v.length), [256, 256]);
    const one = await embeddings.embedQuery('the fox');
    one.forEach((v, i) => assert.ok(Math.abs(v - two[0][i]) < 1e-6));
  });

  for (const [name, Model] of [['chat completions', OpenAIChatCompletionsModel], ['responses', OpenAIResponsesModel]]) {
    for (const stream of [false, true]) {
      test(`Agents SDK, ${name}: a handoff, then a tool, ${stream ? 'streamed' : 'whole'}`, async () => {
        const asked = [];
        const model = new Model(new OpenAI({ baseURL, apiKey, maxRetries: 0 }), 'demo-large');
        const settings = { maxTokens: 300, temperature: 0, parallelToolCalls: false };
        const get = agentTool({ name: 'get_weather', description: 'The weather', parameters: City, strict: true, execute: async (a) => { asked.push(a); return 'clear'; } });
        const meteorologist = new Agent({ name: 'Weather', instructions: 'Use the tool.', model, tools: [get], modelSettings: { ...settings, toolChoice: 'get_weather' } });
        const desk = new Agent({ name: 'Desk', instructions: 'Hand over.', model, handoffs: [meteorologist],
          modelSettings: { ...settings, toolChoice: 'transfer_to_Weather' } });
        const r = await run(desk, question, { stream, maxTurns: 5 });
        const events = [];
        if (stream) {
          for await (const e of r) events.push(e.type === 'run_item_stream_event' ? e.name : e.type);
          await r.completed;
        }
        assert.equal(r.finalOutput, clear);
        assert.equal(r.lastAgent.name, 'Weather');
        assert.deepEqual(asked, [PARIS]);
        if (stream) for (const e of ['handoff_requested', 'handoff_occurred', 'tool_called', 'tool_output', 'message_output_created']) assert.ok(events.includes(e), `${e}: ${events}`);
      });

      test(`Agents SDK, ${name}: an output of a type, ${stream ? 'streamed' : 'whole'}`, async () => {
        const model = new Model(new OpenAI({ baseURL, apiKey, maxRetries: 0, fetch: noted().fetch }), 'demo-large');
        const r = await run(new Agent({ name: 'Place', instructions: 'A place.', model, outputType: Place, modelSettings: { maxTokens: 300 } }), question, { stream });
        if (stream) await r.completed;
        Place.parse(r.finalOutput);
      });
    }
  }

  const llamaTool = (asked) => FunctionTool.from((a) => { asked.push(a); return 'clear'; }, { name: 'get_weather', description: 'The weather', parameters: City });
  const llamaOptions = (fetch) => ({ model: 'demo-large', apiKey, baseURL, maxRetries: 0, maxTokens: 300, maxOutputTokens: 300, temperature: 0,
    additionalSessionOptions: { fetch } });
  for (const stream of [false, true]) {
    test(`LlamaIndex, chat completions: an agent with a tool, ${stream ? 'streamed' : 'whole'}`, async () => {
      const asked = [], sent = noted();
      const agent = new LLMAgent({ llm: llama(llamaOptions(sent.fetch)), tools: [llamaTool(asked)] });
      let text = '';
      if (stream) for await (const piece of await agent.chat({ message: question, stream })) text += piece.delta;
      else text = (await agent.chat({ message: question })).message.content;
      assert.equal(text, clear);
      assert.deepEqual(asked, [PARIS]);
      assert.equal(sent.bodies.length, 2);
    });

    // Its agent takes every response of this API for a call, whoever serves it: the loop is the test's.
    test(`LlamaIndex, responses: a tool there and back, ${stream ? 'streamed' : 'whole'}`, async () => {
      const asked = [], sent = noted();
      const llm = llamaResponses(llamaOptions(sent.fetch)), tools = [llamaTool(asked)];
      const send = async (messages) => {
        const r = await llm.chat({ messages, tools, stream });
        if (!stream) return r.message;
        const all = { role: 'assistant', options: {} }, pieces = [];
        for await (const piece of r) {
          pieces.push(piece.delta);
          if (piece.options?.toolCall) all.options.toolCall = piece.options.toolCall;
        }
        while (pieces.length > 1 && pieces.at(-1) === pieces.at(-2)) pieces.pop(); // it gives its last piece again with each event that has none
        return { ...all, content: pieces.join('') };
      };
      const messages = [{ role: 'user', content: question }];
      const called = await send(messages), [call] = called.options.toolCall;
      const input = typeof call.input === 'string' ? JSON.parse(call.input) : call.input;
      const result = await tools[0].call(input);
      assert.deepEqual(asked, [PARIS]);
      const last = await send([...messages, { ...called, options: { toolCall: [{ ...call, input: JSON.stringify(input) }] } },
        { role: 'user', content: result, options: { toolResult: { id: call.id, result, isError: false } } }]);
      assert.equal(last.content, clear);
      assert.ok(sent.bodies[1].input.some((i) => i.type === 'function_call_output' && i.call_id === call.id));
    });
  }

  test('LlamaIndex: embeddings', async () => {
    const embedding = new OpenAIEmbedding({ model: 'bert', apiKey, baseURL });
    assert.equal((await embedding.getTextEmbedding('the fox')).length, 256);
    assert.deepEqual((await embedding.getTextEmbeddings(['the fox', 'a hen'])).map((v) => v.length), [256, 256]);
  });
});
