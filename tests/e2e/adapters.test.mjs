// SPDX-License-Identifier: Apache-2.0
// Adapters, through a released client: each is a model MODEL:NAME with a parent, and answers as its merged model does; by
// its own name too; side by side with its base and another. Tiers, metrics and refusals know it by its name. One that does
// not fit is failed while the rest serves. They are loaded, replaced and unloaded under running streams, by
// administrators only, from their folders only, and by what is in a watched folder.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { localOnly, OVER_UPSTREAM, request, SLUICE, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-adapters-'));
const file = (name) => join(folder, name);
const sluice = (...args) => execFileSync(SLUICE, ['model', ...args]);
const entry = (name, path, more = '') => `    - name: ${name}\n      path: ${path}\n${more}`;

/** The configuration with models `base` and `mixture`, their merged twins and adapters. */
const edit = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line +
    entry('base', file('base.gguf')) + entry('merged-style', file('style.merged.gguf')) + entry('merged-facts', file('facts.merged.gguf')) +
    entry('mixture', file('mixture.gguf')) + entry('merged-expert', file('expert.merged.gguf')))
  .replace(/^  adapters: # \(dev\).*\n(?: {4}.*\n)*/m, '  adapters:\n' + entry('style', file('style.gguf'), '      model: base\n') +
    entry('facts', file('facts'), '      model: base\n') + entry('other', file('other.gguf'), '      model: base\n') +
    entry('base', file('style.gguf'), '      model: base\n') + entry('expert', file('expert'), '      model: mixture\n'));

describe('adapters', () => {
  let server, client;
  const auth = () => ({ authorization: `Bearer ${server.keys.paid}` });
  const answer = async (model, content) => {
    const r = await client.chat.completions.create({ model, messages: [{ role: 'user', content }], max_tokens: 24,
      temperature: 0, logprobs: true });
    const tokens = r.choices[0].logprobs.content;
    return { bytes: tokens.map((t) => t.bytes), logprobs: tokens.map((t) => t.logprob), model: r.model };
  };

  const same = (a, b) => {
    assert.deepEqual(a.bytes, b.bytes);
    a.logprobs.forEach((l, i) => assert.ok(Math.abs(l - b.logprobs[i]) <= 1e-4, `${l} ${b.logprobs[i]}`));
  };

  before(async () => {
    sluice('random', '--shape', 'tiny-llama', '--type', 'f32', '--seed', '4', file('base.gguf'));
    sluice('random', '--shape', 'tiny-qwen3', '--type', 'f32', file('qwen.gguf'));
    sluice('adapter', 'make', file('base.gguf'), file('style.gguf'), '--rank', '8,q=16,down=4', '--seed', '1', '--targets', 'q,k,v,o,gate,up,down,embed,head');
    sluice('adapter', 'make', file('base.gguf'), file('facts'), '--rank', '4', '--targets', 'q,v,up', '--rslora', '--alpha', '3', '--seed', '2', '--type', 'bf16');
    sluice('adapter', 'make', file('qwen.gguf'), file('other.gguf'));
    for (const name of ['style', 'facts'])
      sluice('adapter', 'merge', file('base.gguf'), file(name === 'style' ? 'style.gguf' : name), '--type', 'f32', file(`${name}.merged.gguf`));
    sluice('random', '--shape', 'tiny-qwen2moe', '--type', 'f32', '--seed', '6', file('mixture.gguf'));
    sluice('adapter', 'make', file('mixture.gguf'), file('expert'), '--targets', 'q,expert_gate,expert_up,expert_down,shared_up,embed,head');
    sluice('adapter', 'merge', file('mixture.gguf'), file('expert'), '--type', 'f32', file('expert.merged.gguf'));
    server = await startServer({ edit, adapters: true, sets: ['gateway.tiers.free.models=base', 'engine.kv_type=f32', 'engine.backend=auto',
      ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
    client = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => {
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('the list has each with its parent, and the failed one', localOnly('which of its models are adapters, and of which'), async () => {
    const doc = JSON.parse((await request(server.http, '/openapi.json')).body);
    const list = JSON.parse((await request(server.http, '/v1/models', { headers: auth() })).body);
    const of = (id) => list.data.find((m) => m.id === id);
    assert.deepEqual(violations(doc, { $ref: '#/components/schemas/ModelList' }, list), []);
    assert.equal(of('base:style').parent, 'base');
    assert.equal(of('base:style').state, 'ready', server.log());
    assert.equal(of('base:facts').state, 'ready', server.log());
    assert.equal(of('base:other').state, 'failed');
    assert.equal(of('base').parent, undefined);
    assert.match(server.log(), /adapter base:other failed: .*general\.architecture is "qwen3"/);
    assert.equal((await client.models.retrieve('base:style')).parent, 'base');
  });

  test('an answer is its merged model’s, by either name, beside the others', async () => {
    const prompts = ['once upon a time', 'the river and the stone', 'hello'];
    for (const prompt of prompts) {
      const [plain, style, facts, wantStyle, wantFacts, alias] = await Promise.all( // an upstream keeps its adapters' own names to itself
        ['base', 'base:style', 'base:facts', 'merged-style', 'merged-facts', OVER_UPSTREAM ? 'base:style' : 'style'].map((m) => answer(m, prompt)));
      same(style, wantStyle);
      same(facts, wantFacts);
      assert.deepEqual(alias, style); // to the last bit
      assert.equal(style.model, 'base:style');
      assert.notDeepEqual(plain.logprobs, style.logprobs);
      assert.notDeepEqual(facts.logprobs, style.logprobs);
      assert.deepEqual(await answer('base', prompt), plain);
    }
  });

  test('experts, shared ones, embeddings and head of a mixture', async () => {
    const [plain, got, want] = await Promise.all(['mixture', 'mixture:expert', 'merged-expert'].map((m) => answer(m, 'once upon a time')));
    same(got, want);
    assert.notDeepEqual(plain.logprobs, got.logprobs);
  });

  test('a model keeps its own name, though an adapter has it', async () => {
    assert.equal((await answer('base', 'hello')).model, 'base');
    same(await answer('base:base', 'hello'), await answer('base:style', 'hello'));
  });

  test('unknown and failed ones are refused by name', async () => {
    for (const name of ['base:none', 'none', 'base:', 'style:base'])
      await assert.rejects(answer(name, 'hello'), (e) => {
        assert.equal(e.status, 404);
        assert.equal(e.param, 'model');
        assert.equal(e.code, 'model_not_found');
        assert.ok(e.message.includes(`'${name}'`), e.message);
        return true;
      });
    await assert.rejects(answer('base:other', 'hello'), (e) => e.status === 503 && (OVER_UPSTREAM || e.code === 'model_failed'));
  });

  test('a tier may use the base and not its adapters', async () => {
    const free = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.free, maxRetries: 0 });
    const ask = (model) => free.chat.completions.create({ model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 2 });
    assert.equal((await ask('base')).model, 'base');
    for (const name of ['base:style', 'style'])
      await assert.rejects(ask(name), (e) => e.status === 404 && e.param === 'model');
    const list = JSON.parse((await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.free}` } })).body);
    assert.deepEqual(list.data.map((m) => m.id), ['base']);
  });
});

/** A server with a model `base`, two others' merged twins, and folders that adapters come from. */
describe('adapters at run time', localOnly('which adapters it loads'), () => {
  let server, client, folders;
  const auth = (key) => ({ authorization: `Bearer ${server.keys[key]}` });
  const call = (what, body, key = 'admin') => request(server.http, `/v1/${what}_lora_adapter`, {
    method: 'POST', headers: { ...auth(key), 'content-type': 'application/json' }, body: JSON.stringify(body) });
  const load = (lora_name, lora_path) => call('load', { lora_name, lora_path });
  const unload = (lora_name) => call('unload', { lora_name });
  const ok = (r) => { assert.equal(r.status, 200, `${r.body}`); return JSON.parse(r.body); };
  const refused = (r, status, param, pattern) => {
    assert.equal(r.status, status, `${r.body}`);
    const { error } = JSON.parse(r.body);
    if (param !== undefined) assert.equal(error.param, param, `${r.body}`);
    if (pattern) assert.match(error.message, pattern);
  };
  const answer = async (model, content = 'once upon a time', api = client) => {
    const r = await api.chat.completions.create({ model, messages: [{ role: 'user', content }], max_tokens: 16, temperature: 0, logprobs: true });
    return r.choices[0].logprobs.content.map((t) => [t.bytes, t.logprob]);
  };
  const near = (a, b) => {
    assert.deepEqual(a.map((t) => t[0]), b.map((t) => t[0]));
    a.forEach((t, i) => assert.ok(Math.abs(t[1] - b[i][1]) <= 1e-4));
  };
  const listed = async () => (await client.models.list()).data.map((m) => m.id);
  /** Waits until what() holds. */
  const until = async (what) => {
    for (const end = Date.now() + 60000; Date.now() < end; await new Promise((r) => setTimeout(r, 50))) if (await what()) return;
    assert.fail(`not until now: ${what}`);
  };
  /** A stream of which one event has come; end() reads the rest. */
  const begin = async (model) => {
    const s = await client.completions.create({ model, prompt: 'hello', max_tokens: 200, temperature: 0, stream: true, ignore_eos: true });
    const it = s[Symbol.asyncIterator]();
    let text = (await it.next()).value.choices[0].text;
    return { end: async () => {
      for (let e = await it.next(); !e.done; e = await it.next()) {
        assert.equal(e.value.error, undefined);
        text += e.value.choices[0]?.text ?? '';
      }
      return text;
    } };
  };

  before(async () => {
    const make = (name, seed, ...more) => sluice('adapter', 'make', file('run.gguf'), name, '--rank', '4', '--alpha', '40', '--seed', `${seed}`, ...more);
    folders = { some: file('some'), watched: file('watched') };
    mkdirSync(folders.some, { recursive: true });
    mkdirSync(folders.watched, { recursive: true });
    sluice('random', '--shape', 'tiny-llama', '--type', 'f32', '--seed', '4', file('run.gguf'));
    for (const [name, seed] of [['a', 1], ['b', 2]]) {
      make(join(folders.some, `${name}.gguf`), seed);
      sluice('adapter', 'merge', file('run.gguf'), join(folders.some, `${name}.gguf`), '--type', 'f32', file(`${name}.m.gguf`));
    }
    make(join(folders.some, 'peft'), 3);
    cpSync(join(folders.some, 'peft'), join(folders.some, 'talks'), { recursive: true });
    writeFileSync(join(folders.some, 'talks', 'chat_template.jinja'), '{% for m in messages %}<<{{ m.content }}>>{% endfor %}');
    make(file('outside.gguf'), 9);
    symlinkSync(file('outside.gguf'), join(folders.some, 'link.gguf'));
    chmodSync(folder, 0o755); // the engine's user reads folders itself
    execFileSync('chmod', ['-R', 'a+rX', folder]);
    server = await startServer({
      edit: (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line + ['run', 'twin'].map((n) => entry(n, file('run.gguf'))).join('') +
          entry('merged-a', file('a.m.gguf')) + entry('merged-b', file('b.m.gguf')))
        .replace(/^  adapter_folders: \[\]\n/m, '  adapter_folders:\n' + entry('some', folders.some, '      model: run\n') +
          entry('watched', folders.watched, '      model: twin\n      watch: true\n      tiers: [paid]\n')),
      sets: ['engine.kv_type=f32', 'engine.backend=auto', 'engine.adapter_slots=2', 'engine.adapter_turn=1ms', 'gateway.threads=2',
        'gateway.metrics_public=true', ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
    client = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => {
    if (server) assert.equal(await server.stop(), 0, server.log());
    rmSync(folder, { recursive: true, force: true });
  });

  test('only an administrator loads, from the folders only', async () => {
    refused(await call('load', { lora_name: 'a', lora_path: 'a.gguf' }, 'paid'), 403);
    refused(await call('unload', { lora_name: 'a' }, 'free'), 403);
    assert.equal((await request(server.http, '/v1/load_lora_adapter', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' })).status, 401);
    for (const path of ['../outside.gguf', 'x/../a.gguf', file('outside.gguf'), '/etc/passwd', 'link.gguf', '..'])
      refused(await load('a', path), 400, 'lora_path');
    refused(await load('a', 'none.gguf'), 404, 'lora_path');
    for (const name of ['a b', 'a:b', 'ä', '../a', 'a\n', ''])
      (name === '../a' ? ok : (r) => refused(r, 400, 'lora_name'))(await load(name, 'a.gguf')); // dots and slashes are letters of a name
    ok(await unload('../a'));
    refused(await load('x'.repeat(129), 'a.gguf'), 400, 'lora_name');
    refused(await call('load', { lora_name: 'a' }), 400, 'lora_path');
    refused(await call('load', { lora_name: 7, lora_path: 'a.gguf' }), 400, 'lora_name');
    refused(await unload('nobody'), 404, 'lora_name');
    assert.ok(!(await listed()).some((id) => id.includes(':')));
  });

  test('loaded, replaced and unloaded under a stream', async () => {
    assert.deepEqual(ok(await load('x', 'a.gguf')), { object: 'adapter', status: 'loaded', lora_name: 'x' });
    const doc = JSON.parse((await request(server.http, '/openapi.json')).body);
    const list = JSON.parse((await request(server.http, '/v1/models', { headers: auth('paid') })).body);
    assert.deepEqual(violations(doc, { $ref: '#/components/schemas/ModelList' }, list), []);
    assert.equal(list.data.find((m) => m.id === 'run:x').parent, 'run');
    near(await answer('run:x'), await answer('merged-a'));
    near(await answer('x'), await answer('merged-a'));
    const before = await (await begin('run:x')).end();
    const stream = await begin('run:x');
    ok(await load('run:x', join(folders.some, 'b.gguf'))); // by its whole path
    near(await answer('run:x'), await answer('merged-b'));
    assert.equal(await stream.end(), before);
    const last = await begin('run:x');
    ok(await unload('x'));
    await assert.rejects(answer('run:x'), (e) => e.status === 404);
    assert.ok(!(await listed()).includes('run:x'));
    assert.notEqual(await last.end(), before);
    assert.match(await server.metrics(), /^sluice_engine_adapter_loads_total [1-9]/m);
  });

  test('a file that does not fit changes nothing', async () => {
    ok(await load('x', 'a.gguf'));
    copyFileSync(join(folders.some, 'b.gguf'), join(folders.some, 'half.gguf'));
    truncateSync(join(folders.some, 'half.gguf'), 5000);
    refused(await load('x', 'half.gguf'), 400, 'lora_path', /half\.gguf/);
    near(await answer('run:x'), await answer('merged-a'));
    ok(await unload('run:x'));
  });

  test('more of them than slots', async () => {
    const names = ['a', 'b', 'peft', 'talks'];
    for (const n of names) ok(await load(n, n.length === 1 ? `${n}.gguf` : n));
    const alone = {};
    for (const n of names) alone[n] = await answer(`run:${n}`);
    const all = await Promise.all([...names, ...names, ...names].map(async (n) => [n, await answer(`run:${n}`)]));
    for (const [n, got] of all) assert.deepEqual(got, alone[n]);
    for (const n of ['a', 'b']) near(alone[n], await answer(`merged-${n}`));
    const here = Number(/^sluice_engine_adapters_in_memory (\d+)$/m.exec(await server.metrics())[1]);
    assert.ok(here <= 2, `${here}`);
  });

  test('its own chat template is used', async () => {
    const n = async (model) => (await client.chat.completions.create({ model, messages: [{ role: 'user', content: 'hello' }], max_tokens: 1 })).usage.prompt_tokens;
    assert.notEqual(await n('run:talks'), await n('run:peft'));
    assert.equal(await n('run:peft'), await n('run'));
    const raw = await client.completions.create({ model: 'run:talks', prompt: '<<hello>>', max_tokens: 1 });
    assert.equal(await n('run:talks'), raw.usage.prompt_tokens);
  });

  test('a watched folder is followed, for its tiers', async () => {
    const put = (name) => { copyFileSync(join(folders.some, name), join(folders.watched, 'new')); renameSync(join(folders.watched, 'new'), join(folders.watched, 'w.gguf')); };
    put('a.gguf');
    await until(async () => (await listed()).includes('twin:w'));
    near(await answer('twin:w'), await answer('merged-a'));
    const free = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.free, maxRetries: 0 });
    await assert.rejects(answer('twin:w', 'hello', free), (e) => e.status === 404 && e.param === 'model');
    assert.ok(!(await free.models.list()).data.some((m) => m.id === 'twin:w'));
    put('b.gguf');
    const want = JSON.stringify((await answer('merged-b')).map((t) => t[0]));
    await until(async () => JSON.stringify((await answer('twin:w')).map((t) => t[0])) === want);
    rmSync(join(folders.watched, 'w.gguf'));
    await until(async () => !(await listed()).includes('twin:w'));
    await assert.rejects(answer('twin:w'), (e) => e.status === 404);
  });

  test('streams go on while adapters come and go', async () => {
    const names = Array.from({ length: 24 }, (_, i) => `s${i}`);
    const want = await answer('run:a');
    let over = false;
    const streams = Promise.all(Array.from({ length: 4 }, async () => {
      let n = 0;
      for (; !over; n++) assert.deepEqual(await answer('run:a'), want);
      return n;
    }));
    for (const [i, n] of names.entries()) ok(await load(n, i % 2 ? 'a.gguf' : 'b.gguf'));
    for (const [i, n] of names.entries()) ok(await load(n, i % 2 ? 'b.gguf' : 'a.gguf')); // replaced
    for (const n of names) ok(await unload(n));
    over = true;
    for (const n of await streams) assert.ok(n > 0);
    assert.ok(!(await listed()).some((id) => id.startsWith('run:s')));
  });
});
