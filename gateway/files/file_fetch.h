/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetches the texts of the files that a request names (request_files.h), one after the other.
 */
#ifndef GATEWAY_FILE_FETCH_H
#define GATEWAY_FILE_FETCH_H

#include "cache/cache.h"
#include "gateway/exchange/exchange.h"
#include "gateway/request/request_files.h"

struct file_fetch { /* zeroed before its first use */
	struct exchange *x;
	struct request_files *files;
	struct cache_op op;
	size_t i;     /* being read */
	size_t bytes; /* of the texts so far */
	void (*done)(struct file_fetch *f);
};

/* Calls f->done once files has all texts, now or later; x is answered instead if one can't be had. f->x, files and done
 * are set. */
void file_fetch_start(struct file_fetch *f);
void file_fetch_cancel(struct file_fetch *f);

/* Answers x: no file has that id. */
void file_refuse_gone(struct exchange *x, const char *param, const char *id);
void file_refuse_store(struct exchange *x);

#endif
