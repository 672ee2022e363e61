// SPDX-License-Identifier: Apache-2.0
// `sluice model render` beside @huggingface/jinja: chats with and without tools, thinking switches and calls over several
// turns, through published templates: those in tests/data/templates and those of the installed @lenml/tokenizer-* packages.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Template } from '@huggingface/jinja';
import { SLUICE } from './harness.mjs';

const here = dirname(fileURLToPath(import.meta.url));

/** What the models' own files say, for templates that stand alone. */
const TOKENS = { 'mistral-nemo-instruct.jinja': { bos_token: '<s>', eos_token: '</s>' } };

/** [name, template, {bos_token, eos_token}] of everything that is there. */
function published() {
  const out = [], data = join(here, '../data/templates'), packages = join(here, 'node_modules/@lenml');
  for (const f of readdirSync(data).filter((f) => f.endsWith('.jinja')))
    out.push([f, readFileSync(join(data, f), 'utf8'), TOKENS[f] ?? {}]);
  for (const p of existsSync(packages) ? readdirSync(packages) : []) {
    const file = join(packages, p, 'models/tokenizer_config.json');
    if (!existsSync(file)) continue;
    const config = JSON.parse(readFileSync(file, 'utf8')), tokens = {};
    for (const k of ['bos_token', 'eos_token'])
      if (config[k]) tokens[k] = config[k].content ?? config[k];
    const t = config.chat_template;
    for (const { name, template } of Array.isArray(t) ? t : t ? [{ name: 'default', template: t }] : [])
      out.push([`${p} ${name}`, template, tokens]);
  }
  return out;
}

const user = (content) => ({ role: 'user', content }), assistant = (content, more = {}) => ({ role: 'assistant', content, ...more });
const system = { role: 'system', content: ' You are "helpful".\nBe brief. ' };
const call = (name, args, id) => ({ id, type: 'function', function: { name, arguments: args } });
const answer = (content, id) => ({ role: 'tool', name: 'get_weather', content, tool_call_id: id });
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather "now" <here> & there — é', parameters: {
    type: 'object', properties: { city: { type: 'string', description: 'Its name' }, days: { type: 'integer', enum: [1, 2, 3] },
      options: { type: 'object', properties: { unit: { type: 'string', default: 'C' } } } }, required: ['city'] } } },
  { type: 'function', function: { name: 'nothing', description: 'Nothing', parameters: { type: 'object', properties: {} } } },
];
const CHATS = {
  'one message': { messages: [user('Hi 안녕 😀 <|im_end|> {{ x }}')] },
  'a system message': { messages: [system, user(' Hi ')] },
  'several turns': { messages: [system, user('a'), assistant(' b '), user('c\n\n')] },
  'no generation prompt': { messages: [user('a'), assistant('b')], add_generation_prompt: false },
  tools: { messages: [system, user('Weather?')], tools },
  'tools without a system message': { messages: [user('Weather?')], tools },
  'a call and its answer': { messages: [user('Weather?'), assistant('', { tool_calls: [call('get_weather', { city: 'Zürich', days: 2, deep: { a: [1, null, true] } }, 'abcdef123')] }),
    answer('{"t": 3}', 'abcdef123'), assistant('It is 3.'), user('Thanks')], tools },
  'two calls': { messages: [user('Weather?'), assistant('', { tool_calls: [call('get_weather', { city: 'A' }, 'aaaaaaaa1'), call('nothing', {}, 'aaaaaaaa2')] }),
    answer('3', 'aaaaaaaa1'), answer('none', 'aaaaaaaa2')], tools },
  'thoughts in the text': { messages: [user('q'), assistant('<think>\nhm\n</think>\n\nanswer'), user('r')] },
  'thoughts beside the text': { messages: [user('q'), assistant('answer', { reasoning_content: 'because' }), user('r')] },
  'thinking off': { messages: [user('q')], chat_template_kwargs: { enable_thinking: false } },
  'thinking on': { messages: [user('q')], chat_template_kwargs: { enable_thinking: true, date_string: '1 Jan 2025' } },
};

let folder;
before(() => { folder = mkdtempSync(join(tmpdir(), 'sluice-templates-')); });
after(() => rmSync(folder, { recursive: true, force: true }));

function render(path, chat, ...more) {
  const r = spawnSync(SLUICE, ['model', 'render', path, ...more], { input: typeof chat === 'string' ? chat : JSON.stringify(chat), timeout: 20000 });
  return { status: r.status, out: r.stdout.toString(), err: r.stderr.toString() };
}

/** What the reference gives, or undefined where it refuses the chat. */
function reference(template, tokens, chat) {
  const { chat_template_kwargs = {}, ...rest } = chat;
  try {
    return new Template(template).render({ tools: null, documents: null, add_generation_prompt: true, ...tokens, ...rest, ...chat_template_kwargs });
  } catch { return undefined; }
}

describe('published templates', () => {
  for (const [name, template, tokens] of published())
    test(name, () => {
      const model = mkdtempSync(join(folder, 'model-'));
      writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ ...tokens, chat_template: template }));
      let equal = 0;
      for (const [what, chat] of Object.entries(CHATS)) {
        const want = reference(template, tokens, chat), got = render(model, chat);
        if (want === undefined) {
          assert.equal(got.status, 1, `${what}: the reference refuses it; here: ${got.out}`);
          assert.match(got.err, /^sluice model: .+\n$/);
        } else {
          assert.equal(got.status, 0, `${what}: ${got.err}`);
          assert.equal(got.out, want, what);
          equal++;
        }
      }
      // Some of the packages' templates want tools or documents of a form of their own.
      assert.ok(equal >= 8 || name.startsWith('tokenizer-'), `only ${equal} chats were rendered`);
    });
});

describe('where templates stand', () => {
  const chat = { messages: [user('Hi')] };

  test('in a .jinja file, and the chat in a file', () => {
    const file = join(folder, 'x.jinja'), input = join(folder, 'chat.json');
    writeFileSync(file, '{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}\n');
    writeFileSync(input, JSON.stringify(chat));
    assert.equal(render(file, chat).out, 'Hi>');
    assert.equal(render(file, '', input).out, 'Hi>');
    assert.equal(render(file, '', input, '--no-generation-prompt').out, 'Hi');
    assert.equal(render(file, { ...chat, add_generation_prompt: false }).out, 'Hi');
    writeFileSync(file, '{% for m in messages %}<{{ m.content }}>{% endfor %}');
    assert.equal(render(file, { messages: [user('Hi'), assistant('a <')], continue_final_message: true }).out, '<Hi><a <');
  });

  test('in tokenizer_config.json, one of several', () => {
    const file = join(folder, 'tokenizer_config.json');
    writeFileSync(file, JSON.stringify({ bos_token: { content: '<s>' }, eos_token: '</s>', chat_template: [
      { name: 'default', template: '{{ bos_token }}d{{ eos_token }}' }, { name: 'tool_use', template: '{{ tools[0].function.name }}' }] }));
    assert.equal(render(file, chat).out, '<s>d</s>');
    assert.equal(render(file, { ...chat, tools }).out, 'get_weather');
  });

  test('in a folder, where a file of its own comes first', () => {
    const model = join(folder, 'own');
    mkdirSync(model);
    writeFileSync(join(model, 'chat_template.jinja'), '{{ bos_token }}own');
    assert.equal(render(model, chat).out, 'own');
    writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ bos_token: '<s>', chat_template: 'other' }));
    assert.equal(render(model, chat).out, '<s>own');
  });

  test('nowhere', () => {
    const empty = mkdtempSync(join(folder, 'empty-')), bare = join(folder, 'bare.json'), bad = join(folder, 'bad.jinja');
    assert.match(render(empty, chat).err, /tokenizer_config\.json: No such file/);
    assert.match(render(join(folder, 'none'), chat).err, /none: No such file/);
    writeFileSync(bare, '{}');
    assert.match(render(bare, chat).err, /bare\.json: there is no chat template/);
    writeFileSync(bare, '[');
    assert.match(render(bare, chat).err, /bare\.json: not a JSON object/);
    writeFileSync(bad, 'a\n  {{ x | urlize }}');
    const r = render(bad, chat);
    assert.equal(r.status, 1);
    assert.match(r.err, /^sluice model: template line 2, column 10: the filter "urlize" is not supported\n$/);
    assert.equal(render(bad, chat, '--nope').status, 64);
  });
});
