// SPDX-License-Identifier: Apache-2.0
// Traces: spans of answers in OTLP's JSON at a collector's stand-in, under the caller's trace where it sent one. A
// collector that is slow, dead or refuses changes no answer.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { freePorts, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const PATIENCE = 20_000;
const CANARY = 'xyzzy-canary';
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736', PARENT = '00f067aa0ba902b7';

/** A collector on that port. how: 'take', 'refuse' (503), 'redirect', 'hang' (reads, never answers), 'drip' (a byte of its reply at a
 * time), 'flood' (a reply without an end), 'heads' (header fields without an end). */
async function collector(port, host = '127.0.0.1') {
  const c = { how: 'take', bodies: [], types: [], n: 0 };
  const drips = new Set();
  c.server = http.createServer((req, res) => {
    let text = '';
    c.n++;
    req.setEncoding('utf8').on('data', (d) => { text += d; }).on('end', () => {
      if (c.how === 'hang') return;
      if (c.how === 'flood' || c.how === 'heads') {
        const to = c.how === 'flood' ? res : res.socket, piece = c.how === 'flood' ? 'x'.repeat(1 << 20) : `x-field: ${'x'.repeat(1000)}\r\n`;
        if (c.how === 'flood') res.writeHead(200); else to.write('HTTP/1.1 200 OK\r\n');
        const more = () => { while (!to.destroyed && to.write(piece)); };
        to.on('drain', more).on('error', () => {});
        more();
        return;
      }
      if (c.how === 'redirect') { res.writeHead(307, { location: `http://127.0.0.1:${port}/elsewhere` }).end(); return; }
      if (c.how === 'drip') {
        res.writeHead(200, { 'content-length': 60_000 }); // few enough to be read
        const t = setInterval(() => res.write('x'), 50);
        drips.add(t);
        res.on('close', () => clearInterval(t));
        return;
      }
      if (c.how === 'take') c.bodies.push({ path: req.url, type: req.headers['content-type'], method: req.method, text });
      res.writeHead(c.how === 'refuse' ? 503 : 200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  await new Promise((done) => c.server.listen(port, host, done));
  c.spans = () => c.bodies.flatMap((b) => JSON.parse(b.text).resourceSpans.flatMap((r) => r.scopeSpans.flatMap((s) => s.spans)));
  c.trace = (id) => c.spans().filter((s) => s.traceId === id);
  c.stop = () => new Promise((done) => { for (const t of drips) clearInterval(t); c.server.closeAllConnections(); c.server.close(done); });
  return c;
}

let server, at, port;
before(async () => {
  [port] = await freePorts(1);
  at = await collector(port);
  server = await startServer({ echo: true, sets: [`trace.endpoint=http://127.0.0.1:${port}/v1/traces`, 'trace.sample=0', 'trace.timeout=1s', 'engine.echo.ttft=20ms', 'engine.echo.rate=200'] });
});
after(async () => { await server?.stop(); await at?.stop(); });

const ask = (headers, words = 'one two three', model = 'demo-small') => chat(server.http, server.keys.paid, { model, messages: user(words) }, { headers });
const attribute = (span, key) => { const a = span.attributes.find((x) => x.key === key)?.value; return a && (a.stringValue ?? Number(a.intValue)); };
const exported = async () => sum(samples(await server.metrics()), 'sluice_traces_exported_total');

test("an answer's spans are under the caller's trace", async () => {
  const r = await ask({ traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'vendor=a:b,other@v=1', 'x-request-id': 'traced-1' }, `${CANARY} two three`);
  assert.equal(r.status, 200);
  assert.ok(!('traceparent' in r.headers), 'it is a request header');
  const spans = await until(() => { const s = at.trace(TRACE); return s.length > 0 && s; }, PATIENCE);
  const [root] = spans.filter((s) => s.parentSpanId === PARENT);
  assert.deepEqual(spans.map((s) => s.name), ['chat demo-small', 'admission', 'queue', 'prefill', 'decode']);
  assert.equal(root.kind, 2);
  assert.equal(root.traceState, 'vendor=a:b,other@v=1');
  assert.equal(new Set(spans.map((s) => s.spanId)).size, 5);
  for (const s of spans) {
    assert.match(s.spanId, /^[0-9a-f]{16}$/);
    if (s !== root) assert.equal(s.parentSpanId, root.spanId, s.name);
    assert.ok(BigInt(s.startTimeUnixNano) <= BigInt(s.endTimeUnixNano) && BigInt(s.startTimeUnixNano) >= BigInt(root.startTimeUnixNano), s.name);
  }
  const [, admission, queue, prefill, decode] = spans;
  assert.equal(admission.endTimeUnixNano, queue.startTimeUnixNano);
  assert.equal(queue.endTimeUnixNano, prefill.startTimeUnixNano);
  assert.equal(decode.endTimeUnixNano, root.endTimeUnixNano);
  assert.ok(Math.abs(Number(BigInt(root.startTimeUnixNano) / 1000000n) - Date.now()) < 600_000);
  assert.deepEqual(root.events.map((e) => e.name), ['first token']);
  assert.equal(root.events[0].timeUnixNano, decode.startTimeUnixNano);
  const want = { 'gen_ai.operation.name': 'chat', 'gen_ai.request.model': 'demo-small', 'gen_ai.usage.input_tokens': 3, 'gen_ai.usage.output_tokens': 4,
    'http.response.status_code': 200, 'sluice.request_id': 'traced-1', 'sluice.tier': 'paid', 'sluice.ended_by': 'stop' };
  for (const [k, v] of Object.entries(want)) assert.equal(attribute(root, k), v, k);
  assert.deepEqual([at.bodies[0].path, at.bodies[0].type, at.bodies[0].method], ['/v1/traces', 'application/json', 'POST']);
});

test("an escalated cascade's trace has its switch", async () => {
  const id = TRACE.replace(/^4/, '5');
  const r = await ask({ traceparent: `00-${id}-${PARENT}-01` }, 'unsure@2 differ@4 a b c d e f g h i j k l m n o p q r s t', 'auto');
  assert.equal(r.status, 200);
  const about = r.events.map((e) => e.sluice?.cascade).find(Boolean);
  const spans = await until(() => { const s = at.trace(id); return s.length > 0 && s; }, PATIENCE);
  const root = spans.find((s) => s.parentSpanId === PARENT);
  assert.equal(attribute(root, 'gen_ai.request.model'), 'auto');
  assert.match(attribute(root, 'sluice.cascade'), /small \d+ of \d+/);
  assert.equal(spans.some((s) => s.name === 'switch'), /escalated/.test(attribute(root, 'sluice.cascade')), JSON.stringify(about));
  assert.ok(spans.some((s) => s.name === 'switch'), `not escalated: ${attribute(root, 'sluice.cascade')}`);
});

test('requests that their caller does not sample are not exported, and an invalid traceparent is ignored', async () => {
  const id = TRACE.replace(/^4/, '6');
  const hostile = [`00-${id}-${PARENT}-00`, `00-${id}-${PARENT}-01x`, `00-${id}-${PARENT}-0g`, `00-${id.toUpperCase()}-${PARENT}-01`, `ff-${id}-${PARENT}-01`,
    `00-${'0'.repeat(32)}-${PARENT}-01`, `00-${id}-${'0'.repeat(16)}-01`, `00-${id}-${PARENT}`, `00_${id}-${PARENT}-01`, '-'.repeat(55), 'x'.repeat(8000), `01-${id}-${PARENT}-01.more`];
  const before1 = await exported();
  for (const traceparent of hostile) assert.equal((await ask({ traceparent })).status, 200, traceparent.slice(0, 60));
  assert.equal((await ask({ traceparent: [`00-${id}-${PARENT}-01`, `00-${id}-${PARENT}-01`] })).status, 200, 'two of them');
  // A later version may have more; a list of vendors that is none is left out.
  assert.equal((await ask({ traceparent: `cc-${id}-${PARENT}-01-more`, tracestate: 'no list' })).status, 200);
  const spans = await until(() => { const s = at.trace(id); return s.length > 0 && s; }, PATIENCE);
  assert.equal(spans.filter((s) => s.parentSpanId === PARENT).length, 1);
  assert.ok(spans.every((s) => !('traceState' in s)));
  assert.ok(await until(async () => (await exported()) === before1 + 1, PATIENCE));
});

test('a collector that refuses, hangs, drips or is gone: answers come, lost traces are counted and logged once', async () => {
  const lost = async () => sum(samples(await server.metrics()), 'sluice_traces_lost_total', { why: 'export' });
  const said = () => server.log().split('\n').filter((l) => /trace\.endpoint: .*(does not answer|answers 503): traces are dropped/.test(l)).length;
  let n = await lost();
  for (const how of ['refuse', 'redirect', 'hang', 'drip', 'flood', 'heads', 'gone']) {
    at.how = how;
    const asked = at.n;
    if (how === 'gone') await at.stop();
    assert.equal((await ask({ traceparent: `00-${TRACE}-${PARENT}-01` })).text, 'one two three', how);
    assert.ok(await until(async () => (await lost()) === n + 1, PATIENCE), how);
    n += 1;
    assert.equal(at.n, how === 'gone' ? asked : asked + 1, `${how}: one request`);
    assert.ok(await until(() => said() > 0, PATIENCE), how);
    assert.equal(said(), 1, server.log());
  }
  at = await collector(port);
  assert.equal((await ask({ traceparent: `00-${TRACE}-${PARENT}-01` })).status, 200);
  assert.ok(await until(() => at.trace(TRACE).length > 0, PATIENCE));
  assert.ok(await until(() => /takes traces again/.test(server.log()), PATIENCE), server.log());
});

test('sampling begins traces; a batch follows the reply to the one before; what waits at the end is sent', async () => {
  const [p] = await freePorts(1);
  const c = await collector(p, '::1');
  const all = await startServer({ echo: true, sets: [`trace.endpoint=http://[::1]:${p}/v1/traces`, 'trace.sample=1', 'trace.timeout=1m', 'engine.echo.ttft=0'] });
  try {
    for (let i = 1; i <= 2; i++) {
      assert.equal((await chat(all.http, all.keys.paid, { model: 'demo-small', messages: user('a b') })).status, 200);
      assert.ok(await until(() => c.spans().filter((s) => !('parentSpanId' in s)).length === i, PATIENCE), `batch ${i}: ${all.log()}`);
    }
    c.bodies.length = 0;
    for (let i = 0; i < 5; i++) assert.equal((await chat(all.http, all.keys.paid, { model: 'demo-small', messages: user(`${CANARY} b`) })).status, 200);
    assert.equal((await chat(all.http, all.keys.paid, { model: 'no-such', messages: user('a') })).status, 404);
  } finally { await all.stop(); }
  const roots = c.spans().filter((s) => !('parentSpanId' in s));
  assert.equal(roots.length, 6);
  assert.equal(new Set(roots.map((s) => s.traceId)).size, 6);
  assert.deepEqual(roots.map((s) => attribute(s, 'http.response.status_code')).sort(), [200, 200, 200, 200, 200, 404]);
  for (const b of [...c.bodies, ...at.bodies]) assert.ok(!b.text.includes(CANARY), 'no text of requests');
  await c.stop();
});
