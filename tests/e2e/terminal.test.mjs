// SPDX-License-Identifier: Apache-2.0
// `sluice chat` and `sluice batch` as a person at a terminal runs them.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { SLUICE, startServer } from './harness.mjs';
import { onTerminal } from './terminal.mjs';

const USAGE = 64;
let server, folder, env;
const open = new Set(); // what a test that fails leaves

before(async () => {
  server = await startServer({ sets: ['gateway.tiers.paid.requests_per_minute=0', 'gateway.tiers.paid.tokens_per_minute=0', 'gateway.tiers.paid.tokens_per_day=0'] });
  folder = mkdtempSync(join(tmpdir(), 'sluice-terminal-'));
  env = { ...process.env, SLUICE_URL: server.http, SLUICE_KEY: server.keys.paid };
});
after(async () => { for (const close of open) close(); await server?.stop(); rmSync(folder, { recursive: true, force: true }); });

/** Runs a command to its end. */
function run(args, { input = '', url = server.http, key = server.keys.paid } = {}) {
  return new Promise((done) => {
    const child = spawn(SLUICE, args, { cwd: folder, env: { ...env, SLUICE_URL: url, SLUICE_KEY: key } });
    let out = '', err = '';
    child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
    child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
    child.once('close', (status, signal) => done({ status, signal, out, err }));
    child.stdin.on('error', () => {});
    child.stdin.end(input);
  });
}

/** A server of its own for one test: answers(request, body, response). */
async function standIn(answers) {
  const s = createServer((req, res) => {
    let body = '';
    req.setEncoding('utf8').on('data', (d) => { body += d; }).once('end', () => answers(req, body, res));
  });
  await new Promise((done) => s.listen(0, '127.0.0.1', done));
  const close = () => { open.delete(close); s.closeAllConnections(); s.close(); };
  open.add(close);
  return { url: `http://127.0.0.1:${s.address().port}`, close };
}

/** A command on a terminal of its own. */
function terminal(args, more = {}) {
  const t = onTerminal([SLUICE, ...args], { cwd: folder, env: { ...env, ...more } });
  open.add(t.kill);
  t.ended.then(() => open.delete(t.kill));
  return t;
}

const PARIS = 'The capital of France is Paris.\n';

test('one answer: from an argument, from a pipe, by a key file', async () => {
  assert.deepEqual(await run(['chat', 'What is the capital of France?']), { status: 0, signal: null, out: PARIS, err: '' });
  assert.equal((await run(['chat', '--model', 'demo-large'], { input: 'What is the capital of France?' })).out, PARIS);
  writeFileSync(join(folder, 'key'), `${server.keys.paid}\n`);
  assert.equal((await run(['chat', '--key-file', 'key', 'What is the capital of France?'], { key: '' })).out, PARIS);
});

test('what goes wrong is one line', async () => {
  const bad = async (args, options, status, line) => {
    const r = await run(args, options);
    assert.equal(r.status, status, r.err);
    assert.match(r.err, line);
    assert.equal(r.out, '');
  };
  await bad(['chat', 'hi'], { key: 'wrong' }, 1, /Incorrect API key provided. \(401\)\nsluice chat: put the API key into SLUICE_KEY/);
  await bad(['chat', 'hi'], { url: 'http://127.0.0.1:9' }, 1, /^sluice chat: http:\/\/127.0.0.1:9: .*connect.*\n$/i);
  await bad(['chat', 'hi'], { url: 'gopher://x' }, 1, /^sluice chat: 'gopher:\/\/x' is not http/);
  await bad(['chat', '--model', 'none', 'hi'], {}, 1, /^sluice chat: .*none.*\(404\)\n$/);
  await bad(['chat', '--temperature', '3', 'hi'], {}, USAGE, /^sluice chat: --temperature: invalid value\n$/);
  await bad(['chat', '--nonsense', 'hi'], {}, USAGE, /^sluice chat: --nonsense: unknown option\n$/);
  await bad(['chat', '--key-file', '/dev/null', 'hi'], {}, USAGE, /^sluice chat: \/dev\/null: .*\n$/);
  await bad(['chat', 'a', 'b'], {}, USAGE, /^sluice chat: b: unexpected argument\n$/);
  await bad(['chat', '--url'], {}, USAGE, /^sluice chat: --url: needs a value\n$/);
});

test('what a server says of an error commands no terminal', async () => {
  const s = await standIn((req, body, res) => { res.writeHead(401); res.end(JSON.stringify({ error: { message: 'no\u001b]0;x\u0007\nentry' } })); });
  const r = await run(['chat', 'hi'], { url: s.url });
  s.close();
  assert.equal(r.status, 1);
  assert.match(r.err, /^sluice chat: http:\S+: no \]0;x {2}entry \(401\)\nsluice chat: put the API key/);
});

test('a conversation on a terminal: remembers, answers anew, is saved and continued', async () => {
  const t = terminal(['chat']);
  await t.until(/auto at .*\/help lists commands\s+>>> /);
  t.type('My name is Anna.\n');
  await t.until(/Anna[\s\S]*>>> /);
  t.type('"""What is\nthe capital of Italy?"""\n');
  await t.until(/The capital of Italy is Rome\.[\s\S]*>>> /);
  t.type('/again\n');
  await t.until(/The capital of Italy is Rome\.[\s\S]*>>> /);
  t.type('/model demo-large\n');
  await t.until(/model: demo-large\s+>>> /);
  t.type('/models\n');
  await t.until(/demo-large \*/);
  t.type('/save talk.json\n');
  await t.until(/saved to talk\.json/);
  t.type('/nonsense\n');
  await t.until(/\/load FILE/);
  t.type('/clear\n');
  t.type('/load talk.json\n');
  await t.until(/4 messages/);
  t.type('/quit\n');
  assert.equal(await t.over(), 0);
  const talk = JSON.parse(readFileSync(join(folder, 'talk.json'), 'utf8'));
  assert.deepEqual(talk.messages.map((m) => m.role), ['user', 'assistant', 'user', 'assistant']);
  assert.equal(talk.messages[2].content, 'What is\nthe capital of Italy?');
});

test('thoughts, markup and calls are shown; nothing commands the terminal; results go back', async () => {
  const bodies = [];
  const sse = (res, ...chunks) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const delta of chunks) res.write(`data: ${JSON.stringify({ model: 'm', choices: [{ index: 0, delta, finish_reason: delta.finish ?? null }] })}\n\n`);
    res.end('data: [DONE]\n\n');
  };
  const s = await standIn((req, body, res) => {
    if (req.url === '/v1/models') return res.end(JSON.stringify({ data: [{ id: 'm' }] }));
    bodies.push(JSON.parse(body));
    if (bodies.length === 1) {
      return sse(res, { reasoning_content: 'hm' }, { content: '**Yes**\x1b]0;x\x07' },
        { tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'add', arguments: '' } }] },
        { tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] }, { tool_calls: [{ index: 0, function: { arguments: '1}' } }] }, { finish: 'tool_calls' });
    }
    return sse(res, { content: 'It is 2.' }, { finish: 'length' });
  });
  writeFileSync(join(folder, 'tools.json'), JSON.stringify([{ type: 'function', function: { name: 'add', parameters: {} } }]));
  const t = terminal(['chat', '--tools', 'tools.json'], { SLUICE_URL: s.url });
  await t.until(/>>> /);
  t.type('What is 1+1?\n');
  const m = await t.until(/([\s\S]*)result> /);
  assert.match(m[1], /\x1b\[2mhm/);
  assert.match(m[1], /\x1b\[1mYes/);
  assert.doesNotMatch(m[1], /\x1b\]/);
  assert.match(m[1].replace(/\x1b\[\d*m/g, ''), /-> add \{"a":1\}/);
  t.type('2\n');
  await t.until(/It is 2\./);
  await t.until(/cut at the length limit/);
  t.type('/quit\n');
  assert.equal(await t.over(), 0);
  s.close();
  assert.equal(bodies[0].tools[0].function.name, 'add');
  assert.deepEqual(bodies[1].messages.slice(-2), [
    { role: 'assistant', content: '**Yes**\x1b]0;x\x07', tool_calls: [{ id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } }] },
    { role: 'tool', tool_call_id: 'c1', content: '2' }]);
});

test('Ctrl-C stops an answer and the server hears of it; the conversation goes on', async () => {
  let gone;
  const left = new Promise((done) => { gone = done; });
  let n = 0;
  const s = await standIn((req, body, res) => {
    if (req.url === '/v1/models') return res.end(JSON.stringify({ data: [{ id: 'm' }] }));
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    if (n++ === 0) {
      res.write(`data: ${JSON.stringify({ choices: [{ delta: { content: 'endless' } }] })}\n\n`);
      return res.once('close', gone);
    }
    return res.end(`data: ${JSON.stringify({ choices: [{ delta: { content: 'done' }, finish_reason: 'stop' }] })}\n\ndata: [DONE]\n\n`);
  });
  const t = terminal(['chat'], { SLUICE_URL: s.url });
  await t.until(/>>> /);
  t.type('go\n');
  await t.until(/endless/);
  t.type('\x03');
  await left;
  await t.until(/\(stopped\)[\s\S]*>>> /);
  t.type('on\n');
  await t.until(/done[\s\S]*>>> /);
  t.type('/quit\n'); // (Ctrl-D right behind the prompt can come before the terminal is raw, and is lost.)
  assert.equal(await t.over(), 0);
  s.close();
});

test('a stream that breaks or is none is an error, and what came is shown', async () => {
  const s = await standIn((req, body, res) => {
    if (req.url === '/v1/models') return res.end(JSON.stringify({ data: [{ id: 'm' }] }));
    const how = JSON.parse(body).messages[0].content;
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    if (how === 'error') return res.end('data: {"error":{"message":"engine\\u001b lost"}}\n\n');
    if (how === 'junk') return res.end('data: {\n\n');
    res.write('data: {"choices":[{"delta":{"content":"half"}}]}\n\n');
    return how === 'short' ? res.end() : setImmediate(() => res.destroy());
  });
  const cases = { short: /^sluice chat: the stream ended before the answer did\n$/, error: /^sluice chat: engine lost\n$/,
    junk: /^sluice chat: an event of the stream is not JSON\n$/, cut: /^sluice chat: .+\n$/ };
  for (const [how, line] of Object.entries(cases)) {
    const r = await run(['chat', how], { url: s.url });
    assert.equal(r.status, 1);
    assert.match(r.err.replace('engine  lost', 'engine lost'), line);
    if (how === 'short') assert.equal(r.out, 'half\n');
  }
  s.close();
});

const question = (i) => ({ custom_id: `q${i}`, method: 'POST', url: '/v1/chat/completions',
  body: { model: 'demo-small', max_tokens: 12, messages: [{ role: 'user', content: `What is ${i % 30} plus ${Math.floor(i / 30)}?` }] } });
const writeBatch = (name, n) => writeFileSync(join(folder, name), Array.from({ length: n }, (_, i) => JSON.stringify(question(i))).join('\n'));
const results = (name) => readFileSync(join(folder, name), 'utf8').split('\n').slice(0, -1).map((l) => JSON.parse(l));

test('a batch of 1,000, killed twice, loses and repeats none', async () => {
  writeBatch('b.jsonl', 1000);
  for (const at of [150, 600]) {
    const child = spawn(SLUICE, ['batch', 'b.jsonl', '--parallel', '4'], { cwd: folder, env });
    const gone = new Promise((done) => child.once('close', done));
    const path = join(folder, 'b.results.jsonl');
    while (!existsSync(path) || readFileSync(path, 'utf8').split('\n').length <= at) await sleep(1);
    child.kill('SIGKILL');
    await gone;
    const n = readFileSync(path, 'utf8').split('\n').length - 1;
    assert.ok(n >= at && n < 1000, `${n} results when it was killed`);
  }
  const r = await run(['batch', 'b.jsonl']);
  assert.equal(r.status, 0, r.err);
  assert.equal(r.err, '1000 of 1000 results in b.results.jsonl\n');
  const all = results('b.results.jsonl');
  assert.equal(all.length, 1000);
  assert.equal(new Set(all.map((x) => x.custom_id)).size, 1000);
  for (const x of all) {
    assert.equal(x.response.status_code, 200);
    assert.equal(x.error, null);
  }
  assert.match(all.find((x) => x.custom_id === 'q37').response.body.choices[0].message.content, /7 plus 1 is 8/);
  assert.equal((await run(['batch', 'b.jsonl'])).err, r.err);
});

test('a batch goes last, repeats what may pass and keeps what may not', async () => {
  const seen = new Map();
  const s = await standIn((req, body, res) => {
    const id = JSON.parse(body).messages[0].content, n = (seen.get(id)?.n ?? 0) + 1;
    seen.set(id, { n, body: JSON.parse(body), key: req.headers['idempotency-key'], before: seen.get(id)?.key });
    const json = (status, value, headers = {}) => { res.writeHead(status, headers); res.end(JSON.stringify(value)); };
    if (id === 'busy' && n <= 3) return json(429, {}, { 'retry-after': '0' });
    if (id === 'broken' && n <= 2) return req.socket.destroy();
    if (id === 'bad') return json(400, { error: { message: 'no' } });
    if (id === 'dead') return json(500, { error: { message: 'fault' } }, { 'retry-after': '0' });
    if (id === 'html') return res.end('<html>');
    return json(200, { ok: id });
  });
  const ids = ['busy', 'broken', 'bad', 'dead', 'html', 'own'];
  writeFileSync(join(folder, 'c.jsonl'), ids.map((id) => JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions',
    body: { messages: [{ role: 'user', content: id }], ...(id === 'own' && { priority: 0 }) } })).join('\n'));
  const r = await run(['batch', 'c.jsonl', '--out', 'c.out', '--retries', '2'], { url: s.url });
  s.close();
  assert.equal(r.status, 1);
  assert.equal(r.err, '6 of 6 results in c.out, 3 of this run\'s are errors\n');
  const of = Object.fromEntries(results('c.out').map((x) => [x.custom_id, x]));
  assert.deepEqual(of.busy.response.body, { ok: 'busy' });
  assert.deepEqual(of.broken.response.body, { ok: 'broken' });
  assert.equal(of.bad.response.status_code, 400);
  assert.equal(of.dead.response.status_code, 500);
  assert.equal(of.html.error.code, 'no_json');
  assert.deepEqual(ids.map((id) => seen.get(id).n), [4, 3, 1, 3, 1, 1]);
  assert.equal(seen.get('own').body.priority, 0);
  assert.ok(seen.get('busy').body.priority > 16);
  assert.match(seen.get('busy').key, /^batch_[0-9a-f]{32}$/);
  assert.equal(seen.get('busy').before, seen.get('busy').key);
});

test('help of every command that this file uses', () => {
  for (const name of ['chat', 'batch']) {
    const r = spawnSync(SLUICE, [name, '--help'], { encoding: 'utf8' });
    assert.equal(r.status, 0);
    assert.match(r.stdout, new RegExp(`^usage: sluice ${name} `));
  }
});
