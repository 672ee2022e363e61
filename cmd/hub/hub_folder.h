/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of pulled models. Everything in it is opened relative to its descriptor; no name leads out of it and no
 * link is followed. Started as root, the files belong to the user of the engine.
 */
#ifndef CMD_HUB_FOLDER_H
#define CMD_HUB_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "cmd/config/schema.h"
#include "cmd/state/privileges.h"

struct hub_folder {
	int fd; /* -1: not open */
	char path[4128];
	struct run_user user; /* downloads and owns the files */
};

/* Creates it where it is missing. */
int hub_folder_open(const struct sluice_config *cfg, struct hub_folder *out, struct sl_err *err);
void hub_folder_close(struct hub_folder *f);

/* FOLDER/.NAME.pull */
void hub_staging_name(const char *name, char *out, size_t size);

/* openat without links and without a way out of dir. -errno. */
int hub_open_below(int dir, const char *path, int flags);
/* Makes the folders that lead to path, 0755. 0 or -errno. */
int hub_make_parents(int dir, const char *path);
/* Removes a file, or a folder with everything in it. 0 (also where there is none) or -errno. */
int hub_remove(int dir, const char *name);
/* The bytes of all files of dir/name; 0: there is none. */
uint64_t hub_bytes_in(int dir, const char *name);

#endif
