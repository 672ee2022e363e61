// SPDX-License-Identifier: Apache-2.0
// One tenant against the others: free keys fan out as far as they can (lists of prompts as text and as ids, n, best_of, many
// keys), while a paid one asks. Every paid request is answered, with the limits of the shipped tiers and with tiers that have
// next to none, where it is the engine's queue that is flooded; on the echo engine and on a real model.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import { metric, until } from './client.mjs';
import { request, startServer } from './harness.mjs';

const WAIT_MS = 120_000; // for what takes a second or two
const MANY = 40;
const PAID = 80;
const FREE = ['free-1', 'free-2', 'free-3'];
const CROWD = Array.from({ length: MANY }, (_, i) => `crowd-${i}`);
const keyOf = (name) => `sk-test-tenants-${name}`;
const keyEntry = (name, tier) => `    - name: ${name}\n      sha256: ${createHash('sha256').update(keyOf(name)).digest('hex')}\n      tier: ${tier}\n`;

/** The shipped tiers, with keys; wide: what a key may have at once is no limit, so that all of a flood reaches the engine. */
const edit = (wide) => (yaml) => {
  const keys = [...FREE, ...CROWD].map((n) => keyEntry(n, 'free')).join('') + keyEntry('paid', 'paid');
  let out = yaml.replace('  keys: []\n', `  keys:\n${keys}`);
  assert.notEqual(out, yaml);
  if (wide) out = out.replace('concurrency: 4\n', 'concurrency: 4096\n').replace('when_late: refuse', 'when_late: queue');
  return out;
};

/** Floods whose requests are made again as soon as they end, until stop() ends them all. */
class Flood {
  constructor(server) { this.server = server; this.open = new Set(); this.statuses = new Map(); this.stopped = false; this.params = new Set(); }

  send(key, body) {
    if (this.stopped) return;
    const req = http.request(new URL('/v1/completions', this.server.http), { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${keyOf(key)}`, 'content-type': 'application/json' } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => { text += d; }).on('error', () => {}).on('close', () => {
        this.open.delete(req);
        this.statuses.set(res.statusCode, (this.statuses.get(res.statusCode) ?? 0) + 1);
        if (res.statusCode === 400) this.params.add(JSON.parse(text).error.param);
        else setTimeout(() => this.send(key, body), 50); // what is refused comes again, but the machine is to do more than refuse
      });
    });
    req.on('error', () => this.open.delete(req));
    this.open.add(req);
    req.end(JSON.stringify(body));
  }

  stop() {
    this.stopped = true;
    for (const req of this.open) req.destroy();
  }
}

const words = (i) => `repeat after me ${i}`;
const texts = (n) => Array.from({ length: n }, (_, i) => words(i));
const ids = (n) => Array.from({ length: n }, (_, i) => [40 + i % 50, 41, 42 + i % 7]);
const LONG = { model: 'demo-small', max_tokens: 150, ignore_eos: true, seed: 1 };
// On the echo engine, which pre-empts nobody, answers are short enough that one waits for the end of some.
const SIZES = [128, 128, 32]; // together just what the engine has room for
const SHAPES = {
  'lists of 128, 128 and 32 prompts': (f) => SIZES.forEach((n, i) => f.send(FREE[i], { ...LONG, prompt: texts(n) })),
  'lists of ids': (f) => SIZES.forEach((n, i) => f.send(FREE[i], { ...LONG, prompt: ids(n) })),
  'n': (f) => FREE.forEach((k) => { for (let i = 0; i < 24; i++) f.send(k, { ...LONG, prompt: words(i), n: 4, seed: i }); }),
  'best_of of lists': (f) => SIZES.forEach((n, i) => f.send(FREE[i], { ...LONG, prompt: texts(n / 4), n: 1, best_of: 4 })),
  'streams of lists': (f) => SIZES.forEach((n, i) => f.send(FREE[i], { ...LONG, prompt: texts(n), stream: true })),
  'many keys': (f) => CROWD.forEach((k) => f.send(k, { ...LONG, prompt: texts(16) })),
};

/** One paid request: its status, and what it says if that is not 200. */
function ask(server, i, stream) {
  return new Promise((done) => {
    const req = http.request(new URL('/v1/completions', server.http), { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${keyOf('paid')}`, 'content-type': 'application/json' } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => { text += d; }).on('error', () => {}).on('close', () => done({ status: res.statusCode, text }));
    });
    req.on('error', (e) => done({ status: 0, text: String(e) }));
    req.end(JSON.stringify({ model: 'demo-small', prompt: `paid ${i} asks`, max_tokens: 4, ignore_eos: true, stream }));
  });
}

/** All paid requests, `width` at a time. */
async function askAll(server, width = 16) {
  const out = [];
  let next = 0;
  await Promise.all(Array.from({ length: width }, async () => {
    while (next < PAID) { const i = next++; out.push(await ask(server, i, i % 2 === 1)); }
  }));
  return out;
}

async function runningOf(server, key) {
  const r = await request(server.http, '/v1/usage', { headers: { authorization: `Bearer ${keyOf(key)}` } });
  return JSON.parse(r.body).running;
}

async function isIdle(server) {
  const m = await server.metrics();
  return metric(m, 'sluice_engine_running') === 0 && metric(m, 'sluice_engine_waiting') === 0;
}

const ECHO = ['engine.echo.slots=32', 'engine.echo.waiting=256', 'engine.echo.rate=400', 'engine.echo.ttft=2ms'];
const MODEL = ['engine.threads=1'];

for (const [kind, echo, sets] of [['echo', true, ECHO], ['a real model', false, MODEL]])
  for (const wide of [false, true])
    describe(`${kind}, ${wide ? 'free keys without a bound' : 'the shipped tiers'}`, { timeout: 1_200_000 }, () => {
      let server;
      before(async () => {
        server = await startServer({ echo, edit: edit(wide), sets: [...sets,
          ...['pace_tps', 'requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.free.${l}=0`)] });
      });
      after(async () => assert.equal(await server?.stop(), 0, server?.log()));

      for (const [name, start] of Object.entries(SHAPES))
        test(`${name}: every paid request is answered`, async () => {
          const flood = new Flood(server);
          start(flood);
          try {
            const full = !wide ? FREE.length : /^(n|best_of.*)$/.test(name) ? 64 : 256;
            assert.ok(await until(async () => {
              const m = await server.metrics();
              return metric(m, 'sluice_engine_running') + metric(m, 'sluice_engine_waiting') >= full;
            }, WAIT_MS), `the flood fills the engine: ${await server.metrics()}`);
            const answers = await askAll(server);
            const bad = answers.filter((a) => a.status !== 200 || !/"finish_reason":\s*"length"/.test(a.text) || /"error"/.test(a.text));
            assert.equal(bad.length, 0, `${bad.length} of ${answers.length}: ${JSON.stringify(bad.slice(0, 3))}`);
            assert.ok(await until(() => flood.open.size > 0, WAIT_MS), `the flood goes on: ${JSON.stringify([...flood.statuses])}`);
            // What a key may have at once, and no more, whatever it asks for.
            for (const k of wide ? [] : [...FREE, CROWD[0]]) assert.ok(await runningOf(server, k) <= 4);
          } finally {
            flood.stop();
          }
          assert.ok(await until(() => isIdle(server), WAIT_MS), 'all is over');
        });

      test('what no key of the tier can have is refused by name', { skip: wide }, async () => {
        const before = metric(await server.metrics(), 'sluice_quota_refused_total{limit="concurrency"}') || 0;
        for (const [field, value] of [['n', 5], ['best_of', 8], ['n', 16]]) {
          const flood = new Flood(server);
          flood.send(FREE[0], { ...LONG, max_tokens: 2, prompt: 'x', [field]: value });
          assert.ok(await until(() => flood.open.size === 0, WAIT_MS));
          flood.stop();
          assert.deepEqual([...flood.statuses], [[400, 1]]);
          assert.deepEqual([...flood.params], [field]);
        }
        const now = metric(await server.metrics(), 'sluice_quota_refused_total{limit="concurrency"}');
        assert.equal(now - before, 3);
      });

      test('a list that is larger than what its key may have at once is answered whole, in order', async () => {
        const r = await new Promise((done, failed) => {
          const req = http.request(new URL('/v1/completions', server.http), { method: 'POST', agent: false,
            headers: { authorization: `Bearer ${keyOf(FREE[0])}`, 'content-type': 'application/json' } }, (res) => {
            let text = '';
            res.setEncoding('utf8').on('data', (d) => { text += d; }).on('end', () => done({ status: res.statusCode, text }));
          });
          req.on('error', failed);
          req.end(JSON.stringify({ model: 'demo-small', prompt: texts(20), max_tokens: 3, temperature: 0, ignore_eos: true }));
        });
        assert.equal(r.status, 200, r.text);
        const { choices, usage } = JSON.parse(r.text);
        assert.deepEqual(choices.map((c) => c.index), Array.from({ length: 20 }, (_, i) => i));
        assert.ok(choices.every((c) => c.finish_reason === 'length'));
        assert.equal(usage.completion_tokens, 60);
        assert.ok(await until(() => isIdle(server), WAIT_MS), 'all is over');
      });
    });
