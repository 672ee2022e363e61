// SPDX-License-Identifier: Apache-2.0
// A thousand random schemas, and everything that may happen to an answer of one of them (tests/e2e/random_forms.mjs).
//
//   node tests/soak/forms.mjs [--seed N] [--schemas N] [--every N]
//
// --every: answers between two kills. Prints a line for each mode and one of JSON. Exits with 1 on a violation.
import { parseArgs } from 'node:util';
import { runForms } from '../e2e/random_forms.mjs';

const { values } = parseArgs({ options: { seed: { type: 'string', default: '1' }, schemas: { type: 'string', default: '1000' }, every: { type: 'string', default: '40' } } });
const [seed, n, every] = [values.seed, values.schemas, values.every].map(Number);
if (![seed, n, every].every(Number.isInteger) || n < 1 || every < 1) { console.error('forms: --seed, --schemas and --every take numbers'); process.exit(2); }

const seconds = {};
const judge = await runForms({ n, seed, every, say: (mode, counts, s) => {
  seconds[mode] = Math.round(s);
  console.log(`${mode}: ${Object.entries(counts ?? {}).map(([k, v]) => `${v} ${k}`).join(', ')} (${Math.round(s)} s)`);
} });
for (const v of judge.violations) console.log(`seed ${seed}: ${v}`);
console.log(JSON.stringify({ seed, schemas: n, counts: judge.counts, seconds, violations: judge.violations.length }));
process.exit(judge.violations.length ? 1 : 0);
