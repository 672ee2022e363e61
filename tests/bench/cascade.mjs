// SPDX-License-Identifier: Apache-2.0
// The cascade over the demo pair's held-out questions: node tests/bench/cascade.mjs [--quality 0.99] [--questions 300] [--hold 2] [--hold-min 1]
// [--part 2] [--fitted FOLDER: weights and thresholds from an earlier run with it, or left there for a later one]
//
// Questions are mixed 70 % easy and 30 % hard, in two halves of different questions. The first is answered by both models:
// which small answers are right goes into an outcome log, with the confidences that the server logged, and `sluice cascade
// train` and `calibrate` fit weights and thresholds. The second is answered by the small model, the large one and "auto",
// greedy and one by one, in turns; what comes of it is printed, targets beside it. Numbers are the same each time, times
// are not. --part 2 asks those that are in neither half instead: fewer, for a choice that was made by looking at the second.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SLUICE, startServer } from '../e2e/harness.mjs';
import { chat, user } from '../e2e/client.mjs';

const option = (name, otherwise) => (process.argv.includes(name) ? Number(process.argv[process.argv.indexOf(name) + 1]) : otherwise);
const quality = option('--quality', 0.99), most = option('--questions', 300), holding = option('--hold', 2), leastHeld = option('--hold-min', 1);
const fittedAt = process.argv.includes('--fitted') ? process.argv[process.argv.indexOf('--fitted') + 1] : null;
const HOLD_MS = 250;
const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

/** A fixed shuffle: the same questions each time. */
function shuffled(list) {
  let x = 12345;
  const next = () => { x = (Math.imul(x, 1103515245) + 12345) >>> 0; return x >>> 8; };
  return list.map((v) => [next(), v]).sort((a, b) => a[0] - b[0]).map(([, v]) => v);
}
const all = readFileSync('etc/models/evaluation.jsonl', 'utf8').trim().split('\n').map((l) => JSON.parse(l));
const easy = shuffled(all.filter((q) => q.model_class === 'easy')), hard = shuffled(all.filter((q) => q.model_class === 'hard'));
const each = Math.min(most, Math.floor(easy.length / 2 / 0.7), Math.floor(hard.length / 2 / 0.3));
const nEasy = Math.round(each * 0.7), nHard = Math.round(each * 0.3);
/** The fresh ones: as many as are left, in the same shares. */
const rest = () => {
  const n = Math.min(Math.floor((easy.length - 2 * nEasy) / 0.7), Math.floor((hard.length - 2 * nHard) / 0.3));
  const e = Math.round(n * 0.7), h = Math.round(n * 0.3);
  return shuffled([...easy.slice(2 * nEasy, 2 * nEasy + e), ...hard.slice(2 * nHard, 2 * nHard + h)]);
};
const split = (from) => from === 2 ? rest() : shuffled([...easy.slice(from * nEasy, (from + 1) * nEasy), ...hard.slice(from * nHard, (from + 1) * nHard)]);

/** An accepted text stands in the answer as a whole word (Korean particles may follow). */
const right = (q, text) => q.answer.some((a) => new RegExp(`(?<![\\p{L}\\p{N}])${a.toLowerCase().replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}(?![a-z0-9])`, 'u')
  .test(text.toLowerCase()));

const TIER = 'easy: 0, race: 1, hard: 1, share: 1';
const start = (tier, log, sets = []) => startServer({ sets: ['gateway.threads=1', 'supervisor.hang=10m', 'gateway.coalesce.window=0', 'engine.prefix_cache=false', 'cascade.least_escalations=1000000',
  `cascade.hold.tokens=${holding}`, `cascade.hold.time=${HOLD_MS}ms`, `cascade.hold.min_tokens=${leastHeld}`,
  ...(log ? [`cascade.log=${log}`, 'cascade.log_size=0'] : []), ...sets],
edit: (yaml) => yaml.replace('  tiers: []\n', `  tiers:\n    - {name: paid, ${tier}}\n`) });

async function ask(server, model, question) {
  const began = performance.now();
  let first = 0, last = 0;
  const r = await chat(server.http, server.keys.paid, { model, messages: user(question), temperature: 0, max_tokens: 80, stream_options: { include_usage: true } },
    { onEvent: (e) => {
      if (e.choices?.[0]?.delta?.content) last = performance.now() - began;
      first ||= last;
    } });
  if (!r.done || r.errors.length > 0) throw new Error(`${model}: ${r.status} ${r.error ?? ''} ${r.body}\n${server.log()}`);
  const about = r.events.find((e) => e.sluice?.cascade)?.sluice.cascade;
  const tokens = r.usage?.completion_tokens ?? 0;
  return { id: r.events[0]?.id, text: r.text, ttft: first, tokens, step: tokens > 3 ? (last - first) / (tokens - 2) : 0, about };
}

const at = (list, p) => list.slice().sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * p))];
const ms = (x) => `${x.toFixed(1)} ms`;
const percent = (x) => `${(100 * x).toFixed(1)} %`;

/* ---- the first half: what is known of the small model ---- */
const log = join(folder, 'out.jsonl'), judged = join(fittedAt ?? folder, 'judged.jsonl'), weights = join(fittedAt ?? folder, 'weights');
let server;
if (fittedAt) mkdirSync(fittedAt, { recursive: true });
if (!existsSync(weights)) {
  server = await start(`${TIER}, sure: 0, low: 0, drop: 0`, log);
  const first = [];
  for (const q of split(0)) first.push({ q, small: await ask(server, 'auto', q.question), large: await ask(server, 'demo-large', q.question) });
  await server.stop();
  const lines = new Map(readFileSync(log, 'utf8').trim().split('\n').map((l) => JSON.parse(l)).map((l) => [l.id, l]));
  writeFileSync(judged, first.map(({ q, small, large }) => `${JSON.stringify({ ...lines.get(small.id), small_right: right(q, small.text),
    large_right: right(q, large.text) })}\n`).join(''));
  execFileSync(SLUICE, ['cascade', 'train', judged, '-o', weights]);
}
const curve = execFileSync(SLUICE, ['cascade', 'calibrate', judged, '--quality', String(quality), '--hold', String(holding), '--hold-min',
  String(leastHeld), '--early', '1'], { encoding: 'utf8' });
const [, sure, low, drop] = /sure: ([\d.]+)\s+low: ([\d.]+)\s+drop: ([\d.]+)/.exec(curve);

/* ---- the second half: what comes of it ---- */
const second = join(folder, 'second.jsonl');
server = await start(`${TIER}, sure: ${sure}, low: ${low}, drop: ${drop}`, second, [`cascade.weights=${weights}`]);
const n = { small: 0, large: 0, auto: 0, alone: 0, largeTokens: 0, always: 0 };
const times = { small: [], large: [], auto: [] }, steps = [];
const questions = split(option('--part', 1));
const names = ['auto', 'demo-small', 'demo-large'];
for (const [i, q] of questions.entries()) {
  const r = {};
  for (let k = 0; k < 3; k++) r[names[(i + k) % 3]] = await ask(server, names[(i + k) % 3], q.question);
  const [a, s, l] = names.map((name) => r[name]);
  for (const [name, r] of [['auto', a], ['small', s], ['large', l]]) {
    n[name] += right(q, r.text);
    times[name].push(r.ttft);
  }
  if (s.step > 0) steps.push(s.step);
  n.alone += !a.about.escalated && a.about.parts.every((p) => p.model === 'demo-small');
  n.largeTokens += a.about.parts.filter((p) => p.model === 'demo-large').reduce((sum, p) => sum + p.tokens, 0);
  n.always += l.tokens;
}
const metrics = await server.metrics();
const value = (name) => Number(new RegExp(`^${name.replace(/[{}"=,]/g, '\\$&')} (.*)$`, 'm').exec(metrics)?.[1] ?? 0);
const rows = (what) => value(`sluice_cascade_tokens_total{model="large",what="${what}"}`);
await server.stop();
const holds = readFileSync(second, 'utf8').trim().split('\n').map((l) => JSON.parse(l).hold).filter(Boolean);
const by = {};
for (const h of holds) by[h.by] = (by[h.by] ?? 0) + 1;
const held = (what, p) => at(holds.map((h) => h[what]), p);
const step = at(steps, 0.5), p50 = (name) => at(times[name], 0.5), p99 = (name) => at(times[name], 0.99);
/** A figure and what it is to be at most. */
const target = (what, is, most, means) => `${what.padEnd(34)} ${ms(is).padStart(9)}   at most ${ms(most).padStart(9)} ${is <= most ? 'PASS  ' : 'missed'} (${means})`;
const report = execFileSync(SLUICE, ['cascade', 'report', second], { encoding: 'utf8' });
console.log(`${questions.length} questions, ${questions.filter((q) => q.model_class === 'easy').length} of them easy, after ${nEasy + nHard} others; thresholds for a quality of ${quality}: sure ${sure}, low ${low}, drop ${drop}
right answers      auto ${n.auto}, small alone ${n.small}, large alone ${n.large}: ${percent(n.auto / n.large)} of always-large
small model alone  ${percent(n.alone / questions.length)} of requests
large model made   ${rows('shown') + rows('wasted')} tokens, ${n.largeTokens} of them told; always-large ${n.always}: ${percent((rows('shown') + rows('wasted')) / n.always)}
and checked        ${rows('given')} of the small one's, after ${rows('prompt')} rows of prompts
first text, p50    auto ${ms(p50('auto'))}, small alone ${ms(p50('small'))}, large alone ${ms(p50('large'))}
first text, p99    auto ${ms(p99('auto'))}, small alone ${ms(p99('small'))}, large alone ${ms(p99('large'))}
hold-back          median ${held('ms', 0.5).toFixed(2)} ms, p99 ${held('ms', 0.99).toFixed(2)} ms; a step of the small model takes ${step.toFixed(2)} ms
ended by           ${Object.entries(by).map(([k, n]) => `${k} ${n}`).join(', ')}; after ${held('tokens', 0.5)} tokens (median), ${held('tokens', 0.99)} (p99)

${target('hold-back, median', held('ms', 0.5), 4 * step, '4 steps of the small model')}
${target('first text, p50', p50('auto'), p50('small') + held('ms', 0.5), 'small alone + the median hold-back')}
${target('first text, p50, with 4 steps', p50('auto'), p50('small') + 4 * step, 'small alone + what the hold-back may be')}
${target('first text, p99', p99('auto'), p99('large') + HOLD_MS, `large alone + hold.time, ${HOLD_MS} ms`)}
`);
console.log(report);
