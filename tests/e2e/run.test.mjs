// SPDX-License-Identifier: Apache-2.0
// `sluice run` as a person at a terminal uses it: pulled with progress from a stand-in hub, served, chatted with; what it
// started ends with it, however it ends, and the terminal is as it was. Into a pipe it shows no progress.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT, SLUICE } from './harness.mjs';
import { joined, literal, seeded, startHub } from './hub_mock.mjs';
import { onTerminal, shellOnTerminal } from './terminal.mjs';

const MB = 1 << 20, root = mkdtempSync(join(tmpdir(), 'sluice-run-test-'));
const demo = literal(readFileSync(join(ROOT, 'etc/models/demo-small.gguf')));
const large = joined(demo, seeded(3, 8 * MB)); // a loader ignores what follows the last tensor
const long = join(root, 'long.gguf');
const open = new Set(); // what a test that fails leaves
let hub;

before(async () => {
  hub = await startHub({ 'acme/demo-GGUF': { 'demo-Q8_0.gguf': large } });
  // Its answers end at the limit only, after thousands of tokens.
  execFileSync(SLUICE, ['model', 'random', '--shape', 'test-30m', '--type', 'f16', long]);
});
after(() => {
  for (const kill of open) kill();
  hub?.stop();
  rmSync(root, { recursive: true, force: true });
});

const args = (folder, model) => ['run', model, '--folder', join(root, folder), '--set', `hub.endpoint=${hub.url}`, '--set', 'hub.retry_wait=1ms'];
function watched(t) {
  open.add(t.kill);
  t.ended.then(() => open.delete(t.kill));
  return t;
}
const terminal = (folder, model) => watched(onTerminal([SLUICE, ...args(folder, model)], { cwd: root }));

const children = (pid) => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
const words = (pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
/** The processes below pid whose subcommand is `name`. */
function below(pid, name) {
  return children(pid).flatMap((c) => (words(c)[1] === name ? [c] : below(c, name)));
}
const alive = (pid) => existsSync(`/proc/${pid}/cmdline`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));

/** What `sluice run` below the terminal has started. */
function started(t) {
  const [run] = below(t.pid, 'run'), [serve] = below(t.pid, 'serve'), [chat] = below(t.pid, 'chat');
  return { run, serve, chat, engine: below(t.pid, 'engine')[0], state: /\/tmp\/sluice-run-\w+/.exec(words(serve).join(' '))[0] };
}

function assertGone({ serve, chat, engine, state }) {
  for (const pid of [serve, chat, engine]) assert.equal(alive(pid), false, `process ${pid} is left`);
  assert.equal(existsSync(state), false, `${state} is left`);
}

test('pulls with progress, serves, chats; the second run finds the model', async () => {
  hub.on = (asked) => (asked.host === 'files' ? { drip: 200000 } : null);
  let t = terminal('a', 'hf:acme/demo-GGUF');
  await t.until(/acme\/demo-GGUF.* is not here\. Pull it\? \[Y\/n\] /);
  t.type('y\n');
  await t.until(/\r\x1b\[Kdemo\S* {2}[\d.]+ [kM]B of [\d.]+ MB {2}[1-9]\d? %/);
  await t.until(/>>> /);
  assert.equal(readdirSync(join(root, 'a')).filter((f) => !f.startsWith('.')).length, 1);
  t.type('What is the capital of France?\n');
  await t.until(/The capital of France is Paris\.[\s\S]*>>> /);
  let it = started(t);
  t.type('/bye\n');
  assert.equal(await t.over(), 0);
  assertGone(it);

  hub.requests.length = 0;
  t = terminal('a', 'hf:acme/demo-GGUF');
  await t.until(/>>> /);
  assert.doesNotMatch(t.shown(), /Pull it|%/);
  assert.deepEqual(hub.requests, []);
  it = started(t);
  // Right behind the prompt Ctrl-D can come before the terminal is raw, and becomes a character of the line: Ctrl-U first.
  assert.equal(await t.over('\x15\x04'), 0);
  assertGone(it);
});

test('no is an answer', async () => {
  const t = terminal('b', 'hf:acme/demo-GGUF');
  await t.until(/\[Y\/n\] /);
  t.type('n\n');
  assert.equal(await t.over(), 1);
  assert.ok(!existsSync(join(root, 'b')) || readdirSync(join(root, 'b')).every((f) => f.startsWith('.')));
});

test('Ctrl-C stops an answer, not the server', async () => {
  const t = terminal('c', long);
  await t.until(/>>> /);
  const it = started(t);
  t.type('go\n');
  await t.until(/go\r\n[\s\S]*[^\s>][\s\S]{8}/);
  process.kill(it.engine, 'SIGSTOP'); // the answer cannot end by itself meanwhile
  t.type('\x03');
  await t.until(/\(stopped\)/);
  process.kill(it.engine, 'SIGCONT');
  await t.until(/>>> /);
  assert.ok(alive(it.serve) && alive(it.chat));
  t.type('/quit\n');
  assert.equal(await t.over(), 0);
  assertGone(it);
});

test('a signal, and a chat that is killed, leave nothing, and the terminal as it was', async () => {
  // A job of its own, as at a prompt: libedit passes signals on to its whole process group.
  const line = `set -m; '${SLUICE}' ${args('d', long).map((w) => `'${w}'`).join(' ')}; echo "status $?"; stty -a`;
  for (const [whom, signal, status] of [['run', 'SIGTERM', 143], ['chat', 'SIGKILL', 137]]) {
    const t = watched(shellOnTerminal(line, { cwd: root }));
    await t.until(/>>> /);
    const it = started(t);
    process.kill(it[whom], signal);
    const m = await t.until(/status (\d+)[\s\S]*\bicanon\b[\s\S]*\becho\b/);
    assert.equal(Number(m[1]), status, t.shown());
    assert.match(t.shown(), /[\s;]icanon[\s\S]*\secho\s/);
    assert.doesNotMatch(t.shown(), /-icanon|-echo\s/);
    await t.over();
    assertGone(it);
  }
});

test('into a pipe: no question, no progress, an address and a key', { timeout: 120_000 }, async () => {
  hub.on = () => null;
  const child = spawn(SLUICE, args('e', 'hf:acme/demo-GGUF'), { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  open.add(() => child.kill('SIGKILL'));
  let out = '', err = '';
  const closed = once(child, 'close');
  child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
  child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
  while (!/SLUICE_KEY=\S+\n/.test(out)) await Promise.race([once(child.stdout, 'data'), closed.then(() => { throw new Error(err); })]);
  child.kill('SIGTERM');
  assert.equal((await closed)[0], 0, err);
  assert.match(out, /^http:\/\/127\.0\.0\.1:\d+\nSLUICE_KEY=\S+\n$/);
  assert.doesNotMatch(err, /%|\r|\x1b|\?/);
});
