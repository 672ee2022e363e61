// SPDX-License-Identifier: Apache-2.0
// Real proxies in front of a server, with the configurations that etc/proxies.md documents: the code blocks of that page,
// with nothing changed but addresses, ports and files. Each proxy runs in the foreground in a folder of its own.
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT, freePorts, request } from './harness.mjs';

const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`; // where Debian puts nginx and haproxy
const START_MS = 60_000;

/** The one code block of the page in that language. */
export function documented(language) {
  const page = readFileSync(join(ROOT, 'etc/proxies.md'), 'utf8');
  const blocks = [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].filter((m) => m[1] === language);
  if (blocks.length !== 1) throw new Error(`etc/proxies.md has ${blocks.length} blocks of ${language}`);
  return blocks[0][2];
}

/** Replaces each of the texts, which must be there. */
function replaced(text, pairs) {
  return pairs.reduce((t, [from, to]) => {
    if (!t.includes(from)) throw new Error(`etc/proxies.md: no '${from}' in:\n${text}`);
    return t.replaceAll(from, to);
  }, text);
}

// name: what is run, how its file is made of the documented block, with which arguments. x: {http, https (ports), upstream,
// folder}; in the folder lie cert.pem, key.pem and both.pem.
const files = (x) => ['cert', 'key', 'both'].map((f) => [`/etc/ssl/llm/${f}.pem`, join(x.folder, `${f}.pem`)]);
/** Caddy, if it is installed, from 2.6.4 on. */
export function newCaddy() {
  if (!installed('caddy')) return false;
  const [, major, minor, patch] = /(\d+)\.(\d+)\.(\d+)/.exec(spawnSync('caddy', ['version'], { encoding: 'utf8', env: { ...process.env, PATH } }).stdout).map(Number);
  return (major * 100 + minor) * 100 + patch >= 20604;
}

const KINDS = {
  nginx: {
    file: (block, x) => {
      const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((t) => `${t}_temp_path ${x.folder}/${t};`).join(' ');
      return `daemon off; master_process off; pid ${x.folder}/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off; ${temp}\n${
        replaced(block, [['listen 80;', `listen 127.0.0.1:${x.http};`], ['listen 443 ', `listen 127.0.0.1:${x.https} `],
          ['127.0.0.1:8080', x.upstream], ...files(x).slice(0, 2)])}}\n`;
    },
    args: (file, x) => ['-e', 'stderr', '-p', x.folder, '-c', file],
  },
  haproxy: {
    file: (block, x) => replaced(block, [['bind :80\n', `bind 127.0.0.1:${x.http}\n`], ['bind :443 ', `bind 127.0.0.1:${x.https} `],
      ['127.0.0.1:8080', x.upstream], files(x)[2]]),
    args: (file) => ['-db', '-f', file],
  },
  h2o: {
    file: (block, x) => replaced(block, [['  port: 80\n', `  host: 127.0.0.1\n  port: ${x.http}\n`],
      ['  port: 443\n', `  host: 127.0.0.1\n  port: ${x.https}\n`], ['127.0.0.1:8080', x.upstream], ...files(x).slice(0, 2)]),
    args: (file) => ['-m', 'worker', '-c', file],
  },
  caddy: {
    // The page says what the newer name of the option is.
    file: (block, x) => `{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n}\n${replaced(block,
      [...(newCaddy() ? [['buffer_requests', 'request_buffers 1MiB']] : []), ['http://llm.example.org', `http://127.0.0.1:${x.http}`], ['https://llm.example.org', `https://127.0.0.1:${x.https}`],
        ['127.0.0.1:8080', x.upstream], ...files(x).slice(0, 2)])}`,
    args: (file) => ['run', '--adapter', 'caddyfile', '--config', file],
  },
};

export const PROXIES = Object.keys(KINDS);

export function installed(name) {
  return spawnSync('sh', ['-c', `command -v ${name}`], { env: { ...process.env, PATH } }).status === 0;
}

/**
 * The proxy in front of the server; edit: the documented block to another. kill() ends it without a word, start() starts it
 * again on the same ports. → {http, https, start(), kill()}
 */
export async function startProxy(name, server, { edit = (block) => block } = {}) {
  const folder = mkdtempSync(join(tmpdir(), `sluice-${name}-`));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const [http, https] = await freePorts(2);
  const x = { folder, http, https, upstream: new URL(server.http).host };
  for (const f of ['cert', 'key']) copyFileSync(join(server.state, `tls/${f}.pem`), join(folder, `${f}.pem`));
  writeFileSync(join(folder, 'both.pem'), ['cert', 'key'].map((f) => readFileSync(join(folder, `${f}.pem`), 'utf8')).join('\n'), { mode: 0o600 });
  const file = join(folder, `${name}.conf`);
  writeFileSync(file, KINDS[name].file(edit(documented(name)), x));
  let child, ended, log = '';
  const base = `http://127.0.0.1:${http}`;

  async function start() {
    child = spawn(name, KINDS[name].args(file, x), { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, PATH, HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder } });
    ended = new Promise((done) => child.once('close', done));
    const { pid } = child;
    const last = () => { try { process.kill(pid, 'SIGKILL'); } catch { /* it has ended */ } };
    process.once('exit', last);
    ended.then(() => process.removeListener('exit', last));
    for (const s of [child.stdout, child.stderr]) s.setEncoding('utf8').on('data', (d) => { log += d; });
    for (const until = Date.now() + START_MS; ; await sleep(10)) {
      const r = await request(base, '/live').catch(() => null);
      if (r?.status === 200) return;
      if (child.exitCode !== null || Date.now() > until) {
        await end();
        throw new Error(`${name} does not start:\n${log}`);
      }
    }
  }
  async function end() {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await ended;
  }
  await start();
  return { log: () => log, http: base, https: `https://127.0.0.1:${https}`, start, kill: end };
}
