// SPDX-License-Identifier: Apache-2.0
// Random schemas, and everything that may happen to an answer of one of them: drafts, short pages, several choices, the
// cascade, a killed gateway, a killed engine. Each answer is compared with a plain one and judged by a validator that knows
// nothing of the engine. Shared by random_forms.test.mjs (a few schemas) and tests/soak/forms.mjs (a thousand).
import http from 'node:http';
import Ajv2020 from 'ajv/dist/2020.js';
import { metric, until, user } from './client.mjs';
import { request, startServer } from './harness.mjs';
import { Random, sleep } from '../soak/load.mjs';

const PATIENCE = 120_000;
const MOST = 160, CUT = 7, ENOUGH = 500; // tokens

// ---- schemas ----

const NAMES = ['first', 'second one', 'été', 'd"q', 'x'];
const integers = (r) => { const low = r.below(60) - 30; return { type: 'integer', minimum: low, maximum: low + r.below(200) }; };

const LEAVES = [
  () => ({ type: 'boolean' }), () => ({ type: 'null' }), integers,
  (r) => ({ type: 'integer', minimum: 0, maximum: 999, multipleOf: 2 + r.below(9) }),
  () => ({ type: 'number', minimum: 0, exclusiveMaximum: 5 }),
  (r) => ({ type: 'string', minLength: r.below(3), maxLength: 3 + r.below(6) }),
  (r) => ({ type: 'string', pattern: r.pick(['^[a-c]{2,6}$', '^(ab|cd)+[0-9]?$', '^[^a-z]{0,4}$', '^\\d{3}-\\d{2}$', 'x.y']), maxLength: 12 }),
  () => ({ enum: ['red', 'green', 7, null, { a: [1] }] }), (r) => ({ const: r.pick(['exactly so', 3.5, [1, 'two', null], { k: false }]) }),
  (r) => ({ type: ['integer', 'null'], minimum: 3, maximum: 4 + r.below(40) }),
];

function object(r, depth) {
  const names = NAMES.slice(0, 1 + r.below(4));
  const s = { type: 'object', properties: Object.fromEntries(names.map((n) => [n, schema(r, depth + 1)])),
    required: names.filter((_, i) => i === 0 || r.below(2)), additionalProperties: false };
  if (r.below(4) === 0) s.dependentRequired = { [names.at(-1)]: [names[0]] };
  if (r.below(6) === 0) Object.assign(s, { additionalProperties: schema(r, depth + 1), propertyNames: { maxLength: 10 }, maxProperties: names.length + 1 });
  return s;
}

const BRANCHES = [
  object, object,
  (r, d) => ({ type: 'array', minItems: r.below(2), maxItems: 1 + r.below(3), items: schema(r, d + 1) }),
  (r, d) => ({ type: 'array', prefixItems: [schema(r, d + 1), schema(r, d + 1)], items: false, minItems: 2 }),
  (r, d) => ({ anyOf: [schema(r, d + 1), schema(r, d + 1)] }),
  (r, d) => ({ oneOf: [{ type: 'string', maxLength: 4 }, { type: 'array', maxItems: 2, items: schema(r, d + 1) }, integers(r)] }),
  (r) => ({ allOf: [{ type: 'integer', minimum: -50 }, integers(r)] }),
  (r) => ({ type: 'integer', minimum: 0, maximum: 99, not: { const: r.below(100) } }),
  () => ({ type: 'array', items: { enum: ['a', 'b', 'c'] }, contains: { const: 'b' }, minItems: 2, maxItems: 3 }),
  (r) => ({ type: 'object', properties: { kind: { enum: ['a', 'b'] }, value: true }, required: ['kind', 'value'], additionalProperties: false,
    if: { properties: { kind: { const: 'a' } } }, then: { properties: { value: integers(r) } }, else: { properties: { value: { type: 'boolean' } } } }),
];

function schema(r, depth = 0) { return r.pick(depth > 2 || r.below(3) === 0 ? LEAVES : BRANCHES)(r, depth); }

/** The outermost may be recursive. */
function root(r) {
  if (r.below(10)) return schema(r);
  return { $defs: { node: { type: 'object', properties: { value: integers(r), next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } },
    required: ['value', 'next'], additionalProperties: false } }, $ref: '#/$defs/node' };
}

export function makeCases(n, seed) {
  const r = new Random(seed);
  return Array.from({ length: n }, (_, i) => ({ schema: root(r), temperature: i % 2, seed: i, max_tokens: i % 10 === 9 ? CUT : MOST }));
}

const bodyOf = (c, more) => ({ model: 'demo-large', messages: user('Say something.'), temperature: c.temperature, seed: c.seed, max_tokens: c.max_tokens,
  response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema: c.schema } }, ...more });

// ---- clients ----

const headersOf = (key) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' });

/** {choices, sluice}: a whole answer. */
async function whole(server, c, more = {}) {
  const r = await request(server.http, '/v1/chat/completions', { method: 'POST', headers: headersOf(server.keys.paid), body: JSON.stringify(bodyOf(c, more)) });
  if (r.status !== 200) throw new Error(`${r.status} ${r.body} to ${JSON.stringify(c.schema)}`);
  return JSON.parse(r.body);
}

/** Numbered events of a stream's text: [{id, data}], as far as they are whole. */
const eventsOf = (text) => [...text.slice(0, text.lastIndexOf('\n\n') + 2).matchAll(/^(?:id: (\d+)\n)?data: (.*)$/gm)].map((m) => ({ id: Number(m[1] ?? -1), data: m[2] }));
const isLast = (e) => e !== undefined && (e.data === '[DONE]' || e.data.startsWith('{"error"'));
const choiceOf = (e) => (e.data === '[DONE]' ? undefined : JSON.parse(e.data).choices?.[0]);
const contentOf = (events) => events.map((e) => choiceOf(e)?.delta?.content ?? '').join('');
const finishOf = (events) => events.map((e) => choiceOf(e)?.finish_reason).find(Boolean) ?? null;
/** Without what differs between two answers to one request. */
const bytesOf = (events) => events.map((e) => `${e.id} ${e.data.replace(/chatcmpl-[0-9a-f]{32}/, 'ID').replace(/"created":\d+/, '"created":0')}`);

/** One request, until its end or its breaking: {status, id, text}. Never rejects; status 0: no answer. */
function read(server, key, method, path, { body, headers = {} } = {}) {
  return new Promise((done) => {
    const req = http.request(new URL(path, server.http), { method, agent: false, headers: { ...headersOf(key), ...headers } }, (res) => {
      let text = '';
      res.setEncoding('utf8');
      res.on('data', (d) => { text += d; });
      res.on('error', () => {});
      res.on('close', () => done({ status: res.statusCode, id: res.headers['x-sluice-stream-id'], text }));
    });
    req.on('error', () => done({ status: 0, text: '' }));
    req.end(body && JSON.stringify(body));
  });
}

/** A numbered stream, gone on with until its last event, however often it breaks: {events, breaks, lost}. */
async function numbered(server, c) {
  const begin = () => read(server, server.keys.free, 'POST', '/v1/chat/completions', { body: bodyOf(c, { stream: true }), headers: { 'x-sluice-events': '1' } });
  const end = Date.now() + PATIENCE;
  let r = await begin(), breaks = 0;
  while (r.status !== 200) { // no byte of it was seen
    if (![0, 503].includes(r.status) || Date.now() > end) throw new Error(`${r.status} ${r.text}`);
    await sleep(20);
    r = await begin();
  }
  const { id } = r, events = eventsOf(r.text);
  while (!isLast(events.at(-1))) {
    const last = events.length ? { 'last-event-id': String(events.at(-1).id) } : {};
    breaks += r.status === 200;
    r = await read(server, server.keys.free, 'GET', `/v1/streams/${id}`, { headers: last });
    // Killed before the store had it.
    if (r.status === 404) return { events, breaks, lost: true };
    if (![0, 200, 503].includes(r.status) || Date.now() > end) throw new Error(`${r.status} ${r.text} for ${id}`);
    events.push(...eventsOf(r.text));
    if (r.status !== 200) await sleep(20);
  }
  return { events, breaks, lost: false };
}

// ---- judging ----

/** Judges and counts: what is violated is listed. */
export class Judge {
  constructor(cases) {
    Object.assign(this, { cases, counts: {}, violations: [], valid: cases.map((c) => new Ajv2020({ strict: false }).compile(c.schema)) });
  }
  count(mode, what, n = 1) { (this.counts[mode] ??= {})[what] = (this.counts[mode][what] ?? 0) + n; }
  violated(mode, i, what) {
    this.count(mode, 'violations');
    if (this.violations.length < 20) this.violations.push(`${mode}, case ${i}: ${what}; ${JSON.stringify(this.cases[i])}`);
  }
  isValid(i, text) { try { return this.valid[i](JSON.parse(text)); } catch { return false; } }
  /** An answer that has ended by itself. */
  form(mode, i, text, finish) {
    if (finish === 'length') { this.count(mode, 'length'); return; }
    if (finish !== 'stop' || !this.isValid(i, text)) this.violated(mode, i, `not of its form (${finish}): ${text}`);
    else this.count(mode, 'valid');
  }
  same(mode, i, got, want) {
    if (JSON.stringify(got) !== JSON.stringify(want)) this.violated(mode, i, `${JSON.stringify(got)} instead of ${JSON.stringify(want)}`);
  }
  choices(mode, i, choices, want) {
    for (const c of choices) this.form(mode, i, c.message.content, c.finish_reason);
    this.same(mode, i, [choices[0].message.content, choices[0].finish_reason], want);
  }
}

/** Calls work(i) for each of n, so many at once. */
async function each(n, width, work) {
  let next = 0;
  await Promise.all(Array.from({ length: width }, async () => { while (next < n) { const i = next++; await work(i); } }));
}

// ---- servers ----

const LIMITS = ['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'];
// One tier watches the small model, the other lets both race.
const TIERS = `  tiers:
    - {name: paid, easy: 0.001, race: 0.999, hard: 0.999, sure: 0.3, low: 0.25, drop: 0.2, share: 1}
    - {name: free, easy: 0, race: 0, hard: 1, sure: 0.3, low: 0.25, drop: 0.2, share: 1}
`;

function start(sets = []) {
  return startServer({ edit: (yaml) => yaml.replace('  tiers: []\n', TIERS).replace(/when_late: refuse/g, 'when_late: queue'),
    sets: ['supervisor.backoff_min=10ms', 'supervisor.backoff_max=100ms', 'gateway.resume.grace=60s', 'cascade.least_escalations=1000000', 'cascade.hold.tokens=2', 'cascade.hold.min_tokens=1',
      'gateway.tiers.free.deadline=0', 'gateway.tiers.free.pace_tps=250',
      ...['free', 'paid'].flatMap((t) => [`gateway.tiers.${t}.concurrency=1000`, ...LIMITS.map((k) => `gateway.tiers.${t}.${k}=0`)]), ...sets] });
}

async function killed(server, name) {
  const pid = (await server.pids())[name];
  process.kill(pid, 'SIGKILL');
  if (!await until(async () => ![undefined, pid].includes((await server.pids())[name]), PATIENCE)) throw new Error(`${name} does not come back:\n${server.log()}`);
}

// ---- modes ----

const saidOf = (choice) => [choice.message.content, choice.finish_reason];

/** Answers without drafts, one model; the others are compared with them. And: what was cut goes on to a valid end. */
async function plainly(server, judge) {
  const plain = { 'demo-large': [], 'demo-small': [] };
  await each(judge.cases.length, 6, async (i) => {
    for (const model of Object.keys(plain)) {
      const c = (plain[model][i] = (await whole(server, judge.cases[i], { model, return_token_ids: true })).choices[0]);
      judge.form('plain', i, ...saidOf(c));
      if (c.finish_reason !== 'length') continue;
      const longer = (await whole(server, judge.cases[i], { model, max_tokens: ENOUGH })).choices[0], text = longer.message.content;
      if (!text.startsWith(c.message.content)) judge.violated('plain', i, `${text} does not begin with ${c.message.content}`);
      if (longer.finish_reason === 'length') judge.count('plain', 'of these without an end');
      else if (!judge.isValid(i, text)) judge.violated('plain', i, `not of its form: ${text}`);
      else judge.count('plain', 'of these with a valid end');
    }
  });
  return plain;
}

async function again(server, judge, mode, width, want, more = {}) {
  await each(judge.cases.length, width, async (i) => judge.choices(mode, i, (await whole(server, judge.cases[i], more)).choices, saidOf(want[i])));
}

/** Each model's tokens are those that it alone begins with; from a switch on, the large model sees another text. */
async function cascaded(server, judge, plain) {
  const mode = 'cascade';
  await each(judge.cases.length, 6, async (i) => {
    const on = i % 4 < 2 ? server : { ...server, keys: { paid: server.keys.free } };
    const { choices: [c], sluice: { cascade } } = await whole(on, judge.cases[i], { model: 'auto', return_token_ids: true });
    judge.form(mode, i, ...saidOf(c));
    const [first] = cascade.parts; // the large model's is missing where it only ended the answer
    judge.count(mode, `${cascade.plan}, ${cascade.reason ?? 'no switch'}`);
    if (!cascade.escalated) judge.same(mode, i, saidOf(c), saidOf(plain[first.model][i]));
    else judge.same(mode, i, c.token_ids.slice(0, first.tokens), plain[first.model][i].token_ids.slice(0, first.tokens));
  });
}

/** Works again until it has happened: what is killed may have had nothing to do, what is to be pre-empted may run alone. */
async function untilSeen(judge, mode, what, work) {
  for (let rounds = 0; rounds < 40 && !judge.counts[mode]?.[what]; rounds++) await work();
  if (!judge.counts[mode]?.[what]) judge.violated(mode, 0, `none: ${what}`);
}

/** Streams whose gateway is killed after every so many ends, against streams of an unharmed one. */
async function gatewayKilled(server, judge, want, every) {
  const mode = 'gateway killed', unharmed = [];
  let over = false, ended = 0, continued = 0, kills = 0;
  const continuedNow = async () => metric(await server.metrics(), 'sluice_replay_continued_total') || 0;
  let before = await continuedNow();
  await each(judge.cases.length, 12, async (i) => { unharmed[i] = (await numbered(server, judge.cases[i])).events; });
  const killer = (async () => {
    for (let next = 1; !over; await sleep(5)) {
      if (ended < next) continue;
      continued += await continuedNow() - before;
      before = 0; // the next one counts from 0
      await killed(server, 'gateway');
      kills++;
      next = ended + every;
    }
  })();
  await each(judge.cases.length, 12, async (i) => {
    for (let got, tries = 0; got === undefined || got.lost; tries++) {
      got = await numbered(server, judge.cases[i]);
      judge.count(mode, 'breaks', got.breaks);
      if (got.lost) {
        judge.count(mode, 'lost before they were stored');
        if (tries > 50) throw new Error('each time lost');
        judge.same(mode, i, bytesOf(got.events), bytesOf(unharmed[i].slice(0, got.events.length)));
        continue;
      }
      judge.form(mode, i, contentOf(got.events), finishOf(got.events));
      judge.same(mode, i, bytesOf(got.events), bytesOf(unharmed[i]));
      judge.same(mode, i, [contentOf(got.events), finishOf(got.events)], saidOf(want[i]));
    }
    ended++;
  });
  over = true;
  await killer;
  continued += await continuedNow() - before;
  judge.count(mode, 'kills', kills);
  judge.count(mode, 'continued by another', continued);
}

/** Streams whose engine is killed: an error behind a beginning of the answer, or the whole of it. */
async function engineKilled(server, judge, want, every) {
  const mode = 'engine killed';
  let over = false, ended = 0, kills = 0;
  const killer = (async () => {
    for (let next = 1; !over; await sleep(5)) {
      if (ended < next) continue;
      await killed(server, 'engine');
      kills++;
      next = ended + every;
    }
  })();
  await each(judge.cases.length, 12, async (i) => {
    const deadline = Date.now() + PATIENCE;
    for (let isWhole = false; !isWhole; await sleep(isWhole ? 0 : 20)) {
      const r = await read(server, server.keys.free, 'POST', '/v1/chat/completions', { body: bodyOf(judge.cases[i], { stream: true }) });
      const events = eventsOf(r.text), text = contentOf(events), finish = finishOf(events);
      if (r.status !== 200) {
        judge.count(mode, 'refused');
        if (r.status !== 503 && r.status !== 500) judge.violated(mode, i, `${r.status} ${r.text}`);
      } else if (finish !== null) {
        isWhole = true;
        judge.form(mode, i, text, finish);
        judge.same(mode, i, [text, finish], saidOf(want[i]));
      } else {
        judge.count(mode, 'ended with an error');
        if (!/"error":\{/.test(events.at(-1)?.data) || events.filter(isLast).length !== 1) judge.violated(mode, i, `no error: ${r.text.slice(-300)}`);
        judge.same(mode, i, text, saidOf(want[i])[0].slice(0, text.length));
      }
      if (Date.now() > deadline) throw new Error(`no answer: ${r.status} ${r.text}`);
    }
    ended++;
  });
  over = true;
  await killer;
  judge.count(mode, 'kills', kills);
}

/** Memory for so few pages that answers beside each other are pre-empted. */
const SHORT = ['engine.kv_memory=1MiB', 'engine.page_tokens=16'];

async function preempted(server, judge, mode, want, more) {
  await untilSeen(judge, mode, 'pre-emptions', async () => {
    await again(server, judge, mode, 32, want, more);
    await sleep(1100); // the engine reports its counters once a second
    const text = await server.metrics();
    judge.count(mode, 'pre-emptions', metric(text, 'sluice_engine_preemptions_total'));
    judge.count(mode, 'drafted tokens', metric(text, 'sluice_spec_drafted_tokens_total') || 0);
  });
}

/**
 * All modes on n schemas of a seed, on one server after the other. every: answers between two kills.
 * → the judge: counts by mode, violations
 */
export async function runForms({ n, seed, every, say = () => {} }) {
  const judge = new Judge(makeCases(n, seed));
  let plain, large;
  const on = async (sets, work) => {
    const server = await start(sets);
    try { await work(server); } finally { if (await server.stop() !== 0) judge.violated('servers', 0, server.log().slice(-1000)); }
  };
  const timed = async (mode, work) => {
    const t = performance.now();
    await work();
    say(mode, judge.counts[mode], (performance.now() - t) / 1000);
  };
  await on(['engine.speculation.mode=off'], async (server) => {
    await timed('plain', async () => { plain = await plainly(server, judge); large = plain['demo-large']; });
    await timed('four choices', () => again(server, judge, 'four choices', 6, large, { n: 4 }));
    await timed('cascade', () => cascaded(server, judge, plain));
    await timed('gateway killed', () => untilSeen(judge, 'gateway killed', 'continued by another', () => gatewayKilled(server, judge, large, every)));
    await timed('engine killed', () => untilSeen(judge, 'engine killed', 'ended with an error', () => engineKilled(server, judge, large, every)));
  });
  const drafts = ['engine.speculation.mode=draft', 'engine.speculation.fixed=true', 'engine.speculation.max_draft=4'];
  await on(drafts, (server) => timed('drafts', async () => {
    await again(server, judge, 'drafts', 6, large);
    judge.count('drafts', 'drafted tokens', metric(await server.metrics(), 'sluice_spec_drafted_tokens_total'));
  }));
  await on(['engine.speculation.mode=off', ...SHORT], (server) => timed('short pages', () => preempted(server, judge, 'short pages', large, { n: 4 })));
  await on([...drafts, ...SHORT], (server) => timed('drafts, choices and short pages',
    () => preempted(server, judge, 'drafts, choices and short pages', large, { n: 4 })));
  return judge;
}
