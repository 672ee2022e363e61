// SPDX-License-Identifier: Apache-2.0
// log.requests: one JSON line for each answer. The lines and /metrics tell the same of the same answers; no line holds
// text of a request or an answer, or a key.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, chmodSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { SLUICE, request, startServer } from './harness.mjs';
import { histogram, samples, sum } from './prometheus.mjs';

const PATIENCE = 20_000;
const CANARY = 'xyzzy-canary';
const folder = mkdtempSync(join(tmpdir(), 'sluice-records-'));
chmodSync(folder, 0o777);
const FILE = join(folder, 'requests.jsonl');
let server;

before(async () => {
  server = await startServer({ echo: true, sets: [`log.requests.to=${FILE}`, 'engine.echo.ttft=210ms', 'engine.echo.rate=50'],
    edit: (yaml) => yaml.replace('ttft_target: 0\n', 'ttft_target: 1h\n').replace('itl_target: 0\n', 'itl_target: 30s\n') });
});
after(async () => { await server?.stop(); rmSync(folder, { recursive: true, force: true }); });

const read = (file = FILE) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1).map((l) => JSON.parse(l)) : []);
const record = (id, file = FILE) => until(() => read(file).find((r) => r.request_id === id), PATIENCE);
const ask = (key, body, id, more = {}) => chat(server.http, key, { model: 'demo-small', ...body }, { headers: { 'x-request-id': id }, ...more });

test("an answer's record has its figures", async () => {
  const r = await ask(server.keys.paid, { messages: user(`${CANARY} one two three four`), stream_options: { include_usage: true } }, 'first-1');
  assert.equal(r.headers['x-request-id'], 'first-1');
  const line = await record('first-1');
  assert.ok(line, 'no record');
  assert.match(line.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.match(line.tenant, /^[0-9a-f]{16}$/);
  assert.deepEqual([line.model, line.tier, line.status, line.ended_by, line.good], ['demo-small', 'paid', 200, 'stop', true]);
  assert.deepEqual([line.tokens_in, line.tokens_cached, line.tokens_out], [r.usage.prompt_tokens, 0, r.usage.completion_tokens]);
  assert.ok(line.prefill_ms >= 210 && line.ttft_ms >= line.prefill_ms && line.ttft_ms >= line.queue_ms && line.e2e_ms >= line.ttft_ms, JSON.stringify(line));
  assert.ok(line.itl_max_ms >= line.itl_ms && line.decode_ms > 0, JSON.stringify(line));
  assert.ok(r.ended - r.started + 2 >= line.ttft_ms);
  for (const absent of ['trace_id', 'cascade', 'stopped_at', 'drafted', 'shared']) assert.ok(!(absent in line), absent);
});

test('what an answer was not is told too', async () => {
  const left = await ask(server.keys.paid, { messages: user(Array.from({ length: 400 }, (_, i) => `w${i}`).join(' ')) }, 'left-1',
    { onEvent: (e, r) => (r.text.split(' ').length > 3 ? 'abort' : undefined) });
  assert.ok(left.aborted);
  const line = await record('left-1');
  assert.deepEqual([line.status, line.ended_by], [200, 'client']);
  assert.ok(line.stopped_at >= 3 && line.stopped_at === line.tokens_out && !('queue_ms' in line), JSON.stringify(line));
  const capped = await ask(server.keys.paid, { messages: user('a b c d e f'), max_tokens: 2 }, 'capped-1');
  assert.equal(capped.finish, 'length');
  assert.equal((await record('capped-1')).ended_by, 'length');
  await ask(server.keys.paid, { messages: user('fail-small@2 a b c d') }, 'failed-1');
  const failed = await record('failed-1');
  assert.deepEqual([failed.status, failed.ended_by, failed.good], [200, 'error', false]);
  assert.equal((await ask(server.keys.paid, { model: 'no-such', messages: user('a') }, 'wrong-1')).status, 404);
  const wrong = await record('wrong-1');
  assert.deepEqual([wrong.status, wrong.ended_by, wrong.good, 'ttft_ms' in wrong], [404, 'refused', null, false]);
  assert.equal((await request(server.http, '/v1/chat/completions', { method: 'POST', body: '{}', headers: { 'content-type': 'application/json', 'x-request-id': 'nokey-1' } })).status, 401);
  const nokey = await record('nokey-1');
  assert.deepEqual([nokey.status, nokey.good, 'tier' in nokey, 'tenant' in nokey], [401, null, false, false]);
  const auto = await ask(server.keys.paid, { model: 'auto', messages: user('unsure@2 a b c d e f g h i j') }, 'auto-1');
  assert.equal(auto.status, 200);
  const cascade = await record('auto-1');
  assert.equal(cascade.model, 'auto');
  assert.match(cascade.cascade, /^\w+\/[\w-]+, (escalated: [\w-]+, )?small \d+ of \d+, large \d+ of \d+$/);
});

test('an answer that is shared or repeated is one of its own', async () => {
  const body = { messages: user('slow-small@1500 one two three'), temperature: 0, seed: 7 };
  const both = await Promise.all(['twin-1', 'twin-2'].map((id) => ask(server.keys.paid, body, id)));
  for (const r of both) assert.equal(r.text, 'slow-small@1500 one two three');
  const twins = [await record('twin-1'), await record('twin-2')].sort((a, b) => !!a.shared - !!b.shared);
  assert.deepEqual(twins.map((t) => t.shared), [undefined, true], JSON.stringify(twins));
  assert.ok('queue_ms' in twins[0] && !('queue_ms' in twins[1]) && twins[1].ttft_ms > 0 && twins[1].itl_ms > 0, JSON.stringify(twins));
  const again = (id) => chat(server.http, server.keys.paid, { model: 'demo-small', messages: user('same again') }, { headers: { 'x-request-id': id, 'idempotency-key': 'k-1' } });
  const first = await again('once-0');
  // As long as its generation is there it is shared; then the stored answer is repeated.
  let i = 0;
  const line = await until(async () => {
    assert.equal((await again(`once-${++i}`)).text, first.text);
    const r = await record(`once-${i}`);
    assert.ok(r.shared || r.ended_by === 'repeated', JSON.stringify(r));
    return r.shared ? null : r;
  }, PATIENCE);
  assert.deepEqual([line.status, line.ended_by, line.good, 'ttft_ms' in line], [200, 'repeated', null, false], JSON.stringify(line));
});

test("a client's own id is honoured if it can stand anywhere as it is", async () => {
  const id = async (own) => (await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.paid}`, 'x-request-id': own } })).headers['x-request-id'];
  for (const good of ['a', 'trace:"quoted"\\1', 'x'.repeat(128)]) assert.equal(await id(good), good);
  for (const bad of ['', 'two words', 'x'.repeat(129), 'gr\u00fcn', ['one', 'two']]) assert.match(await id(bad), /^req_[0-9a-f]{32}$/, `${bad}`);
  const r = await request(server.http, '/v1/messages', { method: 'POST', body: '{}', headers: { 'content-type': 'application/json', 'x-api-key': server.keys.paid, 'anthropic-version': '2023-06-01', 'x-request-id': 'a"b\\c' } });
  assert.equal(JSON.parse(r.body).request_id, 'a"b\\c');
  assert.equal((await record('a"b\\c')).status, 400);
});

test('records and metrics tell the same', async () => {
  for (let i = 0; i < 4; i++) await ask(server.keys.free, { model: i % 2 ? 'demo-large' : 'demo-small', messages: user(`q${i} slow-large@300 a b c`), n: 1 + i }, `same-${i}`);
  await record('same-3');
  const list = read();
  const families = { ttft_ms: 'sluice_ttft_seconds', queue_ms: 'sluice_queue_seconds', prefill_ms: 'sluice_prefill_seconds', e2e_ms: 'sluice_e2e_seconds',
    decode_ms: 'sluice_decode_seconds', itl_ms: 'sluice_tpot_seconds', stopped_at: 'sluice_stopped_tokens', tokens_in: 'sluice_prompt_tokens', tokens_out: 'sluice_answer_tokens' };
  const known = (member) => list.filter((r) => r.status === 200 && 'ttft_ms' in r && member in r).map((r) => r[member]);
  let all;
  // A line is counted once it is written, and an answer's times by the thread that it ended on.
  await until(async () => {
    all = samples(await server.metrics());
    return sum(all, 'sluice_request_records_total') >= list.length &&
      Object.entries(families).every(([member, family]) => histogram(all, family).count >= known(member).length);
  }, PATIENCE);
  assert.equal(sum(all, 'sluice_request_records_total'), list.length);
  assert.equal(new Set(list.map((r) => r.request_id)).size, list.length, 'one line each');
  for (const tier of ['free', 'paid']) {
    const of = list.filter((r) => r.tier === tier);
    assert.equal(sum(all, 'sluice_answers_judged_total', { tier }), of.filter((r) => r.good !== null).length, tier);
    assert.equal(sum(all, 'sluice_answers_good_total', { tier }), of.filter((r) => r.good).length, tier);
  }
  for (const [member, family] of Object.entries(families)) {
    const unit = member.endsWith('_ms') ? 1000 : 1, rest = unit > 1 ? 0.001 : 0; // a record cuts off below a microsecond
    const values = known(member);
    const h = histogram(all, family);
    assert.equal(h.count, values.length, family);
    assert.ok(Math.abs(h.sum * unit - values.reduce((a, b) => a + b, 0)) <= (rest + 1e-6) * (values.length + 1), `${family}: ${h.sum * unit}`);
    for (const [le, n] of h.buckets) {
      const [least, most] = [values.filter((v) => v + rest <= le * unit).length, values.filter((v) => v <= le * unit).length];
      assert.ok(least <= n && n <= most, `${family}: ${n} up to ${le}, ${least} to ${most} in the records`);
    }
  }
  const slow = list.reduce((n, r) => n + (r.slow_ms ?? 0), 0);
  assert.ok(Math.abs(sum(all, 'sluice_slow_seconds_total') * 1000 - slow) < 0.1, `${slow}`);
});

test('no record has text or keys', () => {
  const text = readFileSync(FILE, 'utf8');
  for (const secret of [CANARY, server.keys.paid, server.keys.free, 'unsure', 'w1']) assert.ok(!text.includes(secret), secret);
});

test('a file that was moved away is begun anew, at once and by a reload', async () => {
  renameSync(FILE, `${FILE}.old`);
  await ask(server.keys.paid, { messages: user('moved') }, 'moved-1');
  // With a broker the name is looked up once a second; a reload opens it.
  process.kill(server.pid, 'SIGHUP');
  assert.ok(await until(() => server.log().includes('gateway: reloaded'), PATIENCE), server.log());
  await ask(server.keys.paid, { messages: user('reloaded') }, 'moved-2');
  assert.ok(await record('moved-2'), 'in the new file');
  assert.ok(await until(() => [...read(), ...read(`${FILE}.old`)].find((r) => r.request_id === 'moved-1'), PATIENCE), 'in either');
});

test('a file that can not be written: records are counted as lost and that is logged once; answers come', async () => {
  const inner = join(folder, 'inner'), file = join(inner, 'requests.jsonl');
  const make = () => { mkdirSync(inner); chmodSync(inner, 0o777); };
  make();
  const s = await startServer({ echo: true, sets: [`log.requests.to=${file}`, 'engine.echo.ttft=0'] });
  const one = async (id) => assert.equal((await chat(s.http, s.keys.paid, { model: 'demo-small', messages: user('a b') }, { headers: { 'x-request-id': id } })).text, 'a b');
  const lost = async () => sum(samples(await s.metrics()), 'sluice_request_records_lost_total', { why: 'write' });
  try {
    await one('kept-1');
    assert.ok(await record('kept-1', file));
    rmSync(inner, { recursive: true });
    // The name is looked up once a second at most.
    for (let i = 0; await lost() < 2; i++) { assert.ok(i < 2000, s.log()); await one(`lost-${i}`); }
    assert.equal(s.log().split("requests' records are lost").length, 2, s.log());
    make();
    assert.ok(await until(async () => { await one('back-1'); return read(file).some((r) => r.request_id === 'back-1'); }, PATIENCE), s.log());
    assert.ok(await until(() => s.log().includes("requests' records are written again"), PATIENCE), s.log());
  } finally { await s.stop(); }
});

test('standard error, a sample, and a file that can not be', async () => {
  const loud = await startServer({ echo: true, sets: ['log.requests.to=stderr', 'engine.echo.ttft=0'] });
  try {
    await chat(loud.http, loud.keys.paid, { model: 'demo-small', messages: user('a') }, { headers: { 'x-request-id': 'err-1' } });
    assert.ok(await until(() => loud.log().split('\n').some((l) => l.startsWith('{') && l.endsWith('}') && JSON.parse(l).request_id === 'err-1'), PATIENCE), loud.log());
  } finally { await loud.stop(); }
  const none = join(folder, 'none.jsonl');
  const quiet = await startServer({ echo: true, sets: [`log.requests.to=${none}`, 'log.requests.sample=0', 'engine.echo.ttft=0'] });
  try {
    await chat(quiet.http, quiet.keys.paid, { model: 'demo-small', messages: user('a') });
    assert.ok(await until(async () => sum(samples(await quiet.metrics()), 'sluice_answers_judged_total') === 1, PATIENCE));
  } finally { await quiet.stop(); }
  assert.equal(readFileSync(none, 'utf8'), '');
  const state = mkdtempSync(join(tmpdir(), 'sluice-records-'));
  const r = spawnSync(SLUICE, ['serve', '-c', 'etc/sluice.yaml', '--state', state, '--set', 'engine.echo.enabled=true', '--set', 'gateway.https=off', '--set', 'gateway.http=127.0.0.1:0',
    '--set', 'log.requests.to=/dev/full'], { encoding: 'utf8', timeout: 60_000 });
  rmSync(state, { recursive: true, force: true });
  assert.notEqual(r.status, 0);
  assert.match(r.stderr, /log\.requests\.to: \/dev\/full: not a regular file/);
});
