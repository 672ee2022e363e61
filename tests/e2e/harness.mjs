// SPDX-License-Identifier: Apache-2.0
// Starts a whole server (`sluice serve`) for one test file: its own state folder, its own free ports, stopped and removed
// at the end. What it prints on standard output says how to reach it; its log is kept for failures.
import { createSocket } from 'node:dgram';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const SLUICE = process.env.SLUICE ?? join(ROOT, 'build/sluice');
/** With how many gateway threads the long suites run, one after the other: `make test` has time for 4 only. */
export const THREADS = (process.env.THREADS ?? '1,4').split(',').map(Number);
/** Whether the models of every server are those of a second one, its upstream (startOver). */
export const OVER_UPSTREAM = Boolean(process.env.SLUICE_OVER_UPSTREAM);
/** Options of a test or a suite that looks at what an upstream has to itself: with one it is skipped, for this reason. */
export const localOnly = (why) => (OVER_UPSTREAM ? { skip: `over an upstream: ${why}` } : {});
process.chdir(ROOT); // tests also start build/sluice by themselves, with paths relative to it
const READY_MS = Number(process.env.SLUICE_READY_MS ?? 120000);
const STOP_MS = 30000;

/** Resolves to the socket once it has the port, to null where that is taken. */
const taken = (socket, port, address) => new Promise((done) => {
  socket.once('error', () => done(null));
  if (socket instanceof net.Server) socket.listen(port, address, () => done(socket));
  else socket.bind({ port, address, exclusive: true }, () => done(socket));
});

/**
 * Free TCP ports of 127.0.0.1, from SLUICE_PORTS ("10000-31999") if given. Until this process ends, no other one gets them: those
 * that ask here do not, because the UDP ports of the same numbers stay bound, in this run of the tests and in others on the
 * machine; outgoing connections do not, because the system takes theirs from further up. They are bound on a loopback address of
 * their own, so that a server of HTTP/3 can have its UDP port.
 */
export async function freePorts(n) {
  const [from, to] = (process.env.SLUICE_PORTS ?? '10000-31999').split('-').map(Number);
  const all = to - from + 1, start = randomInt(all), held = [];
  for (let i = 0; held.length < n && i < all; i++) {
    const port = from + ((start + i) % all), lease = createSocket('udp4');
    const server = await taken(lease, port, '127.77.0.1') && await taken(net.createServer(), port, '127.0.0.1');
    if (server) held.push({ port, lease, server });
    else lease.close();
  }
  await Promise.all(held.map(({ server }) => new Promise((done) => server.close(done))));
  for (const { lease } of held) lease.unref();
  if (held.length < n) throw new Error(`no ${n} free ports in ${from}-${to}`);
  return held.map(({ port }) => port);
}

process.setMaxListeners(100);

/** One GET or other small request over cleartext HTTP/1.1: {status, headers, body}. */
export function request(base, path, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((done, failed) => {
    const url = new URL(base);
    const req = http.request({ host: url.hostname, port: url.port, path, method, headers, agent: false }, (res) => {
      let text = '';
      res.setEncoding('utf8');
      res.on('data', (d) => { text += d; });
      res.on('error', failed);
      res.on('end', () => done({ status: res.statusCode, headers: res.headers, body: text }));
    });
    req.on('error', failed);
    req.end(body);
  });
}

/** The children of a process by their subcommand: {engine: pid, gateway: pid}, and redis where there is one; of further engines
 * `engine NAME`. */
function childrenOf(parent) {
  const out = {};
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (Number(ppid) !== parent || state === 'Z') continue;
      const [program, name, option, value] = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0');
      if (/redis-server/.test(program)) out.redis = Number(entry); // it writes its own title
      else if (name) out[option === '--engine' ? `${name} ${value}` : name] = Number(entry);
    } catch { /* it ended while we looked */ }
  }
  return out;
}

/** Whether `sluice serve` finds a redis-server to start. */
export function hasRedis() {
  return (process.env.PATH ?? '').split(':').some((dir) => dir.startsWith('/') && existsSync(join(dir, 'redis-server')));
}

/** The user and group of a process, as options for one that is started to look after it: a server that is started as root has others. */
export function userOf(pid) {
  const [uid, gid] = ['Uid', 'Gid'].map((name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]));
  return { uid, gid };
}

function namesIn(folder) {
  try { return readdirSync(folder); } catch { return []; }
}

/** Of the upstream's tier: what a test limits is the front's. */
const UNLIMITED = ['concurrency=100000', 'max_output=1000000', 'max_prompt=0', 'deadline=0', 'pace_tps=0', 'coalesce=off', 'supersede=off', 'cleanse=off', 'compress=off', 'when_late=queue', 'ttft_target=0',
  'max_wait=0', 'hedge=false', 'default_model=', ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day', 'subject_requests_per_minute', 'under_load.prompt_limit', 'under_load.output_limit'].map((k) => `${k}=0`)];

/** Of the upstream itself: all requests come from one address with one key. */
const NO_LIMITS = ['gateway.limits.requests_per_key=0', 'gateway.limits.connections_per_address=0'];

/**
 * Two servers: `front`, whose engine uses `back`, which has the models (of the demonstration pair, or the echo's). engine:
 * what of the settings is the back's; front: more of how the front starts. → {front, back}
 */
export async function startPair({ sets = [], engine = [], echo = false, adapters = false, edit = null, frontEdit = null, dialect = 'vllm', https = false, front: more = {} } = {}) {
  const back = await startServer({ echo, adapters, edit, direct: true, sets: [...engine, 'cache.store=memory', ...NO_LIMITS, ...UNLIMITED.map((s) => `gateway.tiers.paid.${s}`)] });
  const keyFile = join(back.state, 'upstream.key');
  writeFileSync(keyFile, `${back.keys.paid}\n`, { mode: 0o600 });
  const names = JSON.parse((await request(back.http, '/v1/models', { headers: { authorization: `Bearer ${back.keys.paid}` } })).body).data.map((m) => m.id).filter((id) => id !== 'auto');
  const ask = async (path, body) => {
    const r = await request(back.http, path, { method: 'POST', headers: { authorization: `Bearer ${back.keys.paid}`, 'content-type': 'application/json' }, body: JSON.stringify(body) });
    return r.status === 200 ? JSON.parse(r.body).data[0] : null;
  };
  /** What it is beside one that makes text, by trying. */
  const kind = async (model) => {
    const vector = await ask('/v1/embeddings', { model, input: 'x' });
    if (vector) return [`embeddings=${vector.embedding.length}`, `shorten=${await ask('/v1/embeddings', { model, input: 'x', dimensions: 8 }) !== null}`];
    return await ask('/v1/score', { model, text_1: 'x', text_2: 'y' }) ? ['scores=true'] : [];
  };
  const kinds = (await Promise.all(names.map(async (id) => (await kind(id)).map((k) => `engine.upstream.models.${id}.${k}`)))).flat();
  try {
    const front = await startServer({ ...more, direct: true, edit: frontEdit, sets: [`engine.upstream.url=${https ? back.https : back.http}/v1`, `engine.upstream.key_file=${keyFile}`, `engine.upstream.dialect=${dialect}`,
      ...(https ? [`engine.upstream.ca_file=${back.caFile}`] : []), ...names.map((id) => `engine.upstream.models.${id}.role=${{ 'demo-small': 'small', 'demo-large': 'large' }[id] ?? 'none'}`), ...kinds, ...sets] });
    return { front, back };
  } catch (e) {
    await back.stop();
    throw e;
  }
}

/** How many requests at once: as many as the echo engine has slots, so that those that wait do so in front, or any number. */
const atOnce = (sets) => {
  const slots = sets.map((s) => /^engine\.echo\.slots=(\d+)$/.exec(s)?.[1]).find((n) => n > 0);
  return slots ? [`engine.upstream.connections=${slots}`] : ['engine.upstream.connections=4096', 'engine.max_waiting=65536'];
};

/** As startServer, over an upstream: what of the settings is the engine's goes there, everything else is of the server in front. */
async function startOver({ sets, echo, adapters, edit, ...front }) {
  const isEngine = (s) => s.startsWith('engine.');
  const pair = await startPair({ echo, adapters, edit, frontEdit: edit, sets: [...(echo ? atOnce(sets) : []), ...sets.filter((s) => !isEngine(s))], engine: sets.filter(isEngine), front });
  pair.front.ended.then(() => pair.back.stop()); // also if it is killed
  return { ...pair.front, stop: async () => { const status = await pair.front.stop(); await pair.back.stop(); return status; } };
}

/**
 * sets: list of 'key=value' on top of etc/sluice.yaml, or a function that makes it from `ports` more free ports; edit: its
 * text to another; unready: a pattern of the log, of a server whose models do not become ready; echo: the engine without
 * models; adapters: with those of the file, which every engine loads; config, exe: another file, another executable; state: the
 * folder of an earlier server; direct: even if SLUICE_OVER_UPSTREAM is set, which puts an upstream between every server and its
 * models, except those that name one.
 * stop() resolves to the exit status (or the signal's name); left() is what it then left in its run folder.
 * → {http, https, page (address with the keys), keys: {free, paid, admin}, caFile, state, pid, log(), pids(), metrics(),
 *    stop(), left()}
 */
export async function startServer({ sets = [], ports = 0, echo = false, adapters = false, edit = null, unready = null, direct = !OVER_UPSTREAM, config = 'etc/sluice.yaml', exe = SLUICE,
  state = mkdtempSync(join(tmpdir(), 'sluice-e2e-')) } = {}) {
  if (typeof sets === 'function') sets = sets(await freePorts(ports));
  if (!direct && !sets.some((s) => s.startsWith('engine.upstream.'))) return startOver({ sets, echo, adapters, edit, unready, config, exe, state });
  // Not in stop(): a test may look at what a stopped server left behind.
  process.once('exit', () => rmSync(state, { recursive: true, force: true }));
  const [plain, tls] = await freePorts(2);
  // A busy machine is no broken store, no hung process and no engine that is overloaded. Beside other tests, engines with a thread
  // per core spin most of their time; what they answer does not depend on their number (tests/unit/engine/core/test_invariance.c).
  const all = [`gateway.http=127.0.0.1:${plain}`, `gateway.https=127.0.0.1:${tls}`, 'cache.timeout=2s', 'supervisor.hang=60s', 'gateway.limits.submit_wait=60s', 'engine.threads=1', ...(adapters ? [] : ['engine.adapters=']), ...(echo ? ['engine.echo.enabled=true'] : []),
    ...sets];
  if (edit) {
    const from = config;
    config = join(state, 'sluice.yaml');
    writeFileSync(config, edit(readFileSync(from, 'utf8')));
  }
  const child = spawn(exe, ['serve', '-c', config, '--state', state, ...all.flatMap((s) => ['--set', s])],
    { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '', said = '', page = '';
  let left = [];
  const keys = {};
  const ended = new Promise((done) => child.once('close', (code, signal) => done({ code, signal })));
  let seen = () => {};
  child.stderr.setEncoding('utf8').on('data', (d) => { log += d; if (unready?.test(log)) seen('ready'); });

  const ready = new Promise((done) => {
    seen = done;
    child.stdout.setEncoding('utf8').on('data', (d) => {
      said += d;
      for (let i; (i = said.indexOf('\n')) >= 0;) {
        const line = said.slice(0, i);
        said = said.slice(i + 1);
        const key = /^key-(\w+) (\S+)$/.exec(line);
        if (key) keys[key[1]] = key[2];
        if (line.startsWith('page ')) page = line.slice(5);
        if (line === 'ready') done('ready');
      }
    });
  });

  async function stop() {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    const { code, signal } = await ended;
    clearTimeout(late);
    left = namesIn(join(state, 'run'));
    return signal ?? code;
  }

  let timer;
  const what = await Promise.race([ready, ended.then(() => 'ended'),
    new Promise((done) => { timer = setTimeout(() => done('late'), READY_MS); })]);
  clearTimeout(timer);
  if (what !== 'ready') {
    await stop();
    throw new Error(`the server is not ready (${what}):\n${log}`);
  }
  const base = `http://127.0.0.1:${plain}`;
  return {
    http: base,
    https: `https://127.0.0.1:${tls}`,
    page, keys, state, pid: child.pid, stop, ended,
    left: () => left,
    caFile: join(state, 'tls/cert.pem'),
    log: () => log,
    pids: async () => childrenOf(child.pid),
    metrics: async () => (await request(base, '/metrics', { headers: { authorization: `Bearer ${keys.admin}` } })).body,
  };
}
