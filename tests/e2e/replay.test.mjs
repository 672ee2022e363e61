// SPDX-License-Identifier: Apache-2.0
// Answers that outlive their gateway: it is killed in mid-stream, once and again, replaced, or another one reads beside
// it; what a client then has is byte for byte what it would have had. With a real redis-server.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { metric, until, user } from './client.mjs';
import { freePorts, hasRedis, OVER_UPSTREAM, request, SLUICE, startPair, startServer, THREADS } from './harness.mjs';

const PATIENCE = 100_000;
const skip = hasRedis() ? false : 'redis-server is not installed';
const WORDS = Array.from({ length: 120 }, (_, i) => (i % 10 === 9 ? `물${i}.` : `w${i}`)).join(' ');
const MODEL_SETS = ['engine.echo.ttft=5ms', 'engine.echo.rate=100', 'gateway.heartbeat=50ms', 'supervisor.backoff_min=10ms', 'supervisor.backoff_max=100ms'];

/** Whole events of a text, without comments and retry lines. */
const eventsOf = (text) => text.slice(0, text.includes('\n\n') ? text.lastIndexOf('\n\n') : 0).split('\n\n').filter(Boolean)
  .map((e) => e.split('\n').filter((l) => l && !l.startsWith(':') && !l.startsWith('retry:')).join('\n')).filter(Boolean);
const idOf = (event) => Number(/^id: (\d+)$/m.exec(event)[1]);
const dataOf = (event) => /^data: (.*)$/m.exec(event)[1];
const textOf = (list) => list.map(dataOf).filter((d) => d !== '[DONE]').map((d) => JSON.parse(d))
  .map((d) => d.choices?.[0]?.delta?.content ?? (d.type === 'response.output_text.delta' ? d.delta : '')).join('');
/** Without what differs between two answers to the same request. */
const plain = (list) => list.map((e) => e.replace(/(chatcmpl-|resp_|msg_)[0-9a-f]{32}/g, '$1ID').replace(/"created(_at)?":\d+/g, '"created$1":0')
  .replace(/"(cached_tokens)":\d+/g, '"$1":0').replace(/"id":"(msg|item)_[0-9a-f]{20}"/g, '"id":"$1"'));
const isLast = (event) => /^data: \[DONE\]$/m.test(event) || /^event: response\.(completed|incomplete|failed)$/m.test(event) ||
  /^data: \{"error"/m.test(event);

/**
 * One request whose stream is read until `enough(events)` (then the line is cut), its end, or its breaking:
 * {status, headers, events}. Never rejects: status 0 is no answer.
 */
function read(base, key, method, path, { body, last, headers = {}, enough = () => false } = {}) {
  return new Promise((done) => {
    const url = new URL(path, base);
    const req = http.request(url, { method, agent: false, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json',
      ...headers, ...(last === undefined ? {} : { 'last-event-id': String(last) }) } }, (res) => {
      let text = '';
      const give = () => done({ status: res.statusCode, headers: res.headers, text, events: eventsOf(text) });
      res.setEncoding('utf8');
      res.on('data', (d) => {
        text += d;
        if (enough(eventsOf(text))) { req.destroy(); give(); }
      });
      res.on('error', give);
      res.on('close', give);
    });
    req.on('error', () => done({ status: 0, headers: {}, text: '', events: [] }));
    req.end(body && JSON.stringify(body));
  });
}

/** Goes on with a chat stream at base() until its last event, however often that breaks; got is appended to. */
async function finish(base, key, id, got, { enough = () => false } = {}) {
  const end = Date.now() + PATIENCE;
  while (!(got.length && isLast(got.at(-1))) && !enough(got)) {
    assert.ok(Date.now() < end, `the stream did not end: ${got.slice(-2).join('\n')}`);
    const r = await read(base(), key, 'GET', `/v1/streams/${id}`, { last: got.length ? idOf(got.at(-1)) : undefined,
      enough: (more) => enough([...got, ...more]) });
    assert.ok([0, 200, 503].includes(r.status), `${r.status} ${r.text}`);
    got.push(...r.events);
    if (r.status !== 200) await new Promise((wake) => setTimeout(wake, 20));
  }
  return got;
}

const resumable = { 'x-sluice-events': '1' };
const ask = (base, key, content, more = {}, options = {}) => read(base, key, 'POST', '/v1/chat/completions', { ...options, headers: resumable,
  body: { model: 'default', messages: user(content), stream: true, stream_options: { include_usage: true }, ...more } });

/** Kills the gateway and waits until there is another one. */
async function killGateway(server) {
  const { gateway } = await server.pids();
  process.kill(gateway, 'SIGKILL');
  const back = await until(async () => { const now = (await server.pids()).gateway; return now && now !== gateway; }, PATIENCE);
  assert.ok(back, server.log());
}

const api = async (server, key, method, path, body) => {
  const r = await request(server.http, path, { method, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body) }).catch(() => ({ status: 0, body: '' }));
  let json = null;
  try { json = JSON.parse(r.body); } catch { /* none */ }
  return { ...r, json };
};

for (const threads of THREADS) {
  describe(`a gateway of ${threads} thread(s) that is killed`, { skip }, () => {
    let server, key, uncut;
    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, ...MODEL_SETS, 'gateway.resume.grace=20s'] });
      key = server.keys.paid;
      uncut = await ask(server.http, key, WORDS, { seed: 7 });
      assert.equal(uncut.status, 200, uncut.text);
      assert.equal(textOf(uncut.events), WORDS);
    });
    after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

    test('a stream goes on, not a byte lost or repeated', async () => {
      const begun = await ask(server.http, key, WORDS, { seed: 7 }, { enough: (list) => list.length >= 30 });
      const id = begun.headers['x-sluice-stream-id'], got = begun.events;
      await killGateway(server);
      await finish(() => server.http, key, id, got);
      assert.deepEqual(got.map(idOf), got.map((_, i) => i));
      assert.deepEqual(plain(got), plain(uncut.events), server.log());
      const again = await read(server.http, key, 'GET', `/v1/streams/${id}`);
      assert.deepEqual(again.events, got);
      assert.equal((await read(server.http, key, 'GET', `/v1/streams/${id}`, { last: idOf(got.at(-1)) })).status, 204);
      assert.ok(metric(await server.metrics(), 'sluice_replay_continued_total') >= 1);
    });

    test('and when it is killed twice', async () => {
      const begun = await ask(server.http, key, WORDS, { seed: 7 }, { enough: (list) => list.length >= 10 });
      const id = begun.headers['x-sluice-stream-id'], got = begun.events;
      await killGateway(server);
      await finish(() => server.http, key, id, got, { enough: (list) => list.length >= 60 });
      await killGateway(server);
      await finish(() => server.http, key, id, got);
      assert.deepEqual(plain(got), plain(uncut.events), server.log());
    });

    test('a stream that nobody asks for goes on by itself', async () => {
      const begun = await ask(server.http, key, WORDS, { seed: 7 }, { enough: (list) => list.length >= 10 });
      const id = begun.headers['x-sluice-stream-id'];
      await killGateway(server);
      assert.ok(await until(async () => metric(await server.metrics().catch(() => ''), 'sluice_replay_continued_total') >= 1, PATIENCE), server.log());
      const got = await finish(() => server.http, key, id, []);
      assert.deepEqual(plain(got), plain(uncut.events));
    });

    test('a response in the background is completed, read as a stream or not', async () => {
      const body = { model: 'default', input: WORDS, background: true, stream: true };
      const whole = await read(server.http, key, 'POST', '/v1/responses', { body });
      assert.equal(textOf(whole.events), WORDS);
      const begun = await read(server.http, key, 'POST', '/v1/responses', { body, enough: (list) => list.length >= 20 });
      const { id } = JSON.parse(dataOf(begun.events[0])).response;
      const quiet = await api(server, key, 'POST', '/v1/responses', { model: 'default', input: `${WORDS} and more`, background: true });
      assert.equal(quiet.json.status, 'in_progress');
      /* It is in the store, and runs. */
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_replay_spools') >= 2, PATIENCE));
      await killGateway(server);
      const got = begun.events, end = Date.now() + PATIENCE;
      while (!isLast(got.at(-1))) {
        assert.ok(Date.now() < end, got.at(-1));
        const after = JSON.parse(dataOf(got.at(-1))).sequence_number;
        const more = await read(server.http, key, 'GET', `/v1/responses/${id}?stream=true&starting_after=${after}`);
        assert.ok([0, 200, 503].includes(more.status), `${more.status} ${more.text}`);
        got.push(...more.events);
      }
      assert.deepEqual(got.map((e) => JSON.parse(dataOf(e)).sequence_number), got.map((_, i) => i));
      assert.deepEqual(plain(got), plain(whole.events), server.log());
      const done = await until(async () => {
        const r = await api(server, key, 'GET', `/v1/responses/${quiet.json.id}`);
        return r.json?.status === 'completed' && r;
      }, PATIENCE);
      assert.ok(done, server.log());
      assert.equal(done.json.output[0].content[0].text, `${WORDS} and more`);
      const stored = await api(server, key, 'GET', `/v1/responses/${id}`);
      assert.deepEqual(stored.json, JSON.parse(dataOf(got.at(-1))).response);
    });

    test('an answer that comes out otherwise ends with an error, and one cancelled stays so', async () => {
      const begun = await ask(server.http, key, 'clock', { max_tokens: 300 }, { enough: (list) => list.length >= 60 });
      await killGateway(server);
      const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
      assert.match(got.at(-1), /"code":"not_continued"/);
      const made = await api(server, key, 'POST', '/v1/responses', { model: 'default', input: `repeat ${WORDS}`, background: true, max_output_tokens: 2000 });
      assert.equal(made.status, 200, made.body);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_replay_spools') >= 1, PATIENCE), server.log());
      await killGateway(server);
      const cancelled = await until(async () => {
        const r = await api(server, key, 'POST', `/v1/responses/${made.json.id}/cancel`);
        return r.status === 200 && r;
      }, PATIENCE);
      assert.equal(cancelled?.json.status, 'cancelled', server.log());
      assert.equal((await api(server, key, 'DELETE', `/v1/responses/${made.json.id}`)).status, 200);
      assert.equal((await api(server, key, 'GET', `/v1/responses/${made.json.id}?stream=true`)).status, 404);
    });

    test('a stream that was never there is not found; a stranger\'s neither', async () => {
      const begun = await ask(server.http, key, WORDS, { seed: 7 }, { enough: (list) => list.length >= 40 });
      await killGateway(server);
      assert.ok(await until(async () => (await api(server, key, 'GET', '/v1/usage')).status === 200, PATIENCE));
      assert.equal((await read(server.http, key, 'GET', `/v1/streams/chatcmpl-${'0'.repeat(32)}`)).status, 404);
      assert.equal((await read(server.http, server.keys.free, 'GET', `/v1/streams/${begun.headers['x-sluice-stream-id']}`)).status, 404);
    });
  });
}

/* What the cascade decides by clocks, budgets, races and failures is decided once: whoever goes on with it knows. */
describe('the cascade, whose gateway is killed', { skip }, () => {
  const N = 60, text = (drive) => `${drive} ${Array.from({ length: N }, (_, i) => `w${i}`).join(' ')}`;
  const tokens = (t) => t.match(/\S+\s*/g);
  const driven = (t, word) => Number(new RegExp(`(?:^| )${word}@(\\d+)`).exec(t)?.[1] ?? Infinity);
  /** What the parts of the models' answers make (engine/echo/echo.c: the large one says ~w from differ@ on). */
  const expected = (t, parts) => {
    const small = parts.find((p) => p.model === 'demo-small')?.tokens ?? 0, large = parts.find((p) => p.model === 'demo-large')?.tokens ?? 0;
    return tokens(t).slice(0, small + large).map((w, i) => (i >= small && i >= driven(t, 'differ') ? `~${w}` : w)).join('');
  };
  const aboutOf = (list) => list.map(dataOf).filter((d) => d !== '[DONE]').map((d) => JSON.parse(d)).find((d) => d.sluice?.cascade)?.sluice.cascade;
  const TIERS = `  tiers:
    - {name: paid, easy: 0.001, race: 0.999, hard: 0.999, sure: 0.55, low: 0.45, drop: 0.35, share: 1, disagree: tell}
    - {name: free, easy: 0, race: 0, hard: 1, sure: 0.55, low: 0.45, drop: 0.35, share: 1}
`;
  const edit = (yaml) => yaml.replace('  tiers: []\n', TIERS).replace('pace_tps: 30', 'pace_tps: 0').replace('when_late: refuse', 'when_late: queue');
  const sets = ['gateway.threads=1', 'engine.echo.ttft=5ms', 'engine.echo.rate=150', 'gateway.heartbeat=50ms', 'supervisor.backoff_min=10ms',
    'supervisor.backoff_max=100ms', 'gateway.resume.grace=20s', 'cascade.hold.time=60ms', 'cascade.takeover=150ms', 'gateway.coalesce.window=0'];
  let server, poor, n = 0;
  before(async () => {
    [server, poor] = await Promise.all([startServer({ echo: true, edit, sets: [...sets, 'cascade.least_escalations=1000000'] }),
      startServer({ echo: true, edit: (yaml) => edit(yaml).replaceAll('share: 1', 'share: 0'), sets: [...sets, 'cascade.least_escalations=0'] })]);
  });
  after(async () => { for (const s of [server, poor]) if (s) assert.equal(await s.stop(), 0, s.log()); });

  /** What was shown before stands, the ids go on, and parts tell the truth. */
  const check = async (on, key, t, begun, got, seen, name) => {
    assert.deepEqual(got.map(idOf), got.map((_, i) => i), name);
    const about = aboutOf(got);
    assert.ok(about, `${name}: ${got.at(-1)}\n${on.log()}`);
    assert.equal(textOf(got), expected(t, about.parts), name);
    assert.ok(textOf(got).startsWith(seen), name);
    const again = await read(on.http, on.keys[key], 'GET', `/v1/streams/${begun.headers['x-sluice-stream-id']}`);
    assert.deepEqual(again.events, got, name);
    return about;
  };
  /** All of them at once, each cut after so many events (Infinity: not at all), and then one kill for all. */
  const cutAll = async (on, all, at) => {
    const running = await Promise.all(all.map(async ([name, key, drive, ...want]) => {
      const t = text(`${drive} k${n++}`);
      const begun = await ask(on.http, on.keys[key], t, { model: 'auto', seed: 3, max_tokens: N }, { enough: (list) => list.length >= at });
      assert.equal(begun.status, 200, `${name}: ${begun.text}`);
      return { name, key, t, want, begun, got: begun.events.slice(), seen: textOf(begun.events) };
    }));
    if (at < Infinity) await killGateway(on);
    for (const { name, key, t, want: [plan, reason, models], begun, got, seen } of running) {
      await finish(() => on.http, on.keys[key], begun.headers['x-sluice-stream-id'], got);
      const about = await check(on, key, t, begun, got, seen, `${name}, ${at}`);
      assert.deepEqual([about.plan, about.reason, about.parts.map((p) => p.model)], [plan, reason, models], `${name}, ${at}`);
    }
  };

  const WAYS = [
    ['a switch in the middle, not agreed', 'paid', 'unsure@20 differ@9', 'check', 'shown', ['demo-small', 'demo-large']],
    // An upstream can't check the small one's tokens: the large one begins from the start.
    ['a hold that was lost', 'paid', 'unsure@0 differ@2', 'check', 'held', OVER_UPSTREAM ? ['demo-large'] : ['demo-small', 'demo-large']],
    ['a hold that its time ended', 'paid', 'slow-small@40', 'check', undefined, ['demo-small']],
    ['a small model that failed', 'paid', 'fail-small@12 differ@5', 'check', 'failure', ['demo-small', 'demo-large']],
    ['one that failed at once', 'paid', 'fail-small@0 differ@5', 'check', 'failure', ['demo-large']],
    ['a large model that failed', 'paid', 'unsure@15 fail-large@0', 'check', 'shown', ['demo-small']],
    ['a race that the large model won', 'free', 'slow-small@100 differ@3', 'race', 'race', ['demo-large']],
    ['a race that the small model won', 'free', 'slow-large@400', 'race', undefined, ['demo-small']],
  ];
  /* An upstream, where all requests have one key, begins to refuse those of a model that fails often. */
  const FEWER = OVER_UPSTREAM ? WAYS.filter(([, , drive]) => !drive.includes('fail-')) : WAYS;
  /* What is decided after it is killed is decided by another budget and another patience. */
  const LATE = ['a large model that was too late', 'paid', 'unsure@20 hang-large@0', 'check', 'shown', ['demo-small']];
  const REFUSED = ['a budget that refused', 'paid', 'unsure@20 differ@3', 'check', undefined, ['demo-small']];

  test('whoever goes on with it shows the same', async () => {
    await cutAll(server, [...WAYS, LATE], Infinity);
    await cutAll(server, FEWER, 2);
    await cutAll(server, WAYS, 14);
    await cutAll(server, [...FEWER, LATE], 40);
  });

  test('a budget that refused', async () => {
    await cutAll(poor, [REFUSED], Infinity);
    await cutAll(poor, Array(4).fill(REFUSED), 26);
  });

  /* Stopped and not killed: a store that is gone is known at once, one that is silent only by its patience. */
  test('a store that falls silent before, in and after the switch: the reader sees none of it', async () => {
    for (const at of [1, 10, 20, 23]) {
      const t = text(`unsure@20 differ@9 silent k${n++}`), { redis } = await server.pids();
      let stopped = false;
      try {
        const r = await ask(server.http, server.keys.paid, t, { model: 'auto', seed: 3, max_tokens: N }, { enough: (list) => {
          if (!stopped && list.length >= at) { stopped = true; process.kill(redis, 'SIGSTOP'); }
          return false;
        } });
        assert.ok(stopped && r.status === 200 && isLast(r.events.at(-1)), `${at}: ${r.text}`);
        const about = aboutOf(r.events);
        assert.deepEqual([textOf(r.events), about.reason], [expected(t, about.parts), 'shown'], `${at}`);
        assert.deepEqual(r.events.map(idOf), r.events.map((_, i) => i), `${at}`);
      } finally {
        process.kill(redis, 'SIGCONT');
      }
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') >= 1, PATIENCE), server.log());
    }
  });

  // Its 200 is a promise that a silent store can't keep: it is refused and stopped; and the client may leave meanwhile.
  test('a response in the background while the store is silent, and a client that leaves', async () => {
    const { redis } = await server.pids();
    let told;
    try {
      process.kill(redis, 'SIGSTOP');
      const left = new AbortController();
      const leaver = fetch(`${server.http}/v1/responses`, { method: 'POST', signal: left.signal,
        headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'default', input: text('leaves'), background: true }) }).catch((e) => e);
      setTimeout(() => left.abort(), 100);
      told = await api(server, server.keys.paid, 'POST', '/v1/responses', { model: 'default', input: text('stays'), background: true });
      await leaver;
    } finally {
      process.kill(redis, 'SIGCONT');
    }
    assert.deepEqual([told.status, told.json.error.code, told.headers['retry-after']], [503, 'store_unavailable', '1']);
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') >= 1, PATIENCE), server.log());
    assert.ok(await until(async () => {
      told = await api(server, server.keys.paid, 'POST', '/v1/responses', { model: 'default', input: text('stays'), background: true });
      return told.status === 200;
    }, PATIENCE), told.body);
    assert.ok(await until(async () => (await api(server, server.keys.paid, 'GET', `/v1/responses/${told.json.id}`)).json?.status === 'completed', PATIENCE));
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, PATIENCE));
  });

  // All of the text comes, and then the truth about it.
  test('a response, and a turn of a conversation, whose store falls silent before the end', async () => {
    const { redis } = await server.pids();
    const { json: conversation } = await api(server, server.keys.paid, 'POST', '/v1/conversations', {});
    const cases = [[{}, 'store_unavailable'], [{ conversation: conversation.id }, 'store_unavailable'],
      [{ conversation: conversation.id, store: false }, 'conversation_not_updated'], [{ store: false }, undefined]];
    for (const [more, code] of cases) {
      const input = text(`unkept${n++}`), events = [];
      try {
        // The turn before may hold the conversation until its lease ends: letting go of it went to the silent store, too.
        let r;
        assert.ok(await until(async () => {
          r = await fetch(`${server.http}/v1/responses`, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`,
            'content-type': 'application/json' }, body: JSON.stringify({ model: 'default', input, stream: true, ...more }) });
          if (r.status === 409) await r.text();
          return r.status !== 409;
        }, 2 * PATIENCE));
        assert.equal(r.status, 200);
        let rest = '', stopped = false;
        for await (const piece of r.body.pipeThrough(new TextDecoderStream())) {
          const lines = (rest + piece).split('\n');
          rest = lines.pop();
          events.push(...lines.filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6))));
          if (!stopped && events.some((e) => e.type === 'response.output_text.delta')) { stopped = true; process.kill(redis, 'SIGSTOP'); }
        }
        assert.ok(stopped);
      } finally {
        process.kill(redis, 'SIGCONT');
      }
      const told = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join(''), last = events.at(-1);
      assert.equal(last.response.output[0].content[0].text, told);
      assert.deepEqual([last.type, last.response.status, last.response.error?.code, last.response.conversation],
        code === undefined ? ['response.completed', 'completed', undefined, null] : ['response.failed', 'failed', code, null]);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') >= 1, PATIENCE), server.log());
    }
  });

  test('killed again while it goes on, and a response in the background', async () => {
    const t = text('unsure@20 differ@9 twice'), body = { model: 'auto', seed: 3, max_tokens: N };
    const uncut = await ask(server.http, server.keys.paid, t, body);
    const begun = await ask(server.http, server.keys.paid, t, body, { enough: (list) => list.length >= 10 });
    const got = begun.events, id = begun.headers['x-sluice-stream-id'];
    await killGateway(server);
    await finish(() => server.http, server.keys.paid, id, got, { enough: (list) => list.length >= 35 });
    await killGateway(server);
    await finish(() => server.http, server.keys.paid, id, got);
    assert.deepEqual(plain(got), plain(uncut.events), server.log());
    // Whoever is told that it has begun finds it done: killed as soon as that is said, again and again.
    for (let i = 0; i < 8; i++) {
      const input = text(`unsure@20 differ@9 background${i}`);
      const r = await api(server, server.keys.paid, 'POST', '/v1/responses', { model: 'auto', input, background: true });
      assert.equal(r.status, 200, r.body);
      await killGateway(server);
      let done;
      assert.ok(await until(async () => {
        done = (await api(server, server.keys.paid, 'GET', `/v1/responses/${r.json.id}`)).json;
        return done?.status === 'completed' || done?.status === 'failed';
      }, PATIENCE), `${i}: ${JSON.stringify(done)}`);
      assert.equal(done.status, 'completed', JSON.stringify(done));
      assert.equal(done.output[0].content[0].text, expected(input, done.sluice.cascade.parts));
    }
    assert.ok(metric(await server.metrics(), 'sluice_replay_continued_total') >= 1);
  });
});

describe('the engine with real models', { skip }, () => {
  let server;
  before(async () => { server = await startServer({ sets: ['gateway.threads=2', 'gateway.tiers.paid.pace_tps=150'] }); });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  test('says the same again, whatever runs beside it', async () => {
    const key = server.keys.paid, more = { seed: 11, temperature: 1, max_tokens: 200, logprobs: true, top_logprobs: 2 };
    const question = 'Tell me a long story about the sea and the mountains.';
    const uncut = await ask(server.http, key, question, { ...more, ignore_eos: true });
    assert.equal(uncut.status, 200, uncut.text);
    const others = Array.from({ length: 3 }, (_, i) => ask(server.http, key, `Another question, number ${i}`, { max_tokens: 100, ignore_eos: true }));
    const begun = await ask(server.http, key, question, { ...more, ignore_eos: true }, { enough: (list) => list.length >= 12 });
    const { gateway } = await server.pids();
    process.kill(gateway, 'SIGKILL');
    const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
    assert.ok(got.length > 50, `${got.length} events`);
    assert.deepEqual(plain(got), plain(uncut.events), server.log());
    await Promise.all(others);
    assert.ok(metric(await server.metrics(), 'sluice_replay_continued_total') >= 1, server.log());
  });
});

describe('two gateways on one Redis', { skip }, () => {
  const key = 'sk-key-of-two-gateways';
  const keys = [`gateway.keys.shared.sha256=${createHash('sha256').update(key).digest('hex')}`, 'gateway.keys.shared.tier=paid'];
  const others = [];
  let server, base2;
  /** One more gateway at the server's engine and Redis: {http, child}. */
  const startGateway = async () => {
    const [port] = await freePorts(1);
    const one = { http: `http://127.0.0.1:${port}`, state: mkdtempSync(join(tmpdir(), 'sluice-e2e-')), log: '' };
    one.child = spawn(SLUICE, ['gateway', '-c', 'etc/sluice.yaml', '--state', one.state, ...[...keys, 'gateway.heartbeat=50ms', 'gateway.threads=2',
      'gateway.resume.grace=2s', `gateway.http=127.0.0.1:${port}`, 'gateway.https=off', `gateway.engine_socket=${server.state}/run/engine.sock`,
      `cache.address=unix:${server.state}/run/redis.sock`].flatMap((s) => ['--set', s])], { stdio: ['ignore', 'ignore', 'pipe'] });
    others.push(one);
    one.child.stderr.setEncoding('utf8').on('data', (d) => { one.log += d; });
    const ready = await until(async () => { try { return (await request(one.http, '/ready')).status === 200; } catch { return false; } }, PATIENCE);
    assert.ok(ready && await until(() => /connected to Redis/.test(one.log), PATIENCE), one.log);
    return one;
  };
  before(async () => {
    server = await startServer({ echo: true, sets: [...keys, ...MODEL_SETS, 'gateway.threads=2', 'gateway.resume.grace=2s'] });
    base2 = (await startGateway()).http;
  });
  after(async () => {
    for (const one of others) {
      one.child.kill('SIGKILL');
      rmSync(one.state, { recursive: true, force: true });
    }
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('a stream is read at the other one while it is made, and lives by that', async () => {
    const long = `${WORDS} ${WORDS} ${WORDS}`; // longer than the grace
    const begun = await ask(base2, key, long, { seed: 3 }, { enough: (list) => list.length >= 5 });
    const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
    assert.equal(textOf(got), long);
    assert.deepEqual(got.map(idOf), got.map((_, i) => i));
    assert.match(got.at(-1), /\[DONE\]/);
    assert.equal(metric(await server.metrics(), 'sluice_replay_continued_total'), 0, server.log());
  });

  test('a response in the background is cancelled at the other one', async () => {
    const made = await api({ http: base2 }, key, 'POST', '/v1/responses', { model: 'default', input: `repeat ${WORDS}`, background: true, max_output_tokens: 2000 });
    assert.equal(made.json.status, 'in_progress');
    const r = await until(async () => {
      const c = await api(server, key, 'POST', `/v1/responses/${made.json.id}/cancel`);
      return c.status === 200 && c;
    }, PATIENCE);
    assert.equal(r?.json.status, 'cancelled', server.log());
    assert.equal((await api({ http: base2 }, key, 'GET', `/v1/responses/${made.json.id}`)).json.status, 'cancelled');
  });

  test('its gateway is killed: who reads at the other one notices nothing', async () => {
    const begun = await ask(base2, key, WORDS, { seed: 3 }, { enough: (list) => list.length >= 5 });
    const id = begun.headers['x-sluice-stream-id'];
    let killed = false;
    const rest = await read(server.http, key, 'GET', `/v1/streams/${id}`, { last: idOf(begun.events.at(-1)),
      enough: (list) => { if (!killed && list.length >= 20) { killed = true; others[0].child.kill('SIGKILL'); } return false; } });
    assert.ok(killed);
    const got = [...begun.events, ...rest.events];
    assert.equal(textOf(got), WORDS, server.log());
    assert.deepEqual(got.map(idOf), got.map((_, i) => i));
    assert.match(got.at(-1), /\[DONE\]/);
    assert.equal(metric(await server.metrics(), 'sluice_replay_continued_total'), 1);
  });

  test('of two that are left exactly one goes on with each of many', async () => {
    const [third, fourth] = [await startGateway(), await startGateway()];
    const made = await Promise.all(Array.from({ length: 12 }, (_, i) =>
      api(fourth, key, 'POST', '/v1/responses', { model: 'default', input: `${i} ${WORDS}`, background: true })));
    for (const r of made) assert.equal(r.json?.status, 'in_progress', r.body);
    const many = (log) => log.split('continuing an answer').length - 1;
    const before = many(server.log());
    const stored = () => Promise.all(made.map((r) => read(third.http, key, 'GET', `/v1/responses/${r.json.id}?stream=true`,
      { enough: (list) => list.length >= 5 })));
    for (const r of await stored()) assert.equal(r.status, 200, r.text);
    fourth.child.kill('SIGKILL');
    for (const [i, r] of made.entries()) {
      const done = await until(async () => {
        const got = await api(third, key, 'GET', `/v1/responses/${r.json.id}`);
        return got.json?.status === 'completed' && got;
      }, PATIENCE);
      assert.equal(done?.json.output[0].content[0].text, `${i} ${WORDS}`, third.log + server.log());
    }
    assert.equal(many(server.log()) - before + many(third.log), made.length);
  });
});

describe('a gateway that is replaced, and a Redis that goes', { skip }, () => {
  let server;
  afterEach(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); server = null; });

  test('a stream that breaks during an upgrade is gone on with at the new gateway', async () => {
    server = await startServer({ echo: true, sets: [...MODEL_SETS, 'gateway.threads=2'] });
    const key = server.keys.paid;
    const begun = await ask(server.http, key, `${WORDS} ${WORDS}`, {}, { enough: (list) => list.length >= 10 });
    process.kill(server.pid, 'SIGUSR2');
    assert.ok(await until(() => /replaced: draining/.test(server.log()), PATIENCE), server.log());
    const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
    assert.equal(textOf(got), `${WORDS} ${WORDS}`);
    assert.deepEqual(got.map(idOf), got.map((_, i) => i));
  });

  test('what an upgrade leaves no time for is gone on with by the new gateway', async () => {
    server = await startServer({ echo: true, sets: [...MODEL_SETS, 'gateway.upgrade_drain=300ms'] });
    const key = server.keys.paid, long = `${WORDS} ${WORDS}`;
    const made = await api(server, key, 'POST', '/v1/responses', { model: 'default', input: long, background: true });
    const begun = await ask(server.http, key, `${long} again`, {}, { enough: (list) => list.length >= 10 });
    process.kill(server.pid, 'SIGUSR2');
    const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
    assert.equal(textOf(got), `${long} again`, server.log());
    const done = await until(async () => {
      const r = await api(server, key, 'GET', `/v1/responses/${made.json.id}`);
      return r.json?.status === 'completed' && r;
    }, PATIENCE);
    assert.equal(done?.json.output[0].content[0].text, long, server.log());
  });

  test('over an upstream that lists its tokens a stream goes on; over one that does not it ends with an error, nothing repeated', async () => {
    for (const [dialect, end] of [['vllm', /\[DONE\]/], ['openai', /"code":"not_continued"/]]) {
      const isModel = (s) => s.startsWith('engine.');
      const pair = await startPair({ echo: true, dialect, engine: MODEL_SETS.filter(isModel), sets: MODEL_SETS.filter((s) => !isModel(s)) });
      try {
        const { front } = pair, key = front.keys.paid;
        const begun = await ask(front.http, key, WORDS, {}, { enough: (list) => list.length >= 30 }), got = begun.events;
        await killGateway(front);
        await finish(() => front.http, key, begun.headers['x-sluice-stream-id'], got);
        assert.match(got.at(-1), end, dialect);
        // What was sent, but not stored, has the numbers that the error's may be one of.
        const last = got.length - 1, ids = got.map(idOf);
        assert.deepEqual(ids.slice(0, -1), got.slice(0, -1).map((_, i) => i), dialect);
        assert.ok(dialect === 'vllm' ? ids[last] === last : ids[last] <= last, `${ids[last]} of ${last}`);
        assert.ok(dialect === 'vllm' ? textOf(got) === WORDS : WORDS.startsWith(textOf(got)), textOf(got));
      } finally { for (const one of [pair.front, pair.back]) assert.equal(await one.stop(), 0, one.log()); }
    }
  });

  test('a Redis that was away meanwhile costs nothing', async () => {
    server = await startServer({ echo: true, sets: MODEL_SETS });
    const key = server.keys.paid;
    const begun = await ask(server.http, key, `${WORDS} ${WORDS}`, {}, { enough: (list) => list.length >= 10 });
    const { redis } = await server.pids();
    process.kill(redis, 'SIGKILL');
    const id = begun.headers['x-sluice-stream-id'], got = begun.events;
    await finish(() => server.http, key, id, got, { enough: (list) => list.length >= 40 });
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_connected') >= 1 || /connected to Redis/.test(server.log().split('SIGKILL').at(-1)), PATIENCE));
    await finish(() => server.http, key, id, got);
    assert.equal(textOf(got), `${WORDS} ${WORDS}`);
  });

  test('without a Redis a stream is resumed in this process, as ever', async () => {
    server = await startServer({ echo: true, sets: [...MODEL_SETS, 'cache.address=127.0.0.1:1', 'gateway.threads=4'] });
    const key = server.keys.paid;
    const begun = await ask(server.http, key, WORDS, {}, { enough: (list) => list.length >= 10 });
    const got = await finish(() => server.http, key, begun.headers['x-sluice-stream-id'], begun.events);
    assert.equal(textOf(got), WORDS);
    const r = await read(server.http, key, 'GET', `/v1/streams/chatcmpl-${'0'.repeat(32)}`);
    assert.equal(r.status, 503, 'whether it is in the store nobody knows');
  });
});
