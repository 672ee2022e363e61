// SPDX-License-Identifier: Apache-2.0
// `node tests/bench/engines.mjs`: the prompt tokens that two engines compute under each policy of gateway.routing, and the times
// to the first token, for traffic of which 80 % begins alike (tests/e2e/engines_traffic.mjs). Counts are steady; times need a quiet
// machine.
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { traffic } from '../e2e/engines_traffic.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-engines-'));
chmodSync(folder, 0o777);
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
const ROUNDS = Number(process.argv[2] ?? 3);
const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
console.log('| policy | prompt tokens computed | of all | of round robin | requests to each | TTFT p50, p99 ms |\n|---|---|---|---|---|---|');
const rows = {};
// In turns, so that a busy minute of the machine is everybody's.
for (let round = 0; round < ROUNDS; round++)
  for (const policy of ['round_robin', 'least_requests', 'prefix', 'kv', 'cost'])
    (rows[policy] ??= []).push(await traffic(policy, join(folder, `${policy}-${round}.jsonl`)));
const turns = median(rows.round_robin.map((r) => r.computed));
for (const [policy, runs] of Object.entries(rows)) {
  const computed = median(runs.map((r) => r.computed)), at = (q) => median(runs.map((r) => r.ttft[Math.floor(q * r.ttft.length)])).toFixed(1);
  console.log(`| ${policy} | ${computed.toLocaleString('en')} (${Math.min(...runs.map((r) => r.computed)).toLocaleString('en')} … ${Math.max(...runs.map((r) => r.computed)).toLocaleString('en')}) | ` +
    `${(100 * computed / runs[0].tokens).toFixed(1)} % | ${(computed / turns).toFixed(3)} | ${runs[0].each.join(', ')} | ${at(0.5)}, ${at(0.99)} |`);
}
