// SPDX-License-Identifier: Apache-2.0
// Forced calls and strict tools in every format: the demonstration model with a template of each family, and with the control tokens
// that its format has. What the model would say is noise, so whatever is right comes from the grammar.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { user } from './client.mjs';
import { localOnly, OVER_UPSTREAM, request } from './harness.mjs';
import { startToolServer } from './tool_model.mjs';

const DS = (name) => `<｜${name}｜>`.replaceAll(' ', '▁');
/** Characteristic strings of a family's template, its control tokens, and whether strict tools are held under auto and calls may be parallel. */
const FORMATS = {
  hermes: { says: '<tool_call>', control: [] },
  'hermes, control tokens': { says: '<tool_call>', control: ['<tool_call>', '</tool_call>'] },
  'qwen-coder': { says: '<function= <parameter=', control: ['<tool_call>', '</tool_call>'] },
  llama3: { says: '<|start_header_id|> tools', control: ['<|python_tag|>'], loose: true },
  llama4: { says: '<|header_start|> tools', control: ['<|python_start|>', '<|python_end|>'], loose: true },
  mistral: { says: '[TOOL_CALLS]', control: ['[TOOL_CALLS]'] },
  'mistral-args': { says: '[TOOL_CALLS] [ARGS]', control: ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'] },
  harmony: { says: '<|channel|> <|message|>', control: ['<|start|>', '<|channel|>', '<|message|>', '<|constrain|>', '<|end|>', '<|return|>', '<|call|>'], single: true },
  deepseek: { says: 'tool▁calls▁begin ```json', control: ['tool calls begin', 'tool calls end', 'tool call begin', 'tool call end', 'tool sep'].map(DS) },
  deepseek31: { says: 'tool▁calls▁begin', control: ['tool calls begin', 'tool calls end', 'tool call begin', 'tool call end', 'tool sep'].map(DS) },
  glm: { says: '<arg_key>', control: ['<tool_call>', '</tool_call>', '<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'] },
  gemma: { says: 'tool_code', control: [], loose: true },
  gemma4: { says: '<|tool_call>', control: ['<|tool_call>', '<tool_call|>', '<|"|>'] },
  kimi: { says: '<|tool_calls_section_begin|>', control: ['<|tool_calls_section_begin|>', '<|tool_calls_section_end|>', '<|tool_call_begin|>',
    '<|tool_call_argument_begin|>', '<|tool_call_end|>'] },
  minimax: { says: 'minimax:tool_call', control: ['<minimax:tool_call>', '</minimax:tool_call>'] },
  seed: { says: 'seed:tool_call', control: ['<seed:tool_call>', '</seed:tool_call>'] },
  granite: { says: '<|tool_call|>', control: ['<|tool_call|>'] },
  lfm2: { says: '<|tool_call_start|>', control: ['<|tool_call_start|>', '<|tool_call_end|>'] },
  cohere: { says: '<|START_ACTION|>', control: ['<|START_ACTION|>', '<|END_ACTION|>'] },
  json: { says: 'if tools', control: [], loose: true },
};

const template = (says) => `{#- ${says} #}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}<|im_end|>
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

const TOOLS = [
  { type: 'function', function: { name: 'weather', strict: true, parameters: { type: 'object', properties: { city: { type: 'string', maxLength: 8 },
    unit: { enum: ['c', 'f'] }, days: { type: 'integer', minimum: 1, maximum: 7 }, wet: { type: 'boolean' } },
  required: ['city', 'unit', 'days', 'wet'], additionalProperties: false } } },
  { type: 'function', function: { name: 'note', strict: true, parameters: { type: 'object', properties: { tags: { type: 'array', items: { enum: ['a', 'b'] },
    maxItems: 2 } }, required: ['tags'], additionalProperties: false } } },
];

function check(call) {
  const { name } = call.function, args = JSON.parse(call.function.arguments);
  if (name === 'note') {
    assert.deepEqual(Object.keys(args), ['tags'], call.function.arguments);
    assert.ok(args.tags.length <= 2 && args.tags.every((t) => t === 'a' || t === 'b'), call.function.arguments);
    return;
  }
  assert.equal(name, 'weather');
  assert.deepEqual(Object.keys(args), ['city', 'unit', 'days', 'wet'], call.function.arguments);
  assert.ok(typeof args.city === 'string' && [...args.city].length <= 8, call.function.arguments);
  assert.ok(args.unit === 'c' || args.unit === 'f', call.function.arguments);
  assert.match(call.function.arguments, /"days"\s*:\s*[1-7]\s*[,}]/);
  assert.equal(typeof args.wet, 'boolean');
}

for (const [name, format] of Object.entries(FORMATS)) {
  describe(`calls as ${name}`, { timeout: 300_000 }, () => {
    let server;
    before(async () => { server = await startToolServer({ template: template(format.says), control: format.control }); });
    after(() => server?.stop());

    const ask = async (body) => {
      const r = await request(server.http, '/v1/chat/completions', { method: 'POST',
        headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'demo-large', messages: user('Paris?'), tools: TOOLS, max_tokens: 900, ...body }) });
      assert.equal(r.status, 200, String(r.body));
      return { choice: JSON.parse(String(r.body)).choices[0], ignored: r.headers['x-sluice-ignored-fields'] };
    };

    test('required and named', async () => {
      const choices = ['required', { type: 'function', function: { name: 'weather' } }, { type: 'function', function: { name: 'note' } }];
      const runs = choices.flatMap((tool_choice) => [[0, 1], [1.5, 2]].map(([temperature, seed]) => ({ tool_choice, temperature, seed, parallel_tool_calls: false })));
      for (const [body, { choice }] of await Promise.all(runs.map(async (body) => [body, await ask(body)]))) {
        assert.equal(choice.finish_reason, 'tool_calls', JSON.stringify(choice));
        assert.equal(choice.message.tool_calls.length, 1, JSON.stringify(choice));
        assert.ok(!choice.message.content || name === 'harmony', JSON.stringify(choice));
        if (body.tool_choice !== 'required') assert.equal(choice.message.tool_calls[0].function.name, body.tool_choice.function.name);
        choice.message.tool_calls.forEach(check);
      }
    });

    test('parallel', async () => {
      let most = 0;
      // An answer may not end below min_tokens unless it is complete. Where a literal may complete it, noise chooses whether that comes.
      for (let seed = 1; seed <= (format.single ? 2 : 60) && most < 2; seed++) {
        const { choice } = await ask({ tool_choice: 'required', temperature: 1.5, seed, min_tokens: 300, max_tokens: 400 });
        const calls = choice.message.tool_calls;
        calls.slice(0, choice.finish_reason === 'length' ? -1 : undefined).forEach(check);
        most = Math.max(most, calls.length);
      }
      assert.equal(most > 1, !format.single);
    });

    if (name === 'kimi') test('calls and their ids are numbered over the conversation', localOnly('how its format writes the ids of calls'), async () => {
      const before = { role: 'assistant', content: null, tool_calls: [0, 1].map((i) => ({ id: `call_${i}`, type: 'function', function: { name: 'note', arguments: '{"tags":[]}' } })) };
      const messages = [...user('Paris?'), before, ...[0, 1].map((i) => ({ role: 'tool', tool_call_id: `call_${i}`, content: 'ok' })), ...user('Again?')];
      const ids = async (body) => (await ask({ tool_choice: 'required', temperature: 1.5, max_tokens: 400, ...body })).choice.message.tool_calls.map((c) => [c.id, c.function.name]);
      for (const [body, first] of [[{ seed: 1 }, 0], [{ seed: 2, messages }, 2], [{ seed: 3, messages, parallel_tool_calls: false }, 2]])
        (await ids(body)).forEach(([id, tool], i) => assert.equal(id, `functions.${tool}:${first + i}`));
      // What the grammar writes is what the template writes back: its tokens say so, text that is no marker.
      const forced = await ask({ tool_choice: { type: 'function', function: { name: 'note' } }, messages, seed: 4, logprobs: true, max_tokens: 100 });
      assert.match(forced.choice.logprobs.content.map((t) => t.token).join(''), /functions\.note:2/);
    });

    if (name === 'harmony') test('a budget of thinking holds where calls are held', async () => {
      const post = (path, body) => request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`,
        'content-type': 'application/json' }, body: JSON.stringify({ model: 'demo-large', ...body }) });
      let end = 2048;
      do end--; while (end > 0 && JSON.parse(String((await post('/detokenize', { tokens: [end] })).body)).prompt !== '<|end|>');
      assert.ok(end > 0, 'the vocabulary has the token');
      // This model begins messages, and never ends one of its own accord. Control tokens have ids one after the other.
      const spent = async (seed, body) => {
        const { choice } = await ask({ temperature: 1.5, seed, max_tokens: 200, logit_bias: { [end]: -100, [end - 2]: 100 }, ...body });
        return { choice, said: (choice.message.reasoning_content ?? '') + (choice.message.content ?? '') };
      };
      const all = (body) => Promise.all([1, 2, 3, 4, 5, 6].map((seed) => spent(seed, body)));
      const free = await all({ tool_choice: 'required' });
      assert.ok(free.some(({ choice, said }) => choice.finish_reason === 'length' && said.length > 100), 'without a budget it thinks on');
      for (const { choice, said } of await all({ tool_choice: 'required', thinking_budget: 8 })) {
        assert.equal(choice.finish_reason, 'tool_calls', JSON.stringify(choice));
        assert.ok(said.length < 100, said);
        choice.message.tool_calls.forEach(check);
      }
      for (const { choice } of await all({ thinking_budget: 8 })) {
        assert.ok((choice.message.reasoning_content ?? '').length < 100, JSON.stringify(choice));
        (choice.finish_reason === 'tool_calls' ? choice.message.tool_calls : []).forEach(check);
      }
    });

    test('strict, at will', async () => {
      for (const seed of [1, 2]) {
        const { choice, ignored } = await ask({ temperature: 1.5, seed, max_tokens: 60 });
        assert.equal(ignored, format.loose && !OVER_UPSTREAM ? 'tools.strict' : undefined); // an upstream keeps its format to itself
        if (!format.loose) (choice.finish_reason === 'tool_calls' ? choice.message.tool_calls : []).forEach(check);
      }
    });
  });
}
