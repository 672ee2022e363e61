/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-over area: pages pass between two views of it, and what is torn, foreign, stale or late is refused; nothing
 * is left whoever dies.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/handover/hand_area.h"

enum { TOKENS = 16, HALF = 6000, LEASE = 1000, AREA = 4 << 20 };

struct pair {
	int fd;
	struct hand_area *a, *b; /* the writer's view and the reader's */
	struct hand_writer *w;
	struct disk_key model;
};

static void open_area(struct pair *p, uint64_t bytes, uint32_t writers)
{
	assert_int_equal(hand_area_make(bytes, writers, &p->fd), 0);
	assert_int_equal(hand_area_map(p->fd, &p->a), 0);
	assert_int_equal(hand_area_map(p->fd, &p->b), 0);
	p->model = hand_area_model(p->a, "model", 5);
	assert_true(disk_key_equal(p->model, hand_area_model(p->b, "model", 5)));
}

static void open_pair(struct pair *p)
{
	open_area(p, AREA, 1u << 1);
	assert_int_equal(hand_writer_open(p->a, 1, &p->w), 0);
}

static void close_pair(struct pair *p)
{
	hand_writer_close(p->w);
	hand_area_unmap(p->a);
	hand_area_unmap(p->b);
	close(p->fd);
}

static uint8_t byte_of(uint32_t text, uint32_t page, size_t i) { return (uint8_t)(text * 131 + page * 31 + i * 7); }

/* A page of a text: its tokens, name and contents. */
struct page {
	int32_t tokens[TOKENS];
	uint8_t k[HALF], v[HALF];
	struct disk_page name;
};

static void make_page(struct page *p, struct disk_key model, uint32_t text, uint32_t at)
{
	struct disk_key key = disk_key_root(model, (struct disk_key){0}, 7);
	for (uint32_t i = 0; i <= at; i++) {
		for (uint32_t k = 0; k < TOKENS; k++)
			p->tokens[k] = (int32_t)(text * 1000 + i * TOKENS + k);
		p->name.parent = key;
		key = disk_key_next(key, p->tokens, TOKENS);
	}
	p->name.key = key;
	p->name.model = model;
	p->name.tokens = p->tokens;
	p->name.n_tokens = TOKENS;
	p->name.depth = at + 1;
	for (size_t i = 0; i < HALF; i++) {
		p->k[i] = byte_of(text, at, i);
		p->v[i] = byte_of(text, at, i + 3);
	}
}

static int put(struct pair *p, uint64_t handle, uint32_t text, uint32_t at)
{
	struct page page;
	make_page(&page, p->model, text, at);
	int rc = hand_offer_page(p->w, handle, &page.name, page.k, page.v, HALF, 1);
	hand_writer_validate(p->w);
	return rc;
}

/* Takes the next page, which must have the bits that were put. */
static int take(struct pair *p, struct hand_reader *r, uint32_t text, uint32_t at)
{
	struct page page;
	uint8_t k[HALF], v[HALF];
	make_page(&page, p->model, text, at);
	int rc = hand_take(p->b, r, &page.name, k, v, HALF);
	if (rc == 0) {
		assert_memory_equal(k, page.k, HALF);
		assert_memory_equal(v, page.v, HALF);
	}
	return rc;
}

static void pages_pass_as_they_come(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 42};
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_NONE);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), SL_EINVAL);
	assert_int_equal(hand_offer_begin(p.w, 0, LEASE, 0), SL_EINVAL);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	assert_int_equal(n, 0);
	/* More than the window in all: what is taken makes room. */
	for (uint32_t i = 0; i < 2 * HAND_WINDOW; i++) {
		assert_int_equal(put(&p, 42, 1, i), 0);
		assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
		assert_int_equal(n, i + 1);
		assert_int_equal(take(&p, &r, 1, i), 0);
	}
	hand_offer_end(p.w, 42, HAND_ENDED);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_ENDED);
	hand_writer_tick(p.w, 1);
	assert_int_equal(hand_writer_n_offers(p.w), 0);
	assert_int_equal(hand_writer_n_used(p.w), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_FAILED); /* it is gone */
	close_pair(&p);
}

static void skipped_pages_count_as_taken(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 5};
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 5, LEASE, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(put(&p, 5, 1, i), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	hand_skip(p.b, &r, 2);
	assert_int_equal(take(&p, &r, 1, 2), 0);
	hand_writer_tick(p.w, 1);
	assert_int_equal(hand_writer_n_used(p.w), 0);
	close_pair(&p);
}

/* A byte of the record in shared memory, at `at` of it. */
static uint8_t *byte_at(struct pair *p, struct hand_reader *r, size_t at)
{
	uint32_t block = p->b->head->sections[1].offers[r->place].at[0];
	return p->b->blocks + (size_t)block * DISK_BLOCK + at;
}

static void torn_records_are_refused(void **state)
{
	static const size_t at[] = {0,
				    offsetof(struct disk_record, segment),
				    offsetof(struct disk_record, key),
				    sizeof(struct disk_record) + 4,
				    DISK_BLOCK + 5,
				    DISK_BLOCK + 2 * HALF - 1};
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 42};
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(put(&p, 42, 1, 0), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		*byte_at(&p, &r, at[i]) ^= 1;
		assert_int_equal(take(&p, &r, 1, 0), SL_EINVAL);
		*byte_at(&p, &r, at[i]) ^= 1;
	}
	/* A position outside of the section. */
	_Atomic uint32_t *first = &p.b->head->sections[1].offers[r.place].at[0];
	uint32_t good = *first;
	*first = UINT32_MAX;
	assert_int_equal(take(&p, &r, 1, 0), SL_EINVAL);
	*first = p.b->n_blocks - 1; /* the record would end beyond the area */
	memcpy(p.b->blocks + (size_t)*first * DISK_BLOCK, p.b->blocks + (size_t)good * DISK_BLOCK, DISK_BLOCK);
	assert_int_equal(take(&p, &r, 1, 0), SL_EINVAL);
	*first = good + 1; /* moved: valid bytes in another position */
	memmove(p.b->blocks + (size_t)*first * DISK_BLOCK, p.b->blocks + (size_t)good * DISK_BLOCK, 4 * DISK_BLOCK);
	assert_int_equal(take(&p, &r, 1, 0), SL_EINVAL);
	memmove(p.b->blocks + (size_t)good * DISK_BLOCK, p.b->blocks + (size_t)*first * DISK_BLOCK, 4 * DISK_BLOCK);
	*first = good;
	assert_int_equal(take(&p, &r, 1, 0), 0);
	close_pair(&p);
}

static void foreign_pages_are_refused(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 42};
	struct page other;
	uint8_t k[HALF], v[HALF];
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(put(&p, 42, 1, 0), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	assert_int_equal(take(&p, &r, 2, 0), SL_EINVAL); /* another text */
	assert_int_equal(take(&p, &r, 1, 1), SL_EINVAL); /* another page of it */
	make_page(&other, hand_area_model(p.b, "another", 7), 1, 0);
	assert_int_equal(hand_take(p.b, &r, &other.name, k, v, HALF), SL_EINVAL); /* another model */
	make_page(&other, p.model, 1, 0);
	assert_int_equal(hand_take(p.b, &r, &other.name, k, v, HALF / 2), SL_EINVAL); /* another geometry */
	assert_int_equal(take(&p, &r, 1, 0), 0);
	/* An area of another start has another secret: its keys are others. */
	struct pair q;
	open_area(&q, AREA, 1u << 1);
	assert_false(disk_key_equal(p.model, q.model));
	q.w = NULL;
	close_pair(&q);
	close_pair(&p);
}

static void a_new_epoch_ends_offers(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 42}, late = r;
	struct hand_writer *dead;
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(put(&p, 42, 1, 0), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	dead = p.w; /* it dies without a word, and another process takes its section */
	assert_int_equal(hand_writer_open(p.a, 1, &p.w), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_FAILED);
	assert_int_equal(hand_look(p.b, &late, &n), HAND_NONE);
	/* The same handle again, in the same place: what the earlier epoch left there is no record. */
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_FAILED);
	atomic_store(&p.b->head->sections[1].offers[0].n_pages, 1);
	assert_int_equal(hand_look(p.b, &late, &n), HAND_OPEN);
	assert_int_equal(take(&p, &late, 1, 0), SL_EINVAL);
	hand_writer_close(dead);
	close_pair(&p);
}

static void leases_end(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 42};
	uint32_t n;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 42, LEASE, 0), 0);
	assert_int_equal(put(&p, 42, 1, 0), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_OPEN);
	hand_writer_tick(p.w, LEASE - 1);
	assert_int_equal(hand_writer_n_offers(p.w), 1);
	hand_writer_tick(p.w, LEASE); /* the reader has died, or is slow */
	assert_int_equal(hand_writer_n_offers(p.w), 0);
	assert_int_equal(hand_writer_n_used(p.w), 0);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_FAILED);
	/* Its place and blocks serve another offer, to which the late reader does nothing. */
	assert_int_equal(hand_offer_begin(p.w, 43, LEASE, 0), 0);
	assert_int_equal(put(&p, 43, 2, 0), 0);
	assert_int_equal(take(&p, &r, 1, 0), SL_EINVAL);
	hand_skip(p.b, &r, 1);
	hand_writer_tick(p.w, 1);
	assert_int_not_equal(hand_writer_n_used(p.w), 0);
	close_pair(&p);
}

static void a_full_section_cuts_the_offer(void **state)
{
	struct pair p;
	struct hand_reader r = {.writer = 1, .handle = 1};
	uint32_t n, i = 0;
	(void)state;
	open_pair(&p);
	assert_int_equal(hand_offer_begin(p.w, 1, LEASE, 0), 0);
	while (put(&p, 1, 1, i) == 0)
		i++;
	assert_true(i > 10);
	assert_int_equal(hand_look(p.b, &r, &n), HAND_FULL);
	assert_int_equal(n, i);
	assert_int_equal(put(&p, 1, 1, i), SL_ENOTFOUND); /* it stays cut: pages follow one another */
	for (uint32_t k = 0; k < i; k++)
		assert_int_equal(take(&p, &r, 1, k), 0);
	hand_writer_tick(p.w, 1);
	assert_int_equal(hand_writer_n_used(p.w), 0);
	/* Offers are bounded, too. */
	for (uint64_t k = 0; k < HAND_OFFERS; k++)
		assert_int_equal(hand_offer_begin(p.w, 100 + k, LEASE, 0), 0);
	assert_int_equal(hand_offer_begin(p.w, 99, LEASE, 0), SL_ELIMIT);
	close_pair(&p);
}

/* The writer is killed in the middle of a page: the reader sees whole pages only. */
static void a_killed_writer_leaves_whole_pages(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 20; seed++) {
		struct pair p;
		struct hand_reader r = {.writer = 1, .handle = 9};
		uint32_t n;
		open_area(&p, AREA, 1u << 1);
		p.w = NULL;
		int ready[2];
		assert_int_equal(pipe(ready), 0);
		pid_t child = fork();
		if (child == 0) {
			if (hand_writer_open(p.a, 1, &p.w) != 0 || hand_offer_begin(p.w, 9, UINT64_MAX, 0) != 0)
				_exit(1);
			for (uint32_t i = 0;; i++) {
				if (i == seed % 5 && write(ready[1], "", 1) != 1)
					_exit(1);
				if (put(&p, 9, 1, i) != 0)
					pause();
			}
		}
		char c;
		assert_int_equal(read(ready[0], &c, 1), 1);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_true(hand_look(p.b, &r, &n) >= HAND_OPEN);
		assert_true(n >= seed % 5);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(take(&p, &r, 1, i), 0);
		assert_int_equal(hand_writer_open(p.a, 1, &p.w), 0); /* its next start finds all free */
		assert_int_equal(hand_writer_n_used(p.w), 0);
		close(ready[0]);
		close(ready[1]);
		close_pair(&p);
	}
}

static void areas_are_checked(void **state)
{
	struct hand_area *a;
	struct hand_writer *w;
	int fd;
	(void)state;
	assert_int_equal(hand_area_make(AREA, 0, &fd), SL_EINVAL);
	assert_int_equal(hand_area_make(AREA, 1u << HAND_WRITERS, &fd), SL_EINVAL);
	assert_int_equal(hand_area_make(1 << 20, 1, &fd), SL_EINVAL);
	fd = memfd_create("test", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, AREA), 0);
	assert_int_equal(hand_area_map(fd, &a), SL_EINVAL); /* not sealed */
	close(fd);
	assert_int_equal(hand_area_make(AREA, 1u << 0 | 1u << 3, &fd), 0);
	assert_int_not_equal(ftruncate(fd, 0), 0);
	assert_int_equal(hand_area_map(fd, &a), 0);
	assert_true(hand_area_has_writer(a, 0) && hand_area_has_writer(a, 3));
	assert_false(hand_area_has_writer(a, 1) || hand_area_has_writer(a, HAND_WRITERS));
	assert_int_equal(hand_writer_open(a, 1, &w), SL_EINVAL);
	uint32_t n;
	struct hand_reader r = {.writer = 1, .handle = 1};
	assert_int_equal(hand_look(a, &r, &n), HAND_FAILED);
	a->head->sections[3].n_blocks = a->n_blocks; /* a section beyond the end */
	struct hand_area *b;
	assert_int_equal(hand_area_map(fd, &b), SL_EINVAL);
	hand_area_unmap(a);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pages_pass_as_they_come),
	    cmocka_unit_test(skipped_pages_count_as_taken),
	    cmocka_unit_test(torn_records_are_refused),
	    cmocka_unit_test(foreign_pages_are_refused),
	    cmocka_unit_test(a_new_epoch_ends_offers),
	    cmocka_unit_test(leases_end),
	    cmocka_unit_test(a_full_section_cuts_the_offer),
	    cmocka_unit_test(a_killed_writer_leaves_whole_pages),
	    cmocka_unit_test(areas_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
