/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

static const struct {
	int type, block;
	size_t bytes;
	const char *name;
} types[] = {
    {KN_F32, 1, 4, "F32"},
    {KN_F16, 1, 2, "F16"},
    {KN_Q8_0, 32, 34, "Q8_0"},
    {KN_BF16, 1, 2, "BF16"},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

int kn_type_block(int type)
{
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].block;
	return 0;
}

size_t kn_type_block_bytes(int type)
{
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].bytes;
	return 0;
}

size_t kn_row_bytes(int type, size_t n)
{
	int block = kn_type_block(type);
	BUG_IF(block == 0 || n % (size_t)block != 0, "a row of %zu elements of type %d", n, type);
	return n / (size_t)block * kn_type_block_bytes(type);
}

const char *kn_type_name(int type)
{
	/* Names of types this build can't compute with, so that a refusal can name them. */
	static const char *const others[] = {
	    [2] = "Q4_0", [3] = "Q4_1", [6] = "Q5_0", [7] = "Q5_1", [9] = "Q8_1", [10] = "Q2_K",
	    [11] = "Q3_K", [12] = "Q4_K", [13] = "Q5_K", [14] = "Q6_K", [15] = "Q8_K",
	    [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL",
	    [21] = "IQ3_S", [22] = "IQ2_S", [23] = "IQ4_XS", [24] = "I8", [25] = "I16", [26] = "I32",
	    [27] = "I64", [28] = "F64", [29] = "IQ1_M", [39] = "MXFP4"};
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	if (type >= 0 && type < (int)(sizeof others / sizeof others[0]) && others[type] != NULL)
		return others[type];
	return "unknown";
}
