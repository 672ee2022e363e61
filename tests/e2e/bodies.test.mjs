// SPDX-License-Identifier: Apache-2.0
// Large request bodies: read beside the loop, so that nobody else waits for them; told as ever when they are wrong; bounded.
// Perf: how late the loop is beside them.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { request, startServer, THREADS } from './harness.mjs';
import { measured } from './perf.mjs';

const PIECE = '**Question:** what’s  the capital of *France*…   I think it’s “Paris” — right???\n\n\n\n- one\n- **two**\n\n';
const text = (bytes) => PIECE.repeat(Math.ceil(bytes / Buffer.byteLength(PIECE))).slice(0, bytes * 0.9);

for (const threads of THREADS) {
  describe(`large bodies, ${threads} gateway thread(s)`, () => {
    let server;
    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.rate=50', 'engine.echo.ttft=1ms',
        'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.compress=off', 'gateway.limits.requests_per_key=1000',
        'gateway.limits.body_bytes=2MiB'] });
    });
    after(async () => assert.equal(await server?.stop(), 0, server?.log()));

    const post = (path, body) => request(server.http, path, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
    const aside = async () => metric(await server.metrics(), 'sluice_bodies_read_aside_total') || 0;
    const lag = async () => {
      const all = await server.metrics();
      return [metric(all, 'sluice_gateway_loop_lag_seconds_count'), Number(/loop_lag_seconds_bucket\{le="0.01"\} (\d+)/.exec(all)[1])];
    };

    test('are answered as small ones are, on every endpoint', async () => {
      const n = await aside(), word = 'w'.repeat(50), long = `${`${word} `.repeat(1000)}the end`;
      const max = { max_tokens: 3 };
      const a = JSON.parse((await post('/v1/chat/completions', { model: 'default', messages: user(long), ...max })).body);
      assert.equal(a.choices[0].message.content.trim(), `${word} ${word} ${word}`, JSON.stringify(a));
      const b = JSON.parse((await post('/v1/completions', { model: 'default', prompt: long, ...max })).body);
      assert.equal(b.choices[0].text.trim(), `${word} ${word} ${word}`);
      const c = JSON.parse((await post('/v1/responses', { model: 'default', input: long, max_output_tokens: 3 })).body);
      assert.equal(c.output[0].content[0].text.trim(), `${word} ${word} ${word}`);
      assert.equal(await aside(), n + 3);
    });

    test('are refused by name when they are wrong', async () => {
      const long = text(100000);
      const bad = await post('/v1/chat/completions', { model: 'default', messages: user(long), temperature: 7 });
      assert.deepEqual([bad.status, JSON.parse(bad.body).error.param], [400, 'temperature']);
      const broken = await post('/v1/chat/completions', `{"messages": [{"role": "user", "content": "${'x'.repeat(50000)}`);
      assert.equal(broken.status, 400);
      const input = await post('/v1/responses', { model: 'default', input: [{ role: 'nobody', content: long }] });
      assert.equal(input.status, 400);
      const prompt = await post('/v1/completions', { model: 'default', prompt: [long, 7] });
      assert.equal(prompt.status, 400);
    });

    test('keep nobody waiting', async () => {
      const body = JSON.stringify({ model: 'default', messages: user(text(1800000)), max_tokens: 1 });
      await measured(async () => {
        const [all, soon] = await lag(), n = await aside();
        const stream = chat(server.http, server.keys.paid, { model: 'default', messages: user(`repeat ${'w '.repeat(40)}`), max_tokens: 100 });
        for (let i = 0; i < 12; i++) await post('/v1/chat/completions', body);
        const r = await stream, [allThen, soonThen] = await lag();
        assert.ok(r.done, r.body);
        assert.equal(await aside(), n + 12, 'read beside the loop');
        return { good: soonThen - soon >= 0.9 * (allThen - all), text: `large bodies: ${soonThen - soon} of ${allThen - all} turns within 10 ms` };
      });
    });

    test('of clients that leave are forgotten', async () => {
      const body = Buffer.from(JSON.stringify({ model: 'default', messages: user(text(900000)), max_tokens: 1 }));
      await Promise.all(Array.from({ length: 20 }, (_, i) => new Promise((done) => {
        const url = new URL(server.http);
        const req = http.request({ host: url.hostname, port: url.port, method: 'POST', path: '/v1/chat/completions', agent: false,
          headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json', 'content-length': body.length } });
        req.on('error', () => {});
        req.on('close', done);
        req.end(body, () => setTimeout(() => req.destroy(), i));
      })));
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 50_000));
      assert.equal((await post('/v1/chat/completions', { model: 'default', messages: user('a b'), max_tokens: 2 })).status, 200);
    });

    test('beyond the queue are refused at once', async () => {
      const body = JSON.stringify({ model: 'default', messages: user(text(700000)), max_tokens: 1 });
      const list = await Promise.all(Array.from({ length: 120 }, () => post('/v1/chat/completions', body)));
      const busy = list.filter((r) => r.status === 503);
      for (const r of busy) assert.deepEqual([JSON.parse(r.body).error.code, r.headers['retry-after']], ['overloaded', '1']);
      for (const r of list) assert.ok([200, 400, 503].includes(r.status), r.body);
      assert.ok(list.length - busy.length >= 64, `${busy.length} of ${list.length} were refused`);
      assert.equal(metric(await server.metrics(), 'sluice_bodies_refused_total') || 0, busy.length);
    });
  });
}
