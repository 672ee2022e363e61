// SPDX-License-Identifier: Apache-2.0
// Latencies by what of a prompt was cached, with a model: a conversation's second turn finds the first one in the prefix
// tree, in the metrics' labels and the records as in the usage that the client gets.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { localOnly, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const PATIENCE = 60_000;
const folder = mkdtempSync(join(tmpdir(), 'sluice-cached-'));
chmodSync(folder, 0o777);
const FILE = join(folder, 'requests.jsonl');
let server;
before(async () => { server = await startServer({ sets: [`log.requests.to=${FILE}`, 'gateway.warm=0'] }); });
after(async () => { await server?.stop(); rmSync(folder, { recursive: true, force: true }); });

const records = () => (existsSync(FILE) ? readFileSync(FILE, 'utf8').split('\n').slice(0, -1).map((l) => JSON.parse(l)) : []);

async function turn(messages, id) {
  const r = await chat(server.http, server.keys.paid, { model: 'demo-small', messages, temperature: 0, max_tokens: 8, stream_options: { include_usage: true } }, { headers: { 'x-request-id': id } });
  assert.equal(r.status, 200);
  const record = await until(() => records().find((x) => x.request_id === id), PATIENCE);
  assert.deepEqual([record.tokens_in, record.tokens_cached, record.tokens_out], [r.usage.prompt_tokens, r.usage.prompt_tokens_details.cached_tokens, r.usage.completion_tokens]);
  return { r, record, all: samples(await server.metrics()) };
}

const ttft = (all, cached) => sum(all, 'sluice_ttft_seconds_count', { tier: 'paid', model: 'demo-small', cached });
const prefill = (all, cached) => sum(all, 'sluice_prefill_seconds_count', { tier: 'paid', model: 'demo-small', cached });

test('the second turn of a conversation is cached, in labels, records and by model', localOnly('what of a prompt is cached, before it is answered'), async () => {
  const first = user(Array.from({ length: 40 }, (_, i) => `number ${i}`).join(', '));
  const one = await turn(first, 'turn-1');
  assert.equal(one.record.tokens_cached, 0);
  assert.deepEqual(['none', 'part', 'full'].map((c) => ttft(one.all, c)), [1, 0, 0]);
  assert.equal(sum(one.all, 'sluice_prefix_prompts_total'), 1);
  const two = await turn([...first, { role: 'assistant', content: one.r.text }, ...user('and then?')], 'turn-2');
  assert.ok(two.record.tokens_cached > 0, JSON.stringify(two.record));
  assert.equal(ttft(two.all, 'none'), 1);
  assert.equal(ttft(two.all, 'part') + ttft(two.all, 'full'), 1);
  assert.equal(prefill(two.all, 'none'), 1);
  assert.equal(prefill(two.all, 'part') + prefill(two.all, 'full'), 1);
  assert.equal(sum(two.all, 'sluice_prefix_prompts_total'), 2);
  // The engine's own figures of that model come with its next report.
  const all = await until(async () => {
    const s = samples(await server.metrics());
    return sum(s, 'vllm:prefix_cache_hits_total', { model_name: 'demo-small' }) >= two.record.tokens_cached
      && sum(s, 'vllm:num_requests_running', { model_name: 'demo-small' }) === 0 && s;
  }, PATIENCE);
  assert.equal(sum(all, 'vllm:prefix_cache_hits_total', { model_name: 'demo-small' }), sum(all, 'sluice_engine_prefix_hits_total'));
  assert.ok(sum(all, 'vllm:kv_cache_usage_perc', { model_name: 'demo-small' }) >= 0);
});
