/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that a command writes. It appears under its name when it is whole, or not at all: until then it is beside it,
 * as NAME.partial-PID, which nothing takes for the file that it will be. A file that is there is replaced only where
 * that is wanted, and only a regular one. What ends the command early removes the partial file: a fault, and after
 * out_file_on_signals SIGINT, SIGTERM and SIGHUP. SIGKILL and a loss of power leave it.
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

/* Whether path may be written: SL_EINVAL where something is there and replace is not set, or is no regular file. To be
 * asked before long work; out_file_finish asks again. */
int out_file_check(const char *path, bool replace, struct sl_err *err);
/* SL_EINVAL where path is the same file as source, under whatever name. */
int out_file_is_not(const char *path, const char *source, struct sl_err *err);
/* The same for a folder and every file in it, but those whose names end with `except`, which are not read. */
int out_file_is_not_in(const char *path, const char *folder, const char *except, struct sl_err *err);

/* out_file_check, and opens the partial file. After a fault nothing is open. Of a process's open files the first is the
 * one that signals remove. */
int out_file_open(const char *path, bool replace, struct out_file *o, struct sl_err *err);
/* SL_ELIMIT where the disk has not so many bytes left. */
int out_file_room(const struct out_file *o, uint64_t bytes, struct sl_err *err);
/* Brings it to the disk and gives it its name, or removes it. Closed either way. */
int out_file_finish(struct out_file *o, struct sl_err *err);
/* Removes what was written. Nothing where o is not open. */
void out_file_abort(struct out_file *o);

/* From now on these three signals remove the partial file before they end the process; those that it ignores stay
 * ignored. */
void out_file_on_signals(void);
/* Removes the partial file of a process that is about to end. Safe in a signal handler. */
void out_file_drop(void);

#endif
