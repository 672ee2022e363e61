// SPDX-License-Identifier: Apache-2.0
// Adapters of the configuration, through a released client: each is a model MODEL:NAME with a parent, and answers as its
// merged model does; by its own name too; side by side with its base and another. Tiers, metrics and refusals know it by
// its name. One that does not fit is failed while the rest serves.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { request, SLUICE, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-adapters-'));
const file = (name) => join(folder, name);
const sluice = (...args) => execFileSync(SLUICE, ['model', ...args]);
const entry = (name, path, more = '') => `    - name: ${name}\n      path: ${path}\n${more}`;

/** The configuration with a model `base`, its merged twins and four adapters. */
const edit = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line +
    entry('base', file('base.gguf')) + entry('merged-style', file('style.merged.gguf')) + entry('merged-facts', file('facts.merged.gguf')))
  .replace(/^  adapters: \[\]\n/m, '  adapters:\n' + entry('style', file('style.gguf'), '      model: base\n') +
    entry('facts', file('facts'), '      model: base\n') + entry('other', file('other.gguf'), '      model: base\n') +
    entry('base', file('style.gguf'), '      model: base\n'));

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
    sluice('adapter', 'make', file('base.gguf'), file('style.gguf'), '--rank', '8,q=16,down=4', '--seed', '1');
    sluice('adapter', 'make', file('base.gguf'), file('facts'), '--rank', '4', '--targets', 'q,v,up', '--rslora', '--alpha', '3', '--seed', '2', '--type', 'bf16');
    sluice('adapter', 'make', file('qwen.gguf'), file('other.gguf'));
    for (const name of ['style', 'facts'])
      sluice('adapter', 'merge', file('base.gguf'), file(name === 'style' ? 'style.gguf' : name), '--type', 'f32', file(`${name}.merged.gguf`));
    server = await startServer({ edit, sets: ['gateway.tiers.free.models=base', 'engine.kv_type=f32', 'engine.backend=auto',
      ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
    client = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('the list has each with its parent, and the failed one', async () => {
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
      const [plain, style, facts, wantStyle, wantFacts, alias] = await Promise.all(
        ['base', 'base:style', 'base:facts', 'merged-style', 'merged-facts', 'style'].map((m) => answer(m, prompt)));
      same(style, wantStyle);
      same(facts, wantFacts);
      assert.deepEqual(alias, style); // to the last bit
      assert.equal(style.model, 'base:style');
      assert.notDeepEqual(plain.logprobs, style.logprobs);
      assert.notDeepEqual(facts.logprobs, style.logprobs);
      assert.deepEqual(await answer('base', prompt), plain);
    }
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
    await assert.rejects(answer('base:other', 'hello'), (e) => e.status === 503 && e.code === 'model_failed');
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
