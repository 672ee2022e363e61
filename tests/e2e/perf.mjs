// SPDX-License-Identifier: Apache-2.0
// What only `make perf` measures. CI runs the same load and asserts what must hold at any speed: statuses, orders, counts.

export const PERF = Boolean(process.env.SLUICE_PERF);

/** Runs `round` once; `make perf` prints what it says and repeats it until the figure is good, `tries` times at most. */
export async function measured(round, { tries = 4 } = {}) {
  for (let i = 1; ; i++) {
    const { good, text } = await round();
    if (!PERF) return;
    console.log(text);
    if (good) return;
    if (i === tries) throw new Error(text);
  }
}

/** `make perf` prints the figure and requires it; elsewhere nothing. */
export function figure(good, text) {
  if (!PERF) return;
  console.log(text);
  if (!good) throw new Error(text);
}
