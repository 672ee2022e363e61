/* SPDX-License-Identifier: Apache-2.0
 *
 * Which inputs a matrix has. Experts, latent and recurrent layers have inputs of other kinds: none of the sites.
 */
#include "engine/model/model_priv.h"

#include <stdlib.h>
#include <string.h>

static bool in_layer(const struct layer *l, const struct kn_weight *w, enum model_site *site)
{
	bool dense = l->experts == NULL, gated = l->gate.data != NULL;
	const struct {
		const struct kn_weight *w;
		enum model_site site;
		bool here;
	} firsts[] = {
	    {&l->q, MODEL_SITE_QKV, l->latent == NULL},
	    {&l->qkv, MODEL_SITE_QKV, true},
	    {&l->o, MODEL_SITE_O, true},
	    {&l->gate, MODEL_SITE_WIDEN, dense},
	    {&l->gate_up, MODEL_SITE_WIDEN, dense},
	    {&l->up, MODEL_SITE_WIDEN, dense && !gated},
	    {&l->down, MODEL_SITE_DOWN, dense},
	};
	for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
		if (firsts[i].w == w) {
			*site = firsts[i].site;
			return firsts[i].here;
		}
	return false;
}

bool model_site_of_weight(const struct model *m, const struct kn_weight *w, int *layer, enum model_site *site)
{
	*layer = 0;
	*site = MODEL_SITE_HEAD;
	if (w == &m->head)
		return true;
	for (; *layer < m->info.arch.n_layers; (*layer)++)
		if ((uintptr_t)w >= (uintptr_t)&m->layers[*layer] && (uintptr_t)w < (uintptr_t)&m->layers[*layer + 1])
			return in_layer(&m->layers[*layer], w, site);
	return false;
}

bool model_site_of_tensor(const char *name, int *layer, enum model_site *site)
{
	static const struct {
		const char *name;
		enum model_site site;
	} tensors[] = {{"attn_q", MODEL_SITE_QKV},   {"attn_k", MODEL_SITE_QKV},    {"attn_v", MODEL_SITE_QKV},
		       {"attn_qkv", MODEL_SITE_QKV}, {"attn_output", MODEL_SITE_O}, {"ffn_gate", MODEL_SITE_WIDEN},
		       {"ffn_up", MODEL_SITE_WIDEN}, {"ffn_down", MODEL_SITE_DOWN}};
	char *end;
	*layer = 0;
	*site = MODEL_SITE_HEAD;
	/* A tied head is a table of embeddings too, whose own errors count. */
	if (strcmp(name, "output.weight") == 0)
		return true;
	if (strncmp(name, "blk.", 4) != 0)
		return false;
	*layer = (int)strtol(name + 4, &end, 10);
	for (size_t i = 0; i < sizeof tensors / sizeof *tensors && *end == '.'; i++) {
		size_t n = strlen(tensors[i].name);
		*site = tensors[i].site;
		if (strncmp(end + 1, tensors[i].name, n) == 0 && strcmp(end + 1 + n, ".weight") == 0)
			return true;
	}
	return false;
}
