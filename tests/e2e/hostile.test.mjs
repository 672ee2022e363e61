// SPDX-License-Identifier: Apache-2.0
// Hostile clients: floods of every kind of frame, resets, endless heads, bytes that come one by one, connections without end.
// Each is stopped by a bound, told so where the protocol can tell it, counted, and felt by nobody else.
// Perf: what others feel of it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { chat, metric, until, user } from './client.mjs';
import { request, startServer, THREADS, userOf } from './harness.mjs';
import { clientHello, sendFrom } from './hellos.mjs';
import { figure, measured } from './perf.mjs';
import { block, CALM, connect, F, frame, h2, head, T, u32, within, write } from './wire.mjs';

const MIB = 1 << 20;
const WAIT_MS = 60_000; // for what happens at once
const LIMIT_MS = 6000; // the absolute deadlines of one server below; the other's never come
const LATE_MS = 60_000; // beyond them: the tick, a second of lingering, a busy machine

const rss = (pid) => Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const descriptors = (pid) => readdirSync(`/proc/${pid}/fd`).length;

/** Processor time of a process, in seconds. */
function cpu(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const f = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(f[11]) + Number(f[12])) / 100;
}

const counter = async (server, name) => metric(await server.metrics(), name) || 0;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const percentile = (list, p) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * p))];

const chatHead = (server, more = {}) => head('POST', '/v1/chat/completions', { authorization: `Bearer ${server.keys.paid}`,
  'content-type': 'application/json', ...more });
const h1Head = (server, more) => `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.paid}\r\n`
  + `Content-Type: application/json\r\n${more}\r\n`;

/** Rapid reset on another thread, so that it does not delay this one's clock. What each connection's GOAWAY said. */
function attack(server, secure, connections) {
  const { http, https } = server;
  const body = JSON.stringify({ model: 'default', stream: true, messages: user('one two three') });
  const worker = new Worker(new URL('rapid_reset.mjs', import.meta.url),
    { workerData: { server: { http, https }, secure, connections, head: chatHead(server), body } });
  return new Promise((done, failed) => { worker.once('message', done); worker.once('error', failed); });
}

/** The gaps between the tokens of one stream. */
async function gaps(server, tokens) {
  const r = await chat(server.http, server.keys.paid, { model: 'default', max_tokens: tokens,
    messages: user(Array.from({ length: tokens }, (_, i) => `w${i}`).join(' ')) });
  assert.ok(r.done, r.body);
  return r.times.slice(2).map((t, i) => t - r.times[i + 1]);
}

function tests(threads) {
  describe(`hostile clients, ${threads} gateway thread(s)`, () => {
    let server, gateway;
    const begin = (limit) => startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.rate=50', 'engine.echo.ttft=5ms', 'supervisor.hang=10m',
      ...['handshake', 'header', 'body'].map((k) => `gateway.limits.${k}=${limit}`), 'gateway.limits.body_bytes=64KiB',
      'gateway.tiers.paid.concurrency=10000'] });
    before(async () => {
      server = await begin('10m');
      gateway = (await server.pids()).gateway;
    });
    const end = async () => {
      const now = (await server?.pids())?.gateway;
      const status = await server?.stop();
      const log = server?.log().split('\n').filter((l) => !/ info gateway: [A-Z]+ \//.test(l)).slice(-40).join('\n');
      assert.equal(now, gateway, `the gateway was restarted:\n${log}`);
      assert.equal(status, 0, log);
    };
    after(end);

    /** Something ordinary works. */
    async function serves(what) {
      const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user(`after ${what}`) });
      assert.equal(r.text, `after ${what}`);
    }

    for (const secure of [false, true]) {
      const where = secure ? 'TLS' : 'cleartext';

      test(`rapid reset is stopped and not felt, ${where}`, async () => {
        const before = await counter(server, 'sluice_http2_goaway_total{reason="resets"}');
        const requests = await counter(server, 'sluice_http_requests_total{proto="h2"}');
        const N = 12;
        await measured(async () => {
          const alone = await gaps(server, 120);
          const running = gaps(server, 120);
          const codes = await attack(server, secure, N);
          assert.deepEqual(codes, Array(N).fill(CALM));
          const disturbed = await running;
          const text = `rapid reset, ${where}: p50 ${percentile(alone, 0.5)} → ${percentile(disturbed, 0.5)} ms, p99 ${percentile(alone, 0.99)} → `
            + `${percentile(disturbed, 0.99)} ms`;
          // Times are whole milliseconds: one of them is no difference.
          return { good: percentile(disturbed, 0.99) <= 1.1 * percentile(alone, 0.99) + 1, text };
        });
        const stopped = await counter(server, 'sluice_http2_goaway_total{reason="resets"}') - before;
        assert.ok(stopped >= N && stopped % N === 0, `${stopped} counted`);
        const done = await counter(server, 'sluice_http_requests_total{proto="h2"}') - requests;
        assert.ok(done <= 110 * stopped, `${done} requests of ${stopped} connections got through`);
        assert.ok(await until(async () => await counter(server, 'sluice_engine_running') === 0, WAIT_MS), 'work goes on');
      });

      test(`resets that the server is made to send are stopped, ${where}`, async () => {
        const before = await counter(server, 'sluice_http2_goaway_total{reason="resets"}');
        const c = await h2(server, { secure });
        for (let i = 0; i < 300; i++) {
          write(c, Buffer.concat([frame(T.HEADERS, F.END_HEADERS, 2 * i + 1, chatHead(server)),
            frame(T.WINDOW_UPDATE, 0, 2 * i + 1, u32(0x7fffffff))]));
        }
        assert.ok(await within(c.closed, WAIT_MS));
        assert.equal(c.goaway(), CALM);
        assert.equal(await counter(server, 'sluice_http2_goaway_total{reason="resets"}') - before, 1);
      });

      test(`oversized and malformed requests draw errors, and by the hundredth the end, ${where}`, async () => {
        for (const [what, fields] of [['heads over the limit', head('GET', '/live', { a: 'a'.repeat(16000), b: 'b'.repeat(500) })],
          ['too many fields', block([...Object.entries({ ':method': 'GET', ':scheme': 'http', ':path': '/live', ':authority': 'localhost' }),
            ...Array.from({ length: 101 }, () => ['a', 'b'])])],
          ['a target that is none', head('GET', '/#live')], ['an authority with userinfo', head('GET', '/live', { ':authority': 'me@localhost' })]]) {
          const before = await counter(server, 'sluice_http2_goaway_total{reason="refused"}');
          const c = await h2(server, { secure });
          for (let i = 0; i < 200; i++) {
            const pieces = [frame(T.HEADERS, F.END_STREAM | (fields.length <= 16384 ? F.END_HEADERS : 0), 2 * i + 1, fields.subarray(0, 16384))];
            if (fields.length > 16384) pieces.push(frame(T.CONTINUATION, F.END_HEADERS, 2 * i + 1, fields.subarray(16384)));
            write(c, Buffer.concat(pieces));
            if (i === 20) {
              await c.await(T.HEADERS, 2 * i + 1);
              assert.equal(c.goaway(), undefined, `${what}: ended after a few`);
            }
          }
          assert.ok(await within(c.closed, WAIT_MS), `${what}: still open`);
          assert.equal(c.goaway(), CALM, what);
          assert.ok(c.frames().filter((f) => f.type === T.HEADERS).length < 100, what);
          assert.equal(await counter(server, 'sluice_http2_goaway_total{reason="refused"}') - before, 1, what);
        }
        await serves('refused requests');
      });

      test(`a CONTINUATION flood is closed by the ninth, ${where}`, async () => {
        for (const payload of [Buffer.alloc(0), block({ a: 'b' }), block({ a: 'b'.repeat(16000) })]) {
          const c = await h2(server, { secure });
          const frames = [frame(T.HEADERS, F.END_STREAM, 1, head('GET', '/'))];
          for (let i = 0; i < 9; i++) frames.push(frame(T.CONTINUATION, 0, 1, payload));
          write(c, Buffer.concat(frames));
          assert.ok(await within(c.closed, WAIT_MS), `${payload.length} bytes each: still open`);
          assert.equal(c.goaway(), CALM, `${payload.length} bytes each`);
        }
      });

      test(`heads without an end hold little, ${where}`, async () => {
        const N = 100;
        const value = block({ b: 'v'.repeat(15000) });
        const grown = async (frames) => {
          const start = rss(gateway);
          const all = await Promise.all(Array.from({ length: N }, () => h2(server, { secure })));
          await Promise.all(all.map((c) => c.await(T.SETTINGS)));
          await Promise.all(all.map((c) => write(c, Buffer.concat(frames))));
          await sleep(200);
          const end = rss(gateway);
          const open = all.filter((c) => !c.isClosed()).length;
          await Promise.all(all.map((c) => { c.socket.destroy(); return c.closed; }));
          return { bytes: end - start, open };
        };
        await grown([]); // what is allocated once
        const idle = await grown([frame(T.PING, 0, 0, Buffer.alloc(8))]);
        const full = await grown([frame(T.HEADERS, 0, 1, Buffer.concat([head('GET', '/'), value])),
          frame(T.CONTINUATION, 0, 1, value.subarray(0, 8000))]);
        assert.equal(full.open, N, 'they were to be in the middle of a head');
        // 16 KiB of fields in a buffer that doubles, and the field that is still coming.
        assert.ok(full.bytes - idle.bytes <= N * (48 << 10), `${full.bytes} bytes for ${N} heads, ${idle.bytes} for as many idle`);
      });

      for (const [name, one] of Object.entries({
        PING: frame(T.PING, 0, 0, Buffer.alloc(8)),
        'PING answers': frame(T.PING, F.ACK, 0, Buffer.alloc(8)),
        SETTINGS: frame(T.SETTINGS, 0, 0, Buffer.from([0, 4, 0, 0, 0xff, 0xff])),
        PRIORITY: frame(T.PRIORITY, 0, 7, Buffer.from([0, 0, 0, 0, 16])),
        'empty DATA': frame(T.DATA, 0, 1),
        'DATA of padding': frame(T.DATA, F.PADDED, 1, Buffer.from([2, 0, 0])),
        'unknown frames': frame(0xee, 0, 0),
        WINDOW_UPDATE: frame(T.WINDOW_UPDATE, 0, 0, u32(1)),
        GOAWAY: frame(T.GOAWAY, 0, 0, Buffer.alloc(8)),
      })) {
        test(`a flood of ${name} ends, read or not, ${where}`, async () => {
          const many = Buffer.concat(Array(MIB / one.length | 0).fill(one));
          const before = await counter(server, 'sluice_http2_goaway_total{reason="control_frames"}');
          const opening = frame(T.HEADERS, F.END_HEADERS, 1, chatHead(server));
          const reader = await h2(server, { secure });
          write(reader, Buffer.concat([opening, many]));
          assert.ok(await within(reader.closed, WAIT_MS), 'still open');
          assert.equal(reader.goaway(), CALM);
          assert.equal(await counter(server, 'sluice_http2_goaway_total{reason="control_frames"}') - before, 1);

          const start = rss(gateway);
          let peak = start;
          const c = await h2(server, { secure, read: false });
          await write(c, opening);
          for (let sent = 0; sent < 64; sent++) {
            const took = await Promise.race([write(c, many), sleep(1000).then(() => null)]);
            peak = Math.max(peak, rss(gateway));
            if (took !== true) break; // ended, or nothing more is read
          }
          assert.ok(peak - start < MIB, `grew by ${peak - start} bytes`);
          c.socket.destroy();
        });
      }
    }

    test('a flood of TLS handshakes delays no stream by more than the few of a turn', async () => {
      const lag = async () => {
        const text = await server.metrics();
        return [metric(text, 'sluice_gateway_loop_lag_seconds_count'), Number(/loop_lag_seconds_bucket\{le="0.01"\} (\d+)/.exec(text)[1])];
      };
      const delayed = await counter(server, 'sluice_tls_handshakes_delayed_total');
      await measured(async () => {
        const alone = await gaps(server, 100), [all, soon] = await lag();
        const running = gaps(server, 100);
        const worker = new Worker(new URL('tls_flood.mjs', import.meta.url), { workerData: { https: server.https, at_once: 100, ms: 2000 } });
        const made = await new Promise((done, failed) => { worker.once('message', done); worker.once('error', failed); });
        const disturbed = await running, [allThen, soonThen] = await lag();
        const text = `TLS flood: ${made} handshakes; p50 ${percentile(alone, 0.5)} → ${percentile(disturbed, 0.5)} ms, p95 ${percentile(alone, 0.95)} → `
          + `${percentile(disturbed, 0.95)} ms; ${soonThen - soon} of ${allThen - all} turns within 10 ms`;
        assert.ok(made > 0, text);
        return { good: made > 100 && percentile(disturbed, 0.95) <= percentile(alone, 0.95) + 15 && soonThen - soon >= 0.9 * (allThen - all), text };
      });
      assert.ok(await counter(server, 'sluice_tls_handshakes_delayed_total') > delayed, 'none had to wait');
    });

    test('without descriptors nothing spins, and it recovers', async () => {
      const limit = descriptors(gateway) + 20;
      const old = /Max open files\s+(\d+)\s+(\d+)/.exec(readFileSync(`/proc/${gateway}/limits`, 'utf8'));
      execFileSync('prlimit', ['--pid', String(gateway), `--nofile=${limit}:${old[2]}`], userOf(gateway));
      const all = await Promise.all(Array.from({ length: 200 }, () => connect(server)));
      const t0 = cpu(gateway), w0 = Date.now();
      await sleep(1000);
      const share = (cpu(gateway) - t0) / ((Date.now() - w0) / 1000);
      figure(share < 0.2, `no descriptors: ${Math.round(share * 100)} % of a core while it can accept nothing`);
      for (const c of all) c.socket.destroy();
      assert.ok(await until(async () => (await request(server.http, '/live').catch(() => ({}))).status === 200, WAIT_MS));
      execFileSync('prlimit', ['--pid', String(gateway), `--nofile=${old[1]}:${old[2]}`], userOf(gateway));
      assert.ok(await counter(server, 'sluice_http_connections_rejected_total{reason="descriptors"}') > 0);
      await serves('the shortage');
    });

    test('what is over a bound is told and counted in HTTP/1.1', async () => {
      for (const [text, status] of [
        [`GET /${'a'.repeat(20000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 414],
        [`GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(30000)}\r\n\r\n`, 431],
        [`GET / HTTP/1.1\r\nHost: x\r\n${'A: b\r\n'.repeat(101)}\r\n`, 431],
        ['GET / HTTP/2.5\r\nHost: x\r\n\r\n', 505],
        ['CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 501],
        ['GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n', 417],
        ['GET / HTTP/1.1\r\n\r\n', 400],
        [h1Head(server, 'Content-Length: 1000000\r\n'), 413],
      ]) {
        const name = `sluice_http_rejected_total{status="${status}"}`;
        const before = await counter(server, name);
        const c = await connect(server);
        write(c, text);
        assert.ok(await within(c.closed, WAIT_MS), `${status}: open`);
        assert.match(c.text(), new RegExp(`^HTTP/1.1 ${status} `));
        assert.equal(await counter(server, name) - before, 1, name);
      }
      await serves('refusals');
    });

    test('streams over the cap are refused, and a client that goes on is sent away', async () => {
      const session = http2.connect(server.http);
      session.on('error', () => {});
      await new Promise((done) => session.once('remoteSettings', done));
      assert.equal(session.remoteSettings.maxConcurrentStreams, 100);
      session.destroy();
      const before = await counter(server, 'sluice_http2_streams_refused_total');
      const c = await h2(server); // its SETTINGS are not acknowledged, so it may claim not to know
      const all = [];
      for (let i = 0; i < 120; i++) all.push(frame(T.HEADERS, F.END_HEADERS, 2 * i + 1, chatHead(server)));
      write(c, Buffer.concat(all));
      const f = await c.await(T.RST_STREAM);
      assert.equal(f.payload.readUInt32BE(), 7);
      assert.ok(f.id > 200);
      assert.ok(await until(async () => await counter(server, 'sluice_http2_streams_refused_total') - before === 20, WAIT_MS));
      for (let i = 120; i < 400; i++) write(c, frame(T.HEADERS, F.END_HEADERS, 2 * i + 1, chatHead(server)));
      assert.ok(await within(c.closed, WAIT_MS), 'still open');
      assert.equal(c.goaway(), CALM);
    });

    describe('with short deadlines', () => {
      let calm, calmGateway;
      before(async () => {
        [calm, calmGateway] = [server, gateway];
        server = await begin(`${LIMIT_MS}ms`);
        gateway = (await server.pids()).gateway;
      });
      after(async () => {
        try { await end(); } finally { [server, gateway] = [calm, calmGateway]; }
      });

      for (const secure of [false, true]) {
        const where = secure ? 'TLS' : 'cleartext';

        test(`bytes that come one by one run into absolute deadlines, ${where}`, async () => {
          const N = 250;
          const body = 'Content-Length: 50000\r\n\r\n{';
          const kinds = {
            hello: { raw: true, text: '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' },
            head: { text: 'GET /v1/models HT', status: 408 },
            body: { text: h1Head(server, body).replace(/\r\n$/, ''), status: 408 },
            'HTTP/2 body': { two: true, text: Buffer.concat([frame(T.HEADERS, F.END_HEADERS, 1, chatHead(server)),
              frame(T.DATA, 0, 1, Buffer.from('{'))]), more: frame(T.DATA, 0, 1, Buffer.from(' ')) },
            'HTTP/2 head': { two: true, text: frame(T.HEADERS, F.END_STREAM, 1, head('GET', '/')),
              more: Buffer.from([0]) },
          };
          if (!secure) delete kinds.hello;
          await serves('nothing');
          const base = descriptors(gateway);
          const before = await server.metrics();
          const ttft = async () => {
            const t0 = process.hrtime.bigint();
            await new Promise((done) => {
              chat(server.http, server.keys.paid, { model: 'default', messages: user('x') },
                { onEvent: () => { done(); return 'abort'; } });
            });
            return Number(process.hrtime.bigint() - t0) / 1e6;
          };
          const alone = [];
          for (let i = 0; i < 20; i++) alone.push(await ttft());

          const all = [];
          for (const [name, k] of Object.entries(kinds)) {
            const made = [];
            while (made.length < N) { // not all at once: their handshakes have a deadline too
              made.push(...await Promise.all(Array.from({ length: 50 }, async () => {
                const c = await (k.two ? h2(server, { secure }) : connect(k.raw ? { http: server.https } : server, { secure: secure && !k.raw }));
                Object.assign(c, { name, kind: k, started: Date.now() });
                write(c, k.raw ? Buffer.from(k.text, 'latin1') : k.text); // at once: its deadline runs already
                return c;
              })));
            }
            all.push(...made);
          }
          const disturbed = [];
          const last = Date.now() + LIMIT_MS + LATE_MS;
          while (Date.now() < last && all.some((c) => !c.isClosed() && c.name !== 'HTTP/2 body')) {
            // One byte more for everybody in each round of some 100 ms.
            for (const c of all) if (!c.isClosed()) c.socket.write(c.kind.more ?? ' ');
            await sleep(50); // the round itself costs this process more than the server
            disturbed.push(await ttft());
            await sleep(50);
          }
          for (const c of all.filter((x) => x.kind.status)) {
            assert.ok(c.isClosed(), `${c.name}: open after ${Date.now() - c.started} ms`);
            assert.match(c.text(), new RegExp(`^HTTP/1.1 ${c.kind.status} `), c.name);
            assert.equal(c.text().match(/HTTP\/1.1 /g).length, 1, c.name);
          }
          for (const c of all.filter((x) => !x.kind.status && x.name !== 'HTTP/2 body')) assert.ok(c.isClosed(), c.name);
          // An HTTP/2 connection outlives its stream, which was answered 408 and then reset.
          for (const c of all.filter((x) => x.name === 'HTTP/2 body')) {
            await within(c.await(T.HEADERS, 1), LATE_MS);
            assert.ok(c.find(T.HEADERS, 1)?.payload.includes('408'), 'no 408');
            assert.ok(c.find(T.RST_STREAM, 1) || await within(c.await(T.RST_STREAM, 1), LATE_MS), 'not reset');
            c.socket.destroy();
          }
          const [p, q] = [percentile(alone, 0.5), percentile(disturbed, 0.5)];
          figure(q <= p * 1.5 + 10, `beside slow bytes, ${where}: first tokens after ${q} ms, alone after ${p} ms`);
          assert.ok(await until(async () => descriptors(gateway) <= base + 2, WAIT_MS), `${descriptors(gateway)} descriptors, ${base} before`);
          const now = await server.metrics();
          for (const phase of secure ? ['handshake', 'header', 'body'] : ['header', 'body']) {
            const name = `sluice_http_timeouts_total{phase="${phase}"}`;
            assert.ok(metric(now, name) - (metric(before, name) || 0) >= N, `${phase} not counted`);
          }
        });
      }

      test('half ClientHellos hold little, and what whole ones held is given back', async () => {
        const hello = await clientHello();
        const start = rss(gateway);
        const held = async (n, bytes) => {
          let peak = 0;
          const all = await Promise.all(Array.from({ length: n }, (_, i) => sendFrom(server.https, 2 + i % 60, bytes)));
          const last = Date.now() + WAIT_MS;
          while (Date.now() < last && all.some((s) => !s.gone)) {
            peak = Math.max(peak, rss(gateway));
            await sleep(100);
          }
          assert.ok(all.every((s) => s.gone), 'the deadline ends them');
          return peak - start;
        };
        const half = await held(3000, hello.subarray(0, hello.length >> 1));
        assert.ok(half < 16 * MIB, `${(half / MIB).toFixed(1)} MiB for half ClientHellos`);
        const whole = await held(process.env.THOROUGH ? 3000 : 1000, hello);
        assert.ok(await until(() => rss(gateway) < start + 24 * MIB, WAIT_MS),
          `${((rss(gateway) - start) / MIB).toFixed(1)} MiB left of ${(whole / MIB).toFixed(1)}`);
        await serves('ClientHellos');
      });
    });
  });
}

for (const threads of THREADS) tests(threads);
