/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest of a file while it is written, in the form that the hub announces.
 */
#ifndef CMD_HUB_DIGEST_H
#define CMD_HUB_DIGEST_H

#include "cmd/hub/hub_tree.h"

struct hub_digest {
	void *ctx; /* EVP_MD_CTX; NULL: not begun */
	enum hub_hash hash;
};

/* For a file of `size` bytes. SL_ENOMEM. Begins anew if it had begun. HUB_NO_HASH counts as sha256. */
int hub_digest_begin(struct hub_digest *d, enum hub_hash hash, uint64_t size);
int hub_digest_add(struct hub_digest *d, const void *bytes, size_t n);
/* 32 or 20 bytes, the rest zero. Ends it. */
int hub_digest_end(struct hub_digest *d, uint8_t out[HUB_DIGEST_BYTES]);
void hub_digest_dispose(struct hub_digest *d);

#endif
