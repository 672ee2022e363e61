/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated threads, their warps and blocks. Private to the emulation of blocks: emu.cu runs threads, emu_warp.cu is
 * what the lanes of a warp do together.
 */
#ifndef TESTS_EMULATION_EMU_THREAD_H
#define TESTS_EMULATION_EMU_THREAD_H

#include "tests/emulation/emu_blocks.h"

/* What the lanes of a warp do together. */
enum together { MEET, SHUFFLE, TREE, MMA_BF16, MMA_F16, MATRICES, MATRICES_TURNED };

/* What a lane gives for it. */
struct given {
	float f;
	uint32_t a[4], b[2];
	const void *row;
	void (*tree)(struct emu_lanes *);
};

struct emu_thread {
	struct emu_block *block;
	dim3 idx;
	int n;         /* its number in the block */
	unsigned turn; /* of what the lanes did together: two places in turn, so that one wait each is enough */
	struct given given[2];
	struct fibre *fibre;
	struct copy *copies; /* [MAX_COPIES] on their way, in order */
	int n_copies;
	unsigned group; /* the one that is open */
};

struct copy {
	void *to;
	const void *from; /* NULL: zeros */
	unsigned group;
};

/* What a warp got from what its lanes did together. */
struct emu_warp {
	unsigned done; /* up to which turn */
	union {
		float product[KN_WARP][4];
		uint32_t pairs[KN_WARP][4];
		struct emu_lanes lanes;
	} got[2];
};

struct emu_block {
	const char *kernel;
	const struct kn_command *command;
	dim3 grid, dim, idx;
	void *shared;
	size_t shared_bytes;
	int n;
	struct emu_thread *threads;
	uint8_t *states;   /* [n] enum state */
	uint8_t *together; /* [n] enum together: what each did last */
	struct emu_warp *warps;
	struct runner *runner;
	const uint32_t *order; /* [n_blocks], in which they run */
	uint32_t n_blocks;
	const char *misuse; /* NULL, or what a device would not have done */
};

/* The thread that runs. Read many times for each operation, and a call each time in the model that a shared object has
 * by default. */
extern thread_local struct emu_thread *emu_self __attribute__((tls_model("initial-exec")));

/* Waits until all lanes of the thread's warp have come; then compute (NULL: nothing to do) runs once for them. */
void emu_all_lanes(void (*compute)(struct emu_thread *lanes, struct emu_warp *w, unsigned turn));

#endif
