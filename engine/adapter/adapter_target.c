/* SPDX-License-Identifier: Apache-2.0
 *
 * What adapters may change: the names of the base's tensors, and their shapes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/adapter/adapter.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"

static const struct {
	const char *name, *tensor;
} targets[ADAPTER_TARGETS] = {
    [ADAPTER_Q] = {"q", "attn_q.weight"},
    [ADAPTER_K] = {"k", "attn_k.weight"},
    [ADAPTER_V] = {"v", "attn_v.weight"},
    [ADAPTER_O] = {"o", "attn_output.weight"},
    [ADAPTER_GATE] = {"gate", "ffn_gate.weight"},
    [ADAPTER_UP] = {"up", "ffn_up.weight"},
    [ADAPTER_DOWN] = {"down", "ffn_down.weight"},
    [ADAPTER_SHARED_GATE] = {"shared_gate", "ffn_gate_shexp.weight"},
    [ADAPTER_SHARED_UP] = {"shared_up", "ffn_up_shexp.weight"},
    [ADAPTER_SHARED_DOWN] = {"shared_down", "ffn_down_shexp.weight"},
    [ADAPTER_EXPERT_GATE] = {"expert_gate", "ffn_gate_exps.weight"},
    [ADAPTER_EXPERT_UP] = {"expert_up", "ffn_up_exps.weight"},
    [ADAPTER_EXPERT_DOWN] = {"expert_down", "ffn_down_exps.weight"},
    [ADAPTER_EMBED] = {"embed", "token_embd.weight"},
    [ADAPTER_HEAD] = {"head", "output.weight"},
};

/* Of one expert: "ffn_gate.7.weight". */
static const char *const expert_stems[] = {"ffn_gate.", "ffn_up.", "ffn_down."};

const char *adapter_target_name(enum adapter_target t) { return targets[t].name; }
const char *adapter_target_tensor(enum adapter_target t) { return targets[t].tensor; }

/* The number that a dot ends, below `most`; -1: none. *end: after the dot. */
static int number_at(const char *s, int most, const char **end)
{
	size_t n = strspn(s, "0123456789");
	long v = n > 0 && n <= 6 && s[n] == '.' ? strtol(s, NULL, 10) : most;
	*end = s + n + 1;
	return v < most ? (int)v : -1;
}

static bool one_expert(const char *rest, struct adapter_place *out)
{
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(expert_stems[i]);
		const char *end;
		int expert = strncmp(rest, expert_stems[i], n) == 0 ? number_at(rest + n, KN_MAX_EXPERTS, &end) : -1;
		if (expert >= 0 && strcmp(end, "weight") == 0) {
			out->target = (enum adapter_target)((int)ADAPTER_EXPERT_GATE + i);
			out->expert = expert;
			return true;
		}
	}
	return false;
}

bool adapter_target_find(const char *tensor, struct adapter_place *out)
{
	const char *rest = tensor;
	bool in_layer = strncmp(tensor, "blk.", 4) == 0;
	*out = (struct adapter_place){.layer = 0};
	if (in_layer && (out->layer = number_at(tensor + 4, ARCH_MAX_LAYERS, &rest)) < 0)
		return false;
	for (int t = 0; t < ADAPTER_TARGETS; t++)
		if (adapter_is_of_a_layer((enum adapter_target)t) == in_layer && strcmp(targets[t].tensor, rest) == 0) {
			out->target = (enum adapter_target)t;
			out->expert = adapter_is_of_experts(out->target) ? ADAPTER_ALL : 0;
			return true;
		}
	return in_layer && one_expert(rest, out);
}

const char *adapter_target_full(const struct adapter_place *p, char out[64])
{
	if (!adapter_is_of_a_layer(p->target))
		snprintf(out, 64, "%s", targets[p->target].tensor);
	else if (adapter_is_of_experts(p->target) && p->expert != ADAPTER_ALL)
		snprintf(out, 64, "blk.%d.%s%d.weight", p->layer, expert_stems[p->target - ADAPTER_EXPERT_GATE],
			 p->expert);
	else
		snprintf(out, 64, "blk.%d.%s", p->layer, targets[p->target].tensor);
	return out;
}

const struct model_tensor *adapter_target_base(const struct model_file *base, const struct adapter_place *p,
					       bool *joined)
{
	struct adapter_place at = *p;
	char name[64];
	*joined = adapter_is_of_experts(p->target);
	at.expert = *joined ? ADAPTER_ALL : p->expert;
	const struct model_tensor *t = model_file_find(base, adapter_target_full(&at, name));
	if (t == NULL && p->target == ADAPTER_HEAD) /* tied */
		return model_file_find(base, targets[ADAPTER_EMBED].tensor);
	if (t != NULL || !*joined)
		return t;
	*joined = false;
	at.expert = p->expert == ADAPTER_ALL ? 0 : p->expert;
	return model_file_find(base, adapter_target_full(&at, name));
}

void adapter_target_shape(const struct model_arch *arch, enum adapter_target t, int *n_out, int *n_in)
{
	int q = arch->n_heads * arch->head_dim, kv = arch->n_kv_heads * arch->head_dim, n = arch->n_embd;
	int shared = arch->experts.n_ff_shared, ff = arch->experts.n_ff;
	int width = arch->experts.n_latent > 0 ? arch->experts.n_latent : n;
	const int shapes[ADAPTER_TARGETS][2] = {
	    [ADAPTER_Q] = {q, n},
	    [ADAPTER_K] = {kv, n},
	    [ADAPTER_V] = {kv, n},
	    [ADAPTER_O] = {n, q},
	    [ADAPTER_GATE] = {arch->n_ff, n},
	    [ADAPTER_UP] = {arch->n_ff, n},
	    [ADAPTER_DOWN] = {n, arch->n_ff},
	    [ADAPTER_SHARED_GATE] = {shared, n},
	    [ADAPTER_SHARED_UP] = {shared, n},
	    [ADAPTER_SHARED_DOWN] = {n, shared},
	    [ADAPTER_EXPERT_GATE] = {ff, width},
	    [ADAPTER_EXPERT_UP] = {ff, width},
	    [ADAPTER_EXPERT_DOWN] = {width, ff},
	    [ADAPTER_EMBED] = {arch->n_vocab, n},
	    [ADAPTER_HEAD] = {arch->n_vocab, n},
	};
	*n_out = shapes[t][0];
	*n_in = shapes[t][1];
}

bool adapter_turns_rows(const struct model_arch *arch, enum adapter_target t)
{
	const struct arch_family *f = arch_family_find(arch->family, strlen(arch->family));
	return (t == ADAPTER_Q || t == ADAPTER_K) && f != NULL && !f->halves && !f->hf_pairs;
}
