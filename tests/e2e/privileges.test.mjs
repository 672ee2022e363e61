// SPDX-License-Identifier: Apache-2.0
// What the processes may do: no capability, no new privileges, few system calls, few files; and that everything only root may
// open is served all the same, from the start on, after a reload and after an upgrade.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { chat, until, user } from './client.mjs';
import { freePorts, hasRedis, request, SLUICE, startServer, userOf } from './harness.mjs';

const PATIENCE = 100_000;
const STRANGER = 54321;
const asRoot = { skip: process.getuid() !== 0 && 'only root can give rights away' };
const dir = mkdtempSync(join(tmpdir(), 'sluice-priv-')); // 0700, as all of them
process.once('exit', () => rmSync(dir, { recursive: true, force: true }));

let server;
afterEach(async () => { await server?.stop(); server = null; });

const status = (pid) => Object.fromEntries(readFileSync(`/proc/${pid}/status`, 'utf8').split('\n').map((l) => l.split(/:\s*/)));
const hasSeccomp = existsSync('/proc/sys/kernel/seccomp');
const openssl = (...args) => execFileSync('openssl', args, { cwd: dir, stdio: 'pipe' });

/** A certificate and its key that only their owner may read. */
function makeCertificate(serial) {
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem',
    '-subj', '/CN=localhost', '-days', '1', '-set_serial', String(serial));
  for (const name of ['key.pem', 'cert.pem']) chmodSync(join(dir, name), 0o600);
}

const serialOf = (port) => new Promise((done, failed) => {
  const s = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
    done(parseInt(s.getPeerCertificate().serialNumber, 16));
    s.destroy();
  });
  s.once('error', failed);
});

const serve = (...args) => spawnSync(SLUICE, ['serve', '-c', 'etc/sluice.yaml', ...args, '--set', 'engine.echo.enabled=true',
  '--set', 'gateway.http=127.0.0.1:1', '--set', 'gateway.https=off'], { encoding: 'utf8', timeout: PATIENCE });

const awaitLog = async (what) => assert.ok(await until(() => server.log().includes(what), PATIENCE), `no "${what}":\n${server.log()}`);

/** A process of another user that serves a unix socket and says how many connections and bytes it got. */
/** Where another user may go: the folder for temporary files may be this user's alone. */
const openFolder = () => mkdtempSync('/tmp/sluice-stranger-');

async function startStranger(socket) {
  const text = `const net = require('node:net'); let n = 0, bytes = 0;
    net.createServer((s) => { n++; s.on('data', (d) => { bytes += d.length; }); s.on('error', () => {}); })
      .listen(${JSON.stringify(socket)}, () => { require('node:fs').chmodSync(${JSON.stringify(socket)}, 0o777); console.log('up'); });
    process.stdin.on('data', () => console.log(JSON.stringify({ n, bytes }))); process.stdin.on('end', () => process.exit());`;
  const child = spawn(process.execPath, ['-e', text], { cwd: '/', uid: STRANGER, gid: STRANGER, stdio: ['pipe', 'pipe', 'inherit'] });
  const line = () => new Promise((done, failed) => {
    child.stdout.once('data', (d) => done(String(d).trim()));
    child.once('close', (code) => failed(new Error(`the stranger ended with ${code}`)));
  });
  assert.equal(await line(), 'up');
  return { pid: child.pid, got: async () => { const l = line(); child.stdin.write('?'); return JSON.parse(await l); },
    stop: () => new Promise((done) => { child.once('close', done); child.stdin.end(); }) };
}

describe('what each process has', () => {
  const look = async (sets, filters) => {
    server = await startServer({ echo: true, sets });
    const pids = await server.pids();
    assert.equal(pids.redis !== undefined, hasRedis());
    for (const [name, pid] of Object.entries(pids)) {
      const s = status(pid), told = `${name}: ${JSON.stringify(s)}`;
      assert.equal(s.NoNewPrivs, '1', told);
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) assert.match(s[set], /^0+$/, `${set} of ${told}`);
      if (name !== 'redis' && hasSeccomp) assert.equal(s.Seccomp, filters, told);
      if (process.getuid() === 0) assert.match(s.CapBnd, /^0+$/, told);
    }
    return Object.values(pids);
  };

  test('no capability, no new privileges, a filter for system calls', async () => {
    const pids = await look([], '2');
    if (process.getuid() === 0) {
      const users = pids.map((pid) => userOf(pid));
      for (const u of users) assert.deepEqual(u, users[0]);
      assert.ok(users[0].uid !== 0 && users[0].gid !== 0, JSON.stringify(users[0]));
      for (const pid of pids) assert.equal(status(pid).Groups.trim(), '');
      assert.equal(statSync(server.state).uid, users[0].uid);
      /* The supervisor has what it uses, and no more. */
      const eff = BigInt(`0x${status(server.pid).CapEff}`);
      assert.equal(eff & ~0x5efn, 0n, eff.toString(16));
    }
    assert.match(server.log(), /sluice: confined: uid \d+.*, no new privileges, (seccomp|no seccomp)/);
  });

  test('supervisor.sandbox: off', async () => {
    await look(['supervisor.sandbox=false'], '0');
    assert.match(server.log(), /supervisor\.sandbox is off/);
  });

  test('supervisor.user: a number, root, nobody at all', asRoot, async () => {
    for (const pid of await look(['supervisor.user=54399:54398'], '2')) assert.deepEqual(userOf(pid), { uid: 54399, gid: 54398 });
    await server.stop();
    for (const pid of await look(['supervisor.user=root'], '2')) assert.equal(userOf(pid).uid, 0);
    assert.match(server.log(), /supervisor\.user is root/);
    const r = serve('--state', join(dir, 'none'), '--set', 'supervisor.user=no-such-user');
    assert.equal(r.status, 78, r.stderr);
    assert.match(r.stderr, /supervisor\.user: there is no user 'no-such-user'/);
  });

  const alone = spawnSync('unshare', ['-Ur', 'true']).status === 0;
  test('where there is no other user, one line says so and it serves', { skip: !alone && 'no user namespace can be made' }, async () => {
    const [port] = await freePorts(1);
    const child = spawn('unshare', ['-Ur', SLUICE, 'serve', '-c', 'etc/sluice.yaml', '--state', join(dir, 'alone'), '--set', 'engine.echo.enabled=true',
      '--set', `gateway.http=127.0.0.1:${port}`, '--set', 'gateway.https=off'], { stdio: ['ignore', 'ignore', 'pipe'] });
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
    const ended = new Promise((done) => child.once('close', done));
    try {
      assert.ok(await until(async () => (await request(`http://127.0.0.1:${port}`, '/ready').catch(() => ({}))).status === 200, PATIENCE), log);
      assert.equal(log.split('this process may not become uid').length, 2, log);
      const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ');
      assert.ok(children.length >= 2, log);
      for (const pid of children) assert.match(status(pid).CapEff, /^0+$/);
    } finally {
      child.kill('SIGTERM');
      assert.equal(await ended, 0, log);
    }
  });

  test('a gateway and an engine started by hand', async () => {
    const state = join(dir, 'by-hand');
    const [port] = await freePorts(1);
    const common = ['-c', 'etc/sluice.yaml', '--state', state, '--set', `gateway.http=127.0.0.1:${port}`, '--set', 'gateway.https=off',
      '--set', 'cache.store=memory'];
    const all = [spawn(SLUICE, ['engine', '--echo', ...common], { stdio: 'ignore' }), spawn(SLUICE, ['gateway', ...common], { stdio: 'ignore' })];
    const ended = all.map((child) => new Promise((done) => child.once('close', done)));
    try {
      assert.ok(await until(async () => (await request(`http://127.0.0.1:${port}`, '/ready').catch(() => ({}))).status === 200, PATIENCE));
      for (const { pid } of all) {
        const s = status(pid);
        assert.equal(s.NoNewPrivs, '1');
        if (hasSeccomp) assert.equal(s.Seccomp, '2');
      }
    } finally {
      for (const child of all) child.kill('SIGKILL');
      await Promise.all(ended);
    }
  });
});

describe('what only root may open', asRoot, () => {
  const files = { exe: join(dir, 'sluice'), model: join(dir, 'model.gguf'), sock: join(dir, 'local.sock'), log: join(dir, 'out.jsonl') };
  const at = (name) => join(dir, name);
  let low;

  before(async () => {
    copyFileSync(SLUICE, files.exe);
    chmodSync(files.exe, 0o700);
    copyFileSync('etc/models/demo-small.gguf', files.model);
    chmodSync(files.model, 0o600);
    mkdirSync(at('state'), { mode: 0o700 });
    for (low = 600; low < 1024; low++) {
      const s = net.createServer();
      const free = await new Promise((done) => { s.once('error', () => done(false)); s.listen(low, '127.0.0.1', () => done(true)); });
      if (free) { await new Promise((done) => s.close(done)); break; }
    }
  });

  const overSocket = (path) => new Promise((done, failed) => {
    http.get({ socketPath: files.sock, path, agent: false }, (res) => { res.resume(); res.on('end', () => done(res.statusCode)); }).once('error', failed);
  });

  test('an executable, models, certificates, a state folder, ports and sockets, through a reload, an upgrade and a crash', async () => {
    makeCertificate(101);
    server = await startServer({ exe: files.exe, state: at('state'), sets: ['engine.models=', `engine.models.demo-small.path=${files.model}`,
      'gateway.default_model=demo-small', `gateway.cert=${at('cert.pem')}`, `gateway.key=${at('key.pem')}`, `gateway.client_ca=${at('cert.pem')}`,
      `gateway.listeners.low.address=127.0.0.1:${low}`, `gateway.listeners.local.unix=${files.sock}`, 'gateway.listeners.local.mode=0600',
      `cascade.log=${files.log}`, 'gateway.threads=2'] });
    const port = Number(new URL(server.https).port);
    const works = async (serial) => {
      assert.equal(await serialOf(port), serial);
      assert.equal((await request(`http://127.0.0.1:${low}`, '/ready')).status, 200);
      assert.equal(await overSocket('/ready'), 200);
      const r = await chat(server.http, server.keys.paid, { model: 'demo-small', max_tokens: 4, messages: user('hello') });
      assert.equal(r.status, 200, r.body);
      for (const pid of Object.values(await server.pids())) assert.notEqual(userOf(pid).uid, 0);
    };
    await works(101);
    assert.equal(statSync(files.sock).mode & 0o777, 0o600);

    makeCertificate(102);
    process.kill(server.pid, 'SIGHUP');
    await awaitLog('gateway: reloaded');
    await works(102);

    makeCertificate(103);
    copyFileSync(SLUICE, `${files.exe}.new`);
    chmodSync(`${files.exe}.new`, 0o700);
    execFileSync('mv', [`${files.exe}.new`, files.exe]);
    const old = (await server.pids()).gateway;
    process.kill(server.pid, 'SIGUSR2');
    await awaitLog('upgrade: gateway is process');
    await awaitLog('the replaced gateway has ended');
    assert.notEqual((await server.pids()).gateway, old);
    await works(103);

    const { gateway, engine } = await server.pids();
    process.kill(gateway, 'SIGKILL');
    process.kill(engine, 'SIGKILL');
    assert.ok(await until(async () => {
      const now = await server.pids();
      return now.gateway && now.engine && now.gateway !== gateway && now.engine !== engine &&
        (await request(server.http, '/ready').catch(() => ({}))).status === 200;
    }, PATIENCE), server.log());
    await works(103);
    assert.equal(await server.stop(), 0, server.log());
    assert.ok(!existsSync(files.sock), 'the unix socket is removed');
    assert.deepEqual(server.left(), ['lock']);
  });

  const emulated = join(dirname(SLUICE), 'libsluice-cuda-emulated.so');
  test('a backend that is a shared object', { skip: !existsSync(emulated) && 'libsluice-cuda-emulated.so was not built' }, async () => {
    copyFileSync(emulated, at('libsluice-cuda-emulated.so'));
    chmodSync(at('libsluice-cuda-emulated.so'), 0o700);
    server = await startServer({ exe: files.exe, state: at('state'), sets: ['engine.backend=cuda-emulated', 'engine.models=',
      'engine.step_tokens=8', 'engine.max_sequences=2', // before it serves, it runs a step of the most rows
      `engine.models.demo-small.path=${files.model}`, 'gateway.default_model=demo-small'] });
    const r = await chat(server.http, server.keys.paid, { model: 'demo-small', max_tokens: 2, messages: user('hello') });
    assert.equal(r.status, 200, r.body);
    assert.match(server.log(), /kernels: cuda-emulated/);
  });

  test('a certificate that can\'t be had is refused by name, and the old one stays', async () => {
    makeCertificate(111);
    server = await startServer({ echo: true, state: at('state'), sets: [`gateway.cert=${at('cert.pem')}`, `gateway.key=${at('key.pem')}`] });
    rmSync(at('key.pem'));
    execFileSync('mkfifo', [at('key.pem')]);
    process.kill(server.pid, 'SIGHUP');
    assert.ok(await until(() => /key\.pem: no usable private key: it is a FIFO/.test(server.log()), PATIENCE), server.log());
    rmSync(at('key.pem'));
    assert.equal(await serialOf(Number(new URL(server.https).port)), 111);
  });
});

describe('the state folder', () => {
  const refused = (state, why) => {
    const r = serve('--state', state);
    assert.equal(r.status, 78, r.stderr);
    assert.match(r.stderr, why);
    assert.equal(r.stderr.trim().split('\n').filter((l) => !/ (info|warn) /.test(l)).length, 1, r.stderr);
    assert.equal(r.stdout, '');
  };

  test('one that others may write to, or replace, is refused', () => {
    const state = join(dir, 'open'), run = join(state, 'run');
    mkdirSync(run, { recursive: true });
    chmodSync(run, 0o700);
    for (const mode of [0o777, 0o770, 0o1777]) {
      chmodSync(state, mode);
      refused(state, /open: other users may write to it/);
    }
    chmodSync(state, 0o700);
    chmodSync(run, 0o720);
    refused(state, /open\/run: other users may write to it/);
    rmSync(run, { recursive: true });
    symlinkSync(dir, run);
    refused(state, /open\/run: exists and is not a folder/);
    rmSync(run);
    const above = join(dir, 'above');
    mkdirSync(above);
    chmodSync(above, 0o777);
    refused(join(above, 'state'), /above: any user may write to this folder/);
  });

  test('one of another user is refused', asRoot, () => {
    const state = join(dir, 'foreign');
    mkdirSync(state, { mode: 0o700 });
    chownSync(state, STRANGER, STRANGER);
    refused(state, /belongs to another user \(uid 54321\)/);
  });
});

describe('who is at the other end', asRoot, () => {
  test('a gateway does not talk to a stranger who serves the engine\'s socket', async () => {
    const state = join(dir, 'peers'), place = openFolder(), [port] = await freePorts(1);
    chownSync(place, STRANGER, STRANGER);
    chmodSync(place, 0o755);
    const stranger = await startStranger(join(place, 'engine.sock'));
    const gateway = spawn(SLUICE, ['gateway', '-c', 'etc/sluice.yaml', '--state', state, '--set', `gateway.http=127.0.0.1:${port}`,
      '--set', 'gateway.https=off', '--set', 'cache.store=memory', '--set', `gateway.engine_socket=${join(place, 'engine.sock')}`],
    { stdio: ['ignore', 'ignore', 'pipe'] });
    let log = '';
    gateway.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
    try {
      assert.ok(await until(() => log.includes('a process of another user serves its socket'), PATIENCE), log);
      assert.ok(await until(async () => (await stranger.got()).n > 1, PATIENCE)); // it tries again, and looks again
      assert.equal((await request(`http://127.0.0.1:${port}`, '/ready')).status, 503);
      assert.equal((await stranger.got()).bytes, 0);
    } finally {
      gateway.kill('SIGKILL');
      await new Promise((done) => gateway.once('close', done));
      await stranger.stop();
      rmSync(place, { recursive: true });
    }
  });

  test('keys are not shown to a stranger who serves the store\'s socket', { skip: !hasRedis() && 'no redis-server' }, async () => {
    const state = openFolder();
    mkdirSync(join(state, 'run'));
    chmodSync(state, 0o755);
    chownSync(join(state, 'run'), STRANGER, STRANGER);
    const stranger = await startStranger(join(state, 'run/redis.sock'));
    try {
      const r = await new Promise((done) => {
        const child = spawn(SLUICE, ['keys', 'list', '-c', 'etc/sluice.yaml', '--state', state], { stdio: ['ignore', 'ignore', 'pipe'] });
        let err = '';
        child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
        child.once('close', (code) => done({ code, err }));
      });
      assert.notEqual(r.code, 0);
      assert.match(r.err, /another user \(uid 54321\)/);
      const { n, bytes } = await stranger.got();
      assert.ok(n > 0);
      assert.equal(bytes, 0);
    } finally {
      await stranger.stop();
      rmSync(state, { recursive: true });
    }
  });

  test('the engine does not talk to a stranger', async () => {
    const state = openFolder();
    server = await startServer({ echo: true, state });
    const sock = join(server.state, 'run/engine.sock');
    chmodSync(server.state, 0o711);
    chmodSync(join(server.state, 'run'), 0o711);
    chmodSync(sock, 0o666); // what should never be
    const r = spawnSync(process.execPath, ['-e', `require('node:net').connect(${JSON.stringify(sock)}).on('close', () => process.exit(7)).on('error', () => {}).resume()`],
      { cwd: '/', uid: STRANGER, gid: STRANGER, timeout: PATIENCE });
    assert.equal(r.status, 7);
    await awaitLog('connection by uid 54321 refused');
    assert.equal((await request(server.http, '/ready')).status, 200);
    await server.stop();
    server = undefined;
    rmSync(state, { recursive: true, force: true });
  });
});

after(() => rmSync(dir, { recursive: true, force: true }));
