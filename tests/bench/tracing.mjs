// SPDX-License-Identifier: Apache-2.0
// What traces (trace.endpoint) cost the gateway: its processor time, user and system, for each small answer and each event, as
// `sluice-bench gateway` measures it, with a setting over that without one. Each turn measures both, one after the other, the
// order alternating; the figure is the geometric mean of the turns' ratios, with its 95 % interval (Student's t of the logarithms).
//
//   node tests/bench/tracing.mjs LOAD KIND [TURNS] [SECONDS]     by default 20 turns, windows of 0.6 s
//
// LOAD: a load of sluice-bench gateway, such as json or 256-2ms. KIND: none (both are without, which shows what the measurement
// itself varies by), zero (a collector, but a sample of 0), tenth (0.1), dead (0.1, nothing listens), slow (0.1, a collector that never
// replies).
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, freePorts } from '../e2e/harness.mjs';

const SAMPLES = { none: null, zero: 0, tenth: 0.1, dead: 0.1, slow: 0.1 };
const T_975 = [0, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];
const [load, kind, turns = '20', seconds = '0.6'] = process.argv.slice(2);
if (load === undefined || !(kind in SAMPLES)) throw new Error('usage: tracing.mjs LOAD none|zero|tenth|dead|slow [TURNS] [SECONDS]');

const folder = mkdtempSync(join(tmpdir(), 'sluice-tracing-')), more = join(folder, 'more.yaml');
const [port] = await freePorts(1);
let posts = 0;
const collector = http.createServer((req, res) => { posts++; req.resume().on('end', () => { if (kind !== 'slow') res.end('{}'); }); });
if (kind !== 'dead') await new Promise((done) => collector.listen(port, '127.0.0.1', done));
writeFileSync(more, SAMPLES[kind] === null ? '' : `trace:\n  endpoint: http://127.0.0.1:${port}/v1/traces\n  sample: ${SAMPLES[kind]}\n`);

/** {cpu_us, rate, p99_us} of one window. */
function measure(settings) {
  const child = spawn(join(ROOT, 'build/sluice-bench'), ['gateway', '--load', load, '--runs', '1', '--seconds', seconds, '--no-nginx', '--json', ...settings], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (d) => { text += d; });
  return new Promise((done, fail) => child.once('close', (code) => (code === 0 ? done(JSON.parse(text).loads[0]) : fail(new Error(`sluice-bench ended with ${code}`)))));
}

const mean = (x) => x.reduce((sum, v) => sum + v, 0) / x.length;
/** Geometric mean and its interval. */
function summary(ratios) {
  const logs = ratios.map(Math.log), m = mean(logs), n = logs.length;
  const deviation = Math.sqrt(logs.reduce((sum, v) => sum + (v - m) ** 2, 0) / (n - 1));
  const half = ((T_975[n - 1] ?? 1.98) * deviation) / Math.sqrt(n);
  return [m, m - half, m + half].map((v) => Math.exp(v).toFixed(4));
}
const median = (x) => [...x].sort((a, b) => a - b)[Math.floor(x.length / 2)];

try {
  const pairs = [];
  for (let i = 0; i < Number(turns); i++) {
    const pair = {};
    for (const which of i % 2 === 0 ? ['without', 'with'] : ['with', 'without']) pair[which] = await measure(which === 'with' ? ['--more', more] : []);
    pairs.push(pair);
  }
  const [ratio, low, high] = summary(pairs.map((p) => p.with.cpu_us / p.without.cpu_us));
  const [late] = summary(pairs.map((p) => p.with.p99_us / p.without.p99_us));
  const figure = (which, what) => median(pairs.map((p) => p[which][what])).toFixed(2);
  console.log(`${load} ${kind}: CPU ${ratio} (${low} to ${high}) of ${pairs.length} turns; ${figure('with', 'cpu_us')} over ${figure('without', 'cpu_us')} us; p99 ${late}; ` +
    `${figure('with', 'rate')} a second; ${posts} posts`);
} finally {
  collector.closeAllConnections();
  collector.close();
  rmSync(folder, { recursive: true, force: true });
}
