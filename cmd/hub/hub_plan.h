/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of one pull, as the hub announces them. While it runs they are in the journal of the staging folder, so
 * that an interrupted pull knows what its parts are parts of. The same text beside a complete model says where it came
 * from.
 */
#ifndef CMD_HUB_PLAN_H
#define CMD_HUB_PLAN_H

#include "cmd/hub/hub_pick.h"

#define HUB_JOURNAL ".journal.json"
#define HUB_MANIFEST ".sluice.json"

enum { HUB_ETAG_BYTES = 200, HUB_COMMIT_BYTES = 65, HUB_LABEL_BYTES = 512 };

struct hub_entry {
	struct hub_file file;       /* file.path: at the hub */
	char local[HUB_PATH_BYTES]; /* in the model's folder */
	char etag[HUB_ETAG_BYTES];  /* strong, of the parts that were received; "": none */
};

struct hub_plan {
	char source[HUB_LABEL_BYTES];
	char commit[HUB_COMMIT_BYTES]; /* of the repository; "": unknown */
	struct hub_entry *items;       /* owned */
	size_t n;
	uint64_t bytes; /* of all */
};

void hub_plan_dispose(struct hub_plan *p);
/* The plan for these files. SL_EPROTO: two of them would have one name. */
int hub_plan_make(const char *source, const struct hub_files *files, struct hub_plan *out, struct sl_err *err);
/* The entry of p for the same content: same name, size and digest. NULL: none. */
const struct hub_entry *hub_plan_find(const struct hub_plan *p, const struct hub_entry *e);
bool hub_plan_equal(const struct hub_plan *a, const struct hub_plan *b);

/* Reads dir/name. SL_ENOTFOUND; SL_EINVAL: not one that hub_plan_write wrote. Dispose of it after 0 only. */
int hub_plan_read(int dir, const char *name, struct hub_plan *out);
/* Replaces dir/name atomically, flushed. 0 or -errno. */
int hub_plan_write(int dir, const char *name, const struct hub_plan *p);

#endif
