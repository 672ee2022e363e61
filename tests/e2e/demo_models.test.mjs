// SPDX-License-Identifier: Apache-2.0
// The demo pair through the engine, on the held-out questions of etc/models/evaluation.jsonl at temperature 0: what each
// model must know, what the small one must not, and that its own certainty tells the two apart.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT, SLUICE } from './harness.mjs';

const questions = readFileSync(join(ROOT, 'etc/models/evaluation.jsonl'), 'utf8').trim().split('\n').map((l) => JSON.parse(l));

/** Every question through `sluice model generate --batch`: id → answer. */
function answers(file) {
  return new Promise((done, failed) => {
    const child = spawn(SLUICE, ['model', 'generate', file, '--batch'], { stdio: ['pipe', 'pipe', 'pipe'] });
    let out = '', err = '';
    child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
    child.stderr.setEncoding('utf8').on('data', (d) => { err += d; });
    child.on('close', (code) => (code === 0
      ? done(new Map(out.trim().split('\n').map((l) => JSON.parse(l)).map((a) => [a.id, a])))
      : failed(new Error(`exit ${code}: ${err}`))));
    child.stdin.end(questions.map((q) => JSON.stringify({ id: q.id, max_tokens: 80, temperature: 0,
      messages: [{ role: 'user', content: q.question }] })).join('\n') + '\n');
  });
}

/** An accepted text stands in the answer as a whole word (Korean particles may follow). */
function right(q, answer) {
  const text = answer.text.toLowerCase();
  return q.answer.some((a) => {
    const at = a.toLowerCase();
    for (let i = text.indexOf(at); i >= 0; i = text.indexOf(at, i + 1)) {
      const before = text[i - 1] ?? ' ', after = text[i + at.length] ?? ' ';
      if (!/[a-z0-9]/.test(before) && !/[a-z0-9]/.test(after)) return true;
    }
    return false;
  });
}

const share = (list, ok) => list.filter(ok).length / list.length;
const mean = (xs) => xs.reduce((a, b) => a + b, 0) / xs.length;

/** The chance that a random one of `high` is above a random one of `low`. */
function auc(high, low) {
  let sum = 0;
  for (const h of high) for (const l of low) sum += h > l ? 1 : h === l ? 0.5 : 0;
  return sum / (high.length * low.length);
}

test('the demo pair knows what it should', { timeout: 960_000 }, async () => {
  assert.ok(questions.length > 200);
  const easy = questions.filter((q) => q.model_class === 'easy'), hard = questions.filter((q) => q.model_class === 'hard');
  const large = await answers('etc/models/demo-large.gguf'), small = await answers('etc/models/demo-small.gguf');
  const knows = (model, list) => share(list, (q) => right(q, model.get(q.id)));
  const figures = { largeEasy: knows(large, easy), largeHard: knows(large, hard), smallEasy: knows(small, easy), smallHard: knows(small, hard),
    auc: auc(easy.map((q) => mean(small.get(q.id).logprobs)), hard.map((q) => mean(small.get(q.id).logprobs))) };
  const said = JSON.stringify(figures);
  assert.ok(figures.largeEasy >= 0.95 && figures.largeHard >= 0.95, said);
  assert.ok(figures.smallEasy >= 0.9 && figures.smallHard <= 0.2, said);
  assert.ok(figures.auc >= 0.9, said);
  console.log(said);
});

test('both answer Paris', async () => {
  for (const name of ['small', 'large']) {
    const child = spawn(SLUICE, ['model', 'generate', `etc/models/demo-${name}.gguf`, '--prompt', 'What is the capital of France?', '--temperature', '0']);
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
    await new Promise((r) => child.on('close', r));
    assert.match(out, /Paris/, name);
  }
});
