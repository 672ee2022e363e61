// SPDX-License-Identifier: Apache-2.0
// What a user sees when a process dies or hangs, and how soon service is back by itself.
// Perf: how soon.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { hasRedis, localOnly, SLUICE, request, startServer } from './harness.mjs';
import { figure } from './perf.mjs';

let server;
afterEach(async () => { await server?.stop(); server = null; });

const EMULATED = join(dirname(SLUICE), 'libsluice-cuda-emulated.so');

const longStory = { model: 'demo-small', messages: user('Tell me a long story about a river.'), max_tokens: 400, min_tokens: 390 };
const shortAsk = { model: 'demo-small', messages: user('What is the capital of France?'), max_tokens: 16 };

const WAIT_MS = 100_000; // for what takes a second

/** Asks again and again until a whole answer came; returns the milliseconds since `since` and the refusals on the way. */
async function serviceBack(since) {
  const refused = [];
  const answer = await until(async () => {
    const r = await chat(server.http, server.keys.paid, shortAsk);
    if (r.status === 200 && r.done && !r.errors.length) return r;
    refused.push(r);
    return null;
  }, WAIT_MS);
  assert.ok(answer, server.log());
  return { took: Date.now() - since, refused };
}

/** Starts n slow streams (the free tier is paced) and calls `act` once every one shows text. */
async function whileStreaming(n, act) {
  let showing = 0, done;
  const acted = new Promise((r) => { done = r; });
  const key = server.keys.free;
  const streams = Array.from({ length: n }, () => {
    let seen = false;
    return chat(server.http, key, longStory, { onEvent: (e, r) => {
      if (!seen && r.text.length > 0) { seen = true; if (++showing === n) done(Date.now()); }
    } });
  });
  // One that ends before it shows text would be waited for in vain.
  const ended = Promise.race(streams).then((r) => assert.fail(`a stream ended first: ${r.status} ${r.error ?? ''} ${r.body.slice(-400)}\n${server.log()}`));
  ended.catch(() => {}); // once all show, they may
  const at = await Promise.race([acted, ended]);
  await act(at);
  return { killedAt: Date.now(), streams: Promise.all(streams) };
}

for (const threads of [1, 4]) {
  test(`kill -9 of the engine, ${threads} gateway thread(s)`, async () => {
    server = await startServer({ sets: [`gateway.threads=${threads}`] });
    const pid = (await server.pids()).engine;
    let killedAt;
    const { streams } = await whileStreaming(3, () => { killedAt = Date.now(); process.kill(pid, 'SIGKILL'); });
    const { took, refused } = await serviceBack(killedAt);
    for (const r of await streams) {
      assert.equal(r.errors.length, 1, `exactly one error event: ${r.body.slice(-400)}`);
      assert.equal(r.finish, null, 'no made-up finish_reason');
      assert.ok(!r.done, 'no [DONE] after an error');
      assert.equal(r.error, null, 'the response itself ends cleanly');
      figure(r.ended - killedAt < 1000, `engine killed: a stream ended after ${r.ended - killedAt} ms`);
    }
    for (const r of refused) {
      assert.equal(r.status, 503, r.body);
      assert.ok(Number(r.headers['retry-after']) >= 1, 'Retry-After');
      assert.ok(JSON.parse(r.body).error.message);
    }
    figure(took < 3000, `engine killed: back after ${took} ms`);
    assert.notEqual((await server.pids()).engine, pid);
  });
}

// Each connection may land on another thread, and each thread has a link to the engine of its own.
test('/ready speaks for all threads', async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=4', 'supervisor.backoff_min=3s', 'supervisor.backoff_max=3s'] });
  const ask = { model: 'default', messages: user('a'), max_tokens: 1 };
  for (let round = 0; round < 4; round++) {
    const { engine } = await server.pids();
    process.kill(engine, 'SIGKILL');
    if (round === 0) { // the first restart comes at once: nobody may see that there was none
      assert.ok(await until(async () => ![undefined, engine].includes((await server.pids()).engine), WAIT_MS));
    }
    let down = round === 0;
    assert.ok(await until(async () => {
      const { status } = await request(server.http, '/ready');
      down ||= status === 503;
      return down && status === 200;
    }, WAIT_MS, 0), `round ${round}: ${down ? 'not ready again' : 'never seen down'}`);
    const all = await Promise.all(Array.from({ length: 16 }, () => chat(server.http, server.keys.paid, ask)));
    assert.deepEqual(all.map((r) => r.status), Array(16).fill(200), all.find((r) => r.status !== 200)?.body);
  }
});

/** The engine on the CUDA kernels in their emulation, whose device breaks when the test makes a file. */
test('a fault of the device', { skip: !existsSync(EMULATED) && `no ${EMULATED}`, ...localOnly('its device') }, async () => {
  const state = mkdtempSync(join(tmpdir(), 'sluice-e2e-')), breaks = join(state, 'break'); // where the engine may remove it
  process.env.SLUICE_EMULATION_FAIL_FILE = breaks;
  try {
    server = await startServer({ state, sets: ['engine.backend=cuda-emulated', 'engine.speculation.mode=off', 'engine.step_tokens=8', 'engine.max_sequences=4', 'gateway.limits.first_token=10m', 'engine.models=', 'engine.models.demo-small.path=etc/models/demo-small.gguf'] });
  } finally {
    delete process.env.SLUICE_EMULATION_FAIL_FILE;
  }
  const pid = (await server.pids()).engine;
  const { streams, killedAt } = await whileStreaming(3, () => writeFileSync(breaks, ''));
  for (const r of await streams) {
    assert.equal(r.errors.length, 1, `exactly one error event: ${r.body.slice(-400)}`);
    assert.equal(r.finish, null, 'no made-up finish_reason');
    assert.ok(!r.done, 'no [DONE] after an error');
    assert.equal(r.error, null, 'the response itself ends cleanly');
  }
  assert.ok(!existsSync(breaks), 'the device broke');
  const { took } = await serviceBack(killedAt);
  figure(took < 12000, `a device failed: back after ${took} ms`);
  assert.notEqual((await server.pids()).engine, pid, 'by another process');
  assert.match(server.log(), /a device failed: the engine exits/);
  assert.doesNotMatch(server.log(), /BUG|AddressSanitizer/, 'every page and sequence was back when it ended');
  // Nothing is left of them: no stream, no page but those of prefixes.
  const idle = await until(async () => {
    const m = await server.metrics();
    return /^sluice_engine_running(\{[^}]*\})? 0$/m.test(m) ? m : null;
  }, WAIT_MS);
  assert.ok(idle, 'nothing runs any more');
});

test('kill -9 of the gateway', async () => {
  server = await startServer({});
  const pid = (await server.pids()).gateway;
  process.kill(pid, 'SIGKILL');
  const { took } = await serviceBack(Date.now());
  figure(took < 1000, `gateway killed: back after ${took} ms`);
  assert.notEqual((await server.pids()).gateway, pid);
});

// Clients wait in the queues of sockets that nobody closed, until every thread of the next gateway could serve them.
test('nobody is refused while a gateway comes back', async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=4', 'supervisor.backoff_min=10ms', 'supervisor.backoff_max=20ms'] });
  const gone = (pid) => until(() => { try { process.kill(pid, 0); return false; } catch { return true; } }, WAIT_MS, 1);
  for (let round = 0; round < 5; round++) {
    const before = (await server.pids()).gateway;
    process.kill(before, 'SIGKILL');
    assert.ok(await gone(before));
    const answers = await Promise.all(Array.from({ length: 12 }, () => chat(server.http, server.keys.paid, { model: 'default', messages: user('hello') })));
    assert.deepEqual(answers.map((r) => r.status), answers.map(() => 200), server.log());
    assert.notEqual((await server.pids()).gateway, before);
  }
});

test('a gateway comes back while the engine does not answer', async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=2', 'supervisor.hang=10m', 'supervisor.backoff_min=10ms', 'supervisor.backoff_max=20ms'] });
  const { engine, gateway } = await server.pids();
  process.kill(engine, 'SIGSTOP');
  process.kill(gateway, 'SIGKILL');
  try {
    // It waits for the engine, but not for ever: then it tells what is the matter.
    const live = await until(async () => (await request(server.http, '/live').catch(() => ({}))).status === 200, WAIT_MS);
    assert.ok(live, server.log());
    assert.equal((await request(server.http, '/ready')).status, 503);
    const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user('hello') });
    assert.equal(r.status, 503, r.body);
    assert.ok(Number(r.headers['retry-after']) >= 1, JSON.stringify(r.headers));
  } finally { process.kill(engine, 'SIGCONT'); }
  const back = await until(async () => (await chat(server.http, server.keys.paid, { model: 'default', messages: user('hello') })).status === 200, WAIT_MS);
  assert.ok(back, server.log());
});

test('a hung engine is killed and replaced', async () => {
  server = await startServer({ sets: ['supervisor.hang=1s', 'supervisor.backoff_min=3s', 'supervisor.backoff_max=3s'] });
  // The first restart comes at once and the second after three seconds, in which nobody can miss that there is no engine.
  const first = (await server.pids()).engine;
  process.kill(first, 'SIGKILL');
  await serviceBack(Date.now());
  const pid = (await server.pids()).engine;
  assert.notEqual(pid, first);
  // /live and /ready, again and again from the hang until service is back: [milliseconds, status].
  const seen = { '/live': [], '/ready': [] };
  let watching = true;
  const since = Date.now();
  const watch = Promise.all(Object.keys(seen).map(async (path) => {
    while (watching) {
      const { status } = await request(server.http, path);
      seen[path].push([Date.now() - since, status]);
      await new Promise((done) => { setTimeout(done, 50); });
    }
  }));
  process.kill(pid, 'SIGSTOP');
  const replaced = await until(async () => {
    const now = (await server.pids()).engine;
    return now && now !== pid;
  }, WAIT_MS);
  assert.ok(replaced, 'the engine was not replaced');
  const { took } = await serviceBack(Date.now());
  figure(took < 3000, `engine hung: back after ${took} ms`);
  assert.ok(await until(() => seen['/ready'].at(-1)?.[1] === 200, WAIT_MS), '/ready does not come back');
  watching = false;
  await watch;
  assert.ok(seen['/live'].every(([, status]) => status === 200), JSON.stringify(seen['/live']));
  const late = seen['/ready'].filter(([, status]) => status === 503);
  assert.ok(late.length > 0 && late.length + seen['/ready'].filter(([, status]) => status === 200).length === seen['/ready'].length,
    JSON.stringify(seen['/ready']));
});

test('stopping ends every process and leaves no socket', async () => {
  server = await startServer({});
  const pids = Object.values(await server.pids());
  assert.equal(pids.length, hasRedis() ? 3 : 2);
  const stopping = server;
  server = null;
  assert.equal(await stopping.stop(), 0);
  for (const pid of pids) assert.throws(() => process.kill(pid, 0), `process ${pid} is still there`);
  assert.deepEqual(stopping.left().filter((f) => f.endsWith('.sock')), []);
});

test('a certificate or key that can not be used is one clear line that names the file, before anything is started', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-tls-'));
  const at = (name) => join(dir, name);
  const openssl = (...args) => assert.equal(spawnSync('openssl', args, { encoding: 'utf8' }).status, 0, args.join(' '));
  try {
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', at('key'), '-out', at('cert'), '-subj', '/CN=localhost');
    openssl('ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', at('other'));
    openssl('ec', '-in', at('key'), '-aes128', '-passout', 'pass:secret', '-out', at('locked'));
    writeFileSync(at('empty'), '');
    writeFileSync(at('junk'), 'junk\n');
    mkdirSync(at('folder'));
    assert.equal(spawnSync('mkfifo', [at('fifo')]).status, 0);
    for (const [cert, key, named, says] of [
      ['absent', 'key', 'absent', 'no usable certificate: No such file or directory'], ['cert', 'absent', 'absent', 'no usable private key: No such file or directory'],
      ['folder', 'key', 'folder', 'no usable certificate: it is a folder'], ['cert', 'folder', 'folder', 'no usable private key: it is a folder'],
      ['empty', 'key', 'empty', 'no usable certificate: the file is empty'], ['cert', 'empty', 'empty', 'no usable private key: the file is empty'],
      ['junk', 'key', 'junk', 'no usable certificate: the file has none in PEM format'], ['cert', 'junk', 'junk', 'no usable private key: the file has none in PEM format'],
      ['fifo', 'key', 'fifo', 'no usable certificate: it is a FIFO'], ['cert', 'fifo', 'fifo', 'no usable private key: it is a FIFO'],
      ['cert', 'cert', 'cert', 'no usable private key: the file has none in PEM format'],
      ['cert', 'locked', 'locked', 'no usable private key: it is encrypted, and a passphrase is not supported'],
      ['cert', 'other', 'other', `the key does not match ${at('cert')}`]]) {
      const out = spawnSync(SLUICE, ['serve', '-c', 'etc/sluice.yaml', '--state', at('state'), '--set', 'gateway.http=off', '--set', 'gateway.https=127.0.0.1:0',
        '--set', 'engine.echo.enabled=true', '--set', `gateway.cert=${at(cert)}`, '--set', `gateway.key=${at(key)}`], { timeout: 100000, encoding: 'utf8' });
      const name = says.includes('key') ? 'gateway.key' : 'gateway.cert';
      assert.deepEqual([out.status, out.stderr], [78, `sluice: ${name}: ${at(named)}: ${says}\n`], `${cert}, ${key}`);
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test('a FIFO or a device in place of any file of the configuration holds no start', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-fifo-'));
  const fifo = join(dir, 'fifo');
  try {
    assert.equal(spawnSync('mkfifo', [fifo]).status, 0);
    for (const [path, kind] of [[fifo, 'it is a FIFO'], ['/dev/zero', 'it is a device']]) {
      for (const [key, config, says] of [['gateway.client_ca', null, `no usable certificates: ${kind}`],
        ['cache.password_file', null, kind], ['cascade.weights', null, kind], ['cascade.log', null, 'not a regular file'],
        [null, path, `can't be opened: ${kind}`]]) {
        const out = spawnSync(SLUICE, ['serve', '-c', config ?? 'etc/sluice.yaml', '--state', join(dir, 'state'), '--set', 'gateway.http=127.0.0.1:0',
          '--set', 'gateway.https=127.0.0.1:0', '--set', 'engine.echo.enabled=true', '--set', 'cache.address=127.0.0.1:1',
          ...(key ? ['--set', `${key}=${path}`] : [])], { timeout: 100000, encoding: 'utf8' });
        // The reason is the last line of the process that ends; another one may have become ready beside it.
        const reason = `${key ? `${key}: ` : ''}${path}: ${says}`;
        assert.deepEqual([out.status, out.stderr.split('\n').some((line) => line.endsWith(reason))], [78, true], `${key}: ${out.signal} ${out.stderr}`);
      }
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test('a port in use is one clear line that names it', async () => {
  const holder = net.createServer().listen(0, '127.0.0.1');
  await new Promise((r) => holder.once('listening', r));
  const { port } = holder.address();
  const out = spawnSync(SLUICE, ['serve', '-c', 'etc/sluice.yaml', '--state', `${process.env.TMPDIR ?? '/tmp'}/sluice-port-${process.pid}`,
    '--set', `gateway.http=127.0.0.1:${port}`, '--set', 'gateway.https=off'], { timeout: 100000, encoding: 'utf8' });
  holder.close();
  assert.notEqual(out.status, 0);
  const last = out.stderr.trim().split('\n').at(-1);
  assert.match(last, new RegExp(`127\\.0\\.0\\.1:${port}`));
  assert.match(last, /in use/);
});
