/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-over area: shared memory in which an engine that computes prompts (the writer) leaves pages of keys and
 * values for an engine that decodes (the reader). The room knows bytes and keys, no sequences and no tree; the step
 * threads of both engines use it through engine/kv/kv_hand.h.
 *
 * Terms
 *   area      a memfd that the supervisor makes, sealed against resizing, and grants to engines before they are
 *             confined. Its size bounds all hand-overs together
 *   section   a part of the area with one writer, the engine of that number. Only it allocates and frees there
 *   offer     one hand-over: a handle, drawn by the gateway, and the pages of one prompt in order
 *   record    a page in the form of a segment file's (disk_format.h): a block with head and tokens, then the payload
 *   epoch     of a section: grows with each start of its writer
 *   lease     until when an offer's records stay for the reader, on the machine's monotonic clock
 *
 * Why nothing leaks and nothing foreign is served
 *   - A record's sums cover its head, tokens and payload, seeded with the area's secret, together with its epoch and
 *     its offset in the area. A reader copies the payload and checks the copy, so a record that is overwritten, torn by
 *     a writer that died, of an earlier epoch or moved is refused.
 *   - A reader computes the key that it wants (disk_key.h) from everything that the page depends on, so a valid record
 *     of another text, tenant, adapter, model or build is refused.
 *   - There is no lock and no count that a dead process could leave behind. Which blocks are free only the writer
 *     knows, in its own memory; a writer that starts finds none in use. A reader holds nothing: it reports how many
 *     pages it has taken, by a compare-and-swap that fails once the offer's place has another offer.
 *   - Offers end with their lease, whether the reader lives or not.
 *
 * Sizes and positions in shared memory are read once and checked before use.
 */
#ifndef ENGINE_HAND_AREA_H
#define ENGINE_HAND_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/disk/disk_format.h"

enum {
	HAND_WRITERS = 8,       /* engines by number */
	HAND_OFFERS = 64,       /* at once, of a section */
	HAND_WINDOW = 512,      /* pages of an offer that the reader has not taken */
	HAND_LEAST_BLOCKS = 64, /* of a section */
};

/* How far an offer is. */
enum hand_state {
	HAND_NONE,   /* there is none of this handle: not yet, or not any more */
	HAND_OPEN,   /* more pages may come */
	HAND_ENDED,  /* all pages have come */
	HAND_FAILED, /* the writer gave up before all had come */
	HAND_FULL,   /* the same, since the section had no room */
};

/* In shared memory. */
struct hand_offer {
	_Atomic uint64_t handle; /* 0: the place is free */
	_Atomic uint64_t
	    progress; /* tag << 32 | pages that the reader has taken; the tag is another one for each offer */
	_Atomic uint32_t n_pages;         /* published */
	_Atomic uint32_t state;           /* enum hand_state */
	_Atomic uint32_t at[HAND_WINDOW]; /* of page i at i % HAND_WINDOW: its record's first block in the area */
};

struct hand_section {
	_Atomic uint64_t epoch;
	uint32_t first, n_blocks; /* of DISK_BLOCK bytes, in the area; constant; n_blocks 0: it has no writer */
	struct hand_offer offers[HAND_OFFERS];
};

struct hand_head {
	char magic[8];
	uint32_t version, n_blocks;
	uint8_t secret[32];
	struct hand_section sections[HAND_WRITERS];
};

/* A process's view. */
struct hand_area {
	struct hand_head *head;
	uint8_t *blocks; /* the area's first byte */
	uint64_t bytes;
	uint32_t n_blocks;
	uint32_t first[HAND_WRITERS], count[HAND_WRITERS]; /* the sections, checked */
	uint64_t seed;                                     /* of sums */
};

/* A new area of about `bytes`, shared evenly by the writers, a bit for each engine's number. *fd is close-on-exec.
 * SL_EINVAL: too small, or no writers; SL_EIO with the reason in errno. */
int hand_area_make(uint64_t bytes, uint32_t writers, int *fd);
/* Maps it; fd stays the caller's. SL_EINVAL: it is no area of this version, not sealed, or inconsistent; SL_EIO. */
int hand_area_map(int fd, struct hand_area **out);
void hand_area_unmap(struct hand_area *a); /* NULL allowed */
/* Whether the engine of this number may be a writer. */
bool hand_area_has_writer(const struct hand_area *a, uint32_t number);
/* Of the bytes that describe a model, with the area's secret. */
struct disk_key hand_area_model(const struct hand_area *a, const void *what, size_t n);

/* ---- the writer; one thread ---- */

struct hand_writer;

/* Begins a new epoch: what was offered before is gone. SL_EINVAL: the engine has no section; SL_ENOMEM. */
int hand_writer_open(struct hand_area *a, uint32_t number, struct hand_writer **out);
void hand_writer_close(struct hand_writer *w); /* ends all offers; NULL allowed */
/* A new offer, until lease_ns. SL_EINVAL: the handle is 0 or offered already; SL_ELIMIT: too many offers. */
int hand_offer_begin(struct hand_writer *w, uint64_t handle, uint64_t lease_ns, uint64_t now_ns);
/* Its next page, copied; half: bytes of k and of v. SL_ELIMIT: no room, the offer is HAND_FULL; SL_ENOTFOUND: it is not
 * open. */
int hand_offer_page(struct hand_writer *w, uint64_t handle, const struct disk_page *p, const void *k, const void *v,
		    size_t half, uint64_t now_ns);
/* No more pages come. state: HAND_ENDED or HAND_FAILED. No effect if it is not open. */
void hand_offer_end(struct hand_writer *w, uint64_t handle, enum hand_state state);
/* Frees what readers have taken, and offers whose lease is over or of which a reader has taken all. */
void hand_writer_tick(struct hand_writer *w, uint64_t now_ns);
uint32_t hand_writer_n_offers(const struct hand_writer *w);
uint32_t hand_writer_n_used(const struct hand_writer *w); /* blocks */
void hand_writer_validate(const struct hand_writer *w);   /* BUG on a broken invariant */

/* ---- the reader; any number of processes, one thread for each struct ---- */

struct hand_reader {
	uint32_t writer;
	uint64_t handle;
	/* Its own; zeros at first. */
	uint64_t epoch; /* of the section when the offer was found; 0: it was not */
	uint32_t place, tag;
	uint32_t n_taken;
};

/* Looks at the offer; *n_pages: published so far, of which n_taken are taken. HAND_FAILED also: it was found before,
 * and its writer has begun anew since or its lease is over. */
enum hand_state hand_look(const struct hand_area *a, struct hand_reader *r, uint32_t *n_pages);
/* Copies page n_taken, which hand_look has counted and which must be p, and takes it. SL_EINVAL: it is not p, or
 * damaged. */
int hand_take(const struct hand_area *a, struct hand_reader *r, const struct disk_page *p, void *k, void *v,
	      size_t half);
/* Takes n pages without looking at them. */
void hand_skip(const struct hand_area *a, struct hand_reader *r, uint32_t n);

#endif
