/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of outcomes (etc/cascade.md): lines at the end of a file that `sluice cascade` reads. Bounded:
 * beyond its size the file becomes FILE.1, in place of the one before, and a new one begins. Any thread.
 */
#ifndef GATEWAY_CASCADE_LOG_H
#define GATEWAY_CASCADE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cascade_log;

/* max_bytes 0: it is never rotated. 0, or a code with *err naming the file. */
int cascade_log_open(const char *path, uint64_t max_bytes, struct cascade_log **out, struct sl_err *err);
/* A whole line with its end; one that can't be written is counted and lost. */
void cascade_log_write(struct cascade_log *log, const void *line, size_t n);
/* NULL is allowed. */
void cascade_log_close(struct cascade_log *log);

#endif
