/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as a backend has rearranged them (kn_ops.weight_made), kept in a file from one start to the next: mapping
 * it takes a tenth of a second where rearranging takes seconds.
 *
 * A file is named by what it was made of: the digest of the model's files (model_stamp.h) and the layout's name and
 * version. Its head repeats that, so a file under a wrong name is not taken either. It is written under another name,
 * brought to disk and only then given its own, so under its name there is never half of one; a file is never changed,
 * only removed, which does nothing to processes that have mapped it. All of it is compared with its checksums before
 * any of it is used. What is wrong is removed and made again.
 *
 *   head | entries, one for each matrix in the order they are loaded | checksums, one for each chunk of data | data
 *
 * Numbers lie as this processor has them: the layout is of one processor family as well.
 */
#ifndef ENGINE_WEIGHT_CACHE_H
#define ENGINE_WEIGHT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/file/map_file.h"
#include "engine/source/convert.h"

/* What is kept where. */
struct weight_cache_config {
	const char *folder; /* made with mode 0700 if it is not there */
	uint64_t max_bytes; /* of all files in it together; the least recently used ones go */
	int n_threads;      /* that compare with checksums; at least 1 */
};

struct weight_cache_key {
	uint64_t source;    /* whose: a newer file of the same source replaces it */
	uint64_t digest[2]; /* of what exactly */
};

/* A matrix in the file. */
struct weight_cache_entry {
	uint64_t name; /* digest of the tensor's name */
	int32_t type, first_row, n_out, n_in;
	uint64_t at, bytes; /* in the data; at is a multiple of 64 */
};

enum {
	WEIGHT_CACHE_MAX_ENTRIES = 1 << 16,
	WEIGHT_CACHE_CHUNK = 4 << 20,
	WEIGHT_CACHE_ALIGN = 64,     /* of entries */
	WEIGHT_CACHE_HUGE = 2 << 20, /* of the data in a large file, so that the system can map it in large pages */
	WEIGHT_CACHE_NAME = 64,      /* bytes of a file's name, terminated */
};

struct weight_cache_head {
	char magic[16];
	uint64_t source, digest[2];
	uint64_t n_entries, n_chunks;
	uint64_t data_at, data_bytes; /* the file ends with the data */
	uint64_t rest_sum;            /* of entries and checksums */
	uint64_t head_sum;            /* of all before */
};

struct weight_cache {
	struct map_file map;
	const struct weight_cache_head *head;
	const struct weight_cache_entry *entries;
	const uint8_t *data;
};

/* Opens and checks all of the file of that key. progress: reported as checked; NULL: not. SL_ENOTFOUND: there is none
 * (or no folder); SL_EINVAL: it was damaged or is not this user's, with the reason in err, and it has been removed
 * where possible; SL_EIO, SL_ENOMEM. */
int weight_cache_open(const struct weight_cache_config *cfg, const struct weight_cache_key *key,
		      struct convert_progress *progress, struct weight_cache *out, struct sl_err *err);
void weight_cache_close(struct weight_cache *c);

/* ---- for weight_write.c ---- */

extern const char weight_cache_magic[16];
/* Where the data of a file with so many entries begins, and how many chunks it has. */
uint64_t weight_cache_data_at(uint64_t n_entries, uint64_t data_bytes);
uint64_t weight_cache_n_chunks(uint64_t data_bytes);
uint64_t weight_cache_chunk_sum(const void *chunk, size_t bytes, uint64_t index);
uint64_t weight_cache_rest_sum(const struct weight_cache_entry *entries, const uint64_t *sums, uint64_t n_entries,
			       uint64_t n_chunks);
uint64_t weight_cache_head_sum(const struct weight_cache_head *h);
void weight_cache_name(const struct weight_cache_key *key, char out[WEIGHT_CACHE_NAME]);
/* Removes other files of the key's source, what writers that have died left, and the least recently used
 * files beyond max_bytes, but never the key's own. */
void weight_cache_tidy(const struct weight_cache_config *cfg, const struct weight_cache_key *key);
/* Under it a writer writes, holding a lock on it: "….part" and six letters. */
#define WEIGHT_CACHE_PART ".part"
#define WEIGHT_CACHE_SUFFIX ".weights"

#endif
