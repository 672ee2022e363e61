// SPDX-License-Identifier: Apache-2.0
// HAProxy and Caddy: each planted fault is named by `sluice doctor`, and the line that it names cures it. (nginx's are in
// doctor.test.mjs; its faults are planted by that line's opposite.) Each fault is a proxy with the fault and one with the
// change; both are examined.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT, SLUICE, freePorts, startServer } from './harness.mjs';
import { installed, newCaddy } from './proxies.mjs';

const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`;
let server, folder;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-remedies-'));
  server = await startServer({ sets: ['gateway.trusted_proxies=127.0.0.0/8', 'gateway.forwarded=x-forwarded-for'] });
  for (const f of ['cert', 'key']) copyFileSync(join(server.state, `tls/${f}.pem`), join(folder, `${f}.pem`));
  writeFileSync(join(folder, 'both.pem'), ['cert', 'key'].map((f) => readFileSync(join(folder, `${f}.pem`), 'utf8')).join('\n'), { mode: 0o600 });
});
after(async () => {
  assert.equal(await server?.stop(), 0, server?.log());
  rmSync(folder, { recursive: true, force: true });
});

function doctor(url, quiet) {
  return new Promise((done) => {
    const args = ['doctor', '--json', url, '--cacert', server.caFile, '--quiet-seconds', String(quiet)];
    const child = execFile(SLUICE, args, { cwd: ROOT, env: { ...process.env, SLUICE_URL: '', SLUICE_KEY: server.keys.paid } }, (e, out, err) => {
      const { checks = [] } = out.startsWith('{') ? JSON.parse(out) : {};
      done({ out: out + err, checks, faults: checks.filter((c) => c.result !== 'ok') });
    });
    child.stdin.end();
  });
}

async function listens(port) {
  return new Promise((done) => { const s = net.connect(port, '127.0.0.1', () => { s.destroy(); done(true); }).on('error', () => done(false)); });
}

/** Starts it and waits until it listens on all ports. */
async function start(name, args, ports) {
  let log = '';
  const child = spawn(name, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, PATH, HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder } });
  for (const s of [child.stdout, child.stderr]) s.setEncoding('utf8').on('data', (d) => { log += d; });
  for (const end = Date.now() + 60_000; ; await sleep(20)) {
    if ((await Promise.all(ports.map(listens))).every(Boolean)) return child;
    if (child.exitCode !== null || Date.now() > end) throw new Error(`${name} does not start:\n${log}`);
  }
}

/**
 * One test for each fault. faults: {name: {topic, text, change, faulty, cured, tls, quiet}}; text and change: patterns;
 * faulty, cured: what place(key, port, fault, upstream) makes a part of the configuration of.
 */
function examine(name, faults, place, whole, args) {
  const skip = installed(name) ? false : `${name} is not installed`;
  describe(name, { concurrency: 4 }, () => {
    let child, ports;
    before(async () => {
      if (skip) return;
      const entries = Object.entries(faults), upstream = new URL(server.http).host;
      const [dead, ...free] = await freePorts(2 * entries.length + 1);
      ports = Object.fromEntries(entries.map(([key], i) => [key, free.slice(2 * i, 2 * i + 2)]));
      const parts = entries.flatMap(([key, f], i) => [place(`f${i}`, ports[key][0], f, f.faulty, f.down ? `127.0.0.1:${dead}` : upstream), place(`c${i}`, ports[key][1], f, f.cured, upstream)]);
      writeFileSync(join(folder, `${name}.conf`), whole(parts));
      child = await start(name, args(join(folder, `${name}.conf`)), free);
    });
    after(() => child?.kill('SIGKILL'));
    for (const [key, f] of Object.entries(faults)) {
      test(`${key}, and its remedy`, { skip }, async () => {
        const url = (port) => (f.tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`);
        const faulty = await doctor(url(ports[key][0]), f.quiet ?? 1);
        const named = faulty.faults.find((x) => x.topic === f.topic && f.text.test(x.text));
        assert.ok(named, faulty.out);
        assert.match(named.change.join('\n'), f.change);
        const cured = await doctor(url(ports[key][1]), f.quiet ?? 1);
        assert.deepEqual(cured.faults, [], cured.out);
        assert.ok(cured.checks.some((c) => c.topic === f.topic || f.topic === 'content type'), cured.out);
      });
    }
  });
}

/* ---- HAProxy ---- */

// It does not name itself: its lines are those for a proxy that is unknown.
const own = 'option forwardfor\n  option abortonclose\n  timeout server 1h\n  timeout client 1h';
examine('haproxy', {
  'one that does not reach Sluice': { topic: 'server', text: /the proxy does not reach Sluice/, change: /upstream: the address of gateway\.http/, faulty: own, cured: own, down: true },
  'one that removes the key': { topic: 'key', text: /removes the header Authorization/, change: /no `http-request del-header Authorization`/, faulty: `${own}\n  http-request del-header Authorization`, cured: own },
  'one that compresses': { topic: 'compression', text: /compresses text\/event-stream/, change: /HAProxy: `compression type` without it/, tls: true,
    strips: true, faulty: `${own}\n  compression algo gzip\n  compression type text/event-stream`, cured: `${own}\n  compression algo gzip\n  compression type application/json` },
  'one that changes the content type': { topic: 'content type', text: /text\/event-stream to text\/plain/, change: /pass Content-Type on unchanged/, faulty: `${own}\n  http-response set-header Content-Type text/plain`, cured: own },
  'one that times out': { topic: 'silence', text: /closes a quiet stream/, change: /HAProxy: timeout server 1h\)/, quiet: 4, faulty: own.replace('server 1h', 'server 2s'), cured: own.replace('client 1h', 'client 2s') },
  'one that sends no address': { topic: 'address', text: /does not report the client/, change: /HAProxy: option forwardfor/, tls: true, faulty: own.replace('option forwardfor\n', ''), cured: own },
  'one without HTTP/2': { topic: 'protocol', text: /https without HTTP\/2/, change: /alpn h2,http\/1\.1/, tls: true, faulty: own, cured: own, alpn: false },
  'one that ignores that clients leave': { topic: 'disconnects', text: /does not notice that a client has left/, change: /HAProxy: option abortonclose/, faulty: own.replace('  option abortonclose\n', ''), cured: own },
  'one that refuses bodies': { topic: 'bodies', text: /refuses a body of 1 MB with status 413/, change: /accept bodies of 1 MiB/, faulty: `${own}\n  http-request deny deny_status 413 if { req.hdr_val(content-length) gt 10000 }`, cured: own },
}, (key, port, f, text, upstream) => {
  const alpn = f.alpn === false && key.startsWith('f') ? '' : ' alpn h2,http/1.1';
  // It obeys no-transform, which only another proxy before it can hide from it.
  const [to, other] = f.strips ? [`abns@${key}-${port}`, `listen ${key}s\n  bind abns@${key}-${port} accept-proxy\n  ${own}\n  http-response del-header Cache-Control\n  server sluice ${upstream}\n`] : [upstream, ''];
  return `listen ${key}\n  bind 127.0.0.1:${port}${f.tls ? ` ssl crt ${folder}/both.pem${alpn}` : ''}\n  ${text}\n  server sluice ${to}${f.strips ? ' send-proxy' : ''}\n${other}`;
}, (parts) => `global\n  maxconn 1000\ndefaults\n  mode http\n  timeout connect 5s\n${parts.join('\n')}`, (file) => ['-db', '-f', file]);

/* ---- Caddy ---- */

// Versions from 2.6.4 on call it so.
const BUFFERED = newCaddy() ? 'response_buffers 1MiB' : 'buffer_responses';
const site = (more = '', inside = '') => ({ more, inside });
examine('caddy', {
  'one that does not reach Sluice': { topic: 'server', text: /Server: Caddy.*the proxy does not reach Sluice/, change: /^reverse_proxy 127\.0\.0\.1:8080/, faulty: site(), cured: site(), down: true },
  'one that removes the key': { topic: 'key', text: /removes the header Authorization/, change: /^without `header_up -Authorization`$/, faulty: site('', 'header_up -Authorization'), cured: site() },
  'one that buffers': { topic: 'streaming', text: /buffers the stream/, change: /^without `buffer_responses` or `response_buffers`$/, faulty: site('', 'BUFFERED'), cured: site() },
  'one that compresses': { topic: 'compression', text: /compresses text\/event-stream/, change: /^header Content-Type application\/json\* {2}# in `match` of `encode`$/,
    faulty: site('encode gzip {\n match {\n header Content-Type text/*\n }\n minimum_length 1\n}', 'header_down -Cache-Control'), cured: site('encode gzip {\n match {\n header Content-Type application/json*\n }\n minimum_length 1\n}', 'header_down -Cache-Control') },
  'one that changes the content type': { topic: 'content type', text: /text\/event-stream to text\/plain/, change: /^without `header Content-Type`$/, faulty: site('header {\n Content-Type text/plain\n defer\n}'), cured: site() },
  'one that times out': { topic: 'silence', text: /closes a quiet stream/, change: /^read_timeout 1h {2}# in `transport http`/, quiet: 4, faulty: site('', 'transport http {\n read_timeout 2s\n}'), cured: site('', 'transport http {\n read_timeout 1h\n}') },
  'one that sends no address': { topic: 'address', text: /^Caddy does not report the client/, change: /^without `header_up -X-Forwarded-For`$/, faulty: site('', 'header_up -X-Forwarded-For'), cured: site() },
  'one without HTTP/2': { topic: 'protocol', text: /https without HTTP\/2/, change: /^protocols h1 h2 h3 {2}# in `servers`/, tls: true, faulty: site(), cured: site(), protocols: ['h1', 'h1 h2 h3'] },
  'one that refuses bodies': { topic: 'bodies', text: /a body of 1 MB/, change: /^max_size 1MiB {2}# in `request_body`$/, faulty: site('request_body {\n max_size 10KB\n}'), cured: site('request_body {\n max_size 1MiB\n}') },
}, (key, port, f, { more, inside }, upstream) => ({
  global: f.protocols ? `servers 127.0.0.1:${port} {\n protocols ${f.protocols[key.startsWith('f') ? 0 : 1]}\n}` : '',
  text: `${f.tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`} {\n${f.tls ? `tls ${folder}/cert.pem ${folder}/key.pem\n` : ''}${more}\nreverse_proxy ${upstream} {\n${inside.replace('BUFFERED', BUFFERED)}\n}\n}\n`,
}), (parts) => `{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n${parts.map((p) => p.global).join('\n')}\n}\n${parts.map((p) => p.text).join('\n')}`, (file) => ['run', '--adapter', 'caddyfile', '--config', file]);
