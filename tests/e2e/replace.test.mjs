// SPDX-License-Identifier: Apache-2.0
// A model's file, or what an engine reads when it starts, changed by a reload under traffic: another engine process takes over,
// running streams end on the former one, and what the former can't hand over is refused while it serves on.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { chat, until, user } from './client.mjs';
import { localOnly, ROOT, SLUICE, request, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const PATIENCE = 120_000, STREAMS = 64, THREADS = 2;
const sets = [`gateway.threads=${THREADS}`, 'gateway.tiers.paid.concurrency=1000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off', 'gateway.tiers.paid.max_output=100000',
  ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.paid.${l}=0`)];
const figure = async (server, name, labels = {}) => sum(samples(await server.metrics()), name, labels);
const changed = (server, from, to) => {
  const file = join(server.state, 'sluice.yaml'), text = readFileSync(file, 'utf8');
  assert.ok(text.includes(from), from);
  writeFileSync(file, text.replace(from, to));
};
const reload = async (server) => assert.equal((await request(server.http, '/v1/admin/reload', { method: 'POST', headers: { authorization: `Bearer ${server.keys.admin}` } })).status, 202);
const switched = (server) => until(async () => await figure(server, 'sluice_engine_successions_total') === THREADS, PATIENCE);
const gone = (pid) => until(() => !existsSync(`/proc/${pid}`), PATIENCE);

test('64 streams of the echo engine end on the process that they began with', async () => {
  const server = await startServer({ echo: true, edit: (yaml) => yaml, sets: [...sets, 'engine.echo.ttft=0', 'engine.echo.stamp=true', 'engine.echo.step=10ms', 'gateway.limits.window_tokens=1024'] });
  try {
    const former = (await server.pids()).engine;
    let half = 0;
    const onEvent = (_, r) => { if (r.text.length > 2000 && !r.half) { r.half = true; half++; } };
    const streams = Array.from({ length: STREAMS }, () => chat(server.http, server.keys.paid, { model: 'demo-small', max_tokens: 300, messages: user('go') }, { onEvent }));
    assert.ok(await until(() => half === STREAMS, PATIENCE), `${half} are under way`);
    changed(server, '  text_workers: 1\n', '  text_workers: 2\n');
    await reload(server);
    assert.ok(await switched(server), server.log());
    for (const r of await Promise.all(streams)) assert.deepEqual([r.status, r.done, r.errors.length, r.finish], [200, true, 0, 'length']);
    assert.ok(await gone(former), server.log());
    assert.equal((await chat(server.http, server.keys.paid, { model: 'demo-small', max_tokens: 3, messages: user('go') })).finish, 'length');
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

/** What a process's dump says of its steps: {rows, sequences, …} of each. */
async function stepsOf(server, pid) {
  const folder = join(server.state, 'flight'), read = promisify(execFile);
  const dumps = () => (existsSync(folder) ? readdirSync(folder) : []).filter((f) => /^engine.*\.flight$/.test(f)).map((f) => join(folder, f));
  let text = '';
  process.kill(pid, 'SIGUSR1');
  assert.ok(await until(async () => {
    for (const file of dumps()) {
      try { text = (await read(SLUICE, ['flight', file], { maxBuffer: 1 << 28 })).stdout; } catch { continue; /* it is being written */ }
      if (text.startsWith(`# engine, process ${pid},`)) return true;
    }
    return false;
  }, PATIENCE), 'no dump');
  return text.split('\n').filter((l) => / step {2}step /.test(l)).map((l) => Object.fromEntries([...l.matchAll(/(\w+)=(\d+)/g)].map((m) => [m[1], Number(m[2])])));
}

const ask = (server, content, more = {}, how = {}) => chat(server.http, server.keys.paid, { model: 'demo-small', temperature: 0, ignore_eos: true, stream_options: { include_usage: true }, messages: user(content), ...more }, how);
const SMALL = 'path: etc/models/demo-small.gguf';
const story = (i) => `Tell me story ${i} about a river, a town and the people who live there.`;
const MANNERS = 'You answer questions about rivers and towns, kindly and in one sentence, and you never forget to be polite. '.repeat(4);

test('64 streams end on the model that they began with, and none misses more than two of its steps', async (t) => {
  const server = await startServer({ edit: (yaml) => yaml, sets: [...sets, 'engine.backend=cpu-ref', 'engine.max_sequences=80', 'engine.itl_target=0', 'gateway.limits.window_tokens=2000', 'gateway.warm=0'] });
  try {
    const former = (await server.pids()).engine, fresh = join(server.state, 'fresh.gguf');
    copyFileSync(join(ROOT, 'etc/models/demo-large.gguf'), fresh);
    const tokens = 80, few = { max_tokens: 24 };
    const [before, large] = [await ask(server, story(0), few), await ask(server, story(0), { ...few, model: 'demo-large' })];
    assert.notEqual(before.text, large.text);
    const lead = { role: 'system', content: MANNERS };
    for (let i = 0; i < 4; i++) await ask(server, '', { ...few, messages: [lead, ...user(`What is a river, ${i}?`)] });
    let begun = 0;
    const onEvent = (_, r) => { if (r.text.length > 20 && !r.begun) { r.begun = true; begun++; } };
    const streams = Array.from({ length: STREAMS }, (_, i) => ask(server, story(i), { max_tokens: tokens }, { onEvent }));
    const last = ask(server, story(99), { max_tokens: 120 }, { onEvent }); // keeps the former process until its steps are read
    assert.ok(await until(() => begun === STREAMS + 1, PATIENCE), `${begun} are under way`);
    changed(server, SMALL, `path: ${fresh}`);
    await reload(server);
    assert.ok(await switched(server), server.log());
    assert.ok((await server.metrics()).includes('sluice_succession_prompts_total'));
    assert.ok(await figure(server, 'sluice_succession_prompts_total') >= 1, 'the hottest prompt was computed beforehand');
    const next = await ask(server, story(0), few), polite = await ask(server, '', { ...few, messages: [lead, ...user('Where is the town?')] });
    assert.equal(next.text, large.text, 'a new request gets the new model');
    assert.ok(polite.usage.prompt_tokens_details.cached_tokens >= 64, JSON.stringify(polite.usage));
    const all = await Promise.all(streams);
    for (const r of all) assert.deepEqual([r.status, r.done, r.errors.length, r.finish, r.usage.completion_tokens], [200, true, 0, 'length', tokens]);
    const steps = await stepsOf(server, former);
    // A step that runs all of them leaves none out.
    // No prompt comes to it any more, so what a step leaves out is what a later one has more.
    const after = steps.slice(steps.findLastIndex((s) => s.prompt_rows > 0) + 1).map((s) => s.sequences);
    assert.ok(after.length > tokens / 2 && after[0] > STREAMS, `${after.length} steps of ${after[0]}`);
    let gap = 0, worst = 0, most = 0;
    for (const n of [...after].reverse()) { most = Math.max(most, n); worst = Math.max(worst, gap = n < most ? gap + 1 : 0); }
    const over = [...server.log().matchAll(/go to its new process; (\d+) end on/g)].reduce((n, m) => n + Number(m[1]), 0);
    assert.ok(over > 0, 'answers ran when requests went over');
    assert.ok(worst <= 2, `${worst} steps in a row left a stream out`);
    t.diagnostic(`${STREAMS + 1} streams, ${over} ran at the switch, ${after.length} steps, the longest gap ${worst}`);
    assert.deepEqual([(await last).finish, (await last).errors.length], ['length', 0]);
    assert.ok(await gone(former), server.log());
    // As before, since the answer is that of the former model to the end.
    assert.equal(all[0].text.slice(0, before.text.length), before.text);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});

test('what can not take over is refused, and a file that was replaced is enough to ask for it', async () => {
  const server = await startServer({ edit: (yaml) => yaml, sets: ['gateway.threads=2', 'engine.max_sequences=8'] });
  try {
    const few = { max_tokens: 24 }, former = (await server.pids()).engine, own = join(server.state, 'own.gguf');
    const [small, large] = [(await ask(server, story(0), few)).text, (await ask(server, story(0), { ...few, model: 'demo-large' })).text];
    const stays = async (why) => {
      assert.ok(await until(() => why.test(server.log()), PATIENCE), server.log());
      assert.equal((await server.pids()).engine, former);
      assert.equal((await ask(server, story(0), few)).text, small);
    };
    // Without the file, with one that is none, without the memory for both; the text workers must not change either.
    changed(server, SMALL, `path: ${own}`);
    await reload(server);
    await stays(/reload refused, the old configuration stays: .*own\.gguf/);
    writeFileSync(own, readFileSync(join(ROOT, 'etc/models/demo-small.gguf')).subarray(0, 600_000));
    await reload(server);
    await stays(/reload refused(.*\n)*.*reload refused/);
    copyFileSync(join(ROOT, 'etc/models/demo-large.gguf'), own);
    changed(server, '  kv_memory: auto\n', '  kv_memory: 900GiB\n');
    await reload(server);
    await stays(/beside the running engine it needs \d+ MiB.*\n(.*\n)*.*reload refused, the old configuration stays: the new engine did not get ready/);
    changed(server, '  kv_memory: 900GiB\n', '  kv_memory: auto\n');
    await reload(server);
    assert.ok(await switched(server), server.log());
    assert.equal((await ask(server, story(0), few)).text, large);
    assert.ok(await gone(former), server.log());
    // The configuration stays; the file does not.
    const second = (await server.pids()).engine;
    copyFileSync(join(ROOT, 'etc/models/demo-small.gguf'), `${own}.new`);
    renameSync(`${own}.new`, own);
    await reload(server);
    assert.ok(await until(async () => await figure(server, 'sluice_engine_successions_total') === 2 * THREADS, PATIENCE), server.log());
    assert.equal((await ask(server, story(0), few)).text, small);
    assert.ok(await gone(second), server.log());
    // One that crashes comes back as it was last.
    process.kill((await server.pids()).engine, 'SIGKILL');
    assert.ok(await until(async () => (await ask(server, story(0), few)).text === small, PATIENCE), server.log());
    await reload(server); // nothing has changed
    assert.ok(await until(() => server.log().split('gateway: reloaded').length > 1 || server.log().split(' reloaded').length > 3, PATIENCE));
    assert.equal(await figure(server, 'sluice_engine_successions_total'), 2 * THREADS);
  } finally { assert.equal(await server.stop(), 0, server.log()); }
  assert.deepEqual(server.left().filter((f) => f.includes('sock')), []);
});

test('several engines are replaced one after the other, and an answer outlives the crash of a former one', localOnly('several engines of one machine'), async () => {
  const server = await startServer({ echo: true, edit: (yaml) => yaml.replace(/^engines: .*\n/m, 'engines: [{name: b}]\n'), sets: [...sets, 'engine.echo.ttft=0', 'engine.echo.rate=50'] });
  try {
    const former = await server.pids();
    assert.ok(former['engine b'] > 0, JSON.stringify(former));
    const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');
    let begun = 0;
    const onEvent = (_, r) => { if (r.text.length > 20 && !r.begun) { r.begun = true; begun++; } };
    const streams = Array.from({ length: 8 }, (_, i) => ask(server, `${i} ${words}`, { ignore_eos: false }, { onEvent, headers: { 'x-sluice-events': '1' } }));
    assert.ok(await until(() => begun === 8, PATIENCE));
    changed(server, '  text_workers: 1\n', '  text_workers: 2\n');
    await reload(server);
    assert.ok(await until(async () => await figure(server, 'sluice_engine_successions_total') === 2 * THREADS, PATIENCE), server.log());
    process.kill(former.engine, 'SIGKILL');
    for (const [i, r] of (await Promise.all(streams)).entries()) assert.deepEqual([r.status, r.done, r.errors.length, r.text.trim() === `${i} ${words}`], [200, true, 0, true]);
    assert.ok(await gone(former['engine b']), server.log());
  } finally { assert.equal(await server.stop(), 0, server.log()); }
});
