// SPDX-License-Identifier: Apache-2.0
// An installation in folders of its own, served from elsewhere: with inherited sockets and a manager that hears reports
// (tests/support/activate.c), through reload, upgrade and restart; and what uninstalling leaves.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT, SLUICE, freePorts, request } from './harness.mjs';

const BUILD = dirname(SLUICE);
const ACTIVATE = join(BUILD, 'tests/support/activate');
const WAIT_MS = 120_000;
const QUESTION = JSON.stringify({ model: 'default', messages: [{ role: 'user', content: 'What is the capital of France?' }], temperature: 0 });

/** Every file below a folder, sorted, by its path in it. */
function files(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: false }).flatMap((e) => {
    const path = join(folder, e.name);
    return e.isDirectory() ? files(path).map((f) => join(e.name, f)) : [e.name];
  }).sort();
}

describe('an installation', () => {
  const top = mkdtempSync(join(tmpdir(), 'sluice-installed-'));
  const prefix = join(top, 'usr'), elsewhere = join(top, 'elsewhere'), state = join(top, 'state');
  const env = { ...process.env, PREFIX: prefix, DESTDIR: '', SYSCONFDIR: '', STATEDIR: state };
  const packaging = (action, more = {}) => execFileSync(join(ROOT, 'etc/package/install.sh'), [action, BUILD], { encoding: 'utf8', env: { ...env, ...more } });
  const config = join(prefix, 'etc/sluice/sluice.yaml');
  process.once('exit', () => rmSync(top, { recursive: true, force: true }));

  before(() => {
    execFileSync('chmod', ['711', top]);
    mkdirSync(elsewhere);
    packaging('install');
  });

  test('DESTDIR gets the same files, with the paths of PREFIX in them', () => {
    const dest = join(top, 'dest');
    packaging('install', { DESTDIR: dest, PREFIX: '/usr', STATEDIR: '' });
    const all = files(dest);
    for (const f of ['usr/bin/sluice', 'usr/bin/sluice-bench', 'etc/sluice/sluice.yaml', 'usr/share/man/man1/sluice.1', 'usr/share/sluice/models/demo-large.gguf',
      'usr/lib/systemd/system/sluice.service']) assert.ok(all.includes(f), f);
    const unit = readFileSync(join(dest, 'usr/lib/systemd/system/sluice.service'), 'utf8');
    assert.match(unit, /^ExecStart=\/usr\/bin\/sluice serve -c \/etc\/sluice\/sluice\.yaml$/m);
    assert.ok(!/@[A-Z]+@/.test(unit));
    const yaml = readFileSync(join(dest, 'etc/sluice/sluice.yaml'), 'utf8');
    assert.match(yaml, /^state: \/var\/lib\/sluice/m);
    assert.match(yaml, /path: \/usr\/share\/sluice\/models\/demo-small\.gguf/);
    assert.ok(!yaml.includes('(dev)') && !yaml.includes(top));
    assert.equal(statSync(join(dest, 'usr/bin/sluice')).mode & 0o777, 0o755);
    packaging('uninstall', { DESTDIR: dest, PREFIX: '/usr', STATEDIR: '' });
    assert.deepEqual(files(dest), ['etc/sluice/sluice.yaml']);
    packaging('install'); // build/install has this prefix's again
  });

  test('a changed configuration is kept by a second install', () => {
    const changed = `${readFileSync(config, 'utf8')}# mine\n`;
    writeFileSync(config, changed);
    assert.match(packaging('install'), /kept: .*sluice\.yaml/);
    assert.equal(readFileSync(config, 'utf8'), changed);
  });

  describe('with inherited sockets', () => {
    const socket = join(top, 'local.sock');
    let port, manager, log = '';
    const lines = [];
    const waiting = [];

    /** The next line from `from` on that matches: its index. */
    const line = (pattern, from = 0) => new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`no ${pattern} in:\n${lines.join('\n')}\n${log}`)), WAIT_MS);
      const look = () => {
        const i = lines.findIndex((l, k) => k >= from && pattern.test(l));
        if (i < 0) return false;
        clearTimeout(timer);
        done(i);
        return true;
      };
      if (!look()) waiting.push(look);
    });
    /** Asked again while the model loads, as clients do; a refused connection is an error. */
    const ask = async () => {
      for (;;) {
        const r = await request(`http://127.0.0.1:${port}`, '/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body: QUESTION });
        if (r.status !== 503 || JSON.parse(r.body).error.code !== 'model_loading') return r;
        await sleep(100);
      }
    };

    before(async () => {
      [port] = await freePorts(1);
      // Another directory, and no -c: the configuration is found beside the program.
      manager = spawn(ACTIVATE, [`http=${port}`, `local=${socket}`, '--', join(prefix, 'bin/sluice'), 'serve', '--set', 'gateway.https=off', '--set', 'supervisor.hang=60s',
        '--set', 'gateway.listeners.local.unix=/run/elsewhere.sock'],
        { cwd: elsewhere, stdio: ['ignore', 'pipe', 'pipe'] });
      manager.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
      let rest = '';
      manager.stdout.setEncoding('utf8').on('data', (d) => {
        const parts = (rest + d).split('\n');
        rest = parts.pop();
        lines.push(...parts);
        for (let i = waiting.length - 1; i >= 0; i--) if (waiting[i]()) waiting.splice(i, 1);
      });
      await line(/^READY=1$/);
    });
    after(() => manager?.kill('SIGTERM'));

    test('serves the page and answers without a key', async () => {
      assert.equal((await request(`http://127.0.0.1:${port}`, '/')).status, 200);
      const r = await ask();
      assert.equal(r.status, 200, r.body);
      assert.match(JSON.parse(r.body).choices[0].message.content, /Paris/);
      assert.ok(existsSync(join(state, 'run')));
      assert.deepEqual(files(elsewhere), [], 'nothing is written where it was started');
    });

    const over_socket = () => new Promise((done, failed) => {
      http.get({ socketPath: socket, path: '/live', agent: false }, (res) => { res.resume(); done(res.statusCode); }).on('error', failed);
    });
    test('a unix socket serves the listener of its name', async () => assert.equal(await over_socket(), 200));

    test('reports status and feeds the watchdog', async () => {
      assert.ok(lines.includes('STATUS=Serving') || await line(/^STATUS=Serving$/) >= 0);
      const first = await line(/^WATCHDOG=1$/);
      await line(/^WATCHDOG=1$/, first + 1);
    });

    test('a reload is reported', async () => {
      const from = lines.length;
      manager.kill('SIGHUP');
      await line(/^READY=1$/, await line(/^MONOTONIC_USEC=\d+$/, await line(/^RELOADING=1$/, from)));
      assert.equal((await ask()).status, 200);
    });

    test('an upgrade keeps the main process', async () => {
      const from = lines.length;
      manager.kill('SIGUSR2');
      const upgrading = await line(/^STATUS=Upgrading/, from);
      await line(/^STATUS=Serving$/, upgrading);
      assert.ok(!lines.slice(from).some((l) => /^(started|exited|MAINPID|STOPPING)/.test(l)));
      assert.equal((await ask()).status, 200);
    });

    test('a restart refuses no connection', async () => {
      const from = lines.length;
      manager.kill('SIGUSR1');
      const stopping = await line(/^STOPPING=1$/, from);
      await line(/^exited 0$/, stopping);
      const asked = ask(); // no process accepts: it waits in the queue
      await line(/^started \d+$/, stopping);
      const r = await asked;
      assert.equal(r.status, 200, r.body);
      await line(/^READY=1$/, stopping);
      assert.equal(await over_socket(), 200);
    });

    test('a stop is reported, and ends well', async () => {
      const from = lines.length;
      const ended = new Promise((done) => manager.once('close', done));
      manager.kill('SIGTERM');
      await line(/^STOPPING=1$/, from);
      assert.equal(await ended, 0, log);
      assert.ok(existsSync(socket), 'the file is the manager\'s');
    });
  });

  test('uninstall leaves the configuration and the state folder, and names them', () => {
    const said = packaging('uninstall');
    assert.ok(said.includes(dirname(config)) && said.includes(state));
    assert.deepEqual(files(prefix), [relative(prefix, config)]);
    assert.ok(existsSync(state));
  });
});
