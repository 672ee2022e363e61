// SPDX-License-Identifier: Apache-2.0
// log.format: json: each line of every process is one object, and lines of requests have their figures as members.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { request, startServer } from './harness.mjs';

const PATIENCE = 20_000;
let server;

before(async () => { server = await startServer({ sets: ['log.format=json', 'gateway.metrics_public=true'] }); });
after(async () => { await server?.stop(); });

/** Lines that are complete, each of which must be an object. */
const lines = () => server.log().split('\n').slice(0, -1).map((l) => {
  const line = JSON.parse(l);
  assert.match(line.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.ok(['debug', 'info', 'warn', 'error'].includes(line.level) && Number.isInteger(line.thread) && typeof line.message === 'string', l);
  return line;
});

test('every process logs objects', async () => {
  const processes = new Set(lines().map((l) => l.process));
  assert.deepEqual([...processes].sort(), ['engine', 'gateway', 'sluice']);
});

test("a request's line has its figures", async () => {
  const r = await chat(server.http, server.keys.paid, { model: 'demo-large', messages: user('What is the capital of France?'), temperature: 0, stream_options: { include_usage: true } });
  assert.equal(r.status, 200);
  const line = await until(() => lines().find((l) => l.route === '/v1/chat/completions'), PATIENCE);
  assert.ok(line, server.log());
  assert.deepEqual([line.level, line.process, line.method, line.status, line.model, line.client], ['info', 'gateway', 'POST', 200, 'demo-large', '127.0.0.1']);
  assert.ok(line.tokens_in > 0 && line.tokens_out > 0 && line.tokens_cached >= 0 && line.ms > 0, JSON.stringify(line));
  assert.ok(line.first_token_ms > 0 && line.first_token_ms <= line.ms, JSON.stringify(line));
  assert.match(line.request_id, /^req_[0-9a-f]+$/);
  assert.ok(line.message.includes(line.request_id) && line.key && line.tier);
  assert.ok(!('ended' in line) && !('cascade' in line));
});

test("requests for the server's state and the page's files are logged at debug; what was refused, at info", async () => {
  for (const path of ['/live', '/ready', '/health', '/metrics', '/', '/client.js']) assert.equal((await request(server.http, path)).status, 200, path);
  assert.equal((await request(server.http, '/"quoted"\\', { headers: { authorization: 'Bearer x' } })).status, 404);
  assert.ok(await until(() => lines().find((l) => l.status === 404), PATIENCE), server.log());
  assert.deepEqual(lines().filter((l) => ['/live', '/ready', '/health', '/metrics', '/', '/client.js'].includes(l.route)), []);
});
