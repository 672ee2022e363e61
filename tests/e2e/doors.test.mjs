// SPDX-License-Identifier: Apache-2.0
// What every way in has in common: the same answer is the same events over every protocol; what is too large or coded is
// refused before it is read; every route asks for a key, however its path is written.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { chat, eventsOf, metric, until, user } from './client.mjs';
import { request, startServer, THREADS } from './harness.mjs';
import { block, connect, F, frame, h2, head, T, within, write } from './wire.mjs';

const run = promisify(execFile);
const WAIT_MS = 60_000;
const BODY_MAX = 64 << 10;
const KIB = 1 << 10;

const digest = (list) => createHash('sha256').update(list.join('\n')).digest('hex');

/** The body of an HTTP/1.1 answer in chunks. */
function unchunk(answer) {
  let rest = answer.slice(answer.indexOf('\r\n\r\n') + 4);
  for (let body = ''; ;) {
    const at = rest.indexOf('\r\n');
    const n = parseInt(rest.slice(0, at), 16);
    if (!(n > 0)) return body;
    body += rest.slice(at + 2, at + 2 + n);
    rest = rest.slice(at + 2 + n + 2);
  }
}

for (const threads of THREADS) {
  describe(`every door, ${threads} gateway thread(s)`, () => {
    let server, gateway;
    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.rate=0', 'engine.echo.ttft=1ms',
        `gateway.limits.body_bytes=${BODY_MAX}`, 'supervisor.hang=10m'] });
      gateway = (await server.pids()).gateway;
    });
    after(async () => assert.equal(await server?.stop(), 0, server?.log()));

    test('the same events by curl, node and single bytes, over every protocol', async () => {
      const body = JSON.stringify({ model: 'default', stream: true, stream_options: { include_usage: true },
        messages: user('the quick brown fox — 안녕 — 👩‍👩‍👧 jumps over the lazy dog') });
      const auth = `Bearer ${server.keys.paid}`;
      const got = {};
      const curl = async (...args) => (await run('curl', ['-sN', '--cacert', server.caFile, '-H', `Authorization: ${auth}`,
        '-H', 'Content-Type: application/json', '-d', body, ...args])).stdout;
      const path = '/v1/chat/completions';
      got['curl h1'] = await curl('--http1.1', server.http + path);
      got['curl h1 1.0'] = await curl('--http1.0', server.http + path);
      got['curl h1 TLS'] = await curl('--http1.1', server.https + path);
      got['curl h2 TLS'] = await curl('--http2', server.https + path);
      got['curl h2 TLS 1.2'] = await curl('--http2', '--tls-max', '1.2', server.https + path);
      got['curl h2c'] = await curl('--http2-prior-knowledge', server.http + path);
      got['curl h2c upgrade'] = await curl('--http2', server.http + path); // stays HTTP/1.1
      for (const [name, base, ca] of [['node h2c', server.http], ['node h2', server.https, readFileSync(server.caFile)]]) {
        const session = http2.connect(base, { ca });
        got[name] = await new Promise((done, failed) => {
          let text = '';
          const s = session.request({ ':method': 'POST', ':path': path, authorization: auth, 'content-type': 'application/json' });
          s.setEncoding('utf8').on('data', (d) => { text += d; }).on('end', () => done(text)).on('error', failed);
          s.end(body);
        });
        session.close();
      }
      // Each byte a TLS record of its own.
      const text = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: ${auth}\r\n`
        + `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
      const bytes = await connect(server, { secure: true });
      for (const b of Buffer.from(text)) assert.ok(await write(bytes, Buffer.from([b])));
      assert.ok(await within(bytes.closed, WAIT_MS));
      got['TLS byte by byte'] = unchunk(bytes.bytes().toString('latin1'));
      got['TLS byte by byte'] = Buffer.from(got['TLS byte by byte'], 'latin1').toString();
      const two = await h2(server, { secure: true });
      const frames = Buffer.concat([frame(T.HEADERS, F.END_HEADERS, 1, head('POST', path, { authorization: auth,
        'content-type': 'application/json' })), frame(T.DATA, F.END_STREAM, 1, Buffer.from(body))]);
      for (const b of frames) assert.ok(await write(two, Buffer.from([b])));
      await new Promise((done) => {
        two.onBytes = () => two.frames().some((f) => f.type === T.DATA && f.flags & F.END_STREAM) && done();
        two.onBytes();
        two.closed.then(done);
      });
      got['TLS h2 byte by byte'] = Buffer.concat(two.frames().filter((f) => f.type === T.DATA).map((f) => f.payload)).toString();
      two.socket.destroy();

      const first = eventsOf(got['curl h1']);
      assert.ok(first.length >= 5 && first.at(-1) === 'data: [DONE]', got['curl h1']);
      for (const [name, t] of Object.entries(got)) {
        assert.deepEqual(eventsOf(t), first, name);
        assert.equal(digest(eventsOf(t)), digest(first), name);
      }
    });

    for (const secure of [false, true]) {
      test(`what is too large or coded is refused before it is read, ${secure ? 'TLS' : 'cleartext'}`, async () => {
        const base = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.keys.paid}\r\n`;
        const json = 'Content-Type: application/json\r\n';
        const reply = async (more) => {
          const c = await connect(server, { secure });
          write(c, `${base}${more}\r\n`);
          await new Promise((done) => { c.onBytes = done; c.closed.then(done); });
          return c;
        };
        for (const [more, status] of [
          [`${json}Content-Length: ${BODY_MAX + 1}\r\n`, 413],
          [`${json}Content-Length: 999999999999999\r\n`, 413],
          [`${json}Content-Length: ${BODY_MAX + 1}\r\nExpect: 100-continue\r\n`, 413],
          [`${json}Content-Encoding: gzip\r\nContent-Length: 100\r\n`, 415],
          [`${json}Content-Encoding: br\r\nTransfer-Encoding: chunked\r\n`, 415],
          ['Content-Type: text/plain\r\nContent-Length: 100\r\nExpect: 100-continue\r\n', 415],
          ['Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 100\r\n', 415],
        ]) {
          const c = await reply(more); // not a byte of the body has been sent
          assert.match(c.text(), new RegExp(`^HTTP/1.1 ${status} `), more);
          assert.equal(c.text().match(/HTTP\/1.1 /g).length, 1, more);
          c.socket.destroy();
        }

        // Who sends on all the same is read only to be thrown away, and not for long.
        const big = await reply(`${json}Content-Length: 999999999\r\n`);
        let sent = 0;
        while (sent < 64 * 1024 * KIB && await Promise.race([write(big, Buffer.alloc(256 * KIB)),
          new Promise((done) => { setTimeout(done, WAIT_MS, false); })])) sent += 256 * KIB;
        assert.ok(sent < 16 * 1024 * KIB, `${sent} bytes were taken`);
        assert.ok(await within(big.closed, WAIT_MS));
        big.socket.destroy();

        // In chunks: as soon as the limit is passed, not at the end.
        const chunked = await connect(server, { secure });
        write(chunked, `${base}${json}Transfer-Encoding: chunked\r\n\r\n`);
        const chunk = Buffer.concat([Buffer.from('4000\r\n'), Buffer.alloc(0x4000, ' '), Buffer.from('\r\n')]);
        for (let i = 0; i < BODY_MAX / 0x4000; i++) await write(chunked, chunk);
        assert.equal(chunked.text(), '');
        await write(chunked, chunk);
        assert.ok(await within(chunked.closed, WAIT_MS));
        assert.match(chunked.text(), /^HTTP\/1.1 413 /);

        // HTTP/2: the window of the refused upload is not opened again.
        for (const [more, status] of [[{ 'content-length': String(BODY_MAX + 1) }, '413'], [{ 'content-encoding': 'gzip' }, '415']]) {
          const c = await h2(server, { secure });
          await write(c, frame(T.HEADERS, F.END_HEADERS, 1, head('POST', '/v1/chat/completions', { ...more,
            authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' })));
          const f = await c.await(T.HEADERS, 1);
          assert.ok(f.payload.includes(status) || f.payload[0] === 0x48, status);
          await write(c, frame(T.DATA, 0, 1, Buffer.alloc(16000)));
          assert.ok(await c.await(T.RST_STREAM, 1));
          assert.equal(c.find(T.WINDOW_UPDATE, 1), undefined);
          c.socket.destroy();
        }
      });
    }

    test('a field that has one value and comes twice is refused by name, whatever the two say', async () => {
      const json = JSON.stringify({ model: 'default', messages: user('once') });
      const auth = ['authorization', `Bearer ${server.keys.paid}`], type = ['content-type', 'application/json'];
      const overH1 = async (fields) => {
        const c = await connect(server);
        await write(c, [`POST /v1/chat/completions HTTP/1.1`, ...fields.map(([n, v]) => `${n}: ${v}`), 'connection: close', '', json].join('\r\n'));
        assert.ok(await within(c.closed, WAIT_MS));
        return { status: Number(c.text().slice(9, 12)), body: c.text().slice(c.text().indexOf('\r\n\r\n') + 4) };
      };
      const overH2 = async (fields, authority = 'localhost') => {
        const c = await h2(server);
        await write(c, Buffer.concat([frame(T.HEADERS, F.END_HEADERS, 1, block([[':method', 'POST'], [':scheme', 'http'],
          [':path', '/v1/chat/completions'], [':authority', authority], ...fields])), frame(T.DATA, F.END_STREAM, 1, Buffer.from(json))]));
        const over = () => c.frames().some((f) => f.id === 1 && (f.type === T.RST_STREAM || (f.type === T.DATA && f.flags & F.END_STREAM)));
        assert.ok(await until(over, WAIT_MS), 'it is answered');
        c.socket.destroy();
        const reset = c.find(T.RST_STREAM, 1);
        if (reset) return { status: 'reset', body: String(reset.payload.readUInt32BE(0)) };
        return { status: { 0x88: 200, 0x8c: 400 }[c.find(T.HEADERS, 1).payload[0]],
          body: Buffer.concat(c.frames().filter((f) => f.id === 1 && f.type === T.DATA).map((f) => f.payload)).toString() };
      };
      const length = ['content-length', String(json.length)], host = ['host', 'localhost'];
      const h1 = (...more) => overH1([host, length, auth, type, ...more]), two = (...more) => overH2([length, auth, type, ...more]);
      for (const [over, ask] of [['HTTP/1.1', h1], ['HTTP/2', two]]) {
        assert.equal((await ask()).status, 200, over);
        for (const [name, told, ...values] of [['authorization', 'Authorization', auth[1]], ['authorization', 'Authorization', 'Bearer another'],
          ['content-type', 'Content-Type', 'text/plain'], ['idempotency-key', 'Idempotency-Key', 'one', 'two'],
          ['last-event-id', 'Last-Event-ID', '1', '2'], ['origin', 'Origin', 'http://localhost', 'https://elsewhere.example'],
          ['x-sluice-conversation', 'X-Sluice-Conversation', 'a', 'b']]) {
          const r = await ask(...values.map((v) => [name, v]));
          assert.equal(r.status, 400, `${over}, ${name}: ${r.body}`);
          const { error } = JSON.parse(r.body);
          assert.deepEqual([error.param, error.code, error.message], [told, 'duplicate_header', `The header field ${told} came more than once.`], over);
        }
        // A list in two fields is one list: the second one's coding is one too.
        const coded = await ask(['content-encoding', 'identity'], ['content-encoding', 'gzip']);
        assert.match(coded.body, /unsupported_media_type/, over);
      }
      for (const [fields, says] of [[[host, host, length], 'Host came more'], [[length], 'Host is missing'], [[host, length, length], 'Content-Length came more'],
        [[host, ['content-length', '1x']], 'Content-Length is malformed'], [[host, length, ['transfer-encoding', 'chunked']], 'exclude each other'],
        [[host, ['transfer-encoding', 'gzip, chunked']], 'Transfer-Encoding is not exactly']]) {
        const r = await overH1([...fields, auth, type]);
        assert.equal(r.status, 400, says);
        assert.ok(JSON.parse(r.body).error.message.includes(says), r.body);
      }
      const other = await two(['host', 'elsewhere']);
      assert.deepEqual([other.status, JSON.parse(other.body).error.message], [400, 'The header field Host differs from :authority.']);
      for (const [authority, same] of [['localhost', 'LOCALHOST'], ['localhost:80', 'localhost'], ['localhost', 'localhost:80']])
        assert.equal((await overH2([['host', same], length, auth, type], authority)).status, 200, `${authority}, ${same}`);
      for (const differs of ['localhost:81', 'localhos'])
        assert.equal((await two(['host', differs])).status, 400, differs);
      // An authority is a host and a port: in Host, in :authority, in an absolute target.
      for (const bad of ['user@localhost', 'user:pw@localhost:80', 'localhost/x', 'localhost:8o', ':80', '[::1', 'local host']) {
        const host1 = await overH1([['host', bad], length, auth, type]);
        assert.deepEqual([host1.status, JSON.parse(host1.body).error.message], [400, 'The header field Host is malformed.'], bad);
        const authority = await overH2([length, auth, type], bad);
        if (authority.status !== 'reset') // what the library itself takes for malformed (a blank)
          assert.deepEqual([authority.status, JSON.parse(authority.body).error.message], [400, 'The pseudo-header field :authority is malformed.'], bad);
        const c = await connect(server);
        await write(c, `GET http://${bad}${bad.endsWith('/x') ? '@localhost' : ''}/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
        assert.ok(await within(c.closed, WAIT_MS));
        assert.match(c.text(), bad.endsWith('/x') ? /^HTTP\/1.1 404 / : /^HTTP\/1.1 400 /, bad);
      }
      for (const good of ['localhost', 'localhost:65535', '[::1]:80', '127.0.0.1', 'a_b.example'])
        assert.deepEqual([(await overH1([['host', good], length, auth, type])).status, (await overH2([length, auth, type], good)).status], [200, 200], good);
    });

    test('every route refuses who has no right to it, however its path is written', async () => {
      const spec = JSON.parse((await request(server.http, '/openapi.json')).body);
      const open = ['/live', '/ready', '/health', '/openapi.json', '/', '/admin', '/client.js', '/client.d.ts', '/favicon.ico'];
      const keys = { none: undefined, bad: 'Bearer sk-wrong', empty: 'Bearer ', basic: 'Basic c2s6c2s=',
        'cut key': `Bearer ${server.keys.paid.slice(0, -1)}`, 'long key': `Bearer ${server.keys.paid}0`,
        'other case': `Bearer ${server.keys.paid.toUpperCase()}` };
      const routes = Object.entries(spec.paths).flatMap(([path, methods]) => Object.keys(methods)
        .filter((m) => ['get', 'post', 'delete', 'put', 'patch'].includes(m)).map((m) => [m.toUpperCase(), path.replace(/\{\w+\}/g, 'x')]));
      assert.ok(routes.length >= 5);
      const ask = async (method, target, authorization, host = 'x') => {
        const c = await connect(server);
        write(c, `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n`
          + `${authorization === undefined ? '' : `Authorization: ${authorization}\r\n`}${method === 'POST'
            ? 'Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}' : '\r\n'}`);
        assert.ok(await within(c.closed, WAIT_MS));
        return Number(/^HTTP\/1.1 (\d+) /.exec(c.text())?.[1]);
      };
      for (const [method, path] of routes) {
        if (open.includes(path) || path.startsWith('/www/')) continue;
        for (const [name, key] of Object.entries(keys)) assert.equal(await ask(method, path, key), 401, `${method} ${path}, ${name}`);
        // A key of the other kind: tiers' keys never open what is the administrator's, nor the other way round.
        const foreign = path === '/metrics' || path.startsWith('/v1/admin/') || path.endsWith('load_lora_adapter') ? server.keys.paid : server.keys.admin;
        assert.equal(await ask(method, path, `Bearer ${foreign}`), 403, `${method} ${path}`);

        const rest = path.slice(1);
        const letter = rest[0];
        for (const [target, allowed] of [
          [`/${path}`, [404]], [`//v1/../${rest}`, [404]], [`/./${rest}`, [404]], [`/x/../${rest}`, [404]],
          [`/%${letter.charCodeAt(0).toString(16)}${rest.slice(1)}`, [404]], [`/%2e/${rest}`, [404]], [`${path}%2e`, [404, 401]],
          [`${path}%00`, [404, 401]], [`/%2f${rest}`, [404]], [path.toUpperCase(), [404]], [`${path};x=y`, [404, 401]],
          [`${path}/..`, [404, 401, 405]], [`${path}?key=${server.keys.paid}`, [401]], [`\\${rest}`, [400]], [`${path}#x`, [400]],
          [`http://localhost${path}`, [401]], [`https://x${path}`, [401]], [`http://localhost/${path}`, [404]],
          [`http://localhost@x${path}`, [400]], [`ftp://x${path}`, [400]],
        ]) {
          const status = await ask(method, target);
          assert.ok(allowed.includes(status), `${method} ${target}: ${status}`);
        }
        // Two ways to say who one is: the first does not open the door for a wrong one, and other fields are no key.
        assert.equal(await ask(method, path, `Bearer sk-wrong\r\nX-Api-Key: ${server.keys.paid}\r\nX-Original-URL: /live\r\n`
          + 'X-Forwarded-For: 127.0.0.1'), 401, `${method} ${path}`);
      }
      for (const path of open) assert.ok([200, 404].includes(await ask('GET', path)), path);
      for (const path of ['/nothing', '/v1', '/v1/', '/v1/unknown', '/admin/', '/.env', '/www/../sluice.yaml', '/www/%2e%2e/x']) {
        assert.equal(await ask('GET', path), 404, path);
      }
      assert.ok(metric(await server.metrics(), 'sluice_answers_total{route="unknown",class="4xx"}') > 0);
      const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user('and with a key') });
      assert.equal(r.text, 'and with a key');
      assert.ok(gateway > 0 && (await server.pids()).gateway === gateway, 'it was restarted');
    });
  });
}
