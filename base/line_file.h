/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines that other programs read or move away while it grows (the cascade's outcomes, requests' records).
 * Each write is one write(2) on a descriptor opened with O_APPEND, so lines of two processes (during an upgrade) do not
 * mix. A file that was moved or removed is opened again under its name. A full one is renamed to FILE.1, replacing the
 * previous FILE.1: the process that finds it full renames it; the other sees at its next write that the name refers to
 * another file. Some KiB go to the page cache, so an event loop does not wait for a disk. Any thread.
 */
#ifndef BASE_LINE_FILE_H
#define BASE_LINE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct line_file;

/* key: of the configuration, for errors; a literal. max_bytes 0: no renaming. */
int line_file_open(const char *key, const char *path, uint64_t max_bytes, struct line_file **out, struct sl_err *err);
/* Whole lines. False, with errno: they were not written, or only a part of them; the next line then begins anew. */
bool line_file_write(struct line_file *f, const void *lines, size_t n);
/* NULL allowed. */
void line_file_close(struct line_file *f);

#endif
