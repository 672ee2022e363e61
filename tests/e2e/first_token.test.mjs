// SPDX-License-Identifier: Apache-2.0
// A first token that was promised in time and does not come: the engine is stopped (SIGSTOP) once the answer is admitted,
// for less time than makes it dead. The client is told, and the engine's work is cancelled when it goes on.
// Alone: it measures waits.
import assert from 'node:assert/strict';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { startServer } from './harness.mjs';

describe('a first token that does not come', () => {
  let server;
  before(async () => {
    server = await startServer({ echo: true,
      sets: ['engine.echo.ttft=1500ms', 'gateway.limits.first_token=2s', 'gateway.heartbeat=300ms', 'supervisor.hang=20s'] });
  });
  after(async () => { assert.equal(await server?.stop(), 0, server?.log()); });

  const admitted = async () => {
    const line = (await server.metrics()).split('\n').find((l) => l.startsWith('sluice_generations{state="running"}'));
    return line?.endsWith(' 1');
  };

  /** One request whose engine stands still between the admission and the first token. */
  async function late(stream) {
    const { engine } = await server.pids();
    const started = Date.now();
    const answer = chat(server.http, server.keys.paid, { model: 'default', stream, messages: user('one two') });
    assert.ok(await until(admitted, 1400, 5), 'it was not admitted');
    process.kill(engine, 'SIGSTOP');
    try {
      const r = await answer;
      assert.equal(r.error, null);
      assert.ok(r.ended - started >= 1990, `it gave up after ${r.ended - started} ms`);
      return r;
    } finally { process.kill(engine, 'SIGCONT'); }
  }

  async function served() {
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 5000), 'the engine still runs it');
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
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=1ms', 'gateway.limits.first_token=300ms'] });
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
    assert.ok(await until(finished, 3000), 'the engine has not ended it');
    await new Promise((done) => setTimeout(done, 600)); // the limit, twice
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
