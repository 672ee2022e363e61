/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proto/prefix_digest.h"

#include <xxhash.h>

size_t prefix_digest_border(uint32_t i)
{
	size_t fine = i < PREFIX_DIGEST_FINE ? i + 1 : PREFIX_DIGEST_FINE;
	return fine * PREFIX_DIGEST_STEP + (i + 1 - fine) * PREFIX_DIGEST_FAR;
}

void prefix_digests_make(uint8_t prompt_kind, struct proto_str prompt, struct prefix_digests *out)
{
	uint64_t digest = prompt_kind;
	size_t at = 0;
	out->n_bytes = prompt.n;
	out->n = 0;
	while (out->n < PREFIX_DIGEST_MAX && prefix_digest_border(out->n) <= prompt.n) {
		size_t border = prefix_digest_border(out->n);
		digest = XXH3_64bits_withSeed(prompt.at + at, border - at, digest);
		out->of[out->n++] = digest;
		at = border;
	}
}

uint64_t prefix_digest_salted(uint64_t digest, uint16_t model, uint64_t tenant, uint64_t cache_salt)
{
	const uint64_t parts[] = {digest, model, tenant, cache_salt};
	uint64_t salted = XXH3_64bits(parts, sizeof parts) & ~(uint64_t)1;
	return salted != 0 ? salted : 2;
}
