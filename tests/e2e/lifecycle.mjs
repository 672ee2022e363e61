// SPDX-License-Identifier: Apache-2.0
// For tests of the life of a service: a server from an executable and a configuration of its own, one a test, ended with it.
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before } from 'node:test';
import { chat, until, user } from './client.mjs';
import { ROOT, SLUICE, request, startServer } from './harness.mjs';

export const PATIENCE = 100_000;
export let dir, server, conf, exe; // of the test that runs
let stopKnocking;

before(() => { dir = mkdtempSync(join(tmpdir(), 'sluice-life-')); });
after(() => rmSync(dir, { recursive: true, force: true }));
afterEach(async () => { await stopKnocking?.(); await server?.stop(); server = stopKnocking = null; });

/** Puts a file in another's place at once, as installers do. */
export function replaceFile(path, write) {
  write(`${path}.new`);
  renameSync(`${path}.new`, path);
}

/** etc/sluice.yaml with other words in some places: [from, to]. */
export function writeConfig(...changes) {
  let text = readFileSync(join(ROOT, 'etc/sluice.yaml'), 'utf8');
  for (const [from, to] of [['concurrency: 32', 'concurrency: 2000'], ...changes]) {
    assert.ok(text.includes(from), from);
    text = text.replace(from, to);
  }
  replaceFile(conf, (f) => writeFileSync(f, text));
}

export async function start({ changes = [], sets = [], state } = {}) {
  conf = join(dir, 'sluice.yaml');
  exe = join(dir, 'sluice');
  writeConfig(...changes);
  replaceFile(exe, (f) => copyFileSync(SLUICE, f));
  server = await startServer({ echo: true, config: conf, exe, sets, ...(state ? { state } : {}) });
  return server;
}

/** How often a line has been logged. */
export const logged = (what) => server.log().split(what).length - 1;

export async function awaitLog(what, times = 1) {
  assert.ok(await until(() => logged(what) >= times, PATIENCE), `"${what}" is not in the log:\n${server.log()}`);
}

export async function reload() {
  const n = logged('gateway: reloaded');
  process.kill(server.pid, 'SIGHUP');
  await awaitLog('gateway: reloaded', n + 1);
}

/** A gateway is not ready for a moment when its engine has come back, and an upgrade is refused then: that one is asked for again,
 *  every other refusal is the test's to explain. */
export async function upgrade() {
  const before = (await server.pids()).gateway, n = logged('upgrade: gateway is process'), early = 'upgrade refused: gateway is not ready';
  const settled = () => logged('upgrade: gateway is process') > n || logged(early) > refused;
  let refused;
  do {
    refused = logged(early);
    process.kill(server.pid, 'SIGUSR2');
    await until(settled, PATIENCE);
    if (logged(early) > refused) await until(() => server.log().split(early).at(-1).includes('gateway is ready'), PATIENCE);
  } while (logged(early) > refused);
  await awaitLog('upgrade: gateway is process', n + 1);
  const now = Number(/upgrade: gateway is process (\d+)/.exec(server.log().split('upgrade: gateway').slice(-1)[0]
    .replace(/^/, 'upgrade: gateway'))[1]);
  assert.notEqual(now, before);
  return now;
}

/** An HTTP/2 connection that remembers the GOAWAYs it got. */
export function connection(base) {
  const session = http2.connect(base, { rejectUnauthorized: false });
  session.goaways = [];
  session.on('goaway', (code, last) => session.goaways.push({ code, last }));
  session.on('error', (e) => { session.failed = e; });
  return session;
}

/** One streamed answer: {status, text, done (how often), roles, code, began (promise), ended (promise)}. */
export function stream(session, key, content, more = {}) {
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
      const event = rest.slice(0, i).replace(/^(:.*\n)*/, ''); // a comment may stand before it
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

export const words = (name, n) => Array.from({ length: n }, (_, i) => `${name}.${i}`).join(' ');

export function assertWhole(r, content, what) {
  assert.equal(r.error, undefined, `${what}: ${r.error}`);
  assert.equal(r.status, 200, what);
  assert.deepEqual(r.errors, [], what);
  assert.equal(r.text, content, `${what}, reset with ${r.code}`);
  assert.equal(r.roles, 1, what);
  assert.equal(r.done, 1, what);
}

/** Asks on ever new connections, over HTTP/1.1 and HTTP/2, until endKnocking(), at the latest until the test ends. */
export function knock() {
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
  stopKnocking = async () => { going = false; await Promise.all(all); return seen; };
}

/** What came of it: {asked, failed}. */
export const endKnocking = () => stopKnocking();
