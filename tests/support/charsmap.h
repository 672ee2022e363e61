/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of normal forms as SentencePiece precompiles it: a length, a double-array trie in Darts' layout, strings.
 */
#ifndef TESTS_CHARSMAP_H
#define TESTS_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define E_ACUTE "\xC3\xA9"
#define ODD_SPACE "\xE3\x80\x80" /* U+3000 */
#define ACCENT "\xCC\x81"        /* U+0301 */

enum { CM_UNITS = 4096, CM_ENTRIES = 6 };

static const struct {
	const char *from, *to;
} cm_entries[CM_ENTRIES] = {{"e" ACCENT, E_ACUTE},         {ODD_SPACE, " "}, {"\xEF\xAC\x81", "fi"},
			    {"\xE2\x91\xA0", "1"},         {"\xC2\xAD", ""}, /* a soft hyphen */
			    {ODD_SPACE ACCENT, "\xC2\xB4"}};

static uint32_t cm_units[CM_UNITS];
static bool cm_is_base[CM_UNITS];
static uint32_t cm_where[CM_ENTRIES]; /* of each entry's string */

static inline bool cm_has_prefix(int entry, const char *prefix, size_t n)
{
	return strlen(cm_entries[entry].from) >= n && memcmp(cm_entries[entry].from, prefix, n) == 0;
}

/* Places what follows prefix below the unit at `at`, at the first base cm_where all of it is free. */
static inline void cm_place(uint32_t at, const char *prefix, size_t n)
{
	bool child[256] = {false};
	uint32_t base = 1, leaf = 0;
	for (int e = 0; e < CM_ENTRIES; e++)
		if (cm_has_prefix(e, prefix, n)) {
			child[(uint8_t)cm_entries[e].from[n]] = true;
			leaf = cm_entries[e].from[n] == '\0' ? cm_where[e] : leaf;
		}
	for (bool fits = false; !fits; base += !fits) {
		fits = base != at && !cm_is_base[base];
		for (uint32_t c = 0; c < 256; c++)
			fits &= !child[c] || ((base ^ c) != 0 && cm_units[base ^ c] == 0);
	}
	cm_is_base[base] = true;
	cm_units[at] |= (at ^ base) << 10 | (uint32_t)child[0] << 8;
	for (uint32_t c = 1; c < 256; c++)
		if (child[c])
			cm_units[base ^ c] = c;
	if (child[0])
		cm_units[base] = leaf | 1u << 31;
	for (uint32_t c = 1; c < 256; c++)
		if (child[c]) {
			char longer[16];
			memcpy(longer, prefix, n);
			longer[n] = (char)c;
			cm_place(base ^ c, longer, n + 1);
		}
}

enum { CM_BYTES = 4 + sizeof cm_units + 64 };

/* Into CM_BYTES at out; returns how many. */
static inline size_t cm_make(char *out)
{
	size_t n = 0;
	uint32_t bytes = 0;
	char strings[64];
	for (int e = 0; e < CM_ENTRIES; e++) {
		cm_where[e] = (uint32_t)n;
		n += strlen(strcpy(strings + n, cm_entries[e].to)) + 1;
	}
	memset(cm_units, 0, sizeof cm_units);
	memset(cm_is_base, 0, sizeof cm_is_base);
	cm_units[0] = 1; /* taken */
	cm_place(0, "", 0);
	cm_units[0] &= ~1u;
	for (uint32_t i = 0; i < CM_UNITS; i++)
		bytes = cm_units[i] != 0 ? 4 * i + 4 : bytes;
	memcpy(out, &bytes, 4);
	memcpy(out + 4, cm_units, bytes);
	memcpy(out + 4 + bytes, strings, n);
	return 4 + bytes + n;
}

#endif
