/* SPDX-License-Identifier: Apache-2.0
 *
 * The room stores pages of keys and values in files, so that they outlive memory and the process. It knows bytes, keys
 * and owners, no sequences and no tree (engine/kv/kv_disk.h has both).
 *
 *   FOLDER/secret           32 random bytes, part of every key and sum
 *   FOLDER/NUMBER.kv        segments (disk_format.h), appended to by this process or sealed by an earlier one
 *
 * The folder is locked: one process has it.
 *
 * One thread writes: first it scans what earlier processes left (their pages are found as soon as their segment is
 * scanned), then it appends pages, gives back bytes beyond the limit by the policy (disk_index.h), and erases. Another
 * one reads, into the caller's memory. Both queues are bounded; a page that finds its queue full is not written.
 *
 * A disk that is full, fails or is gone stops writing for DISK_RETRY_MS, then a new segment is tried; three failed
 * reads in a row stop reading likewise. Each change is one line in the log. A page that is damaged, or not the one that
 * its key names, is forgotten and counted; the first one is logged.
 *
 * disk_tier_write and disk_tier_read never wait for the disk. Any thread, but for open and close.
 */
#ifndef ENGINE_DISK_TIER_H
#define ENGINE_DISK_TIER_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/list.h"
#include "engine/disk/disk_index.h"
#include "engine/disk/disk_segment.h"

enum { DISK_RETRY_MS = 30000, DISK_SECRET = 32 };

struct disk_tier;

struct disk_tier_config {
	const char *folder;     /* made with mode 0700 if it is not there */
	uint64_t max_bytes;     /* of the disk, all segments together */
	uint64_t max_age_s;     /* older pages go; 0: no bound */
	uint64_t segment_bytes; /* 0: a sixteenth of max_bytes, at most 256 MiB if 256 files are enough */
	uint64_t queue_bytes;   /* of pages that wait to be written; 0: 32 MiB */
	uint64_t retry_ms;      /* 0: DISK_RETRY_MS */
	enum disk_policy policy;
};

/* Why pages that were looked for were not read. */
enum disk_miss {
	DISK_MISS_ABSENT, /* they are not stored */
	DISK_MISS_SLOW,   /* reading would take longer than computing */
	DISK_MISS_BUSY,   /* too many reads, or no memory for the pages */
	DISK_MISS_LATE,   /* the deadline passed */
	DISK_MISS_FAILED, /* they could not be read, or were damaged */
	DISK_MISSES,
};

struct disk_stats {
	atomic_ullong bytes, pages; /* stored now */
	atomic_ullong hits;         /* pages read */
	atomic_ullong misses[DISK_MISSES];
	atomic_ullong written, evicted, erased;
	atomic_ullong dropped; /* pages that were not written: the queue was full, or the disk */
	atomic_ullong read_errors, write_errors, damaged;
	atomic_ullong read_bytes, write_bytes;
	atomic_ullong read_us, write_us;
};

/* SL_ENOMEM, SL_EINVAL (the folder or its secret can't be used; err has one line), SL_EIO (no threads). */
int disk_tier_open(const struct disk_tier_config *cfg, struct disk_tier **out, struct sl_err *err);
/* Writes what is queued if the disk takes it, ends the threads. No read may be left. NULL is allowed. */
void disk_tier_close(struct disk_tier *t);
struct disk_stats *disk_tier_stats(struct disk_tier *t);
enum disk_policy disk_tier_policy(const struct disk_tier *t);
/* Of the bytes that describe a model; with this installation's secret. */
struct disk_key disk_tier_model(const struct disk_tier *t, const void *what, size_t n);
/* Whether earlier processes' segments have been scanned. */
bool disk_tier_scanned(struct disk_tier *t);
/* Waits until the write queue is empty and what was asked to be erased is: for tests and tools. */
void disk_tier_settle(struct disk_tier *t);

/* ---- writing ---- */

/* Whether so many more bytes would be taken. */
bool disk_tier_has_room(struct disk_tier *t, size_t bytes);
/* Copies the page. 0, also if it is stored or queued already; SL_ELIMIT: it is dropped; SL_ENOMEM. */
int disk_tier_write(struct disk_tier *t, const struct disk_page *p, const void *k, const void *v, size_t half);
/* All pages of this owner, stored or queued, are erased from the disk: within moments, and at the next start if the
 * process ends before. */
void disk_tier_erase(struct disk_tier *t, uint64_t owner);
void disk_tier_erase_all(struct disk_tier *t);

/* ---- reading ---- */

/* How many of the keys, from the first on, are stored. */
uint32_t disk_tier_run(struct disk_tier *t, const struct disk_key *keys, uint32_t n);
bool disk_tier_has(struct disk_tier *t, struct disk_key key);
/* How long reading n pages would take now, by what reads took and what is queued before them. */
double disk_tier_ns(struct disk_tier *t, uint32_t n, size_t page_bytes);

/* A read of pages in order, up to the first that fails. The caller's, until done was called. */
struct disk_read {
	const struct disk_page *pages;
	void *const *k, *const *v; /* [n]: where the halves go */
	uint32_t n;
	size_t half;
	void (*done)(struct disk_read *r); /* on the reader's thread, or in disk_tier_stop */
	void *ctx;
	atomic_bool stop; /* set by the caller: it ends after the page that is being read */

	/* The tier's. */
	struct list link;
	uint32_t n_done; /* pages that were read, once done is called */
	bool failed;     /* the next one could not be */
};

/* SL_ELIMIT: too many reads are queued, or reading is stopped after faults. */
int disk_tier_read(struct disk_tier *t, struct disk_read *r);
/* Ends r soon; waits until done was called. */
void disk_tier_stop(struct disk_tier *t, struct disk_read *r);

#endif
