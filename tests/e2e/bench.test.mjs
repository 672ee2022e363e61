// SPDX-License-Identifier: Apache-2.0
//
// `sluice bench`: short runs whose JSON has the figures that are promised, and errors that say why.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { hasRedis, OVER_UPSTREAM, SLUICE, startServer } from './harness.mjs';

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
  const r = bench('model', small, '--threads', '1', '--prompt', '64', '--tokens', '8', '--batch', '1,3', '--json');
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
  assert.ok(all.ttft_ms.p50 > 0 && all.ttft_ms.p50 <= all.ttft_ms.p99 && all.itl_ms.n > 100 && all.itl_ms.n <= (OVER_UPSTREAM ? 400 : 360) /* the space at its end comes by itself from there */, JSON.stringify([all.ttft_ms, all.itl_ms]));
  const tls = await serve(server.https, '--cacert', server.caFile, '--key', server.keys.paid, '--whole', ...load);
  assert.equal(JSON.parse(tls.out).all.failed, 0, tls.out);
  const refused = await serve(server.http, '--key', 'sk-nobody', '--requests', '5', '--json');
  assert.equal(refused.status, 1);
  assert.deepEqual(JSON.parse(refused.out).all.errors, { '401 invalid_api_key': 5 });
  assert.equal(await server.stop(), 0, server.log());
});

test('bench serve: conversations, recorded traffic, the highest load within a target, a comparison', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-serve-')), records = join(dir, 'records'), plot = join(dir, 'sweep.svg'), report = join(dir, 'report.json');
  const server = await startServer({ sets: [`log.requests.to=${records}`, 'gateway.tiers.paid.concurrency=400'] });
  t.after(async () => { await server.stop(); rmSync(dir, { recursive: true }); });
  const serve = (...args) => new Promise((done) => {
    const child = spawn(sluice, ['bench', 'serve', server.http, '--key', server.keys.paid, '--model', 'demo-small', '--json', ...args]);
    let out = '', err = '';
    child.stdout.on('data', (d) => { out += d; });
    child.stderr.on('data', (d) => { err += d; });
    child.on('close', (status) => done({ status, out, err }));
  });
  // Two conversations of four turns: what came before is in the prompt, and in the cache.
  const talks = await serve('--requests', '8', '--turns', '4', '--prompt-tokens', '30', '--max-tokens', '8', '--seconds', '100');
  assert.equal(talks.status, 0, talks.err + talks.out);
  const { all } = JSON.parse(talks.out);
  assert.deepEqual([all.requests, all.failed], [8, 0]);
  assert.ok(all.prompt_tokens > 8 * 60 && all.cached_tokens > all.prompt_tokens / 3, talks.out);
  // The server's own records, replayed as fast as they come.
  for (let i = 0; readFileSync(records, 'utf8').trim().split('\n').length < 8; i++) {
    assert.ok(i < 600, 'the records are not written');
    await new Promise((r) => setTimeout(r, 100));
  }
  const lines = readFileSync(records, 'utf8').trim().split('\n').map((x) => JSON.parse(x));
  const again = await serve('--trace', records, '--speed', '1000', '--streams', '20');
  assert.equal(again.status, 0, again.err);
  const replayed = JSON.parse(again.out).all;
  assert.deepEqual([replayed.requests, replayed.failed], [8, 0]);
  assert.ok(replayed.completion_tokens <= lines.reduce((sum, x) => sum + x.tokens_out, 0));
  // What it finds depends on the machine; that it is what the points say does not.
  const sweep = await serve('--sweep', '--slo-ttft', '700', '--rate', '16', '--seconds', '0.2', '--streams', '50', '--prompt-tokens', '10', '--max-tokens', '4', '--plot', plot);
  assert.ok(sweep.status === 0 || /no load was within/.test(sweep.err), sweep.err);
  const found = JSON.parse(sweep.out);
  assert.equal(found.rate, Math.max(0, ...found.points.filter((x) => x.share >= 0.95).map((x) => x.rate)));
  assert.match(readFileSync(plot, 'utf8'), /^<svg [^]*<\/svg>\n$/);
  // A report beside itself, and beside one that was twice as fast.
  const base = await serve('--requests', '64', '--streams', '2', '--prompt-tokens', '10', '--max-tokens', '4', '--seconds', '100');
  const halved = JSON.parse(base.out);
  for (const name of Object.keys(halved.all.batches)) halved.all.batches[name] = halved.all.batches[name].map((x) => x / 1e4);
  writeFileSync(report, JSON.stringify(halved));
  const slower = await serve('--requests', '64', '--streams', '2', '--prompt-tokens', '10', '--max-tokens', '4', '--seconds', '100', '--against', report);
  assert.equal(slower.status, 1);
  assert.match(slower.err, /total_ms .*WORSE/);
  for (const [args, why] of [[['--sweep'], /needs a target/], [['--mix', '1:2'], /--mix needs/], [['--arrivals', 'gamma', '--rate', '1'], /--arrivals must be/],
    [['--trace', '/nonexistent'], /nonexistent/], [['--trace', records, '--rate', '3'], /its own times/], [['--plot', 'x'], /--plot needs --sweep/], [['--against', '/nonexistent', '--requests', '1'], /nonexistent/]]) {
    const r = await serve(...args);
    assert.ok(r.status !== 0);
    assert.match(r.err, why);
  }
});

/** A recording of n requests: a simulation of few is cheap. */
const recording = (dir, n) => {
  const path = join(dir, 'trace.jsonl');
  writeFileSync(path, Array.from({ length: n }, (_, i) => `${JSON.stringify({ at: i / 8, prompt_tokens: 200 + (i * 37) % 200, answer_tokens: 60 + (i * 13) % 80 })}\n`).join(''));
  return path;
};

test('sluice plan: simulated arrangements with this machine\'s costs, the best first', (t) => {
  const plan = (...args) => spawnSync(sluice, ['plan', ...args], { encoding: 'utf8', timeout: 120_000 });
  const few = mkdtempSync(join(tmpdir(), 'sluice-plan-'));
  t.after(() => rmSync(few, { recursive: true }));
  const r = plan(small, '--trace', recording(few, 80), '--threads', '2', '--json');
  assert.equal(r.status, 0, r.stderr);
  const { arrangements } = JSON.parse(r.stdout);
  assert.equal(arrangements.length, 13);
  assert.ok(arrangements.some((a) => a.keys.includes('engine.role=auto')));
  for (const [i, a] of arrangements.entries()) {
    assert.ok(a.requests_per_s > 0 && a.ttft_p50_ms <= a.ttft_p99_ms && a.ttft_p50_ms <= 2000, JSON.stringify(a));
    assert.ok(i === 0 || a.requests_per_s <= arrangements[i - 1].requests_per_s);
  }
  assert.match(plan(small, '--mix', '1:60:16', '--threads', '1').stdout, /one engine, 1 threads; engine\.step_tokens=\d+ engine\.itl_target=\d+ms/);
  for (const [args, why] of [[[], /which model file/], [['/nonexistent'], /nonexistent/], [[small, '--mix', '1:900000:1'], /context/], [[small, '--good', '101'], /--good must be/],
    [[small, '--trace', '/nonexistent'], /nonexistent/], [[small, '--kv', 'x'], /no KV cache type/], [[small, '--arrivals', 'x'], /--arrivals must be/], [[small, small], /one model file/]]) {
    const bad = plan(...args);
    assert.ok(bad.status !== 0);
    assert.match(bad.stderr, why);
  }
});

test('sluice tune: settings that are not below the defaults, verified by real runs, as a section of the configuration', () => {
  const tune = (...args) => spawnSync(sluice, ['tune', ...args], { encoding: 'utf8', timeout: 300_000 });
  const svg = join(mkdtempSync(join(tmpdir(), 'sluice-tune-')), 'curve.svg');
  const load = ['--trace', recording(dirname(svg), 24), '--threads', '1', '--kv-memory', '64', '--sequences', '8'];
  const r = tune(small, ...load, '--verify', '0.5', '--json', '--svg', svg);
  assert.equal(r.status, 0, r.stderr);
  const said = JSON.parse(r.stdout);
  assert.ok(said.requests_per_s >= said.default_requests_per_s && said.default_requests_per_s > 0, r.stdout);
  assert.ok(said.points > 5 && said.points < 200);
  if (said.verified) assert.ok(said.verified.kept_defaults || said.verified.good >= said.verified.default_good, r.stdout);
  assert.match(readFileSync(svg, 'utf8'), /^<svg/);
  const text = tune(small, ...load, '--verify', '0');
  assert.match(text.stdout, /^# [\d.]+ requests a second within the targets, in simulation; with the defaults [\d.]+\n(engine:\n(  [a-z_]+: \d+(ms|MiB)?\n)+|# nothing is clearly better)/);
  assert.match(text.stdout, /\n# {3}step_tokens .*\*/);
  for (const [args, why] of [[[], /which model file/], [[small, '--accept', '1'], /--accept must be/], [[small, '--verify', 'x'], /--verify must be/], [[small, ...load, '--slo-ttft', '0.0001'], /no setting keeps the targets/]]) {
    const bad = tune(...args);
    assert.ok(bad.status !== 0);
    assert.match(bad.stderr, why);
  }
});

test('bench overload: figures of the echo engine, and a target that nothing meets is said', () => {
  const short = ['--peak-seconds', '1', '--seconds', '2'];
  const good = bench('overload', ...short, '--json');
  assert.equal(good.status, 0, good.stderr);
  const figures = JSON.parse(good.stdout);
  assert.ok(figures.goodput_of_peak > 0 && figures.refused > 0 && figures.refusal_p99_ms > 0, good.stdout);
  const none = bench('overload', ...short, '--slots', '1', '--first-token', '100', '--target', '1');
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
