// SPDX-License-Identifier: Apache-2.0
// Four thousand streams (ten thousand with THOROUGH=1), each with a word of its own that its answer repeats: over HTTP/2 and HTTP/1.1, streamed and whole,
// some joined, some cancelled, some resumed, of two tenants on four threads. Nobody ever sees somebody else's word.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import http2 from 'node:http2';
import { after, before, test } from 'node:test';
import { random } from './page_corpus.mjs';
import { startServer } from './harness.mjs';

const STREAMS = process.env.THOROUGH ? 10000 : 4000, AT_ONCE = 200, SESSIONS = 8;
const NONCE = /n[0-9a-f]{24}/g;

let server;
before(async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=4', 'engine.echo.ttft=0ms', 'engine.echo.rate=0',
    ...['free', 'paid'].flatMap((t) => ['concurrency=1000', 'requests_per_minute=0', 'tokens_per_minute=0', 'tokens_per_day=0', 'coalesce=user']
      .map((s) => `gateway.tiers.${t}.${s}`)), 'gateway.limits.requests_per_key=0', 'gateway.limits.connections_per_address=0'] });
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

/** {status, headers, body} of one request; leave(body): it is cancelled there. */
function over2(session, key, path, headers, body, leave) {
  return new Promise((done) => {
    const r = { status: 0, headers: {}, body: '', left: false };
    const s = session.request({ ':method': body ? 'POST' : 'GET', ':path': path, authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers });
    s.setEncoding('utf8');
    s.on('response', (h) => { r.status = h[':status']; r.headers = h; });
    s.on('data', (d) => { r.body += d; if (leave?.(r.body)) { r.left = true; s.close(http2.constants.NGHTTP2_CANCEL); } });
    s.on('error', (e) => { r.error = e; });
    s.on('close', () => done(r));
    s.end(body);
  });
}

function over1(agent, key, path, headers, body, leave) {
  return new Promise((done) => {
    const r = { status: 0, headers: {}, body: '', left: false };
    const req = http.request(new URL(path, server.http), { method: body ? 'POST' : 'GET', agent,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers } }, (res) => {
      r.status = res.statusCode;
      r.headers = res.headers;
      res.setEncoding('utf8');
      res.on('data', (d) => { r.body += d; if (leave?.(r.body)) { r.left = true; req.destroy(); done(r); } });
      res.on('end', () => done(r));
      res.on('error', () => done(r));
    });
    req.on('error', (e) => { r.error = e; done(r); });
    req.end(body);
  });
}

test('thousands of streams, and no foreign word', { timeout: 600_000 }, async () => {
  const pick = random(7), rnd = () => pick(1000) / 1000;
  const sessions = Array.from({ length: SESSIONS }, () => http2.connect(server.http));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 50 });
  const counts = { whole: 0, left: 0, joined: 0, resumed: 0 };
  const check = (r, nonce, what) => {
    const seen = new Set(r.body.match(NONCE) ?? []);
    seen.delete(nonce);
    assert.equal(seen.size, 0, `${what}: ${[...seen]} in the answer to ${nonce}`);
  };
  let next = 0;
  const one = async (i) => {
    const nonce = `n${randomBytes(12).toString('hex')}`, dice = rnd(), two = rnd() < 0.7;
    const key = rnd() < 0.5 ? server.keys.free : server.keys.paid;
    const words = `${'word '.repeat(1 + (i % 12))}${nonce} ${'and '.repeat(i % 7)}end`;
    const responses = rnd() < 0.2, stream = rnd() < 0.8, resumable = stream && dice > 0.85 && dice < 0.9;
    const body = JSON.stringify(responses ? { model: 'default', input: words, stream, store: false }
      : { model: 'default', messages: [{ role: 'user', content: words }], stream });
    const path = responses ? '/v1/responses' : '/v1/chat/completions';
    const send = (headers, leave, p = path, b = body) => (two ? over2(sessions[i % SESSIONS], key, p, headers, b, leave)
      : over1(agent, key, p, headers, b, leave));
    const leave = dice < 0.1 || resumable ? (text) => text.length > 300 : undefined;
    const all = await Promise.all([send(resumable && !responses ? { 'x-sluice-events': '1' } : {}, leave),
      ...(dice > 0.95 ? [send({}), send({})] : [])]);
    for (const r of all) {
      assert.ok(r.left || r.status === 200, `${r.status} ${r.error} ${r.body.slice(0, 300)}`);
      check(r, nonce, `request ${i}`);
      if (r.left) counts.left++;
      else {
        assert.ok(r.body.includes(nonce), `request ${i} lost its own: ${r.body.slice(-300)}`);
        counts.whole++;
      }
    }
    counts.joined += all.length - 1;
    const id = all[0].headers['x-sluice-stream-id'];
    if (all[0].left && id) {
      const again = await send({ 'last-event-id': '0' }, undefined, `/v1/streams/${id}`, null);
      assert.equal(again.status, 200, again.body);
      assert.ok(again.body.includes(nonce));
      check(again, nonce, `resumed ${i}`);
      counts.resumed++;
      const stranger = key === server.keys.free ? server.keys.paid : server.keys.free;
      assert.equal((await over2(sessions[0], stranger, `/v1/streams/${id}`, {}, null)).status, 404, 'of another tenant');
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, async () => { while (next < STREAMS) await one(next++); }));
  sessions.forEach((s) => s.close());
  agent.destroy();
  assert.ok(counts.whole > STREAMS * 0.8 && counts.left > STREAMS * 0.02 && counts.joined > STREAMS * 0.01, JSON.stringify(counts));
  assert.ok(counts.resumed > 50, JSON.stringify(counts));
});
