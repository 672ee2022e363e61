/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of a step, and the graphs made of repeated lists. Host code, the same for the device and for its
 * emulation.
 *
 * Between step_begin and step_end nothing is launched: commands are recorded. At the step's end a list whose bytes are
 * those of a graph (same kernels, grids, pointers, scalars, in the same order) is one launch of that graph; everything
 * that varies from step to step lies in the device's memory. Other lists are launched command by command; a list seen
 * for the second time is captured and launched as a graph.
 *
 * Equality is that of all bytes, not of a digest: a graph can never be taken for another step. So memory that moved
 * needs no special care: its address is in the list. Graphs are still dropped when memory that they may name is freed,
 * because they could never match again.
 */
#ifndef KERNELS_CUDA_LIST_H
#define KERNELS_CUDA_LIST_H

#include "kernels/cuda/device.h"

struct kn_list {
	const struct kn_plugin_host *host;
	uint8_t *at; /* [room], KN_COMMAND_ALIGN-aligned */
	void *owned;
	size_t n, room; /* bytes */
	bool broken;    /* some were run before the list's end: what is there is not all of the step */
	/* Before commands are run: what they read must be on its way. 0 or SL_EIO. */
	int (*before)(void *ctx);
	void *ctx;
};

/* Room for so many more bytes at its end, a multiple of KN_COMMAND_ALIGN. NULL: no memory. */
void *kn_list_put(struct kn_list *l, size_t bytes);
void kn_list_dispose(struct kn_list *l);
void kn_list_clear(struct kn_list *l);
static inline const struct kn_command *kn_list_at(const struct kn_list *l, size_t at)
{
	return (const struct kn_command *)(const void *)(l->at + at);
}
/* Where the commands end that compute, and those begin that copy results out: bytes. */
size_t kn_list_head(const struct kn_list *l);
/* Runs the commands in [from, to). 0 or SL_EIO. */
int kn_list_run(struct dev *d, const struct kn_list *l, size_t from, size_t to);
/* Of the list that d records, if any: runs what it has and leaves it empty and broken. 0 or SL_EIO. */
int kn_list_flush(struct dev *d);

/* ---- graphs ---- */

enum { KN_MAX_GRAPHS = 64, KN_SEEN = 256, KN_SEEN_WAYS = 8 };

struct kn_graph {
	struct dev_graph *graph;
	uint8_t *bytes; /* owned: the commands that it is made of */
	size_t n;
	uint64_t digest, used;
};

struct kn_graphs {
	struct kn_graph all[KN_MAX_GRAPHS];
	int n;
	uint64_t seen[KN_SEEN / KN_SEEN_WAYS]
		     [KN_SEEN_WAYS]; /* digests of lists that were run once, by their low bits */
	uint64_t clock;
	uint64_t hits, misses, captures, refused;
};

/* Runs the first n bytes of the list, by a graph where there is one or one is due. 0 or SL_EIO. */
int kn_graphs_run(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n);
void kn_graphs_drop(struct dev *d, struct kn_graphs *g);

#endif
