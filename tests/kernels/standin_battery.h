/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA backend has to do on the stand-in for CUDA's runtime (tests/standin): steps in flight, graphs, growth,
 * pages beside steps, refusals of the device, captures beside another model, the vendor's library. Each case checks its
 * results; the stand-in aborts on what a device would refuse or get wrong. A case runs in a process that may end.
 */
#ifndef TESTS_KERNELS_STANDIN_BATTERY_H
#define TESTS_KERNELS_STANDIN_BATTERY_H

#include <pthread.h>

#include "base/log.h"
#include "tests/kernels/tables.h"
#include "tests/standin/standin_api.h"

#define N(a) ((int)(sizeof(a) / sizeof *(a)))

enum { SB_WIDTH = 16, SB_ROWS = 8, SB_TABLE = 12, SB_WIDE = 200, SB_FAILED = 2 /* cudaErrorMemoryAllocation */ };

static void *sb_so, *sb_library;

static void *sb_find(void *so, const char *name)
{
	void *symbol = dlsym(so, name);
	if (symbol == NULL)
		fail_msg("%s", dlerror());
	return symbol;
}

/* ISO C has no cast from an object to a function. */
#define SB_CALL(so, type, name, ...)                          \
	do {                                                  \
		__typeof__(type) sb_call;                     \
		void *sb_symbol = sb_find(so, name);          \
		memcpy(&sb_call, &sb_symbol, sizeof sb_call); \
		sb_call(__VA_ARGS__);                         \
	} while (0)

static void sb_fail(const char *call, int n)
{
	SB_CALL(sb_so, void (*)(const char *, int, int), "sluice_standin_fail", call, n, SB_FAILED);
}

static struct standin_counts sb_counts(void)
{
	struct standin_counts c;
	SB_CALL(sb_so, void (*)(struct standin_counts *), "sluice_standin_counts", &c);
	return c;
}

static void sb_nothing_left(void)
{
	struct standin_alive a;
	SB_CALL(sb_so, void (*)(struct standin_alive *), "sluice_standin_alive", &a);
	assert_int_equal(
	    a.streams + a.events + a.graphs + a.executables + a.device_pieces + a.pinned_pieces + a.pending, 0);
}

static void sb_library_is(const struct standin_library *l)
{
	SB_CALL(sb_library, void (*)(const struct standin_library *), "sluice_standin_library", l);
}

/* ---- a backend that gathers, scales and sums ---- */

struct sb {
	const struct kn_ops *o;
	struct kn_backend *b;
	float *table, *x, *sum;
	float expect[SB_WIDE * SB_WIDTH];
	float host[KN_STEPS_AHEAD][SB_WIDE * SB_WIDTH], want[KN_STEPS_AHEAD][SB_WIDE * SB_WIDTH];
	float values[SB_TABLE * SB_WIDTH];
	int n_rows[KN_STEPS_AHEAD], begun, ended;
};

static float *sb_memory(struct sb *s, size_t n)
{
	void *p = NULL;
	assert_int_equal(s->o->mem_alloc(s->b, n * sizeof(float), &p), 0);
	return p;
}

static void sb_open(struct sb *s, const struct kn_ops *o)
{
	struct kn_config cfg = {.max_rows = SB_WIDE, .max_width = 64};
	float values[SB_TABLE * SB_WIDTH];
	struct sl_err err = {0};
	memset(s, 0, sizeof *s);
	s->o = o;
	if (o->open(&cfg, &s->b, &err) != 0)
		fail_msg("%s", err.text);
	s->table = sb_memory(s, SB_TABLE * SB_WIDTH);
	s->x = sb_memory(s, SB_WIDE * SB_WIDTH);
	s->sum = sb_memory(s, SB_WIDE * SB_WIDTH);
	for (int i = 0; i < SB_TABLE * SB_WIDTH; i++)
		values[i] = s->values[i] = (float)(i * 7 % 41);
	assert_int_equal(o->upload(s->b, s->table, values, SB_TABLE * SB_WIDTH), 0);
	memset(values, 0xEE, sizeof values); /* the caller's again */
}

static void sb_close(struct sb *s)
{
	s->o->mem_free(s->b, s->table);
	s->o->mem_free(s->b, s->x);
	s->o->mem_free(s->b, s->sum);
	s->o->close(s->b);
}

/* sum += 2 · picked rows; every step picks others. */
static int sb_step(struct sb *s, int n)
{
	const struct kn_ops *o = s->o;
	struct kn_step step = {.n_rows = n};
	int32_t picks[SB_WIDE];
	int at = s->begun % KN_STEPS_AHEAD;
	for (int r = 0; r < n; r++) {
		picks[r] = (int32_t)((r * 5 + s->begun * 3) % SB_TABLE);
		for (int k = 0; k < SB_WIDTH; k++)
			s->expect[r * SB_WIDTH + k] += 2 * s->values[picks[r] * SB_WIDTH + k];
	}
	memcpy(s->want[at], s->expect, sizeof s->expect);
	s->n_rows[at] = n;
	s->begun++;
	int rc = o->step_begin(s->b, &step);
	if (rc == 0 && (rc = o->gather(s->b, s->table, picks, n, SB_WIDTH, s->x)) == 0 &&
	    (rc = o->scale(s->b, s->x, 2, n, SB_WIDTH)) == 0 && (rc = o->add(s->b, s->sum, s->x, n, SB_WIDTH)) == 0)
		rc = o->read_back(s->b, s->sum, (size_t)n * SB_WIDTH, s->host[at]);
	memset(picks, 0xEE, sizeof picks);
	int end = o->step_issue(s->b);
	return rc != 0 ? rc : end;
}

static int sb_wait(struct sb *s)
{
	int at = s->ended++ % KN_STEPS_AHEAD, rc = s->o->step_wait(s->b);
	if (rc == 0)
		assert_memory_equal(s->host[at], s->want[at], (size_t)s->n_rows[at] * SB_WIDTH * sizeof(float));
	return rc;
}

static struct kn_stats sb_stats(struct sb *s)
{
	struct kn_stats st = {0};
	s->o->stats(s->b, &st);
	return st;
}

/* n steps, as many in flight as may be. */
static void sb_steps(struct sb *s, int n, int n_rows)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(sb_step(s, n_rows), 0);
		if (s->begun - s->ended == KN_STEPS_AHEAD)
			assert_int_equal(sb_wait(s), 0);
	}
	while (s->ended < s->begun)
		assert_int_equal(sb_wait(s), 0);
}

/* ---- the cases ---- */

/* Results of steps in flight are each step's own. In the end a step is a graph between two kernels, one that reads the
 * host's pinned memory and one that writes it, without a copy. */
static void sb_in_flight(const struct kn_ops *o)
{
	struct sb s;
	sb_open(&s, o);
	sb_steps(&s, 6, 5);
	struct standin_counts was = sb_counts();
	sb_steps(&s, 4, 5);
	struct standin_counts is = sb_counts();
	struct kn_stats st = sb_stats(&s);
	assert_int_equal(is.graph_launches - was.graph_launches, 4);
	assert_int_equal(is.launches - was.launches, 2 * 4);
	assert_int_equal(is.allocations + is.captures, was.allocations + was.captures);
	assert_int_equal(is.copies_in + is.copies_out, was.copies_in + was.copies_out);
	assert_true(st.graph_hits >= 6 && st.device_ns > 0);
	/* Polled as the engine polls; what is ready has its results. */
	assert_int_equal(sb_step(&s, 5), 0);
	while (!s.o->step_ready(s.b))
		;
	assert_int_equal(sb_wait(&s), 0);
	/* A step without work has no time. */
	struct kn_step nothing = {.n_rows = 1};
	assert_int_equal(o->step_begin(s.b, &nothing), 0);
	assert_int_equal(o->step_issue(s.b), 0);
	assert_int_equal(o->step_wait(s.b), 0);
	sb_close(&s);
	sb_nothing_left();
}

/* What one step of n rows writes to standard error. */
static void sb_said(struct sb *s, int n_rows, char *text, size_t size)
{
	char path[] = "/tmp/sluice-standin-said-XXXXXX";
	int fd = mkstemp(path), saved = dup(STDERR_FILENO);
	assert_true(fd >= 0 && saved >= 0);
	unlink(path);
	dup2(fd, STDERR_FILENO);
	int rc = sb_step(s, n_rows);
	rc = rc == 0 ? sb_wait(s) : rc;
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_int_equal(rc, 0);
	ssize_t n = pread(fd, text, size - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
}

/* A kernel that needs local memory on this device is named when it comes for the first time, and no other. A runtime
 * that does not know its name leaves the source's. */
static void sb_local_memory(const struct kn_ops *o)
{
	enum { MISSING = 100 /* cudaErrorNoDevice */ };
	static const char line[] =
	    "CUDA kernel gather needs 96 bytes of local memory a thread on this device, beside 32 "
	    "registers\n";
	char text[1024];
	log_set_level(LOG_DEBUG);
	for (int i = 0; i < 3; i++) {
		struct sb s;
		SB_CALL(sb_so, void (*)(const char *, size_t), "sluice_standin_local_memory", "gather", i < 2 ? 96 : 0);
		SB_CALL(sb_so, void (*)(const char *, int, int), "sluice_standin_fail", "cudaFuncGetName", i == 1,
			MISSING);
		sb_open(&s, o);
		sb_said(&s, 1, text, sizeof text);
		const char *at = strstr(text, "CUDA kernel");
		assert_true((at != NULL) == (i < 2));
		if (at != NULL)
			assert_string_equal(at, line);
		for (int n = 2; n < 5; n++) { /* other lists, so no graphs */
			sb_said(&s, n, text, sizeof text);
			assert_string_equal(text, "");
		}
		sb_close(&s);
	}
	log_set_level(LOG_INFO);
	sb_nothing_left();
}

/* A second gather in a step runs the first part of it, with its inputs. */
static void sb_two_gathers(const struct kn_ops *o)
{
	struct sb s;
	float host[2][2 * SB_WIDTH];
	sb_open(&s, o);
	for (int round = 0; round < 4; round++) {
		struct kn_step step = {.n_rows = 2};
		int32_t picks[2][2] = {{round, 5}, {7, round + 1}};
		assert_int_equal(o->step_begin(s.b, &step), 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(o->gather(s.b, s.table, picks[i], 2, SB_WIDTH, s.x), 0);
			assert_int_equal(o->read_back(s.b, s.x, 2 * SB_WIDTH, host[i]), 0);
		}
		assert_int_equal(o->step_end(s.b), 0);
		for (int i = 0; i < 4; i++)
			assert_memory_equal(host[i / 2] + i % 2 * SB_WIDTH, s.values + picks[i / 2][i % 2] * SB_WIDTH,
					    SB_WIDTH * sizeof(float));
	}
	sb_close(&s);
	sb_nothing_left();
}

/* Buffers move while graphs name them, and while steps are in flight. */
static void sb_growth(const struct kn_ops *o)
{
	struct sb s;
	sb_open(&s, o);
	sb_steps(&s, 4, 3);
	assert_int_equal(sb_step(&s, 3), 0);
	assert_int_equal(sb_step(&s, SB_WIDE), 0);
	while (s.ended < s.begun)
		assert_int_equal(sb_wait(&s), 0);
	sb_steps(&s, 4, 3);
	/* Closed with a step on its way. */
	assert_int_equal(sb_step(&s, 3), 0);
	sb_close(&s);
	sb_nothing_left();
}

/* More shapes than there are graphs: each step runs its own. */
static void sb_shapes(const struct kn_ops *o)
{
	struct sb s;
	sb_open(&s, o);
	sb_steps(&s, 1, SB_WIDE); /* whose buffers are large enough for all */
	for (int n = 1; n <= 70; n++)
		sb_steps(&s, n % 8 == 0 ? 3 : 2, n);
	assert_int_equal(sb_stats(&s).graphs, 64);
	sb_close(&s);
	sb_nothing_left();
}

/* Memory is zero, its end is no fault, and it may be used by both streams at once. */
static void sb_allocations(const struct kn_ops *o)
{
	enum { COUNT = 3000 };
	static float host[COUNT];
	struct sb s;
	void *p = NULL;
	sb_open(&s, o);
	SB_CALL(sb_so, void (*)(int), "sluice_emulation_no_memory", 1);
	assert_int_equal(o->mem_alloc(s.b, 4096, &p), SL_ENOMEM);
	assert_int_equal(o->mem_alloc(s.b, COUNT * sizeof(float), &p), 0);
	assert_int_equal(o->read_back(s.b, p, COUNT, host), 0);
	assert_int_equal(o->settle(s.b), 0);
	for (int i = 0; i < COUNT; i++)
		assert_true(host[i] == 0);
	sb_steps(&s, 3, 2);
	o->mem_free(s.b, p);
	sb_fail("cudaMallocHost", 1);
	assert_int_equal(o->host_alloc(s.b, 64, &p), SL_ENOMEM);
	sb_steps(&s, 1, 2);
	sb_close(&s);
	sb_nothing_left();
}

/* The caller's memory is its own again after an upload: of the first one, for which there is no pinned memory, and of
 * such as are longer than the memory that stages them. */
static void sb_uploads(const struct kn_ops *o)
{
	enum { COUNT = 300000 };
	static float from[COUNT], host[COUNT];
	struct sb s;
	struct standin_counts was = sb_counts();
	sb_fail("cudaMallocHost", 1);
	sb_open(&s, o);
	assert_int_equal(sb_counts().pageable_in - was.pageable_in, 1);
	float *p = sb_memory(&s, COUNT);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < COUNT; i++)
			from[i] = (float)(i + round);
		assert_int_equal(o->upload(s.b, p, from, COUNT), 0);
		memset(from, 0xEE, sizeof from);
		assert_int_equal(o->read_back(s.b, p, COUNT, host), 0);
		assert_int_equal(o->settle(s.b), 0);
		for (int i = 0; i < COUNT; i++)
			if (host[i] != (float)(i + round))
				fail_msg("number %d is %g, not %d", i, (double)host[i], i + round);
	}
	assert_int_equal(sb_counts().pageable_in - was.pageable_in, 1);
	sb_steps(&s, 2, 3);
	o->mem_free(s.b, p);
	sb_close(&s);
	sb_nothing_left();
}

/* Each call that makes a graph is refused once: the steps are right without it, and later ones have it. */
static void sb_no_graph(const struct kn_ops *o)
{
	static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
					    "cudaGraphUpload"};
	for (int i = 0; i < N(calls); i++) {
		struct sb s;
		sb_open(&s, o);
		sb_steps(&s, 1, 4);
		sb_fail(calls[i], 1);
		sb_steps(&s, 6, 4);
		assert_int_equal(sb_stats(&s).graph_captures, 0); /* nor is it tried again */
		sb_steps(&s, 6, 5);
		struct kn_stats st = sb_stats(&s);
		if (st.graph_refusals != 1)
			fail_msg("%s: %d refusals", calls[i], (int)st.graph_refusals);
		assert_true(st.graph_hits > 0);
		sb_close(&s);
		sb_nothing_left();
	}
	/* A launch in a capture: the second of the second step. */
	struct sb s;
	sb_open(&s, o);
	sb_steps(&s, 1, 4);
	sb_fail("cudaLaunchKernel", 2);
	sb_steps(&s, 3, 4);
	sb_steps(&s, 4, 5);
	assert_true(sb_stats(&s).graph_hits > 0);
	sb_close(&s);
	sb_nothing_left();
}

/* A kernel fails: the step says so, and so does every call after it; then the device is as new. */
static void sb_broken(const struct kn_ops *o)
{
	for (int graph = 0; graph < 2; graph++) {
		struct sb s;
		void *p = NULL;
		sb_open(&s, o);
		sb_steps(&s, graph ? 5 : 0, 4);
		SB_CALL(sb_so, void (*)(int), "sluice_emulation_fail", 2);
		int rc = sb_step(&s, 4);
		if (rc == 0)
			rc = sb_wait(&s);
		assert_int_equal(rc, SL_EIO);
		assert_int_equal(sb_step(&s, 4), SL_EIO);
		assert_int_equal(o->mem_alloc(s.b, 64, &p), SL_EIO);
		assert_true(o->step_ready(s.b));
		assert_int_equal(o->settle(s.b), SL_EIO);
		assert_non_null(strstr(o->describe(s.b), "failed: "));
		sb_close(&s);
		sb_nothing_left();
	}
	struct sb s;
	sb_open(&s, o);
	sb_steps(&s, 3, 4);
	sb_close(&s);
}

/* Another model gets and frees memory while this one's graph is captured. */
static void sb_other_model(void *ctx)
{
	struct sb *other = ctx;
	void *p = NULL;
	assert_int_equal(other->o->mem_alloc(other->b, 256, &p), 0);
	other->o->mem_free(other->b, p);
	sb_steps(other, 1, 2);
}

static void sb_two_models(const struct kn_ops *o)
{
	struct sb s, other;
	sb_open(&s, o);
	sb_open(&other, o);
	SB_CALL(sb_so, void (*)(void (*)(void *), void *), "sluice_standin_on_capture", sb_other_model, &other);
	sb_steps(&s, 5, 4);
	SB_CALL(sb_so, void (*)(void (*)(void *), void *), "sluice_standin_on_capture", NULL, NULL);
	assert_true(sb_stats(&s).graph_captures > 0 && sb_stats(&s).graph_refusals == 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(sb_step(&s, 4), 0);
		assert_int_equal(sb_step(&other, 3), 0);
		assert_int_equal(sb_wait(&s), 0);
		assert_int_equal(sb_wait(&other), 0);
	}
	assert_int_equal(sb_step(&s, 4), 0);
	sb_close(&other); /* which waits for the device, as a model that leaves does */
	assert_int_equal(sb_wait(&s), 0);
	sb_close(&s);
	sb_nothing_left();
}

static void *sb_own_thread(void *ctx)
{
	struct sb s;
	for (int i = 0; i < 2; i++) {
		sb_open(&s, ctx);
		sb_steps(&s, 8, 3 + i);
		sb_close(&s);
	}
	return NULL;
}

static void sb_two_threads(const struct kn_ops *o)
{
	pthread_t two[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&two[i], NULL, sb_own_thread, (void *)(uintptr_t)o), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(two[i], NULL);
	sb_nothing_left();
}

/* ---- pages beside steps ---- */

enum { SB_PAGE = 4, SB_PAGES = 8, SB_PAGE_FLOATS = SB_WIDTH * SB_PAGE };

struct sb_pool {
	struct sb s;
	struct kn_kv kv;
	float *q, *k, *v, *out, *host;
	int32_t table[1];
};

static void sb_pool_open(struct sb_pool *p, const struct kn_ops *o)
{
	void *host = NULL;
	sb_open(&p->s, o);
	p->kv = (struct kn_kv){.type = KN_F32,
			       .n_pages = SB_PAGES,
			       .page_tokens = SB_PAGE,
			       .n_layers = 1,
			       .n_kv_heads = 1,
			       .head_dim = SB_WIDTH,
			       .k = sb_memory(&p->s, SB_PAGES * SB_PAGE_FLOATS),
			       .v = sb_memory(&p->s, SB_PAGES * SB_PAGE_FLOATS)};
	p->q = sb_memory(&p->s, SB_PAGE_FLOATS);
	p->k = sb_memory(&p->s, SB_PAGE_FLOATS);
	p->v = sb_memory(&p->s, SB_PAGE_FLOATS);
	p->out = sb_memory(&p->s, SB_PAGE_FLOATS);
	assert_int_equal(o->host_alloc(p->s.b, 4 * 2 * SB_PAGE_FLOATS * sizeof(float), &host), 0);
	p->host = host;
}

static void sb_pool_close(struct sb_pool *p)
{
	void *all[] = {p->kv.k, p->kv.v, p->q, p->k, p->v, p->out};
	p->s.o->host_free(p->s.b, p->host);
	for (int i = 0; i < N(all); i++)
		p->s.o->mem_free(p->s.b, all[i]);
	sb_close(&p->s);
	sb_nothing_left();
}

static float *sb_place(struct sb_pool *p, int i) { return p->host + i * 2 * SB_PAGE_FLOATS; }

static struct kn_step sb_page_step(struct sb_pool *p, int page, int n_rows)
{
	static const int32_t token[SB_PAGE], pos[SB_PAGE] = {0, 1, 2, 3}, seq[SB_PAGE];
	p->table[0] = page;
	return (struct kn_step){.n_rows = n_rows,
				.row_token = token,
				.row_pos = n_rows == 1 ? pos + SB_PAGE - 1 : pos,
				.row_seq = seq,
				.n_seqs = 1,
				.page_table = p->table,
				.max_pages = 1,
				.page_tokens = SB_PAGE};
}

/* Issues a step that fills the page with that number. */
static void sb_fill(struct sb_pool *p, int page, float value)
{
	static const double still[SB_WIDTH / 2];
	const struct kn_rope rope = {.n_rot = SB_WIDTH, .magnitude = 1, .inv_freq = still};
	const struct kn_ops *o = p->s.o;
	float values[SB_PAGE_FLOATS];
	for (int i = 0; i < SB_PAGE_FLOATS; i++)
		values[i] = value;
	assert_int_equal(o->upload(p->s.b, p->k, values, SB_PAGE_FLOATS), 0);
	assert_int_equal(o->upload(p->s.b, p->v, values, SB_PAGE_FLOATS), 0);
	memset(values, 0xEE, sizeof values);
	struct kn_step step = sb_page_step(p, page, SB_PAGE);
	assert_int_equal(o->step_begin(p->s.b, &step), 0);
	assert_int_equal(o->rope_kv_write(p->s.b, &rope, p->q, 1, p->k, p->v, &p->kv, 0), 0);
	assert_int_equal(o->step_issue(p->s.b), 0);
}

/* Issues a step that reads the page's values: their mean. */
static void sb_look(struct sb_pool *p, int page, float *host)
{
	const struct kn_attn attn = {.scale = 1};
	struct kn_step step = sb_page_step(p, page, 1);
	assert_int_equal(p->s.o->step_begin(p->s.b, &step), 0);
	assert_int_equal(p->s.o->attention(p->s.b, p->q, 1, &p->kv, 0, &attn, p->out), 0);
	assert_int_equal(p->s.o->read_back(p->s.b, p->out, SB_WIDTH, host), 0);
	assert_int_equal(p->s.o->step_issue(p->s.b), 0);
}

static void sb_wait_page(struct sb_pool *p) { assert_int_equal(p->s.o->step_wait(p->s.b), 0); }

static void sb_assert_all(const float *x, int n, float value)
{
	for (int i = 0; i < n; i++)
		if (x[i] != value)
			fail_msg("number %d is %g, not %g", i, (double)x[i], (double)value);
}

/* Out comes what the step before wrote and not what the one after does; in comes a page between its steps. */
static void sb_pages(const struct kn_ops *o)
{
	struct sb_pool p;
	float was[SB_WIDTH], is[SB_WIDTH];
	sb_pool_open(&p, o);
	sb_fill(&p, 2, 1.5f);
	assert_int_equal(o->page_out(p.s.b, &p.kv, 2, sb_place(&p, 0)), 0);
	sb_wait_page(&p);
	sb_fill(&p, 2, 2.5f);
	sb_wait_page(&p);
	assert_int_equal(o->settle(p.s.b), 0);
	sb_assert_all(sb_place(&p, 0), 2 * SB_PAGE_FLOATS, 1.5f);
	sb_look(&p, 2, was);
	assert_int_equal(o->page_in(p.s.b, &p.kv, sb_place(&p, 0), 2), 0);
	sb_look(&p, 2, is);
	sb_wait_page(&p);
	sb_wait_page(&p);
	sb_assert_all(was, SB_WIDTH, 2.5f);
	sb_assert_all(is, SB_WIDTH, 1.5f);
	/* Through one slot twice, and a copy on the device of what is on its way. */
	assert_int_equal(o->page_out(p.s.b, &p.kv, 2, sb_place(&p, 1)), 0);
	assert_int_equal(o->page_in(p.s.b, &p.kv, sb_place(&p, 1), 5), 0);
	assert_int_equal(o->page_copy(p.s.b, &p.kv, 5, 6), 0);
	sb_look(&p, 6, is);
	sb_wait_page(&p);
	sb_assert_all(is, SB_WIDTH, 1.5f);
	/* Polled; what is there can be read, and the slot is the host's. */
	assert_int_equal(o->page_out(p.s.b, &p.kv, 6, sb_place(&p, 2)), 0);
	while (!o->pages_there(p.s.b))
		;
	sb_assert_all(sb_place(&p, 2), 2 * SB_PAGE_FLOATS, 1.5f);
	for (int i = 0; i < 2 * SB_PAGE_FLOATS; i++)
		sb_place(&p, 2)[i] = 3.5f;
	assert_int_equal(o->page_in(p.s.b, &p.kv, sb_place(&p, 2), 1), 0);
	sb_look(&p, 1, is);
	sb_wait_page(&p);
	sb_assert_all(is, SB_WIDTH, 3.5f);
	/* The slots go while a copy is on its way. */
	assert_int_equal(o->page_out(p.s.b, &p.kv, 1, sb_place(&p, 3)), 0);
	sb_pool_close(&p);
}

/* A page that both streams read is written only after both have. */
static void sb_two_readers(const struct kn_ops *o)
{
	struct sb_pool p;
	float is[SB_WIDTH];
	sb_pool_open(&p, o);
	sb_fill(&p, 2, 1.5f);
	assert_int_equal(o->page_out(p.s.b, &p.kv, 2, sb_place(&p, 0)), 0);
	sb_wait_page(&p);
	sb_look(&p, 2, is);
	sb_wait_page(&p);
	sb_fill(&p, 2, 2.5f);
	sb_wait_page(&p);
	assert_int_equal(o->settle(p.s.b), 0);
	sb_assert_all(is, SB_WIDTH, 1.5f);
	sb_assert_all(sb_place(&p, 0), 2 * SB_PAGE_FLOATS, 1.5f);
	sb_pool_close(&p);
}

/* A pool that was made just now gets its first page from the host. */
static void sb_new_pool(const struct kn_ops *o)
{
	struct sb_pool p;
	float is[SB_WIDTH];
	sb_pool_open(&p, o);
	for (int i = 0; i < 2 * SB_PAGE_FLOATS; i++)
		sb_place(&p, 0)[i] = 4.5f;
	/* No work comes between the copies, so that the second needs no order of its own after the steps. */
	assert_int_equal(o->page_in(p.s.b, &p.kv, sb_place(&p, 0), 3), 0);
	struct kn_kv fresh = p.kv;
	fresh.k = sb_memory(&p.s, SB_PAGES * SB_PAGE_FLOATS);
	fresh.v = sb_memory(&p.s, SB_PAGES * SB_PAGE_FLOATS);
	assert_int_equal(o->page_in(p.s.b, &fresh, sb_place(&p, 0), 3), 0);
	struct kn_kv old = p.kv;
	p.kv = fresh;
	sb_look(&p, 3, is);
	sb_wait_page(&p);
	sb_assert_all(is, SB_WIDTH, 4.5f);
	p.kv = old;
	o->mem_free(p.s.b, fresh.k);
	o->mem_free(p.s.b, fresh.v);
	sb_pool_close(&p);
}

/* ---- the vendor's library ---- */

enum { SB_OUT = 32, SB_IN = 256, SB_BATCH = 20, SB_APART = 4 };

/* Sums of whole numbers below 2^24: exact in every order and format. */
static void sb_product(const struct kn_ops *o, bool fp8, int n_rows)
{
	struct kn_config cfg = {.max_rows = 64, .max_width = 1024, .fp8_weights = fp8, .loose_products = true};
	static float values[SB_OUT * SB_IN], x[SB_BATCH * SB_IN], y[SB_BATCH * SB_OUT];
	static uint16_t halves[SB_OUT * SB_IN];
	struct sl_err err = {0};
	struct kn_weight w;
	struct sb s = {.o = o};
	assert_int_equal(o->open(&cfg, &s.b, &err), 0);
	for (int i = 0; i < SB_OUT * SB_IN; i++) {
		values[i] = (float)((i * 5 + i / SB_IN) % 7 - 3) * (fp8 ? (float)(1 + i / SB_IN % 3) : 1);
		uint32_t bits;
		memcpy(&bits, &values[i], sizeof bits);
		halves[i] = (uint16_t)(bits >> 16); /* exact */
	}
	for (int i = 0; i < SB_BATCH * SB_IN; i++)
		x[i] = (float)((i * 3 + i / SB_IN) % 5 - 2) * (float)(1 + i / SB_IN % 4);
	assert_int_equal(o->weight_load(s.b, halves, KN_BF16, SB_OUT, SB_IN, &w, &err), 0);
	float *dx = sb_memory(&s, SB_BATCH * SB_IN), *all = sb_memory(&s, SB_BATCH * SB_OUT + SB_APART);
	float *dy = all + SB_APART; /* aligned as little as may be */
	assert_int_equal(o->upload(s.b, dx, x, SB_BATCH * SB_IN), 0);
	struct standin_counts was = sb_counts();
	for (int i = 0; i < 4; i++) {
		struct kn_step step = {.n_rows = n_rows};
		memset(y, 0, sizeof y);
		assert_int_equal(o->step_begin(s.b, &step), 0);
		assert_int_equal(o->matmul(s.b, &w, dx, n_rows, dy), 0);
		assert_int_equal(o->read_back(s.b, dy, (size_t)n_rows * SB_OUT, y), 0);
		assert_int_equal(o->step_end(s.b), 0);
		for (int r = 0; r < n_rows; r++)
			for (int out = 0; out < SB_OUT; out++) {
				double sum = 0;
				for (int k = 0; k < SB_IN; k++)
					sum += (double)values[out * SB_IN + k] * (double)x[r * SB_IN + k];
				/* Eight bits have a scale, whose rounding is the only one. */
				if (!(fabs((double)y[r * SB_OUT + out] - sum) <= (fp8 ? 0.07 * 3 * 8 * SB_IN : 0)))
					fail_msg("row %d, output %d: %g, not %g", r, out, (double)y[r * SB_OUT + out],
						 sum);
			}
	}
	assert_true(sb_counts().products - was.products >= 3);
	assert_true(!fp8 || sb_counts().products_e4m3 > was.products_e4m3);
	o->weight_free(s.b, &w);
	o->mem_free(s.b, dx);
	o->mem_free(s.b, all);
	o->close(s.b);
	sb_nothing_left();
}

/* ---- weights ---- */

/* A matrix that comes in pieces, each of other numbers, out of memory that changes once the load returns. */
static void sb_weights(const struct kn_ops *o)
{
	enum { PIECES = 6, ROWS = (64 << 10) / SB_IN / 2 /* of a piece */, N_OUT = PIECES * ROWS };
	struct kn_config cfg = {.max_rows = 8, .max_width = N_OUT};
	static uint16_t halves[N_OUT * SB_IN];
	struct kn_step step = {.n_rows = 1};
	struct kn_weight w;
	struct sl_err err = {0};
	struct sb s = {.o = o};
	float x[SB_IN], y[N_OUT];
	assert_int_equal(o->open(&cfg, &s.b, &err), 0);
	float *dx = sb_memory(&s, SB_IN), *dy = sb_memory(&s, N_OUT);
	for (int i = 0; i < SB_IN; i++)
		x[i] = 1;
	assert_int_equal(o->upload(s.b, dx, x, SB_IN), 0);
	for (int i = 0; i < N_OUT * SB_IN; i++) {
		const float value = (float)(i / SB_IN / ROWS + 1);
		uint32_t bits;
		memcpy(&bits, &value, sizeof bits);
		halves[i] = (uint16_t)(bits >> 16); /* exact */
	}
	assert_int_equal(o->weight_load(s.b, halves, KN_BF16, N_OUT, SB_IN, &w, &err), 0);
	memset(halves, 0xEE, sizeof halves);
	assert_int_equal(o->step_begin(s.b, &step), 0);
	assert_int_equal(o->matmul(s.b, &w, dx, 1, dy), 0);
	assert_int_equal(o->read_back(s.b, dy, N_OUT, y), 0);
	assert_int_equal(o->step_end(s.b), 0);
	for (int i = 0; i < PIECES; i++)
		sb_assert_all(y + i * ROWS, ROWS, (float)((i + 1) * SB_IN));
	o->weight_free(s.b, &w);
	o->mem_free(s.b, dx);
	o->mem_free(s.b, dy);
	o->close(s.b);
	sb_nothing_left();
}

#include "tests/kernels/standin_lora.h"

#endif
