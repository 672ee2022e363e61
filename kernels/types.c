/* SPDX-License-Identifier: Apache-2.0 */
#include <strings.h>

#include "kernels/blocks.h"
#include "kernels/kernels.h"

static const struct {
	int type, block;
	size_t bytes;
	const char *name;
} types[] = {
    {KN_F32, 1, 4, "F32"},       {KN_F16, 1, 2, "F16"},         {KN_BF16, 1, 2, "BF16"},
    {KN_Q4_0, 32, 18, "Q4_0"},   {KN_Q4_1, 32, 20, "Q4_1"},     {KN_Q5_0, 32, 22, "Q5_0"},
    {KN_Q5_1, 32, 24, "Q5_1"},   {KN_Q8_0, 32, 34, "Q8_0"},     {KN_Q2_K, 256, 84, "Q2_K"},
    {KN_Q3_K, 256, 110, "Q3_K"}, {KN_Q4_K, 256, 144, "Q4_K"},   {KN_Q5_K, 256, 176, "Q5_K"},
    {KN_Q6_K, 256, 210, "Q6_K"}, {KN_IQ4_NL, 32, 18, "IQ4_NL"}, {KN_IQ4_XS, 256, 136, "IQ4_XS"},
    {KN_MXFP4, 32, 17, "MXFP4"}, {KN_INT4, 128, 66, "INT4"},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

const int8_t kn_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t kn_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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
	    [9] = "Q8_1",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
	    [21] = "IQ3_S", [22] = "IQ2_S", [24] = "I8",      [25] = "I16",    [26] = "I32",     [27] = "I64",
	    [28] = "F64",   [29] = "IQ1_M", [34] = "TQ1_0",   [35] = "TQ2_0"};
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	if (type >= 0 && type < (int)(sizeof others / sizeof others[0]) && others[type] != NULL)
		return others[type];
	return "unknown";
}

int kn_type_from_name(const char *name)
{
	for (int i = 0; i < N_TYPES; i++)
		if (strcasecmp(types[i].name, name) == 0)
			return types[i].type;
	return -1;
}

bool kn_type_in_files(int type) { return type != KN_INT4 && kn_type_block(type) > 0; }

int kn_type_at(int i) { return i >= 0 && i < N_TYPES ? types[i].type : -1; }
