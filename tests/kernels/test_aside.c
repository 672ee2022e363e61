/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages on their way between the device and the host beside the steps (kernels.h, page_out and page_in): copies that
 * the emulated device makes as late as it may, or as early, are in order with the steps that have their pages, in both
 * directions, and steps that have none of them wait for nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fault.h"
#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { DIM = 16, PAGE = 4, N_PAGES = 80, ROWS = PAGE, PAGE_FLOATS = DIM * PAGE };

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct kn_kv kv;
	float *q, *k, *v, *out;
	float *host; /* places of 2 · PAGE_FLOATS */
};

static int32_t token[ROWS], pos[ROWS] = {0, 1, 2, 3}, seq[ROWS], table[4];

static void copies(int early)
{
	assert_true(on_device() || call_backend(cuda_path(), "sluice_emulation_early_copies", early));
}

static uint64_t waits(void)
{
	uint64_t (*count)(void);
	void *symbol = cuda_function("sluice_emulation_waits_for_copies");
	memcpy(&count, &symbol, sizeof count);
	return count();
}

static void *room(struct rig *r, size_t bytes)
{
	void *p = NULL;
	assert_int_equal(r->o->mem_alloc(r->b, bytes, &p), 0);
	return p;
}

static void open_rig(struct rig *r)
{
	struct kn_config cfg = {.max_rows = ROWS, .max_width = 64};
	struct sl_err err = {0};
	void *host = NULL;
	*r = (struct rig){.o = open_cuda(),
			  .kv = {.type = KN_F32,
				 .n_pages = N_PAGES,
				 .page_tokens = PAGE,
				 .n_layers = 1,
				 .n_kv_heads = 1,
				 .head_dim = DIM}};
	assert_int_equal(r->o->open(&cfg, &r->b, &err), 0);
	r->kv.k = room(r, N_PAGES * PAGE_FLOATS * sizeof(float));
	r->kv.v = room(r, N_PAGES * PAGE_FLOATS * sizeof(float));
	r->q = room(r, ROWS * DIM * sizeof(float));
	r->k = room(r, ROWS * DIM * sizeof(float));
	r->v = room(r, ROWS * DIM * sizeof(float));
	r->out = room(r, ROWS * DIM * sizeof(float));
	assert_int_equal(r->o->host_alloc(r->b, 4 * 2 * PAGE_FLOATS * sizeof(float), &host), 0);
	r->host = host;
}

static void close_rig(struct rig *r)
{
	void *all[] = {r->kv.k, r->kv.v, r->q, r->k, r->v, r->out};
	r->o->host_free(r->b, r->host);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		r->o->mem_free(r->b, all[i]);
	r->o->close(r->b);
}

static float *place(const struct rig *r, int i) { return r->host + i * 2 * PAGE_FLOATS; }

static struct kn_step step_of(int page, int n_rows)
{
	table[0] = page;
	table[1] = 7; /* left there by another, and none of this sequence's */
	return (struct kn_step){.n_rows = n_rows,
				.row_token = token,
				.row_pos = n_rows == 1 ? pos + PAGE - 1 : pos,
				.row_seq = seq,
				.n_seqs = 1,
				.page_table = table,
				.max_pages = 2,
				.page_tokens = PAGE};
}

/* Issues a step that fills a page with `value`, in keys and values. What it takes from the host is read when it runs:
 * so no other is issued before it has. */
static int fill(struct rig *r, int page, float value)
{
	static const double still[DIM / 2];
	const struct kn_rope rope = {.n_rot = DIM, .magnitude = 1, .inv_freq = still};
	struct kn_step s = step_of(page, ROWS);
	for (int i = 0; i < ROWS * DIM; i++)
		r->k[i] = r->v[i] = value;
	int rc = r->o->step_begin(r->b, &s);
	if (rc == 0)
		rc = r->o->rope_kv_write(r->b, &rope, r->q, 1, r->k, r->v, &r->kv, 0);
	int end = r->o->step_issue(r->b);
	return rc != 0 ? rc : end;
}

/* What the page's values are to a step. */
static int look(struct rig *r, int page, float *host)
{
	const struct kn_attn attn = {.scale = 1};
	struct kn_step s = step_of(page, 1);
	memset(r->q, 0, DIM * sizeof *r->q);
	int rc = r->o->step_begin(r->b, &s);
	if (rc == 0)
		rc = r->o->attention(r->b, r->q, 1, &r->kv, 0, &attn, r->out);
	if (rc == 0)
		rc = r->o->read_back(r->b, r->out, DIM, host);
	int end = r->o->step_issue(r->b);
	return rc != 0 ? rc : end;
}

static void assert_all(const float *x, int n, float value)
{
	for (int i = 0; i < n; i++)
		if (x[i] != value)
			fail_msg("number %d is %g, not %g", i, (double)x[i], (double)value);
}

static void assert_page(const struct rig *r, int page, float value)
{
	assert_all((const float *)r->kv.k + page * PAGE_FLOATS, PAGE_FLOATS, value);
	assert_all((const float *)r->kv.v + page * PAGE_FLOATS, PAGE_FLOATS, value);
}

/* Out comes what the step before wrote, and not what the one after does, though the page is another's at once. */
static void test_out(void **arg)
{
	(void)arg;
	for (int early = 0; early < 2; early++) {
		struct rig r;
		copies(early);
		open_rig(&r);
		assert_int_equal(fill(&r, 2, 1.5f), 0);
		assert_int_equal(r.o->page_out(r.b, &r.kv, 2, place(&r, 0)), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(fill(&r, 2, 2.5f), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(r.o->settle(r.b), 0);
		assert_all(place(&r, 0), 2 * PAGE_FLOATS, 1.5f);
		assert_page(&r, 2, 2.5f);
		close_rig(&r);
	}
	copies(0);
}

/* In comes a page after the steps that had it before, and before those that have it then. */
static void test_in(void **arg)
{
	(void)arg;
	for (int early = 0; early < 2; early++) {
		struct rig r;
		float was[DIM], is[DIM];
		copies(early);
		open_rig(&r);
		for (int i = 0; i < 2 * PAGE_FLOATS; i++)
			place(&r, 1)[i] = 4.5f;
		assert_int_equal(fill(&r, 3, 3.5f), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(look(&r, 3, was), 0);
		assert_int_equal(r.o->page_in(r.b, &r.kv, place(&r, 1), 3), 0);
		assert_int_equal(look(&r, 3, is), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_all(was, DIM, 3.5f);
		assert_all(is, DIM, 4.5f);
		close_rig(&r);
	}
	copies(0);
}

/* A place is another page's at once, and a page that went comes back elsewhere. */
static void test_places(void **arg)
{
	(void)arg;
	for (int early = 0; early < 2; early++) {
		struct rig r;
		float is[DIM];
		copies(early);
		open_rig(&r);
		assert_int_equal(fill(&r, 1, 1), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(fill(&r, 2, 2), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_int_equal(r.o->page_out(r.b, &r.kv, 1, place(&r, 0)), 0);
		assert_int_equal(r.o->page_in(r.b, &r.kv, place(&r, 0), 5), 0);
		assert_int_equal(r.o->page_out(r.b, &r.kv, 2, place(&r, 0)), 0);
		assert_int_equal(r.o->page_in(r.b, &r.kv, place(&r, 0), 1), 0);
		/* A copy within the device, of pages that are on their way. */
		assert_int_equal(r.o->page_copy(r.b, &r.kv, 5, 6), 0);
		assert_int_equal(look(&r, 6, is), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_all(is, DIM, 1);
		assert_int_equal(r.o->settle(r.b), 0);
		assert_page(&r, 5, 1);
		assert_page(&r, 1, 2);
		close_rig(&r);
	}
	copies(0);
}

/* Steps with other pages go on; one with such a page waits, once. */
static void test_beside(void **arg)
{
	struct rig r;
	float is[DIM];
	(void)arg;
	if (!device_is_late())
		skip(); /* they may be done by then */
	copies(0);
	open_rig(&r);
	assert_int_equal(fill(&r, 4, 4), 0);
	assert_int_equal(r.o->step_wait(r.b), 0);
	assert_true(r.o->pages_there(r.b));
	uint64_t before = waits();
	for (int i = 0; i < 2 * PAGE_FLOATS; i++)
		place(&r, 2)[i] = 7.5f;
	assert_int_equal(r.o->page_in(r.b, &r.kv, place(&r, 2), 7), 0);
	assert_false(r.o->pages_there(r.b));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(look(&r, 4, is), 0);
		assert_int_equal(r.o->step_wait(r.b), 0);
		assert_all(is, DIM, 4);
	}
	assert_int_equal(waits(), before);
	assert_page(&r, 7, 0); /* nobody asked for it yet */
	assert_int_equal(look(&r, 7, is), 0);
	assert_int_equal(waits(), before + 1);
	assert_int_equal(r.o->step_wait(r.b), 0);
	assert_all(is, DIM, 7.5f);
	assert_true(r.o->pages_there(r.b));
	assert_int_equal(look(&r, 7, is), 0);
	assert_int_equal(r.o->step_wait(r.b), 0);
	assert_int_equal(waits(), before + 1);
	/* Or they are done before somebody needs them. */
	assert_int_equal(r.o->page_out(r.b, &r.kv, 7, place(&r, 3)), 0);
	assert_false(r.o->pages_there(r.b));
	assert_true(r.o->pages_there(r.b));
	assert_all(place(&r, 3), 2 * PAGE_FLOATS, 7.5f);
	assert_int_equal(look(&r, 7, is), 0);
	assert_int_equal(r.o->step_wait(r.b), 0);
	assert_int_equal(waits(), before + 1);
	close_rig(&r);
}

/* After a fault no copy begins, and nobody waits for ever. */
static void test_fault(void **arg)
{
	struct rig r;
	float is[DIM];
	(void)arg;
	if (!device_is_late())
		skip();
	open_rig(&r);
	assert_int_equal(r.o->page_out(r.b, &r.kv, 1, place(&r, 0)), 0);
	fault_arm(FAULT_DEVICE, 1, 1);
	assert_int_equal(look(&r, 1, is), 0);
	assert_int_equal(r.o->step_wait(r.b), SL_EIO);
	fault_disarm_all();
	assert_int_equal(r.o->page_in(r.b, &r.kv, place(&r, 0), 1), SL_EIO);
	assert_int_equal(r.o->page_out(r.b, &r.kv, 1, place(&r, 0)), SL_EIO);
	assert_int_equal(r.o->settle(r.b), SL_EIO);
	assert_true(r.o->pages_there(r.b));
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_out), cmocka_unit_test(test_in),
					   cmocka_unit_test(test_places), cmocka_unit_test(test_beside),
					   cmocka_unit_test(test_fault)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
