// SPDX-License-Identifier: Apache-2.0
//
// `sluice bench`: short runs whose JSON has the figures that are promised, and errors that say why.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';

const sluice = process.env.SLUICE ?? 'build/sluice';
const small = 'etc/models/demo-small.gguf';
const bench = (...args) => spawnSync(sluice, ['bench', ...args], { encoding: 'utf8', timeout: 120_000 });

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

test('bench: wrong arguments are named', () => {
  assert.match(bench('machine', '--threads', 'many').stderr, /--threads: many/);
  assert.match(bench('model', small, '--batch', '0').stderr, /--batch/);
  assert.match(bench('engine', small, '--scenario', 'none').stderr, /no scenario none/);
  assert.equal(bench('nothing').status, 64);
});
