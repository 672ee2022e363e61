/* SPDX-License-Identifier: Apache-2.0
 *
 * Words that hint at the kind and difficulty of a request. Private to cascade/.
 */
#ifndef CASCADE_CUES_H
#define CASCADE_CUES_H

#include <stdint.h>

/* A word's hash, as features.c builds it: from CASC_HASH_SEED, casc_hash_byte for each byte, ASCII letters in lower
 * case. Belongs to the format of weights files. */
#define CASC_HASH_SEED 2166136261u
static inline uint32_t casc_hash_byte(uint32_t h, uint8_t c) { return (h ^ c) * 16777619u; }
static inline uint32_t casc_hash_mix(uint32_t h)
{
	h ^= h >> 16;
	h *= 0x7feb352du;
	h ^= h >> 15;
	h *= 0x846ca68bu;
	return h ^ (h >> 16);
}

/* The feature (enum casc_feature) that a word, or the beginning of a Korean word, is a cue for; -1: none. */
int casc_cue_of(uint32_t hash);

#endif
