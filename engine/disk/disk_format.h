/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of segment files. Pure; any thread.
 *
 *   segment   a head, then records; each begins at a multiple of DISK_BLOCK
 *   record    a block with its head and the page's tokens, then the payload: the page's keys, then its values
 *
 * A record's sum covers its head and tokens, with the number of the segment and the offset in it, so a record is valid
 * in one position of one file only. The payload has a sum of its own, so a scan reads heads only. Sums are seeded with
 * the installation's secret: files of others, and keys and values that look like records, are no records here. A
 * payload is written before its head, so a process that dies in between leaves no record.
 *
 * Numbers lie as this processor has them.
 */
#ifndef ENGINE_DISK_FORMAT_H
#define ENGINE_DISK_FORMAT_H

#include "base/err.h"
#include "engine/disk/disk_key.h"

enum {
	DISK_VERSION = 1,
	DISK_BLOCK = 4096,
	DISK_MAX_TOKENS = 512, /* of a page */
};
#define DISK_MAX_PAYLOAD (1ULL << 30)

enum disk_kind {
	DISK_PAGE = 1,
	DISK_DEAD = 2,  /* was a page; its bytes are free */
	DISK_ERASE = 3, /* all earlier pages of its owner are to be erased */
};

struct disk_segment_head {
	char magic[8];
	uint32_t version, block;
	uint64_t number, created_s;
	struct disk_key sum; /* of all before */
};

struct disk_record {
	uint32_t magic, version;
	uint32_t kind, n_tokens;
	uint64_t segment, at;
	struct disk_key model, key, parent;
	uint64_t owner, created_s; /* since 1970 */
	uint64_t payload_bytes;
	uint64_t depth; /* pages before it, and itself */
	struct disk_key payload_sum;
	struct disk_key sum; /* of all before, and the tokens */
};

/* Of a page: what a record says, without its position. */
struct disk_page {
	struct disk_key model, key, parent;
	const int32_t *tokens;
	uint64_t n_tokens, depth, owner;
};

/* The payload rounded up to blocks; a whole record. */
static inline uint64_t disk_payload_room(uint64_t bytes) { return (bytes + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK; }
static inline uint64_t disk_record_room(uint64_t payload) { return DISK_BLOCK + disk_payload_room(payload); }

/* The record of a page of `half` bytes of keys, and of values, whose position and sums are still to be filled in. */
struct disk_record disk_record_of(const struct disk_page *p, uint64_t created_s, size_t half);
/* Is it the record of this page? */
bool disk_record_is(const struct disk_record *r, const int32_t *tokens, const struct disk_page *p, size_t half);
/* Fills in magic, version and sum, and the block. */
void disk_record_seal(uint64_t seed, struct disk_record *r, const int32_t *tokens, uint8_t block[DISK_BLOCK]);
/* Checks a block that was read at `at` of a segment of `end` bytes. *tokens points into the block. SL_EINVAL: it is no
 * record of this position, version and seed, or does not end within the segment. */
int disk_record_check(uint64_t seed, const uint8_t block[DISK_BLOCK], uint64_t segment, uint64_t at, uint64_t end,
		      struct disk_record *out, const int32_t **tokens);
void disk_head_seal(uint64_t seed, uint64_t number, uint64_t created_s, uint8_t block[DISK_BLOCK]);
/* SL_EUNSUPPORTED: of another version or installation; SL_EINVAL: damaged; SL_EPROTO: it is no segment. */
int disk_head_check(uint64_t seed, const uint8_t block[DISK_BLOCK], uint64_t number, struct disk_segment_head *out);
/* Of keys and values, `half` bytes each. */
struct disk_key disk_payload_sum(uint64_t seed, const void *k, const void *v, size_t half);

#endif
