/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with the tokenizer, the width, the heads and the types of weights of the small demonstration model, but two
 * of its layers, one that drafts, and random weights: emulated kernels take seconds for what a device does in none.
 */
#ifndef TESTS_KERNELS_SHALLOW_MODEL_H
#define TESTS_KERNELS_SHALLOW_MODEL_H

#include <stdio.h>
#include <unistd.h>

#include "engine/source/random_model.h"

static char shallow_path[64];

static inline int make_shallow_model(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct random_model r = {.path = shallow_path,
				 .name = "shallow",
				 .tokenizer = "etc/models/demo-small.gguf",
				 .seed = 4,
				 .n_threads = 1};
	snprintf(shallow_path, sizeof shallow_path, "/tmp/sluice-shallow-%d.gguf", (int)getpid());
	if (random_shape_find("tiny-mistral", &r.arch, &err) != 0 || weight_plan_parse("q8_0", &r.plan, &err) != 0)
		return -1;
	r.arch.n_embd = r.arch.n_ff = 128;
	r.arch.head_dim = r.arch.rope.n_rot = 32;
	r.arch.attn_scale = 0.1768f; /* 1 / sqrt(32) */
	r.arch.tied_embeddings = true;
	r.arch.n_drafting = 1;
	return random_model_write(&r, NULL, &err);
}

static inline int drop_shallow_model(void **state)
{
	(void)state;
	return unlink(shallow_path);
}

#endif
