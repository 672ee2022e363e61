/* SPDX-License-Identifier: Apache-2.0 */
#include <strings.h>

#include "kernels/blocks.h"
#include "kernels/kernels.h"

static const struct type {
	int type, block;
	size_t bytes;
	const char *name;
} types[] = {
#define TYPE(name, block, bytes) {KN_##name, block, bytes, #name},
    KN_TYPES(TYPE)
#undef TYPE
};

enum { N_TYPES = sizeof types / sizeof types[0] };

const int8_t kn_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t kn_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static const struct type *find(int type)
{
	static const struct type none = {.type = -1};
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return &types[i];
	return &none;
}

int kn_type_block(int type) { return find(type)->block; }

size_t kn_type_block_bytes(int type) { return find(type)->bytes; }

size_t kn_row_bytes(int type, size_t n)
{
	int block = kn_type_block(type);
	BUG_IF(block == 0 || n % (size_t)block != 0, "a row of %zu elements of type %d", n, type);
	return n / (size_t)block * kn_type_block_bytes(type);
}

const char *kn_type_name(int type)
{
	/* Names of types that this build can't compute with, for error messages. */
	static const char *const others[] = {
	    [9] = "Q8_1",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
	    [21] = "IQ3_S", [22] = "IQ2_S", [24] = "I8",      [25] = "I16",    [26] = "I32",     [27] = "I64",
	    [28] = "F64",   [29] = "IQ1_M", [34] = "TQ1_0",   [35] = "TQ2_0"};
	if (find(type)->name != NULL)
		return find(type)->name;
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
