/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of a step, and the graphs made of repeated lists. Host code, the same for the device and for its
 * emulation.
 *
 * Between step_begin and step_end nothing is launched: commands are recorded. At the step's end, a list with the same
 * bytes as a graph (same kernels, grids, pointers, scalars, in the same order) runs as one launch of that graph;
 * everything that varies between steps is in device memory. Other lists run command by command; a list seen for the
 * second time is captured and runs as a graph.
 *
 * Graphs are looked for from the latest used to the oldest, first by length and first command, whose grid has the
 * number of rows: so a decode that repeats is compared once. Only a list without a graph is hashed. A list that the
 * device refused to capture is remembered and runs plainly from then on.
 *
 * Lists are compared by all bytes, not by a digest, so a graph can never stand for another step. Memory that moved
 * needs no special care, because its address is in the list. Graphs are still dropped when memory that they may name
 * is freed: they could never match again.
 */
#ifndef KERNELS_CUDA_LIST_H
#define KERNELS_CUDA_LIST_H

#include "kernels/cuda/device/device.h"

struct kn_list {
	const struct kn_plugin_host *host;
	uint8_t *at; /* [room], KN_COMMAND_ALIGN-aligned */
	void *owned;
	size_t n, room; /* bytes */
	size_t head;    /* with has_head: what runs as a graph ends here */
	bool has_head;
	bool broken; /* some commands ran early: the list is not the complete step */
	/* Called before commands run; sends their inputs. 0 or SL_EIO. */
	int (*before)(void *ctx);
	void *ctx;
};

/* Appends `bytes` bytes, a multiple of KN_COMMAND_ALIGN. NULL: out of memory. */
void *kn_list_put(struct kn_list *l, size_t bytes);
void kn_list_dispose(struct kn_list *l);
void kn_list_clear(struct kn_list *l);
static inline const struct kn_command *kn_list_at(const struct kn_list *l, size_t at)
{
	return (const struct kn_command *)(const void *)(l->at + at);
}
/* The commands from here on bring results to the host, whose addresses differ from step to step: they are in no graph.
 */
void kn_list_end_head(struct kn_list *l);
/* Bytes of the commands before them. */
size_t kn_list_head(const struct kn_list *l);
/* Removes the last command, recorded at that offset. */
void kn_list_undo(struct dev *d, size_t at);
/* Runs the commands in [from, to). 0 or SL_EIO. */
int kn_list_run(struct dev *d, const struct kn_list *l, size_t from, size_t to);
/* Runs the list that d records, if any, and leaves it empty and broken. 0 or SL_EIO. */
int kn_list_flush(struct dev *d);

/* ---- graphs ---- */

enum { KN_MAX_GRAPHS = 64, KN_SEEN = 256, KN_SEEN_WAYS = 8, KN_REFUSED = 64 };

struct kn_graph {
	struct dev_graph *graph;
	uint8_t *bytes; /* owned: its commands */
	size_t n;
};

struct kn_graphs {
	struct kn_graph all[KN_MAX_GRAPHS]; /* the latest used first */
	int n;
	uint64_t seen[KN_SEEN / KN_SEEN_WAYS][KN_SEEN_WAYS]; /* digests of lists seen once, indexed by their low bits */
	uint64_t no[KN_REFUSED];                             /* digests of refused lists, a ring: 0: none */
	uint64_t hits, misses, captures, refused;
	uint64_t compares; /* of whole lists */
};

/* Runs the first n bytes of the list, as a graph if one exists or is due. 0 or SL_EIO. */
int kn_graphs_run(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n);
void kn_graphs_drop(struct dev *d, struct kn_graphs *g);

#endif
