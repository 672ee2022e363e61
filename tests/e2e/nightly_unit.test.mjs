// SPDX-License-Identifier: Apache-2.0
// The nightly measurement's judgment (tests/bench/nightly_stats.mjs) on made-up histories, and its history file.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { FIGURES, judge, readHistory, writeHistory } from '../bench/nightly.mjs';
import { changes, level, median } from '../bench/nightly_stats.mjs';
import { ROOT } from './harness.mjs';

/** Numbers that are the same in every run (Lehmer), and normal ones of them (Box and Muller). */
function randomOf(seed) {
  let x = seed * 7919 + 1;
  const next = () => (x = (x * 48271) % 2147483647) / 2147483647;
  for (let i = 0; i < 20; i++) next();
  return { next, normal: () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next()) };
}

/** Nights of five runs around 100: 2 % from night to night, 3 % from run to run; a share of the nights is disturbed by up to 40 %. */
function history(seed, n, factor = () => 1, share = 0.025) {
  const r = randomOf(seed);
  return Array.from({ length: n }, (_, night) => {
    const disturbed = r.next() < share ? 1 + 0.4 * r.next() : 1, of = 100 * factor(night) * disturbed * Math.exp(0.02 * r.normal());
    return Array.from({ length: 5 }, () => of * Math.exp(0.03 * r.normal()));
  });
}

test('a planted change of 10 % is found within twelve nights, in 20 of 20 histories', () => {
  for (let seed = 1; seed <= 20; seed++)
    for (const factor of [1.1, 1 / 1.1]) {
      const found = changes(history(seed, 52, (night) => (night < 40 ? 1 : factor))).filter((c) => c.night >= 40);
      assert.ok(found.some((c) => c.ratio > 1 === factor > 1 && Math.abs(Math.log(c.ratio / factor)) < 0.08), `${seed}, ${factor}: ${JSON.stringify(found)}`);
    }
});

test('noise alone is no change, in 20 of 20 histories of half a year', () => {
  let disturbed = 0;
  for (let seed = 101; seed <= 120; seed++) {
    assert.deepEqual(changes(history(seed, 180, () => 1, 0)), [], `${seed}`);
    disturbed += changes(history(seed, 180)).length;
  }
  assert.ok(disturbed <= 1, `${disturbed} in ten years with a disturbed night in forty`);
});

test('small changes, short histories and nights without figures', () => {
  assert.deepEqual(changes(history(7, 60, (n) => (n < 30 ? 1 : 1.02))), [], 'too small to matter');
  assert.deepEqual(changes(history(7, 18, (n) => (n < 10 ? 1 : 2))), [], 'too short to tell');
  assert.deepEqual(changes([]), []);
  assert.ok(Number.isNaN(level([])) && Number.isNaN(level([0, NaN, -1])));
  assert.equal(median([3, 1, 2]), 2);
  const gaps = history(9, 70, (n) => (n < 50 ? 1 : 1.3)).flatMap((n) => [n, []]);
  assert.ok(changes(gaps).some((c) => c.ratio > 1.2));
  // The same value every night, to the last digit, has no noise but the floor.
  const still = (n, f) => Array.from({ length: n }, () => [100 * f]);
  assert.equal(changes([...still(20, 1), ...still(4, 1.1)]).length, 1);
  assert.deepEqual(changes([...still(20, 1), ...still(20, 1.03)]), []);
});

test('the history keeps to its kind, its bound and its direction', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-nightly-')), file = join(folder, 'history');
  try {
    const slower = history(3, 40, (n) => (n < 30 ? 1 : 1.5)), complaints = [];
    const nights = slower.map((runs, i) => ({ at: `night ${i}`, what: 'a', figures: Object.fromEntries(Object.keys(FIGURES).map((f) => [f, runs])) }));
    const first = nights.findIndex((_, i) => judge(nights.slice(0, i + 1)).length > 0);
    assert.ok(first >= 30 && first < 35, `${first}`);
    const found = judge(nights.slice(0, first + 1));
    assert.equal(found.length, Object.keys(FIGURES).length);
    for (const c of found) assert.equal(c.worse, c.figure !== 'tokens/s', c.figure);
    assert.deepEqual(judge([...nights.slice(0, first), { ...nights[first], what: 'b' }]), [], 'another machine');
    writeHistory(file, Array.from({ length: 20 }, () => nights).flat());
    assert.equal(readHistory(file).length, 400);
    writeHistory(file, nights.slice(0, first + 1));
    appendFileSync(file, '{"at": 3}\nnonsense\n');
    assert.equal(readHistory(file, (c) => complaints.push(c)).length, first + 1);
    assert.equal(complaints.length, 2);
    const run = (...args) => spawnSync('node', ['tests/bench/nightly.mjs', ...args], { cwd: ROOT, encoding: 'utf8' });
    const r = run('--history', file, '--judge');
    assert.equal(r.status, 1, r.stderr);
    assert.match(r.stdout, /^ttft p50 .*WORSE: 1\.\d+ times as before/m);
    assert.match(r.stdout, /^tokens\/s .*better/m);
    assert.equal(run('--history', join(folder, 'none'), '--judge').status, 2);
    assert.equal(run('--judge').status, 64);
    assert.equal(run('--history', file, '--server', 'http://127.0.0.1:1', '--key', 'k', '--runs', '1', '--seconds', '1').status, 2);
    assert.equal(readFileSync(file, 'utf8').split('\n').length, first + 4, 'a night without figures leaves no line');
  } finally { rmSync(folder, { recursive: true, force: true }); }
});
