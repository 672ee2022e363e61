// SPDX-License-Identifier: Apache-2.0
// Unusual requests of client libraries that concern tools and what goes with them, in each API: what is not honoured is refused, and
// the error names the field.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { user } from './client.mjs';
import { request } from './harness.mjs';
import { startToolServer } from './tool_model.mjs';

const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] };
const tool = (name, more = {}) => ({ type: 'function', function: { name, parameters: schema, ...more } });
const flat = (name, more = {}) => ({ type: 'function', name, parameters: schema, ...more });
const claude = (name, more = {}) => ({ name, input_schema: schema, ...more });
const allowed = (mode, tools) => ({ type: 'allowed_tools', allowed_tools: { mode, tools } });
const part = (type, more) => ({ messages: [{ role: 'user', content: [{ type, ...more }] }] });
const LONG = 'x'.repeat(65);

// [request, 200] or [request, 400, the field that the error names]
const CHAT = [
  [{ tools: [tool('f'), tool('g')], tool_choice: allowed('auto', [{ type: 'function', function: { name: 'g' } }]) }, 200],
  [{ tools: [tool('f')], tool_choice: allowed('auto', [{ type: 'custom', custom: { name: 'f' } }]) }, 400, 'tool_choice.allowed_tools.tools'],
  [{ tools: [tool('f')], tool_choice: allowed('required', [{ type: 'function', function: { name: 'z' } }]) }, 400, 'tool_choice.allowed_tools.tools'],
  [{ tools: [tool('f')], tool_choice: allowed(undefined, [{ type: 'function', function: { name: 'f' } }]) }, 400, 'tool_choice.allowed_tools.mode'],
  [{ tools: [{ type: 'custom', custom: { name: 'x' } }] }, 400, 'tools[0].type'],
  [{ tools: [tool('f')], tool_choice: { type: 'custom', custom: { name: 'f' } } }, 400, 'tool_choice.type'],
  [{ tools: [tool('f')], tool_choice: 'any' }, 400, 'tool_choice'],
  [{ tools: [], tool_choice: 'required' }, 400, 'tool_choice'],
  [{ tools: [], tool_choice: 'auto' }, 200],
  [{ tools: tool('f') }, 400, 'tools'],
  [{ tools: [flat('f')] }, 400, 'tools[0].function'],
  [{ tools: [tool('f'), tool('f')] }, 400, 'tools[1].function.name'],
  [{ tools: [tool(LONG)] }, 400, 'tools[0].function.name'],
  [{ tools: [tool('f', { parameters: [] })] }, 400, 'tools[0].function.parameters'],
  [{ tools: [tool('f', { parameters: { type: 'string' } })] }, 400, 'tools[0].function.parameters'],
  [{ tools: [tool('f', { parameters: {} })], tool_choice: 'required', max_tokens: 60 }, 200],
  [{ tools: [tool('f', { parameters: { properties: { a: { $ref: '#/nope' } } } })], tool_choice: 'required' }, 400, 'tools'],
  [{ tools: [tool('f', { strict: true })] }, 200],
  [{ tools: [tool('f', { strict: 'yes' })] }, 400, 'tools[0].function.strict'],
  [{ tools: [tool('f')], parallel_tool_calls: 'no' }, 400, 'parallel_tool_calls'],
  [{ tools: [tool('f')], logit_bias: { 5: -100 }, n: 2 }, 200],
  [{ tools: [tool('f')], tool_choice: 'required', response_format: { type: 'json_object' } }, 400, 'tool_choice'],
  [{ web_search_options: {} }, 400, 'web_search_options'],
  [{ audio: { voice: 'alloy', format: 'wav' } }, 400, 'audio'],
  [{ modalities: ['text', 'audio'] }, 400, 'modalities'],
  [{ prediction: { type: 'content', content: 'x' } }, 400, 'prediction'],
  [part('image_url', { image_url: { url: 'data:image/png;base64,AA' } }), 400, 'messages[0].content[0].type'],
  [part('input_audio', { input_audio: { data: '', format: 'wav' } }), 400, 'messages[0].content[0].type'],
  [part('file', { file: { file_id: 'x' } }), 404, 'messages[0].content[0].file.file_id'],
  [part('file', { file: { file_data: 'data:application/pdf;base64,JVBERi0=' } }), 400, 'messages[0].content[0].file.file_data'],
  [{ messages: [...user('a'), { role: 'assistant', content: [{ type: 'refusal', refusal: 'no' }] }, ...user('b')] }, 200],
  [{ messages: [...user('a'), { role: 'assistant', tool_calls: [{ id: 'c', type: 'custom', custom: { name: 'x', input: 'y' } }] }] }, 400,
    'messages[1].tool_calls[0].type'],
  [{ store: true }, 200],
];
const RESPONSES = [
  ...['web_search', 'file_search', 'computer_use_preview', 'code_interpreter', 'image_generation', 'mcp', 'custom']
    .map((type) => [{ tools: [{ type, name: 'x' }] }, 400, 'tools[0].type']),
  [{ tools: [flat('f')], tool_choice: { type: 'web_search' } }, 400, 'tool_choice.type'],
  [{ tools: [flat('f'), flat('g')], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] } }, 200],
  [{ tools: [tool('f')] }, 400, 'tools[0].name'],
  [{ tools: [flat('f', { strict: null })], max_tool_calls: 1 }, 200],
  [{ tools: [flat('f', { parameters: { type: 'array' } })] }, 400, 'tools[0].parameters'],
  [{ previous_response_id: 'resp_x', tools: [flat('f')] }, 400, 'previous_response_id'],
  [{ background: true, store: false }, 400, 'background'],
  [{ include: ['nope'] }, 400, 'include[0]'],
  [{ include: ['reasoning.encrypted_content'] }, 200],
  [{ input: [{ type: 'item_reference', id: 'msg_x' }] }, 400, 'input[0].type'],
  [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }, 400, 'input[0].content[0].type'],
  [{ input: [...user('x'), { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: [{ type: 'input_image', image_url: 'x' }] }] }, 400, 'input[2].output[0].type'],
  [{ text: { format: { type: 'grammar' } } }, 400, 'text.format.type'],
];
const MESSAGES = [
  ...['bash_20250124', 'web_search_20250305', 'text_editor_20250728'].map((type) => [{ tools: [{ type, name: 'x' }] }, 400, 'tools[0].type']),
  [{ tools: [claude('f', { input_schema: [] })] }, 400, 'tools[0].input_schema'],
  [{ tools: [claude('f', { input_schema: { type: 'string' } })] }, 400, 'tools[0].input_schema'],
  [{ tools: [claude('f')], tool_choice: 'any' }, 400, 'tool_choice'],
  [{ tools: [claude('f')], tool_choice: { type: 'required' } }, 400, 'tool_choice.type'],
  [{ tool_choice: { type: 'any' } }, 400, 'tool_choice'],
  [{ tools: [claude('f'), claude('f')] }, 400, 'tools[1].name'],
  [{ tools: [claude('f', { strict: true, cache_control: { type: 'ephemeral' } })] }, 200],
  [{ mcp_servers: [{ type: 'url', url: 'https://x', name: 'x' }] }, 400, 'mcp_servers'],
  [part('image', { source: { type: 'base64', media_type: 'image/png', data: 'AA' } }), 400, 'messages[0].content[0].type'],
];
const OLLAMA = [
  [{ messages: [{ role: 'user', content: 'a', images: ['AA'] }] }, 400, 'messages[0].images'],
  [{ tools: [{ type: 'web', function: { name: 'f' } }] }, 400, 'tools[0].type'],
  [{ tools: [tool('f'), tool('f')] }, 400, 'tools[1].function.name'],
  [{ tools: [tool('f', { parameters: { type: 'null' } })] }, 400, 'tools[0].function.parameters'],
  [{ tools: [], format: 'json' }, 200],
];
const APIS = {
  '/v1/chat/completions': [CHAT, { messages: user('hi'), max_tokens: 8 }, (j) => j.error.param],
  '/v1/responses': [RESPONSES, { input: 'hi', max_output_tokens: 16 }, (j) => j.error.param],
  '/v1/messages': [MESSAGES, { messages: user('hi'), max_tokens: 8 }, (j) => j.error.message],
  '/api/chat': [OLLAMA, { messages: user('hi'), stream: false, options: { num_predict: 8 } }, (j) => j.error],
};

describe('unusual requests', { timeout: 300_000 }, () => {
  let server;
  before(async () => { server = await startToolServer(); });
  after(() => server?.stop());

  for (const [path, [cases, common, names]] of Object.entries(APIS)) {
    test(path, async () => {
      for (const [more, status, field] of cases) {
        const r = await request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'demo-large', ...common, ...more }) });
        const what = `${JSON.stringify(more).slice(0, 200)}: ${String(r.body).slice(0, 300)}`;
        assert.equal(r.status, status, what);
        if (field === undefined) continue;
        const named = names(JSON.parse(String(r.body)));
        assert.ok(named === field || (named.includes(`'${field}'`) && !path.includes('completions')), what);
      }
    });
  }
});
