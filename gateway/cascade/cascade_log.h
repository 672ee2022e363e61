/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome log (etc/cascade.md): one line per ended request, read by `sluice cascade`. A full file is renamed to
 * FILE.1, replacing the previous FILE.1, and a new file begins. Any thread.
 */
#ifndef GATEWAY_CASCADE_LOG_H
#define GATEWAY_CASCADE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct line_file;

/* max_bytes 0: no rotation. 0, or a code with *err, which names the file. */
int cascade_log_open(const char *path, uint64_t max_bytes, struct line_file **out, struct sl_err *err);
/* A whole line with its newline. A failed write drops the line and counts it. */
void cascade_log_write(struct line_file *log, const void *line, size_t n);
/* NULL allowed. */
void cascade_log_close(struct line_file *log);

#endif
