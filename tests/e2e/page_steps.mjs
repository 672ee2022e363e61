// SPDX-License-Identifier: Apache-2.0
// Counts what the page's modules do, instead of timing it: how often the blocks of their code ran, and what the built-in functions
// that they use walked over.
import assert from 'node:assert/strict';
import { Session } from 'node:inspector';

// What the built-in functions walk over, beside one step for the call: of the object, the result and the first two arguments.
const WALKS = [
  [String.prototype, { indexOf: (s, r, part, from = 0) => (r < 0 ? s.length : r) - from, includes: (s) => s.length, search: (s) => s.length, trim: (s, r) => s.length - r.length,
    replace: (s) => s.length, replaceAll: (s) => s.length, split: (s) => s.length, toLowerCase: (s) => s.length, repeat: (s, r) => r.length,
    slice: (s, r) => r.length, startsWith: (s, r, part) => part.length, trimStart: (s, r) => s.length - r.length, trimEnd: (s, r) => s.length - r.length }],
  [RegExp.prototype, { exec: (re, r, s) => (re.sticky && r ? r[0].length : s.length), test: (re, r, s) => s.length }],
  [Array.prototype, { splice: (a, r, from) => a.length - from + 2 * r.length, slice: (a, r) => r.length, join: (a) => a.length, concat: (a, r) => r.length, map: (a) => a.length,
    flat: (a, r) => r.length, flatMap: (a, r) => r.length, includes: (a) => a.length, indexOf: (a) => a.length, shift: (a) => a.length, unshift: (a) => a.length, find: (a) => a.length, findLast: (a, r) => a.length - Math.max(0, a.lastIndexOf(r)), lastIndexOf: (a, r) => a.length - Math.max(0, r), sort: (a) => a.length }],
];

/** Runs work and returns what the built-in functions walked over meanwhile. */
function walked(work) {
  let steps = 0;
  const undo = [];
  for (const [proto, walks] of WALKS) {
    for (const [name, walk] of Object.entries(walks)) {
      const real = proto[name];
      proto[name] = function counted(one, two) { // without a list of its arguments, which would cost more than the rest
        const result = arguments.length === 1 ? real.call(this, one) : arguments.length === 2 ? real.call(this, one, two) : real.apply(this, arguments);
        steps += 1 + walk(this, result, one, two);
        return result;
      };
      undo.push(() => { proto[name] = real; });
    }
  }
  try { work(); } finally { undo.forEach((f) => f()); }
  return steps;
}

/** A function that runs work and returns the steps it took, of the modules whose address begins so. Once a process. */
export function countSteps(address) {
  const inspector = new Session();
  inspector.connect();
  inspector.post('Profiler.enable');
  inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  const blocksRun = () => { // since the last call
    let count = 0;
    inspector.post('Profiler.takePreciseCoverage', (failed, { result }) => {
      assert.ifError(failed);
      const mine = result.filter((script) => script.url.startsWith(address));
      for (const range of mine.flatMap((script) => script.functions.flatMap((f) => f.ranges))) count += range.count;
    });
    return count;
  };
  return (work) => {
    blocksRun();
    return walked(work) + blocksRun();
  };
}
