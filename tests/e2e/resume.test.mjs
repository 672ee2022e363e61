// SPDX-License-Identifier: Apache-2.0
// Streams that can be resumed (x-sluice-events: 1), byte for byte: cut anywhere and gone on with by Last-Event-ID on
// whatever thread, read by several at once, stopped, forgotten. The engine is the echo engine.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import { metric, until, user } from './client.mjs';
import { request, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';

const COUNTED = Array.from({ length: 220 }, (_, i) => (i % 10 === 9 ? `물${i}.` : `w${i}`)).join(' ');

for (const threads of [1, 4]) {
  describe(`resumed streams, ${threads} gateway thread(s)`, () => {
    let server;
    // A reader may take a minute to come back.
    const start = (grace = '1m') => startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.ttft=5ms', 'engine.echo.rate=500',
      `gateway.resume.grace=${grace}`, 'gateway.resume.stream_bytes=128KiB', 'gateway.heartbeat=50ms'] });
    before(async () => { server = await start(); });
    after(async () => assert.equal(await server?.stop(), 0, server?.log()));

    /** Reads so many bytes (null: all) of a stream, then cuts the line: {status, headers, text}. */
    const read = (method, path, { body, most = null, last, key = server.keys.paid, events = true, at = server } = {}) => new Promise((done, failed) => {
      const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json',
        ...(events ? { 'x-sluice-events': '1' } : {}), ...(last === undefined ? {} : { 'last-event-id': last }) };
      const req = http.request(new URL(path, at.http), { method, headers, agent: false }, (res) => {
        const parts = [];
        let n = 0;
        const give = (bytes) => done({ status: res.statusCode, headers: res.headers, text: bytes.toString() });
        res.on('data', (d) => {
          parts.push(d);
          n += d.length;
          if (most !== null && n >= most) { req.destroy(); give(Buffer.concat(parts).subarray(0, most)); }
        });
        res.on('end', () => give(Buffer.concat(parts)));
        res.on('error', () => {});
      });
      req.on('error', failed);
      req.end(body && JSON.stringify(body));
    });
    const ask = (content, options = {}) => read('POST', '/v1/chat/completions',
      { body: { model: 'default', messages: user(content), stream: true, ...options.more }, ...options });
    /** The events that are whole, comments and retry left out. */
    const events = (text) => text.slice(0, text.includes('\n\n') ? text.lastIndexOf('\n\n') : 0).split('\n\n').filter(Boolean)
      .map((e) => e.split('\n').filter((l) => !l.startsWith(':') && !l.startsWith('retry:')).join('\n'));
    const idOf = (event) => Number(/^id: (\d+)$/m.exec(event)[1]);
    const textOf = (list) => list.map((e) => /^data: (.*)$/m.exec(e)[1]).filter((d) => d !== '[DONE]')
      .map((d) => JSON.parse(d).choices[0]?.delta?.content ?? '').join('');
    const running = async (at = server) => metric(await at.metrics(), 'sluice_engine_running');

    test('cut fifty times, it is the uncut one', async () => {
      const rnd = random(7);
      const first = await ask(COUNTED, { most: 900 });
      const id = first.headers['x-sluice-stream-id'];
      assert.match(id, /^chatcmpl-/);
      assert.match(first.text, /^retry: \d+\nid: 0\ndata: /);
      const got = events(first.text);
      let cuts = 1;
      while (got.at(-1) === undefined || !got.at(-1).endsWith('data: [DONE]')) {
        const more = await read('GET', `/v1/streams/${id}`, { last: got.length ? String(idOf(got.at(-1))) : undefined,
          most: cuts < 50 ? 60 + rnd(900) : null });
        if (more.status === 204) break;
        assert.equal(more.status, 200);
        got.push(...events(more.text));
        cuts++;
      }
      assert.ok(cuts >= 50, `${cuts} cuts`);
      assert.deepEqual(got.map(idOf), got.map((_, i) => i));
      const uncut = events((await read('GET', `/v1/streams/${id}`)).text);
      assert.deepEqual(got, uncut);
      assert.equal(textOf(got), COUNTED);
      assert.equal((await read('GET', `/v1/streams/${id}`, { last: String(idOf(got.at(-1))) })).status, 204, 'nothing is left');
    });

    test('several read one stream, each from where it likes', async () => {
      const begun = await ask(COUNTED, { most: 600 });
      const id = begun.headers['x-sluice-stream-id'];
      const readers = await Promise.all([...[undefined, '0', '1', undefined, '2'].map((last) => read('GET', `/v1/streams/${id}`, { last }))]);
      const whole = events(readers[0].text);
      assert.equal(textOf(whole), COUNTED);
      assert.deepEqual(readers.map((r) => events(r.text)), [whole, whole.slice(1), whole.slice(2), whole, whole.slice(3)]);
    });

    test('a slow first token is bridged by comments, which number nothing', async () => {
      const r = await ask('slow 300 one two');
      assert.equal(r.status, 200);
      const list = events(r.text);
      assert.deepEqual(list.map(idOf), list.map((_, i) => i));
    });

    test('one that nobody reads goes on for a while, then ends; one may be stopped', async () => {
      const begun = await ask(`repeat ${COUNTED}`, { most: 600 });
      assert.ok(await until(async () => await running() === 1, 50000), 'it goes on');
      const id = begun.headers['x-sluice-stream-id'];
      assert.equal((await read('DELETE', `/v1/streams/${id}`)).status, 204);
      assert.ok(await until(async () => await running() === 0, 50000));
      const list = events((await read('GET', `/v1/streams/${id}`)).text);
      assert.match(list.at(-2), /"finish_reason":"stop"/);
      assert.match(list.at(-1), /\[DONE\]$/);
      const at = await start('500ms');
      try {
        const left = await ask(`repeat ${COUNTED}`, { most: 600, key: at.keys.paid, at });
        assert.ok(await until(async () => metric(await at.metrics(), 'sluice_engine_cancelled_total') === 1 && await running(at) === 0, 50000), 'nobody came back');
        assert.equal((await read('GET', `/v1/streams/${left.headers['x-sluice-stream-id']}`, { key: at.keys.paid, at })).status, 200, 'what it had is kept');
      } finally {
        assert.equal(await at.stop(), 0, at.log());
      }
    });

    test('what is a stranger\'s, was not, or is gone', async () => {
      const r = await ask('a b c');
      const id = r.headers['x-sluice-stream-id'];
      assert.equal((await read('GET', `/v1/streams/${id}`, { key: server.keys.free })).status, 404);
      assert.equal((await read('DELETE', `/v1/streams/${id}`, { key: server.keys.free })).status, 404);
      assert.equal((await read('GET', '/v1/streams/nobody')).status, 404);
      for (const [last, status] of [['x', 400], ['-1', 400], ['999999', 410], ['99999999999999999999', 400]])
        assert.equal((await read('GET', `/v1/streams/${id}`, { last })).status, status, last);
      const plain = await ask('a b c', { events: false });
      assert.equal(plain.headers['x-sluice-stream-id'], undefined);
      assert.ok(!plain.text.includes('id: '));
      // More events than are kept: the first are gone.
      const long = await ask(Array.from({ length: 1500 }, (_, i) => `x${i}`).join(' '), { more: { max_tokens: 1500 } });
      assert.equal((await read('GET', `/v1/streams/${long.headers['x-sluice-stream-id']}`, { last: '0' })).status, 410);
      assert.equal((await request(server.http, `/v1/streams/${id}`, { method: 'POST' })).status, 405);
    });
  });
}
