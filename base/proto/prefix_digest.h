/* SPDX-License-Identifier: Apache-2.0
 *
 * Digests of the beginnings of a prompt, by which a gateway, which doesn't tokenize, knows what an engine has cached.
 * Both compute them from the same bytes, those of SUBMIT's prompt:
 *
 *   border    a number of bytes from the prompt's first one on: 256, 512, … 32 KiB, then every 4 KiB, up to
 *             PREFIX_DIGEST_MAX borders. Borders don't depend on the prompt, so prompts that begin alike share them
 *   digest    XXH3 of the bytes up to a border, chained: a border's seed is the digest of the border before it, the first
 *             one's is the kind of prompt
 *   salted    mixed with the engine's index of the model and, as in the prefix tree, with the tenant and the request's
 *             salt, so that a tenant's requests are never sent after what another has cached
 *
 * An engine publishes the salted digest of a border when the pages of the text before it have entered its prefix tree,
 * and again when they leave it (PREFIXES in proto.h). Where a border is among a prompt's tokens it only estimates:
 * n_tokens · border / n_bytes. A wrong guess costs some computation, never a wrong answer.
 */
#ifndef BASE_PREFIX_DIGEST_H
#define BASE_PREFIX_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

enum {
	PREFIX_DIGEST_FINE = 128, /* borders at PREFIX_DIGEST_STEP; then at PREFIX_DIGEST_FAR */
	PREFIX_DIGEST_STEP = 256,
	PREFIX_DIGEST_FAR = 4096,
	PREFIX_DIGEST_MAX = 256,
};

struct prefix_digests {
	size_t n_bytes; /* of the whole prompt */
	uint32_t n;     /* borders in it */
	uint64_t of[PREFIX_DIGEST_MAX];
};

/* Bytes before border i, i < PREFIX_DIGEST_MAX. */
size_t prefix_digest_border(uint32_t i);
void prefix_digests_make(uint8_t prompt_kind, struct proto_str prompt, struct prefix_digests *out);
/* tenant: 0 where all tenants share prefixes. Never 0; even, so that PREFIXES has a bit to spare. */
uint64_t prefix_digest_salted(uint64_t digest, uint16_t model, uint64_t tenant, uint64_t cache_salt);

#endif
