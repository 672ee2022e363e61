// SPDX-License-Identifier: Apache-2.0
// Blocks a multiprocessor holds (tests/bench/occupancy.mjs) against figures of cudaOccMaxActiveBlocksPerMultiprocessor
// (cuda_occupancy.h, CUDA 13.0).
import assert from 'node:assert/strict';
import test from 'node:test';
import { devices, resident } from '../bench/occupancy.mjs';

test('blocks are those of the toolkit, whatever limits them', () => {
  for (const [arch, registers, threads, shared, blocks] of [
    // registers of quarters: of the whole file there would be room for one more
    [90, 224, 32, 17408, 8], [100, 143, 64, 30848, 6], [100, 143, 64, 28800, 6],
    [80, 235, 32, 16384, 8], [80, 241, 128, 26624, 2], [80, 168, 32, 8192, 12], // registers
    [80, 153, 64, 29824, 5], [80, 255, 32, 40960, 4], // shared memory
    [80, 20, 256, 0, 8], [120, 20, 256, 0, 6], // warps
    [80, 12, 32, 0, 32], [86, 12, 32, 0, 16], [120, 12, 32, 0, 24], // blocks
  ])
    assert.equal(resident({ registers, threads, shared }, devices[arch]), blocks, `${arch}: ${registers}, ${threads}, ${shared}`);
});
