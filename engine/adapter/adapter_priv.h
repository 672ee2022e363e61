/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter while its file is read: adapter_peft.c and adapter_gguf.c put its halves, adapter.c checks them.
 */
#ifndef ENGINE_ADAPTER_PRIV_H
#define ENGINE_ADAPTER_PRIV_H

#include "engine/adapter/adapter.h"
#include "engine/file/gguf.h"
#include "engine/file/safetensors.h"

struct adapter_slot {
	struct adapter_matrix m;
	double alpha;
	bool by_root;     /* scale = alpha / sqrt(rank) (Kalajdzievski, "rsLoRA", 2023), else alpha / rank */
	const char *name; /* of a half, in the file */
	struct adapter_slot *experts; /* [n_experts], of EXPERT_…, whose own m is empty */
	int n_experts;
};

struct adapter {
	char *path;
	const char *form;
	char base_name[256];
	const struct model_file *base; /* only while it is opened, as arch is */
	const struct model_arch *arch;
	char family[32];            /* of the base, by whose names its tensors are found */
	struct adapter_slot *slots; /* [most_layers][ADAPTER_TARGETS] */
	int most_layers, n_layers, most_experts;
	bool any; /* a half has been put */
	uint64_t bytes;
	struct gguf *gguf; /* or */
	struct safetensors *tensors;
};

/* A half as its file has it, or those of all experts. */
struct adapter_part {
	const char *name;   /* in the file, for messages; lives as long as the file */
	const char *matrix; /* of the base, by GGUF's name */
	/* As B [n_out][rank] of the base's matrix; of EMBED that is what files call A, which has a row for each token.
	 */
	bool is_b;
	struct adapter_half half; /* the first of n */
	uint64_t n, bytes;        /* n halves, bytes in all */
	double alpha;
	bool by_root;
	int want_rank;
};

/* What the file calls a half: 'A' or 'B'. */
char adapter_half_letter(enum adapter_target t, bool is_b);
/* SL_EUNSUPPORTED: a matrix that takes no adapter; SL_EINVAL: it does not fit, or is there already. */
int adapter_put(struct adapter *a, const struct adapter_part *p, struct sl_err *err);

/* Put all halves of a->path. */
int adapter_read_peft(struct adapter *a, struct sl_err *err);
int adapter_read_gguf(struct adapter *a, struct sl_err *err);

#endif
