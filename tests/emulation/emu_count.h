/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels ask of memory, counted in the emulation: bytes by the wrapper that loads them, the turns that the banks
 * of shared memory take, and atomics that meet at one address. A device's speed cannot be seen here; that a kernel asks
 * for more than it should can.
 *
 * A warp's lanes run one after the other, so each lane's accesses to shared memory are noted, and matched by the place
 * in the code when all lanes have stopped (emu_count_warp). Only what goes through a wrapper is seen.
 */
#ifndef TESTS_EMULATION_EMU_COUNT_H
#define TESTS_EMULATION_EMU_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Of the launches since sluice_emulation_count. */
struct emu_counts {
	uint64_t launches, blocks;
	uint64_t once_bytes;  /* kn_load_once */
	uint64_t again_bytes; /* kn_load_again */
	uint64_t async_bytes; /* cp.async; without those that become zeros */
	uint64_t hints;       /* kn_prefetch: lines of 128 bytes */
	/* Of a warp's loads and stores by kn_shared_load16, ldmatrix and cp.async: the groups of lanes that the banks
	 * serve at once if they don't meet (32 lanes of 4 bytes, 16 of 8, 8 of 16), and the turns that they take. */
	uint64_t shared_groups, shared_turns;
	/* Of a warp's atomics in shared memory: how many, and the turns that they take, one for each lane that meets
	 * another at an address. */
	uint64_t atomics, atomic_turns;
	uint64_t unmatched; /* accesses that found no room; anything but 0 makes the others too small */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Begins counting from zero, or ends it. Not for several devices that run at once. 0: threads of a block are the
 * system's, and nothing is counted. */
int sluice_emulation_count(int on);
/* The counts of all kernels whose name contains `kernel`. */
void sluice_emulation_counted(const char *kernel, struct emu_counts *out);
#ifdef __cplusplus
}
#endif

#endif
