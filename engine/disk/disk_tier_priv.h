/* SPDX-License-Identifier: Apache-2.0
 *
 * State shared by the files of the tier: disk_tier.c has its life and what callers ask, disk_writer.c and disk_reader.c
 * the two threads. Private to engine/disk.
 */
#ifndef ENGINE_DISK_TIER_PRIV_H
#define ENGINE_DISK_TIER_PRIV_H

#include <pthread.h>

#include "engine/disk/disk_tier.h"

enum {
	DISK_MAX_READS = 64,
	DISK_MAX_ERASES = 256, /* owners; beyond them everything is erased */
	DISK_QUEUE_BYTES = 32 << 20,
	DISK_MAX_PAGES = 1 << 21, /* stored: their index takes some 200 bytes each */
	DISK_MAX_JOBS = 1024,     /* pages that wait to be written */
	DISK_READ_FAULTS = 3,     /* in a row: reading stops for a while */
};

/* A page that waits to be written, with its tokens and halves behind it. */
struct disk_job {
	struct list link;
	struct disk_page page;
	size_t half;
	uint8_t *k, *v;
	int32_t tokens[];
};

/* Whether something works, as the log has it. */
struct disk_health {
	bool bad;
	uint64_t retry_ns; /* while it is bad */
	unsigned n_faults; /* in a row */
};

struct disk_tier {
	/* Constant. */
	char *folder;
	int dir; /* of the folder; the writer's: opened anew if it is gone */
	uint8_t secret[DISK_SECRET];
	uint64_t seed;
	uint64_t max_bytes, max_age_s, segment_bytes, queue_bytes, retry_ns;
	pthread_t writer, reader;
	bool writer_runs, reader_runs;
	struct disk_stats stats;

	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t to_write, to_read, changed;
	struct disk_index index;
	uint32_t n_damaged;   /* of its entries: the writer removes them, as only it removes any */
	struct list segments; /* by number; the last one is appended to unless it is sealed */
	uint64_t held;        /* bytes of the disk, of all segments */
	struct list jobs;     /* struct disk_job */
	uint64_t job_bytes;
	uint32_t n_jobs;                /* with the one that is written */
	const struct disk_job *writing; /* NULL: none */
	uint64_t erases[DISK_MAX_ERASES];
	uint32_t n_erases;
	bool erase_all, erasing;
	struct list reads; /* struct disk_read */
	uint64_t read_bytes_queued;
	const struct disk_read *reading;
	double ns_per_byte; /* of reads */
	uint64_t rate_ns;   /* when it was learned */
	bool scanned, closing;
	struct disk_health reads_health, writes_health;
	bool said_damaged;
	uint64_t next_number; /* of a segment; the writer's */
	bool punches;         /* the file system can give back parts of a file; the writer's */
};

void *disk_writer_main(void *tier);
void *disk_reader_main(void *tier);

/* With the lock held. */

/* e leaves the index; its record stays as it is. */
void disk_tier_forget(struct disk_tier *t, struct disk_entry *e);
/* A fault of reading or writing, or none: one line in the log for each change. */
void disk_tier_fault(struct disk_tier *t, struct disk_health *h, unsigned most, const char *what, const char *why);
void disk_tier_works(struct disk_tier *t, struct disk_health *h, const char *what);
/* Whether it may be tried. */
bool disk_tier_may(struct disk_tier *t, struct disk_health *h);
/* No reader has it any more: closes it if it is gone. */
void disk_segment_left(struct disk_segment *s);
void disk_tier_publish(struct disk_tier *t);

#endif
