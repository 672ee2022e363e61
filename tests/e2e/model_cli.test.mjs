// SPDX-License-Identifier: Apache-2.0
// `sluice model …` on the demonstration pair and `sluice config …`, as a person at a terminal runs them.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, linkSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { after, before, describe, test } from 'node:test';
import { HERMES, withTemplate } from './gguf.mjs';
import { ROOT, SLUICE, startServer } from './harness.mjs';

const SMALL = 'etc/models/demo-small.gguf';
const LARGE = 'etc/models/demo-large.gguf';
const USAGE = 64, CONFIG = 78;
const PARIS = [{ role: 'user', content: 'What is the capital of France?' }];

/** Runs it; stdout as bytes and as text. */
function sluice(args, input = '') {
  const r = spawnSync(SLUICE, args, { input, timeout: 60000, maxBuffer: 64 << 20 });
  return { status: r.status, bytes: r.stdout, out: r.stdout.toString(), err: r.stderr.toString() };
}

function good(args, input) {
  const r = sluice(args, input);
  assert.equal(r.status, 0, r.err);
  assert.equal(r.err, '');
  return r;
}

/** It fails with one line that matches, and nothing on standard output. */
function bad(args, input, status, line) {
  const r = sluice(args, input);
  assert.equal(r.status, status, r.err);
  assert.equal(r.out, '');
  assert.match(r.err, line);
  assert.equal(r.err.trim().split('\n').length, 1, r.err);
}

const ids = (text, file = SMALL) => JSON.parse(good(['model', 'tokenize', file], text).out);
const bytes = (list, file = SMALL) => good(['model', 'tokenize', file, '--decode'], JSON.stringify(list)).bytes;

let folder;
before(() => { folder = mkdtempSync(join(tmpdir(), 'sluice-cli-')); });
after(() => rmSync(folder, { recursive: true, force: true }));

describe('model inspect', () => {
  test('says what the files are', () => {
    const small = good(['model', 'inspect', SMALL, '--keys']).out, large = good(['model', 'inspect', LARGE, '--keys']).out;
    assert.match(small, /^name +Sluice demo small$/m);
    assert.match(large, /^name +Sluice demo large$/m);
    for (const out of [small, large]) {
      assert.match(out, /^family +llama$/m);
      assert.match(out, /^vocabulary +2048, tied$/m);
      assert.match(out, /^context +2048$/m);
      assert.match(out, /general\.license +Apache-2\.0$/m);
    }
    const parameters = (out) => Number(/^parameters +(\d+)$/m.exec(out)[1]);
    assert.ok(parameters(small) < parameters(large));
    // As many keys as it says.
    assert.equal(small.split('\n').filter((l) => /^ {2}\S/.test(l)).length, Number(/^keys +(\d+)$/m.exec(small)[1]));
  });

  test('names what is wrong with a file', () => {
    bad(['model', 'inspect', 'README.md'], '', 1, /^sluice model: README\.md: not a GGUF file$/m);
    bad(['model', 'inspect', join(folder, 'none')], '', 1, /none: No such file or directory$/m);
    bad(['model', 'inspect', folder], '', 1, /^sluice model: /);
    const file = join(folder, 'cut.gguf'), whole = readFileSync(SMALL);
    for (const n of [0, 3, 4, 24, 1000, 40000, whole.length - 1]) {
      writeFileSync(file, whole.subarray(0, n));
      const r = sluice(['model', 'inspect', file]);
      assert.equal(r.status, 1, `a file cut to ${n} bytes: ${r.err}`);
      assert.match(r.err, /^sluice model: .*cut\.gguf/m);
    }
  });
});

describe('model compare', () => {
  const at = (name) => join(folder, name), compare = (...args) => ['model', 'compare', ...args];
  /** Questions with the answers of the table, as texts. */
  function texts() {
    const lines = readFileSync('etc/models/abilities.jsonl', 'utf8').trim().split('\n').map((l) => JSON.parse(l));
    writeFileSync(at('texts.jsonl'), lines.map(({ messages, answer }) =>
      JSON.stringify({ messages: [...messages, { role: 'assistant', content: answer[0] }] })).join('\n'));
    return at('texts.jsonl');
  }

  test('finds no difference between a model and itself, and the loss of two bits', () => {
    const text = texts(), noisy = at('noisy.gguf');
    const same = JSON.parse(good(compare(LARGE, LARGE, '--text', text, '--json')).out).text;
    assert.equal(same.verdict.found, 'identical');
    assert.equal(same.kl_max, 0);
    assert.equal(same.same_token.value, 1);
    assert.match(good(compare(LARGE, LARGE, '--text', text)).out, /^verdict +text: no difference found at the 95 % level, n = \d+ positions in 120 documents; all are identical$/m);
    good(['model', 'quantize', LARGE, '--type', 'q2_k', noisy]);
    const worse = JSON.parse(good(compare(LARGE, noisy, '--text', text, '--json')).out).text;
    assert.equal(worse.verdict.found, 'worse');
    assert.ok(worse.verdict.low > 0 && worse.kl.value > 0 && worse.kl_p99 <= worse.kl_max && worse.same_token.value < 1);
  });

  test('finds which model answers rightly', () => {
    writeFileSync(at('tasks.jsonl'), readFileSync('etc/models/evaluation.jsonl', 'utf8').split('\n').filter((l) => l.includes('"hard"')).slice(0, 30).join('\n'));
    const tasks = JSON.parse(good(compare(LARGE, SMALL, '--tasks', at('tasks.jsonl'), '--match', 'words', '--tokens', '40', '--json')).out).tasks;
    assert.equal(tasks.n, 30);
    assert.equal(tasks.verdict.found, 'worse');
    assert.ok(tasks.only_a > 20 && tasks.only_b === 0);
  });

  test('finds no difference between an adapter and its merged model, and what an adapter changes', () => {
    const text = texts(), adapter = at('compared.gguf'), merged = at('compared-merged.gguf');
    good(['model', 'quantize', SMALL, '--type', 'f32', at('compared-base.gguf')]);
    good(['model', 'adapter', 'make', SMALL, adapter, '--rank', '4', '--alpha', '4']);
    good(['model', 'adapter', 'merge', SMALL, adapter, '--type', 'f32', merged]);
    const same = JSON.parse(good(compare(merged, at('compared-base.gguf'), '--adapter-b', adapter, '--kv-a', 'f32', '--kv-b', 'f32', '--text', text, '--json')).out);
    assert.deepEqual([same.a.adapter, same.b.adapter], [undefined, adapter]);
    assert.ok(same.text.kl_max < 1e-5 && same.text.same_token.value > 0.999, JSON.stringify(same.text));
    assert.equal(JSON.parse(good(compare(SMALL, SMALL, '--adapter-b', adapter, '--text', text, '--json')).out).text.verdict.found, 'worse');
    const lines = readFileSync('etc/models/pirate.jsonl', 'utf8').split('\n').slice(0, 20).join('\n');
    writeFileSync(at('pirate.jsonl'), lines);
    const r = good(compare(LARGE, LARGE, '--adapter-b', 'etc/models/demo-large-pirate.gguf', '--tasks', at('pirate.jsonl'), '--tokens', '100')).out;
    assert.match(r, /^B +etc\/models\/demo-large\.gguf \+ etc\/models\/demo-large-pirate\.gguf: weights /m);
    assert.match(r, /^verdict +tasks: B is better /m);
    bad(compare(SMALL, LARGE, '--adapter-a', at('none.gguf'), '--text', text), '', 1, /none\.gguf: /);
  });

  test('calibrates from a text, with the same bytes each time', () => {
    const text = texts(), out = [1, 2].map((n) => at(`calibrated-${n}.gguf`));
    for (const [i, file] of out.entries()) {
      const r = sluice(['model', 'quantize', SMALL, '--type', 'q4_0', '--calibrate', text, '--threads', String(i + 1), file]);
      assert.equal(r.status, 0, r.err);
      assert.match(r.err, /^35 matrices rounded for their inputs in \d+ tokens of .*texts\.jsonl, 1 without$/m);
    }
    assert.deepEqual(readFileSync(out[0]), readFileSync(out[1]));
    bad(['model', 'quantize', SMALL, '--type', 'q4_0', '--calibrate', at('none.txt'), at('no.gguf')], '', 1, /none\.txt: No such file/);
  });

  test('refuses other vocabularies and malformed lines by name', () => {
    const other = at('other.gguf');
    good(['model', 'random', '--shape', 'tiny-llama', '--type', 'f32', other]);
    bad(compare(SMALL, other, '--text', 'README.md'), '', 1, /different vocabularies: 2048 and 512 tokens/);
    writeFileSync(at('wrong.jsonl'), '{"text":"a b"}\n{"words":1}\n');
    bad(compare(SMALL, SMALL, '--text', at('wrong.jsonl')), '', 1, /wrong\.jsonl:2: needs a text/);
    bad(compare(SMALL, SMALL, '--tasks', at('wrong.jsonl')), '', 1, /wrong\.jsonl:1: needs a prompt/);
    bad(compare(SMALL, SMALL), '', USAGE, /needs --text or --tasks/);
    bad(compare(SMALL, '--text', 'README.md'), '', USAGE, /needs two models/);
    bad(compare(SMALL, SMALL, '--text', 'README.md', '--kv-b', 'q7'), '', USAGE, /--kv-b: no KV cache type is named q7/);
    bad(compare(SMALL, SMALL, '--text', 'README.md', '--kv-rotation-a', 'yes'), '', USAGE, /--kv-rotation-a is auto, on or off/);
  });
});

describe('model adapter', () => {
  const at = (name) => join(folder, name), adapter = (...args) => ['model', 'adapter', ...args];

  test('makes, inspects and merges both forms', () => {
    const base = at('adapter-base.gguf'), greedy = ['--raw', '--prompt', 'the sea', '--tokens', '8', '--temperature', '0', '--json', '--logprobs'];
    good(['model', 'random', '--shape', 'tiny-qwen2', '--type', 'f32', base]);
    for (const out of [at('one.gguf'), at('one')]) {
      assert.equal(good(adapter('make', base, out, '--rank', '4,q=8', '--targets', 'q,o,down', '--seed', '9')).out, `${out}\n`);
      assert.match(good(adapter('inspect', out, '--base', base)).out, /^q +2 matrices, rank 8, scale 2\no +2 matrices, rank 4, scale 4\ndown +2 matrices, rank 4, scale 4$/m);
      const json = JSON.parse(good(adapter('inspect', out, '--json')).out);
      assert.deepEqual(json.targets.down.map((m) => [m.layer, m.rank, m.inputs, m.outputs]), [[0, 4, 512, 256], [1, 4, 512, 256]]);
      assert.deepEqual(json.targets.v, []);
      good(adapter('merge', base, out, '--type', 'f32', at('one-merged.gguf'), '--force'));
      const merged = JSON.parse(good(['model', 'generate', at('one-merged.gguf'), ...greedy]).out);
      const served = JSON.parse(good(['model', 'generate', base, '--adapter', out, ...greedy]).out);
      assert.deepEqual(served.tokens, merged.tokens);
      served.logprobs.forEach((l, i) => assert.ok(Math.abs(l - merged.logprobs[i]) < 1e-4));
      bad(adapter('make', base, out), '', 1, /one.*exist/i);
      bad(adapter('merge', base, out, '--type', 'f32', out.endsWith('.gguf') ? out : join(out, 'adapter_config.json'), '--force'), '', 1, /is the same file as/);
    }
    bad(adapter('make', base, base, '--force'), '', 1, /is the same file as/);
    bad(adapter('inspect', at('one.gguf'), '--base', SMALL), '', 1, /one\.gguf: .*(general\.architecture|tensor)/);
    const other = sluice(['model', 'generate', SMALL, '--adapter', at('one'), '--prompt', 'a']);
    assert.equal(other.status, 1);
    assert.match(other.err, /^sluice model: .*one: tensor .*q_proj.*is for 256 inputs, but the base's blk\.0\.attn_q\.weight has 128$/m);
  });

  test('refuses what it does not understand', () => {
    bad(adapter('mend', SMALL), '', USAGE, /mend: not one of inspect, merge, make/);
    bad(adapter('inspect', 'README.md'), '', 1, /README\.md: not a GGUF file/);
    bad(adapter('merge', SMALL, at('one.gguf'), at('two.gguf')), '', USAGE, /needs a model, an adapter, --type/);
    for (const rank of ['0', '257', 'x', '4,q', '4,q=', '4,', 'z=4', '1.5']) bad(adapter('make', SMALL, at('no.gguf'), '--rank', rank), '', USAGE, /--rank .* is not/);
    bad(adapter('make', SMALL, at('no.gguf'), '--targets', 'q,x'), '', USAGE, /--targets q,x is not/);
    bad(adapter('make', SMALL, at('no.gguf'), '--type', 'q8_0'), '', USAGE, /none of f32, f16, bf16/);
    bad(adapter('make', SMALL, at('no.gguf'), '--alpha', '0'), '', USAGE, /--alpha 0 is not/);
  });
});

describe('model random and quantize', () => {
  test('a file of random weights runs, also as another type', () => {
    const file = join(folder, 'random.gguf'), other = join(folder, 'random-q4.gguf');
    assert.equal(good(['model', 'random', '--shape', 'tiny-mistral', '--type', 'f32', '--seed', '5', file]).out, `${file}\n`);
    good(['model', 'quantize', file, '--type', 'q4_k_m', other]);
    const facts = JSON.parse(good(['model', 'inspect', other, '--json', '--keys', '--tensors']).out);
    assert.equal(facts.family, 'llama');
    assert.equal(facts.runs_here, true);
    assert.equal(facts.context, 1024);
    assert.equal(facts.keys['tokenizer.ggml.pre'], 'gpt-2');
    assert.equal(facts.tensors.find((t) => t.name === 'output.weight').type, 'Q6_K');
    assert.equal(facts.tensors.find((t) => t.name === 'output_norm.weight').type, 'F32');
    assert.equal(facts.kv_bytes_full_context, facts.kv_bytes_per_token * 1024);
    assert.ok(facts.weight_bytes < facts.parameters);
    for (const args of [[file], [other], [file, '--quantize', 'q8_0']]) {
      const r = JSON.parse(good(['model', 'generate', ...args, '--raw', '--ids', '--prompt', 'hello', '--tokens', '5']).out);
      assert.ok(JSON.stringify(r).length > 10);
    }
  });

  test('matrices of four bits keep them, unless it is asked to convert them', () => {
    const file = join(folder, 'four.gguf'), out = join(folder, 'eight.gguf');
    const types = () => JSON.parse(good(['model', 'inspect', out, '--json']).out).weights;
    good(['model', 'random', '--shape', 'tiny-mistral', '--type', 'q4_k', file]);
    const kept = sluice(['model', 'quantize', file, '--type', 'q8_0', out]);
    assert.equal(kept.status, 0, kept.err);
    assert.equal(kept.out, `${out}\n`);
    assert.match(kept.err, /^\d+ matrices have four bits already and keep them \(Q4_K ×\d+\): as q8_0 they would lose 0\.\d % /);
    assert.ok(types().Q4_K > 0);
    good(['model', 'quantize', file, '--type', 'q8_0', out, '--force', '--requantize']);
    assert.ok(types().Q8_0 > 0 && types().Q4_K === undefined);
  });

  test('refuses what is not possible', () => {
    const out = join(folder, 'never.gguf');
    bad(['model', 'random', '--shape', 'llama-9', out], '', USAGE, /no shape is named llama-9 \(there are llama-3\.2-1b/);
    bad(['model', 'random', '--shape', 'tiny-llama', '--type', 'q7', out], '', USAGE, /no type is named q7 \(there are F32/);
    bad(['model', 'random', '--shape', 'tiny-llama', '--context', '0', out], '', USAGE, /--context: invalid value 0/);
    bad(['model', 'random', out], '', USAGE, /needs --shape/);
    bad(['model', 'random', '--shape', 'tiny-llama', join(folder, 'no/such.gguf')], '', 1, /No such file or directory/);
    bad(['model', 'quantize', SMALL, out], '', USAGE, /needs a model, --type/);
    bad(['model', 'quantize', 'README.md', '--type', 'q8_0', out], '', 1, /README\.md: not a GGUF file/);
    bad(['model', 'generate', SMALL, '--prompt', 'a', '--quantize', 'q7'], '', USAGE, /no type is named q7/);
    assert.throws(() => readFileSync(out));
  });
});

describe('keys of a model file', () => {
  const text = (s) => { const n = Buffer.alloc(8); n.writeBigUInt64LE(BigInt(s.length)); return Buffer.concat([n, Buffer.from(s)]); };
  const word = (v) => { const n = Buffer.alloc(4); n.writeUInt32LE(v); return n; };
  const BOOL = 7, STRING = 8;

  /** The demonstration model with another key in front; a second one fills up, so that the tensors stay where they are aligned. */
  function withKey(name, value) {
    const whole = readFileSync(SMALL), more = Buffer.concat([text(name), word(BOOL), Buffer.from([value ? 1 : 0])]);
    const filler = Buffer.concat([text('general.comment'), word(STRING)]);
    const fill = (32 - (more.length + filler.length + 8) % 32) % 32;
    const count = Buffer.alloc(8);
    count.writeBigUInt64LE(whole.readBigUInt64LE(16) + 2n);
    const file = join(folder, `${name}-${value}.gguf`);
    writeFileSync(file, Buffer.concat([whole.subarray(0, 16), count, more, filler, text('-'.repeat(fill)), whole.subarray(24)]));
    return file;
  }

  test('one that changes answers is refused by name', () => {
    const file = withKey('llama.attention.causal', false);
    for (const args of [['inspect', file], ['generate', file, '--prompt', 'a']]) {
      const r = sluice(['model', ...args]);
      assert.equal(r.status, 1);
      assert.match(r.err, /llama\.attention\.causal is false, which is not supported \(supported: true\)/);
    }
    assert.match(good(['model', 'inspect', withKey('llama.attention.causal', true)]).out, /^runs here +yes$/m);
  });

  test('one that nothing knows is named', async () => {
    const file = withKey('llama.flavour', true);
    assert.match(good(['model', 'inspect', file]).out, /^unknown keys 1, ignored: llama\.flavour$/m);
    assert.equal(JSON.parse(good(['model', 'inspect', file, '--json']).out).unknown_keys, 'llama.flavour');
    assert.equal(JSON.parse(good(['model', 'inspect', SMALL, '--json']).out).unknown_keys, undefined);
    const server = await startServer({ sets: ['engine.models=', `engine.models.demo-small.path=${file}`, 'cache.store=memory'] });
    try {
      assert.match(server.log(), /model demo-small: 1 unknown metadata keys ignored \(llama\.flavour\)/);
    } finally {
      await server.stop();
    }
  });

  test('a template that needs what nothing has fails when it runs, by name', async () => {
    const chat = JSON.stringify({ messages: PARIS }), file = join(folder, 'guarded.jinja');
    writeFileSync(file, "{% if tools %}{{ tools|from_json }}{% endif %}{{ messages[0].content }}");
    assert.equal(good(['model', 'render', file], chat).out, PARIS[0].content);
    bad(['model', 'render', file], JSON.stringify({ messages: PARIS, tools: [{ type: 'function', function: { name: 'f' } }] }), 1,
      /template line 1, column 24: the filter "from_json" is not supported/);
  });
});

describe('what a command writes', () => {
  const quantize = (from, to, ...more) => ['model', 'quantize', from, '--type', 'q8_0', to, ...more];

  test('never is its own source', () => {
    const at = mkdtempSync(join(folder, 'own-')), source = join(at, 'source.gguf'), whole = readFileSync(SMALL);
    copyFileSync(SMALL, source);
    linkSync(source, join(at, 'hard.gguf'));
    symlinkSync(source, join(at, 'soft.gguf'));
    for (const to of [source, join(at, 'hard.gguf'), join(at, 'soft.gguf'), join(at, '..', at.split('/').pop(), 'source.gguf')])
      for (const more of [[], ['--force']]) bad(quantize(source, to, ...more), '', 1, /is the same file as .*source\.gguf, which is read/);
    bad(quantize(source, at, '--force'), '', 1, /is a folder, not a file to write/);
    bad(['model', 'random', '--shape', 'tiny-llama', '--tokenizer', source, source, '--force'], '', 1, /is the same file as/);
    assert.deepEqual(readFileSync(source), whole);
    assert.deepEqual(readdirSync(at).sort(), ['hard.gguf', 'soft.gguf', 'source.gguf']);
  });

  test('replaces nothing unasked', () => {
    const at = mkdtempSync(join(folder, 'there-')), out = join(at, 'out.gguf');
    writeFileSync(out, 'mine');
    bad(quantize(SMALL, out), '', 1, /out\.gguf already exists \(--force replaces it\)$/m);
    bad(['model', 'random', '--shape', 'tiny-llama', out], '', 1, /out\.gguf already exists/);
    bad(quantize(SMALL, '/dev/null', '--force'), '', 1, /\/dev\/null is not a regular file/);
    assert.equal(readFileSync(out, 'utf8'), 'mine');
    good(quantize(SMALL, out, '--force'));
    good(['model', 'inspect', out]);
    assert.deepEqual(readdirSync(at), ['out.gguf']);
  });

  /** A run that has begun to write a file of more than a GiB. */
  async function writing(at) {
    const child = spawn(SLUICE, ['model', 'random', '--shape', 'llama-3.2-1b', join(at, 'big.gguf')], { stdio: 'ignore' });
    const ended = once(child, 'exit');
    for (const until = Date.now() + 120000; readdirSync(at).length === 0 && child.exitCode === null; await sleep(2))
      assert.ok(Date.now() < until, 'nothing is written');
    return { child, ended };
  }

  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    test(`${signal} leaves no part of it`, async () => {
      const at = mkdtempSync(join(folder, 'signal-'));
      const { child, ended } = await writing(at);
      child.kill(signal);
      assert.deepEqual(await ended, [null, signal]);
      assert.deepEqual(readdirSync(at), []);
    });
  }

  test('what SIGKILL leaves is called partial and is no model', async () => {
    const at = mkdtempSync(join(folder, 'kill-'));
    const { child, ended } = await writing(at);
    child.kill('SIGKILL');
    assert.deepEqual(await ended, [null, 'SIGKILL']);
    assert.deepEqual(readdirSync(at), [`big.gguf.partial-${child.pid}`]);
    bad(['model', 'inspect', join(at, readdirSync(at)[0])], '', 1, /partial-/);
    rmSync(at, { recursive: true });
  });
});

describe('model tokenize', () => {
  const texts = ['', 'a', 'Hello, world!', '  spaces   and\ttabs\n\n', '안녕하세요! 대한민국의 수도는?', '😀👩‍👩‍👧‍👦🇰🇷', 'naïve café — “quotes”', 'e\u0301\u0327',
    'a\0b', '\ufeffbom', 'x'.repeat(5000), '日本語のテキスト', 'don\'t 12345 6.78'];

  test('text comes back as it was, for both models', () => {
    for (const file of [SMALL, LARGE])
      for (const text of texts) assert.equal(bytes(ids(text, file), file).toString(), text);
  });

  test('bytes that are no text come back too', () => {
    const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    assert.deepEqual(bytes(ids(all)), all);
    assert.deepEqual(bytes(ids(Buffer.from('ffc0feed80', 'hex'))), Buffer.from('ffc0feed80', 'hex'));
  });

  test('control tokens in text stay text', () => {
    for (const token of ['<|im_start|>', '<|im_end|>', '<|endoftext|>']) {
      const list = ids(`a${token}b`);
      assert.ok(list.length > 4, `${token} became a token: ${list}`);
      assert.ok(list.every((id) => id < 2045), `${token}: ${list}`);
      assert.equal(bytes(list).toString(), `a${token}b`);
    }
    assert.equal(bytes([2046]).toString() + bytes([2047]).toString(), '<|im_start|><|im_end|>');
  });

  test('reads SentencePiece models, alone and with the files of a folder', () => {
    const varint = (v) => (v < 128 ? [v] : [v & 127 | 128, ...varint(v >> 7)]);
    const field = (number, bytes) => [...varint(number << 3 | 2), ...varint(bytes.length), ...bytes];
    const float = (v) => [...Buffer.from(new Float32Array([v]).buffer)];
    const piece = (text, score, type) =>
      field(1, [...field(1, [...Buffer.from(text)]), 2 << 3 | 5, ...float(score), 3 << 3, type]);
    const model = Buffer.from([
      ...piece('<unk>', 0, 2), ...piece('<s>', 0, 3), ...piece('</s>', 0, 3), ...piece('▁', -3, 1), ...piece('a', -4, 1),
      ...piece('▁a', -1, 1), ...piece('b', -5, 1), ...piece('<u>', 0, 4),
      ...field(2, [3 << 3, 2]), ...field(3, [3 << 3, 1, 4 << 3, 0])]); // BPE; a space before a text, none dropped
    const at = mkdtempSync(join(folder, 'spm-')), file = join(at, 'tokenizer.model');
    writeFileSync(file, model);
    assert.deepEqual(ids('ab<u>a é', file), [5, 6, 7, 4, 3, 0]);
    assert.equal(bytes([5, 6, 7, 4], file).toString(), 'ab<u>a');
    writeFileSync(join(at, 'tokenizer_config.json'),
      '{"legacy":false,"added_tokens_decoder":{"8":{"content":"<t>","special":false}}}');
    assert.deepEqual(ids('a<t>a', at), [5, 8, 4]);
    mkdirSync(join(at, 'added_tokens.json')); // what is beside it counts, or the ids would be others
    bad(['model', 'tokenize', at], 'x', 1, /added_tokens\.json: Is a directory/);
    writeFileSync(file, model.subarray(0, model.length - 1));
    bad(['model', 'tokenize', file], 'x', 1, /not a SentencePiece model: malformed at byte/);
  });

  test('what is no list of ids is refused', () => {
    const decode = ['model', 'tokenize', SMALL, '--decode'];
    for (const input of ['', '[', 'x', '{}', '"a"', '5']) bad(decode, input, 1, /standard input is not a JSON array/);
    for (const item of ['-1', '2048', '1.5', '"a"', 'null', '[]', '4294967296', '99999999999999999'])
      assert.match(sluice(decode, `[1,${item}]`).err, /item 1 is not an id from 0 to 2047/);
    bad(['model', 'tokenize', 'README.md'], 'x', 1, /not a GGUF file/);
  });
});

describe('model render', () => {
  const render = ['model', 'render', SMALL];

  test('is what the model reads', () => {
    const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: '안녕 😀' }];
    assert.equal(good(render, JSON.stringify({ messages })).out,
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n안녕 😀<|im_end|>\n<|im_start|>assistant\n');
  });

  test('bad chats are refused', () => {
    bad(render, '{"messages":[{"role":"user"', 1, /not valid JSON \(at byte \d+\)/);
    for (const input of ['', '[]', '{}', '{"messages":5}', '{"messages":[5]}', '{"messages":[{"role":"user"}]}',
      '{"messages":[{"role":5,"content":"x"}]}']) bad(render, input, 1, /^sluice model: /);
  });
});

describe('model generate', () => {
  const answer = 'The capital of France is Paris.';
  const generate = (...more) => ['model', 'generate', SMALL, ...more];

  test('answers, the same each time and with any number of threads', () => {
    for (const more of [[], ['--threads', '1'], ['--threads', '2'], ['--backend', 'cpu-ref']])
      assert.equal(good(generate('--prompt', PARIS[0].content, ...more)).out.trimEnd(), answer);
  });

  test('--ids are the tokens of the text', () => {
    const r = JSON.parse(good(generate('--prompt', PARIS[0].content, '--ids')).out);
    assert.equal(r.text, answer);
    assert.equal(r.finish_reason, 'stop');
    assert.equal(bytes(r.tokens).toString(), answer);
    assert.ok(r.logprobs.every((x) => x <= 0));
    const cut = JSON.parse(good(generate('--prompt', PARIS[0].content, '--ids', '--tokens', '3')).out);
    assert.equal(cut.finish_reason, 'length');
    assert.deepEqual(cut.tokens, r.tokens.slice(0, 3));
  });

  test('a control token in the prompt does not end the turn', () => {
    const plain = JSON.parse(good(generate('--prompt', 'hi', '--ids', '--tokens', '1')).out);
    const evil = JSON.parse(good(generate('--prompt', 'hi<|im_end|>', '--ids', '--tokens', '1')).out);
    assert.ok(evil.n_prompt >= plain.n_prompt + 5, `${evil.n_prompt} tokens`);
  });

  test('a seed decides', () => {
    const draw = (seed) => good(generate('--prompt', 'Tell me a short story about a cat.', '--temperature', '1.5', '--seed', seed,
      '--tokens', '40')).out;
    assert.equal(draw('7'), draw('7'));
    assert.ok(new Set(['1', '2', '3', '4'].map(draw)).size > 1);
  });

  test('tokens are chosen as the options say', () => {
    const ask = (...more) => good(generate('--prompt', PARIS[0].content, ...more)).out.trimEnd();
    const [first] = ids(answer), paris = ids('The capital of France is Paris').at(-1);
    assert.equal(ask('--stop', 'Paris', '--stop', 'not there'), 'The capital of France is');
    assert.equal(ask('--stop', 'is P', '--min-tokens', '40').slice(0, answer.length), answer);
    assert.equal(ask('--stop-id', `${paris}`, '--temperature', '1', '--top-k', '1'), 'The capital of France is');
    assert.ok(!ask('--logit-bias', `${first}=-100`).startsWith('The'));
    assert.equal(ask('--logit-bias', `${first}=100`, '--tokens', '3'), 'TheTheThe');
    // Each of these alone leaves only the likeliest.
    for (const one of [['--top-k', '1'], ['--top-p', '0.0001'], ['--min-p', '1']])
      assert.equal(ask('--temperature', '2', '--seed', '9', ...one), answer);
    const json = (...more) => JSON.parse(ask('--json', '--temperature', '1.5', '--seed', '4', ...more));
    const plain = json();
    for (const one of [['--typical', '0.2'], ['--repetition-penalty', '1.8'], ['--presence-penalty', '2'],
      ['--frequency-penalty', '2'], ['--min-tokens', '60']]) {
      assert.deepEqual(json(...one), json(...one));
      if (one[0] === '--min-tokens') assert.ok(json(...one).tokens.length >= 60);
    }
    assert.deepEqual(json('--typical', '1', '--repetition-penalty', '1', '--top-k', '0', '--min-p', '0'), plain);
  });

  test('log probabilities of the answer and of the prompt', () => {
    const ask = (...more) => good(generate('--prompt', PARIS[0].content, ...more)).out;
    const r = JSON.parse(ask('--json', '--logprobs', '3', '--prompt-logprobs', '2'));
    assert.equal(r.text, answer);
    assert.equal(r.top_logprobs.length, r.tokens.length);
    r.top_logprobs.forEach((top, i) => {
      assert.equal(top.length, 3);
      assert.deepEqual(top[0], { id: r.tokens[i], logprob: r.logprobs[i] }); // greedy
      assert.ok(top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob);
      assert.ok(top.reduce((sum, t) => sum + Math.exp(t.logprob), 0) <= 1.0001);
    });
    assert.equal(r.prompt_logprobs.length, r.n_prompt);
    assert.equal(r.prompt_logprobs[0].logprob, null);
    for (const p of r.prompt_logprobs.slice(1)) {
      assert.equal(p.top.length, 2);
      assert.ok(p.logprob <= p.top[0].logprob);
    }
    // What was an answer has the same log probabilities as a prompt.
    const raw = (...more) => JSON.parse(good(generate('--raw', '--json', ...more)).out);
    const said = raw('--prompt', 'Once upon', '--tokens', '12', '--logprobs');
    const again = raw('--prompt', `Once upon${said.text}`, '--tokens', '1', '--prompt-logprobs', '0');
    // (Up to where the text is cut into the same tokens.)
    const there = again.prompt_logprobs.slice(said.n_prompt);
    const same = there.findIndex((p, i) => p.id !== said.tokens[i]);
    const n = same < 0 ? there.length : same;
    assert.ok(n >= 2, `${n} tokens`);
    assert.deepEqual(there.slice(0, n).map((p) => p.logprob), said.logprobs.slice(0, n));
    assert.match(ask('--logprobs', '2', '--tokens', '2'), /^The capital\n.*logprob.*\n +494 .*"The" .*\n.*" capital"/);
    assert.match(ask('--prompt-logprobs', '1', '--tokens', '2'), /^prompt +logprob[^\n]*\n +2046 +-\n/);
  });

  test('--batch gives each line its answer, whatever it is beside', () => {
    const lines = [{ id: 1, messages: PARIS, max_tokens: 20 }, { id: 'b', prompt: 'What is', max_tokens: 5 },
      { id: { any: ['thing'] }, messages: [{ role: 'user', content: '안녕하세요!' }], max_tokens: 30, temperature: 1, seed: 3 }];
    const out = good(generate('--batch'), lines.map((l) => JSON.stringify(l)).join('\n')).out.trimEnd().split('\n').map((l) => JSON.parse(l));
    assert.equal(out.length, lines.length);
    for (const line of lines) {
      const [beside] = out.filter((o) => JSON.stringify(o.id) === JSON.stringify(line.id));
      const alone = JSON.parse(good(generate('--batch'), `${JSON.stringify(line)}\n`).out);
      assert.deepEqual(beside.tokens, alone.tokens);
      assert.equal(beside.text, alone.text);
    }
    assert.equal(out.find((o) => o.id === 1).text, answer);
  });

  test('--batch describes tools to the model, and refuses what is none', () => {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-batch-'));
    try {
      const file = join(dir, 'tools.gguf');
      withTemplate(join(ROOT, 'etc/models/demo-small.gguf'), file, HERMES);
      const tools = [{ type: 'function', function: { name: 'f' } }];
      const lines = [{ id: 1, messages: PARIS, max_tokens: 1 }, { id: 2, messages: PARIS, tools, max_tokens: 1 }, { id: 3, messages: PARIS, tools: 'f' }];
      const r = sluice(['model', 'generate', file, '--batch'], lines.map((l) => JSON.stringify(l)).join('\n'));
      const of = new Map(r.out.trimEnd().split('\n').map((l) => JSON.parse(l)).map((o) => [o.id, o]));
      assert.ok(of.get(2).n_prompt > of.get(1).n_prompt, r.out);
      assert.equal(of.get(3).finish_reason, 'error');
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });

  test('--batch goes on after a bad line, and says so in the end', () => {
    const lines = ['{"id":1,"prompt":"What is","max_tokens":2}', '{"id":2,"pro', '{"id":3}', '{"id":4,"prompt":"What is","max_tokens":2}'];
    const r = sluice(generate('--batch'), `${lines.join('\n')}\n`);
    assert.equal(r.status, 1);
    const out = r.out.trimEnd().split('\n').map((l) => JSON.parse(l));
    assert.equal(out.length, 4);
    assert.equal(out.filter((o) => o.finish_reason === 'error' && o.error.length > 0).length, 2);
    for (const id of [1, 4]) assert.equal(out.find((o) => o.id === id).tokens.length, 2);
    assert.equal(out.find((o) => o.id === 3).finish_reason, 'error');
  });

  test('arguments are checked', () => {
    for (const more of [['--tokens', 'x'], ['--tokens', '0'], ['--tokens', '-1'], ['--temperature', '3'], ['--temperature', 'nan'], ['--seed', '1e3'],
      ['--top-p', '0'], ['--min-p', '-1'], ['--typical', 'x'], ['--repetition-penalty', '0'], ['--logit-bias', '5'],
      ['--logit-bias', '5=101'], ['--stop', ''], ['--stop-id', '-1'], ['--n', '17'], ['--beam', '0'], ['--min-tokens', '9999'],
      ['--logprobs', '21'], ['--n', '4', '--beam', '2'],
      ['--seed'], ['--nope'], ['--threads', '99999999999999999999']]) bad(generate('--prompt', 'x', ...more), '', USAGE, /^sluice model: /);
    bad(generate(), '', USAGE, /needs --prompt or --batch/);
    assert.equal(sluice(generate('--prompt', 'x', '--backend', 'nope')).status, 1);
    assert.equal(sluice(['model', 'generate', 'README.md', '--prompt', 'x']).status, 1);
    assert.equal(sluice(['model']).status, USAGE);
    assert.equal(sluice(['model', 'nope', SMALL]).status, USAGE);
  });
});

describe('config', () => {
  const write = (text) => { const f = join(folder, 'c.yaml'); writeFileSync(f, text); return f; };

  test('check names line, column and key', () => {
    const cases = [
      ['gateway:\n  http: 127.0.0.1:99999\n', '2:9', /gateway\.http: .*99999/],
      ['gateway:\n  limits:\n    stall: 1\n', '3:12', /gateway\.limits\.stall: .*not a time/],
      ['gateway:\n  threads: 1\n  nope: 3\n', '3:3', /nope/],
      ['log:\n  level: loud\n', '2:10', /log\.level: .*loud/],
      ['log:\n  level: info\n  level: warn\n', '3:3', /level: given twice, first on line 2/],
      ['gateway:\n  threads: [1\n', '3:1', /not YAML/],
      ['gateway: &x\n  threads: 1\n', '1:10', /anchors/],
      ['engine:\n  models:\n    - name: m\n      path: p\n      role: huge\n', '5:13', /role.*huge/],
      ['gateway:\n  tiers:\n    - name: t\n      pace_tps: -1\n', '4:17', /pace_tps/],
    ];
    for (const [text, place, what] of cases) {
      const f = write(text);
      for (const command of ['check', 'show']) {
        const r = sluice(['config', command, '-c', f]);
        assert.equal(r.status, CONFIG, `${text}${r.out}${r.err}`);
        assert.ok(r.err.startsWith(`${f}:${place}: `), `${place} in: ${r.err}`);
        assert.match(r.err, what);
        assert.equal(r.out, '');
      }
    }
    bad(['config', 'check', '-c', join(folder, 'none.yaml')], '', CONFIG, /none\.yaml: can't be opened/);
    bad(['config', 'check', '--set', 'a.b=c'], '', CONFIG, /^--set: a\.b: no such key/);
  });

  test('check and show of the development file', () => {
    assert.match(good(['config', 'check', '-c', 'etc/sluice.yaml']).out, /good/);
    const out = good(['config', 'show', '-c', 'etc/sluice.yaml', '--set', 'gateway.threads=3']).out;
    assert.match(out, /^gateway\.threads: 3 +# .*command line|^gateway\.threads: 3 +# --set/m);
    assert.match(out, /^log\.level: info +# etc\/sluice\.yaml:\d+$/m);
    assert.match(good(['config', 'show', '-c', write('log:\n  level: warn\n')]).out, /^gateway\.threads: 1 +# default; a change needs an upgrade or a restart$/m);
    assert.equal(sluice(['config']).status, USAGE);
  });
});
