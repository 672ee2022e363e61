// SPDX-License-Identifier: Apache-2.0
// Prefill and decode apart: one engine computes prompts, another one answers. Answers are those of one engine alone, whatever dies.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { figures, records, words } from './engines_traffic.mjs';
import { startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { sum } from './prometheus.mjs';

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

test('a prompt is computed apart, and the answer is that of one engine', { timeout: 120_000 }, async () => {
  const file = join(folder, 'split.jsonl');
  const alone = await startServer({ sets: ALONE });
  const server = await startServer({ sets: [...SPLIT, `log.requests.to=${file}`] });
  try {
    for (const [id, b] of [['one', body(1)], ['choices', body(2, { n: 3 })], ['json', body(3, { response_format: { type: 'json_object' }, max_tokens: 40 })]]) {
      const expected = await ask(alone, b, id), r = await ask(server, b, id);
      assert.equal(r.status, 200, r.body);
      assert.deepEqual(text(r), text(expected), id);
      const of = await record(file, id);
      assert.deepEqual([of.engine, of.prefill?.where, of.prefill?.engine, of.prefill?.end], ['engine', 'apart', 'p', 'all'], JSON.stringify(of));
      assert.ok(of.prefill.pages > 0 && of.prefill.missing >= 64, JSON.stringify(of));
    }
    // A short prompt stays where it is answered, and so does one that is cached there.
    for (const [id, b] of [['short', body(4, { messages: user('hello') })], ['again', body(1)]]) {
      assert.equal((await ask(server, b, id)).status, 200);
      assert.equal((await record(file, id)).prefill.where, 'short');
    }
    const f = await figures(server);
    assert.equal(sum(f, 'sluice_handovers_ended_total', { end: 'all' }), 3);
    assert.equal(sum(f, 'sluice_handovers_ended_total'), 3);
    assert.equal(sum(f, 'sluice_handovers'), 0);
    assert.ok(sum(f, 'sluice_handover_bytes_total') > 0);
    assert.equal(sum(f, 'sluice_routed_total', { engine: 'p' }), 0);
  } finally { await server.stop(); await alone.stop(); }
});
