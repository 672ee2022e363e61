// SPDX-License-Identifier: Apache-2.0
// Identical requests, newer prompts of a conversation and repetitions by an Idempotency-Key, by what the engine was given.
// The engine is the echo engine: tokens come at a known rate.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import { metric, submittedGenerations, until, user } from './client.mjs';
import { startServer, THREADS } from './harness.mjs';

const WORDS = Array.from({ length: 40 }, (_, i) => `w${i}`).join(' ');

for (const threads of THREADS) {
  describe(`twins, ${threads} gateway thread(s)`, () => {
    let server, n = 0;
    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.ttft=30ms', 'engine.echo.rate=200',
        'gateway.limits.requests_per_key=400', 'gateway.coalesce.window=2s', 'gateway.heartbeat=50ms'],
      edit: (yaml) => yaml.replaceAll('supersede: named', 'supersede: any').replace(/\n {4}- name: free\n/, '\n    - name: free\n      coalesce: tenant\n')
        .replace(/(coalesce: tenant\n(?:.*\n)*?) {6}coalesce: user\n/, '$1') });
    });
    after(async () => assert.equal(await server?.stop(), 0, server?.log()));

    const unique = (text = WORDS) => `${text} x${n++}`;
    /** One request: resolves at its end. leave: after so many characters of the answer. slow: reads no more after the first text until that
     * promise is kept. */
    const ask = (content, { path = '/v1/chat/completions', key = server.keys.paid, who = 'ann', body = {}, headers = {}, leave = null, slow = false,
      begun = () => {} } = {}) => new Promise((done) => {
      const r = { status: 0, headers: {}, text: '', raw: '', events: [], finish: null, usage: null, superseded: false, error: null, whole: false };
      const req = http.request(new URL(path, server.http), { method: 'POST', agent: false,
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers } }, (res) => {
        r.status = res.statusCode;
        r.headers = res.headers;
        res.setEncoding('utf8');
        let rest = '';
        const take = (j) => {
          r.events.push(j);
          r.id ??= j.id;
          const c = j.choices?.[0];
          r.text += c?.delta?.content ?? c?.message?.content ?? c?.text ?? '';
          r.finish = c?.finish_reason ?? r.finish;
          r.usage = j.usage ?? r.usage;
          r.superseded ||= j.sluice?.ended_by === 'superseded';
          r.error ??= j.error ?? null;
        };
        const stream = /event-stream/.test(res.headers['content-type'] ?? '');
        res.on('data', (d) => {
          r.raw += d;
          rest += d;
          for (let i; stream && (i = rest.indexOf('\n')) >= 0; rest = rest.slice(i + 1)) {
            const line = rest.slice(0, i);
            if (line === 'data: [DONE]') r.whole = true;
            else if (line.startsWith('data: ')) take(JSON.parse(line.slice(6)));
          }
          if (r.text.length > 0) begun(r);
          if (leave !== null && r.text.length >= leave) { req.destroy(); done(r); }
          if (slow && r.text.length > 0) { res.pause(); slow.then(() => res.resume()); }
        });
        res.on('error', () => {});
        res.on('end', () => {
          if (!stream && r.raw) { try { take(JSON.parse(r.raw)); r.whole = true; } catch { /* not JSON */ } }
          done(r);
        });
      });
      req.on('error', () => done(r));
      req.end(JSON.stringify({ model: 'default', stream: true, ...(path.endsWith('chat/completions') ? { messages: user(content) } : { prompt: content }),
        ...(who ? { user: who } : {}), ...body }));
    });
    const generations = async () => submittedGenerations(await server.metrics());
    const counter = async (name) => metric(await server.metrics(), name);
    const settled = async () => {
      assert.ok(await until(async () => await counter('sluice_engine_running') === 0 && await counter('sluice_engine_waiting') === 0, 50000));
    };
    /** What the engine was given while f ran, and its result. */
    const cost = async (f) => {
      await settled();
      const given = await generations();
      const out = await f();
      await settled();
      return { out, given: await generations() - given };
    };
    const pause = (ms) => new Promise((r) => setTimeout(r, ms));

    test('a double click costs one generation', async () => {
      const text = unique();
      const { out, given } = await cost(() => Promise.all([ask(text), ask(text)]));
      assert.deepEqual(out.map((r) => [r.status, r.text, r.finish, r.whole]), [[200, text, 'stop', true], [200, text, 'stop', true]]);
      assert.notEqual(out[0].id, out[1].id);
      assert.equal(given, 1);
    });

    test('a hundred twins cost one, streamed or not, though some leave', async () => {
      const text = unique();
      const { out, given } = await cost(() => Promise.all(Array.from({ length: 100 }, (_, i) => ask(text,
        { body: i % 3 === 1 ? { stream: false } : { stream_options: { include_usage: true } }, leave: i % 3 === 2 ? 20 : null }))));
      assert.equal(given, 1);
      const stayed = out.filter((_, i) => i % 3 !== 2);
      for (const r of stayed) assert.deepEqual([r.status, r.text, r.finish], [200, text, 'stop']);
      assert.equal(new Set(stayed.map((r) => r.id)).size, stayed.length);
      assert.equal(new Set(stayed.map((r) => r.usage.completion_tokens)).size, 1);
    });

    test('one that comes in the middle, and one just after the end', async () => {
      const text = unique();
      const { out, given } = await cost(async () => {
        let second;
        const first = await ask(text, { begun: () => { second ??= ask(text); } });
        return [first, await second, await ask(text)];
      });
      for (const r of out) assert.equal(r.text, text);
      assert.equal(given, 1);
      await pause(2200);
      assert.equal((await cost(() => ask(text))).given, 1, 'the window is over');
    });

    test('others, and other requests, are no twins', async () => {
      const text = unique();
      const kinds = [{}, { who: 'bob' }, { who: null }, { body: { temperature: 0 } }, { body: { max_tokens: 30 } }, { key: server.keys.free },
        { path: '/v1/completions' }];
      const { given } = await cost(() => Promise.all(kinds.map((o) => ask(text, o))));
      assert.equal(given, kinds.length);
      const alike = unique();
      assert.equal((await cost(() => Promise.all([ask(alike, { who: null }), ask(alike, { who: null })]))).given, 2, 'nobody in particular');
      const certain = { who: null, body: { temperature: 0 } };
      assert.equal((await cost(() => Promise.all([ask(alike, certain), ask(alike, certain)]))).given, 1, 'but at temperature 0');
    });

    test('between users, where the tier says so and the answers would be equal', async () => {
      const text = unique();
      const at = (who, body) => ({ key: server.keys.free, who, body });
      assert.equal((await cost(() => Promise.all([ask(text, at('ann', { seed: 3 })), ask(text, at('bob', { seed: 3 }))]))).given, 1);
      assert.equal((await cost(() => Promise.all([ask(text, at('ann', {})), ask(text, at('bob', {}))]))).given, 2);
    });

    test('the first one leaves, the others get all; all leave, the engine stops', async () => {
      const text = unique();
      const { out, given } = await cost(async () => {
        let twin;
        await ask(text, { leave: 60, begun: () => { twin ??= ask(text); } });
        return twin;
      });
      assert.deepEqual([out.text, out.finish, out.usage, given], [text, 'stop', null, 1]);
      const long = unique(`repeat ${WORDS}`);
      const before = await counter('sluice_engine_cancelled_total');
      let twin;
      await ask(long, { leave: 60, begun: () => { twin ??= ask(long, { leave: 200 }); } });
      await twin;
      assert.ok(await until(async () => await counter('sluice_engine_cancelled_total') === before + 1, 20000));
      assert.ok(await until(async () => await counter('sluice_engine_running') === 0, 20000));
    });

    test('a slow one keeps nobody waiting, in either place', async () => {
      for (const slowFirst of [true, false]) {
        const text = unique(Array.from({ length: 60 }, (_, i) => `s${i}`).join(' '));
        // The slow one reads nothing until the fast one has all.
        let second, go;
        const slow = new Promise((read) => { go = read; });
        const first = ask(text, { slow: slowFirst && slow, begun: () => { second ??= ask(text, { slow: !slowFirst && slow }); } });
        assert.ok(await until(() => second !== undefined, 100_000));
        const fast = await (slowFirst ? second : first);
        assert.equal(fast.text, text);
        go();
        assert.equal((await (slowFirst ? first : second)).text, text);
      }
    });

    test('a failure is told to all', async () => {
      const text = unique(`repeat ${WORDS}`);
      let second;
      const first = ask(text, { begun: () => { second ??= ask(text); } });
      await until(() => second !== undefined, 30000);
      process.kill((await server.pids()).engine, 'SIGKILL');
      for (const r of await Promise.all([first, second])) assert.equal(r.error?.type, 'server_error', r.raw.slice(-300));
      assert.ok(await until(async () => await counter('sluice_engine_up') === 1, 100000));
      await until(async () => (await ask('again', { who: null })).status === 200, 50000);
    });

    test('a newer prompt of a conversation ends the older one at once', async () => {
      const talk = { 'x-sluice-conversation': `c${n++}` };
      const before = await counter('sluice_engine_cancelled_total');
      let second;
      const first = await ask(unique(`repeat ${WORDS}`), { headers: talk, body: { stream_options: { include_usage: true } },
        begun: () => { second ??= ask('never mind', { headers: talk }); } });
      assert.deepEqual([first.finish, first.superseded, first.whole, first.status], ['stop', true, true, 200]);
      assert.ok(first.usage.completion_tokens > 0);
      assert.deepEqual([(await second).text, (await second).superseded], ['never mind', false]);
      assert.ok(await until(async () => await counter('sluice_engine_cancelled_total') === before + 1, 20000));
      let third;
      const plain = ask(unique(`repeat ${WORDS}`), { headers: talk, body: { stream: false } });
      await until(async () => await counter('sluice_generations{state="running"}') === 1, 20000, 5);
      third = ask('so', { headers: talk });
      const p = await plain;
      assert.deepEqual([p.status, p.finish, p.superseded], [200, 'stop', true], p.raw);
      assert.equal((await third).text, 'so');
    });

    test('a conversation is that of one user, and of nobody who is not in it', async () => {
      const talk = { 'x-sluice-conversation': `c${n++}` };
      const text = unique();
      const all = await Promise.all([ask(text, { headers: talk }), ask(unique(), { headers: talk, who: 'bob' }),
        ask(unique(), { headers: { 'x-sluice-conversation': 'another' } }), ask(unique())]);
      assert.deepEqual(all.map((r) => r.superseded), [false, false, false, false]);
    });

    test('one of several twins is superseded, the others get all', async () => {
      const text = unique();
      const at = (who, headers = {}) => ({ key: server.keys.free, who, body: { seed: 1 }, headers });
      const talk = { 'x-sluice-conversation': `c${n++}` };
      const joined = await counter('sluice_twins_joined_total') || 0;
      const { out, given } = await cost(async () => {
        let second, third;
        const first = ask(text, { ...at('ann', talk), begun: () => { second ??= ask(text, at('bob')); } });
        await until(async () => await counter('sluice_twins_joined_total') > joined, 30000);
        third = ask('other', at('ann', talk));
        return Promise.all([first, second, third]);
      });
      assert.deepEqual(out.map((r) => [r.superseded, r.finish]), [[true, 'stop'], [false, 'stop'], [false, 'stop']]);
      assert.equal(out[1].text, text);
      assert.equal(given, 2);
    });

    const keyed = (key, more = {}) => ({ who: null, ...more, headers: { 'idempotency-key': key, ...more.headers } });

    test('a repeated request gets the same answer: running, ended, streamed or not', async () => {
      for (const stream of [true, false]) {
        const text = unique(), key = `k${n++}`, how = keyed(key, { body: { stream, stream_options: stream ? { include_usage: true } : undefined } });
        const { out, given } = await cost(async () => {
          const first = ask(text, how);
          await until(async () => await counter('sluice_generations{state="running"}') === 1, 20000, 5);
          const second = ask(text, how);
          const both = await Promise.all([first, second]);
          await pause(2200);
          return [...both, await ask(text, how)];
        });
        assert.equal(given, 1);
        for (const r of out) assert.deepEqual([r.status, r.id, r.text, r.finish, r.whole, r.usage], [200, out[0].id, text, 'stop', true, out[0].usage]);
        assert.equal(out[2].headers['x-sluice-idempotent-replay'], 'true');
        const events = (r) => r.raw.replaceAll(': ping\n', ''); // heartbeats are no part of the answer
        assert.equal(events(out[2]), events(out[0]), 'byte for byte');
      }
    });

    test('a key is for one request of one tenant', async () => {
      const key = `k${n++}`, text = unique();
      const first = ask(text, keyed(key));
      await until(async () => await counter('sluice_generations{state="running"}') === 1, 20000, 5);
      const other = await ask('something else', keyed(key));
      assert.deepEqual([other.status, other.error.code, other.error.type], [422, 'idempotency_key_reused', 'invalid_request_error']);
      const { id } = await first;
      assert.equal((await ask('something else', keyed(key))).status, 422, 'also when it has ended');
      const stranger = await ask(text, keyed(key, { key: server.keys.free }));
      assert.equal(stranger.status, 200);
      assert.notEqual(stranger.id, id);
      assert.equal((await ask(text, keyed(key, { path: '/v1/completions' }))).status, 200, 'another endpoint');
      assert.equal((await ask(text, keyed('x'.repeat(256)))).status, 400);
    });

    test('what was refused or broke off may be repeated', async () => {
      const key = `k${n++}`, text = unique();
      assert.equal((await ask(text, keyed(key, { body: { model: 'none' } }))).status, 404);
      await ask(text, keyed(key, { leave: 8 }));
      const again = await until(async () => { const r = await ask(text, keyed(key)); return r.status === 200 && r; }, 30000);
      assert.equal(again.text, text);
    });

    test('several prompts can not be joined: who repeats them waits, then gets the stored answer', async () => {
      const key = `k${n++}`, how = keyed(key, { path: '/v1/completions', body: { stream: false, prompt: [unique(), unique()], max_tokens: 60 } });
      const { out, given } = await cost(() => Promise.all([ask('', how), ask('', how)]));
      assert.equal(given, 2);
      assert.deepEqual(out.map((r) => r.status), [200, 200]);
      assert.equal(out[0].raw, out[1].raw);
    });

    test('responses: a repeated one is the same response', async () => {
      const text = unique(), key = `k${n++}`;
      const make = () => ask('', keyed(key, { path: '/v1/responses', body: { prompt: undefined, input: text, stream: false } }));
      const [a, b] = await Promise.all([make(), make()]);
      const c = await make();
      assert.deepEqual([a.status, b.status, c.status], [200, 200, 200], a.raw);
      assert.deepEqual([a.id, b.id], [c.id, c.id]);
      assert.match(a.id, /^resp_/);
    });

    test('conversations are recognised by their messages, and somebody who types', async () => {
      const turn = (role, content) => ({ role, content });
      const long = `repeat ${WORDS}`;
      const chat = (messages) => ({ body: { messages } });
      const ended = async (older, newer, want) => {
        let second;
        const first = await ask('', { ...chat(older), begun: () => { second ??= ask('', chat(newer)); } });
        assert.equal(first.superseded, want, JSON.stringify(newer));
        assert.equal((await second).superseded, false);
      };
      const tag = () => turn('system', `s${n++}`);
      const s = tag(), s2 = tag(), s3 = tag();
      await ended([s, turn('user', long)], [s, turn('user', long), turn('user', 'more')], true);
      await ended([s2, turn('user', 'a'), turn('assistant', 'b'), turn('user', long)], [s2, turn('user', 'a'), turn('assistant', 'b'), turn('user', 'edited')], true);
      await ended([s3, turn('user', WORDS)], [s3, turn('user', 'another question')], false);
      const agent = await Promise.all(['repeat what is', 'repeat what is the', 'what is the capital'].map((t) => ask('', { body: { ...chat([s3, turn('user', t)]).body, max_tokens: 60 } })));
      assert.ok(agent.filter((r) => !r.superseded).length >= 1);
    });
  });
}
