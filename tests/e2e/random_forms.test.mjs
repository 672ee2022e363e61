// SPDX-License-Identifier: Apache-2.0
// A few random schemas, and everything that may happen to an answer of one of them (random_forms.mjs); `make soak` has a
// thousand.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasRedis } from './harness.mjs';
import { runForms } from './random_forms.mjs';

test('answers of random schemas, whatever happens to them', { skip: hasRedis() ? false : 'redis-server is not installed', timeout: 900_000 }, async () => {
  const judge = await runForms({ n: 16, seed: 1, every: 5 });
  assert.deepEqual(judge.violations, []);
  const c = judge.counts;
  assert.ok(c.plain.valid > 16 && c.plain.length > 0, JSON.stringify(c.plain));
  for (const [mode, what] of [['gateway killed', 'kills'], ['gateway killed', 'breaks'], ['gateway killed', 'continued by another'],
    ['engine killed', 'kills'], ['engine killed', 'ended with an error'], ['short pages', 'pre-emptions'],
    ['drafts, choices and short pages', 'pre-emptions'], ['drafts, choices and short pages', 'drafted tokens'], ['drafts', 'drafted tokens']])
    assert.ok(c[mode][what] > 0, `${mode}: ${JSON.stringify(c[mode])}`);
});
