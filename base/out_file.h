/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that a command writes. It appears under its name only when it is complete; until then it is NAME.partial-PID
 * in the same folder. An existing file is replaced only on request, and only if it is a regular file. A fault removes
 * the partial file, and so do SIGINT, SIGTERM and SIGHUP after out_file_on_signals. SIGKILL and power loss leave it.
 */
#ifndef BASE_OUT_FILE_H
#define BASE_OUT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct out_file {
	char *path, *partial; /* NULL: not open */
	int fd;
	bool replace;
};

/* Whether path may be written. SL_EINVAL: it exists and replace is not set, or it is not a regular file. Call it before
 * long work; out_file_finish checks again. */
int out_file_check(const char *path, bool replace, struct sl_err *err);
/* SL_EINVAL where path is the same file as source, under whatever name. */
int out_file_is_not(const char *path, const char *source, struct sl_err *err);
/* The same for a folder and every file in it, except files whose names end with `except`: these are not read. */
int out_file_is_not_in(const char *path, const char *folder, const char *except, struct sl_err *err);

/* Runs out_file_check and opens the partial file. After an error nothing is open. Signals remove the first open file of
 * the process. */
int out_file_open(const char *path, bool replace, struct out_file *o, struct sl_err *err);
/* SL_ELIMIT: the disk lacks so many bytes. */
int out_file_room(const struct out_file *o, uint64_t bytes, struct sl_err *err);
/* Syncs the file and gives it its name, or removes it. It is closed either way. */
int out_file_finish(struct out_file *o, struct sl_err *err);
/* Removes the partial file. Does nothing if o is not open. */
void out_file_abort(struct out_file *o);

/* Makes these three signals remove the partial file before they end the process. Ignored signals stay ignored. */
void out_file_on_signals(void);
/* Removes the partial file of a process that is about to end. Safe in a signal handler. */
void out_file_drop(void);

#endif
