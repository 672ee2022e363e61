/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands that an emulated device has received and not run yet, and the pinned host memory that they
 * access. Private to the emulation. A device has two, the second for copies aside; each waits for
 * the other where one of its commands requires it.
 */
#ifndef KERNELS_CUDA_EMU_QUEUE_H
#define KERNELS_CUDA_EMU_QUEUE_H

#include "kernels/cuda/device/list.h"

struct emu_pinned;

struct emu_queue {
	struct kn_list list; /* what has not been done, and what has and is still there */
	/* Bytes that have been done and are gone, of all there ever were: those in the list begin there. */
	uint64_t n_before;
	size_t first; /* of those in the list, bytes that have been done */
	int depth;    /* how many are at running it */
	uint64_t marks[DEV_MARKS];
	struct emu_pinned *pinned;
};

enum { EMU_ALL = -1 };

/* Done later; at once while sluice_emulation_eager, or when there is no memory to keep it. 0 or SL_EIO. */
int emu_queue_put(struct dev *d, struct emu_queue *q, const struct kn_command *c);
int emu_queue_copy(struct dev *d, struct emu_queue *q, void *to, const void *from, size_t bytes);
/* All of `other` so far is done before what is put into q from now on. */
int emu_queue_after(struct dev *d, struct emu_queue *q, struct emu_queue *other);
/* A step ends here: KN_STEP_OVER. */
int emu_queue_step_over(struct dev *d, struct emu_queue *q);
void emu_queue_mark(struct emu_queue *q, int mark);
bool emu_queue_reached(const struct emu_queue *q, int mark);
/* Does what was put before the mark, or all of it; after a fault the rest is dropped. 0 or SL_EIO. */
int emu_queue_run(struct dev *d, struct emu_queue *q, int mark);
/* Of KN_AFTER. */
struct emu_after {
	struct emu_queue *other;
	uint64_t to;
};
int emu_queue_run_to(struct dev *d, struct emu_queue *q, uint64_t to);

/* NULL: no memory. Zeroed. */
void *emu_pinned_alloc(struct emu_queue *q, size_t bytes);
void emu_pinned_free(struct emu_queue *q, void *p);
bool emu_is_pinned(const struct emu_queue *q, const void *p);

/* ---- emu_device.cu ---- */
int emu_run_now(struct dev *d, const struct kn_command *c);
/* A kernel that was kept for the next one (emu_early.h), since there is none. 0 or SL_EIO. */
int emu_run_kept(struct dev *d);

#endif
