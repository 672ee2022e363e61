#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// The same load every night: `sluice-bench serve` several times, its figures in a history of one JSON line a night, and which of
// them have changed beyond the noise of the nights before (nightly_stats.mjs). For a timer:
//
//   node tests/bench/nightly.mjs --history FILE [--server URL --key KEY] [--runs 5] [--seconds 20] [--judge]
//
// Without --server it starts the demonstration models. --judge measures nothing. Nights of another machine, load or program that
// is under test keep to themselves. The last MOST nights stay. Status 1: slower tonight; 2: nothing was measured.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { changes, level } from './nightly_stats.mjs';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const BENCH = process.env.SLUICE_BENCH ?? join(ROOT, 'build/sluice-bench');
const MOST = 400; // nights of a history
const LOAD = ['--connections', '4', '--streams', '4', '--prompt-tokens', '128', '--max-tokens', '64', '--warmup'];

/** Figures of a report; true: more is better. */
export const FIGURES = {
  'ttft p50': [(r) => r.ttft_ms.p50, false], 'ttft p99': [(r) => r.ttft_ms.p99, false], 'itl p50': [(r) => r.itl_ms.p50, false],
  'tpot p50': [(r) => r.tpot_ms.p50, false], 'total p50': [(r) => r.total_ms.p50, false], 'tokens/s': [(r) => r.tokens_per_s, true],
};

/** The nights of a file, oldest first. A line that is damaged is left out and said. */
export function readHistory(file, complain = console.error) {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8').split('\n').filter(Boolean).flatMap((line, i) => {
    try {
      const night = JSON.parse(line);
      if (typeof night.at === 'string' && typeof night.what === 'string' && night.figures && typeof night.figures === 'object') return [night];
    } catch { /* said below */ }
    complain(`${file}:${i + 1}: not a night; it is left out`);
    return [];
  });
}

/** The whole file or none of it. */
export function writeHistory(file, nights) {
  writeFileSync(`${file}.new`, `${nights.slice(-MOST).map((n) => JSON.stringify(n)).join('\n')}\n`);
  renameSync(`${file}.new`, file);
}

/** What has changed in the last night: [{figure, ratio, nights, noise, worse}]. */
export function judge(nights) {
  const what = nights.at(-1)?.what, own = nights.filter((n) => n.what === what);
  return Object.entries(FIGURES).flatMap(([figure, [, more]]) => {
    const series = own.map((n) => n.figures[figure] ?? []);
    if (Number.isNaN(level(series.at(-1) ?? []))) return [];
    return changes(series).filter((c) => c.night === own.length - 1).map((c) => ({ figure, ...c, worse: more ? c.ratio < 1 : c.ratio > 1 }));
  });
}

function commit() {
  try { return execFileSync('git', ['-C', ROOT, 'rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' }).trim(); } catch { return 'unknown'; }
}

function measure(url, key, runs, seconds) {
  const figures = Object.fromEntries(Object.keys(FIGURES).map((f) => [f, []]));
  for (let i = 0; i < runs; i++) {
    const r = spawnSync(BENCH, ['serve', url, '--key', key, ...LOAD, '--seconds', String(seconds), '--seed', String(i + 1), '--json'], { encoding: 'utf8', timeout: (seconds + 600) * 1000 });
    if (r.status !== 0) throw new Error(`run ${i + 1}: ${r.error ?? r.stderr}`);
    const { all } = JSON.parse(r.stdout);
    if (all.failed > 0) throw new Error(`run ${i + 1}: ${all.failed} requests failed: ${JSON.stringify(all.errors)}`);
    for (const [f, [of]] of Object.entries(FIGURES)) figures[f].push(of(all));
  }
  return figures;
}

async function main() {
  const { values: o } = parseArgs({ options: { history: { type: 'string' }, server: { type: 'string' }, key: { type: 'string' }, runs: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '20' }, judge: { type: 'boolean', default: false } } });
  const runs = Number(o.runs), seconds = Number(o.seconds);
  if (!o.history || !(runs >= 1 && runs <= 100) || !(seconds >= 1 && seconds <= 3600) || (o.server && !o.key)) {
    console.error('usage: nightly.mjs --history FILE [--server URL --key KEY] [--runs 1..100] [--seconds 1..3600] [--judge]');
    return 64;
  }
  const nights = readHistory(o.history);
  if (!o.judge) {
    let own = null;
    if (!o.server) {
      const { startServer } = await import('../e2e/harness.mjs');
      own = await startServer({ sets: ['gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off',
        ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.paid.${l}=0`)] });
    }
    try {
      const load = [...LOAD, runs, seconds, o.server ?? 'demo'].join(' ');
      const what = createHash('sha256').update(JSON.stringify([cpus()[0]?.model, cpus().length, load])).digest('hex').slice(0, 16);
      nights.push({ at: new Date().toISOString(), what, commit: commit(), load, figures: measure(o.server ?? own.http, o.key ?? own.keys.paid, runs, seconds) });
    } catch (e) {
      console.error(`nothing was measured: ${e.message}`);
      return 2;
    } finally { await own?.stop(); }
    writeHistory(o.history, nights);
  }
  const last = nights.at(-1);
  if (!last) { console.error(`${o.history}: no nights yet`); return 2; }
  const found = judge(nights);
  for (const f of Object.keys(FIGURES)) {
    const c = found.find((x) => x.figure === f), x = level(last.figures[f] ?? []);
    console.log(`${f.padEnd(10)} ${Number.isNaN(x) ? '-' : Math.exp(x).toFixed(3)}${c ? `  ${c.worse ? 'WORSE' : 'better'}: ${c.ratio.toFixed(3)} times as before, over ${c.nights} nights; noise of a night ${(100 * c.noise).toFixed(1)} %` : ''}`);
  }
  return found.some((c) => c.worse) ? 1 : 0;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) process.exitCode = await main();
