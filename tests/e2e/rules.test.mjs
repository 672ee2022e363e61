// SPDX-License-Identifier: Apache-2.0
// The files for Prometheus and Grafana (etc/prometheus, etc/grafana): each alert fires from its cause and clears without it,
// each metric that a query names exists in a live scrape, and each query of the dashboard is one that Prometheus reads.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { hasRedis, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const RULES = 'etc/prometheus/sluice.rules.yml', DASHBOARD = 'etc/grafana/sluice.json';
const PATIENCE = 20_000;
const NO_PROMTOOL = spawnSync('promtool', ['--version']).error ? 'promtool (package prometheus) is not installed' : false;

// The series that cause each alert, as [at first, afterwards], each for hours (hoursOf); a plain value stays, '+n' grows by n a
// minute.
const bad = (of) => ({ 'sluice_answers_judged_total{tier="paid"}': ['+100', '+100'], 'sluice_answers_good_total{tier="paid"}': [`+${100 - of}`, '+100'] });
const bucket = (name, labels, le) => `${name}_bucket{${labels}${labels && ','}le="${le}"}`;
const DEVICE = { 'sluice_device_up{}': ['1', '1'], 'sluice_engine_running{}': ['3', '3'], 'sluice_engine_waiting{}': ['2', '0'] };
const CAUSES = {
  SluiceGoodputBurnsFast: bad(20),
  SluiceGoodputBurnsSlowly: bad(10),
  SluiceFirstTokenLate: { [bucket('sluice_ttft_seconds', 'tier="paid"', 0.2)]: ['+1', '+100'], [bucket('sluice_ttft_seconds', 'tier="paid"', 5)]: ['+100', '+100'],
    [bucket('sluice_ttft_seconds', 'tier="paid"', '+Inf')]: ['+100', '+100'], 'sluice_tier_ttft_target_seconds{tier="paid"}': ['0.5', '0.5'] },
  SluiceStreamsBelowReadingSpeed: { 'sluice_slow_seconds_total{tier="paid",model="m"}': ['+120', '+6'] },
  SluiceRefusals: { 'sluice_load_refused_total{reason="late"}': ['+120', '+1'] },
  SluiceVariantRolledBack: { 'sluice_variant_rolled_back{model="m",variant="v"}': ['1', '0'] },
  SluiceEngineFails: { 'sluice_error_limits{}': ['1', '0'] },
  SluiceQueueGrows: { 'sluice_engine_waiting{}': ['+1', '0'] },
  SluicePrefixHitsLow: { 'sluice_engine_prefix_queries_total{}': ['+1000', '+1000'], 'sluice_engine_prefix_hits_total{}': ['+500', '+900'], 'sluice_engine_running{}': ['8', '8'] },
  SluiceKvPressure: { 'sluice_engine_preemptions_total{}': ['+60', '+1'] },
  SluiceKvFull: { 'vllm:kv_cache_usage_perc{model_name="m"}': ['0.97', '0.5'] },
  SluiceEngineDown: { 'sluice_engine_up{}': ['0', '1'] },
  SluiceOneEngineDown: { 'sluice_engine_link_up{engine="b"}': ['0', '1'], 'sluice_engine_link_up{engine="engine"}': ['1', '1'], 'sluice_engine_up{}': ['1', '1'] },
  SluiceStoreDown: { 'sluice_cache_up{}': ['0', '1'] },
  SluiceStoreSlow: { [bucket('sluice_cache_redis_seconds', '', 0.01)]: ['+50', '+100'], [bucket('sluice_cache_redis_seconds', '', 0.1)]: ['+100', '+100'], [bucket('sluice_cache_redis_seconds', '', '+Inf')]: ['+100', '+100'] },
  // promtool's clock begins at 0.
  SluiceCertificateEnds: { 'sluice_tls_certificate_end_timestamp_seconds{}': [String(10 * 86400), String(100 * 86400)] },
  SluiceCascadeDrifts: { 'sluice_cascade_drift{}': ['0.4', '0.1'] },
  SluiceRecordsLost: { 'sluice_request_records_lost_total{why="write"}': ['+1', '+0'] },
  SluiceTracesLost: { 'sluice_traces_lost_total{why="export"}': ['+1', '+0'] },
  SluiceProcessorShort: { 'sluice_pressure_seconds_total{resource="cpu",stalled="some"}': ['+55', '+10'] },
  SluiceMemoryShort: { 'sluice_pressure_seconds_total{resource="memory",stalled="all"}': ['+6', '+0'] },
  SluiceDeviceGone: { 'sluice_device_up{}': ['0', '1'] },
  SluiceDeviceIdle: { ...DEVICE, 'sluice_device_busy_ratio{}': ['0.05', '0.5'] },
  SluiceDeviceBusy: { ...DEVICE, 'sluice_device_busy_ratio{}': ['0.95', '0.95'] },
  SluiceDeviceMemoryHigh: { 'sluice_device_memory_used_bytes{}': ['85', '50'], 'sluice_device_memory_bytes{}': ['100', '100'] },
  SluiceDeviceMemoryFull: { 'sluice_device_memory_used_bytes{}': ['96', '85'], 'sluice_device_memory_bytes{}': ['100', '100'] },
  SluiceDeviceHot: { 'sluice_device_temperature_celsius{}': ['86', '60'] },
  SluiceDeviceTooHot: { 'sluice_device_temperature_celsius{}': ['95', '86'] },
  SluiceDeviceSlowed: { 'sluice_device_slowed{reason="thermal"}': ['1', '0'], 'sluice_device_slowed{reason="power"}': ['1', '1'] },
  SluiceDeviceNvlinkReplays: { 'sluice_device_nvlink_replays_total{}': ['+1', '+0'] },
  SluiceDeviceNvlinkCrcErrors: { 'sluice_device_nvlink_crc_errors_total{}': ['+12000', '+600'] },
  SluiceDevicePcieReplays: { 'sluice_device_pcie_replays_total{}': ['+1', '+0'] },
  SluiceDeviceXid: { 'sluice_device_xid_errors_total{}': ['+1', '+0'] },
  SluiceDeviceEccErrors: { 'sluice_device_ecc_errors_total{}': ['+1', '+0'] },
};

/** How long an alert's cause lasts, and the time it has to clear: longer than any of its windows. Not longer than needed, because
 * promtool evaluates every rule once a minute. */
const hoursOf = (alert) => (/Burns/.test(alert) ? 8 : 2);

/** The rules without the other alerts and the records that this one does not name: promtool would evaluate all of them for each. */
function rulesFor(alert, rules) {
  const [head, ...items] = rules.split(/^(?= *- (?:name|record|alert): )/m);
  const own = items.find((i) => i.trimStart().startsWith(`- alert: ${alert}\n`));
  return head + items.filter((i) => {
    const [, kind, name] = /^ *- (\w+): (\S+)/.exec(i);
    return kind === 'name' || i === own || (kind === 'record' && own.includes(name));
  }).join('');
}

/** promtool's notation; a counter goes on from where it is. */
function values([fire, clear], minutes) {
  const step = (v) => (v.startsWith('+') ? Number(v) : 0);
  const from = step(fire) || fire === '+0' ? 0 : Number(fire);
  const first = `${from}+${step(fire)}x${minutes}`;
  const then = clear.startsWith('+') ? from + step(fire) * minutes : Number(clear);
  return `${first} ${then}+${step(clear)}x${2 * minutes}`;
}

const labelled = (series) => series.replace('{', '{instance="a:1",job="sluice",').replace(',}', '}');

test('each alert fires from its cause and clears without it', { skip: NO_PROMTOOL }, () => {
  const rules = readFileSync(RULES, 'utf8');
  const alerts = [...rules.matchAll(/- alert: (\w+)/g)].map((m) => m[1]);
  assert.deepEqual(Object.keys(CAUSES).sort(), alerts.slice().sort());
  const expect = (alert, hours, n) => ({ expr: `count(ALERTS{alertname="${alert}",alertstate="firing"})`, eval_time: `${hours * 60}m`,
    exp_samples: n > 0 ? [{ labels: '{}', value: n }] : [] });
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
  try {
    const files = Object.entries(CAUSES).map(([alert, series]) => {
      const file = join(folder, `${alert}_test.yml`), own = `${alert}.yml`;
      writeFileSync(join(folder, own), rulesFor(alert, rules));
      // JSON is YAML.
      writeFileSync(file, JSON.stringify({ rule_files: [own], evaluation_interval: '1m', tests: [{ name: alert, interval: '1m',
        input_series: Object.entries(series).map(([s, v]) => ({ series: labelled(s), values: values(v, hoursOf(alert) * 60) })),
        promql_expr_test: [expect(alert, hoursOf(alert) - 0.5, 1), expect(alert, 2 * hoursOf(alert), 0)] }] }));
      return file;
    });
    const r = spawnSync('promtool', ['test', 'rules', ...files], { encoding: 'utf8' });
    assert.equal(r.status, 0, r.stdout + r.stderr);
  } finally { rmSync(folder, { recursive: true, force: true }); }
});

test('each alert tells what to do, and promtool finds no fault', (t) => {
  const rules = readFileSync(RULES, 'utf8');
  for (const alert of rules.split('- alert: ').slice(1)) {
    const [, action] = /^ +action: (.+)$/m.exec(alert) ?? [];
    assert.ok(action?.length > 30 && /^ +summary: .+$/m.test(alert) && /severity: (page|ticket)/.test(alert), alert.split('\n')[0]);
  }
  if (NO_PROMTOOL) t.skip(NO_PROMTOOL);
  else execFileSync('promtool', ['check', 'rules', '--lint=all', '--lint-fatal', RULES]);
});

/** The queries of the dashboard, with Grafana's variables filled in. */
function queries() {
  const d = JSON.parse(readFileSync(DASHBOARD, 'utf8'));
  const panels = d.panels.filter((p) => p.type !== 'row');
  assert.equal(new Set(d.panels.map((p) => p.id)).size, d.panels.length, 'ids');
  for (const p of panels) assert.ok(p.gridPos.x + p.gridPos.w <= 24 && p.targets.length > 0, p.title);
  return panels.flatMap((p) => p.targets.map((q) => q.expr.replaceAll('$__rate_interval', '1m').replace(/"\$\w+"/g, '".*"')));
}

/** Metrics that an expression names. */
const named = (expr) => [...new Set([...expr.matchAll(/\b(?:sluice|vllm)[_:]\w+/g)].map((m) => m[0]))]
  .filter((n) => !new RegExp(`[\\w:]:${n}`).test(expr));

test('rules and dashboard name metrics that exist', { skip: !hasRedis() && 'redis-server is not installed' }, async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=0', ...['of=shop', 'model=demo-small', 'weight=1'].map((s) => `gateway.variants.base.${s}`)] });
  let all;
  try {
    for (const model of ['demo-small', 'auto']) assert.equal((await chat(server.http, server.keys.paid, { model, messages: user('a b c') })).status, 200);
    all = await until(async () => { const s = samples(await server.metrics()); return sum(s, 'sluice_e2e_seconds_count') >= 2 && sum(s, 'vllm:generation_tokens_total') > 0 && s; }, PATIENCE);
  } finally { await server.stop(); }
  const there = new Set(all.map((s) => s.name));
  // A device's metrics appear with a device.
  for (const [, name] of readFileSync('gateway/api/engine_gauges.c', 'utf8').matchAll(/DEVICE_GAUGE\(\w+, "(\w+)"/g)) there.add(`sluice_device_${name}`);
  for (const [, name] of readFileSync('gateway/api/engine_gauges.c', 'utf8').matchAll(/DEVICE_COUNTER\(\w+, "(\w+)"/g)) there.add(`sluice_device_${name}_total`);
  for (const name of ['sluice_device_ecc_errors_total', 'sluice_device_slowed']) {
    assert.ok(readFileSync('gateway/api/engine_gauges.c', 'utf8').includes(`"${name}"`));
    there.add(name);
  }
  const rules = [...readFileSync(RULES, 'utf8').matchAll(/^ +expr: (.+)$/gm)].map((m) => m[1]);
  assert.ok(rules.length > 30 && queries().length > 40);
  for (const expr of [...rules, ...queries()])
    for (const name of named(expr)) assert.ok(there.has(name), `${name} in ${expr}`);
});

test('each query of the dashboard is one', { skip: NO_PROMTOOL }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
  try {
    const file = join(folder, 'queries.yml');
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'queries', rules: queries().map((expr, i) => ({ record: `query:${i}`, expr })) }] }));
    const r = spawnSync('promtool', ['check', 'rules', file], { encoding: 'utf8' });
    assert.equal(r.status, 0, r.stdout + r.stderr);
  } finally { rmSync(folder, { recursive: true, force: true }); }
});
