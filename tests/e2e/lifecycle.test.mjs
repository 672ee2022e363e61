// SPDX-License-Identifier: Apache-2.0
// The life of a service: reloads, upgrades of the executable, ends. What runs goes on, word for word; what comes meanwhile
// is served. (With many streams: lifecycle_load.test.mjs.)
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import tls from 'node:tls';
import { test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { SLUICE, request } from './harness.mjs';
import { PATIENCE, assertWhole, awaitLog, conf, connection, dir, endKnocking, exe, knock, logged, reload, replaceFile, server, start, stream, upgrade, words, writeConfig } from './lifecycle.mjs';

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
  await awaitLog('reload refused, the old configuration stays');
  assert.match(server.log(), /reload refused.*sluice\.yaml:\d+:\d+: gateway\.limits\.idle/);
  assert.deepEqual(await four(), [200, 200, 200, 200], 'nothing of a wrong file counts');

  // A stream that runs keeps what it began with, and counts for what comes.
  const session = connection(server.http);
  const running = stream(session, server.keys.free, words('long', 60));
  await running.began;
  writeConfig(['concurrency: 4', 'concurrency: 2'], ['cors_origins: ["http://localhost:*"]', 'cors_origins: ["https://chat.example"]'],
    ['\n  threads: 1\n', '\n  threads: 3\n'], ['server_memory: 256MiB', 'server_memory: 77MiB']);
  await reload();
  assert.match(server.log(), /gateway\.threads has changed: that needs an upgrade \(SIGUSR2\) or a restart, the old value stays/);
  assert.match(server.log(), /cache\.server_memory has changed: that needs a restart, the old value stays/);
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
  process.kill(pid, 'SIGSTOP');
  const threads = () => readdirSync(`/proc/${pid}/task`).map((t) => readFileSync(`/proc/${pid}/task/${t}/stat`, 'utf8'));
  assert.ok(await until(() => threads().every((s) => /^\d+ \(.*\) T /.test(s)), PATIENCE), 'stopped');
  // These wait in the queue, and are there when it is killed.
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

/** A folder with little room, for the test's time; null: the user may not mount. */
function smallDisk(t) {
  const folder = mkdtempSync(join(dir, 'small-'));
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=16m,mode=700', 'tmpfs', folder]).status !== 0) {
    t.skip('only root may mount a small disk');
    return null;
  }
  t.after(async () => { await server?.stop(); assert.equal(spawnSync('umount', [folder]).status, 0); });
  return folder;
}

test('a full disk: reloads and upgrades change nothing or are done whole, who is killed comes back, and room is noticed at once', async (t) => {
  const disk = smallDisk(t);
  if (!disk) return;
  await start({ state: disk, sets: ['supervisor.backoff_max=1h'] });
  const text = readFileSync(conf, 'utf8'), filler = join(disk, 'filler');
  const answers = async () => (await chat(server.http, server.keys.paid, { model: 'default', messages: user('a b') })).text;
  const pid = (await server.pids()).gateway;
  assert.notEqual(spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4096']).status, 0, 'it is full');
  // What is new has no place: refused whole.
  replaceFile(conf, (f) => writeFileSync(f, `${text}\n# another one\n`));
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('sluice-0.yaml: No space left on device');
  assert.equal(await answers(), 'a b');
  process.kill(server.pid, 'SIGUSR2');
  await awaitLog('upgrade refused');
  assert.equal((await server.pids()).gateway, pid);
  assert.deepEqual(readdirSync(join(disk, 'run')).filter((f) => f.endsWith('.new')), [], 'nothing half is left');
  // A file that an editor could only empty is no configuration of defaults.
  replaceFile(conf, (f) => writeFileSync(f, ''));
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('the file is empty');
  assert.equal(await answers(), 'a b');
  // What is as it was needs no place.
  replaceFile(conf, (f) => writeFileSync(f, text));
  await reload();
  await upgrade();
  await reload();
  assert.equal(await answers(), 'a b');
  // Who is killed comes back, however often.
  for (const name of ['gateway', 'gateway', 'engine', 'engine']) {
    const n = logged(`${name} is ready`);
    process.kill((await server.pids())[name], 'SIGKILL');
    await awaitLog(`${name} is ready`, n + 1);
  }
  assert.ok(await until(async () => await answers() === 'a b', PATIENCE));
  rmSync(filler);
  replaceFile(conf, (f) => writeFileSync(f, `${text}\n# another one\n`));
  await reload();
  await upgrade();
  assert.equal(await answers(), 'a b');
});

test('a new executable that is broken fails, the old gateway continues', async () => {
  await start({ sets: ['engine.echo.rate=50'] });
  const pid = (await server.pids()).gateway;
  const session = connection(server.http);
  const running = stream(session, server.keys.paid, words('on', 150));
  await running.began;
  const broken = [(f) => copyFileSync('/bin/false', f), (f) => writeFileSync(f, 'no program\n'), (f) => writeFileSync(f, '')];
  for (const [i, write] of broken.entries()) {
    replaceFile(exe, (f) => { write(f); chmodSync(f, 0o755); });
    process.kill(server.pid, 'SIGUSR2');
    await awaitLog('upgrade failed', i + 1);
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

test('an upgrade in which somebody is killed: the new process, the old one; a reload meanwhile is not lost', async () => {
  await start({ sets: ['engine.echo.rate=50'] });
  const old = (await server.pids()).gateway;
  const session = connection(server.http);
  const running = stream(session, server.keys.paid, words('on', 100));
  await running.began;
  knock();
  const newcomer = async (n) => {
    process.kill(server.pid, 'SIGUSR2');
    await awaitLog('the new gateway is process', n);
    return Number([...server.log().matchAll(/the new gateway is process (\d+)/g)].at(-1)[1]);
  };
  const first = await newcomer(1);
  process.kill(first, 'SIGKILL');
  await awaitLog('upgrade failed');
  assert.ok(server.log().includes(`the new gateway (process ${first}) was ended by signal 9`), server.log());
  assertWhole(await running.ended, words('on', 100), 'a stream of the old process');
  session.close();
  assert.deepEqual((await endKnocking()).failed, []);

  const second = await newcomer(2);
  process.kill(old, 'SIGKILL');
  process.kill(server.pid, 'SIGHUP');
  await awaitLog(`upgrade: gateway is process ${second}`);
  assert.ok(server.log().includes(`gateway (process ${old}) was ended by signal 9`), server.log());
  await awaitLog('gateway: reloaded');
  assert.ok(await until(async () => (await server.pids()).gateway === second, PATIENCE));
  assert.equal((await chat(server.http, server.keys.paid, { model: 'default', messages: user('a b') })).text, 'a b');
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
  await awaitLog('upgrade failed');
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
  await awaitLog('upgrade failed');
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
  await awaitLog('gateway: reload refused, the old configuration stays');
  assert.equal(await seen(), before);
  rmSync(files[0]);
  assert.equal(spawnSync('mkfifo', [files[0]]).status, 0);
  process.kill(server.pid, 'SIGHUP');
  await awaitLog(`gateway.cert: ${files[0]}: no usable certificate: it is a FIFO`);
  assert.equal(await seen(), before);
  for (const f of files) rmSync(f);
  writeConfig();
  await reload(); // made anew
  assert.notEqual(await seen(), before);
  assertWhole(await stream(old, server.keys.paid, 'still here').ended, 'still here', 'the old connection');
  old.close();
});

test('SIGTERM: running answers finish, /live and /ready tell the truth, the drain has a deadline', async () => {
  await start({ sets: ['engine.echo.rate=20', 'gateway.drain=60s', 'supervisor.drain=90s'] });
  // Two answers that come to their end, and one that holds the drain while its state is asked for.
  const session = connection(server.https), holder = connection(server.https);
  let over1;
  const over1Began = new Promise((began) => {
    over1 = chat(server.http, server.keys.paid, { model: 'default', messages: user(words('h1', 30)) }, { onEvent: () => began() });
  });
  const finishes = stream(session, server.keys.paid, words('short', 30)), holds = stream(holder, server.keys.paid, words('holds', 1500));
  await Promise.all([over1Began, finishes.began, holds.began]);
  process.kill(server.pid, 'SIGTERM');
  await awaitLog('gateway: draining');
  assert.equal((await request(server.http, '/live')).status, 200);
  assert.equal((await request(server.http, '/ready')).status, 503);
  assert.equal((await request(server.http, '/health')).status, 200);
  const refused = await chat(server.http, server.keys.paid, { model: 'default', messages: user('too late') });
  assert.equal(refused.status, 503);
  assert.equal(JSON.parse(refused.body).error.code, 'shutting_down');
  assert.equal(refused.headers['retry-after'], '1');
  assert.equal(holds.code, null, 'it holds the drain');
  holder.destroy();
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
  process.kill(server.pid, 'SIGTERM');
  assert.equal((await server.ended).code, 0);
  await endless.ended;
  assert.deepEqual([(await whole).status, JSON.parse((await whole).body).error.code], [503, 'shutting_down']);
  assert.equal(endless.done, 0, 'it has not come to its end');
  assert.deepEqual(endless.errors.map((e) => e.code), ['shutting_down'], 'and says so');
  assert.equal(endless.code, 0, 'with an orderly end of the stream');
});
