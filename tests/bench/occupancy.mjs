// SPDX-License-Identifier: Apache-2.0
// How many blocks of a kernel a multiprocessor holds, as the toolkit's cuda_occupancy.h computes it.

// A multiprocessor (CUDA C++ programming guide, "Compute capabilities"), whether it has products of warp groups, and, of a large
// board of its kind, bytes a second over all of them. A block can have all of its shared memory but 1 KiB.
export const devices = {
  80: { warps: 64, blocks: 32, shared: 164 << 10, board: 'A100', rate: 2.0e12, sms: 108 },
  86: { warps: 48, blocks: 16, shared: 100 << 10, board: 'A40', rate: 0.7e12, sms: 84 },
  89: { warps: 48, blocks: 24, shared: 100 << 10, board: 'L40S', rate: 0.86e12, sms: 142 },
  90: { warps: 64, blocks: 32, shared: 228 << 10, groups: true, board: 'H200', rate: 4.8e12, sms: 132 },
  100: { warps: 64, blocks: 32, shared: 228 << 10, board: 'B200', rate: 8.0e12, sms: 148 },
  120: { warps: 48, blocks: 24, shared: 100 << 10, board: 'RTX 5090', rate: 1.79e12, sms: 170 },
};

const WARP = 32, QUARTERS = 4, QUARTER_REGISTERS = 65536 / QUARTERS, REGISTER_UNIT = 256, SHARED_UNIT = 128, SHARED_SYSTEM = 1024;

// kernel: registers of a thread, threads of a block, bytes of shared memory of a block. A warp's registers lie in one quarter of
// the multiprocessor, in units of 256; shared memory is given out in units of 128 bytes, and 1 KiB a block is the system's.
export function resident({ registers, threads, shared }, device) {
  const warps = Math.ceil(threads / WARP);
  const ofWarp = Math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT;
  const byRegisters = Math.floor(Math.floor(QUARTER_REGISTERS / ofWarp) * QUARTERS / warps);
  const room = Math.ceil((shared + SHARED_SYSTEM) / SHARED_UNIT) * SHARED_UNIT;
  return Math.min(device.blocks, Math.floor(device.warps / warps), byRegisters, Math.floor(device.shared / room));
}
