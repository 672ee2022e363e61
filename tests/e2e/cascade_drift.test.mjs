// SPDX-License-Identifier: Apache-2.0
// Weights and thresholds that `sluice cascade refit` found, in a server: where easy and hard pay they decide, and requests that are
// no longer like those of the fit are a metric.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { SLUICE, startServer } from './harness.mjs';
import { samples, sum } from './prometheus.mjs';

const EASY = (i) => `What is the capital of country number ${i}?`;
const HARD = (i) => `Compare item ${i} with the other one and explain why it is better, step by step.`;

test('thresholds of the fit decide, and other requests than those of the fit show as drift', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-drift-')), log = join(folder, 'log'), weights = join(folder, 'weights');
  writeFileSync(log, Array.from({ length: 2000 }, (_, i) => JSON.stringify({ plan: 'check', messages: user(i % 3 === 0 ? HARD(i) : EASY(i)),
    small_right: i % 3 !== 0 })).join('\n'));
  const r = spawnSync(SLUICE, ['cascade', 'refit', log, '-o', weights, '--json']);
  assert.equal(r.status, 0, r.stderr.toString());
  const fit = JSON.parse(r.stdout);
  assert.ok(fit.easy > 0 && fit.hard < 1, JSON.stringify(fit));
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=0', `cascade.weights=${weights}`, 'cascade.tiers.paid.thresholds=fitted', 'cascade.tiers.paid.easy=0', 'cascade.tiers.paid.hard=1', 'cascade.tiers.paid.race=1',
    'gateway.tiers.paid.concurrency=1000', ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((l) => `gateway.tiers.paid.${l}=0`)] });
  const send = async (texts) => {
    for (let i = 0; i < texts.length; i += 20)
      for (const a of await Promise.all(texts.slice(i, i + 20).map((t) => chat(server.http, server.keys.paid, { model: 'auto', max_tokens: 1, messages: user(t) })))) assert.equal(a.status, 200, a.body);
  };
  const figure = async (name, labels) => sum(samples(await server.metrics()), name, labels);
  try {
    assert.equal(await figure('sluice_cascade_drift'), 0);
    await send(Array.from({ length: 600 }, (_, i) => (i % 3 === 0 ? HARD(i + 9000) : EASY(i + 9000))));
    assert.ok(await until(async () => await figure('sluice_cascade_requests_total') === 600, 60_000));
    assert.deepEqual([await figure('sluice_cascade_requests_total', { plan: 'large', why: 'hard' }), await figure('sluice_cascade_requests_total', { plan: 'small', why: 'easy' })], [200, 400]);
    const same = await figure('sluice_cascade_drift');
    assert.ok(same >= 0 && same < 0.1, `${same}`);
    await send(Array.from({ length: 600 }, (_, i) => HARD(i + 20000)));
    const other = await figure('sluice_cascade_drift');
    assert.ok(other > 0.25, `${other}`);
  } finally { await server.stop(); rmSync(folder, { recursive: true, force: true }); }
});
