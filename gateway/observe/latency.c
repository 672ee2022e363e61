/* SPDX-License-Identifier: Apache-2.0
 *
 * A cell is written by relaxed loads and stores of the thread that owns it. Threads beyond MAX_THREADS - 1 share the
 * last cells and add atomically.
 *
 * Rows are only ever added, under a lock; finding one takes none. A row's metrics are views: each names cells, of one
 * row or of all rows of a model, that are added up when it is printed.
 */
#include "gateway/observe/latency.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/metrics.h"
#include "gateway/observe/label.h"

enum { MAX_THREADS = 65, NAME_BYTES = 132, QUOTED_BYTES = 2 * NAME_BYTES, LABEL_BYTES = 704 };

/* ---- bounds ---- */

/* What people wait for a first token: 0.2, 0.3, 0.4 and 0.45 s are common targets. */
static const double wait_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4,
				     0.45,  0.5,  0.75,  1,    2,   5,    10,  30,   60};
static const double run_bounds[] = {0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.75, 1,   1.5, 2,
				    3,    5,   7.5, 10,  15,  20,   30,  60,   120, 300, 600};
/* 0.04 s: 25 tokens a second; 0.25 s: reading speed. */
static const double gap_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04,
				    0.05,  0.075,  0.1,   0.15, 0.25,  0.5,  1,     2.5,  5};
static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
				      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

enum kind { WAIT, RUN, GAP, TOKENS, KINDS };

#define KIND(list, scale_)                               \
	{                                                \
		list, sizeof list / sizeof *list, scale_ \
	}
static const struct {
	const double *bounds;
	int n;
	double scale;
} kinds[KINDS] = {[WAIT] = KIND(wait_bounds, 1e-9),
		  [RUN] = KIND(run_bounds, 1e-9),
		  [GAP] = KIND(gap_bounds, 1e-9),
		  [TOKENS] = KIND(token_bounds, 1)};

/* The bounds in observed units, and behind them one that no value is above. The search begins at the first bound that a
 * value of so many bits can be below: two or three are looked at, not all. */
static uint64_t limits[KINDS][METRIC_MAX_BUCKETS + 1];
static uint8_t first_of_bits[KINDS][65];

__attribute__((constructor)) static void set_limits(void)
{
	for (int k = 0; k < KINDS; k++) {
		for (int i = 0; i <= METRIC_MAX_BUCKETS; i++)
			limits[k][i] =
			    i < kinds[k].n ? (uint64_t)(kinds[k].bounds[i] / kinds[k].scale + 0.5) : UINT64_MAX;
		for (unsigned bits = 1; bits <= 64; bits++)
			while (limits[k][first_of_bits[k][bits]] < (uint64_t)1 << (bits - 1))
				first_of_bits[k][bits]++;
	}
}

/* ---- cells ---- */

struct cell {
	atomic_uint_least64_t counts[METRIC_MAX_BUCKETS + 1], sum;
};

struct latency_cells {
	bool shared;
	struct cell itl[2], ttft[LATENCY_CACHED], prefill[LATENCY_CACHED];
	struct cell tpot, e2e, queue, decode, prompt, answer, longest, stopped;
	atomic_uint_least64_t slow_ns, finished[LATENCY_FINISHES];
};

static inline void add(bool shared, atomic_uint_least64_t *to, uint64_t n)
{
	if (shared)
		atomic_fetch_add_explicit(to, n, memory_order_relaxed);
	else
		atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n, memory_order_relaxed);
}

/* How many bounds are below v. */
static inline unsigned bucket_of(enum kind kind, uint64_t v)
{
	unsigned i = first_of_bits[kind][v > 0 ? 64 - __builtin_clzll(v) : 0];
	while (limits[kind][i] < v)
		i++;
	return i;
}

static inline void observe(const struct latency_cells *c, struct cell *to, enum kind kind, uint64_t v)
{
	bool shared = c->shared;
	add(shared, &to->counts[bucket_of(kind, v)], 1);
	add(shared, &to->sum, v);
}

/* ---- rows ---- */

/* A metric and the cells it adds up: `n` from `at` on. model: of all rows of that model. */
struct view {
	struct metric m;
	const struct row *row, *model;
	size_t at;
	int n;
};

enum { N_ROW_VIEWS = 2 + 2 * LATENCY_CACHED + 8, N_MODEL_VIEWS = 11 + LATENCY_FINISHES };

struct row {
	char tier[NAME_BYTES], model[NAME_BYTES], variant[NAME_BYTES];
	struct latency_cells *_Atomic cells[MAX_THREADS];
	struct view views[N_ROW_VIEWS], model_views[N_MODEL_VIEWS];
	char labels[N_ROW_VIEWS][LABEL_BYTES], model_labels[N_MODEL_VIEWS][LABEL_BYTES];
	int n_views, n_model_views;
};

static struct row *_Atomic rows[LATENCY_ROWS];
static atomic_size_t n_rows;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static void add_cells(struct view *v, const struct latency_cells *c)
{
	const char *base = (const char *)c + v->at;
	if (v->m.kind == METRIC_COUNTER) {
		const atomic_uint_least64_t *value = (const void *)base;
		metric_add(&v->m, (int64_t)atomic_load_explicit(value, memory_order_relaxed));
		return;
	}
	for (int k = 0; k < v->n; k++) {
		const struct cell *cell = (const struct cell *)(const void *)base + k;
		for (int i = 0; i <= v->m.n_buckets; i++)
			v->m.counts[i] += (int64_t)atomic_load_explicit(&cell->counts[i], memory_order_relaxed);
		v->m.sum += (int64_t)atomic_load_explicit(&cell->sum, memory_order_relaxed);
	}
}

static void collect(struct metric *m)
{
	struct view *v = (struct view *)(void *)((char *)m - offsetof(struct view, m));
	size_t n = atomic_load_explicit(&n_rows, memory_order_acquire);
	metric_set(m, 0);
	m->sum = 0;
	for (int i = 0; i <= m->n_buckets; i++)
		m->counts[i] = 0;
	for (size_t r = 0; r < n; r++) {
		const struct row *row = rows[r];
		if (v->model != NULL ? strcmp(row->model, v->model->model) != 0 : row != v->row)
			continue;
		for (int t = 0; t < MAX_THREADS; t++) {
			const struct latency_cells *c = atomic_load_explicit(&row->cells[t], memory_order_acquire);
			if (c != NULL)
				add_cells(v, c);
		}
	}
}

/* kind KINDS: a counter. */
static void fill(struct view *v, enum kind kind, const char *name, const char *labels, const char *help, size_t at,
		 int n)
{
	v->m =
	    (struct metric){.kind = METRIC_COUNTER, .name = name, .labels = labels, .help = help, .collect = collect};
	v->at = at;
	v->n = n;
	if (kind == KINDS)
		return;
	v->m.kind = METRIC_HISTOGRAM;
	v->m.n_buckets = kinds[kind].n;
	v->m.bounds = kinds[kind].bounds;
	v->m.scale = kinds[kind].scale;
}

#define CELL(field) offsetof(struct latency_cells, field)

/* more: a further label with a comma before it, or "". */
static struct metric *add_view(struct row *r, enum kind kind, const char *name, const char *more, const char *help,
			       size_t at)
{
	char tier[QUOTED_BYTES / 2], model[QUOTED_BYTES], variant[QUOTED_BYTES / 2];
	int i = r->n_views++;
	BUG_IF(i >= N_ROW_VIEWS, "more latencies than room for them");
	label_escape(tier, sizeof tier, r->tier);
	label_escape(model, sizeof model, r->model);
	label_escape(variant, sizeof variant, r->variant);
	int n = snprintf(r->labels[i], LABEL_BYTES, "tier=\"%s\",model=\"%s\"%s", tier, model, more);
	if (variant[0] != '\0')
		snprintf(r->labels[i] + n, LABEL_BYTES - (size_t)n, ",variant=\"%s\"", variant);
	fill(&r->views[i], kind, name, r->labels[i], help, at, 1);
	r->views[i].row = r;
	return &r->views[i].m;
}

static void fill_row(struct row *r)
{
	static const char *const cached[LATENCY_CACHED] = {",cached=\"none\"", ",cached=\"part\"", ",cached=\"full\""};
	static const char *const paced[] = {",paced=\"no\"", ",paced=\"yes\""};
	for (size_t i = 0; i < LATENCY_CACHED; i++)
		add_view(r, WAIT, "sluice_ttft_seconds", cached[i],
			 "Time from the end of a request's body to its first token",
			 CELL(ttft) + i * sizeof(struct cell));
	for (size_t i = 0; i < 2; i++)
		add_view(r, GAP, "sluice_itl_seconds", paced[i],
			 "Time between two arrivals of tokens of one choice, without waits for a slow reader",
			 CELL(itl) + i * sizeof(struct cell));
	for (size_t i = 0; i < LATENCY_CACHED; i++)
		add_view(r, WAIT, "sluice_prefill_seconds", cached[i],
			 "Time from the beginning of an answer's prefill to its first token",
			 CELL(prefill) + i * sizeof(struct cell));
	add_view(r, GAP, "sluice_tpot_seconds", "", "Mean time between the tokens of an answer", CELL(tpot));
	add_view(r, RUN, "sluice_e2e_seconds", "", "Time from the end of a request's body to its answer's end",
		 CELL(e2e));
	add_view(r, WAIT, "sluice_queue_seconds", "",
		 "Time from the end of a request's body to the beginning of its prefill", CELL(queue));
	add_view(r, RUN, "sluice_decode_seconds", "", "Time from an answer's first token to its last", CELL(decode));
	add_view(r, TOKENS, "sluice_prompt_tokens", "", "Tokens of prompts", CELL(prompt));
	add_view(r, TOKENS, "sluice_answer_tokens", "", "Tokens of answers", CELL(answer));
	add_view(r, TOKENS, "sluice_stopped_tokens", "", "Tokens of answers when their readers left", CELL(stopped));
	add_view(r, KINDS, "sluice_slow_seconds_total", "",
		 "Time that streams spent below reading speed, 4 tokens a second: its rate is how many do",
		 CELL(slow_ns))
	    ->scale = 1e-9;
}

static void add_model_view(struct row *r, enum kind kind, const char *name, const char *more, const char *help,
			   size_t at, int n)
{
	char model[QUOTED_BYTES];
	int i = r->n_model_views++;
	BUG_IF(i >= N_MODEL_VIEWS, "more latencies than room for them");
	label_escape(model, sizeof model, r->model);
	snprintf(r->model_labels[i], LABEL_BYTES, "model_name=\"%s\"%s", model, more);
	fill(&r->model_views[i], kind, name, r->model_labels[i], help, at, n);
	r->model_views[i].model = r;
}

/* Dashboards made for vLLM find its names for the same figures. */
static void fill_model(struct row *r)
{
	static const char *const reasons[LATENCY_FINISHES] = {
	    ",finished_reason=\"stop\"", ",finished_reason=\"length\"", ",finished_reason=\"abort\"",
	    ",finished_reason=\"error\""};
	add_model_view(r, WAIT, "vllm:time_to_first_token_seconds", "", "As sluice_ttft_seconds", CELL(ttft),
		       LATENCY_CACHED);
	add_model_view(r, GAP, "vllm:inter_token_latency_seconds", "", "As sluice_itl_seconds", CELL(itl), 2);
	add_model_view(r, GAP, "vllm:time_per_output_token_seconds", "", "As sluice_itl_seconds", CELL(itl), 2);
	add_model_view(r, GAP, "vllm:request_time_per_output_token_seconds", "", "As sluice_tpot_seconds", CELL(tpot),
		       1);
	add_model_view(r, RUN, "vllm:e2e_request_latency_seconds", "", "As sluice_e2e_seconds", CELL(e2e), 1);
	add_model_view(r, WAIT, "vllm:request_queue_time_seconds", "", "As sluice_queue_seconds", CELL(queue), 1);
	add_model_view(r, WAIT, "vllm:request_prefill_time_seconds", "", "As sluice_prefill_seconds", CELL(prefill),
		       LATENCY_CACHED);
	add_model_view(r, RUN, "vllm:request_decode_time_seconds", "", "As sluice_decode_seconds", CELL(decode), 1);
	add_model_view(r, TOKENS, "vllm:request_prompt_tokens", "", "As sluice_prompt_tokens", CELL(prompt), 1);
	add_model_view(r, TOKENS, "vllm:request_generation_tokens", "", "As sluice_answer_tokens", CELL(answer), 1);
	add_model_view(r, TOKENS, "vllm:request_max_num_generation_tokens", "", "Tokens of an answer's longest choice",
		       CELL(longest), 1);
	for (size_t i = 0; i < LATENCY_FINISHES; i++)
		add_model_view(r, KINDS, "vllm:request_success_total", reasons[i], "Answers that ended, by reason",
			       CELL(finished) + i * sizeof(atomic_uint_least64_t), 1);
}

static struct row *find(const char *tier, const char *model, const char *variant)
{
	size_t n = atomic_load_explicit(&n_rows, memory_order_acquire);
	for (size_t i = 0; i < n; i++) {
		struct row *r = rows[i];
		if (strcmp(r->tier, tier) == 0 && strcmp(r->model, model) == 0 && strcmp(r->variant, variant) == 0)
			return r;
	}
	return NULL;
}

static bool is_first_of_model(const struct row *r)
{
	for (size_t i = 0; i < n_rows; i++)
		if (strcmp(((struct row *)rows[i])->model, r->model) == 0)
			return false;
	return true;
}

/* Under the lock. NULL: no memory. */
static struct row *add_row(const char *tier, const char *model, const char *variant)
{
	struct row *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	snprintf(r->tier, sizeof r->tier, "%s", tier);
	snprintf(r->model, sizeof r->model, "%s", model);
	snprintf(r->variant, sizeof r->variant, "%s", variant);
	fill_row(r);
	if (is_first_of_model(r))
		fill_model(r);
	rows[n_rows] = r;
	atomic_fetch_add_explicit(&n_rows, 1, memory_order_release);
	for (int i = 0; i < r->n_views; i++)
		metric_register(&r->views[i].m);
	for (int i = 0; i < r->n_model_views; i++)
		metric_register(&r->model_views[i].m);
	return r;
}

static struct row *find_or_add(const char *tier, const char *model, const char *variant)
{
	static const char other[] = "other";
	struct row *r = find(tier, model, variant);
	if (r != NULL)
		return r;
	pthread_mutex_lock(&adding);
	r = find(tier, model, variant); /* another thread may have added it meanwhile */
	if (r == NULL && n_rows < LATENCY_ROWS - 1)
		r = add_row(tier, model, variant);
	else if (r == NULL && (r = find(other, other, "")) == NULL)
		r = add_row(other, other, "");
	pthread_mutex_unlock(&adding);
	return r;
}

/* Which of a row's cells are this thread's. */
static int thread_slot(void)
{
	static atomic_int n_threads;
	static _Thread_local int own = -1;
	if (own < 0) {
		int n = atomic_fetch_add(&n_threads, 1);
		own = n < MAX_THREADS - 1 ? n : MAX_THREADS - 1;
	}
	return own;
}

struct latency_cells *latency_of(const char *tier, const char *model, const char *variant)
{
	char short_tier[NAME_BYTES], short_model[NAME_BYTES], short_variant[NAME_BYTES];
	snprintf(short_tier, sizeof short_tier, "%s", tier);
	snprintf(short_model, sizeof short_model, "%s", model);
	snprintf(short_variant, sizeof short_variant, "%s", variant);
	struct row *r = find_or_add(short_tier, short_model, short_variant);
	if (r == NULL)
		return NULL;
	int slot = thread_slot();
	struct latency_cells *c = atomic_load_explicit(&r->cells[slot], memory_order_acquire), *before = NULL;
	if (c != NULL || (c = sl_zalloc(sizeof *c)) == NULL)
		return c;
	c->shared = slot == MAX_THREADS - 1;
	if (atomic_compare_exchange_strong(&r->cells[slot], &before, c))
		return c;
	sl_free(c);
	return before;
}

/* ---- observing ---- */

void latency_first_token(struct latency_cells *c, enum latency_cached cached, uint64_t ns)
{
	if (c != NULL)
		observe(c, &c->ttft[cached], WAIT, ns);
}

uint64_t latency_gap(struct latency_cells *c, bool paced, uint64_t ns, uint32_t n)
{
	uint64_t slow = ns > (uint64_t)n * LATENCY_READING_NS ? ns : 0;
	if (c == NULL)
		return slow;
	observe(c, &c->itl[paced], GAP, ns);
	if (slow > 0)
		add(c->shared, &c->slow_ns, slow);
	return slow;
}

static void observe_known(const struct latency_cells *c, struct cell *to, enum kind kind, uint64_t v)
{
	if (v > 0)
		observe(c, to, kind, v);
}

void latency_end(struct latency_cells *c, const struct latency_answer *a)
{
	if (c == NULL)
		return;
	add(c->shared, &c->finished[a->finish], 1);
	observe_known(c, &c->e2e, RUN, a->e2e_ns);
	observe_known(c, &c->queue, WAIT, a->queue_ns);
	observe_known(c, &c->prefill[a->cached], WAIT, a->prefill_ns);
	observe_known(c, &c->decode, RUN, a->decode_ns);
	observe_known(c, &c->tpot, GAP, a->tpot_ns);
	if (a->prompt == 0)
		return;
	observe(c, &c->prompt, TOKENS, a->prompt);
	observe(c, &c->answer, TOKENS, a->answer);
	observe(c, &c->longest, TOKENS, a->longest);
	if (a->stopped)
		observe(c, &c->stopped, TOKENS, a->answer);
}
