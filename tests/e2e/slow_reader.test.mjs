// SPDX-License-Identifier: Apache-2.0
// Clients that ask for endless answers and do not read them: what is held for each is bounded, the engine stops making
// tokens for them, others are served meanwhile, and in the end they are broken off and their work is cancelled.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { startServer } from './harness.mjs';

const N = 50;
const PER_STREAM = 64 << 10;
const CONSTANT = 4 << 20;
const STALL_MS = 12000; // well above what the beginning takes on a busy machine
const QUESTION = { model: 'default', stream: true, max_tokens: 1000000, messages: user(`repeat ${'w'.repeat(55)} `.repeat(8)) };

function rss(pid) {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
}

const start = () => startServer({ echo: true, sets: ['engine.echo.rate=0', 'engine.echo.ttft=1ms', `gateway.limits.stall=${STALL_MS}ms`,
  'gateway.tiers.paid.max_output=1000000', 'gateway.tiers.paid.concurrency=200', 'gateway.tiers.paid.tokens_per_minute=0'] });

const decoded = async (server) => metric(await server.metrics(), 'sluice_engine_decode_tokens_total');
const running = async (server) => metric(await server.metrics(), 'sluice_engine_running');

/** Until the engine has made no token for a while; how many it has made. */
async function standstill(server) {
  let last = -1, since = Date.now();
  const ok = await until(async () => {
    const now = await decoded(server);
    if (now !== last) { last = now; since = Date.now(); }
    return last > 0 && Date.now() - since > 1500; // several reports of the engine
  }, STALL_MS - 1000);
  assert.ok(ok, 'the engine goes on making tokens that nobody reads');
  return last;
}

/** One connection for each stream, of which nothing is read. */
function askOnce(server) {
  const url = new URL(server.http);
  const body = JSON.stringify(QUESTION);
  const s = net.connect({ host: url.hostname, port: Number(url.port) });
  s.pause();
  s.on('error', () => {});
  s.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${server.keys.paid}\r\n`
    + `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return s;
}

/** All streams on one HTTP/2 connection, whose flow-control windows are never opened again. */
function askOnOne(server) {
  const session = http2.connect(server.http, { settings: { initialWindowSize: 16384 } });
  session.on('error', () => {});
  const streams = Array.from({ length: N }, () => {
    const s = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json',
      authorization: `Bearer ${server.keys.paid}` });
    s.pause();
    s.on('error', (e) => { s.reason = e; });
    s.on('close', () => { s.gone = true; });
    s.end(JSON.stringify(QUESTION));
    return s;
  });
  return { session, streams };
}

async function check(server, ask) {
  const { gateway } = await server.pids();
  // What is allocated once, by any answer, is no part of it.
  await chat(server.http, server.keys.paid, { model: 'default', messages: user('warm up') });
  const before = rss(gateway);
  const started = Date.now();
  const asked = ask();
  assert.ok(await until(async () => await running(server) === N, 30000), `${await running(server)} of ${N} streams run`);
  const made = await standstill(server);
  const grown = rss(gateway) - before;
  assert.ok(grown <= N * PER_STREAM + CONSTANT, `the gateway grew by ${grown} bytes for ${N} streams`);

  const other = await chat(server.http, server.keys.paid, { model: 'default', messages: user('others go on as ever') });
  assert.equal(other.text, 'others go on as ever');
  assert.ok(other.done);
  assert.ok(await decoded(server) - made <= 10, 'more was made for those that do not read');
  /* The other one may still be counted. */
  assert.ok(await running(server) >= N, `broken off too early, after ${Date.now() - started} ms`);

  assert.ok(await until(async () => await running(server) === 0, STALL_MS + 50_000, 100), 'they are not broken off');
  assert.match(server.log(), /timed out/);
  return asked;
}

// Two at once, because most of it is waiting. Each has a server of its own.
describe('clients that do not read', { concurrency: 2 }, () => {
  test('streams on connections of their own', async () => {
    const server = await start();
    try {
      const sockets = await check(server, () => Array.from({ length: N }, () => askOnce(server)));
      // What had been sent before comes, then the connection ends, without the end of the answer.
      await Promise.all(sockets.map((s) => new Promise((done) => {
        let tail = '';
        s.on('data', (d) => { tail = (tail + d.toString('latin1')).slice(-200); });
        s.on('close', () => { assert.doesNotMatch(tail, /\[DONE\]|\r\n0\r\n\r\n$/); done(); });
        s.resume();
      })));
    } finally { assert.equal(await server.stop(), 0, server.log()); }
  });

  test('streams on one HTTP/2 connection', async () => {
    const server = await start();
    let asked;
    try {
      asked = await check(server, () => askOnOne(server));
      assert.ok(await until(() => asked.streams.every((s) => s.gone || s.destroyed), 30000), 'the client was not told');
    } finally {
      asked?.session.destroy();
      assert.equal(await server.stop(), 0, server.log());
    }
  });
});
