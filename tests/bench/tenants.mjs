// SPDX-License-Identifier: Apache-2.0
// One tenant against the others, on a whole server with the shipped tiers: node tests/bench/tenants.mjs MODEL.gguf
// [--requests 40] [--prompt 500] [--tokens 2] [--flood lists|n|many] [--keys 3] [--threads 0] [--set KEY=VALUE]…
//
// First the paid tenant's load alone, then the same load beside free tenants that each have all that their tier allows in
// progress all the time: lists of 128 prompts, n = 4, long answers; asked again as soon as one ends. Prompts are of random tokens,
// all different, so nothing is found in the prefix tree. The paid load is one request after the other with pauses that are drawn
// before, the same for both. It prints the times to the first token of both, what was admitted, how long a step takes, and
// whether p99 beside the flood is at most 1.3 × p99 alone and one step.
//
// The model of the figures: sluice model random --shape llama-3.2-1b --type q8_0 1b.gguf
import { createHash } from 'node:crypto';
import http from 'node:http';
import { startServer } from '../e2e/harness.mjs';
import { metric, until } from '../e2e/client.mjs';

const argv = process.argv.slice(2);
const option = (name, otherwise) => (argv.includes(name) ? argv[argv.indexOf(name) + 1] : otherwise);
const model = argv[0];
if (!model || model.startsWith('--')) { console.error('a model file is needed'); process.exit(2); }
const N = Number(option('--requests', 40)), PROMPT = Number(option('--prompt', 500)), TOKENS = Number(option('--tokens', 2));
const KEYS = Number(option('--keys', 3)), shape = option('--flood', 'lists'), PAUSE = Number(option('--pause', 0.5));
const more = argv.flatMap((a, i) => (a === '--set' ? [argv[i + 1]] : []));
const VOCAB = Number(option('--vocab', 30000));

let x = 12345;
const random = () => { x = (Math.imul(x, 1103515245) + 12345) >>> 0; return (x >>> 8) / (1 << 24); };
const ids = (n) => Array.from({ length: n }, () => 100 + Math.floor(random() * (VOCAB - 100)));
const keyOf = (name) => `sk-bench-tenants-${name}`;
const entry = (name, tier) => `    - name: ${name}\n      sha256: ${createHash('sha256').update(keyOf(name)).digest('hex')}\n      tier: ${tier}\n`;
const free = Array.from({ length: KEYS }, (_, i) => `free-${i}`);

const edit = (yaml) => yaml.replace('  keys: []\n', `  keys:\n${free.map((k) => entry(k, 'free')).join('')}${entry('paid', 'paid')}`)
  .replace(/ {4}- name: demo-small[\s\S]*?role: large\n/, `    - name: measured\n      path: ${model}\n`);

const server = await startServer({ edit, sets: ['supervisor.hang=10m', `engine.threads=${option('--threads', 0)}`, ...more] });

/** One completion: {status, ttft}. */
function complete(key, body, onRequest) {
  const began = performance.now();
  return new Promise((done) => {
    const r = { status: 0, ttft: null };
    const req = http.request(new URL('/v1/completions', server.http), { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${keyOf(key)}`, 'content-type': 'application/json' } }, (res) => {
      r.status = res.statusCode;
      res.setEncoding('utf8').on('data', (d) => { if (r.ttft === null && d.includes('data: {')) r.ttft = performance.now() - began; })
        .on('error', () => {}).on('close', () => done(r));
    });
    req.on('error', () => done(r));
    onRequest?.(req);
    req.end(JSON.stringify({ model: 'measured', temperature: 0, ignore_eos: true, ...body }));
  });
}

const percentile = (list, p) => list.length === 0 ? NaN : [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.ceil(list.length * p / 100) - 1)];
const pauses = Array.from({ length: N }, random);
const prompts = { alone: Array.from({ length: N }, () => ids(PROMPT)), beside: Array.from({ length: N }, () => ids(PROMPT)), warm: Array.from({ length: 3 }, () => ids(PROMPT)) };
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

async function load(which, scale) {
  const out = [];
  for (let i = 0; i < prompts[which].length; i++) {
    out.push(await complete('paid', { prompt: prompts[which][i], max_tokens: TOKENS, stream: true }));
    await sleep(pauses[i] * scale);
  }
  return out;
}

const floods = {
  lists: () => ({ prompt: Array.from({ length: [128, 128, 32][Math.floor(random() * 3)] }, () => ids(40)), max_tokens: 1024, stream: true }),
  n: () => ({ prompt: ids(PROMPT), n: 4, max_tokens: 1024, stream: true }),
  many: () => ({ prompt: ids(PROMPT), max_tokens: 1024, stream: true }),
};
const flood = { open: new Set(), statuses: {}, stopped: false };
async function keepFlooding(key) {
  while (!flood.stopped) {
    let mine;
    const r = await complete(key, floods[shape](), (req) => { mine = req; flood.open.add(req); });
    flood.open.delete(mine);
    if (flood.stopped) return;
    flood.statuses[r.status] = (flood.statuses[r.status] ?? 0) + 1;
    if (r.status !== 200) await sleep(500); // the client's own work is not to be measured
  }
}

const stat = async (name) => metric(await server.metrics(), name);
const steps = () => stat('sluice_engine_steps_total');

let code = 0;
try {
  const warm = await load('warm', 0);
  const scale = PAUSE * 2 * percentile(warm.map((r) => r.ttft), 50);
  const alone = await load('alone', scale);

  // A list, or four choices, takes all that a key may have; the next one stands by and gets 429.
  const all = free.flatMap((k) => Array.from({ length: shape === 'many' ? 4 : 2 }, () => keepFlooding(k)));
  const full = Math.min(32, KEYS * 4);
  await until(async () => await stat('sluice_engine_running') + await stat('sluice_engine_waiting') >= full, 120_000, 200);
  const before = [await steps(), performance.now(), await stat('sluice_engine_decode_tokens_total')];
  await sleep(5000);
  const step = (performance.now() - before[1]) / Math.max(1, await steps() - before[0]);
  const made = await stat('sluice_engine_decode_tokens_total');
  const beside = await load('beside', scale);
  const running = await stat('sluice_engine_running'), waiting = await stat('sluice_engine_waiting');
  const floodMade = await stat('sluice_engine_decode_tokens_total') - made;
  flood.stopped = true;
  for (const req of flood.open) req.destroy();
  await Promise.all(all);

  const ttft = (list) => list.filter((r) => r.status === 200 && r.ttft !== null).map((r) => r.ttft);
  const a = ttft(alone), b = ttft(beside), a99 = percentile(a, 99), b99 = percentile(b, 99), bound = 1.3 * a99 + step;
  const line = (name, value) => console.log(`${name.padEnd(44)} ${value}`);
  const others = (list) => list.filter((r) => r.status !== 200 || r.ttft === null).map((r) => ` ${r.status}`).join('');
  line('paid requests admitted, alone', `${a.length} of ${N}${others(alone)}`);
  line('paid requests admitted, beside the flood', `${b.length} of ${N}${others(beside)}`);
  line('first token alone, p50 p99', `${percentile(a, 50).toFixed(0)} ms, ${a99.toFixed(0)} ms`);
  line('first token beside the flood, p50 p99', `${percentile(b, 50).toFixed(0)} ms, ${b99.toFixed(0)} ms`);
  line('over alone, p50 p99', `${(percentile(b, 50) / percentile(a, 50)).toFixed(3)}, ${(b99 / a99).toFixed(3)}`);
  line('a step of the flood alone, mean', `${step.toFixed(0)} ms`);
  line('1.3 × p99 alone and a step', `${bound.toFixed(0)} ms: ${b99 <= bound ? 'kept' : 'PASSED'}`);
  line('in the engine at the end, running waiting', `${running}, ${waiting}`);
  line('tokens decoded beside the paid load', `${floodMade}`);
  line('the flood\'s answers by status', JSON.stringify(flood.statuses));
  line('refused by concurrency', `${await stat('sluice_quota_refused_total{limit="concurrency"}')}`);
  code = b.length === N ? 0 : 1;
} finally {
  const status = await server.stop();
  if (status !== 0) { console.error(server.log()); code = 1; }
}
process.exit(code);
