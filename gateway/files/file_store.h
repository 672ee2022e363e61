/* SPDX-License-Identifier: Apache-2.0
 *
 * Files in the store, under the tenant's key (CACHE_SESSION), as stored responses and conversations are.
 *
 *   record      a plain value: FILE_VERSION, the file's object as JSON, a line feed, its text. It never changes
 *   directory   a hash of the tenant: from a file's id to "bytes ends_us OBJECT"
 *
 * A record goes with its time or by DELETE; the directory's entry of one that has gone is left out and swept.
 */
#ifndef GATEWAY_FILE_STORE_H
#define GATEWAY_FILE_STORE_H

#include <jansson.h>
#include <stdint.h>

#include "cache/cache.h"
#include "gateway/config/gw_config.h"

enum { FILE_VERSION = 1, FILE_ID_BYTES = 64 };

/* The first value of every procedure. */
enum file_outcome {
	FILE_OK,
	FILE_GONE,      /* unknown, expired or deleted */
	FILE_TOO_MANY,  /* the tenant has too many */
	FILE_TOO_LARGE, /* the tenant's are too large in total */
};

/* Keys: the record and the tenant's directory; of list, only the directory. Arguments → values:
 *   put     id, record, object, bytes, ttl_ms, most, most_bytes (0: no limit)   → –
 *   delete  id                                                                  → –
 *   list    –                                                                   → objects, each with a line feed */
extern const struct cache_proc file_proc_put, file_proc_delete, file_proc_list;

struct file_ref {
	struct cache_client *cache;
	uint64_t tenant;
	const char *id;
};

struct file_new {
	const json_t *object;
	const char *text; /* n bytes */
	size_t n;
	uint64_t keep_ms;
};

/* 0, or SL_ENOMEM: done is not called. */
int file_store_put(const struct file_ref *f, const struct gw_files *limits, struct cache_op *op,
		   const struct file_new *n, cache_done *done);
/* done's result is a record's: file_record_read. */
void file_store_get(const struct file_ref *f, struct cache_op *op, cache_done *done);
void file_store_delete(const struct file_ref *f, struct cache_op *op, cache_done *done);
void file_store_list(struct cache_client *cache, struct cache_op *op, uint64_t tenant, cache_done *done);

/* A file_outcome, or a negative code of the store; *text: the second value, if any. */
int file_outcome_of(const struct cache_result *r, const char **text, size_t *n);
/* The file's object, the caller's, and its text, borrowed from bytes. NULL: no memory, or nonsense. */
json_t *file_record_read(const uint8_t *bytes, size_t n, const char **text, size_t *n_text);

#endif
