// SPDX-License-Identifier: Apache-2.0
// Errors that the transport answers before any route has seen the request: they look like every other error, and a page of
// another origin can read them. And what HTTP in cleartext gets where TLS is spoken.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import http from 'node:http';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { launch } from './chromium.mjs';
import { until } from './client.mjs';
import { request, startServer, THREADS } from './harness.mjs';
import { connect, portOf, within, write } from './wire.mjs';

const run = promisify(execFile);
const WAIT_MS = 50_000;
const KIB = 1 << 10;
const BODY_MAX = 64 * KIB;
const PAGE = 'http://localhost:7';

/** An answer of HTTP/1.1 that came whole: {status, headers, body}. */
function parsed(text) {
  const [head, body] = [text.slice(0, text.indexOf('\r\n\r\n')), text.slice(text.indexOf('\r\n\r\n') + 4)];
  const [line, ...fields] = head.split('\r\n');
  return { status: Number(line.split(' ')[1]), body,
    headers: Object.fromEntries(fields.map((f) => [f.slice(0, f.indexOf(':')), f.slice(f.indexOf(':') + 2)])) };
}

function assertError(r, status, code, what, origin = PAGE) {
  assert.equal(r.status, status, `${what}: ${r.body}`);
  assert.equal(r.headers['content-type'], 'application/json', what);
  const { error } = JSON.parse(r.body);
  assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type'], what);
  assert.deepEqual([error.code, error.param], [code, null], what);
  assert.ok(error.message.length > 5, what);
  assert.match(r.headers['x-request-id'], /^req_[0-9a-f]{32}$/, what);
  assert.equal(r.headers.vary, 'Origin', what);
  assert.equal(r.headers['access-control-allow-origin'], origin ?? undefined, what);
  if (origin) assert.match(r.headers['access-control-expose-headers'], /x-request-id/, what);
}

for (const threads of THREADS) {
  describe(`errors before any route, ${threads} gateway thread(s)`, () => {
    let server, gateway;
    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, `gateway.limits.body_bytes=${BODY_MAX}`,
        'gateway.limits.header=1500ms', 'gateway.limits.body=1500ms', 'gateway.limits.streams_per_address=4', 'gateway.limits.connections_per_address=0',
        'gateway.limits.exempt_addresses=127.0.0.9', 'gateway.dev_keys=true'] });
      gateway = (await server.pids()).gateway;
    });
    after(async () => {
      assert.equal((await server?.pids())?.gateway, gateway, 'the gateway was restarted');
      assert.equal(await server?.stop(), 0, server?.log());
    });

    for (const secure of [false, true]) {
      const where = secure ? 'TLS' : 'cleartext';

      test(`HTTP/1.1, ${where}`, async () => {
        const ask = async (text) => {
          const c = await connect(server, { secure });
          write(c, text);
          assert.ok(await within(c.closed, WAIT_MS), text.slice(0, 200));
          return parsed(c.text());
        };
        const o = `Origin: ${PAGE}\r\n`;
        for (const [what, text, status, code] of [
          ['no host', `GET /live HTTP/1.1\r\n${o}\r\n`, 400, 'malformed_request'],
          ['userinfo', `GET /live HTTP/1.1\r\n${o}Host: a@b\r\n\r\n`, 400, 'malformed_request'],
          ['a bare LF', `GET /live HTTP/1.1\r\nHost: x\r\n${o}X: a\nb\r\n\r\n`, 400, 'malformed_request'],
          ['a head that does not end', `GET /live HTTP/1.1\r\nHost: x\r\n${o}X: a`, 408, 'request_timeout'],
          ['a body that does not end', `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.paid}\r\n`
            + `Content-Type: application/json\r\n${o}Content-Length: 9\r\n\r\n{`, 408, 'request_timeout'],
          ['a file that does not end', `POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.paid}\r\n`
            + `Content-Type: multipart/form-data; boundary=b\r\n${o}Content-Length: 999\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nsome`, 408, 'request_timeout'],
          ['a body announced too large', `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n${o}Content-Length: ${BODY_MAX + 1}\r\n\r\n`, 413, 'request_too_large'],
          ['a long target', `GET /${'a'.repeat(9000)} HTTP/1.1\r\nHost: x\r\n${o}\r\n`, 414, 'url_too_long'],
          ['an expectation', `GET /live HTTP/1.1\r\nHost: x\r\n${o}Expect: tea\r\n\r\n`, 417, 'unsupported_expectation'],
          ['many fields', `GET /live HTTP/1.1\r\nHost: x\r\n${o}${'A: b\r\n'.repeat(101)}\r\n`, 431, 'headers_too_large'],
          ['large fields', `GET /live HTTP/1.1\r\nHost: x\r\n${o}A: ${'a'.repeat(17000)}\r\n\r\n`, 431, 'headers_too_large'],
          ['far too large fields', `GET /live HTTP/1.1\r\nHost: x\r\n${o}A: ${'a'.repeat(40000)}\r\n\r\n`, 431, 'headers_too_large'],
          ['CONNECT', `CONNECT x:1 HTTP/1.1\r\nHost: x\r\n${o}\r\n`, 501, 'unsupported_method'],
          ['a version', `GET / HTTP/2.5\r\nHost: x\r\n${o}\r\n`, 505, 'unsupported_http_version'],
        ]) {
          const r = await ask(text);
          assertError(r, status, code, what);
          assert.equal(r.headers.connection, 'close', what);
          // Of another origin it says nothing; of two it believes neither.
          if (status !== 408) {
            assertError(await ask(text.replace(PAGE, 'https://elsewhere.example')), status, code, what, null);
            assertError(await ask(text.replace(o, '')), status, code, what, null);
          }
        }
        assertError(await ask(`GET /live HTTP/1.1\r\n${o}${o}\r\n`), 400, 'malformed_request', 'two origins', null);
        const id = (await ask(`GET /live HTTP/1.1\r\n${o}\r\n`)).headers['x-request-id'];
        assert.ok(await until(() => server.log().includes(`refused 400 by the transport, from 127.0.0.1, ${id}\n`), WAIT_MS), id);
      });

      test(`HTTP/2, ${where}`, async () => {
        const session = http2.connect(secure ? server.https : server.http, { rejectUnauthorized: false });
        const ask = (fields, end = true) => new Promise((done, failed) => {
          const s = session.request(fields, { endStream: end });
          let r, body = '';
          s.on('response', (h) => { r = { status: h[':status'], headers: h }; });
          s.setEncoding('utf8').on('data', (d) => { body += d; });
          s.on('error', failed).on('end', () => done({ ...r, body }));
          s.on('end', () => s.close());
        });
        const get = { ':path': '/live', origin: PAGE };
        for (const [what, fields, status, code, end] of [
          ['userinfo', { ...get, ':authority': 'a@b' }, 400, 'malformed_request'],
          ['another host', { ...get, ':authority': 'a', host: 'b' }, 400, 'malformed_request'],
          ['a target', { ...get, ':path': '/#a' }, 400, 'malformed_request'],
          ['a body announced too large', { ':method': 'POST', ...get, 'content-length': String(BODY_MAX + 1) }, 413, 'request_too_large', false],
          ['an expectation', { ...get, expect: 'tea' }, 417, 'unsupported_expectation'],
          ['large fields, the origin first', { ...get, a: 'a'.repeat(17000) }, 431, 'headers_too_large'],
          ['large fields, the origin last', { ':path': '/live', a: 'a'.repeat(17000), origin: PAGE }, 431, 'headers_too_large'],
          ['a body that does not end', { ':method': 'POST', ...get, ':path': '/v1/chat/completions', 'content-type': 'application/json',
            authorization: `Bearer ${server.keys.paid}` }, 408, 'request_timeout', false],
        ]) {
          assertError(await ask(fields, end ?? true), status, code, what);
          if (status !== 408) assertError(await ask({ ...fields, origin: 'https://elsewhere.example' }, end ?? true), status, code, what, null);
        }
        // Over the address's limit.
        const streams = Array.from({ length: 4 }, () => session.request({ ':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json',
          authorization: `Bearer ${server.keys.paid}` }, { endStream: false }));
        for (const s of streams) s.on('error', () => {});
        const r = await ask(get);
        assertError(r, 429, 'too_many_requests', 'over the limit');
        assert.equal(r.headers['retry-after'], '1');
        for (const s of streams) s.close(http2.constants.NGHTTP2_CANCEL);
        session.destroy();
      });
    }

    test('HTTP in cleartext on the port of HTTPS is told so', async () => {
      const port = portOf(server, true);
      for (const how of ['--http1.1', '--http1.0']) {
        const { stdout } = await run('curl', ['-si', how, '-H', 'X-Some: field', `http://127.0.0.1:${port}/v1/models?a=b`]);
        const r = parsed(stdout);
        assert.equal(r.status, 400);
        assert.equal(r.headers['content-type'], 'text/plain; charset=utf-8');
        assert.equal(r.headers.connection, 'close');
        assert.equal(r.body, `This port speaks HTTPS, but the request came without TLS. Use https://127.0.0.1:${port}/\n`);
      }
      // TLS goes on there as ever.
      assert.equal((await run('curl', ['-s', '--cacert', server.caFile, '-o', '/dev/null', '-w', '%{http_code}', `${server.https}/live`])).stdout, '200');
    });

    test('a page of another origin sees 413 and 431, and not a network error', async () => {
      const site = http.createServer((q, r) => r.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>a page</title>'));
      await new Promise((done) => { site.listen(0, '127.0.0.1', done); });
      const browser = await launch();
      try {
        const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
        page.setDefaultTimeout(10 * WAIT_MS);
        await page.goto(`http://localhost:${site.address().port}/`);
        const ask = (url, headers, n) => page.evaluate(async ([to, fields, bytes]) => {
          try {
            const r = await fetch(to, { method: 'POST', headers: { 'content-type': 'application/json', ...fields }, body: 'x'.repeat(bytes) });
            return { status: r.status, id: r.headers.get('x-request-id'), code: (await r.json()).error.code };
          } catch (e) { return { error: String(e) }; }
        }, [url, headers, n]);
        for (const base of [server.http, server.https]) {
          const url = `${base}/v1/chat/completions`, key = `Bearer ${server.keys.paid}`;
          for (const [n, headers, status, code] of [[BODY_MAX + 1, { authorization: key }, 413, 'request_too_large'],
            [3000 * KIB, { authorization: key }, 413, 'request_too_large'], [20000 * KIB, { authorization: key }, 413, 'request_too_large'],
            [10, { authorization: `Bearer ${'x'.repeat(17000)}` }, 431, 'headers_too_large']]) {
            const { id, ...r } = await ask(url, headers, n);
            assert.deepEqual(r, { status, code }, `${url}, ${n} bytes`);
            assert.match(id, /^req_/);
          }
        }
      } finally {
        await browser.close();
        site.close();
      }
      assert.equal((await request(server.http, '/live')).status, 200);
    });
  });
}
