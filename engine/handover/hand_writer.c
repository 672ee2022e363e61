/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer's half. Blocks of its section are in use as long as an open record of one of its offers has them; both are
 * known here only. A page is published last: its record, then its position, then the count that readers look at.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/handover/hand_area.h"

/* A place, as the writer has it. */
struct hand_place {
	uint64_t handle; /* 0: free */
	uint64_t lease_ns;
	uint32_t n_pages, n_freed; /* published; of them, those whose blocks are free again */
	uint32_t n_blocks[HAND_WINDOW];
	bool open;
};

struct hand_writer {
	struct hand_area *a;
	struct hand_section *section;
	uint64_t epoch;
	uint32_t first, count; /* its blocks */
	uint32_t next, n_used; /* where the search for free ones goes on */
	uint32_t tags, n_offers;
	struct hand_place places[HAND_OFFERS];
	bool used[]; /* [count] */
};

/* ---- blocks ---- */

/* n free ones in a row from `from` on, before `end`; `end` if there are none. */
static uint32_t find_run(const struct hand_writer *w, uint32_t from, uint32_t end, uint32_t n)
{
	uint32_t run = 0;
	for (uint32_t i = from; i < end; i++) {
		run = w->used[i] ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return end;
}

/* False: there is no room. */
static bool take_blocks(struct hand_writer *w, uint32_t n, uint32_t *out)
{
	if (n > w->count - w->n_used)
		return false;
	uint32_t at = find_run(w, w->next, w->count, n);
	if (at == w->count)
		at = find_run(w, 0, w->count, n);
	if (at == w->count)
		return false;
	memset(w->used + at, true, n);
	w->n_used += n;
	w->next = at + n;
	*out = at;
	return true;
}

static void give_blocks(struct hand_writer *w, uint32_t at, uint32_t n)
{
	for (uint32_t i = at; i < at + n; i++)
		BUG_IF(!w->used[i], "hand-over: block %u is free already", i);
	memset(w->used + at, false, n);
	w->n_used -= n;
}

/* ---- offers ---- */

static struct hand_offer *offer_of(const struct hand_writer *w, const struct hand_place *p)
{
	return &w->section->offers[p - w->places];
}

/* The handle 0 finds a free place. */
static struct hand_place *find_place(struct hand_writer *w, uint64_t handle)
{
	for (uint32_t i = 0; i < HAND_OFFERS; i++)
		if (w->places[i].handle == handle)
			return &w->places[i];
	return NULL;
}

/* The blocks of its first n pages are free from now on. */
static void free_pages(struct hand_writer *w, struct hand_place *p, uint32_t n)
{
	struct hand_offer *o = offer_of(w, p);
	for (; p->n_freed < n; p->n_freed++) {
		uint32_t i = p->n_freed % HAND_WINDOW;
		/* The writer's own number: nobody else stores it. */
		give_blocks(w, atomic_load_explicit(&o->at[i], memory_order_relaxed) - w->first, p->n_blocks[i]);
	}
}

static void drop(struct hand_writer *w, struct hand_place *p)
{
	struct hand_offer *o = offer_of(w, p);
	atomic_store(&o->handle, 0);
	free_pages(w, p, p->n_pages);
	p->handle = 0;
	w->n_offers--;
}

/* How many pages the reader has taken. A number that no reader of this offer can have stored counts as none. */
static uint32_t n_taken(const struct hand_writer *w, const struct hand_place *p)
{
	uint32_t n = (uint32_t)atomic_load(&offer_of(w, p)->progress);
	return n <= p->n_pages ? n : p->n_freed;
}

static void tick_place(struct hand_writer *w, struct hand_place *p, uint64_t now_ns)
{
	uint32_t taken = n_taken(w, p);
	if (now_ns >= p->lease_ns || (!p->open && taken == p->n_pages)) {
		drop(w, p);
		return;
	}
	if (taken > p->n_freed)
		free_pages(w, p, taken);
}

void hand_writer_tick(struct hand_writer *w, uint64_t now_ns)
{
	for (uint32_t i = 0; w->n_offers > 0 && i < HAND_OFFERS; i++)
		if (w->places[i].handle != 0)
			tick_place(w, &w->places[i], now_ns);
}

int hand_offer_begin(struct hand_writer *w, uint64_t handle, uint64_t lease_ns, uint64_t now_ns)
{
	hand_writer_tick(w, now_ns);
	if (handle == 0 || find_place(w, handle) != NULL)
		return SL_EINVAL;
	struct hand_place *p = find_place(w, 0);
	if (p == NULL)
		return SL_ELIMIT;
	p->handle = handle;
	p->lease_ns = lease_ns;
	p->n_pages = p->n_freed = 0;
	p->open = true;
	w->n_offers++;
	struct hand_offer *o = offer_of(w, p);
	atomic_store(&o->n_pages, 0);
	atomic_store(&o->state, HAND_OPEN);
	atomic_store(&o->progress, (uint64_t)++w->tags << 32);
	atomic_store(&o->handle, handle);
	return 0;
}

static void put_record(const struct hand_writer *w, uint32_t at, const struct disk_page *p, const void *k,
		       const void *v, size_t half)
{
	uint8_t *to = w->a->blocks + (size_t)at * DISK_BLOCK;
	struct disk_record r = disk_record_of(p, (uint64_t)clock_unix_s(), half);
	r.segment = w->epoch;
	r.at = (uint64_t)at * DISK_BLOCK;
	r.payload_sum = disk_payload_sum(w->a->seed, k, v, half);
	memcpy(to + DISK_BLOCK, k, half);
	memcpy(to + DISK_BLOCK + half, v, half);
	disk_record_seal(w->a->seed, &r, p->tokens, to);
}

static int cut(struct hand_writer *w, struct hand_place *p)
{
	p->open = false;
	atomic_store(&offer_of(w, p)->state, HAND_FULL);
	return SL_ELIMIT;
}

int hand_offer_page(struct hand_writer *w, uint64_t handle, const struct disk_page *page, const void *k, const void *v,
		    size_t half, uint64_t now_ns)
{
	struct hand_place *p = handle != 0 ? find_place(w, handle) : NULL;
	uint64_t n = disk_record_room(2 * (uint64_t)half) / DISK_BLOCK;
	uint32_t at;
	hand_writer_tick(w, now_ns);
	if (p == NULL || p->handle != handle || !p->open)
		return SL_ENOTFOUND;
	if (p->n_pages - p->n_freed == HAND_WINDOW || n > w->count || !take_blocks(w, (uint32_t)n, &at))
		return cut(w, p);
	struct hand_offer *o = offer_of(w, p);
	uint32_t i = p->n_pages % HAND_WINDOW;
	put_record(w, w->first + at, page, k, v, half);
	p->n_blocks[i] = (uint32_t)n;
	atomic_store(&o->at[i], w->first + at);
	atomic_store(&o->n_pages, ++p->n_pages);
	return 0;
}

void hand_offer_end(struct hand_writer *w, uint64_t handle, enum hand_state state)
{
	struct hand_place *p = handle != 0 ? find_place(w, handle) : NULL;
	if (p == NULL || !p->open)
		return;
	p->open = false;
	atomic_store(&offer_of(w, p)->state, (uint32_t)state);
}

/* ---- life ---- */

int hand_writer_open(struct hand_area *a, uint32_t number, struct hand_writer **out)
{
	if (!hand_area_has_writer(a, number))
		return SL_EINVAL;
	struct hand_writer *w = sl_zalloc(sizeof *w + a->count[number] * sizeof *w->used);
	if (w == NULL)
		return SL_ENOMEM;
	w->a = a;
	w->section = &a->head->sections[number];
	w->first = a->first[number];
	w->count = a->count[number];
	/* Readers see the new epoch first, then no offers. */
	w->epoch = atomic_fetch_add(&w->section->epoch, 1) + 1;
	w->tags = (uint32_t)(w->epoch << 16);
	for (uint32_t i = 0; i < HAND_OFFERS; i++)
		atomic_store(&w->section->offers[i].handle, 0);
	*out = w;
	return 0;
}

void hand_writer_close(struct hand_writer *w)
{
	if (w == NULL)
		return;
	for (uint32_t i = 0; i < HAND_OFFERS; i++)
		if (w->places[i].handle != 0)
			drop(w, &w->places[i]);
	BUG_IF(w->n_used != 0 || w->n_offers != 0, "hand-over: %u blocks are left", w->n_used);
	sl_free(w);
}

uint32_t hand_writer_n_offers(const struct hand_writer *w) { return w->n_offers; }
uint32_t hand_writer_n_used(const struct hand_writer *w) { return w->n_used; }

void hand_writer_validate(const struct hand_writer *w)
{
	uint32_t n_used = 0, n_held = 0, n_offers = 0;
	for (uint32_t i = 0; i < w->count; i++)
		n_used += w->used[i];
	for (uint32_t i = 0; i < HAND_OFFERS; i++) {
		const struct hand_place *p = &w->places[i];
		n_offers += p->handle != 0;
		BUG_IF(p->n_freed > p->n_pages || p->n_pages - p->n_freed > HAND_WINDOW,
		       "hand-over: %u of %u pages are freed", p->n_freed, p->n_pages);
		for (uint32_t k = p->n_freed; p->handle != 0 && k < p->n_pages; k++)
			n_held += p->n_blocks[k % HAND_WINDOW];
	}
	BUG_IF(n_used != w->n_used || n_held != n_used || n_offers != w->n_offers,
	       "hand-over: %u blocks are in use, %u counted, %u held", n_used, w->n_used, n_held);
}
