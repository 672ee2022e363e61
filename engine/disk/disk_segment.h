/* SPDX-License-Identifier: Apache-2.0
 *
 * One segment file: made, appended to, read, scanned, emptied. Calls name the offset; which pages are where is the
 * index's (disk_index.h). Writing calls come from one thread; reads may run beside them.
 *
 * All faults are SL_EIO with the reason in errno; SL_EINVAL is a record that is not what it should be.
 */
#ifndef ENGINE_DISK_SEGMENT_H
#define ENGINE_DISK_SEGMENT_H

#include "base/list.h"
#include "engine/disk/disk_format.h"

enum { DISK_NAME = 32 }; /* bytes of a file's name, terminated */

struct disk_segment {
	struct list link;    /* among all, by number */
	struct list entries; /* struct disk_entry.in_segment */
	uint64_t number, created_s;
	uint64_t end;  /* where the next record goes */
	uint64_t live; /* bytes of records that are in the index */
	uint64_t held; /* bytes of the disk that it takes */
	int fd;
	int n_readers;
	bool sealed; /* nothing more is appended */
	bool gone;   /* its file is removed; freed with the last reader */
};

void disk_segment_name(uint64_t number, char out[DISK_NAME]);
/* False: the name is no segment's. */
bool disk_segment_number(const char *name, uint64_t *number);

int disk_segment_create(int folder, uint64_t seed, uint64_t number, uint64_t created_s, struct disk_segment **out);
/* Opens a file of an earlier process, sealed. As disk_head_check; SL_EINVAL also: not a regular file of this user's. */
int disk_segment_open(int folder, uint64_t seed, uint64_t number, struct disk_segment **out);
/* Closes and frees; entries must be empty. */
void disk_segment_close(struct disk_segment *s);
/* Removes the file; the descriptor stays open. */
void disk_segment_unlink(int folder, struct disk_segment *s);

/* half: bytes of k, and of v. *at: where the record is. After a fault the segment is sealed. */
int disk_segment_append(struct disk_segment *s, uint64_t seed, const struct disk_page *p, uint64_t created_s,
			const void *k, const void *v, size_t half, uint64_t *at);
/* A record that asks to erase an owner's earlier pages, on disk when this returns. */
int disk_segment_append_erase(struct disk_segment *s, uint64_t seed, uint64_t owner, uint64_t created_s, uint64_t *at);
/* The record's bytes are given back, its head says so. wipe: they are overwritten where they can't be given back, so
 * nothing of them is left. *freed: bytes of the disk. */
int disk_segment_kill(struct disk_segment *s, uint64_t seed, uint64_t at, bool wipe, uint64_t *freed);
/* Whether what was written and wiped so far is on disk. */
int disk_segment_sync(struct disk_segment *s);

/* Reads the page at `at` into k and v. SL_EINVAL: it is damaged, or not p. */
int disk_segment_read(const struct disk_segment *s, uint64_t seed, uint64_t at, const struct disk_page *p, void *k,
		      void *v, size_t half);
/* The system may read so many bytes ahead. */
void disk_segment_ahead(const struct disk_segment *s, uint64_t at, uint64_t bytes);
/* The record at *at, or the next one behind damaged blocks; *at is then its offset. SL_ENOTFOUND: there is none. *torn
 * counts blocks that are no record's. tokens: in block. */
int disk_segment_scan(const struct disk_segment *s, uint64_t seed, uint64_t *at, uint8_t block[DISK_BLOCK],
		      struct disk_record *out, const int32_t **tokens, uint64_t *torn);

#endif
