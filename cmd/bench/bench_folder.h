/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder that a measurement works in.
 */
#ifndef CMD_BENCH_FOLDER_H
#define CMD_BENCH_FOLDER_H

#include <stddef.h>

#include "base/err.h"

/* A new one in $TMPDIR or /tmp, with a short name (it holds sockets). 0, or SL_EIO with err and dir "". */
int bench_folder_make(char *dir, size_t size, struct sl_err *err);
/* With all that is in it. Nothing for "". */
void bench_folder_remove(const char *dir);

#endif
