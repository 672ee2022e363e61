// SPDX-License-Identifier: Apache-2.0
// Variants of a model over the wire (gateway.variants): a user's variant, its settings, what clients, records and metrics
// are told, a rollback that the store keeps over a kill and for a second gateway, and an administrator's word. The prompts
// hold a canary that must be in no record, no metric and no line of the log.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { hasRedis, localOnly, request, SLUICE, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';
import { startSecondGateway } from './second.mjs';

const PATIENCE = 30_000, CANARY = 'quokka-5521';
const key = 'sk-key-of-variants', admin = 'sk-admin-of-variants';
const digest = (k) => createHash('sha256').update(k).digest('hex');
const variant = (name, settings) => Object.entries(settings).map(([k, v]) => `gateway.variants.${name}.${k}=${v}`);
const keys = [`gateway.keys.both.sha256=${digest(key)}`, 'gateway.keys.both.tier=paid', `gateway.keys.head.sha256=${digest(admin)}`, 'gateway.keys.head.tier=admin',
  'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off', 'gateway.limits.streams_per_connection=1000'];
const pair = [...variant('base', { of: 'shop', model: 'demo-small', weight: 60 }), ...variant('v2', { of: 'shop', model: 'demo-large', weight: 40 })];
const quick = ['engine.echo.ttft=0', 'engine.echo.rate=100000'];

const ask = (base, who, text, more = {}) => chat(base, key, { model: 'shop', user: who, messages: user(text), ...more });
const variantOf = async (base, who) => (await ask(base, who, 'hello')).headers['x-sluice-variant'];
const get = async (base, path) => JSON.parse((await request(base, path, { headers: { authorization: `Bearer ${key}` } })).body);
const administer = async (base, body) => {
  const r = await request(base, '/v1/admin/variants', { method: body ? 'POST' : 'GET', headers: { authorization: `Bearer ${admin}`, ...(body && { 'content-type': 'application/json' }) }, body: body && JSON.stringify(body) });
  return { status: r.status, value: JSON.parse(r.body) };
};
const stateOf = async (base, name) => (await administer(base)).value.variants.find((v) => v.variant === name);

/** Whether the store has a variant that is rolled back. */
function kept(server) {
  const redis = (...args) => spawnSync('redis-cli', ['-s', join(server.state, 'run', 'redis.sock'), ...args], { encoding: 'utf8' }).stdout.trim().split('\n');
  return redis('KEYS', '*sluice-variants*').some((k) => k !== '' && redis('HGET', k, 'rolled')[0] === '1');
}

test('bad variants are refused with their key', () => {
  const why = (sets) => {
    try { execFileSync(SLUICE, ['config', 'check', '-c', 'etc/sluice.yaml', ...sets.flatMap((s) => ['--set', s])], { encoding: 'utf8', stdio: 'pipe' }); } catch (e) { return e.stderr + e.stdout; }
    return 'good';
  };
  const good = { of: 'shop', model: 'demo-small', weight: 1 };
  assert.equal(why([...variant('base', good), ...variant('b', { ...good, model: 'demo-large', temperature: 0.5 }), 'gateway.default_model=shop', 'gateway.tiers.free.models=shop,auto']), 'good');
  for (const [sets, said] of [
    [variant('base', { ...good, model: 'none-such' }), /gateway\.variants\.base\.model: no model has that name/],
    [variant('base', { ...good, model: 'auto' }), /gateway\.variants\.base\.model/],
    [variant('base', { ...good, of: 'auto' }), /gateway\.variants\.base\.of: a name is made of/],
    [variant('base', { ...good, of: 'two words' }), /gateway\.variants\.base\.of/],
    [variant('a b', good), /gateway\.variants\.a b\.name/],
    [variant('base', { ...good, weight: 0 }), /gateway\.variants\.base\.weight: the first variant of a name is its base/],
    [variant('base', { ...good, weight: -1 }), /gateway\.variants\.base\.weight/],
    [variant('base', { ...good, shadow: 0.5 }), /gateway\.variants\.base\.shadow/],
    [variant('base', { ...good, temperature: -0.5 }), /gateway\.variants\.base\.temperature: must be at least 0/],
    [variant('base', { ...good, min_p: -0.5 }), /gateway\.variants\.base\.min_p/],
    [variant('base', { of: 'shop', weight: 1 }), /gateway\.variants\.base\.model|model: must be given/],
    [[...variant('base', good), ...variant('b', { of: 'other', model: 'shop', weight: 1 })], /gateway\.variants\.b\.model/],
    [Array.from({ length: 9 }, (_, i) => variant(`v${i}`, good)).flat(), /gateway\.variants\.v8\.of: a name has at most 8 variants/],
    [['gateway.default_model=shop'], /gateway\.default_model: no model is named 'shop'/],
  ]) assert.match(why(sets), said, sets.join(' '));
});

describe('one gateway of two threads', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-variants-'));
  const file = join(folder, 'requests.jsonl');
  let server;
  before(async () => {
    chmodSync(folder, 0o777);
    server = await startServer({ echo: true, sets: [...keys, ...pair, ...quick, 'gateway.threads=2', `log.requests.to=${file}`, 'gateway.default_model=shop',
      ...variant('short', { of: 'demo-small', model: 'demo-small', weight: 1, max_tokens: 3 })] });
  });
  after(async () => { assert.equal(await server?.stop(), 0, server?.log()); rmSync(folder, { recursive: true, force: true }); });

  test('clients see one model', async () => {
    const ids = (await get(server.http, '/v1/models')).data.map((m) => m.id);
    assert.deepEqual(ids, ['demo-small', 'demo-large', 'shop', 'auto']);
    assert.equal((await get(server.http, '/v1/models/shop')).id, 'shop');
    const r = await ask(server.http, 'a', 'one two');
    assert.equal(r.text, 'one two');
    assert.ok(r.events.every((e) => e.model === 'shop'), JSON.stringify(r.events[0]));
    for (const [path, body] of [['/v1/responses', { input: 'hi' }], ['/v1/completions', { prompt: 'hi' }], ['/v1/messages', { max_tokens: 5, messages: user('hi') }], ['/api/chat', { stream: false, messages: user('hi') }]]) {
      const whole = await request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify({ model: 'shop', ...body }) });
      assert.equal(whole.status, 200, whole.body);
      assert.equal(JSON.parse(whole.body).model, 'shop');
      assert.match(whole.headers['x-sluice-variant'], /^(base|v2)$/, path);
    }
    assert.match((await chat(server.http, key, { model: 'default', messages: user('x') })).headers['x-sluice-variant'], /^(base|v2)$/);
    assert.equal((await chat(server.http, key, { model: 'demo-large', messages: user('x') })).headers['x-sluice-variant'], undefined);
  });

  test("a variant's settings count where a request has none", async () => {
    const capped = await chat(server.http, key, { model: 'demo-small', messages: user('a b c d e f') });
    assert.deepEqual([capped.finish, capped.text.trim(), capped.headers['x-sluice-variant']], ['length', 'a b c', 'short']);
    const own = await chat(server.http, key, { model: 'demo-small', max_tokens: 5, messages: user('a b c d e f') });
    assert.equal(own.text.trim(), 'a b c d e');
  });

  test('a user keeps its variant: over threads, a kill and a change of weights', async () => {
    const users = Array.from({ length: 40 }, (_, i) => `user-${i}`), before = new Map();
    for (const u of users) before.set(u, await variantOf(server.http, u));
    assert.equal(new Set(before.values()).size, 2);
    for (const u of users) assert.equal(await variantOf(server.http, u), before.get(u), u);
    // Without a user the conversation counts, and without that the key.
    const named = async (headers) => (await chat(server.http, key, { model: 'shop', messages: user('x') }, { headers })).headers['x-sluice-variant'];
    const talks = [];
    for (let i = 0; i < 20; i++) talks.push(await named({ 'x-sluice-conversation': `talk-${i}` }));
    assert.equal(new Set(talks).size, 2);
    for (let i = 0; i < 20; i++) assert.equal(await named({ 'x-sluice-conversation': `talk-${i}` }), talks[i]);
    assert.equal(await named({}), await named({}));

    process.kill((await server.pids()).gateway, 'SIGKILL');
    assert.ok(await until(async () => { try { return (await request(server.http, '/ready')).status === 200 && (await stateOf(server.http, 'v2'))?.state === 'running'; } catch { return false; } }, PATIENCE, 200));
    for (const u of users) assert.equal(await variantOf(server.http, u), before.get(u), u);

    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', weight: 10 })).status, 200);
    for (const u of users) {
      const now = await variantOf(server.http, u);
      assert.ok(now === before.get(u) || now === 'base', `${u} from ${before.get(u)} to ${now}`);
    }
    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', weight: null })).status, 200);
    for (const u of users) assert.equal(await variantOf(server.http, u), before.get(u), u);
  });

  test('administrators are told what is wrong', async () => {
    for (const [body, status, code] of [[{}, 404, 'model_not_found'], [{ model: 'demo-large', variant: 'v2', weight: 1 }, 404, 'model_not_found'], [{ model: 'shop', variant: 'base', weight: 1 }, 404, 'variant_not_found'],
      [{ model: 'shop', weight: 1 }, 404, 'variant_not_found'], [{ model: 'shop', variant: 'v2' }, 400, 'invalid_value'], [{ model: 'shop', variant: 'v2', action: 'restore', weight: 1 }, 400, 'invalid_value'],
      [{ model: 'shop', variant: 'v2', action: 'dance' }, 400, 'invalid_value'], [{ model: 'shop', variant: 'v2', action: 5, weight: 1 }, 400, 'invalid_value'],
      [{ model: ['shop'], variant: 'v2', weight: 1 }, 404, 'model_not_found'], [{ model: 'shop', variant: 'v2', weight: 1, more: 'x'.repeat(4096) }, 400, null],
      [{ model: 'shop', variant: 'v2', weight: 1001 }, 400, 'invalid_value'], [{ model: 'shop', variant: 'v2', weight: '1' }, 400, 'invalid_value']]) {
      const r = await administer(server.http, body);
      assert.deepEqual([r.status, r.value.error?.code], [status, code], JSON.stringify(body));
    }
  });

  test('all users go to another variant while 64 streams run: none is lost', async () => {
    const text = `slow-large@3000 ${Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ')}`;
    let begun = 0;
    // slow-large: only on the large model, whose streams have begun and are far from their end when the weight changes.
    const streams = Array.from({ length: 64 }, (_, i) => ask(server.http, `stream-${i}`, text, { max_tokens: 1000 }));
    assert.ok(await until(async () => (await get(server.http, '/v1/usage')).running >= 10, PATIENCE));
    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', weight: 0 })).status, 200);
    const fresh = await Promise.all(Array.from({ length: 20 }, (_, i) => variantOf(server.http, `stream-${i}`)));
    assert.deepEqual([...new Set(fresh)], ['base']);
    for (const r of await Promise.all(streams)) assert.deepEqual([r.status, r.done, r.errors.length, r.text], [200, true, 0, text]);
    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', weight: null })).status, 200);
  });

  test('one that fails is rolled back, once, and stays so after a kill', localOnly('when it begins to refuse what fails there: all requests have one key'), async () => {
    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', action: 'restore' })).status, 200);
    const rollbacks = async () => sum(samples(await server.metrics()), 'sluice_variant_rollbacks_total');
    const n = { base: 0, v2: 0 }, before = await rollbacks(); // the slow streams may have been one
    for (let i = 0; n.v2 === 0 || (await stateOf(server.http, 'v2')).state === 'running'; i++) {
      assert.ok(i < 40, JSON.stringify(n));
      const batch = await Promise.all(Array.from({ length: 10 }, (_, k) => ask(server.http, `f${i}-${k}`, `fail-large@0 ${CANARY}`)));
      for (const r of batch) n[r.headers['x-sluice-variant']]++;
      await new Promise((r) => setTimeout(r, 60)); // administrators may not look more often
    }
    assert.ok(n.v2 >= 7 && n.v2 < 60, JSON.stringify(n));
    const state = await stateOf(server.http, 'v2');
    assert.deepEqual([state.state, state.cause, state.weight, state.configured_weight], ['rolled_back', 'errors', 0, 40]);
    assert.ok(state.evidence.errors >= 1 && state.failed.variant === state.answers.variant && state.failed.base === 0, JSON.stringify(state));
    const said = server.log().match(/variant v2 of shop is rolled back for worse errors: \d+ answers/g);
    assert.equal(said?.length, 1, server.log().split("\n").filter((l) => /variant/.test(l)).join("\n"));
    for (let i = 0; i < 20; i++) assert.equal(await variantOf(server.http, `f0-${i}`), 'base');

    const all = samples(await server.metrics());
    assert.equal(sum(all, 'sluice_variant_rolled_back', { model: 'shop', variant: 'v2' }), 1);
    assert.equal(await rollbacks(), before + 1);
    assert.equal(sum(all, 'sluice_variant_weight', { variant: 'v2' }), 0);
    assert.ok(sum(all, 'sluice_variant_answers_total', { variant: 'v2', end: 'failed' }) >= 7);
    assert.ok(sum(all, 'sluice_e2e_seconds_count', { model: 'shop', variant: 'base' }) > 0);

    if (hasRedis()) {
      assert.ok(await until(() => kept(server), PATIENCE, 100), 'the store has not been told');
      process.kill((await server.pids()).gateway, 'SIGKILL');
      assert.ok(await until(async () => { try { return (await stateOf(server.http, 'v2'))?.state === 'rolled_back'; } catch { return false; } }, PATIENCE, 200));
      assert.equal((await stateOf(server.http, 'v2')).cause, 'errors');
      assert.equal(server.log().match(/variant v2 of shop is rolled back for worse errors/g).length, 1, 'logged again');
    }
    assert.equal((await administer(server.http, { model: 'shop', variant: 'v2', action: 'restore' })).value.variants[1].state, 'running');
    assert.ok((await Promise.all(Array.from({ length: 30 }, (_, i) => variantOf(server.http, `g${i}`)))).includes('v2'));
    assert.match(server.log(), /administrator: restore variant v2 of shop, key head/);
  });

  test('records name the variant and hold no text', async () => {
    const id = 'variant-record-1';
    const r = await chat(server.http, key, { model: 'shop', user: 'a', messages: user(CANARY) }, { headers: { 'x-request-id': id } });
    const line = await until(() => existsSync(file) && readFileSync(file, 'utf8').split('\n').filter(Boolean).map((l) => JSON.parse(l)).find((l) => l.request_id === id), PATIENCE);
    assert.deepEqual([line.model, line.variant], ['shop', r.headers['x-sluice-variant']]);
    for (const text of [readFileSync(file, 'utf8'), await server.metrics(), server.log(), JSON.stringify((await administer(server.http)).value)]) assert.ok(!text.includes(CANARY));
  });
});

describe('a shadow', () => {
  let server;
  before(async () => {
    server = await startServer({ echo: true, sets: [...keys, ...quick, 'engine.echo.slots=1', ...variant('base', { of: 'shop', model: 'demo-small', weight: 1 }), ...variant('next', { of: 'shop', model: 'demo-large', shadow: 1 })] });
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  const shadows = async (end) => sum(samples(await server.metrics()), 'sluice_variant_shadows_total', { variant: 'next', ...(end && { end }) });
  const ended = (end, n) => until(async () => await shadows(end) === n, PATIENCE);

  test('gets a copy of what is answered, which costs nobody anything', localOnly('the ids of its tokens, which copies are compared by'), async () => {
    const tokens = async () => sum(samples(await server.metrics()), 'sluice_tokens_total', { tier: 'paid' });
    const before = await tokens();
    const r = await ask(server.http, 'a', 'differ@0 one two', { stream_options: { include_usage: true } });
    assert.deepEqual([r.text, r.headers['x-sluice-variant']], ['differ@0 one two', 'base']);
    assert.ok(await ended('done', 1));
    assert.equal((await ask(server.http, 'a', 'one two three')).text, 'one two three');
    assert.ok(await ended('done', 2));
    assert.equal((await ask(server.http, 'a', 'fail-large@1 two three')).text, 'fail-large@1 two three');
    assert.ok(await ended('failed', 1));
    const all = samples(await server.metrics());
    assert.equal(sum(all, 'sluice_variant_shadow_differs_total', { variant: 'next', in: 'first_token' }), 1);
    assert.equal(sum(all, 'sluice_variant_shadow_differs_total', { variant: 'next', in: 'finish_reason' }), 0);
    assert.equal(sum(all, 'sluice_variant_shadow_tokens_total', { variant: 'next', of: 'copy' }), sum(all, 'sluice_variant_shadow_tokens_total', { variant: 'next', of: 'answer' }));
    assert.equal(sum(all, 'sluice_ttft_seconds_count', { tier: 'shadow', model: 'shadow:shop' }), 3);
    assert.equal(sum(all, 'sluice_answer_tokens_count', { model: 'shop' }), 3, 'only what was sent');
    assert.equal(sum(all, 'sluice_variant_answers_total', { variant: 'next' }), 0);
    assert.ok(r.usage.total_tokens > 0);
    assert.equal(await tokens(), before + sum(all, 'sluice_prompt_tokens_sum', { model: 'shop' }) + sum(all, 'sluice_answer_tokens_sum', { model: 'shop' }), 'tokens of users only');
    assert.equal((await get(server.http, '/v1/usage')).running, 0);
  });

  test('is not asked while something waits, and stops when something comes to wait', localOnly('what waits there for one model'), async () => {
    const large = (text) => chat(server.http, key, { model: 'demo-large', messages: user(text) });
    const held = [0, 1].map(() => large('hang-large@1 a b c'));
    // One runs, one waits for the only slot of the large model.
    assert.ok(await until(async () => sum(samples(await server.metrics()), 'sluice_engine_waiting') === 1, PATIENCE));
    const skipped = await shadows('skipped');
    assert.equal((await ask(server.http, 'a', 'one two three')).text, 'one two three');
    assert.ok(await ended('skipped', skipped + 1));
    process.kill((await server.pids()).engine, 'SIGKILL'); // both end
    await Promise.all(held);
    assert.ok(await until(async () => (await ask(server.http, 'a', 'x')).text === 'x', PATIENCE, 200));
    const interrupted = await shadows('interrupted');
    assert.ok(await until(async () => await shadows('done') + await shadows('skipped') > 0, PATIENCE));
    assert.equal((await ask(server.http, 'a', 'hang-large@1 b c')).text, 'hang-large@1 b c');
    // Its copy hangs in the large model's slot, until a user wants that.
    assert.ok(await until(async () => sum(samples(await server.metrics()), 'sluice_engine_running') === 1, PATIENCE));
    assert.equal((await large('mine')).text, 'mine');
    assert.equal(await shadows('interrupted'), interrupted + 1);
  });
});

describe('two gateways on one store', { skip: hasRedis() ? false : 'redis-server is not installed' }, () => {
  let server, other;
  before(async () => {
    server = await startServer({ echo: true, sets: [...keys, ...pair, ...quick] });
    other = await startSecondGateway(server, [...keys, ...pair]);
  });
  after(async () => { other?.stop(); assert.equal(await server?.stop(), 0, server?.log()); });

  test('agree on users, on evidence and on what was decided', localOnly('when it begins to refuse what fails there: all requests have one key'), async () => {
    const users = Array.from({ length: 30 }, (_, i) => `user-${i}`);
    for (const u of users) assert.equal(await variantOf(server.http, u), await variantOf(other.http, u), u);
    const both = await until(async () => {
      const [a, b] = [await stateOf(server.http, 'v2'), await stateOf(other.http, 'v2')];
      return a.answers.variant + a.answers.base === 60 && b.answers.variant + b.answers.base === 60 && [a, b];
    }, PATIENCE, 200);
    assert.ok(both, 'the store has not added them up');
    assert.deepEqual(both[0].answers, both[1].answers);
    for (let i = 0; (await stateOf(server.http, 'v2')).state === 'running'; i++) {
      assert.ok(i < 60);
      await Promise.all(Array.from({ length: 10 }, (_, k) => ask(server.http, `f${i}-${k}`, 'fail-large@0 x')));
      await new Promise((r) => setTimeout(r, 60));
    }
    assert.ok(await until(async () => (await stateOf(other.http, 'v2')).state === 'rolled_back', PATIENCE, 200));
    assert.equal((await stateOf(other.http, 'v2')).cause, 'errors');
    assert.equal(`${server.log()}${other.log()}`.match(/variant v2 of shop is rolled back/g).length, 1);
    assert.equal((await administer(other.http, { model: 'shop', variant: 'v2', action: 'restore' })).status, 200);
    assert.ok(await until(async () => (await stateOf(server.http, 'v2')).state === 'running', PATIENCE, 200));
  });
});
