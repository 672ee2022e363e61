/* SPDX-License-Identifier: Apache-2.0
 *
 * The temporary folder of a measurement.
 */
#ifndef CMD_BENCH_FOLDER_H
#define CMD_BENCH_FOLDER_H

#include <stddef.h>

#include "base/err.h"

/* Creates it in $TMPDIR or /tmp; its path is short, because it holds sockets. SL_EIO: dir is "". */
int bench_folder_make(char *dir, size_t size, struct sl_err *err);
/* Writes text to a new file. SL_EIO. */
int bench_folder_write(const char *path, const char *text, struct sl_err *err);
/* Removes it with its contents. "": does nothing. */
void bench_folder_remove(const char *dir);

#endif
