// SPDX-License-Identifier: Apache-2.0
// The life of a service under load: reloads, upgrades of the executable, ends. What runs goes on, word for word; what comes
// meanwhile is served.
// Alone: five hundred streams go on meanwhile.
import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { after, afterEach, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { ROOT, SLUICE, request, startServer } from './harness.mjs';

const PATIENCE = 20000;
let dir, server, conf, exe;

before(() => { dir = mkdtempSync(join(tmpdir(), 'sluice-life-')); });
after(() => rmSync(dir, { recursive: true, force: true }));
afterEach(async () => { await server?.stop(); server = null; });

/** Puts a file in another's place at once, as installers do. */
function replaceFile(path, write) {
  write(`${path}.new`);
  renameSync(`${path}.new`, path);
}

/** etc/sluice.yaml with other words in some places: [from, to]. */
function writeConfig(...changes) {
  let text = readFileSync(join(ROOT, 'etc/sluice.yaml'), 'utf8');
  for (const [from, to] of [['concurrency: 32', 'concurrency: 2000'], ...changes]) {
    assert.ok(text.includes(from), from);
    text = text.replace(from, to);
  }
  replaceFile(conf, (f) => writeFileSync(f, text));
}

async function start({ changes = [], sets = [] } = {}) {
  conf = join(dir, 'sluice.yaml');
  exe = join(dir, 'sluice');
  writeConfig(...changes);
  replaceFile(exe, (f) => copyFileSync(SLUICE, f));
  server = await startServer({ echo: true, config: conf, exe, sets });
  return server;
}

/** How often a line has been logged. */
const logged = (what) => server.log().split(what).length - 1;

async function awaitLog(what, times = 1) {
  assert.ok(await until(() => logged(what) >= times, PATIENCE), `"${what}" is not in the log:\n${server.log()}`);
}

async function reload() {
  const n = logged('gateway: reloaded');
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('gateway: reloaded', n + 1);
}

async function upgrade() {
  const before = (await server.pids()).gateway, n = logged('upgrade: gateway is process');
  process.kill(server.pid, 'SIGUSR2');
  await awaitLog('upgrade: gateway is process', n + 1);
  const now = Number(/upgrade: gateway is process (\d+)/.exec(server.log().split('upgrade: gateway').slice(-1)[0]
    .replace(/^/, 'upgrade: gateway'))[1]);
  assert.notEqual(now, before);
  return now;
}

/** An HTTP/2 connection that remembers the GOAWAYs it got. */
function connection(base) {
  const session = http2.connect(base, { rejectUnauthorized: false });
  session.goaways = [];
  session.on('goaway', (code, last) => session.goaways.push({ code, last }));
  session.on('error', (e) => { session.failed = e; });
  return session;
}

/** One streamed answer: {status, text, done (how often), roles, code, began (promise), ended (promise)}. */
function stream(session, key, content, more = {}) {
  const r = { status: 0, text: '', done: 0, roles: 0, errors: [], code: null };
  const s = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json',
    authorization: `Bearer ${key}` });
  let rest = '', began;
  r.began = new Promise((f) => { began = f; });
  s.setEncoding('utf8');
  s.on('response', (h) => { r.status = h[':status']; });
  s.on('data', (d) => {
    rest += d;
    for (let i; (i = rest.indexOf('\n\n')) >= 0;) {
      const event = rest.slice(0, i);
      rest = rest.slice(i + 2);
      if (!event.startsWith('data: ')) continue;
      if (event === 'data: [DONE]') { r.done++; continue; }
      const { choices, error } = JSON.parse(event.slice(6));
      if (error) r.errors.push(error);
      if (choices?.[0]?.delta?.role) r.roles++;
      r.text += choices?.[0]?.delta?.content ?? '';
      if (r.text) began();
    }
  });
  s.on('error', (e) => { r.error = e; });
  r.ended = new Promise((f) => { s.on('close', () => { r.over = true; r.code = s.rstCode; began(); f(r); }); });
  s.end(JSON.stringify({ model: 'default', stream: true, max_tokens: 1500, messages: user(content), ...more }));
  return r;
}

const words = (name, n) => Array.from({ length: n }, (_, i) => `${name}.${i}`).join(' ');

function assertWhole(r, content, what) {
  assert.equal(r.error, undefined, `${what}: ${r.error}`);
  assert.equal(r.status, 200, what);
  assert.deepEqual(r.errors, [], what);
  assert.equal(r.text, content, what);
  assert.equal(r.roles, 1, what);
  assert.equal(r.done, 1, what);
}

/** Asks on ever new connections, over HTTP/1.1 and HTTP/2, until stop(): {asked, failed}. */
function knock() {
  const seen = { asked: 0, failed: [] };
  let going = true;
  const ask = async (how, name) => {
    for (let i = 0; going; i++) {
      const content = words(`${name}${i}`, 3);
      seen.asked++;
      await how(content).catch((e) => seen.failed.push(`${name}: ${e.message}`));
      await new Promise((r) => setTimeout(r, 5));
    }
  };
  const all = [
    ask(async (content) => {
      const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user(content) });
      assert.equal(r.error, null);
      assert.equal(r.status, 200, r.body);
      assert.equal(r.text, content);
    }, 'h1'),
    ask(async () => assert.equal((await request(server.http, '/ready')).status, 200), 'ready'),
    ask(async (content) => {
      const session = connection(server.http);
      const r = await stream(session, server.keys.paid, content).ended;
      session.destroy();
      assertWhole(r, content, 'h2');
    }, 'h2'),
  ];
  return async () => { going = false; await Promise.all(all); return seen; };
}

for (const threads of [1, 4]) {
  test(`500 live streams survive a reload and an upgrade, ${threads} gateway thread(s)`, async () => {
    const N = 500, PER = 100, WORDS = 160;
    await start({ changes: [['threads: 1', `threads: ${threads}`]], sets: ['engine.echo.rate=20'] });
    const sessions = Array.from({ length: N / PER }, (_, i) => connection(i % 2 ? server.https : server.http));
    const contents = Array.from({ length: N }, (_, i) => words(`s${i}`, WORDS));
    const stop = knock();
    const streams = contents.map((c, i) => stream(sessions[Math.floor(i / PER)], server.keys.paid, c));
    await Promise.all(streams.map((r) => r.began));

    writeConfig(['threads: 1', `threads: ${threads}`], ['heartbeat: 10s', 'heartbeat: 11s']);
    await reload();
    const old = (await server.pids()).gateway;
    const now = await upgrade();
    assert.equal(streams.filter((r) => r.over).length, 0, 'all were to be running through it');
    // What comes now is the new process's; the old one has said good-bye in two steps and goes on with what it has.
    assert.ok(await until(() => sessions.every((s) => s.goaways.length === 2), PATIENCE), 'two GOAWAYs each');
    for (const s of sessions) {
      assert.deepEqual(s.goaways.map((g) => g.code), [0, 0]);
      assert.equal(s.goaways[0].last, 2 ** 31 - 1, 'the first promises nothing yet');
      assert.equal(s.goaways[1].last, 2 * PER - 1, 'the second names the last stream');
    }
    const late = connection(server.https);
    assertWhole(await stream(late, server.keys.paid, 'who is there').ended, 'who is there', 'a new connection');
    late.close();

    (await Promise.all(streams.map((r) => r.ended))).forEach((r, i) => assertWhole(r, contents[i], `stream ${i}`));
    await awaitLog('the replaced gateway has ended');
    const seen = await stop();
    assert.deepEqual(seen.failed, []);
    assert.ok(seen.asked > 50, `${seen.asked} new connections`);
    assert.equal((await server.pids()).gateway, now);
    assert.notEqual(old, now);
    assert.equal(await server.stop(), 0, server.log());
    assert.doesNotMatch(server.log(), /killed|signal|exited/);
  });
}

test('a reload: new values for new requests; a wrong file changes nothing; what needs a restart is named', async () => {
  await start({ sets: ['engine.echo.rate=50'] });
  const pid = (await server.pids()).gateway;
  const four = async () => {
    const session = connection(server.http);
    const all = Array.from({ length: 4 }, () => stream(session, server.keys.free, words('x', 10)));
    const status = (await Promise.all(all.map((r) => r.ended))).map((r) => r.status).sort();
    session.close();
    return status;
  };
  assert.deepEqual(await four(), [200, 200, 200, 200]);

  writeConfig(['concurrency: 4', 'concurrency: 2'], ['idle: 5m', 'idle: never']);
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('reload refused, the old configuration goes on');
  assert.match(server.log(), /reload refused.*sluice\.yaml:\d+:\d+: gateway\.limits\.idle/);
  assert.deepEqual(await four(), [200, 200, 200, 200], 'nothing of a wrong file counts');

  // A stream that runs keeps what it began with, and counts for what comes.
  const session = connection(server.http);
  const running = stream(session, server.keys.free, words('long', 60));
  await running.began;
  writeConfig(['concurrency: 4', 'concurrency: 2'], ['cors_origins: ["http://localhost:*"]', 'cors_origins: ["https://chat.example"]'],
    ['threads: 1', 'threads: 3'], ['context: 4096', 'context: 8192']);
  await reload();
  assert.match(server.log(), /gateway\.threads has changed: that needs an upgrade \(SIGUSR2\) or a restart, the old value stays/);
  assert.match(server.log(), /engine\.echo\.context has changed: that needs a restart, the old value stays/);
  assert.deepEqual(await four(), [200, 429, 429, 429]);
  const models = await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.free}`, origin: 'https://chat.example' } });
  assert.equal(models.headers['access-control-allow-origin'], 'https://chat.example');
  assertWhole(await running.ended, words('long', 60), 'it ran through the reload');
  session.close();
  assert.deepEqual(await four(), [200, 200, 429, 429]);
  assert.equal((await server.pids()).gateway, pid);

  // What was named is not taken by a crash either, but by an upgrade.
  process.kill(pid, 'SIGKILL');
  assert.ok(await until(() => logged('gateway is ready') === 2, PATIENCE));
  assert.equal((await server.metrics()).includes('sluice_'), true);
  const threadsOf = (p) => readFileSync(`/proc/${p}/status`, 'utf8').match(/^Threads:\s+(\d+)/m)[1];
  const crashed = threadsOf((await server.pids()).gateway);
  const upgraded = threadsOf(await upgrade());
  assert.equal(Number(upgraded) - Number(crashed), 2);
});

test('a gateway that crashes refuses no connection', async () => {
  await start();
  const pid = (await server.pids()).gateway;
  process.kill(pid, 'SIGSTOP'); // these wait in the queue, and are there when it is killed
  const waiting = Array.from({ length: 20 }, () => request(server.http, '/live'));
  await new Promise((r) => setImmediate(r));
  process.kill(pid, 'SIGKILL');
  for (const r of await Promise.all(waiting)) assert.equal(r.status, 200);
});

test('a file that was refused keeps nobody from coming back', async () => {
  await start();
  for (const half of [true, false]) {
    replaceFile(conf, (f) => writeFileSync(f, half ? 'gateway: {nonsense: 1}\n' : 'gateway: [\n'));
    process.kill(server.pid, 'SIGHUP');
    await awaitLog('reload refused', half ? 1 : 2);
    const n = logged('gateway is ready');
    process.kill((await server.pids()).gateway, 'SIGKILL');
    await awaitLog('gateway is ready', n + 1);
    assert.equal((await chat(server.http, server.keys.paid, { model: 'default', messages: user('a b') })).text, 'a b');
  }
});

test('a new executable that is broken is given up, the old gateway goes on', async () => {
  await start({ sets: ['engine.echo.rate=50'] });
  const pid = (await server.pids()).gateway;
  const session = connection(server.http);
  const running = stream(session, server.keys.paid, words('on', 150));
  await running.began;
  const broken = [(f) => copyFileSync('/bin/false', f), (f) => writeFileSync(f, 'no program\n'), (f) => writeFileSync(f, '')];
  for (const [i, write] of broken.entries()) {
    replaceFile(exe, (f) => { write(f); chmodSync(f, 0o755); });
    process.kill(server.pid, 'SIGUSR2');
    await awaitLog('upgrade given up', i + 1);
    assert.equal((await server.pids()).gateway, pid);
    assert.equal((await chat(server.http, server.keys.paid, { model: 'default', messages: user('a b') })).text, 'a b');
  }
  // Neither with a configuration that is wrong.
  replaceFile(exe, (f) => copyFileSync(SLUICE, f));
  writeConfig(['idle: 5m', 'idle: never']);
  process.kill(server.pid, 'SIGUSR2');
  await awaitLog('upgrade refused: ');
  assert.match(server.log(), /upgrade refused: .*sluice\.yaml:\d+:\d+: gateway\.limits\.idle/);
  // The next one works.
  writeConfig();
  await upgrade();
  assertWhole(await running.ended, words('on', 150), 'a stream through all of it');
  assert.deepEqual(session.goaways.map((g) => g.code), [0, 0]);
  session.close();
});

test('a keep-alive connection of HTTP/1.1 gets its answer from the old process, which then closes it', async () => {
  await start();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const ask = () => new Promise((done, failed) => {
    http.get(`${server.http}/live`, { agent }, (res) => {
      res.resume();
      res.on('end', () => done({ status: res.statusCode, connection: res.headers.connection }));
    }).on('error', failed);
  });
  assert.equal((await ask()).connection, undefined);
  await upgrade();
  await awaitLog('replaced: draining');
  assert.deepEqual([(await ask()), (await ask())].map((r) => [r.status, r.connection]), [[200, 'close'], [200, undefined]]);
  await awaitLog('the replaced gateway has ended');
  agent.destroy();
});

test('a unix socket stays where it is through a failed upgrade, a good one and a crash, and goes at the end', async () => {
  const path = join(dir, 'http.sock');
  await start({ changes: [['listeners: []', `listeners: [{name: local, unix: "${path}"}]`]] });
  const ask = () => new Promise((done, failed) => {
    http.get({ socketPath: path, path: '/live', agent: false }, (res) => { res.resume(); res.on('end', () => done(res.statusCode)); })
      .on('error', failed);
  });
  assert.equal(await ask(), 200);
  const { ino } = statSync(path);
  replaceFile(exe, (f) => { writeFileSync(f, ''); chmodSync(f, 0o755); });
  process.kill(server.pid, 'SIGUSR2');
  await awaitLog('upgrade given up');
  assert.equal(await ask(), 200);
  replaceFile(exe, (f) => copyFileSync(SLUICE, f));
  const now = await upgrade();
  await awaitLog('the replaced gateway has ended');
  assert.equal(await ask(), 200);
  process.kill(now, 'SIGKILL');
  assert.equal(await ask(), 200, 'it waited in the queue');
  assert.equal(statSync(path).ino, ino, 'the same socket all the time');
  assert.equal(await server.stop(), 0);
  assert.throws(() => statSync(path), { code: 'ENOENT' });
});

test('a newcomer that is ended before it has taken over leaves everything alone', async () => {
  const path = join(dir, 'http.sock');
  await start({ changes: [['listeners: []', `listeners: [{name: local, unix: "${path}"}]`]] });
  // Never ready: no engine is where it looks.
  writeConfig(['listeners: []', `listeners: [{name: local, unix: "${path}"}]`], ['engine_socket: ""', `engine_socket: ${dir}/nobody.sock`]);
  process.kill(server.pid, 'SIGUSR2');
  await awaitLog('upgrade: the new gateway is process');
  const pid = Number(/the new gateway is process (\d+)/.exec(server.log())[1]);
  assert.ok(await until(async () => (await server.pids()).gateway !== undefined && logged('gateway: ready') === 1, PATIENCE));
  // By hand and gently, so that it clears up after itself: once it can hear the signal.
  await until(() => BigInt(`0x${readFileSync(`/proc/${pid}/status`, 'utf8').match(/^SigBlk:\s+(\w+)/m)[1]}`) & (1n << 14n), PATIENCE);
  process.kill(pid, 'SIGTERM');
  await awaitLog('upgrade given up');
  assert.equal((await request(server.http, '/ready')).status, 200);
  assert.ok(statSync(path).isSocket());
});

test('a reload brings new certificates to new connections', async () => {
  await start();
  const seen = () => new Promise((done, failed) => {
    const s = tls.connect({ port: Number(new URL(server.https).port), host: '127.0.0.1', rejectUnauthorized: false }, () => {
      done(s.getPeerCertificate().fingerprint256);
      s.end();
    }).on('error', failed);
  });
  const before = await seen(), old = connection(server.https);
  await new Promise((r) => { old.once('connect', r); });
  const files = ['cert', 'key'].map((n) => join(server.state, `tls/${n}.pem`));
  writeFileSync(files[0], 'nothing');
  writeConfig(['cert: ""', `cert: ${files[0]}`], ['key: ""', `key: ${files[1]}`]);
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('gateway: reload refused, the old configuration goes on');
  assert.equal(await seen(), before);
  for (const f of files) rmSync(f);
  writeConfig();
  await reload(); // made anew
  assert.notEqual(await seen(), before);
  assertWhole(await stream(old, server.keys.paid, 'still here').ended, 'still here', 'the old connection');
  old.close();
});

test('SIGTERM: running answers finish, /live and /ready tell the truth, the drain has a deadline', async () => {
  await start({ sets: ['engine.echo.rate=20', 'gateway.drain=8s', 'supervisor.drain=15s'] });
  const session = connection(server.https), over1 = chat(server.http, server.keys.paid, { model: 'default', messages: user(words('h1', 30)) });
  const finishes = stream(session, server.keys.paid, words('short', 30));
  await finishes.began;
  process.kill(server.pid, 'SIGTERM');
  await awaitLog('gateway: draining');
  assert.equal((await request(server.http, '/live')).status, 200);
  assert.equal((await request(server.http, '/ready')).status, 503);
  assert.equal((await request(server.http, '/health')).status, 200);
  const refused = await chat(server.http, server.keys.paid, { model: 'default', messages: user('too late') });
  assert.equal(refused.status, 503);
  assert.equal(JSON.parse(refused.body).error.code, 'shutting_down');
  assert.equal(refused.headers['retry-after'], '1');
  assertWhole(await finishes.ended, words('short', 30), 'HTTP/2');
  assert.deepEqual(session.goaways.map((g) => [g.code, g.last]), [[0, 2 ** 31 - 1], [0, 1]]);
  const r = await over1;
  assert.equal(r.text, words('h1', 30));
  assert.ok(r.done);
  assert.equal(await server.stop(), 0);

  await start({ sets: ['engine.echo.rate=5', 'gateway.drain=300ms'] });
  const endless = stream(connection(server.http), server.keys.paid, words('endless', 500));
  const whole = chat(server.http, server.keys.paid, { model: 'default', messages: user(words('whole', 500)), stream: false });
  await endless.began;
  const at = Date.now();
  process.kill(server.pid, 'SIGTERM');
  assert.equal((await server.ended).code, 0);
  assert.ok(Date.now() - at < 5000, `${Date.now() - at} ms`);
  await endless.ended;
  assert.deepEqual([(await whole).status, JSON.parse((await whole).body).error.code], [503, 'shutting_down']);
  assert.equal(endless.done, 0, 'it has not come to its end');
  assert.deepEqual(endless.errors.map((e) => e.code), ['shutting_down'], 'and says so');
  assert.equal(endless.code, 0, 'with an orderly end of the stream');
});
