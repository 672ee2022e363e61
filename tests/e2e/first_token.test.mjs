// SPDX-License-Identifier: Apache-2.0
// A first token that was promised in time and does not come. The client is told, and the engine's work is cancelled.
import assert from 'node:assert/strict';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { startServer } from './harness.mjs';
import { figure } from './perf.mjs';

const LATE = 'slow-small@600000 slow-large@600000 one two';

describe('a first token that does not come', () => {
  let server;
  before(async () => {
    server = await startServer({ echo: true,
      sets: ['engine.echo.ttft=1ms', 'gateway.limits.first_token=5s', 'gateway.heartbeat=300ms'] });
  });
  after(async () => { assert.equal(await server?.stop(), 0, server?.log()); });

  /** One request whose engine takes ten minutes to the first token. */
  async function late(stream) {
    const r = await chat(server.http, server.keys.paid, { model: 'default', stream, messages: user(LATE) });
    assert.equal(r.error, null);
    figure(r.ended - r.started >= 4990, `a late first token: given up after ${r.ended - r.started} ms of 5000`);
    return r;
  }

  async function served() {
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 50_000), 'the engine still runs it');
    const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user('one two') });
    assert.equal(r.text, 'one two');
    assert.ok(r.done);
    assert.doesNotMatch(server.log(), /the engine has gone/);
  }

  test('ends a stream with one error event', async () => {
    const r = await late(true);
    assert.equal(r.status, 200);
    assert.equal(r.events.length, 2, r.body);
    assert.equal(r.events[0].choices[0].delta.role, 'assistant');
    assert.deepEqual(r.errors, [{ message: 'The server is busy: the first token did not come in time.',
      type: 'server_error', param: null, code: 'overloaded' }]);
    assert.ok(!r.done, 'an error is no end: no [DONE]');
    assert.ok(r.body.endsWith('\n\n'));
    assert.ok(r.comments >= 2, 'heartbeats went out while it waited');
    await served();
  });

  test('is a 503 for a whole answer', async () => {
    const r = await late(false);
    assert.equal(r.status, 503, r.body);
    assert.ok(Number(r.headers['retry-after']) >= 1);
    assert.equal(JSON.parse(r.body).error.code, 'overloaded');
    await served();
  });
});

test('an answer without any token that is fetched late is no late answer', async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=1ms', 'gateway.limits.first_token=3s'] });
  const session = http2.connect(server.http, { settings: { initialWindowSize: 0 } });
  try {
    const s = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json',
      authorization: `Bearer ${server.keys.paid}` });
    let text = '';
    s.setEncoding('utf8').on('data', (d) => { text += d; });
    const ended = new Promise((done) => s.once('close', done));
    s.end(JSON.stringify({ model: 'default', stream: true, messages: user('') }));
    await new Promise((done) => s.once('response', done));
    const finished = async () => (await server.metrics()).includes('sluice_generations_ended_total{how="finished"} 1\n');
    assert.ok(await until(finished, 30_000), 'the engine has not ended it');
    await new Promise((done) => setTimeout(done, 4000)); // beyond the limit
    assert.equal(text, '');
    session.settings({ initialWindowSize: 65535 });
    await ended;
    assert.match(text, /"finish_reason":"stop"/);
    assert.match(text, /data: \[DONE\]\n\n$/);
    assert.doesNotMatch(text, /"error"/);
  } finally {
    session.destroy();
    assert.equal(await server.stop(), 0, server.log());
  }
});
