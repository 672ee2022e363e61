/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole file, mapped for reading: how model files are opened.
 */
#ifndef ENGINE_MAP_FILE_H
#define ENGINE_MAP_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct map_file {
	const uint8_t *at; /* NULL when nothing is mapped */
	size_t bytes;
	/* Of the file when it was opened, in nanoseconds since 1970: when its content, and when anything of it, last
	 * changed. The latter is the system's alone to set. */
	uint64_t modified_ns, changed_ns;
};

/* SL_EIO with the file's name when it can't be opened, is no regular file, or can't be mapped;
 * SL_EINVAL when it is empty. Any thread. */
int map_file_open(const char *path, struct map_file *out, struct sl_err *err);
void map_file_close(struct map_file *m);

/* The bytes from `at` on will hardly be read again: whole pages of them leave this process's memory. They come
 * back from the file when they are. Does nothing where `at` is in no mapping of map_file_open's. */
void map_file_let_go(const void *at, size_t bytes);

/* A file that is cut while it is mapped, or that the disk fails to give, raises SIGBUS where its bytes
 * are read, however late. From now on the process then says which file it was and exits with status
 * MAP_FILE_EXIT, instead of dying by the signal: there is no way to go on without the weights, and
 * whoever watches the process starts it again. Other causes of the signal stay what they were. */
enum { MAP_FILE_EXIT = 74 };
void map_file_guard(void);

#endif
