// SPDX-License-Identifier: Apache-2.0
// Every way in, on a real server: unix sockets, IPv6, PROXY headers, proxies that name their clients, clients' certificates,
// resumed sessions; and the limits of addresses, keys and memory, which tell who is over them and touch nobody else.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { chat, metric, until, user } from './client.mjs';
import { request, startServer } from './harness.mjs';
import { connect, F, frame, h2, head, PREFACE, T, within, write } from './wire.mjs';

const WAIT_MS = 60_000;
const MIB = 1 << 20;
const dir = mkdtempSync(join(tmpdir(), 'sluice-net-'));
process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
const openssl = (...args) => execFileSync('openssl', args, { cwd: dir, stdio: 'pipe' });

/** An authority and a certificate of it. */
function makeCertificates() {
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...ec, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=authority', '-days', '1');
  openssl('req', ...ec, '-keyout', 'alice.key', '-out', 'alice.csr', '-subj', '/CN=alice/O=Example');
  openssl('x509', '-req', '-in', 'alice.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '1', '-out', 'alice.pem');
}

/** A PROXY header of version 2 for an IPv4 or IPv6 client (hex). */
function proxy2(hex) {
  const client = Buffer.from(hex, 'hex');
  const head2 = Buffer.from([0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, client.length === 4 ? 0x11 : 0x21]);
  const n = Buffer.alloc(2);
  n.writeUInt16BE(2 * client.length + 4);
  return Buffer.concat([head2, n, client, Buffer.alloc(client.length), Buffer.from([4, 1, 1, 0xbb])]);
}

const live = 'GET /live HTTP/1.1\r\nHost: x\r\n\r\n';

for (const threads of [1, 4]) {
  describe(`ways in, ${threads} gateway thread(s)`, () => {
    let server, ports;
    const sock = join(dir, `s${threads}`);
    before(async () => {
      makeCertificates();
      const sets = ([balancer, secureBalancer, certs, six]) => {
        ports = { balancer, secureBalancer, certs, six };
        return [`gateway.threads=${threads}`, 'engine.echo.rate=0', 'engine.echo.ttft=1ms',
        `gateway.listeners.local.unix=${sock}`, 'gateway.listeners.local.mode=0600',
        `gateway.listeners.balancer.address=127.0.0.1:${balancer}`, 'gateway.listeners.balancer.proxy=true',
        `gateway.listeners.secure.address=127.0.0.1:${secureBalancer}`, 'gateway.listeners.secure.proxy=true', 'gateway.listeners.secure.tls=true',
        `gateway.listeners.certs.address=127.0.0.1:${certs}`, 'gateway.listeners.certs.tls=true', 'gateway.listeners.certs.client_certs=required',
        `gateway.listeners.six.address=[::1]:${six}`, `gateway.client_ca=${join(dir, 'ca.pem')}`,
        'gateway.trusted_proxies=127.0.0.1', 'gateway.forwarded=x-forwarded-for', 'gateway.limits.header=1500ms',
        'gateway.limits.connections_per_address=4', 'gateway.limits.streams_per_address=6', 'gateway.limits.requests_per_key=3',
        'gateway.tiers.free.concurrency=1', 'log.level=debug']; // debug: requests for /live are logged, too
      };
      server = await startServer({ echo: true, ports: 4, sets });
    });
    after(async () => { assert.equal(await server?.stop(), 0, server?.log()); assert.throws(() => statSync(sock)); });

    const logged = (text) => until(() => server.log().includes(text), WAIT_MS);
    const count = async (name) => metric(await server.metrics(), name) || 0;
    const balanced = (address, secure) => (async () => {
      const socket = net.connect({ host: '127.0.0.1', port: secure ? ports.secureBalancer : ports.balancer });
      await new Promise((done) => socket.once('connect', done));
      socket.write(proxy2(address));
      return socket;
    })();
    /** What comes on a socket after data was written: until `n` bytes or its end. */
    const answer = (socket, data, enough = (t) => t.includes('\r\n\r\n')) => new Promise((done) => {
      let text = '';
      socket.on('data', (d) => { text += d.toString('latin1'); if (enough(text)) done(text); });
      socket.on('error', () => done(text));
      socket.on('close', () => done(text));
      socket.write(data);
    });

    test('a unix socket serves with the permissions it was given', async () => {
      assert.equal(statSync(sock).mode & 0o7777, 0o600);
      for (const version of ['--http1.1', '--http2-prior-knowledge']) {
        const r = spawnSync('curl', ['-s', version, '--unix-socket', sock, '-w', '%{http_code}', '-o', '/dev/null', 'http://x/live'], { encoding: 'utf8' });
        assert.equal(r.stdout, '200', version);
      }
      const body = JSON.stringify({ model: 'default', stream: true, messages: user('over a path') });
      const r = spawnSync('curl', ['-sN', '--unix-socket', sock, '-H', `authorization: Bearer ${server.keys.paid}`, '-H', 'content-type: application/json',
        '-d', body, 'http://x/v1/chat/completions'], { encoding: 'utf8' });
      assert.match(r.stdout, /data: \[DONE\]/);
      assert.ok(await logged('from unix, req_'));
    });

    test('IPv6 serves', async () => {
      const r = spawnSync('curl', ['-s', '-g', `http://[::1]:${ports.six}/live`, '-w', '%{http_code}', '-o', '/dev/null'], { encoding: 'utf8' });
      if (r.status === 7) return; // a machine without
      assert.equal(r.stdout, '200');
      assert.ok(await logged('from ::1, req_'));
    });

    test('PROXY headers name the client, in cleartext and before TLS', async () => {
      const plain = await balanced('c6336407');
      assert.match(await answer(plain, live), /^HTTP\/1.1 200 /);
      plain.destroy();
      assert.ok(await logged('from 198.51.100.7, req_'));
      const curl = spawnSync('curl', ['-s', '--haproxy-protocol', `http://127.0.0.1:${ports.balancer}/live`, '-w', '%{http_code}', '-o', '/dev/null'], { encoding: 'utf8' });
      assert.equal(curl.stdout, '200');
      const under = await balanced('20010db8000000000000000000000042', true);
      const secure = tls.connect({ socket: under, rejectUnauthorized: false, ALPNProtocols: ['h2'] });
      await new Promise((done, failed) => { secure.once('secureConnect', done); secure.once('error', failed); });
      assert.equal(secure.alpnProtocol, 'h2');
      const frames = await answer(secure, Buffer.concat([PREFACE, frame(T.HEADERS, F.END_HEADERS | F.END_STREAM, 1, head('GET', '/live'))]),
        (t) => t.length > 60);
      assert.ok(frames.length > 60);
      secure.destroy();
      assert.ok(await logged('from 2001:db8::42, req_'));
    });

    test('what is no PROXY header is closed, what never comes too', async () => {
      const before = await count('sluice_proxy_headers_rejected_total{reason="malformed"}');
      const late = await count('sluice_http_timeouts_total{phase="proxy"}');
      const wrong = [live, 'PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n', `PROXY ${'x'.repeat(200)}`, 'PROXY TCP4 1.2.3.4 5.6.7.8 70000 2\r\n', '\r\n\r\n\0\r\nQUIT\n\x31'];
      for (const text of wrong) {
        const c = await connect({ http: `http://127.0.0.1:${ports.balancer}` });
        write(c, Buffer.from(text, 'latin1'));
        assert.ok(await within(c.closed, WAIT_MS), text);
        assert.equal(c.text(), '');
      }
      assert.equal(await count('sluice_proxy_headers_rejected_total{reason="malformed"}') - before, wrong.length);
      const slow = await connect({ http: `http://127.0.0.1:${ports.balancer}` });
      write(slow, 'PROXY TCP4 ');
      assert.ok(await within(slow.closed, WAIT_MS));
      assert.ok(slow.closedAt - slow.openedAt >= 1400);
      assert.equal(await count('sluice_http_timeouts_total{phase="proxy"}') - late, 1);
    });

    test('a trusted proxy names its clients', async () => {
      const r = await request(server.http, '/live', { headers: { 'x-forwarded-for': '6.6.6.6, 203.0.113.9' } });
      assert.equal(r.status, 200);
      assert.ok(await logged('from 203.0.113.9, req_'));
      assert.ok(!server.log().includes('6.6.6.6'));
    });

    test('clients show certificates, or are refused', async () => {
      const curl = (...more) => spawnSync('curl', ['-sk', `https://127.0.0.1:${ports.certs}/live`, '-w', '%{http_code}', '-o', '/dev/null', ...more], { encoding: 'utf8' });
      assert.notEqual(curl().status, 0);
      const r = curl('--cert', join(dir, 'alice.pem'), '--key', join(dir, 'alice.key'));
      assert.equal(r.stdout, '200', r.stderr);
      assert.ok(await logged('from 127.0.0.1 (O=Example,CN=alice), req_'));
      assert.ok(await count('sluice_tls_handshakes_total{result="failed"}') >= 1);
    });

    test('sessions are resumed, whichever thread has the connection', async () => {
      const port = Number(new URL(server.https).port);
      for (const version of ['TLSv1.2', 'TLSv1.3']) {
        let session, reused = 0;
        for (let i = 0; i < 9; i++) {
          const s = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false, session, minVersion: version, maxVersion: version });
          s.on('session', (x) => { session = x; });
          const text = await answer(s, live);
          assert.match(text, /^HTTP\/1.1 200 /);
          reused += s.isSessionReused();
          s.destroy();
        }
        assert.equal(reused, 8, version);
      }
      assert.ok(await count('sluice_tls_handshakes_total{result="resumed"}') >= 16);
    });

    test('connections over the limit of an address are told, then closed; others do not notice', async () => {
      const name = 'sluice_http_limited_total{limit="connections_per_address"}';
      const before = await count(name);
      const open = [];
      for (let i = 0; i < 4; i++) {
        const s = await balanced('c0000232');
        assert.match(await answer(s, live), /^HTTP\/1.1 200 /);
        open.push(s);
      }
      const told = await balanced('c0000232');
      const text = await answer(told, live, () => false);
      assert.match(text, /^HTTP\/1.1 429 /);
      assert.match(text, /connection: close\r\n/);
      assert.match(text, /retry-after: 1\r\n/);
      // Over HTTP/2 it is the same: 429, then the connection ends.
      const two = await balanced('c0000232');
      const frames = await answer(two, Buffer.concat([PREFACE, frame(T.HEADERS, F.END_HEADERS | F.END_STREAM, 1, head('GET', '/live'))]),
        (t) => t.includes('Too many connections'));
      assert.ok(frames.includes('Too many connections'), frames);
      two.destroy();
      const other = await balanced('c0000233');
      assert.match(await answer(other, live), /^HTTP\/1.1 200 /);
      other.destroy();
      assert.equal(await count(name) - before, 2);
      for (const s of open) s.destroy();
      assert.ok(await until(async () => {
        const s = await balanced('c0000232');
        const ok = /^HTTP\/1.1 200 /.test(await answer(s, live));
        s.destroy();
        return ok;
      }, WAIT_MS), 'it does not recover');
    });

    /**
     * The answer that is refused beside n uploads that stay. On another thread a request may overtake an upload, take its
     * place and have it refused: then that upload is begun again.
     */
    async function refusedBeside(open, n, upload, ask) {
      const r = await until(async () => {
        for (let i = 0; i < n; i++) if (!open[i] || open[i].isClosed()) { open[i] = await connect(server); write(open[i], upload); }
        const answer = await ask();
        return answer.status === 429 && answer;
      }, WAIT_MS);
      assert.ok(r, 'never refused');
      return r;
    }

    test('requests over the limit of an address are told', async () => {
      const name = 'sluice_http_limited_total{limit="streams_per_address"}';
      const before = await count(name);
      const upload = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.77\r\nAuthorization: Bearer ${server.keys.paid}\r\n`
        + 'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{';
      const open = [];
      const held = (address) => request(server.http, '/live', { headers: { 'x-forwarded-for': address } });
      const r = await refusedBeside(open, 6, upload, () => held('203.0.113.77'));
      assert.equal(r.headers['retry-after'], '1');
      assert.equal(JSON.parse(r.body).error.type, 'rate_limit_error');
      assert.equal((await held('203.0.113.78')).status, 200);
      assert.ok(await count(name) - before >= 1);
      for (const c of open) c.socket.destroy();
      assert.ok(await until(async () => (await held('203.0.113.77')).status === 200, WAIT_MS));
    });

    test('a key has only so many requests', async () => {
      const upload = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.free}\r\n`
        + 'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{';
      const open = [];
      const ask = (key) => request(server.http, '/v1/models', { headers: { authorization: `Bearer ${key}` } });
      const r = await refusedBeside(open, 4, upload, () => ask(server.keys.free));
      assert.equal(JSON.parse(r.body).error.code, 'too_many_requests');
      assert.equal(r.headers['retry-after'], '1');
      assert.equal((await ask(server.keys.paid)).status, 200);
      assert.ok(await count('sluice_http_limited_total{limit="requests_per_key"}') >= 1);
      for (const c of open) c.socket.destroy();
      assert.ok(await until(async () => (await ask(server.keys.free)).status === 200, WAIT_MS));
    });

    test('an HTTP/2 connection below the limits is served as ever', async () => {
      const c = await h2(server, { secure: true });
      write(c, frame(T.HEADERS, F.END_HEADERS | F.END_STREAM, 1, head('GET', '/live')));
      assert.ok(await c.await(T.HEADERS, 1));
      c.socket.destroy();
    });
  });
}

test('memory over the limit is shed, told, and comes back', async () => {
  const LIMIT = 96 * MIB, MOST = 60, MORE = 20, PIECE = 6 * MIB;
  const server = await startServer({ echo: true, sets: ['engine.echo.rate=20', 'engine.echo.ttft=1ms', 'gateway.limits.memory=96MiB',
    'gateway.limits.body_bytes=8MiB', 'gateway.limits.requests_per_key=1000'] });
  const clients = [];
  let watch;
  try {
    const { gateway } = await server.pids();
    const rss = () => Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${gateway}/status`, 'utf8'))[1]) * 1024;
    const honest = chat(server.http, server.keys.paid, { model: 'default', max_tokens: 60,
      messages: user(Array.from({ length: 60 }, (_, i) => `w${i}`).join(' ')) });
    let peak = rss();
    watch = setInterval(() => { peak = Math.max(peak, rss()); }, 10);
    const piece = Buffer.alloc(PIECE, ' ');
    const statuses = [];
    const url = new URL(server.http);
    /** Begins a body that does not end; resolves once its piece was taken or it was refused. */
    const hold = () => new Promise((done) => {
      const req = http.request({ host: url.hostname, port: url.port, method: 'POST', path: '/v1/chat/completions', agent: false,
        headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json', 'content-length': 8 * MIB } });
      clients.push(req);
      const ended = (how) => { statuses.push(how); req.destroy(); done(); };
      req.on('response', (r) => { r.resume(); ended(r.statusCode); });
      req.on('error', (e) => ended(e.code));
      req.write(piece, done);
    });
    // One after the other, each when the gateway has seen what the last one made of it: how much comes between two looks depends on
    // the machine. Once some are refused, many at once change nothing. Above the limit the question itself may be refused: it has seen.
    const seen = async () => {
      const told = metric(await server.metrics().catch(() => ''), 'sluice_gateway_resident_bytes');
      return !Number.isFinite(told) || Math.abs(told - rss()) < PIECE / 2;
    };
    while (statuses.length === 0 && clients.length < MOST) {
      await hold();
      if (statuses.length === 0) assert.ok(await until(async () => statuses.length > 0 || seen(), 20_000), server.log());
    }
    const held = clients.length;
    await Promise.race([Promise.all(Array.from({ length: MORE }, hold)), until(() => statuses.length > MORE / 2, 20_000)]);
    assert.ok(held > LIMIT / PIECE / 2 && held < MOST, `${held} were held`);
    for (const req of clients) req.destroy();
    clearInterval(watch);
    assert.ok(statuses.includes(503), `nobody was told: ${statuses.join(' ')}`);
    assert.ok(peak < LIMIT * 1.5, `${Math.round(peak / MIB)} MiB, the limit is ${LIMIT / MIB}`);
    const r = await honest;
    assert.ok(r.done, r.body);
    assert.ok(await until(async () => (await chat(server.http, server.keys.paid, { model: 'default', max_tokens: 2, messages: user('again') })).status === 200,
      15000, 200), `it does not recover: ${Math.round(rss() / MIB)} MiB`);
    assert.ok(metric(await server.metrics(), 'sluice_http_limited_total{limit="memory"}') >= 1);
  } finally {
    clearInterval(watch);
    for (const req of clients) req.destroy();
    assert.equal(await server.stop(), 0, server.log());
  }
});
