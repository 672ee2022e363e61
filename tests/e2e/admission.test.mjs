// SPDX-License-Identifier: Apache-2.0
// What becomes of requests when the engine has more to do than it can: by tier they wait and are told their place, are
// answered by a smaller model or shorter, are refused at once, make room for better ones, end earlier.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import http from 'node:http';
import { after, afterEach, before, test } from 'node:test';
import OpenAI from 'openai';
import { chat, metric, until, user } from './client.mjs';
import { localOnly, startServer } from './harness.mjs';

const LOCAL = localOnly('how long what runs there will take');

const tier = (name, priority, rest = '') => `    - name: ${name}\n      priority: ${priority}\n      concurrency: 1000\n      coalesce: off\n${rest}`;
const TELL = '400ms', MOST = '4s'; // a busy machine must not make one of the other
const TIERS = {
  free: [5, '      ttft_target: 400ms\n      when_late: refuse\n'],
  paid: [0, ''],
  soft: [4, '      ttft_target: 400ms\n      when_late: degrade\n      degrade:\n        model: demo-small\n        max_tokens: 3\n'],
  brief: [4, '      ttft_target: 400ms\n      when_late: degrade\n      degrade:\n        max_tokens: 2\n'],
  hasty: [6, `      max_wait: ${MOST}\n`],
  falls: [6, `      ttft_target: 1h\n      max_wait: ${MOST}\n      when_late: degrade\n      degrade:\n        model: demo-small\n`],
  bounded: [4, '      under_load:\n        prompt_limit: 6\n        output_limit: 5\n'],
};
const keyOf = (name) => `sk-test-admission-${name}`;

function edit(yaml) {
  const keys = Object.keys(TIERS).map((n) => `    - name: ${n}\n      sha256: ${createHash('sha256').update(keyOf(n)).digest('hex')}\n      tier: ${n}\n`);
  const tiers = Object.entries(TIERS).map(([n, [p, rest]]) => tier(n, p, rest)).join('');
  const from = yaml.indexOf('  tiers:\n'), to = yaml.search(/^  keys: \[\]$/m);
  assert.ok(from > 0 && to > from);
  return yaml.slice(0, from) + `  tiers:\n${tiers}` + yaml.slice(to).replace('  keys: []\n', `  keys:\n${keys.join('')}`);
}

const SLOTS = 2;
const RATE = 50;
const LONG = 40; // seconds: longer than a test takes on a busy machine, which ends what is in the way
let server;
before(async () => {
  server = await startServer({ echo: true, edit, sets: [`engine.echo.slots=${SLOTS}`, `engine.echo.rate=${RATE}`, 'engine.echo.ttft=10ms',
    `gateway.queue.tell=${TELL}`, 'gateway.queue.size=6', 'gateway.load.high=600ms', 'gateway.load.low=300ms', 'gateway.threads=2'] });
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

const value = async (name) => {
  const v = metric(await server.metrics(), name);
  return Number.isNaN(v) ? 0 : v;
};
const running = () => value('sluice_engine_running');
const waiting = () => value('sluice_engine_waiting');

/** Requests that are in the way of others; stop() ends them. */
const held = [];
function hold(name, body, more = {}) {
  const h = { req: null, text: '', status: 0, headers: {} };
  h.whole = new Promise((resolve) => {
    const req = http.request(new URL('/v1/chat/completions', server.http), { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${keyOf(name)}`, 'content-type': 'application/json', ...more } }, (res) => {
      h.status = res.statusCode;
      h.headers = res.headers;
      res.setEncoding('utf8').on('data', (d) => { h.text += d; }).on('end', () => resolve(h)).on('error', () => resolve(h));
    });
    req.on('error', () => resolve(h));
    req.end(JSON.stringify({ model: 'demo-large', stream: true, ...body }));
    h.stop = () => { req.destroy(); resolve(h); };
  });
  held.push(h);
  return h;
}
const long = (tokens, priority = 'paid') => hold(priority, { messages: user('repeat it all'), max_tokens: tokens });

/** The words of a stream. */
const contentOf = (text) => [...text.matchAll(/^data: (\{.*)$/gm)].map((m) => JSON.parse(m[1]).choices?.[0]?.delta?.content ?? '').join('');

/** Every place of the large model is taken. */
async function fill() {
  const all = Array.from({ length: SLOTS }, () => long(LONG * RATE));
  assert.ok(await until(async () => await running() === SLOTS, 50000), 'the places are taken');
  // The gateway's threads have been told of it.
  assert.ok(await until(async () => await value('sluice_predicted_wait_ms{priority="7"}') > LONG * 300, 50000), 'the wait is known');
  return all;
}

const waits = (n) => until(async () => await value('sluice_waiting') === n, 50000);
/** What is in the way ends. */
const stop = (all) => all.forEach((h) => h.stop());

afterEach(async () => {
  for (const h of held.splice(0)) h.stop();
  assert.ok(await until(async () => await running() === 0 && await waiting() === 0 && await value('sluice_predicted_wait_ms{priority="7"}') < 50
    && await value('sluice_waiting') === 0, 50000), 'all is over');
});

test('nobody is in the way: nothing is said of it', async () => {
  const r = await chat(server.http, keyOf('free'), { model: 'demo-large', messages: user('a b c') });
  assert.deepEqual([r.status, r.text, r.comments], [200, 'a b c', 0]);
  assert.equal(r.headers['x-sluice-degraded'], undefined);
  assert.ok(r.events.every((e) => e.sluice === undefined));
});

test('a low tier that would be late is refused at once, and the engine is not asked', LOCAL, async () => {
  await fill();
  const before = await value('sluice_submits_encoded_total');
  for (let i = 0; i < 20; i++) {
    const r = await chat(server.http, keyOf('free'), { model: 'demo-large', messages: user('a b c') });
    assert.deepEqual([r.status, JSON.parse(r.body).error.code], [503, 'overloaded']);
    const after = Number(r.headers['retry-after']);
    assert.ok(after >= 1 && after <= LONG, `retry-after ${after}: what is in the way takes ${LONG} s`);
    assert.equal(Math.max(1, Math.ceil(Number(r.headers['retry-after-ms']) / 1000)), after);
  }
  assert.equal(await value('sluice_submits_encoded_total'), before);
  assert.ok(await value('sluice_load_unsubmitted_total') >= 20);
});

test('a high tier waits, and is told its place until the answer comes', LOCAL, async () => {
  const before = await fill();
  const h = hold('paid', { messages: user('a b c') });
  const places = () => [...h.text.matchAll(/^: queue position=(\d+) wait_ms=(\d+)$/gm)].map((p) => Number(p[2]));
  assert.ok(await until(() => places().length >= 3, 50000), h.text);
  const told = places();
  assert.ok(told[0] <= LONG * 1000 && told[0] > told.at(-1), `the wait becomes shorter: ${told}`);
  assert.doesNotMatch(h.text, /data:/);
  stop(before);
  await h.whole;
  assert.equal(h.status, 200);
  assert.equal(contentOf(h.text), 'a b c');
  assert.match(h.text, /"finish_reason":"stop"/);
  assert.ok(h.text.lastIndexOf(': queue') < h.text.indexOf('data:'), 'places first, then the answer');
});

test('the openai client passes places over', LOCAL, async () => {
  const before = await fill();
  const openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: keyOf('paid'), maxRetries: 0 });
  let text = '';
  const stream = openai.chat.completions.create({ model: 'demo-large', messages: user('a b c'), stream: true });
  assert.ok(await waits(1));
  stop(before);
  for await (const part of await stream)
    text += part.choices[0]?.delta?.content ?? '';
  assert.equal(text, 'a b c');
});

test('a stream that can be resumed is told its place too, and its events are the same for a second reader', LOCAL, async () => {
  const before = await fill();
  const h = hold('paid', { messages: user('a b c') }, { 'x-sluice-events': '1' });
  assert.ok(await until(() => h.text.includes(': queue'), 50000));
  stop(before);
  await h.whole;
  assert.equal(h.status, 200);
  assert.match(h.text, /^: queue position=\d+ wait_ms=\d+\n/);
  assert.match(h.text, /\[DONE\]/);
  const again = await new Promise((done) => http.get(new URL(`/v1/streams/${h.headers['x-sluice-stream-id']}`, server.http),
    { headers: { authorization: `Bearer ${keyOf('paid')}` }, agent: false }, (res) => {
      let text = '';
      res.on('data', (d) => { text += d; }).on('end', () => done({ status: res.statusCode, text }));
    }));
  assert.equal(again.status, 200);
  const events = (t) => t.split('\n').filter((l) => l.startsWith('data:'));
  assert.deepEqual(events(again.text), events(h.text));
});

test('late, and the tier is degraded: the small model, a shorter answer, and both are said', LOCAL, async () => {
  await fill();
  for (const stream of [true, false]) {
    const r = await chat(server.http, keyOf('soft'), { model: 'demo-large', messages: user('a b c d e f'), stream });
    assert.equal(r.status, 200, r.body);
    assert.equal(r.headers['x-sluice-degraded'], 'model');
    const last = stream ? r.events.findLast((e) => e.choices?.[0]?.finish_reason) : JSON.parse(r.body);
    assert.deepEqual(last.sluice, { ended_by: 'load', degraded: 'model' });
    assert.equal(last.model, 'demo-small');
    assert.equal(last.choices[0].finish_reason, 'length');
    assert.equal((stream ? r.text : last.choices[0].message.content).trim(), 'a b c');
  }
  assert.ok(await value('sluice_load_degraded_total{how="model"}') >= 2);
});

test('late, and only the length may be less: it waits, and is short', LOCAL, async () => {
  const before = await fill();
  const answer = chat(server.http, keyOf('brief'), { model: 'demo-large', messages: user('a b c d') });
  assert.ok(await waits(1));
  stop(before);
  const r = await answer;
  assert.deepEqual([r.status, r.text.trim(), r.finish], [200, 'a b', 'length']);
  assert.deepEqual(r.events.findLast((e) => e.choices?.[0]?.finish_reason).sluice, { ended_by: 'load', degraded: 'length' });
});

test('both models have too much to do: refused after all', LOCAL, async () => {
  await fill();
  for (let i = 0; i < SLOTS; i++) hold('paid', { model: 'demo-small', messages: user('repeat it all'), max_tokens: LONG * RATE });
  assert.ok(await until(async () => await running() === 2 * SLOTS, 50000));
  const r = await until(async () => {
    const one = await chat(server.http, keyOf('soft'), { model: 'demo-large', messages: user('a b') });
    return one.status === 503 && one;
  }, 30000);
  assert.equal(r.status, 503);
});

test('waited too long: before anything was said a status, afterwards an event', LOCAL, async () => {
  await fill();
  const whole = await chat(server.http, keyOf('hasty'), { model: 'demo-large', messages: user('a'), stream: false });
  assert.deepEqual([whole.status, JSON.parse(whole.body).error.code], [503, 'overloaded']);
  assert.ok(Number(whole.headers['retry-after']) >= 1);
  const r = await chat(server.http, keyOf('hasty'), { model: 'demo-large', messages: user('a') });
  assert.equal(r.status, 200);
  assert.match(r.body, /^: queue position=/);
  assert.equal(r.errors[0]?.code, 'overloaded');
  assert.equal(r.finish, null);
  assert.ok(await until(async () => await waiting() === 0, 30000), 'the engine has stopped');
  assert.ok(await value('sluice_load_refused_total{reason="waited"}') >= 2);
});

test('waited too long, and there is another model: it answers, and the stream says which', LOCAL, async () => {
  await fill();
  const r = await chat(server.http, keyOf('falls'), { model: 'demo-large', messages: user('a b c') });
  assert.deepEqual([r.status, r.text, r.finish], [200, 'a b c', 'stop'], r.body);
  assert.match(r.body, /^: queue position=/);
  assert.ok(r.events.every((e) => e.model === 'demo-small'), 'no event names the other model');
  assert.deepEqual(r.events.findLast((e) => e.choices?.[0]?.finish_reason).sluice, { degraded: 'model' });
});

test('the room is full: the newest of the worst tier goes for a better one, none for an equal', LOCAL, async () => {
  await fill();
  const low = [];
  for (let i = 0; i < 6; i++) {
    assert.ok(await until(async () => { // a thread that was not told of the load yet has nobody wait
      const h = hold('bounded', { messages: user(`low ${i}`), stream: i % 2 === 0 });
      assert.ok(await until(async () => await waiting() === i + 1, 50000), 'the engine has it');
      if (await until(async () => await value('sluice_waiting') === i + 1, 1000)) return low.push(h);
      h.stop();
      await until(async () => await waiting() === i, 50000);
      return false;
    }, 50000), `${i} wait`);
  }
  const equal = await chat(server.http, keyOf('bounded'), { model: 'demo-large', messages: user('no room') });
  assert.equal(equal.status, 503);
  const high = hold('paid', { messages: user('a b') });
  const gone = await low[5].whole;
  assert.equal(gone.status, 503);
  assert.ok(Number(gone.headers['retry-after']) >= 1);
  assert.equal(JSON.parse(gone.text).error.code, 'overloaded');
  assert.equal(await value('sluice_waiting'), 6);
  // By now it was told that it waits: then it ends with an event.
  assert.ok(await until(() => low[4].text.startsWith(': queue'), 30000));
  hold('paid', { messages: user('a b') });
  const told = await low[4].whole;
  assert.match(told.text, /"code":"overloaded"/);
  assert.doesNotMatch(told.text, /\[DONE\]/);
  assert.equal(low[0].status === 0 || low[0].status === 200, true);
  assert.ok(await value('sluice_load_displaced_total') >= 2);
  assert.ok(await value('sluice_load_refused_total{reason="displaced"}') >= 2);
  void high;
});

test('under load long answers of a low tier end, and long prompts are refused; not otherwise', LOCAL, async () => {
  const seven = 'w0 w1 w2 w3 w4 w5 w6';
  // The other thread may still know of the load that was before.
  const whole = async () => (await chat(server.http, keyOf('bounded'), { model: 'demo-large', messages: user(seven) })).text === seven;
  assert.ok(await until(whole, 50000), 'nobody minds');
  let running;
  const beyond = () => running.text.split('data:').length > 8;
  assert.ok(await until(async () => {
    running = hold('bounded', { messages: user('repeat it all'), max_tokens: LONG * RATE });
    await Promise.race([running.whole, until(beyond, 50000)]);
    return beyond();
  }, 50000), 'beyond its limit, and nobody minds');
  const before = Array.from({ length: SLOTS }, () => long(LONG * RATE));
  const cut = await running.whole;
  assert.match(cut.text, /"finish_reason":"length".*"sluice":\{"ended_by":"load"\}/);
  assert.match(cut.text, /\[DONE\]/);
  long(LONG * RATE);
  const refused = await until(async () => {
    const r = await chat(server.http, keyOf('bounded'), { model: 'demo-large', messages: user(seven) });
    return r.status === 503 && r;
  }, 50000);
  assert.match(JSON.parse(refused.body).error.message, /6 tokens/);
  const answer = chat(server.http, keyOf('bounded'), { model: 'demo-large', messages: user('repeat a b'), max_tokens: 50 });
  assert.ok(await waits(2));
  hold('bounded', { messages: user('repeat it all'), max_tokens: LONG * RATE }); // waits behind it, so that load stays high
  assert.ok(await waits(3));
  stop(before);
  const short = await answer;
  assert.deepEqual([short.status, short.finish, short.usage], [200, 'length', null]);
  assert.equal(short.text.trim().split(' ').length, 5);
});
