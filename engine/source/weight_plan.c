/* SPDX-License-Identifier: Apache-2.0
 *
 * The mixes: the output matrix, and attn_v and ffn_down in the first and last eighth of the layers and in every third
 * layer between, get six bits; a fused attn_qkv gets one bit more than the others. The rule is llama.cpp's for its _M
 * files (llama_tensor_get_type).
 */
#include "engine/source/weight_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "kernels/kernels.h"

int weight_plan_parse(const char *name, struct weight_plan *out, struct sl_err *err)
{
	if (strcasecmp(name, "q4_k_m") == 0) {
		*out = (struct weight_plan){KN_Q4_K, KN_Q6_K};
		return 0;
	}
	if (strcasecmp(name, "q5_k_m") == 0) {
		*out = (struct weight_plan){KN_Q5_K, KN_Q6_K};
		return 0;
	}
	int type = kn_type_from_name(name);
	if (kn_type_in_files(type)) {
		*out = (struct weight_plan){type, type};
		return 0;
	}
	char all[256];
	size_t n = 0;
	for (int i = 0; kn_type_at(i) >= 0 && n < sizeof all; i++)
		if (kn_type_in_files(kn_type_at(i)))
			n += (size_t)snprintf(all + n, sizeof all - n, "%s, ", kn_type_name(kn_type_at(i)));
	return sl_errf(err, SL_EINVAL, "no type is named %.40s (there are %sQ4_K_M, Q5_K_M)", name, all);
}

bool weight_plan_covers(const char *tensor, int n_dims)
{
	return (n_dims == 2 || n_dims == 3) && text_ends(tensor, ".weight") && !text_ends(tensor, "norm.weight") &&
	       !text_ends(tensor, "conv1d.weight") && !text_ends(tensor, "conv.conv.weight");
}

static bool gets_more(int layer, int n_layers)
{
	int eighth = n_layers / 8;
	return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

static int fitting(int type, uint64_t width)
{
	while (width % (uint64_t)kn_type_block(type) != 0) {
		switch (type) {
		case KN_Q2_K:
		case KN_Q3_K:
		case KN_IQ4_XS: type = KN_IQ4_NL; break;
		case KN_Q4_K: type = KN_Q5_0; break;
		case KN_Q5_K: type = KN_Q5_1; break;
		case KN_Q6_K: type = KN_Q8_0; break;
		default: type = KN_F16; break;
		}
	}
	return type;
}

int weight_plan_type(const struct weight_plan *p, const char *tensor, uint64_t width, int n_layers, bool tied)
{
	int type = p->type;
	if (strstr(tensor, ".ffn_gate_inp") != NULL) /* small, and its errors choose other experts */
		return KN_F32;
	if (p->more != p->type) {
		const char *part = strncmp(tensor, "blk.", 4) == 0 ? strchr(tensor + 4, '.') : NULL;
		int layer = part != NULL ? (int)strtol(tensor + 4, NULL, 10) : 0;
		if (part == NULL && (strcmp(tensor, "output.weight") == 0 || tied))
			type = p->more;
		else if (part != NULL && strcmp(part, ".attn_qkv.weight") == 0)
			type = p->type == KN_Q4_K ? KN_Q5_K : p->more;
		else if (part != NULL && (strcmp(part, ".attn_v.weight") == 0 || strncmp(part, ".ffn_down", 9) == 0) &&
			 gets_more(layer, n_layers))
			type = p->more;
	}
	return fitting(type, width);
}
