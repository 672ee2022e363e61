// SPDX-License-Identifier: Apache-2.0
// Prefill and decode apart: one engine computes prompts, another one answers. Answers are those of one engine alone, whatever dies.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { figures, records, words } from './engines_traffic.mjs';
import { localOnly, ROOT, SLUICE, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { sum } from './prometheus.mjs';

const LOCAL = localOnly('pages that engines hand over');

const PATIENCE = 60_000;
const folder = mkdtempSync(join(tmpdir(), 'sluice-handover-'));
chmodSync(folder, 0o777);
after(() => rmSync(folder, { recursive: true, force: true }));

const ALONE = ['gateway.threads=1', 'cache.store=memory', 'engine.kv_memory=32MiB', 'engine.serves=demo-small'];
const SPLIT = [...ALONE, 'engine.role=decode', 'engines.p.role=prefill', 'handover.memory=32MiB', 'handover.tokens=64'];
const prompt = (seed, n = 120) => words(random(seed), n);
const body = (seed, more = {}) => ({ model: 'demo-small', max_tokens: 24, seed: 5, messages: user(prompt(seed)), ...more });
const ask = (server, b, id, options = {}) => chat(server.http, server.keys.paid, b, { ...options, headers: { 'x-request-id': id, ...options.headers } });
const record = (file, id) => until(() => records(file).find((r) => r.request_id === id), PATIENCE);
/** The text of each choice. */
function text(r) {
  const all = [];
  for (const e of r.events) for (const c of e.choices ?? []) all[c.index] = (all[c.index] ?? '') + (c.delta.content ?? '');
  return all;
}

test('a prompt is computed apart, and the answer is that of one engine', { timeout: 120_000, ...LOCAL }, async () => {
  const file = join(folder, 'split.jsonl');
  const alone = await startServer({ sets: ALONE });
  const server = await startServer({ sets: [...SPLIT, 'engines.b.models=demo-large', `log.requests.to=${file}`] });
  try {
    for (const [id, b] of [['one', body(1, { stream_options: { include_usage: true } })], ['choices', body(2, { n: 3 })], ['json', body(3, { response_format: { type: 'json_object' }, max_tokens: 40 })]]) {
      const expected = await ask(alone, b, id), r = await ask(server, b, id);
      assert.equal(r.status, 200, r.body);
      assert.deepEqual(text(r), text(expected), id);
      assert.deepEqual(r.usage, expected.usage, id); // what another engine computed was not cached
      const of = await record(file, id);
      assert.deepEqual([of.engine, of.prefill?.where, of.prefill?.engine, of.prefill?.end], ['engine', 'apart', 'p', 'all'], JSON.stringify(of));
      assert.ok(of.prefill.pages > 0 && of.prefill.missing >= 64, JSON.stringify(of));
    }
    // A short prompt stays where it is answered, and so does one that is cached there.
    for (const [id, b] of [['short', body(4, { messages: user('hello') })], ['again', body(1)]]) {
      assert.equal((await ask(server, b, id)).status, 200);
      assert.equal((await record(file, id)).prefill.where, 'short');
    }
    // The gateway, which faces the network, has no way to the pages, nor has an engine of role both.
    if (process.getuid() === 0)
      for (const [name, pid] of Object.entries(await server.pids()))
        assert.equal(readFileSync(`/proc/${pid}/maps`, 'utf8').includes('sluice-handover'), ['engine', 'engine p'].includes(name), name);
    const f = await figures(server);
    assert.equal(sum(f, 'sluice_handovers_ended_total', { end: 'all' }), 3);
    assert.equal(sum(f, 'sluice_handovers_ended_total'), 3);
    assert.equal(sum(f, 'sluice_handovers'), 0);
    assert.ok(sum(f, 'sluice_handover_bytes_total') > 0);
    assert.equal(sum(f, 'sluice_routed_total', { engine: 'p' }), 0);
  } finally { await server.stop(); await alone.stop(); }
});

test('adapters and tenants: what is handed over is what the request asks for', { timeout: 120_000, ...LOCAL }, async () => {
  const file = join(folder, 'adapters.jsonl'), adapter = join(folder, 'style.gguf');
  execFileSync(SLUICE, ['model', 'adapter', 'make', 'etc/models/demo-small.gguf', adapter, '--rank', '8', '--seed', '1', '--alpha', '200'], { cwd: ROOT });
  chmodSync(adapter, 0o644);
  const more = ['engine.adapters.style.model=demo-small', `engine.adapters.style.path=${adapter}`];
  const alone = await startServer({ sets: [...ALONE, ...more] });
  const server = await startServer({ sets: [...SPLIT, ...more, `log.requests.to=${file}`] });
  try {
    // The same text with and without the adapter, and of another tenant: nobody gets another's pages.
    const said = new Set();
    for (const [id, model, key] of [['base', 'demo-small', 'paid'], ['style', 'demo-small:style', 'paid'], ['free', 'demo-small', 'free']]) {
      const b = body(7, { model }), headers = { 'x-request-id': id };
      const expected = await chat(alone.http, alone.keys[key], b, { headers }), r = await chat(server.http, server.keys[key], b, { headers });
      assert.equal(r.status, 200, r.body);
      assert.deepEqual(text(r), text(expected), id);
      const of = await record(file, id);
      assert.deepEqual([of.prefill?.where, of.prefill?.end, of.tokens_cached], ['apart', 'all', 0], JSON.stringify(of));
      said.add(text(r)[0]);
    }
    assert.equal(said.size, 2, [...said].join(' | '));
  } finally { assert.equal(await server.stop(), 0, server.log()); await alone.stop(); }
});

/** Answers of one engine, to compare with. */
async function references(bodies) {
  const alone = await startServer({ sets: ALONE });
  try { return await Promise.all(bodies.map(async (b, i) => text(await ask(alone, b, `ref-${i}`)))); } finally { await alone.stop(); }
}

const under = (server, n) => until(async () => sum(await figures(server), 'sluice_handovers') === n, PATIENCE);
const ended = async (server, end) => sum(await figures(server), 'sluice_handovers_ended_total', { end });
/** Both engines serve, and hand over again. */
async function healed(server, file, seed) {
  const back = async (i) => {
    const id = `healed-${seed}-${i}`;
    assert.equal((await ask(server, body(seed + i), id)).status, 200);
    return (await record(file, id)).prefill?.end === 'all';
  };
  for (let i = 0, good = false; !good; i++) { good = await back(i); assert.ok(i < 1200, 'nothing is handed over any more'); await new Promise((go) => setTimeout(go, 50)); }
}

test('whatever the prefill engine does, the answers are the same: it is slow, refuses, is killed in the middle', { timeout: 300_000, ...LOCAL }, async () => {
  const file = join(folder, 'prefill.jsonl'), bodies = Array.from({ length: 6 }, (_, i) => body(100 + i, { max_tokens: 12 }));
  const want = await references(bodies);
  const server = await startServer({ sets: [...SPLIT, 'supervisor.hang=120s', 'handover.wait=100ms', `log.requests.to=${file}`] });
  try {
    let p = (await server.pids())['engine p'];
    process.kill(p, 'SIGSTOP');
    const late = await ask(server, bodies[0], 'late');
    assert.deepEqual([text(late), late.errors.length, (await record(file, 'late')).prefill.end], [want[0], 0, 'late']);
    process.kill(p, 'SIGCONT');
  } finally { assert.equal(await server.stop(), 0, server.log()); }
  const other = await startServer({ sets: [...SPLIT, 'supervisor.hang=120s', `log.requests.to=${file}`] });
  try {
    // Held in the middle of the first prompts, then killed.
    const p = (await other.pids())['engine p'];
    process.kill(p, 'SIGSTOP');
    const held = bodies.map((b, i) => ask(other, b, `held-${i}`));
    await under(other, 6);
    process.kill(p, 'SIGKILL');
    (await Promise.all(held)).forEach((r, i) => assert.deepEqual([text(r), r.errors.length], [want[i], 0], `held-${i}`));
    assert.equal((await record(file, 'held-0')).prefill.end, 'ended');
    assert.equal(await ended(other, 'ended'), 6);
    await healed(other, file, 1000);
    // Killed while it computes.
    for (let round = 0; round < 3; round++) {
      const again = bodies.map((b, i) => ({ ...b, messages: [{ role: 'system', content: `round ${round}` }, ...user(prompt(200 + 10 * round + i, 200))] }));
      const before = sum(await figures(other), 'sluice_handovers_ended_total');
      const running = again.map((b, i) => ask(other, b, `round-${round}-${i}`));
      await until(async () => { const f = await figures(other); return sum(f, 'sluice_handovers') > 0 || sum(f, 'sluice_handovers_ended_total') > before; }, PATIENCE);
      process.kill((await other.pids())['engine p'], 'SIGKILL');
      const got = await Promise.all(running);
      got.forEach((r, i) => assert.deepEqual([r.status, r.errors.length, r.done], [200, 0, true], `round-${round}-${i}: ${r.body}`));
      const same = await references(again);
      got.forEach((r, i) => assert.deepEqual(text(r), same[i], `round-${round}-${i}`));
      await healed(other, file, 2000 + 500 * round);
    }
    await under(other, 0);
  } finally { assert.equal(await other.stop(), 0, other.log()); }
});

test('the decoding engine is killed: what has no token yet is made again, the rest has one error; a client that leaves cancels its prompt', { timeout: 300_000, ...LOCAL }, async () => {
  const file = join(folder, 'decode.jsonl'), bodies = [body(300), body(301, { max_tokens: 200 })];
  const want = await references(bodies);
  const server = await startServer({ sets: [...SPLIT, 'supervisor.hang=120s', `log.requests.to=${file}`] });
  try {
    const pids = await server.pids();
    // One answer has begun, another one waits for its prompt.
    let go;
    const begun = new Promise((done) => { go = done; });
    const running = ask(server, bodies[1], 'running', { onEvent: () => go() });
    await begun;
    await under(server, 0);
    process.kill(pids['engine p'], 'SIGSTOP');
    const waiting = ask(server, bodies[0], 'waiting');
    await under(server, 1);
    process.kill(pids.engine, 'SIGKILL');
    await under(server, 0);
    process.kill(pids['engine p'], 'SIGCONT');
    const r = await waiting;
    assert.deepEqual([text(r), r.errors.length], [want[0], 0]);
    assert.deepEqual((({ engine, remade }) => [engine, remade])(await record(file, 'waiting')), ['p', 1]);
    assert.equal(await ended(server, 'left'), 1);
    const cut = await running;
    assert.ok(want[1][0].startsWith(text(cut)[0]), 'foreign text');
    assert.ok(cut.errors.length <= 1 && (cut.done || cut.errors.length === 1), JSON.stringify(cut.errors));
    await healed(server, file, 3000);

    // Its client leaves while the prompt is computed apart: both engines end its sequences.
    const p = (await server.pids())['engine p'], cancelled = async () => sum(await figures(server), 'sluice_engine_cancelled_total');
    process.kill(p, 'SIGSTOP');
    const before = await cancelled();
    const leaving = http.request(new URL('/v1/chat/completions', server.http), { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' } });
    leaving.on('error', () => {});
    leaving.end(JSON.stringify({ stream: true, ...body(400) }));
    await under(server, 1);
    leaving.destroy();
    assert.ok(await under(server, 0), 'it goes on');
    process.kill(p, 'SIGCONT');
    assert.ok(await until(async () => await cancelled() >= before + 2, PATIENCE), 'its prompt is computed on');
    assert.equal(await ended(server, 'left'), 2);
    await healed(server, file, 4000);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});
