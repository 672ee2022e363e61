// SPDX-License-Identifier: Apache-2.0
// Conversations of TOKENS tokens, more of them than memory holds: the first token of a next turn when its pages are in
// memory, when they come from disk with the system's cache dropped, after kill -9 of everything, and when all is computed.
//
//   node tests/bench/kv_disk.mjs MODEL.gguf [CONVERSATIONS=5] [TOKENS=4000] [KV_TYPE=auto]
//
// Prints a table in Markdown. Compare ratios within one run only.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startServer } from '../e2e/harness.mjs';

const [model, n = '5', tokens = '4000', kvType = 'auto'] = process.argv.slice(2);
if (!model) throw new Error('usage: node tests/bench/kv_disk.mjs MODEL.gguf [CONVERSATIONS] [TOKENS] [KV_TYPE]');
const N = Number(n), TOKENS = Number(tokens);
const models = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => `${line}    - name: m\n      path: ${model}\n`)
  .replace(/    - name: demo-(small|large)\n(?:      .*\n)*/g, '');
// Memory for three of five conversations.
const sets = [`engine.kv_memory=${Math.ceil(TOKENS * 0.6 * N * 32 / 1024)}MiB`, `engine.kv_type=${kvType}`, 'engine.threads=0',
  'engine.kv_disk.bytes=8GiB', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.when_late=queue', 'gateway.tiers.paid.max_wait=0', 'gateway.limits.first_token=1h',
  ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)];
let server = await startServer({ sets, edit: models });
const folder = join(server.state, 'kv');
process.once('exit', () => { try { process.kill(server.pid); } catch { /* it has ended */ } });

async function metric(name) {
  const found = (await server.metrics()).split('\n').filter((l) => l.startsWith(name) && /[{ ]/.test(l[name.length]));
  return found.reduce((sum, l) => sum + Number(l.slice(l.lastIndexOf(' '))), 0);
}

/** Ids that no other text begins with. */
const ids = (text, from, to) => Array.from({ length: to - from }, (_, i) => 100 + ((from + i) * 7919 + text * 104729 + (from + i) * (text + 3)) % 20000);

/** Time to the first token in ms, prompt tokens, and those that need not be computed. */
async function turn(prompt) {
  const begin = performance.now();
  const r = await fetch(`${server.http}/v1/completions`, { method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` },
    body: JSON.stringify({ model: 'm', prompt, max_tokens: 4, temperature: 0, ignore_eos: true, stream: true, stream_options: { include_usage: true } }) });
  if (r.status !== 200) throw new Error(await r.text());
  let first = 0, all = '';
  for await (const piece of r.body) {
    all += Buffer.from(piece).toString();
    if (!first && all.includes('"choices":[{')) first = performance.now() - begin;
  }
  const events = all.split('\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)));
  const usage = events.map((e) => e.usage).find((u) => u);
  if (!usage) throw new Error(all);
  return { ms: first, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function written() {
  for (let before = -1, same = 0; same < 3; await sleep(500)) {
    const now = await metric('sluice_engine_kv_disk_written_pages_total');
    same = now === before ? same + 1 : 0;
    before = now;
  }
}

const segments = () => readdirSync(folder).filter((f) => f.endsWith('.kv')).map((f) => join(folder, f));

/** The system's cache of the files is dropped. */
function cold() {
  for (const f of segments()) {
    execFileSync('dd', [`of=${f}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0'], { stdio: 'ignore' });
    execFileSync('dd', [`if=${f}`, 'iflag=nocache', 'count=0'], { stdio: 'ignore' });
  }
}

/** MiB a second of a cold file, read from the beginning. */
function diskSpeed() {
  cold();
  const f = segments().sort((a, b) => statSync(b).size - statSync(a).size)[0], mib = Math.floor(statSync(f).size / 2 ** 20);
  const begin = performance.now();
  execFileSync('dd', [`if=${f}`, 'of=/dev/null', 'bs=1M', `count=${mib}`], { stdio: 'ignore' });
  return mib / (performance.now() - begin) * 1000;
}

const rows = [];
function row(what, list, bytes, speed) {
  const ms = list.map((t) => t.ms), part = median(ms) / median(rows[0]?.ms ?? ms);
  rows.push({ what, ms });
  const cached = median(list.map((t) => t.cached)), read = bytes > 0 ? (bytes / 2 ** 20 / speed * 1000) : 0;
  console.log(`| ${what} | ${median(ms).toFixed(0)} | ${Math.min(...ms).toFixed(0)}–${Math.max(...ms).toFixed(0)} | ${median(list.map((t) => t.prompt))} | ${cached} | ${part.toFixed(3)} | ${read ? read.toFixed(0) : ''} |`);
}

const load = () => loadavg()[0].toFixed(1);
console.log(`${N} conversations of ${TOKENS} tokens, KV in ${kvType}; ${readFileSync('/proc/cpuinfo', 'utf8').match(/model name\s*: (.*)/)[1]}; load ${load()}\n`);
console.log('| next turn | TTFT, ms (median) | least–most | prompt | cached | of computing | reading these bytes, ms |');
console.log('|---|---|---|---|---|---|---|');
const computed = [];
for (let i = 0; i < N; i++) computed.push(await turn(ids(i, 0, TOKENS)));
row('computed', computed, 0, 1);
await written();
const next = (i, k) => ids(i, 0, TOKENS + 20 * k);
row('from memory', [await turn(next(N - 1, 1))], 0, 1);
const bytesOf = async (work) => {
  const before = await metric('sluice_engine_kv_disk_read_bytes_total');
  const list = await work();
  await sleep(600);
  return [list, (await metric('sluice_engine_kv_disk_read_bytes_total') - before) / list.length];
};
const allTurns = (k) => bytesOf(async () => {
  const list = [];
  for (let i = 0; i < N - 1; i++) {
    cold();
    list.push(await turn(next(i, k)));
  }
  return list;
});
await written();
let speed = diskSpeed();
let [list, bytes] = await allTurns(1);
row('from disk, cold', list, bytes, speed);
await written();
const pages = await metric('sluice_engine_kv_disk_pages');
const pids = Object.values(await server.pids());
process.kill(server.pid, 'SIGKILL');
for (const pid of pids) try { process.kill(pid, 'SIGKILL'); } catch { /* it died with its parent */ }
await server.ended;
cold();
server = await startServer({ sets, edit: models, state: server.state });
while (await metric('sluice_engine_kv_disk_pages') < pages) await sleep(100);
await turn(ids(1000, 0, 64)); // the weights are in memory
speed = diskSpeed();
[list, bytes] = await allTurns(2);
row('from disk, cold, after kill -9', list, bytes, speed);
console.log(`\nDisk: ${speed.toFixed(0)} MiB/s by dd, cold. ${(bytes / 2 ** 20).toFixed(0)} MiB a turn. Load at the end ${load()}. ` +
  `Misses ${await metric('sluice_engine_kv_disk_misses_total')}, errors ${await metric('sluice_engine_kv_disk_errors_total')}.`);
await server.stop();
