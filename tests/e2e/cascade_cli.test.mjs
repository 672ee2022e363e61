// SPDX-License-Identifier: Apache-2.0
// `sluice cascade …` over a log of made-up outcomes, as a person at a terminal runs it.
// Perf: how long a score takes.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { SLUICE } from './harness.mjs';
import { figure } from './perf.mjs';

const USAGE = 64;
let folder, log;

function sluice(args, input = '') {
  const r = spawnSync(SLUICE, args, { input, timeout: 60000 });
  return { status: r.status, out: r.stdout.toString(), err: r.stderr.toString() };
}

function good(args, input) {
  const r = sluice(args, input);
  assert.equal(r.status, 0, r.err);
  assert.equal(r.err, '');
  return r.out;
}

function bad(args, status, line) {
  const r = sluice(args);
  assert.equal(r.status, status, r.err);
  assert.match(r.err, line);
}

/** Numbers that are the same in every run. */
function* random() {
  for (let x = 1; ;) yield (x = (x * 48271) % 2147483647) / 2147483647;
}

/** 70 % easy lookups, 30 % hard questions; the small model is less sure where it is wrong. */
function outcomes(n) {
  const r = random(), next = () => r.next().value;
  const lines = [];
  for (let i = 0; i < n; i++) {
    const hard = next() < 0.3, right = next() < (hard ? 0.1 : 0.97);
    const content = hard ? `Compare item ${i} with the other one and explain why it is better, step by step.`
      : `What is the capital of country number ${i}?`;
    const level = right ? 0.8 : 0.45, trace = [];
    for (let k = 0; k < 12; k++) trace.push(Math.min(1, Math.max(0, level + 0.3 * (next() - 0.5))));
    const up = hard && next() < 0.9;
    lines.push({
      v: 1, id: `r${i}`, tier: 'free', score: hard ? 0.7 : 0.2, plan: 'check', why: 'middle', escalated: up ? 'held' : 'none',
      messages: [{ role: 'user', content }], trace, small_right: right, large_right: true, right: right || up, ttft_ms: up ? 80 : 20,
      small: { prompt: 10, made: 12, shown: up ? 2 : 12 }, large: up ? { prompt: 10, made: 10, shown: 10, given: 3 } : undefined,
      offered: up ? 3 : 0, accepted: up ? 2 : 0, always_large: 22,
    });
  }
  return lines.map((l) => JSON.stringify(l)).join('\n');
}

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-cascade-'));
  log = join(folder, 'outcomes.jsonl');
  writeFileSync(log, outcomes(1000));
});
after(() => rmSync(folder, { recursive: true, force: true }));

test('refit replaces weights that are worse, and keeps those that are not', () => {
  const w = join(folder, 'refit'), own = join(folder, 'served.jsonl'), lines = outcomes(1000).split('\n');
  writeFileSync(`${own}.1`, `${lines.slice(0, 500).join('\n')}\n`); // as the server leaves them
  writeFileSync(own, `${lines.slice(500).join('\n')}\n`);
  const first = JSON.parse(good(['cascade', 'refit', own, '-o', w, '--json']));
  assert.deepEqual([first.end, first.outcomes, first.with_verdict], ['taken', 1000, 1000]);
  assert.ok(first.new_loss < first.loss && first.gain > 2 * first.error, JSON.stringify(first));
  assert.ok(first.easy >= 0 && first.easy <= first.hard && first.hard <= 1);
  const bytes = readFileSync(w);
  const second = sluice(['cascade', 'refit', own, '-o', w]);
  assert.equal(second.status, 3, second.err);
  assert.match(second.out, /^kept: the new weights are not better/);
  assert.deepEqual(readFileSync(w), bytes);
  // Without verdicts the large model's checks count.
  writeFileSync(own, lines.map((l) => JSON.stringify({ ...JSON.parse(l), small_right: null })).join('\n'));
  rmSync(`${own}.1`);
  const checks = JSON.parse(sluice(['cascade', 'refit', own, '-o', join(folder, 'checks'), '--json']).out);
  assert.ok(checks.with_verdict === 1000 && checks.end === 'taken', JSON.stringify(checks));
  const few = sluice(['cascade', 'refit', own, '-o', join(folder, 'few'), '--least', '1000']);
  assert.deepEqual([few.status, few.out.split(' (')[0]], [3, 'kept: there are too few outcomes of one kind']);
  writeFileSync(w, 'damaged');
  bad(['cascade', 'refit', own, '-o', w], 1, /not a cascade weights file/);
  bad(['cascade', 'refit', own], USAGE, /needs -o WEIGHTS/);
  bad(['cascade', 'refit', own, '-o', own], 1, /outcomes|same/);
  bad(['cascade', 'refit', own, '-o', w, '--newest', '0.6'], USAGE, /--newest must be/);
});

test('train fits weights that tell hard requests from easy ones, the same each time', () => {
  const a = join(folder, 'a'), b = join(folder, 'b');
  const fit = JSON.parse(good(['cascade', 'train', log, '-o', a, '--held-out', '0.3', '--json']));
  assert.equal(fit.trained.n + fit.held_out.n, 1000);
  assert.equal(fit.held_out.n, 300);
  assert.ok(fit.held_out.auc > 0.85, JSON.stringify(fit));
  assert.ok(fit.held_out.loss < fit.held_out.base_loss);
  good(['cascade', 'train', '-', '-o', b, '--held-out', '0.3'], readFileSync(log));
  assert.deepEqual(readFileSync(a), readFileSync(b));
  bad(['cascade', 'train', log, '-o', b, '--seed', '2'], 1, /already exists/);
  bad(['cascade', 'train', log, '-o', log, '--force'], 1, /is the same file/);
  good(['cascade', 'train', log, '-o', b, '--seed', '2', '--force']);
  assert.notDeepEqual(readFileSync(a), readFileSync(b));
  assert.equal(readFileSync(a).subarray(0, 4).toString(), 'SLCW');
});

test('calibrate finds thresholds for a share and for a quality', () => {
  const rate = JSON.parse(good(['cascade', 'calibrate', log, '--rate', '0.65', '--json']));
  assert.equal(rate.outcomes, 1000);
  assert.ok(rate.best.small_rate >= 0.65);
  assert.ok(rate.best.quality >= 0.98, JSON.stringify(rate.best));
  assert.equal(rate.curve.length, 20);
  assert.equal(rate.curve[0].small_rate, 1);
  for (let i = 1; i < rate.curve.length; i++) assert.ok(rate.curve[i].small_rate < rate.curve[i - 1].small_rate);
  const quality = JSON.parse(good(['cascade', 'calibrate', log, '--quality', '0.98', '--json']));
  assert.ok(quality.best.quality >= 0.98 && quality.best.low <= rate.best.low);
  assert.ok(quality.sure >= quality.best.low && quality.drop <= quality.best.low);
  assert.match(good(['cascade', 'calibrate', log]), /for cascade\.tiers: {2}sure: 0\.\d{4} {2}low: 0\.\d{4} {2}drop: 0\.\d{4}\n$/);
  const early = JSON.parse(good(['cascade', 'calibrate', log, '--quality', '0.98', '--early', '1', '--json']));
  assert.deepEqual([early.best, early.drop], [quality.best, quality.drop]);
  assert.ok(early.sure >= early.best.low && early.sure <= 1 && early.held <= early.held_at_1, JSON.stringify(early));
  assert.match(good(['cascade', 'calibrate', log, '--early', '0.9']), /tokens held, mean: {2}[\d.]+ \(with sure: 1 {2}[\d.]+\)\nfor cascade/);
  assert.notEqual(sluice(['cascade', 'calibrate', log, '--early', '2']).status, 0);
  const none = sluice(['cascade', 'calibrate', log, '--quality', '1.5']);
  assert.equal(none.status, 1);
  assert.match(none.err, /no threshold reaches 1\.5/);
});

test('report adds up', () => {
  const lines = readFileSync(log, 'utf8').split('\n').map((l) => JSON.parse(l));
  const up = lines.filter((l) => l.escalated === 'held').length;
  const r = JSON.parse(good(['cascade', 'report', log, '--json']));
  assert.equal(r.requests, 1000);
  assert.equal(r.small_alone, 1000 - up);
  assert.equal(r.escalations, up);
  assert.deepEqual([r.plans.check, r.whys.middle, r.escalated.none], [1000, 1000, 1000 - up]);
  assert.equal(r.rows.large, up * 23);
  assert.equal(r.rows.always_large, 22000);
  assert.equal(r.tokens.small_shown + r.tokens.small_wasted, 12000);
  assert.equal(r.quality.right, lines.filter((l) => l.right).length);
  assert.ok(Math.abs(r.rows.saved - (1 - (up * 23 + 0.1 * 22000) / 22000)) < 1e-3);
  assert.deepEqual([r.ttft_ms.small.p50, r.ttft_ms.small.n], [20, 1000]);
  const text = good(['cascade', 'report', log]);
  assert.match(text, new RegExp(`^small model alone +${1000 - up} `, 'm'));
});

test('what is wrong is one line with its place', () => {
  const cases = [
    [['cascade', 'train', log], USAGE, /needs -o WEIGHTS/],
    [['cascade', 'train', log, '-o', join(folder, 'x'), '--bits', '40'], USAGE, /--bits must be between 8 and 20, not '40'/],
    [['cascade', 'report'], USAGE, /needs one FILE/],
    [['cascade', 'report', join(folder, 'nothing')], 1, /nothing: No such file/],
  ];
  for (const [args, status, line] of cases) {
    const r = sluice(args);
    assert.equal(r.status, status, r.err);
    assert.match(r.err, line);
    assert.equal(r.err.trim().split('\n').length, 1);
  }
  const r = sluice(['cascade', 'calibrate', '-'], '{"v":1}\n{"trace":[2]}\n');
  assert.equal(r.status, 1);
  assert.match(r.err, /-:2: trace/);
  assert.equal(sluice(['cascade', 'dance']).status, USAGE);
  assert.match(good(['cascade', '--help']), /calibrate/);
  const one = sluice(['cascade', 'train', '-', '-o', join(folder, 'x')], '{"messages":[{"role":"user","content":"a"}],"small_right":true}');
  assert.equal(one.status, 1);
  assert.match(one.err, /both kinds are needed/);
});

test('bench cascade: a score takes microseconds', () => {
  const r = JSON.parse(good(['bench', 'cascade', '--json']));
  assert.equal(r.texts.length, 7);
  for (const t of r.texts) assert.ok(t.score_ns > 0, JSON.stringify(t));
  assert.ok(r.token_ns > 0);
  figure(r.texts.every((t) => t.score_ns < 200000) && r.token_ns < 20000,
    `cascade: a score in ${r.texts.map((t) => Math.round(t.score_ns)).join(', ')} ns, a token in ${r.token_ns} ns`);
});
