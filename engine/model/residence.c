/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/residence.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/file/map_file.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { PIECE = 4 << 20, FIRST_CAP = 64 };

void residence_add(struct residence *r, const void *at, size_t bytes, bool in_place)
{
	bool mapped = in_place && map_file_has(at, bytes); /* and not converted into memory on load */
	if (mapped && r->n == r->cap) {
		size_t cap = r->cap == 0 ? FIRST_CAP : 2 * r->cap;
		struct residence_place *grown = sl_realloc_n(r->places, cap, sizeof *grown);
		if (grown != NULL) {
			r->places = grown;
			r->cap = cap;
		}
		mapped = grown != NULL; /* a place that is not noted stays in memory */
	}
	if (mapped) {
		r->places[r->n++] = (struct residence_place){.at = at, .bytes = bytes};
		r->bytes += bytes;
	} else {
		r->fixed += bytes;
	}
}

void residence_dispose(struct residence *r)
{
	sl_free(r->places);
	*r = (struct residence){0};
}

/* Reads one byte of each page, where the system can't bring pages in by itself. */
static void touch(uintptr_t from, uintptr_t to, uintptr_t page)
{
	for (uintptr_t at = from; at < to; at += page)
		(void)*(const volatile uint8_t *)at;
}

static int bring(const uint8_t *at, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at / page * page;
	uintptr_t to = ((uintptr_t)at + bytes + page - 1) / page * page;
	if (fault_hit(FAULT_READ))
		return SL_EIO;
	if (madvise((void *)from, to - from, MADV_POPULATE_READ) == 0)
		return 0;
	if (errno != EINVAL) /* which systems before 5.14 give */
		return SL_EIO;
	touch(from, to, page);
	return 0;
}

int residence_bring(const struct residence *r, struct convert_progress *progress, const atomic_bool *stop)
{
	for (size_t i = 0; i < r->n; i++) {
		for (size_t at = 0; at < r->places[i].bytes; at += PIECE) {
			size_t left = r->places[i].bytes - at, n = left < PIECE ? left : PIECE;
			if (stop != NULL && atomic_load(stop))
				return SL_ECLOSED;
			int rc = bring(r->places[i].at + at, n);
			if (rc != 0)
				return rc;
			convert_advance(progress, n);
		}
	}
	return 0;
}

void residence_drop(const struct residence *r)
{
	for (size_t i = 0; i < r->n; i++)
		map_file_let_go(r->places[i].at, r->places[i].bytes);
}
