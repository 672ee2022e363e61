/* SPDX-License-Identifier: Apache-2.0
 *
 * What the hub says about a repository: the listing of its files (GET /api/models/OWNER/NAME/tree/REVISION), in pages
 * that a Link header connects (RFC 8288). Pure.
 */
#ifndef CMD_HUB_TREE_H
#define CMD_HUB_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cmd/hub/hub_source.h"

enum { HUB_MAX_FILES = 10000, HUB_DIGEST_BYTES = 32 };

/* sha256 of the content (large files), or git's object id: sha1 of "blob SIZE\0" and the content. */
enum hub_hash { HUB_NO_HASH, HUB_SHA256, HUB_GIT_SHA1 };

struct hub_file {
	char path[HUB_PATH_BYTES];
	uint64_t size;
	enum hub_hash hash;
	uint8_t digest[HUB_DIGEST_BYTES]; /* sha1: the first 20 */
};

struct hub_files {
	struct hub_file *items; /* owned */
	size_t n, room;
};

void hub_files_dispose(struct hub_files *f);
int hub_files_add(struct hub_files *f, const struct hub_file *file); /* SL_ELIMIT, SL_ENOMEM */

/* Appends the files of one page. SL_EPROTO: not a listing, or one with a bad path; SL_ELIMIT, SL_ENOMEM. */
int hub_tree_parse(const char *json, size_t n, struct hub_files *out, struct sl_err *err);
/* The target of rel="next" of a Link header's value; false: there is none, or it does not fit. */
bool hub_link_next(const char *header, size_t n, char *out, size_t size);

#endif
