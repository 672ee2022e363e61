// SPDX-License-Identifier: Apache-2.0
// Starts a server of its own for a test: free ports, a state folder of its own, and everything gone at the end.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const SLUICE = process.env.SLUICE ?? join(ROOT, 'build/sluice');
process.chdir(ROOT); // paths in etc/sluice.yaml are relative to it

/** Ports that were free a moment ago. All are held open until all are known, so they differ. */
export async function freePorts(n) {
  const holders = await Promise.all(Array.from({ length: n }, () => new Promise((ok, fail) => {
    const s = net.createServer().listen(0, '127.0.0.1', () => ok(s));
    s.on('error', fail);
  })));
  const ports = holders.map((s) => s.address().port);
  await Promise.all(holders.map((s) => new Promise((ok) => s.close(ok))));
  return ports;
}

export function get(url, headers = {}) {
  return new Promise((ok, fail) => {
    http.get(url, { headers, agent: false }, (res) => {
      let body = '';
      res.setEncoding('utf8');
      res.on('data', (d) => { body += d; });
      res.on('end', () => ok({ status: res.statusCode, headers: res.headers, body }));
      res.on('error', fail);
    }).on('error', fail);
  });
}

const children = new Set();
process.on('exit', () => { for (const c of children) c.kill('SIGKILL'); });

/** The children of a process by their subcommand: {engine: pid, gateway: pid}. */
function childPids(parent) {
  const found = {};
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (Number(ppid) !== parent || state === 'Z') continue;
      const name = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0')[1];
      if (name) found[name] = Number(entry);
    } catch { /* it has gone meanwhile */ }
  }
  return found;
}

/**
 * Starts `sluice serve` and resolves once it says `ready`.
 *   sets   overrides, each `key=value`;  echo  the echo engine in place of the models
 * The result: http, https (bases), page (address with the keys), keys {free, paid, admin}, caFile, state, log(), pids(),
 * metrics() (text), stop() (resolves with the exit status).
 */
export async function startServer({ sets = [], echo = false, readyMs = 20000 } = {}) {
  const [plain, tls] = await freePorts(2);
  const state = mkdtempSync(join(tmpdir(), 'sluice-test-'));
  const all = [`gateway.http=127.0.0.1:${plain}`, `gateway.https=127.0.0.1:${tls}`, ...(echo ? ['engine.echo.enabled=true'] : []), ...sets];
  const child = spawn(SLUICE, ['serve', '-c', 'etc/sluice.yaml', '--state', state, ...all.flatMap((s) => ['--set', s])],
    { stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  let out = '', log = '';
  const exited = new Promise((ok) => child.on('exit', (code, signal) => { children.delete(child); ok(code ?? signal); }));
  child.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
  const ready = await new Promise((ok) => {
    const timer = setTimeout(() => ok(false), readyMs);
    child.stdout.setEncoding('utf8').on('data', (d) => {
      out += d;
      if (/^ready$/m.test(out)) { clearTimeout(timer); ok(true); }
    });
    exited.then(() => { clearTimeout(timer); ok(false); });
  });
  const said = (name) => out.match(new RegExp(`^${name} (.*)$`, 'm'))?.[1];
  const server = {
    state, http: `http://127.0.0.1:${plain}`, https: `https://127.0.0.1:${tls}`, caFile: join(state, 'tls/cert.pem'),
    page: said('page'), keys: { free: said('key-free'), paid: said('key-paid'), admin: said('key-admin') },
    out: () => out, log: () => log, pid: child.pid,
    pids: async () => childPids(child.pid),
    metrics: async () => (await get(`http://127.0.0.1:${plain}/metrics`, { authorization: `Bearer ${said('key-admin')}` })).body,
    async stop(signal = 'SIGINT') {
      child.kill(signal);
      const timer = setTimeout(() => child.kill('SIGKILL'), 30000);
      const status = await exited;
      clearTimeout(timer);
      this.left = namesIn(join(state, 'run'));
      rmSync(state, { recursive: true, force: true });
      return status;
    },
  };
  if (!ready) {
    await server.stop('SIGKILL');
    throw new Error(`the server did not become ready:\n${out}\n${log}`);
  }
  return server;
}

/** Names in a folder; empty when it is not there. */
function namesIn(folder) {
  try { return readdirSync(folder); } catch { return []; }
}
