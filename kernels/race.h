/* SPDX-License-Identifier: Apache-2.0
 *
 * The noise of a draw, as an exponential race (equivalent to the Gumbel-max trick): token i of weight w[i] arrives at
 * time E[i] / w[i], where the E are independent and exponential, and the first to arrive is drawn, with probability
 * w[i] / Σw. E is a function of the draw's key and the token's id alone. So two models that draw with one key and whose
 * distributions differ by the total variation d draw the same token with probability at least (1 - d) / (1 + d)
 * (Daliri, Musco, Suresh, "Coupling without Communication and Drafter-Invariant Speculative Decoding", 2024), and
 * filters change nothing for the tokens that stay.
 *
 * Ids are in blocks of RACE_BLOCK. The earliest E of a block is exponential with rate RACE_BLOCK, belongs to each of
 * its ids with the same probability, and the others follow it by independent exponential times (the minimum of
 * exponential times, and their lack of memory). So one hash bounds a whole block, and few ids are ever looked at.
 *
 * Host and devices execute the same operations in the same order, without contraction, so both have the same bits.
 */
#ifndef KERNELS_RACE_H
#define KERNELS_RACE_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KN_RACE __host__ __device__ static inline
#else
#define KN_RACE static inline
#endif

enum { RACE_BLOCK = 256 };

/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014). */
KN_RACE uint64_t race_mix(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

/* The key of the draw of the token with this index of a choice. */
KN_RACE uint64_t race_key(uint64_t seed, uint32_t choice, uint64_t index)
{
	return race_mix(race_mix(race_mix(seed) ^ choice) + index);
}

/* ln x of a normal x > 0, to 3 units of its last place: the series of artanh. */
KN_RACE double race_log(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	/* Into [sqrt 1/2, sqrt 2). */
	int64_t e = (int64_t)(bits - UINT64_C(0x3FE6A09E667F3BCD)) >> 52;
	bits -= (uint64_t)e << 52;
	memcpy(&x, &bits, sizeof x);
	double s = (x - 1) / (x + 1), q = s * s, sum = 1.0 / 21;
	sum = sum * q + 1.0 / 19;
	sum = sum * q + 1.0 / 17;
	sum = sum * q + 1.0 / 15;
	sum = sum * q + 1.0 / 13;
	sum = sum * q + 1.0 / 11;
	sum = sum * q + 1.0 / 9;
	sum = sum * q + 1.0 / 7;
	sum = sum * q + 1.0 / 5;
	sum = sum * q + 1.0 / 3;
	return (double)e * 0x1.62e42fefa39efp-1 + (2 * s + 2 * s * (q * sum));
}

/* Exponential with rate 1, from the upper 52 bits: between 2^-54 and 37. */
KN_RACE double race_exponential(uint64_t hash) { return -race_log(((double)(hash >> 12) + 0.5) * 0x1p-52); }

/* A block's first arrival. */
struct race_arrival {
	double time;
	int32_t id;
};

KN_RACE uint64_t race_first_hash(uint64_t key, int32_t block)
{
	return race_mix(key + (UINT64_C(1) << 63) + (uint32_t)block);
}

KN_RACE struct race_arrival race_first(uint64_t key, int32_t block)
{
	uint64_t hash = race_first_hash(key, block);
	struct race_arrival f;
	f.time = race_exponential(hash) / RACE_BLOCK;
	f.id = block * RACE_BLOCK + (int32_t)(hash % RACE_BLOCK);
	return f;
}

/* E of an id of that block. */
KN_RACE double race_time(uint64_t key, const struct race_arrival *first, int32_t id)
{
	return id == first->id ? first->time : first->time + race_exponential(race_mix(key + (uint32_t)id));
}

/* The logarithm of an arrival: lower is earlier. x: the logarithm of the weight. */
KN_RACE double race_score(double time, float x) { return race_log(time) - (double)x; }

#endif
