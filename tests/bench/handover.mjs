// SPDX-License-Identifier: Apache-2.0
// Prefill and decode apart against two engines that do both: gaps between the tokens of eight running answers, and the time to
// the first token of long prompts that come beside them, one core for each engine.
//
//   node tests/bench/handover.mjs MODEL.gguf [PROMPTS=8] [ROUNDS=2] [TOKENS=512-2048] [CORES=0,1] [LOADS=2,4 [SECONDS=60]]
//
// With LOADS, in prompts a minute, they come at random times of a fixed seed instead, each with an answer of 32 tokens; a third
// arrangement lets the planner decide (role auto). Goodput is the share of them within both targets: a first token within three
// times what the prompt takes on an idle core, and a mean gap of at most one and a half steps of eight answers.
//
// Prints a table in Markdown. Counts are steady; times need a quiet machine, and the arrangements take turns, so a busy minute is
// everybody's.
import { setTimeout as sleep } from 'node:timers/promises';
import { startServer } from '../e2e/harness.mjs';
import { random } from '../e2e/page_corpus.mjs';
import { samples, sum } from '../e2e/prometheus.mjs';

const [model, n = '8', rounds = '2', tokens = '512-2048', cores = '0,1', loads, seconds = '60'] = process.argv.slice(2);
if (!model) throw new Error('usage: node tests/bench/handover.mjs MODEL.gguf [PROMPTS] [ROUNDS] [TOKENS] [CORES] [LOADS [SECONDS]]');
const N = Number(n), [least, most] = tokens.split('-').map(Number), [first, second] = cores.split(',');
const edit = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => `${line}    - name: m\n      path: ${model}\n`)
  .replace(/    - name: demo-(small|large)\n(?:      .*\n)*/g, '');
const base = ['gateway.threads=1', 'cache.store=memory', 'engine.threads=1', 'engine.kv_memory=1GiB', `engine.cores=${first}`, `engines.p.cores=${second}`,
  'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.when_late=queue', 'gateway.tiers.paid.max_wait=0', 'gateway.limits.first_token=1h', 'handover.wait=10m',
  ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)];
const arrangements = { collocated: base, split: [...base, 'engine.role=decode', 'engines.p.role=prefill', 'handover.memory=512MiB'] };

const AUTO = ['engine.role=auto', 'engines.p.role=auto'];

/** Ids that no other text begins with. */
const ids = (text, count) => Array.from({ length: count }, (_, i) => 100 + (i * 7919 + text * 104729 + i * (text % 97 + 3)) % 900);

/** One completion: when each event with text came; ends early by the signal. */
async function complete(server, prompt, max, signal) {
  const at = [], begin = performance.now();
  try {
    const r = await fetch(`${server.http}/v1/completions`, { method: 'POST', signal,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` },
      body: JSON.stringify({ model: 'm', prompt, max_tokens: max, temperature: 0, ignore_eos: true, stream: true }) });
    if (r.status !== 200) throw new Error(await r.text());
    for await (const piece of r.body)
      for (let i = Buffer.from(piece).toString().split('"choices":[{').length - 1; i > 0; i--) at.push(performance.now());
  } catch (e) { if (!signal?.aborted) throw e; }
  return { begin, at };
}

let texts = 1;
/** The gaps of the running answers while prompts come, and the prompts' times to the first token. */
async function run(sets) {
  const server = await startServer({ sets, edit });
  try {
    const stop = new AbortController(), eight = Array.from({ length: 8 }, () => complete(server, ids(texts++, 32), 4000, stop.signal));
    await sleep(3000);
    const ttft = [], from = performance.now();
    for (let i = 0; i < N; i++) {
      const { begin, at } = await complete(server, ids(texts++, Math.round(least + (most - least) * i / Math.max(1, N - 1))), 8);
      ttft.push(at[0] - begin);
    }
    const to = performance.now();
    stop.abort();
    const gaps = (await Promise.all(eight)).flatMap(({ at }) => at.slice(1).map((t, i) => [t, t - at[i]]).filter(([t]) => t > from && t < to).map(([, gap]) => gap));
    const f = samples(await server.metrics()), of = (name, labels) => sum(f, name, labels);
    return { ttft, gaps, s: (to - from) / 1e3, handed: of('sluice_handovers_ended_total', { end: 'all' }), other: of('sluice_handovers_ended_total') - of('sluice_handovers_ended_total', { end: 'all' }),
      mib: of('sluice_handover_bytes_total') / 2 ** 20, steps: of('sluice_handover_steps_total'),
      first: of('sluice_engine_link_prefill_tokens_total', { engine: 'engine' }), second: of('sluice_engine_link_prefill_tokens_total', { engine: 'p' }) };
  } finally { await server.stop(); }
}

const at = (list, q) => list.sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))]?.toFixed(1);
const gapsOf = ({ at: times }) => times.slice(1).map((t, i) => t - times[i]);

/** Milliseconds of a prompt's token on an idle core, and of a step of eight answers. */
async function alone() {
  const server = await startServer({ sets: base, edit });
  try {
    const { begin, at: times } = await complete(server, ids(texts++, most), 2);
    const stop = new AbortController(), eight = Array.from({ length: 16 }, () => complete(server, ids(texts++, 32), 4000, stop.signal)); // eight of each engine
    await sleep(8000);
    stop.abort();
    return { token: (times[0] - begin) / most, step: Number(at((await Promise.all(eight)).flatMap((r) => gapsOf(r).slice(10)), 0.5)) };
  } finally { await server.stop(); }
}

/** Prompts at random times beside eight running answers. */
async function arrivals(sets, perMinute, target) {
  const server = await startServer({ sets, edit });
  try {
    const stop = new AbortController(), eight = Array.from({ length: 8 }, () => complete(server, ids(texts++, 32), 8000, stop.signal));
    await sleep(3000);
    const dice = random(7), draw = () => dice(2 ** 30) / 2 ** 30, from = performance.now(), all = [];
    for (let t = 0; (t += -Math.log(1 - draw()) * 60_000 / perMinute) < Number(seconds) * 1000;) {
      const n = Math.round(least + (most - least) * draw());
      await sleep(Math.max(0, from + t - performance.now()));
      all.push(complete(server, ids(texts++, n), 32, AbortSignal.timeout(600_000)).then((r) => ({ n, ttft: r.at[0] - r.begin, itl: (r.at.at(-1) - r.at[0]) / (r.at.length - 1) })));
    }
    const done = await Promise.all(all), to = performance.now();
    stop.abort();
    const gaps = (await Promise.all(eight)).flatMap((r) => gapsOf(r).filter((gap, i) => r.at[i] > from && r.at[i + 1] < to));
    const good = done.filter((r) => r.ttft <= 3 * target.token * r.n && r.itl <= 1.5 * target.step).length;
    const f = samples(await server.metrics());
    return { n: done.length, good, ttft: done.map((r) => r.ttft), itl: done.map((r) => r.itl), gaps, handed: sum(f, 'sluice_handovers_ended_total', { end: 'all' }) };
  } finally { await server.stop(); }
}

async function sweep() {
  const target = await alone();
  console.log(`A prompt's token on an idle core ${target.token.toFixed(2)} ms, a step of eight answers ${target.step.toFixed(1)} ms\n`);
  console.log('| prompts a minute | | goodput | TTFT p50, max s | ITL of their answers p50, max ms | gaps of the eight p50, p99 ms | handed over |\n|---|---|---|---|---|---|---|');
  for (const load of loads.split(',').map(Number))
    for (const [name, sets] of Object.entries({ ...arrangements, auto: [...base, ...AUTO, 'handover.memory=512MiB'] })) {
      const r = await arrivals(sets, load, target), s = (list, q) => (Number(at(list, q)) / 1e3).toFixed(1);
      console.log(`| ${load} | ${name} | ${r.good} of ${r.n} | ${s(r.ttft, 0.5)}, ${s(r.ttft, 1)} | ${at(r.itl, 0.5)}, ${at(r.itl, 1)} | ${at(r.gaps, 0.5)}, ${at(r.gaps, 0.99)} | ${r.handed} |`);
    }
}

async function turns() {
  const rows = {};
  for (let round = 0; round < Number(rounds); round++)
    for (const [name, sets] of Object.entries(arrangements)) (rows[name] ??= []).push(await run(sets));
  console.log('| | ITL p50, p99, max ms | tokens/s of the running answers | TTFT p50, max ms | handed over, otherwise | MiB | steps until the first decode | prompt tokens computed by each engine |\n|---|---|---|---|---|---|---|---|');
  for (const [name, runs] of Object.entries(rows)) {
    const gaps = runs.flatMap((r) => r.gaps), ttft = runs.flatMap((r) => r.ttft), total = (key) => runs.reduce((all, r) => all + r[key], 0);
    console.log(`| ${name} | ${at(gaps, 0.5)}, ${at(gaps, 0.99)}, ${at(gaps, 1)} | ${(gaps.length / total('s')).toFixed(1)} | ${at(ttft, 0.5)}, ${at(ttft, 1)} | ${total('handed')}, ${total('other')} | ${total('mib').toFixed(0)} | ${total('steps')} | ${total('first')}, ${total('second')} |`);
  }
}

await (loads ? sweep() : turns());
