// SPDX-License-Identifier: Apache-2.0
// A model replaced under traffic: a reload gives all users of a name another variant, and the former one the weight 0.
// Running streams end on the model that they began with, new requests get the new one, and the hottest prompts are computed
// by it beforehand.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { hasRedis, localOnly, request, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const PATIENCE = 120_000, STREAMS = 64;
const OLD = '    - {name: old, of: shop, model: demo-small, weight: 1}\n';
const NEW = '    - {name: fresh, of: shop, model: demo-large, weight: 1}\n    - {name: old, of: shop, model: demo-small, weight: 0}\n';
const edit = (yaml) => yaml.replace('  variants: []\n', `  variants:\n${OLD}`);
const sets = ['gateway.threads=2', 'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off', 'gateway.tiers.paid.max_output=100000',
  ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.paid.${l}=0`)];
const ask = (server, text, more = {}) => chat(server.http, server.keys.paid, { model: 'shop', temperature: 0, messages: user(text), ...more });
const figure = async (server, name, labels) => sum(samples(await server.metrics()), name, labels);

/** As an editor and SIGHUP would. */
async function replace(server) {
  const file = join(server.state, 'sluice.yaml'), text = readFileSync(file, 'utf8').replace(OLD, NEW);
  const before = server.log().split(' reloaded').length;
  writeFileSync(file, text);
  assert.equal((await request(server.http, '/v1/admin/reload', { method: 'POST', headers: { authorization: `Bearer ${server.keys.admin}` } })).status, 202);
  assert.ok(await until(() => server.log().split(' reloaded').length > before, PATIENCE), server.log());
}

test('64 streams end on the model that they began with, and none waits longer than two steps', async () => {
  const server = await startServer({ echo: true, sets: [...sets, 'engine.echo.ttft=0', 'engine.echo.stamp=true', 'engine.echo.step=10ms',
    'gateway.limits.window_tokens=1024'], edit }); // credit for all of a stream: a gateway that the machine lets wait makes no gap
  try {
    let half = 0;
    const onEvent = (_, r) => { if (r.text.length > 2000 && !r.half) { r.half = true; half++; } };
    const streams = Array.from({ length: STREAMS }, () => chat(server.http, server.keys.paid, { model: 'shop', max_tokens: 300, messages: user('go') }, { onEvent }));
    assert.ok(await until(() => half === STREAMS, PATIENCE), `${half} are under way`);
    await replace(server);
    // Each thread takes the new configuration between two events.
    const news = () => Promise.all(Array.from({ length: 8 }, async () => (await ask(server, 'hello', { max_tokens: 2 })).headers['x-sluice-variant']));
    assert.ok(await until(async () => (await news()).every((v) => v === 'fresh'), PATIENCE));
    const all = await Promise.all(streams);
    for (const r of all) assert.deepEqual([r.status, r.done, r.errors.length, r.headers['x-sluice-variant'], r.finish], [200, true, 0, 'old', 'length']);
    // A token's stamp is its step's time, so the stamps of all streams together count the steps.
    const stamps = all.map((r) => [...r.text.matchAll(/\bt(\d{20})\b/g)].map((m) => m[1]));
    const steps = new Map([...new Set(stamps.flat())].sort().map((s, i) => [s, i]));
    assert.ok(steps.size >= 300, `${steps.size} steps`);
    for (const own of stamps) {
      assert.equal(own.length, stamps[0].length);
      for (let i = 1; i < own.length; i++) assert.ok(steps.get(own[i]) - steps.get(own[i - 1]) <= 2, `a gap of ${steps.get(own[i]) - steps.get(own[i - 1])} steps`);
    }
    assert.ok(await figure(server, 'sluice_e2e_seconds_count', { model: 'shop', variant: 'old' }) >= STREAMS);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

test('the hottest prompts are computed by the new model before they are asked for', { skip: hasRedis() ? false : 'redis-server is not installed', ...localOnly('what it has computed before it is asked') }, async () => {
  const server = await startServer({ sets, edit });
  const respond = async (body) => {
    const r = await request(server.http, '/v1/responses', { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'shop', temperature: 0, max_output_tokens: 16, ...body }) });
    assert.equal(r.status, 200, r.body);
    return { ...JSON.parse(r.body), variant: r.headers['x-sluice-variant'] };
  };
  try {
    assert.ok(await until(async () => await figure(server, 'sluice_cache_up') === 2, PATIENCE));
    const say = { instructions: 'You answer questions about rivers and towns, kindly and in one sentence, and you never forget to be polite.' };
    const first = await respond({ ...say, input: 'What is the capital of France? Please tell me in one sentence.' });
    assert.deepEqual([first.model, first.variant], ['shop', 'old']);
    assert.ok(first.usage.input_tokens > 32, 'pages enough to be found again');
    let decoded;
    assert.ok(await until(async () => { decoded = await figure(server, 'sluice_engine_decode_tokens_total'); return decoded >= first.usage.output_tokens - 1; }, PATIENCE));
    await replace(server);
    assert.ok(await until(async () => await figure(server, 'sluice_prefixes_warmed_total') === 1, PATIENCE, 100), server.log());
    assert.equal(await figure(server, 'sluice_engine_decode_tokens_total'), decoded, 'no token was made');
    assert.ok(await until(async () => (await respond({ ...say, store: false, input: 'Hello.' })).variant === 'fresh', PATIENCE));
    const next = await respond({ ...say, previous_response_id: first.id, input: 'And of Spain?' });
    assert.equal(next.variant, 'fresh');
    assert.ok(next.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 16, `${next.usage.input_tokens_details.cached_tokens} of ${first.usage.input_tokens}`);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

test('an answer continues on the model that began it, after a kill of its gateway', { skip: hasRedis() ? false : 'redis-server is not installed' }, async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=0', 'engine.echo.rate=20', 'gateway.variants.old.of=shop', 'gateway.variants.old.model=demo-large', 'gateway.variants.old.weight=1'] });
  try {
    // The large model's words begin with a tilde.
    const words = Array.from({ length: 60 }, (_, i) => `w${i}`), said = ['differ@0', ...words].map((w) => `~${w}`).join(' ');
    let id;
    const cut = chat(server.http, server.keys.paid, { model: 'shop', temperature: 0, messages: user(`differ@0 ${words.join(' ')}`) },
      { headers: { 'x-sluice-events': '1' }, onEvent: (e, r) => { if (r.text.length > 30) id = e.id; } });
    assert.ok(await until(() => id, PATIENCE));
    process.kill((await server.pids()).gateway, 'SIGKILL');
    await cut;
    assert.ok(await until(async () => { try { return (await request(server.http, '/ready')).status === 200; } catch { return false; } }, PATIENCE, 100));
    const r = await request(server.http, `/v1/streams/${id}`, { headers: { authorization: `Bearer ${server.keys.paid}`, 'last-event-id': '0' } });
    const events = [...r.body.matchAll(/^data: (\{.*\})$/gm)].map((m) => JSON.parse(m[1]));
    assert.equal(events.map((e) => e.choices?.[0]?.delta?.content ?? '').join('').trim(), said);
    assert.ok(events.every((e) => e.model === 'shop' && e.error === undefined));
    assert.match(server.log(), /continuing an answer whose gateway has died/);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});
