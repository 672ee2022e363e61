// SPDX-License-Identifier: Apache-2.0
//
// `sluice bench`: short runs whose JSON has the figures that are promised, and errors that say why.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { SLUICE, hasRedis, startServer } from './harness.mjs';

const sluice = SLUICE;
const small = 'etc/models/demo-small.gguf';
const bench = (...args) => spawnSync(sluice, ['bench', ...args], { encoding: 'utf8', timeout: 120_000 });

test('sluice bench is a program of its own, beside sluice or in PATH; without it the error says so', () => {
  const alone = mkdtempSync(join(tmpdir(), 'sluice-alone-')), copy = join(alone, 'sluice');
  copyFileSync(sluice, copy);
  const run = (path) => spawnSync(copy, ['bench', 'cascade', '--json'], { encoding: 'utf8', env: { ...process.env, PATH: path } });
  const absent = run('/nonexistent'), found = run(dirname(sluice)), nothing = spawnSync(sluice, ['bench'], { encoding: 'utf8' });
  rmSync(alone, { recursive: true });
  assert.equal(absent.status, 69);
  assert.match(absent.stderr, /^sluice: can't start sluice-bench: .*make install/);
  assert.equal(found.status, 0, found.stderr);
  assert.ok(JSON.parse(found.stdout).texts.length > 0);
  assert.equal(nothing.status, 64, 'its exit status passes through');
  assert.match(nothing.stderr, /^usage: sluice bench machine/);
});

test('bench machine: every number of threads has its ceilings', () => {
  const r = bench('machine', '--threads', '2', '--seconds', '0.05', '--json');
  assert.equal(r.status, 0, r.stderr);
  const rows = JSON.parse(r.stdout);
  assert.deepEqual(rows.map((x) => x.threads), [1, 2]);
  for (const row of rows) assert.ok(row.read_bytes_per_s > 1e8);
});

test('bench model: prompt and answer, least to most', () => {
  const r = bench('model', small, '--prompt', '64', '--tokens', '8', '--batch', '1,3', '--json');
  assert.equal(r.status, 0, r.stderr);
  const got = JSON.parse(r.stdout);
  assert.deepEqual(got.answer.map((x) => x.batch), [1, 3]);
  for (const x of [got.prompt, ...got.answer]) {
    const [least, median, most] = x.tokens_per_s;
    assert.ok(least > 0 && least <= median && median <= most);
  }
});

test('bench constrained: free streams and those held to schemas, seen before or not', () => {
  const r = bench('constrained', small, '--streams', '4', '--tokens', '12', '--rounds', '2', '--json');
  assert.equal(r.status, 0, r.stderr);
  const got = JSON.parse(r.stdout);
  assert.deepEqual(Object.keys(got), ['free', 'seen', 'new']);
  assert.deepEqual(got.free.to_free, [1, 1, 1]);
  for (const { step_us, tokens_per_step, to_free: [ratio, low, high] } of Object.values(got)) {
    assert.ok(step_us > 0 && tokens_per_step > 1, JSON.stringify(got));
    assert.ok(0 < low && low <= ratio && ratio <= high);
  }
  const none = bench('constrained');
  assert.deepEqual([none.status, none.stderr], [64, 'sluice bench: constrained needs a model file\n']);
});

test('bench coupling: a draft of the same weights always coincides; of another model the bounds hold', () => {
  const run = (draft) => {
    const r = bench('coupling', 'etc/models/demo-large.gguf', '--draft', draft, '--temperature', '1.5', '--answers', '4', '--tokens', '40', '--json');
    assert.equal(r.status, 0, r.stderr);
    return JSON.parse(r.stdout);
  };
  const same = run('etc/models/demo-large.gguf'), other = run(small);
  assert.ok(same.positions > 0 && [same.bound, same.race, same.cumulative_sum].every((x) => Math.abs(x - 1) < 1e-6), JSON.stringify(same));
  assert.ok(other.race_at_least <= other.bound && other.bound < 1, JSON.stringify(other));
  // The seeds are fixed, and there are thousands of races.
  assert.ok(other.race < other.bound + 0.05 && other.race > other.race_at_least - 0.05, JSON.stringify(other));
});

test('bench engine: planning does not grow with what waits', () => {
  const r = bench('engine', small, '--scenario', 'planning', '--json');
  assert.equal(r.status, 0, r.stderr);
  const { planning } = JSON.parse(r.stdout);
  assert.ok(planning.plan_256_running_10000_waiting_us > 0 && planning.lookup_8000_tokens_among_20000_pages_us > 0);
});

test('bench engine: a shared prefix is computed once', () => {
  const r = bench('engine', small, '--scenario', 'shared-prefix', '--json');
  assert.equal(r.status, 0, r.stderr);
  const figures = JSON.parse(r.stdout)['shared-prefix'];
  assert.ok(figures.at_once_cached_percent >= 95, JSON.stringify(figures));
  assert.ok(figures.one_by_one_cached_percent >= 95, JSON.stringify(figures));
});

test('bench ops: every operation is right on every backend', () => {
  const r = bench('ops', '--quick', '--json');
  assert.equal(r.status, 0, r.stderr);
  const { ops, wrong } = JSON.parse(r.stdout);
  assert.equal(wrong, 0);
  assert.ok(ops.length > 20 && ops.every((o) => o.right && o.us > 0 && o.share_of_roofline > 0));
  assert.ok(['matmul', 'attention', 'rmsnorm'].every((name) => ops.some((o) => o.op.startsWith(name))), [...new Set(ops.map((o) => o.op))].join());
});

test('bench serve: a server under load, by tier, and one that refuses', async (t) => {
  const server = await startServer({ echo: true, sets: ['engine.echo.rate=400', 'gateway.tiers.free.concurrency=100'] });
  t.after(() => server.stop());
  const serve = (...args) => new Promise((done) => {
    const child = spawn(sluice, ['bench', 'serve', ...args]);
    let out = '';
    child.stdout.on('data', (d) => { out += d; });
    child.on('close', (status) => done({ status, out }));
  });
  const load = ['--connections', '2', '--streams', '4', '--requests', '40', '--prompt-tokens', '20', '--max-tokens', '10', '--json'];
  const mixed = await serve(server.http, '--tier-mix', `${server.keys.paid}=3,${server.keys.free}=1`, ...load);
  assert.equal(mixed.status, 0, mixed.out);
  const { all, by_key: keys } = JSON.parse(mixed.out);
  assert.deepEqual([all.requests, all.failed, all.completion_tokens, all.completion_tokens_counted], [40, 0, 400, 400]);
  assert.equal(keys.reduce((sum, k) => sum + k.requests, 0), 40);
  assert.ok(all.ttft_ms.p50 > 0 && all.ttft_ms.p50 <= all.ttft_ms.p99 && all.itl_ms.n > 100 && all.itl_ms.n <= 360);
  const tls = await serve(server.https, '--cacert', server.caFile, '--key', server.keys.paid, '--whole', ...load);
  assert.equal(JSON.parse(tls.out).all.failed, 0, tls.out);
  const refused = await serve(server.http, '--key', 'sk-nobody', '--requests', '5', '--json');
  assert.equal(refused.status, 1);
  assert.deepEqual(JSON.parse(refused.out).all.errors, { '401 invalid_api_key': 5 });
  assert.equal(await server.stop(), 0, server.log());
});

test('bench overload: figures of the echo engine, and a target that nothing meets is said', () => {
  const short = ['--peak-seconds', '1', '--seconds', '2'];
  const good = bench('overload', ...short, '--json');
  assert.equal(good.status, 0, good.stderr);
  const figures = JSON.parse(good.stdout);
  assert.ok(figures.goodput_of_peak > 0 && figures.refused > 0 && figures.refusal_p99_ms > 0, good.stdout);
  const none = bench('overload', ...short, '--first-token', '100', '--target', '1');
  assert.equal(none.status, 1);
  assert.match(none.stderr, /no answer began within 1 ms in the 1 s of its peak/);
});

test('bench: wrong arguments are named', () => {
  assert.match(bench('machine', '--threads', 'many').stderr, /--threads must be .*, not many/);
  assert.match(bench('model', small, '--batch', '0').stderr, /--batch/);
  assert.match(bench('engine', small, '--scenario', 'none').stderr, /no scenario none/);
  assert.equal(bench('nothing').status, 64);
});

test('bench store: the limits of a key beside two PINGs', { skip: hasRedis() ? false : 'redis-server is not installed' }, () => {
  const r = bench('store', '--times', '100', '--json');
  assert.equal(r.status, 0, r.stderr);
  const { store } = JSON.parse(r.stdout);
  assert.equal(store.length, 3);
  for (const x of store) {
    assert.ok(x.take_us > 0 && x.two_pings_us > 0);
    assert.ok(Math.abs(x.ratio - x.take_us / x.two_pings_us) < 0.01);
  }
});
