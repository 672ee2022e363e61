// SPDX-License-Identifier: Apache-2.0
// A whole server under a mixed load while its processes are killed and hung, and what must hold all the time.
//
//   node tests/soak/chaos.mjs [--seed N] [--seconds N] [--slow N]
//
// Every worker draws what it does from its own generator, seeded from --seed, so a seed repeats the same requests (how they
// interleave is up to the machine). Faults of processes come in the first half; in the second half the processes live on under
// the same clients, so that memory and descriptors can be compared. --slow multiplies every time limit (sanitizers); no other
// check depends on it, except that memory is not compared then: a sanitizer keeps what was freed for a while.
//
// Prints one line of JSON. Exits with 1 on a violation, after naming the seed and what was violated.
import { mkdirSync, readFileSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { chat, metric, until, user } from '../e2e/client.mjs';
import { startServer } from '../e2e/harness.mjs';
import { Client, Random, raw, sleep } from './load.mjs';

const WORKERS = 15; // five for each of h1, h2c, h2
// A process that was ready for 10 s restarts at once; one that fails again before waits, from supervisor.backoff_min, doubled each time.
const HEALTHY_MS = 10000, BACKOFF_MS = 250;
const HANG_MS = 3000; // supervisor.hang of etc/sluice.yaml
const GRACE_MS = 1000; // each gateway thread has its own link to the engine and finds it again in its own time
// The promise is 3 s (engine) and 1 s (gateway). The gateway's has a second more: the probe is eight whole answers beside the load.
const BACK_MS = { engine: 3000, gateway: 1000 + 1000, hung: HANG_MS + 3000 };
// How much a process may grow between two thirds: pages of the allocator come and go with the number of open streams.
const RSS_SLACK_KIB = 2048, RSS_SLACK_PART = 0.01;

function option(name, fallback) {
  const at = process.argv.indexOf(`--${name}`);
  const value = at < 0 ? fallback : Number(process.argv[at + 1]);
  if (!Number.isFinite(value) || value < 0) { console.error(`chaos: --${name} takes a number`); process.exit(2); }
  return value;
}
const seed = option('seed', 1), seconds = option('seconds', 60), slow = Math.max(1, option('slow', 1));

const violations = [];
const count = { requests: 0, streams: 0, whole: 0, aborts: 0, slow_readers: 0, refused: 0, malformed: 0, disturbed: 0 };
const faults = []; // {kind, who, at, until}
const worst = { engine: 0, gateway: 0, hung: 0 };
let stopping = false;

function violated(what) {
  if (violations.length < 20) violations.push(`${((performance.now() - begun) / 1000).toFixed(1)} s: ${what}`);
  if (violations.length >= 10) stopping = true;
}

/** Whether a fault of one of these processes may have touched this time. */
const touched = (a, ...who) => faults.some((f) => who.includes(f.who) && a.started <= f.until + GRACE_MS * slow && a.ended >= f.at);

// ---- what is asked, and what the answer is ----

const QUESTIONS = ['What is the capital of France?', 'Tell me a short story about a cat.', 'What is 3 plus 4?', 'Count from one to twenty.',
  'What is the opposite of hot?', 'Hello! How are you?', '안녕하세요!', 'What colour is the sky?'];
const asks = QUESTIONS.flatMap((q, i) => ['demo-small', 'demo-large'].map((model, m) => ({ model, messages: user(q),
  max_tokens: [12, 60, 24, 40][(i + m) % 4], ...(i % 4 === 3 ? { temperature: 0.8, seed: 7 * i + m } : { temperature: 0 }) })));
const references = []; // {text, finish} of each of asks

const json = { 'content-type': 'application/json' };
const good = JSON.stringify({ model: 'demo-small', messages: user('Hi'), max_tokens: 4 });
/** Requests that must be refused, and how. */
const BAD = [
  () => [{ body: '{"model":"demo-small","messages":[' }, 400],
  () => [{ body: '' }, 400],
  () => [{ body: '[1,2,3]' }, 400],
  () => [{ body: '{"model":"demo-small","messages":[{"role":"user","content":"\\ud800"}]}' }, 400],
  () => [{ body: JSON.stringify({ model: 'demo-small', messages: [] }) }, 400],
  () => [{ body: JSON.stringify({ model: 'demo-small', messages: user('x'), temperature: 1e9 }) }, 400],
  () => [{ body: '['.repeat(500) }, 400],
  (r) => [{ body: Buffer.from(Array.from({ length: 1 + r.below(400) }, () => r.below(256))) }, 400],
  () => [{ body: JSON.stringify({ model: 'demo-small', messages: user('word '.repeat(20000)) }) }, 400], // more than its context
  () => [{ body: JSON.stringify({ model: 'nobody', messages: user('x') }) }, 404],
  () => [{ body: good, path: '/v1/nothing' }, 404],
  () => [{ body: undefined, method: 'GET' }, 405],
  () => [{ body: good, headers: { 'content-type': 'text/csv' } }, 415],
  () => [{ body: good, headers: { ...json, authorization: 'Bearer sk-no-such-key' } }, 401],
  () => [{ body: good, headers: { ...json, authorization: undefined } }, 401],
  () => [{ body: Buffer.alloc((1 << 20) + (1 << 18), 0x20) }, 413],
];
const H1_HEAD = 'POST /v1/chat/completions HTTP/1.1\r\n';
/** Bytes that are no request: [where, bytes, the answer's status or null for none, leave at once]. */
const RAW = [
  ['http', 'GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', 400],
  ['http', `${H1_HEAD}Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n`, 400],
  ['http', `${H1_HEAD}Host: a\r\nX: a\0b\r\n\r\n`, 400],
  ['http', `${H1_HEAD}Host: a\r\nContent-Length: +5\r\n\r\n`, 400],
  ['http', `GET / HTTP/1.1\r\nHost: a\r\nX: ${'y'.repeat(20000)}\r\n\r\n`, 431],
  ['http', '\x80\x81\x82 nonsense\r\n\r\n', 400],
  ['http', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${'\xff'.repeat(64)}`, null],
  ['https', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n', null],
  ['http', `${H1_HEAD}Host: a\r\nContent-Le`, null, true],
  ['https', '\x16\x03\x01\x02\x00\x01', null, true],
];

// ---- judging ----

function judgeText(a, want, what) {
  if (!want.text.startsWith(a.text)) violated(`${what}: the text is not the reference's: ${JSON.stringify(a.text)} instead of ${JSON.stringify(want.text)}`);
}

/** True when the answer is one that a fault explains; calls violated() when it is one that nothing explains. */
function excused(a, what) {
  if (a.late) { violated(`${what}: no end after ${Math.round(a.ended - a.started)} ms`); return true; }
  if (a.bad) { violated(`${what}: ${a.bad}`); return true; }
  if (a.error && !a.clean) {
    count.disturbed++;
    if (!touched(a, 'gateway')) violated(`${what}: ${a.error.message}, without a fault of the gateway`);
    return true;
  }
  // A gateway that has just started may not have found the engine yet.
  if (a.status === 503) {
    count.disturbed++;
    if (!touched(a, 'engine', 'gateway')) violated(`${what}: 503 without a fault: ${a.body}`);
    return true;
  }
  return false;
}

function judgeAsk(a, i, streamed, what) {
  const want = references[i];
  if (streamed) judgeText(a, want, what);
  if (a.aborted && !a.late) { count.aborts++; return; }
  if (excused(a, what)) return;
  if (a.status === 500 && !streamed) {
    count.disturbed++;
    if (!touched(a, 'engine')) violated(`${what}: 500 without a fault of the engine: ${a.body}`);
    return;
  }
  if (a.status !== 200 || !a.clean) { violated(`${what}: status ${a.status}, ${a.clean ? 'whole' : 'cut off'}: ${a.body.slice(0, 200)}`); return; }
  if (!streamed) {
    count.whole++;
    const choice = JSON.parse(a.body).choices[0];
    if (choice.message.content !== want.text || choice.finish_reason !== want.finish) violated(`${what}: not the reference's answer: ${a.body}`);
    return;
  }
  count.streams++;
  if (a.finishes.length + a.errors.length !== 1 || a.dones !== a.finishes.length || a.afterEnd)
    violated(`${what}: ${a.finishes.length} finish_reason, ${a.errors.length} errors, ${a.dones} [DONE], ${a.afterEnd} events after the end`);
  else if (a.errors.length) {
    count.disturbed++;
    if (!touched(a, 'engine')) violated(`${what}: an error without a fault of the engine: ${JSON.stringify(a.errors[0])}`);
  } else if (a.text !== want.text || a.finishes[0] !== want.finish)
    violated(`${what}: ${JSON.stringify(a.text)} (${a.finishes[0]}) instead of ${JSON.stringify(want.text)} (${want.finish})`);
}

// ---- the load ----

async function ask(client, r, how) {
  const i = r.below(asks.length);
  const streamed = how !== 'whole' && (how !== 'early' || r.below(2) === 0);
  const key = r.below(4) ? server.keys.paid : server.keys.free;
  const abort = how === 'early' ? { afterMs: r.below(25) } : how === 'midway' ? { afterEvents: 1 + r.below(12) }
    : how === 'anytime' ? { afterMs: r.below(1500) } : undefined;
  const slowMs = how === 'slow' ? 5 + r.below(60) : 0;
  if (slowMs) count.slow_readers++;
  const a = await client.request({ headers: { ...json, authorization: `Bearer ${key}` }, body: JSON.stringify({ ...asks[i], stream: streamed }), abort, slow: slowMs });
  judgeAsk(a, i, streamed, `${client.kind} ${how} ${asks[i].model} "${asks[i].messages[0].content}"`);
  return a;
}

async function wrong(client, r) {
  const [given, status] = r.pick(BAD)(r);
  const headers = { ...json, authorization: `Bearer ${server.keys.paid}`, ...given.headers };
  if (headers.authorization === undefined) delete headers.authorization;
  const a = await client.request({ ...given, headers });
  const what = `${client.kind} bad request for ${status}`;
  if (excused(a, what)) return a;
  count.refused++;
  if (a.status !== status) violated(`${what}: ${a.status} ${a.body.slice(0, 200)} to ${String(given.body).slice(0, 80)}`);
  return a;
}

async function noise(r) {
  const [where, bytes, status, leave] = r.pick(RAW);
  const out = await raw(server[where], Buffer.from(bytes, 'latin1'), 12000 * slow, { leave });
  count.malformed++;
  if (touched(out, 'gateway')) return out;
  if (out.refused) violated('nobody listens, without a fault of the gateway');
  else if (!out.closed) violated(`kept open after ${JSON.stringify(bytes.slice(0, 60))}`);
  else if (status && !out.said.startsWith(`HTTP/1.1 ${status} `)) violated(`${JSON.stringify(bytes.slice(0, 60))}: ${JSON.stringify(out.said.slice(0, 60))} instead of ${status}`);
  return out;
}

const HOW = [[26, 'stream'], [14, 'whole'], [8, 'early'], [10, 'midway'], [8, 'anytime'], [8, 'slow'], [16, 'bad'], [10, 'raw']];

async function worker(n, endAt) {
  const r = new Random(Math.imul(seed + 1, 0x9e3779b1) + n);
  const client = new Client(server, ca, ['h1', 'h2c', 'h2'][n % 3], 5 + r.below(30), 20000 * slow);
  while (!stopping && performance.now() < endAt) {
    const how = r.weighted(HOW);
    count.requests++;
    const a = how === 'raw' ? await noise(r) : how === 'bad' ? await wrong(client, r) : await ask(client, r, how);
    if (a.error || a.refused || a.status === 503) await sleep(50); // nobody there for now
  }
  if (client.goaways) violated(`${client.kind}: the server ended ${client.goaways} connections with an error`);
  client.close();
}

// ---- the faults ----

/** Eight whole answers over connections of their own, both models: most threads of the gateway take part. */
async function inService() {
  const eight = await Promise.all(Array.from({ length: 8 }, async (_, n) => {
    const r = await chat(server.http, server.keys.paid, asks[n % 2]);
    return r.status === 200 && r.done && r.text === references[n % 2].text;
  }));
  return eight.every(Boolean);
}

const readyAt = { engine: -Infinity, gateway: -Infinity }, inARow = { engine: 0, gateway: 0 };

async function fault(kind) {
  const who = kind === 'gateway' ? 'gateway' : 'engine', pid = (await server.pids())[who];
  // Whether the supervisor saw 10 s of health is not ours to see exactly: near that, it counts as not healthy.
  inARow[who] = performance.now() - readyAt[who] > HEALTHY_MS + 1000 ? 1 : inARow[who] + 1;
  const wait = inARow[who] > 1 ? BACKOFF_MS * 2 ** (inARow[who] - 2) : 0;
  if (!pid) { violated(`no ${who} to kill`); return; }
  const f = { kind, who, at: performance.now(), until: Infinity };
  faults.push(f);
  process.kill(pid, kind === 'hung' ? 'SIGSTOP' : 'SIGKILL');
  if (kind === 'hung') await sleep(HANG_MS / 2); // before, streams may still answer from what was on its way
  const back = await until(async () => (await server.pids())[who] !== pid && inService(), 30000 * slow);
  const took = performance.now() - f.at - wait;
  f.until = readyAt[who] = performance.now();
  worst[kind] = Math.max(worst[kind], Math.round(took + wait));
  pids[who] = (await server.pids())[who];
  if (!back || took > BACK_MS[kind] * slow) violated(`${kind}: service was back after ${Math.round(took + wait)} ms, ${wait} of them the supervisor's wait`);
}

async function mischief(lastAt) {
  const r = new Random(Math.imul(seed + 1, 0x85ebca6b));
  let bag = [];
  for (;;) {
    await sleep(1500 + r.below(3000));
    if (!bag.length) bag = ['engine', 'gateway', 'hung'].map((k) => [r.next(), k]).sort((a, b) => a[0] - b[0]).map(([, k]) => k);
    if (stopping || performance.now() > lastAt) return;
    await fault(bag.pop());
  }
}

// ---- what the processes hold ----

const rssKib = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
function fds(pid) {
  const folder = `/proc/${pid}/fd`;
  try {
    return readdirSync(folder).flatMap((fd) => { try { return [readlinkSync(`${folder}/${fd}`)]; } catch { return []; } });
  } catch { return []; } // the process is gone, and watch() tells
}

/** Watches that no process ends by itself, and keeps what each holds in memory. */
async function watch(samples) {
  while (!stopping) {
    const at = { started: performance.now(), ended: performance.now() };
    const now = await server.pids();
    for (const who of ['engine', 'gateway']) {
      if (touched(at, who)) continue;
      if (now[who] !== pids[who]) { violated(`the ${who} ended by itself`); pids[who] = now[who]; }
    }
    try { samples.push({ at: at.started, engine: rssKib(now.engine), gateway: rssKib(now.gateway) }); } catch { /* between two of them */ }
    if (process.stderr.isTTY) process.stderr.write(`\r${JSON.stringify(count)} `);
    await sleep(250);
  }
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

function compareMemory(samples, endAt) {
  const from = Math.max(...faults.map((f) => f.until + 2000), begun);
  const third = (endAt - from) / 3;
  const out = {};
  for (const who of ['engine', 'gateway']) {
    const part = (n) => median(samples.filter((s) => s.at >= from + n * third && s.at < from + (n + 1) * third).map((s) => s[who]));
    const [first, middle, last] = [part(0), part(1), part(2)];
    out[who] = { first_kib: first, middle_kib: middle, last_kib: last };
    if (middle === undefined || last === undefined) violated(`memory of the ${who}: no time without faults to compare`);
    else if (slow === 1 && last > middle * (1 + RSS_SLACK_PART) + RSS_SLACK_KIB) violated(`memory of the ${who} grew from ${middle} to ${last} KiB`);
  }
  return out;
}

const GAUGES = ['sluice_engine_running', 'sluice_engine_waiting', 'sluice_generations{state="submitted"}', 'sluice_generations{state="queued"}',
  'sluice_generations{state="running"}'];
/** One series of the Prometheus text by its whole name, labels included. */
const series = (text, name) => (name.includes('{') ? Number(text.split('\n').find((l) => l.startsWith(`${name} `))?.slice(name.length)) : metric(text, name));

async function atRest() {
  let seen = '', left = {};
  const idle = await until(async () => {
    seen = await server.metrics().catch(() => '');
    return GAUGES.every((g) => series(seen, g) === 0) && metric(seen, 'sluice_engine_pages') > 0
      && metric(seen, 'sluice_engine_pages_free') === metric(seen, 'sluice_engine_pages')
      && metric(seen, 'sluice_http_streams_open') === 1; // the one that asks
  }, 5000 * slow, 250);
  if (!idle) violated(`not at rest: ${[...GAUGES, 'sluice_engine_pages', 'sluice_engine_pages_free', 'sluice_http_streams_open'].map((g) => `${g} ${series(seen, g)}`).join(', ')}`);
  for (const who of ['engine', 'gateway']) {
    const same = await until(() => (left[who] = fds(pids[who])).length === baseline[who].length, 5000 * slow, 100);
    if (!same) violated(`descriptors of the ${who}: ${left[who].length} instead of ${baseline[who].length}: ${left[who].join(' ')}, at first ${baseline[who].join(' ')}`);
  }
  return Object.fromEntries(['engine', 'gateway'].map((who) => [who, { baseline: baseline[who].length, end: left[who].length }]));
}

// ---- the run ----

let begun = performance.now();
const server = await startServer({ sets: ['gateway.threads=4', 'engine.kv_memory=256MiB', 'gateway.tiers.free.concurrency=1000', 'gateway.tiers.paid.concurrency=1000'] });
const ca = readFileSync(server.caFile);
const pids = await server.pids();
let memory = null, descriptors = null, baseline;
try {
  for (const body of asks) {
    const r = await chat(server.http, server.keys.paid, body);
    if (r.status !== 200 || !r.done || r.errors.length) violated(`reference: ${r.status} ${r.body}`);
    references.push({ text: r.text, finish: r.finish });
  }
  await sleep(1500 * slow); // the gateway listens to a connection for a second after its end
  baseline = { engine: fds(pids.engine), gateway: fds(pids.gateway) };
  begun = performance.now();
  const endAt = begun + seconds * 1000, samples = [];
  const watching = watch(samples);
  await Promise.all([mischief(begun + seconds * 500), ...Array.from({ length: WORKERS }, (_, n) => worker(n, endAt))]);
  stopping = true;
  await watching;
  memory = compareMemory(samples, performance.now());
  descriptors = await atRest();
} catch (e) { // an answer that nobody foresaw: it counts, and the server is stopped as always
  stopping = true;
  violated(`the run itself: ${e.stack}`);
}
const status = await server.stop();
if (status !== 0) violated(`stopping: exit status ${status}`);
if (server.left().some((f) => f.endsWith('.sock'))) violated(`left behind: ${server.left().join(' ')}`);
const told = /^.*(Sanitizer|runtime error:|BUG).*$/m.exec(server.log());
if (told) violated(`the log: ${told[0]}`);

if (process.stderr.isTTY) process.stderr.write('\n');
const kills = Object.fromEntries(['engine', 'gateway', 'hung'].map((k) => [k, faults.filter((f) => f.kind === k).length]));
console.log(JSON.stringify({ seed, seconds, slow, ...count, faults: kills, worst_recovery_ms: worst, memory, descriptors, violations: violations.length }));
if (violations.length) {
  mkdirSync('build/soak', { recursive: true });
  writeFileSync(`build/soak/chaos-${seed}.log`, server.log());
  console.error(`chaos: seed ${seed}: violated\n${violations.map((v) => `  ${v}`).join('\n')}\nthe server's log: build/soak/chaos-${seed}.log`);
}
process.exit(violations.length ? 1 : 0);
