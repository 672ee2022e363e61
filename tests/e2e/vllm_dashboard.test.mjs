// SPDX-License-Identifier: Apache-2.0
// The panels of the dashboard that vLLM publishes for Grafana, over a Prometheus that scrapes a server under load: each query
// returns series with values. Named here is what the panels ask for; newer names of the same figures are asked for, too.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { freePorts, localOnly, request, startServer } from './harness.mjs';

const PATIENCE = 120_000;
const NO_PROMETHEUS = spawnSync('prometheus', ['--version']).error ? 'prometheus (Debian package) is not installed' : false;
const MODEL = 'demo-small';
const OF = `{model_name="${MODEL}"}`, WINDOW = '[1m]';

const quantiles = (family) => [0.99, 0.95, 0.9, 0.5].map((q) => `histogram_quantile(${q}, sum by(le) (rate(vllm:${family}_bucket${OF}${WINDOW})))`);
const mean = (family) => `rate(vllm:${family}_sum${OF}${WINDOW}) / rate(vllm:${family}_count${OF}${WINDOW})`;
const lengths = (family) => `sum by(le) (increase(vllm:${family}_bucket${OF}${WINDOW}))`;
/** Each panel's queries. `zero`: 0 is a value, too, when nothing waits at that moment. */
const PANELS = {
  'E2E Request Latency': [...quantiles('e2e_request_latency_seconds'), mean('e2e_request_latency_seconds')],
  'Token Throughput': ['prompt_tokens_total', 'generation_tokens_total'].map((n) => `rate(vllm:${n}${OF}${WINDOW})`),
  'Time Per Output Token Latency': [...quantiles('time_per_output_token_seconds'), mean('time_per_output_token_seconds'), ...quantiles('inter_token_latency_seconds')],
  'Scheduler State': { zero: true, queries: [`vllm:num_requests_running${OF}`, `vllm:num_requests_waiting${OF}`] },
  'Time To First Token Latency': [...quantiles('time_to_first_token_seconds'), mean('time_to_first_token_seconds')],
  'Cache Utilization': [`vllm:gpu_cache_usage_perc${OF}`, `vllm:kv_cache_usage_perc${OF}`],
  'Request Prompt Length': [lengths('request_prompt_tokens')],
  'Request Generation Length': [lengths('request_generation_tokens')],
  'Finish Reason': [`sum by(finished_reason) (increase(vllm:request_success_total${OF}${WINDOW}))`],
  'Queue Time': [`rate(vllm:request_queue_time_seconds_sum${OF}${WINDOW})`],
  'Requests Prefill and Decode Time': ['request_prefill_time_seconds_sum', 'request_decode_time_seconds_sum'].map((n) => `rate(vllm:${n}${OF}${WINDOW})`),
  'Max Generation Token in Sequence Group': [`rate(vllm:request_max_num_generation_tokens_sum${OF}${WINDOW})`],
};

async function startPrometheus(folder, server, port) {
  writeFileSync(join(folder, 'key'), server.keys.admin);
  writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify({ global: { scrape_interval: '1s', scrape_timeout: '1s' },
    scrape_configs: [{ job_name: 'vllm', authorization: { credentials_file: join(folder, 'key') }, static_configs: [{ targets: [new URL(server.http).host] }] }] }));
  const child = spawn('prometheus', [`--config.file=${join(folder, 'prometheus.yml')}`, `--storage.tsdb.path=${join(folder, 'data')}`, `--web.listen-address=127.0.0.1:${port}`], { stdio: 'ignore' });
  const base = `http://127.0.0.1:${port}`;
  assert.ok(await until(async () => { try { return (await request(base, '/-/ready')).status === 200; } catch { return false; } }, PATIENCE), 'prometheus is ready');
  return { base, stop: () => new Promise((done) => { child.once('close', done); child.kill('SIGTERM'); }) };
}

const ask = async (prometheus, query) => {
  const r = await request(prometheus.base, `/api/v1/query?query=${encodeURIComponent(query)}`);
  assert.equal(r.status, 200, `${query}: ${r.body}`);
  return JSON.parse(r.body).data.result;
};

test('each panel fills', { skip: NO_PROMETHEUS, ...localOnly('figures of its engine') }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-panels-')), [port] = await freePorts(1);
  const server = await startServer({ sets: ['engine.max_sequences=4', 'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off',
    ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.paid.${l}=0`)] });
  let prometheus, loading = true, sent = 0;
  const load = async (i) => {
    while (loading) assert.equal((await chat(server.http, server.keys.paid, { model: MODEL, max_tokens: 40, n: i === 0 ? 2 : 1, messages: user(`Tell me story ${sent++} about a river.`) })).status, 200);
  };
  try {
    prometheus = await startPrometheus(folder, server, port);
    const clients = Array.from({ length: 8 }, (_, i) => load(i));
    try {
      for (const [panel, p] of Object.entries(PANELS))
        for (const query of p.queries ?? p) {
          let series;
          const fills = await until(async () => { series = await ask(prometheus, query); return series.length > 0 && series.some((s) => Number.isFinite(Number(s.value[1])) && (p.zero || Number(s.value[1]) > 0)); }, PATIENCE, 250);
          assert.ok(fills, `${panel}: ${query}: ${JSON.stringify(series)}`);
        }
      // The dashboard's variable has the model's name.
      const names = JSON.parse((await request(prometheus.base, `/api/v1/label/model_name/values?match[]=${encodeURIComponent('{__name__=~"vllm:.*"}')}`)).body).data;
      assert.ok(names.includes(MODEL), JSON.stringify(names));
    } finally { loading = false; await Promise.all(clients); }
  } finally {
    await prometheus?.stop();
    assert.equal(await server.stop(), 0, server.log());
    rmSync(folder, { recursive: true, force: true });
  }
});
