// SPDX-License-Identifier: Apache-2.0
// `sluice doctor`: each planted fault is named, with the line to change, and nothing else is; documented proxies and a sound
// machine are green.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from './client.mjs';
import { ROOT, SLUICE, freePorts, hasRedis, request, startServer } from './harness.mjs';
import { installed, startProxy } from './proxies.mjs';

// Where nginx connects to the server from: one address that is trusted, and one that is not.
const TRUSTED = '127.0.0.3', STRANGE = '127.0.0.4';
const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`;
const THIRD = 'a-third-key-of-a-third-tenant';
let server, folder;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-doctor-'));
  server = await startServer({ sets: [`gateway.trusted_proxies=${TRUSTED}`, 'gateway.forwarded=x-forwarded-for',
    `gateway.keys.third.sha256=${createHash('sha256').update(THIRD).digest('hex')}`, 'gateway.keys.third.tier=free'] });
});
after(async () => {
  assert.equal(await server?.stop(), 0, server?.log());
  rmSync(folder, { recursive: true, force: true });
});

/** → {status, out, faults: [{result, topic, text, change}] without those that are ok} */
function doctor(args, { key = server.keys.paid, user } = {}) {
  return new Promise((done) => {
    const child = execFile(SLUICE, ['doctor', '--json', ...args], { cwd: ROOT, env: { ...process.env, SLUICE_URL: '', SLUICE_KEY: key }, ...user }, (e, out, err) => {
      const all = out.startsWith('{') ? JSON.parse(out) : { checks: [] };
      done({ status: e?.code ?? 0, out: out + err, ok: all.ok, checks: all.checks, faults: all.checks.filter((c) => c.result !== 'ok') });
    });
    child.stdin.end();
  });
}

/** The fault is named, and no other. */
function names(r, result, topic, text, change) {
  assert.equal(r.faults.length, 1, r.out);
  const [f] = r.faults;
  assert.deepEqual([f.result, f.topic], [result, topic], r.out);
  assert.match(f.text, text);
  assert.match(f.change.join('\n'), change);
  assert.equal(r.status, result === 'FAIL' ? 1 : 0);
  assert.equal(r.ok, result !== 'FAIL');
}

describe('the way to a server', { concurrency: 4 }, () => {
  const good = `proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header X-Forwarded-For $remote_addr; proxy_bind ${TRUSTED};`;
  // name: [what the location has, result, topic, text, change, {options of doctor, of listen}]
  const FAULTS = {
    // By HTTP/1.1 nginx passes each chunk on, whatever it is told about buffering; its default is HTTP/1.0.
    buffers: [`${good.replace('1.1', '1.0')} proxy_ignore_headers X-Accel-Buffering;`, 'FAIL', 'streaming', /buffers the stream/, /^proxy_buffering off;.*X-Accel-Buffering/, { also: 'upstream' }],
    compresses: [`${good} gzip on; gzip_types text/event-stream; gzip_min_length 0;`, 'FAIL', 'compression', /compresses text\/event-stream \(Content-Encoding: gzip\)/, /^gzip off;/],
    'times out': [`${good} proxy_read_timeout 2s;`, 'FAIL', 'silence', /closes a quiet stream after 2 s/, /^proxy_read_timeout 1h;$/, { quiet: 4 }],
    'sends no address': [`${good.replace('X-Forwarded-For $remote_addr', 'X-Unused ""')}`, 'FAIL', 'address', /^nginx does not report the client: all clients count as 127\.0\.0\.3/, /^proxy_set_header X-Forwarded-For \$remote_addr;$/],
    'is not trusted': [good.replace(TRUSTED, STRANGE), 'FAIL', 'address', /reports the client as 127\.0\.0\.1, but Sluice does not trust it: all clients count as 127\.0\.0\.4/, /^gateway: \{ trusted_proxies: \["127\.0\.0\.4"\], forwarded: x-forwarded-for \}$/],
    'has no HTTP/2': [good, 'warn', 'protocol', /https without HTTP\/2/, /^listen 443 ssl http2;/, { tls: true }],
    'speaks HTTP/1.0': [good.replace('1.1', '1.0'), 'FAIL', 'upstream', /HTTP\/1\.0/, /^proxy_http_version 1\.1;/],
    'ignores that clients leave': [`${good} proxy_ignore_client_abort on;`, 'FAIL', 'disconnects', /does not notice that a client has left/, /^proxy_ignore_client_abort off;$/],
    'refuses bodies': [`${good} client_max_body_size 10k;`, 'FAIL', 'bodies', /refuses a body of 1 MB with status 413/, /^client_max_body_size 1m;$/],
    'removes the key': [`${good} proxy_set_header Authorization "";`, 'FAIL', 'key', /removes the header Authorization/, /^proxy_set_header Authorization \$http_authorization;$/],
    'does not reach Sluice': [good, 'FAIL', 'server', /something else answers here: Server: nginx.*status 502: the proxy does not reach Sluice/, /^proxy_pass http:\/\/127\.0\.0\.1:8080;/, { down: true }],
    'changes the content type': [`${good} proxy_hide_header Content-Type; add_header Content-Type text/plain;`, 'FAIL', 'content type', /text\/event-stream to text\/plain/, /Content-Type/],
    'is sound': [good],
  };
  const skip = installed('nginx') ? false : 'nginx is not installed';
  let nginx, ports, log = '';

  before(async () => {
    if (skip) return;
    const entries = Object.entries(FAULTS);
    const [dead, ...free] = await freePorts(entries.length + 1);
    ports = Object.fromEntries(entries.map(([name], i) => [name, free[i]]));
    const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((t) => `${t}_temp_path ${folder}/${t};`).join(' ');
    const blocks = entries.map(([name, [location, , , , , { tls, down } = {}]]) => `server {
      listen 127.0.0.1:${ports[name]}${tls ? ' ssl' : ''};
      ${tls ? `ssl_certificate ${server.state}/tls/cert.pem; ssl_certificate_key ${server.state}/tls/key.pem;` : ''}
      location / { proxy_pass http://${down ? `127.0.0.1:${dead}` : new URL(server.http).host}; ${location} } }`);
    writeFileSync(join(folder, 'nginx.conf'), `daemon off; master_process off; pid ${folder}/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off; ${temp}\n${blocks.join('\n')}\n}\n`);
    nginx = spawn('nginx', ['-e', 'stderr', '-p', folder, '-c', join(folder, 'nginx.conf')], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, PATH } });
    nginx.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
    for (let up = false; !up; await sleep(20)) {
      assert.equal(nginx.exitCode, null, log);
      up = await new Promise((done) => { const s = net.connect(ports['is sound'], '127.0.0.1', () => { s.destroy(); done(true); }).on('error', () => done(false)); });
    }
  });
  after(() => nginx?.kill('SIGKILL'));

  for (const [name, [, ...expected]] of Object.entries(FAULTS)) {
    test(`a proxy that ${name}`, { skip }, async () => {
      const { quiet = 1, tls, also } = expected[4] ?? {};
      const url = tls ? `https://localhost:${ports[name]}` : `http://127.0.0.1:${ports[name]}`;
      const r = await doctor([url, '--cacert', server.caFile, '--quiet-seconds', String(quiet)]);
      if (also) assert.ok(r.faults.some((f) => f.topic === also), r.out);
      if (expected.length) return names({ ...r, faults: r.faults.filter((f) => f.topic !== also) }, ...expected.slice(0, 4));
      assert.equal(r.status, 0, r.out);
      assert.deepEqual(r.faults, [], r.out);
      assert.match(r.checks.find((c) => c.topic === 'server').text, /through nginx/);
    });
  }

  for (const name of ['nginx', 'haproxy']) {
    test(`${name} as documented`, { skip: installed(name) ? false : `${name} is not installed` }, async () => {
      const proxy = await startProxy(name, server);
      try {
        for (const url of [proxy.http, proxy.https.replace('127.0.0.1', 'localhost')]) {
          const r = await doctor([url, '--cacert', server.caFile, '--quiet-seconds', '1']);
          assert.equal(r.status, 0, r.out);
          assert.deepEqual(r.faults, [], r.out);
        }
      } finally { await proxy.kill(); }
    });
  }

  test('no proxy; a wrong key, none; nothing there; no trust', async () => {
    const r = await doctor([server.https.replace('127.0.0.1', 'localhost'), '--cacert', server.caFile, '--quiet-seconds', '0']);
    assert.deepEqual([r.status, r.faults], [0, []], r.out);
    names(await doctor([server.http], { key: 'wrong' }), 'FAIL', 'key', /does not accept this key: Incorrect API key/, /SLUICE_KEY/);
    names(await doctor([server.http], { key: '' }), 'FAIL', 'key', /none was given/, /--key-file/);
    names(await doctor([server.http], { key: server.keys.admin }), 'FAIL', 'key', /administrator/, /a key of a tier/);
    names(await doctor(['http://127.0.0.1:9']), 'FAIL', 'connection', /connect/i, /start what listens there/);
    names(await doctor([server.https]), 'FAIL', 'certificate', /certificate/, /--cacert FILE/);
    names(await doctor([server.https.replace('https', 'http')]), 'FAIL', 'connection', /This port speaks HTTPS/, /https:\/\/ instead of http:\/\//);
    names(await doctor(['gopher://x']), 'FAIL', 'connection', /is not http/, /the URL/);
  });
});

describe('this machine', { concurrency: 4 }, () => {
  let ports, state;
  before(async () => {
    ports = await freePorts(2);
    state = join(folder, 'state');
    mkdirSync(state, { mode: 0o700 });
  });
  const here = (sets = [], more = {}) => doctor([...(more.config ? ['-c', more.config] : []), '--state', more.state ?? state,
    ...[`gateway.http=127.0.0.1:${ports[0]}`, `gateway.https=127.0.0.1:${ports[1]}`, ...sets].flatMap((s) => ['--set', s])], more);
  // A machine that runs tests may lack what a server should have: a control group may limit its processor time, for example.
  const of = (r, ...topics) => ({ ...r, faults: r.faults.filter((f) => topics.includes(f.topic)) });
  const ALL = ['config', 'ports', 'certificate', 'store', 'state', 'models', 'kernels'];

  test('is sound', async () => {
    const r = await here(hasRedis() ? [] : ['cache.store=memory']);
    assert.equal(r.status, 0, r.out);
    assert.deepEqual(of(r, ...ALL).faults, [], r.out);
    assert.deepEqual(ALL.filter((t) => !r.checks.some((c) => c.topic === t)), []);
  });

  test('a port that another program has, and one that a Sluice has', async () => {
    const other = net.createServer((s) => s.end('HTTP/1.0 200 OK\r\n\r\nhello'));
    await new Promise((done) => other.listen(0, '127.0.0.1', done));
    names(of(await here([`gateway.http=127.0.0.1:${other.address().port}`]), ...ALL), 'FAIL', 'ports', /taken by another program/, /^gateway\.http: another port/);
    other.close();
    const r = await here([`gateway.http=${new URL(server.http).host}`, `gateway.https=${new URL(server.https).host}`]);
    assert.equal(r.checks.filter((c) => c.topic === 'ports' && /a running Sluice serves/.test(c.text)).length, 2, r.out);
  });

  test('an unknown key of the configuration', async () => {
    const file = join(folder, 'wrong.yaml');
    writeFileSync(file, 'gateway:\n  htpp: 127.0.0.1:8080\n');
    names(of(await doctor(['-c', file]), ...ALL), 'FAIL', 'config', /wrong\.yaml:2:3: gateway\.htpp: /, /wrong\.yaml/);
    names(of(await here(['gateway.htpp=off']), ...ALL), 'FAIL', 'config', /^--set: gateway\.htpp: /, /^the --set option named above$/);
  });

  test('a certificate that expired, one that is about to, one with another key', async () => {
    const make = (name, days) => {
      const file = (x) => join(folder, `${name}.${x}`);
      execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=x', '-addext', 'subjectAltName=DNS:llm.example.org',
        '-keyout', file('key'), '-out', file('pem'), '-days', String(days)], { stdio: 'ignore' });
      return [file('pem'), file('key')];
    };
    const certificate = async (pem, key) => of(await here([`gateway.cert=${pem}`, `gateway.key=${key}`]), ...ALL);
    const [soon, soonKey] = make('soon', 5), [fine, fineKey] = make('fine', 100);
    names(await certificate(soon, soonKey), 'warn', 'certificate', /expires on \d{4}-\d\d-\d\d, in [45] days/, /^gateway\.cert: a newer certificate/);
    names(await certificate(fine, soonKey), 'FAIL', 'certificate', /key/, /a certificate and its key/);
    const r = await certificate(fine, fineKey);
    assert.deepEqual(r.faults, [], r.out);
    assert.match(r.checks.find((c) => c.topic === 'certificate').text, /for llm\.example\.org until/);
    const encrypted = join(folder, 'encrypted.pem');
    writeFileSync(encrypted, readFileSync(fine, 'utf8').replace('\n', `\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,${'0'.repeat(32)}\n\n`));
    const asked = await certificate(encrypted, fineKey);
    assert.match(asked.faults[0].text, /it is encrypted, and a passphrase is not supported/);
    assert.doesNotMatch(asked.out, /pass phrase:/, 'nothing prompts on the terminal');
    names(await certificate(...expired()), 'FAIL', 'certificate', /expired on 20\d\d-/, /^gateway\.cert: a valid certificate/);
  });

  /** OpenSSL's `req` cannot date a certificate back; `ca` can. */
  function expired() {
    const file = (x) => join(folder, `expired.${x}`);
    execFileSync('openssl', ['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=x', '-keyout', file('key'), '-out', file('csr')], { stdio: 'ignore' });
    writeFileSync(file('index'), '');
    writeFileSync(file('serial'), '01\n');
    writeFileSync(file('conf'), `[ca]\ndefault_ca=c\n[c]\ndatabase=${file('index')}\nserial=${file('serial')}\nnew_certs_dir=${folder}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n`);
    execFileSync('openssl', ['ca', '-batch', '-config', file('conf'), '-selfsign', '-keyfile', file('key'), '-in', file('csr'), '-out', file('pem'),
      '-startdate', '20200101000000Z', '-enddate', '20210101000000Z'], { stdio: 'ignore' });
    return [file('pem'), file('key')];
  }

  test('a Redis that is not there, and one with another password', { skip: hasRedis() ? false : 'no redis-server is installed' }, async () => {
    names(of(await here(['cache.address=127.0.0.1:9']), ...ALL), 'FAIL', 'store', /Redis at 127\.0\.0\.1:9: .*refused/i, /^cache\.address: where Redis listens/);
    const socket = join(folder, 'redis.sock'), secret = join(folder, 'secret');
    const redis = spawn('redis-server', ['--port', '0', '--unixsocket', socket, '--save', '', '--requirepass', 'right'], { cwd: folder, stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      await new Promise((done) => { let said = ''; redis.stdout.setEncoding('utf8').on('data', (d) => { said += d; if (/[Rr]eady to accept/.test(said)) done(); }).once('end', done); });
      writeFileSync(secret, 'wrong\n');
      const sets = [`cache.address=unix:${socket}`, `cache.password_file=${secret}`];
      names(of(await here(sets), ...ALL), 'FAIL', 'store', /WRONGPASS/, /^cache\.password_file: /);
      names(of(await here(sets.slice(0, 1)), ...ALL), 'FAIL', 'store', /NOAUTH/, /^cache\.password_file: /);
      writeFileSync(secret, 'right\n');
      const r = await here(sets);
      assert.match(r.checks.find((c) => c.topic === 'store').text, /^Redis \d+\.\d+\S* at unix:\S+ answers in \d/, r.out);
    } finally { redis.kill('SIGKILL'); }
  });

  test('a model that is missing, and one that is none', async () => {
    names(of(await here(['engine.models.demo-small.path=/nowhere/x.gguf']), ...ALL), 'FAIL', 'models', /demo-small: \/nowhere\/x\.gguf: /, /^engine\.models\.demo-small\.path: /);
    const file = join(folder, 'none.gguf');
    writeFileSync(file, 'GGUF');
    names(of(await here([`engine.models.demo-small.path=${file}`]), ...ALL), 'FAIL', 'models', /demo-small: /, /^engine\.models\.demo-small\.path: /);
  });

  test('an adapter that fits, one that is missing, one with tokens that its model lacks', async () => {
    const config = join(folder, 'adapters.yaml'), adapter = join(folder, 'adapter');
    execFileSync(SLUICE, ['model', 'adapter', 'make', 'etc/models/demo-small.gguf', adapter, '--rank', '2'], { cwd: ROOT });
    const examined = async (path) => {
      writeFileSync(config, readFileSync(join(ROOT, 'etc/sluice.yaml'), 'utf8')
        .replace(/^  adapters: # \(dev\).*\n(?: {4}.*\n)*/m, `  adapters:\n    - { name: style, path: ${path}, model: demo-small }\n`));
      return of(await here(hasRedis() ? [] : ['cache.store=memory'], { config }), ...ALL);
    };
    const r = await examined(adapter);
    assert.deepEqual(r.faults, [], r.out);
    assert.ok(r.checks.some((c) => c.topic === 'models' && /^demo-small:style: PEFT adapter, \d/.test(c.text)), r.out);
    const change = /^engine\.adapters\.style\.path: .* that fits demo-small/;
    names(await examined('/nowhere/x.gguf'), 'FAIL', 'models', /demo-small:style: \/nowhere\/x\.gguf: /, change);
    writeFileSync(join(adapter, 'added_tokens.json'), '{"<tool>": 7}');
    names(await examined(adapter), 'FAIL', 'models', /added_tokens\.json: .*added token "<tool>" with id 7/, change);
  });

  test('the folder of keys and values on disk: open to others, no folder, missing, too small a disk', async () => {
    const open = join(folder, 'kv-open'), file = join(folder, 'kv-file'), good = join(folder, 'kv-good');
    mkdirSync(open);
    chmodSync(open, 0o755);
    mkdirSync(good, { mode: 0o700 });
    writeFileSync(file, '');
    const on = (path, bytes = '64MiB') => here([`engine.kv_disk.bytes=${bytes}`, ...(path ? [`engine.kv_disk.folder=${path}`] : [])]);
    const KV = [...ALL.slice(0, 5), 'kv_disk', ...ALL.slice(5)];
    names(of(await on(open), ...KV), 'FAIL', 'kv_disk', /other users may read or write it \(mode 0755\)/, /^chmod 700 /);
    names(of(await on(file), ...KV), 'FAIL', 'kv_disk', /is not a folder/, /^engine.kv_disk.folder: /);
    names(of(await on(join(folder, 'kv-none')), ...KV), 'FAIL', 'kv_disk', /does not exist/, /^engine.kv_disk.folder: /);
    names(of(await on(good, '16TiB'), ...KV), 'warn', 'kv_disk', /MiB are free/, /^engine.kv_disk.bytes: /);
    assert.match(JSON.stringify(of(await on(good), ...KV)), /MiB are free/);
    assert.match(JSON.stringify(of(await on(''), ...KV)), /MiB are free/);
  });

  test('a state folder that others may write to, that is no folder, whose parent is missing', async () => {
    const open = join(folder, 'open'), file = join(folder, 'file');
    mkdirSync(open);
    chmodSync(open, 0o777);
    writeFileSync(file, '');
    names(of(await here([], { state: open }), ...ALL), 'FAIL', 'state', /other users may write to it \(mode 0777\)/, /^chmod go-w /);
    names(of(await here([], { state: file }), ...ALL), 'FAIL', 'state', /is not a folder/, /^state: a folder/);
    names(of(await here([], { state: join(folder, 'a/b') }), ...ALL), 'FAIL', 'state', /nor does the folder above it/, /^state: a folder/);
    if (process.getuid() !== 0) names(of(await here([], { state: '/proc/sluice' }), ...ALL), 'FAIL', 'state', /not writable|cannot be created/, /^state: a folder/);
  });

  test('lines, and a summary', async () => {
    const r = await new Promise((done) => execFile(SLUICE, ['doctor', '--state', state, '--set', 'gateway.htpp=1'], { cwd: ROOT }, (e, out, err) => done({ status: e?.code, out, err })));
    assert.equal(r.status, 1);
    assert.match(r.out, /^FAIL  config +.*gateway\.htpp.*\n {6}change: .*\nok    machine /m);
    assert.match(r.out, /\n\d+ ok, \d+ to look at, 1 wrong\n$/);
    assert.equal(r.err, '');
  });
});

test('a probe: its bounds, and how it ended', async () => {
  const ask = (path, key = server.keys.paid) => request(server.http, path, { headers: { authorization: `Bearer ${key}` } });
  for (const [name, most] of [['events', 100], ['interval_ms', 10_000], ['quiet_ms', 120_000]]) {
    for (const bad of [most + 1, 'x', -1]) {
      const r = await ask(`/v1/probe?${name}=${bad}`);
      assert.deepEqual([r.status, JSON.parse(r.body).error.param], [400, name], `${name}=${bad}: ${r.body}`);
    }
  }
  const events = [...(await ask('/v1/probe?events=3&interval_ms=1')).body.matchAll(/^data: (.*)$/gm)].map((m) => JSON.parse(m[1]));
  assert.deepEqual(events.map((e) => e.event), [0, 1, 2, 3]);
  assert.deepEqual(events.map((e) => e.last ?? false), [false, false, false, true]);
  const { id, http, tls, client, x_forwarded_for: xff } = events[0];
  assert.deepEqual([http, tls, client, xff], ['1.1', false, '127.0.0.1', null]);
  assert.deepEqual(JSON.parse((await ask(`/v1/probe/${id}`)).body), { id, state: 'complete' });
  assert.equal(JSON.parse((await ask('/v1/probe/probe_unknown')).body).error.code, 'probe_not_found');
  assert.equal((await ask(`/v1/probe/${id}`, server.keys.free)).status, 404, "another tenant's");
  for (const [query, status] of [['events=100&interval_ms=1301', 400], ['events=13&interval_ms=10000&quiet_ms=1', 400]]) {
    const r = await ask(`/v1/probe?${query}`);
    assert.deepEqual([r.status, JSON.parse(r.body).error.param], [status, 'interval_ms'], query);
  }
  const head = await request(server.http, '/v1/probe?events=0', { method: 'HEAD', headers: { authorization: `Bearer ${server.keys.paid}` } });
  assert.deepEqual([head.status, head.body], [200, '']);
});

/** A probe that is silent: {id, body: the rest of it, leave()}, or {status, retry, error} where it was refused. */
async function silent({ http: base, keys }, key = keys.paid) {
  const req = get(`${base}/v1/probe?events=1&quiet_ms=120000`, { agent: false, headers: { authorization: `Bearer ${key}` } });
  const res = await new Promise((done, fail) => req.once('response', done).once('error', fail));
  const pieces = [];
  let more = () => {};
  const closed = new Promise((done) => res.once('close', done));
  req.on('error', () => {}); // left
  res.setEncoding('utf8').on('error', () => {}).on('data', (piece) => { pieces.push(piece); more(); });
  if (res.statusCode !== 200) {
    await closed;
    return { status: res.statusCode, retry: res.headers['retry-after'], error: JSON.parse(pieces.join('')).error };
  }
  while (pieces.length === 0) await new Promise((done) => { more = done; });
  const { id } = JSON.parse(pieces.shift().replace(/^data: /, ''));
  const rest = async () => { await closed; return pieces.join(''); };
  return { status: 200, id, rest, leave: () => req.destroy() };
}

test('one key holds at most half of the probes, and gives back those that it leaves', async () => {
  const held = [];
  for (let i = 0; i < 16; i++) held.push(await silent(server));
  assert.deepEqual(held.map((p) => p.status), Array(16).fill(200));
  const more = await silent(server);
  assert.deepEqual([more.status, more.error.code, more.retry], [429, 'too_many_probes', '1']);
  const other = [];
  for (let i = 0; i < 16; i++) other.push(await silent(server, server.keys.free));
  assert.deepEqual(other.map((p) => p.status), Array(16).fill(200));
  const full = await silent(server, THIRD);
  assert.deepEqual([full.status, full.error.code, full.retry], [503, 'too_many_probes', '1']);
  held[0].leave();
  const state = async (id) => JSON.parse((await request(server.http, `/v1/probe/${id}`, { headers: { authorization: `Bearer ${server.keys.paid}` } })).body).state;
  assert.ok(await until(async () => await state(held[0].id) === 'left', 20_000));
  const again = await silent(server);
  assert.equal(again.status, 200);
  for (const p of [...held.slice(1), ...other, again]) p.leave();
});

test('readers that take nothing over HTTP/2 lose their probes', async () => {
  const own = await startServer({ echo: true, sets: ['gateway.limits.stall=5s'] });
  const session = http2.connect(own.http, { settings: { initialWindowSize: 1 } });
  const stream = (path) => {
    const s = session.request({ ':path': path, authorization: `Bearer ${own.keys.paid}` });
    s.on('error', () => {});
    return { s, status: new Promise((done) => s.once('response', (h) => done(h[':status']))), closed: new Promise((done) => s.once('close', () => done(s.rstCode))) };
  };
  try {
    const slow = Array.from({ length: 16 }, () => stream('/v1/probe?events=100&interval_ms=1&quiet_ms=120000'));
    assert.deepEqual(await Promise.all(slow.map((x) => x.status)), Array(16).fill(200));
    assert.equal((await silent(own)).status, 429, 'each holds its place');
    assert.deepEqual((await Promise.all(slow.map((x) => x.closed))).map((code) => code !== http2.constants.NGHTTP2_NO_ERROR), Array(16).fill(true));
    let again;
    assert.ok(await until(async () => (again = await silent(own)).status === 200, 60_000));
    again.leave();
  } finally { session.destroy(); }
  assert.equal(await own.stop(), 0, own.log());
});

test('a server that stops ends a silent probe', async () => {
  const own = await startServer({ echo: true, sets: ['gateway.drain=14s'] });
  const probe = await silent(own);
  const rest = probe.rest();
  assert.equal(await own.stop(), 0, own.log());
  assert.equal(await rest, '', 'ended as a whole response, without the last event');
});
