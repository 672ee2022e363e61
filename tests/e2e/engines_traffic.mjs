// SPDX-License-Identifier: Apache-2.0
// Traffic of which 80 % begins alike, on two engines: for engines.test.mjs and tests/bench/engines.mjs.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { chat, until, user } from './client.mjs';
import { startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { samples, sum } from './prometheus.mjs';

const PATIENCE = 60_000;
export const TWO = ['gateway.threads=1', 'cache.store=memory', 'engine.kv_memory=16MiB', 'engines.b.threads=1'];
export const words = (rnd, n) => Array.from({ length: n }, () => rnd(1e6).toString(36)).join(' ');
export const figures = async (server) => samples(await server.metrics());
export const records = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1).map((l) => JSON.parse(l)) : []);

/** 80 % of the prompts begin with one of fourteen texts; an engine has room for eleven prompts. */
export async function traffic(policy, file) {
  const N = 500, WORDS = 200;
  const server = await startServer({ sets: [...TWO, `gateway.routing.policy=${policy}`, `log.requests.to=${file}`, 'engine.kv_memory=10MiB',
    'engine.models=', 'engine.models.m.path=etc/models/demo-small.gguf', 'gateway.default_model=m'] });
  try {
    const rnd = random(27), groups = Array.from({ length: 14 }, () => words(rnd, WORDS));
    for (let i = 0; i < N; i++) {
      const system = rnd(10) < 8 ? groups[rnd(groups.length)] : words(rnd, WORDS);
      const r = await chat(server.http, server.keys.paid, { model: 'm', max_tokens: 1, messages: [{ role: 'system', content: system }, ...user(`q${i}`)] });
      assert.equal(r.status, 200, r.body);
    }
    // The engines' own counters, once they have reported all of it.
    const lines = await until(() => { const all = records(file); return all.length === N && all; }, PATIENCE);
    const tokens = lines.reduce((n, r) => n + r.tokens_in, 0);
    const all = await until(async () => { const f = await figures(server); return sum(f, 'sluice_engine_prefix_queries_total') === tokens && f; }, PATIENCE);
    return { tokens, computed: tokens - sum(all, 'sluice_engine_prefix_hits_total'),
      each: ['engine', 'b'].map((engine) => sum(all, 'sluice_routed_total', { engine, policy })), found: sum(all, 'sluice_routed_cached_total'), ttft: lines.map((r) => r.ttft_ms).sort((x, y) => x - y) };
  } finally { await server.stop(); }
}
