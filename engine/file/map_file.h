/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole file, mapped for reading: how model files are opened. Or read: for files that may change while they are used.
 */
#ifndef ENGINE_MAP_FILE_H
#define ENGINE_MAP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct map_file {
	const uint8_t *at; /* NULL when nothing is mapped */
	size_t bytes;
	/* When the file was opened, in nanoseconds since 1970: the last change of its content, and of anything about
	 * it. Only the system sets the latter. */
	uint64_t modified_ns, changed_ns;
};

/* SL_EIO with the file's name when it can't be opened, is no regular file, or can't be mapped;
 * SL_EINVAL when it is empty. Any thread. */
int map_file_open(const char *path, struct map_file *out, struct sl_err *err);
/* The same with the bytes read into memory, at most `most` of them (SL_ELIMIT): what happens to the file later has no
 * effect. SL_EIO when it changed while it was read. */
int map_file_read(const char *path, uint64_t most, struct map_file *out, struct sl_err *err);
void map_file_close(struct map_file *m);

/* Drops whole pages of these bytes from this process's memory; a later read gets them from the file again. Does
 * nothing if `at` is in no mapping of map_file_open. */
void map_file_let_go(const void *at, size_t bytes);

/* Whether they lie in such a mapping. */
bool map_file_has(const void *at, size_t bytes);

/* Installs a handler for SIGBUS, which a read raises when a mapped file was truncated or the disk fails. The process
 * then names the file and exits with status MAP_FILE_EXIT: it can't continue without the weights, and the supervisor
 * restarts it. Other causes of the signal keep their effect. */
enum { MAP_FILE_EXIT = 74 };
void map_file_guard(void);

#endif
