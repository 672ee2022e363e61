// SPDX-License-Identifier: Apache-2.0
// `sluice pull` and its relatives against a stand-in hub (hub_mock.mjs): interruptions, every fault, names, tokens, rights,
// and a chat with what was pulled. SLUICE_PULL_MB=1024 pulls a gigabyte.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { ROOT, SLUICE, request, startServer } from './harness.mjs';
import { joined, literal, seeded, startHub } from './hub_mock.mjs';

const MB = 1 << 20, SIZE = Number(process.env.SLUICE_PULL_MB ?? 64) * MB;
const root = mkdtempSync(join(tmpdir(), 'sluice-pull-'));
const demo = literal(readFileSync(join(ROOT, 'etc/models/demo-small.gguf')));
const tiny = joined(demo, seeded(7, SIZE - demo.size)); // a loader ignores what follows the last tensor
const repos = { 'acme/tiny-GGUF': { 'README.md': literal(Buffer.from('hello')), 'tiny-Q8_0.gguf': tiny } };
let hub;

before(async () => {
  hub = await startHub(repos);
  mkdirSync(join(root, 'outside'));
});
after(() => {
  hub.stop();
  rmSync(root, { recursive: true, force: true });
});

/** Starts a subcommand: {child, ended → {code, out, err}}. */
function start(args, { env = {}, cwd = ROOT } = {}) {
  const child = spawn(SLUICE, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '', err = '';
  child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
  child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
  return { child, ended: once(child, 'close').then(([code, signal]) => ({ code: code ?? signal, out, err })) };
}

/** What every call here has in common; sets come last. */
const common = (folder, sets = []) => ['--folder', folder, ...[`hub.endpoint=${hub.url}`, 'hub.retry_wait=1ms', ...sets].flatMap((s) => ['--set', s])];
const pull = (folder, source, { sets, args = [], env } = {}) => start(['pull', source, ...args, ...common(folder, sets)], { env });

let folders = 0;
/** A new models folder. */
function newFolder() {
  folders += 1;
  return join(root, `models-${folders}`);
}

/** All names below a folder, but not those of staging folders. */
function visible(folder) {
  return existsSync(folder) ? readdirSync(folder).filter((f) => !f.startsWith('.')) : [];
}

async function sha256(path) {
  const h = createHash('sha256');
  for await (const piece of createReadStream(path)) h.update(piece);
  return h.digest('hex');
}

function digestOf(source) {
  const h = createHash('sha256');
  for (let at = 0; at < source.size;) {
    const piece = source.read(at, source.size);
    h.update(piece);
    at += piece.length;
  }
  return h.digest('hex');
}

const promise = () => {
  let keep;
  const p = new Promise((done) => { keep = done; });
  return [p, keep];
};

/** Requests of files, since the last call. */
function filesAsked(host = 'files') {
  const all = hub.requests.filter((r) => r.host === host && !r.path.startsWith('/api/'));
  hub.requests.length = 0;
  return all;
}

const childOf = (pid) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);

test('three interruptions: cut, killed, silent; resumed, verified, and chatted with', async (t) => {
  const folder = newFolder(), third = Math.floor(SIZE / 4);
  const [stalled, reached] = promise();
  let closed, n = 0;
  hub.on = (asked, res) => {
    if (asked.host !== 'files') return null;
    n += 1;
    if (n === 1) return { cut: third }; // the server closes
    if (n === 3) return { stall: third }; // silence, after the restart
    if (n > 3) return null;
    closed = once(res, 'close');
    return { stall: third, reached };
  };
  const first = pull(folder, 'hf:acme/tiny-GGUF:Q8_0');
  await stalled;
  const status = readFileSync(`/proc/${childOf(first.child.pid)}/status`, 'utf8');
  const field = (name) => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)[1];
  assert.equal(field('NoNewPrivs'), '1');
  assert.equal(field('Seccomp'), '2', 'system calls are filtered');
  assert.match(field('CapEff'), /^0+$/, 'it has no capabilities');
  if (process.getuid() === 0) assert.notEqual(field('Uid'), '0');
  first.child.kill('SIGKILL');
  await Promise.all([first.ended, closed]); // the process that downloads ends with it
  assert.deepEqual(visible(folder), [], 'no model is visible half');

  const second = await pull(folder, 'hf:acme/tiny-GGUF:Q8_0', { sets: ['hub.stall=1s'] }).ended;
  assert.deepEqual([second.code, second.err], [0, '']);
  const path = second.out.trim();
  assert.equal(path, join(folder, 'tiny-GGUF-Q8_0/tiny-Q8_0.gguf'));
  const starts = filesAsked().map((r) => Number(/^bytes=(\d+)-$/.exec(r.headers.range ?? 'bytes=0-')[1]));
  assert.equal(starts.length, 4);
  for (let i = 1; i < starts.length; i++) assert.ok(starts[i] > starts[i - 1], `each attempt continued: ${starts}`);
  assert.equal(await sha256(path), digestOf(tiny));
  assert.deepEqual(readdirSync(folder), ['tiny-GGUF-Q8_0'], 'nothing is left of the attempts');
  assert.deepEqual(readdirSync(join(folder, 'tiny-GGUF-Q8_0')).sort(), ['.sluice.json', 'tiny-Q8_0.gguf']);

  hub.on = () => null;
  assert.equal((await pull(folder, 'hf:acme/tiny-GGUF:Q8_0').ended).code, 0);
  assert.deepEqual(filesAsked(), [], 'what is up to date is not fetched again');

  const server = await startServer({ sets: [`hub.folder=${folder}`, `hub.endpoint=${hub.url}`, 'engine.models=',
    'engine.models.tiny.path=tiny-GGUF-Q8_0', 'engine.models.tiny.role=large'] });
  t.after(() => server.stop());
  const answer = await chat(server.http, server.keys.paid, { model: 'tiny', max_tokens: 4, messages: user('Hello') });
  assert.ok(answer.text.length > 0, 'it answers');
  hub.requests.length = 0;
  for (const model of ['hf:acme/tiny-GGUF:Q8_0', 'acme/tiny-GGUF', 'tiny-GGUF-Q8_0']) {
    const res = await request(server.http, '/v1/chat/completions', { method: 'POST',
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: user('x') }) });
    assert.equal(res.status, 404, `${model} is not downloaded for a request`);
  }
  assert.deepEqual(hub.requests, []);
  for (const pid of Object.values(await server.pids()))
    assert.doesNotMatch(readFileSync(`/proc/${pid}/maps`, 'utf8'), /libcurl/);

  // The server's own HTTPS as a hub whose authority nobody knows, then somebody.
  const tls = { sets: [`hub.endpoint=${server.https}`, 'hub.retries=0'] };
  const unknown = await pull(folder, 'hf:a/b', tls).ended;
  assert.match(unknown.err, /^sluice: hf:a\/b: .*certificate.*\n$/i);
  tls.sets.push(`hub.ca_file=${server.caFile}`);
  assert.match((await pull(folder, 'hf:a/b', tls).ended).err, /does not exist at .* \(404\)\n$/);

  // A hub with TLS that sends to one without.
  const pem = (name) => readFileSync(join(server.state, 'tls', name));
  const leading = https.createServer({ cert: pem('cert.pem'), key: pem('key.pem') }, (req, res) => res.writeHead(302, { location: `${hub.url}/x` }).end());
  t.after(() => { leading.closeAllConnections(); leading.close(); });
  await once(leading.listen(0, '127.0.0.1'), 'listening');
  tls.sets[0] = `hub.endpoint=https://127.0.0.1:${leading.address().port}`;
  assert.match((await pull(folder, 'hf:a/b', tls).ended).err, /^sluice: hf:a\/b: refused a redirect to http:\S+ not an https address\n$/);
  assert.deepEqual(hub.requests, []);
});

// ---- faults ----

const PLAIN = 'acme/plain-GGUF';
/** A repository of one file, made by change(entry). */
function plain(change = (f) => f) {
  repos[PLAIN] = { 'p.gguf': change(joined(demo, seeded(9, 2 * MB))) };
}
const listed = (changes) => (f) => ({ ...f, listed: { type: 'file', path: 'p.gguf', size: f.size, oid: '0'.repeat(40), lfs: { oid: digestOf(f), size: f.size }, ...changes } });
const onFile = (change) => (asked) => (asked.host === 'files' ? change : null);
const answer = (status, headers = {}, where = '/api/', body = 'x') => (asked, res) => {
  if (!asked.path.startsWith(where)) return null;
  res.writeHead(status, headers).end(body);
  return true;
};

const faults = [
  ['a shorter announced length', { on: onFile({ length: 1000 }) }, /p\.gguf: wrong length: 1000 bytes instead of \d+/],
  ['another total of the range', { on: onFile({ cut: MB, total: 99 }), args: [] }, /wrong length: 99 bytes/, { first: { cut: MB } }],
  ['a longer body', { on: onFile({ length: null, extra: Buffer.alloc(10) }) }, /wrong length: more than the announced/],
  ['a wrong digest', { make: listed({ lfs: { oid: 'ab'.repeat(32), size: 2 * MB + demo.size } }) }, /wrong digest/],
  ['../ in a name', { make: listed({ path: '../outside/x.gguf' }) }, /unsafe name: "\.\.\/outside\/x\.gguf"/],
  ['an absolute name', { make: listed({ path: '/etc/x.gguf' }) }, /unsafe name/],
  ['a control character in a name', { make: listed({ path: 'a\nb.gguf' }) }, /unsafe name/],
  ['no digest', { make: listed({ lfs: undefined, oid: '12' }) }, /without a valid size and digest/],
  ['a list that is none', { on: answer(200) }, /list of files is malformed/],
  ['a redirect loop', { on: answer(302, { location: '?again' }, '/acme/') }, /redirect loop|more than 8 redirects/],
  ['a redirect to another scheme', { on: answer(302, { location: 'file:///etc/passwd' }, '/acme/') }, /refused a redirect to file:/],
  ['a list on another host', { on: (asked, res) => asked.host === 'hub' && answer(307, { location: `${hub.files}${asked.path}` })(asked, res) }, /refused a redirect of the list of files to another host/],
  ['a next page on another host', { on: answer(200, { link: '<http://elsewhere.example/x>; rel="next"' }, '/api/', '[]') }, /next page of the list of files is at another host/],
  ['no such repository', { source: 'hf:acme/none' }, /does not exist at .* \(404\)/],
  ['no such file', { on: answer(404, {}, '/acme/') }, /does not exist at .* \(404\)/],
  ['a gated repository', { on: answer(401) }, /needs a token that may read it.*hub\.token_file/],
  ['a token without the right', { on: answer(403), token: true }, /the token may not read it/],
  ['too many requests, for long', { on: answer(429, { 'retry-after': '3600' }) }, /429 \(too many requests\)/],
  ['a server that is down', { on: answer(503) }, /answers 503/],
  ['headers without an end', { on: answer(200, { 'x-long': Array(12).fill('x'.repeat(8000)) }) }, /headers are longer than 64 KiB/],
  ['a disk that is too small', { make: listed({ lfs: { oid: 'ab'.repeat(32), size: 9e15 } }) }, /disk is too full: \d+ MiB are needed, \d+ MiB are free/],
  ['no model', { make: () => ({ ...literal(Buffer.alloc(2 * MB)) }) }, /this build can't run it: p\.gguf: not a GGUF file/],
  ['no such tag', { source: `hf:${PLAIN}:Q9` }, /no GGUF file is tagged Q9/],
  ['an address that announces no length', { url: true, on: (a, res) => { res.writeHead(200); res.write('GGUF'); res.end(); return true; } }, /does not announce the file's size/],
  ['an address with another digest', { url: true, args: ['--sha256', '00'.repeat(32)] }, /wrong digest/],
];

test('each fault is one line; no model is visible, nothing lies outside of the folder', async () => {
  const secret = join(root, 'token');
  writeFileSync(secret, 'hf_secret\n', { mode: 0o600 });
  for (const [name, how, message, more] of faults) {
    const folder = newFolder();
    let n = 0;
    plain(how.make);
    hub.on = (asked, res) => {
      if (more?.first && asked.host === 'files' && ++n === 1) return more.first;
      return how.on?.(asked, res);
    };
    const source = how.source ?? (how.url ? `${hub.files}/${PLAIN}/resolve/main/p.gguf` : `hf:${PLAIN}`);
    const sets = ['hub.retries=1', ...(how.url ? [`hub.endpoint=${hub.files}`] : [])];
    const { code, out, err } = await pull(folder, source, { sets, args: [...(how.args ?? []), ...(how.token ? ['--token-file', secret] : [])] }).ended;
    assert.equal(code, 1, `${name}: ${err}`);
    assert.equal(out, '', name);
    assert.match(err, message, name);
    assert.match(err, /^sluice: [^\n]*\n$/, `${name}: one line`);
    assert.doesNotMatch(err, /hf_secret/);
    assert.deepEqual(readdirSync(folder), [], `${name}: nothing is left`);
    assert.deepEqual(readdirSync(join(root, 'outside')), [], name);
  }
  assert.deepEqual(readdirSync(root).filter((f) => !/^(models-\d+|outside|token)$/.test(f)), []);
});

test('what another attempt may complete stays: a slow server, a broken one', async () => {
  const folder = newFolder();
  plain();
  hub.on = onFile({ drip: 100 });
  const slow = await pull(folder, `hf:${PLAIN}`, { sets: ['hub.retries=0', 'hub.stall=1s', 'hub.least_rate=1MiB'] }).ended;
  assert.match(slow.err, /^sluice: .*: slower than 1048576 bytes a second for 1 s; the same command continues\n$/);
  assert.deepEqual(visible(folder), []);
  hub.on = onFile({ cut: MB });
  const cut = await pull(folder, `hf:${PLAIN}`, { sets: ['hub.retries=0'] }).ended;
  assert.match(cut.err, /^sluice: .*: the connection was closed early; the same command continues\n$/);
  const list = await start(['list', ...common(folder)]).ended;
  assert.match(list.out, /^plain-GGUF +\d.* \d+ % +hf:acme\/plain-GGUF$/m, 'it is listed as what it is');
  hub.on = () => null;
  filesAsked();
  assert.equal((await pull(folder, `hf:${PLAIN}`).ended).code, 0);
  assert.match(filesAsked()[0].headers.range, /^bytes=\d{7}-$/);
});

test('a server without ranges, and a part that is damaged, cost a new beginning; the file is right', async () => {
  for (const damage of [false, true]) {
    const folder = newFolder();
    plain();
    const source = repos[PLAIN]['p.gguf'];
    hub.on = onFile({ cut: MB });
    assert.equal((await pull(folder, `hf:${PLAIN}`, { sets: ['hub.retries=0'] }).ended).code, 1);
    if (damage) writeFileSync(join(folder, '.plain-GGUF.pull/p.gguf.part'), Buffer.alloc(MB));
    hub.on = (asked, res, req) => {
      if (!damage) delete req.headers.range;
      return null;
    };
    const { code, out, err } = await pull(folder, `hf:${PLAIN}`).ended;
    assert.deepEqual([code, err], [0, '']);
    assert.equal(await sha256(out.trim()), digestOf(source));
  }
});

test('a disk that fills meanwhile', async (t) => {
  const folder = newFolder(), size = 80 * MB;
  mkdirSync(folder);
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=777`, 'tmpfs', folder]).status !== 0) {
    t.skip('only root may mount a small disk');
    return;
  }
  t.after(() => assert.equal(spawnSync('umount', [folder]).status, 0));
  const [reached, arrived] = promise(), [released, go] = promise();
  plain();
  hub.on = onFile({ hold: MB, reached: arrived, until: released });
  const running = pull(folder, `hf:${PLAIN}`);
  await reached;
  spawnSync('dd', ['if=/dev/zero', `of=${join(folder, 'filler')}`, 'bs=65536']);
  go();
  const full = await running.ended;
  assert.match(full.err, /^sluice: hf:acme\/plain-GGUF: p\.gguf: the disk is full; what was received is kept for the next pull\n$/);
  assert.deepEqual(visible(folder), ['filler']);
  hub.on = () => null;
  assert.match((await pull(folder, `hf:${PLAIN}`).ended).err, /^sluice: .*: (the disk is too full|can't write here|can't create).*\n$/);
  rmSync(join(folder, 'filler'));
  assert.equal((await pull(folder, `hf:${PLAIN}`).ended).code, 0, 'with room it is completed');
});

test('a token goes to the hub, not to the host that it redirects to; its file must be private', async () => {
  const folder = newFolder(), file = join(root, 'token-2');
  writeFileSync(file, 'hf_0123\n', { mode: 0o600 });
  plain();
  hub.on = () => null;
  hub.requests.length = 0;
  assert.equal((await pull(folder, `hf:${PLAIN}`, { env: { HF_TOKEN_FILE: file } }).ended).code, 0);
  const by = (host) => hub.requests.filter((r) => r.host === host).map((r) => r.headers.authorization);
  assert.deepEqual(new Set(by('hub')), new Set(['Bearer hf_0123']));
  assert.deepEqual(by('files'), [undefined]);
  chmodSync(file, 0o644);
  const { code, err } = await pull(folder, `hf:${PLAIN}`, { args: ['--token-file', file] }).ended;
  assert.equal(code, 64);
  assert.match(err, /^sluice: .*token-2: must be a file of your own with mode 0600\n$/);
  chmodSync(file, 0o600);
  const clear = await pull(folder, `hf:${PLAIN}`, { args: ['--token-file', file], sets: ['hub.endpoint=http://hub.example'] }).ended;
  assert.match(clear.err, /^sluice: hub\.endpoint is http:\/\/: the token would be readable on its way\n$/);
});

/** The files of a Llama of one layer, width 8, in float32: {PATH: source}. */
function folderModel() {
  const layer = 'model.layers.0.', shapes = { 'model.embed_tokens.weight': [12, 8], [`${layer}input_layernorm.weight`]: [8],
    [`${layer}self_attn.q_proj.weight`]: [8, 8], [`${layer}self_attn.k_proj.weight`]: [4, 8], [`${layer}self_attn.v_proj.weight`]: [4, 8],
    [`${layer}self_attn.o_proj.weight`]: [8, 8], [`${layer}post_attention_layernorm.weight`]: [8], [`${layer}mlp.gate_proj.weight`]: [16, 8],
    [`${layer}mlp.up_proj.weight`]: [16, 8], [`${layer}mlp.down_proj.weight`]: [8, 16], 'model.norm.weight': [8], 'lm_head.weight': [12, 8] };
  let at = 0;
  const json = JSON.stringify(Object.fromEntries(Object.entries(shapes).map(([name, shape]) => {
    const from = at;
    at += 4 * shape.reduce((x, y) => x * y);
    return [name, { dtype: 'F32', shape, data_offsets: [from, at] }];
  })));
  const head = json.padEnd(Math.ceil(json.length / 8) * 8), length = Buffer.alloc(8);
  length.writeUInt32LE(head.length);
  const text = (value) => literal(Buffer.from(JSON.stringify(value)));
  return {
    'config.json': text({ model_type: 'llama', hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1,
      intermediate_size: 16, max_position_embeddings: 64, rms_norm_eps: 1e-5, hidden_act: 'silu', vocab_size: 12, tie_word_embeddings: false }),
    'tokenizer.json': text({ added_tokens: [{ id: 0, content: '<s>', special: true }], pre_tokenizer: { type: 'ByteLevel', use_regex: true },
      model: { type: 'BPE', vocab: { a: 2, b: 3, ab: 5 }, merges: ['a b'] } }),
    'tokenizer_config.json': text({ chat_template: '{{ messages[0].content }}' }),
    '1_Pooling/config.json': text({ pooling_mode_mean_tokens: true }),
    'model.safetensors': literal(Buffer.concat([length, Buffer.from(head), Buffer.alloc(at)])),
  };
}

test('a folder of safetensors: pages of a list, 429 and again, neither pickles nor code', async () => {
  const folder = newFolder(), wanted = folderModel();
  repos['acme/folder'] = { ...wanted, ...Object.fromEntries(['pytorch_model.bin', 'modeling.py', 'tokenizer.model', '.gitattributes',
    'onnx/model.onnx'].map((n) => [n, literal(Buffer.from(n))])) };
  hub.page = 3;
  let refused = 0;
  hub.on = (asked, res) => (asked.path.startsWith('/api/') && ++refused === 1 ? answer(429)(asked, res) : null);
  hub.requests.length = 0;
  const { code, out, err } = await pull(folder, 'hf:acme/folder').ended;
  hub.page = 1000;
  assert.deepEqual([code, out, err], [0, `${join(folder, 'folder')}\n`, '']);
  assert.equal(hub.requests.filter((r) => r.path.startsWith('/api/')).length, 5, 'four pages, one of them twice');
  assert.deepEqual(filesAsked('hub').map((r) => r.path.replace('/acme/folder/resolve/main/', '')).sort(), Object.keys(wanted).sort());
  for (const [path, source] of Object.entries(wanted)) assert.equal(await sha256(join(folder, 'folder', path)), digestOf(source), path);
  const inspected = spawnSync(SLUICE, ['model', 'inspect', join(folder, 'folder')], { encoding: 'utf8' });
  assert.match(inspected.stdout, /^runs here +yes$/m, inspected.stderr);
});

test('names: another source, another process, --name, rm, an address', async () => {
  const folder = newFolder(), [reached, arrived] = promise(), [released, go] = promise();
  plain();
  hub.on = onFile({ hold: MB, reached: arrived, until: released });
  const running = pull(folder, `hf:${PLAIN}`);
  await reached;
  assert.match((await pull(folder, `hf:${PLAIN}`).ended).err, /^sluice: .*another process is pulling this model\n$/);
  go();
  assert.equal((await running.ended).code, 0);
  hub.on = () => null;
  plain((f) => joined(f, seeded(4, 10))); // a newer one takes its place as a whole
  const newer = await pull(folder, `hf:${PLAIN}`).ended;
  assert.equal(await sha256(newer.out.trim()), digestOf(repos[PLAIN]['p.gguf']));
  assert.deepEqual(readdirSync(folder), ['plain-GGUF']);
  repos['other/plain-GGUF'] = repos[PLAIN];
  assert.match((await pull(folder, 'hf:other/plain-GGUF').ended).err, /plain-GGUF is the model of hf:acme\/plain-GGUF already/);
  assert.equal((await pull(folder, 'hf:other/plain-GGUF', { args: ['--name', 'mine'] }).ended).code, 0);
  assert.equal((await pull(folder, `${hub.url}/${PLAIN}/resolve/main/p.gguf?sig=hidden`).ended).code, 0);
  const list = (await start(['list', ...common(folder)]).ended).out;
  for (const row of [/^mine .*hf:other\/plain-GGUF$/m, /^p +\d.*p\.gguf$/m, /^plain-GGUF .*hf:acme\/plain-GGUF$/m]) assert.match(list, row);
  assert.doesNotMatch(list, /hidden/);
  for (const name of ['../outside', '/etc', '.', '..', '-x', 'a/b']) {
    assert.equal((await start(['rm', '--folder', folder, '--', name]).ended).code, 64, name);
    assert.equal((await pull(folder, `hf:${PLAIN}`, { args: ['--name', name] }).ended).code, 64, name);
  }
  assert.equal((await start(['rm', 'none', '--folder', folder]).ended).code, 1);
  for (const name of ['mine', 'p', `hf:${PLAIN}`]) assert.equal((await start(['rm', name, '--folder', folder]).ended).code, 0, name);
  assert.deepEqual(readdirSync(folder), []);
  assert.ok(statSync(join(root, 'outside')).isDirectory());
});

test('a terminal sees the progress, Ctrl-C ends both processes, and the next pull continues', async () => {
  const folder = newFolder(), part = join(folder, '.plain-GGUF.pull/p.gguf.part');
  plain();
  hub.on = onFile({ stall: MB });
  const { child, ended } = pull(folder, `hf:${PLAIN}`);
  await until(() => existsSync(part) && statSync(part).size === MB, 30000);
  child.kill('SIGINT');
  const { code, err } = await ended;
  assert.deepEqual([code, err], [130, `sluice: hf:${PLAIN}: interrupted; the same command continues\n`]);
  hub.on = () => null;
  filesAsked();
  const line = [SLUICE, 'pull', `hf:${PLAIN}`, ...common(folder)].join(' ');
  const terminal = spawn('script', ['-qec', line, '/dev/null'], { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  let seen = '';
  terminal.stdout.on('data', (d) => { seen += d; });
  assert.deepEqual(await once(terminal, 'close'), [0, null]);
  assert.match(seen, /\r\x1b\[Kp\.gguf {2}3\.5 MB of 3\.5 MB {2}100 %/);
  assert.match(filesAsked()[0].headers.range, /^bytes=1048576-$/);
});

test('the environment names a proxy, as for curl', async () => {
  const folder = newFolder();
  plain();
  hub.redirects = false;
  hub.on = () => null;
  hub.requests.length = 0;
  const { code, err } = await pull(folder, `hf:${PLAIN}`, { sets: ['hub.endpoint=http://hub.example'], env: { http_proxy: hub.url } }).ended;
  hub.redirects = true;
  assert.deepEqual([code, err], [0, '']);
  assert.deepEqual(new Set(hub.requests.map((r) => r.headers.host)), new Set(['hub.example']));
});

test('a hangup that is ignored, as by nohup, ends nothing', async () => {
  const folder = newFolder(), [reached, atHalf] = promise(), [released, go] = promise();
  hub.on = (asked) => (asked.host === 'files' ? { hold: Math.floor(SIZE / 2), until: released, reached: atHalf } : null);
  const child = spawn('sh', ['-c', `trap '' HUP; exec "$0" "$@"`, SLUICE, 'pull', 'hf:acme/tiny-GGUF:Q8_0', ...common(folder)], { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
  const closed = once(child, 'close');
  await reached;
  for (const pid of [child.pid, childOf(child.pid)]) process.kill(pid, 'SIGHUP');
  go();
  assert.deepEqual(await closed, [0, null], err);
  assert.equal(await sha256(join(folder, visible(folder)[0], 'tiny-Q8_0.gguf')), digestOf(tiny));
});

test('run: pulls, serves on a port of its own, and leaves nothing', async () => {
  const folder = newFolder();
  hub.on = () => null;
  plain();
  const { child, ended } = start(['run', `hf:${PLAIN}`, ...common(folder)]);
  let said = '';
  await new Promise((done, failed) => {
    child.stdout.on('data', (d) => { said += d; if (/SLUICE_KEY=\S+\n/.test(said)) done(); });
    ended.then(({ err }) => failed(new Error(err)));
  });
  const [, url, key] = /^(http:\S+)\nSLUICE_KEY=(\S+)\n/.exec(said);
  assert.ok((await chat(url, key, { model: 'p', max_tokens: 2, messages: user('Hello') })).text.length > 0);
  const own = /\/tmp\/sluice-run-\w+/.exec(readFileSync(`/proc/${childOf(child.pid)}/cmdline`, 'utf8'))[0];
  child.kill('SIGTERM');
  assert.equal((await ended).code, 0);
  assert.equal(existsSync(own), false);
  assert.match((await start(['run', 'none', ...common(folder)]).ended).err, /^sluice: none: neither a path nor a model in /);
});
