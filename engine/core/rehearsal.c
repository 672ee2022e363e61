/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device does on first use takes milliseconds to minutes: it loads each kernel when it is first launched and
 * compiles it if the program has no code for that device; scratch memory grows; the vendor's library is measured
 * against our own kernels for each number of rows. None of it may happen inside a step that serves, so the loader runs
 * one step of each kind first:
 *  - few rows and many, because products have kernels for up to 8, 16 and more rows;
 *  - one block of positions and several, because attention splits and merges;
 *  - rows of one sequence and of many; every kind of draw; tokens taken from a step's draws; pooling;
 *  - the widest step, for the sizes of scratch memory.
 */
#include "engine/core/rehearsal.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/step/step.h"

enum { FAR = KN_ATTN_BLOCK + 1, N_DRAWS = 8, LEAST_TUNED = 16 };

struct stage {
	struct eng_model *m;
	int max_rows;
	int32_t *tokens, *pos, *seq, *sees, *want; /* [max_rows] */
	int32_t *pages;                            /* [n_pages], of the pool; then the same for each other group */
	int n_pages;
	int32_t *tables; /* [max_rows][groups], a page each */
	uint32_t *mask;  /* [n_vocab / 32 + 1] */
	float *logits;   /* [n_vocab] */
	float *pooled;
};

static void dispose(struct stage *s)
{
	while (s->n_pages > 0)
		kv_page_unref(s->m->pool, s->pages[--s->n_pages]);
	void *all[] = {s->tokens, s->pos, s->seq, s->sees, s->want, s->pages, s->tables, s->mask, s->logits, s->pooled};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		sl_free(all[i]);
}

static int init(struct stage *s, struct eng_model *m)
{
	const struct eng_config *cfg = &m->e->cfg;
	size_t n_vocab = (size_t)m->info.arch.n_vocab;
	*s = (struct stage){.m = m, .max_rows = m->step_tokens + cfg->max_sequences};
	size_t rows = (size_t)s->max_rows, longest = rows > FAR + N_DRAWS ? rows : FAR + N_DRAWS;
	int most = (int)(longest / (size_t)cfg->page_tokens) + 1;
	most = most > cfg->max_sequences ? most : cfg->max_sequences;
	s->tokens = sl_zalloc_n(rows, sizeof *s->tokens);
	s->pos = sl_zalloc_n(rows, sizeof *s->pos);
	s->seq = sl_zalloc_n(rows, sizeof *s->seq);
	s->sees = sl_zalloc_n(rows, sizeof *s->sees);
	s->want = sl_zalloc_n(rows, sizeof *s->want);
	s->tables = sl_zalloc_n(rows * m->kv_groups.n_groups, sizeof *s->tables);
	s->pages = sl_zalloc_n((size_t)most * m->kv_groups.n_groups, sizeof *s->pages);
	s->mask = sl_zalloc_n(n_vocab / 32 + 1, sizeof *s->mask);
	s->logits = sl_zalloc_n(n_vocab, sizeof *s->logits);
	s->pooled = sl_zalloc_n((size_t)model_pooled_width(m->model) + 1, sizeof *s->pooled);
	if (s->tokens == NULL || s->pos == NULL || s->seq == NULL || s->sees == NULL || s->want == NULL ||
	    s->tables == NULL || s->pages == NULL || s->mask == NULL || s->logits == NULL || s->pooled == NULL)
		return SL_ENOMEM;
	while (s->n_pages < most && kv_page_alloc(m->pool, &s->pages[s->n_pages]) == 0)
		s->n_pages++;
	for (int i = s->n_pages; i < (int)m->kv_groups.n_groups * s->n_pages; i++)
		s->pages[i] = s->pages[i - s->n_pages];
	memset(s->mask, 0xFF, (n_vocab / 32 + 1) * sizeof *s->mask);
	return s->n_pages > 0 ? 0 : SL_ENOMEM;
}

/* Rows of one sequence from a position on: at most as many as it has pages for. */
static struct kn_step prompt_of(struct stage *s, int n, int from)
{
	struct eng_model *m = s->m;
	int room = s->n_pages * m->e->cfg.page_tokens;
	room = room < (int)m->n_ctx ? room : (int)m->n_ctx;
	n = n < room - from ? n : room - from;
	n = n < s->max_rows ? n : s->max_rows;
	for (int i = 0; i < n; i++) {
		s->pos[i] = from + i;
		s->seq[i] = 0;
		s->sees[i] = from + n;
	}
	struct kn_step step = {.n_rows = n,
			       .row_token = s->tokens,
			       .row_pos = s->pos,
			       .row_seq = s->seq,
			       .row_sees = m->info.arch.encoder ? s->sees : NULL,
			       .n_seqs = 1,
			       .page_table = s->pages,
			       .max_pages = s->n_pages};
	kv_states_in_step(m->states, &step); /* no sequence has begun */
	return step;
}

/* The first row of n sequences, each with a page of its own. */
static struct kn_step decode_of(struct stage *s, int n)
{
	n = n < s->n_pages ? n : s->n_pages;
	n = n < s->max_rows ? n : s->max_rows;
	n = n < s->m->e->cfg.max_sequences ? n : s->m->e->cfg.max_sequences;
	int n_groups = (int)s->m->kv_groups.n_groups;
	for (int i = 0; i < n; i++) {
		s->pos[i] = 0;
		s->seq[i] = i;
		for (int g = 0; g < n_groups; g++)
			s->tables[i * n_groups + g] = s->pages[i];
	}
	struct kn_step step = {.n_rows = n,
			       .row_token = s->tokens,
			       .row_pos = s->pos,
			       .row_seq = s->seq,
			       .n_seqs = n,
			       .page_table = s->tables,
			       .max_pages = 1};
	kv_states_in_step(s->m->states, &step);
	return step;
}

/* Whether a step is to run: not without rows, nor once the engine stops. */
static bool is_due(const struct stage *s, const struct kn_step *step)
{
	return step->n_rows > 0 && !atomic_load(&s->m->e->stopping);
}

/* Wants the logits of the last row, on the host, or of n_draws rows, from which it draws. */
static int run(struct stage *s, const struct kn_step *step, const struct kn_draw *draws, int n_draws)
{
	struct kn_drawn drawn[N_DRAWS];
	bool taken[N_DRAWS];
	struct model_draws all = {.draws = draws, .n = n_draws, .drawn = drawn, .taken = taken};
	int n_want = s->m->info.arch.encoder ? 0 : n_draws > 0 ? n_draws : 1;
	if (!is_due(s, step))
		return 0;
	for (int i = 0; i < n_draws; i++) {
		taken[i] = true;
		s->want[i] = i;
	}
	if (n_draws == 0)
		s->want[0] = step->n_rows - 1;
	return model_forward_draw(s->m->model, step, kv_pool_layout(s->m->pool), s->want, n_want, s->logits,
				  n_draws > 0 ? &all : NULL);
}

/* Wants the logits of the first n_want rows, which stay on the device. */
static int run_wanted(struct stage *s, const struct kn_step *step, int n_want)
{
	if (!is_due(s, step))
		return 0;
	bool *taken = sl_zalloc_n((size_t)n_want + 1, sizeof *taken);
	struct model_draws none = {.taken = taken};
	if (taken == NULL)
		return SL_ENOMEM;
	for (int i = 0; i < n_want; i++) {
		taken[i] = true;
		s->want[i] = i;
	}
	int rc = model_forward_draw(s->m->model, step, kv_pool_layout(s->m->pool), s->want,
				    s->m->info.arch.encoder ? 0 : n_want, s->logits, &none);
	sl_free(taken);
	return rc;
}

static int run_prompt(struct stage *s, int n, int from)
{
	struct kn_step step = prompt_of(s, n, from);
	return run(s, &step, NULL, 0);
}

static int run_decode(struct stage *s, int n)
{
	struct kn_step step = decode_of(s, n);
	return run(s, &step, NULL, 0);
}

/* One of each kind of draw, as far as there are rows; then a step whose token is the first of them. */
static int run_draws(struct stage *s)
{
	struct kn_adjust adjust[] = {{.id = 0, .a = 1}, {.id = 0, .a = 1}, {.id = -1, .a = 1}, {.id = 0}};
	struct kn_draw draws[N_DRAWS] = {
	    {.temperature = 0, .top_p = 1},
	    {.temperature = 1, .top_p = 1},
	    {.temperature = 1, .top_p = 1, .top_k = 2},
	    {.temperature = 1, .top_p = 0.5f},
	    {.temperature = 1, .top_p = 1, .min_p = 0.1f},
	    {.temperature = 1, .top_p = 1, .want_logprob = true, .n_top = 2},
	    {.temperature = 1, .top_p = 1, .mask = s->mask},
	    {.temperature = 1, .top_p = 1, .adjust = adjust, .n_bias = 1, .n_penalties = 2, .n_out = 1, .said = 1},
	};
	static const int32_t from[] = {0};
	struct kn_step step = decode_of(s, N_DRAWS);
	if (!model_can_draw(s->m->model) || s->m->info.arch.encoder)
		return 0;
	int rc = 0;
	for (int i = 0; i < N_DRAWS && rc == 0; i += step.n_rows) {
		int n = N_DRAWS - i < step.n_rows ? N_DRAWS - i : step.n_rows;
		for (int k = 0; k < n; k++)
			draws[i + k].row = k;
		rc = run(s, &step, draws + i, n);
	}
	if (rc != 0)
		return rc;
	step = decode_of(s, 1);
	step.row_from = from;
	return run(s, &step, NULL, 0);
}

static int run_pooling(struct stage *s)
{
	struct kn_step step = prompt_of(s, 2, 0);
	struct model_text text = {.at = {.row = 0, .n_rows = step.n_rows, .slot = 0, .begins = true}, .ends = true};
	struct model_pooling pooling = {.texts = &text, .n = 1, .out = s->pooled};
	if (model_pooled_width(s->m->model) == 0 || !is_due(s, &step))
		return 0;
	return model_forward_pool(s->m->model, &step, kv_pool_layout(s->m->pool), &pooling);
}

/* The classes of rows that the vendor's library is chosen for: of prompts, and of the head. */
static int run_classes(struct stage *s)
{
	const struct eng_config *cfg = &s->m->e->cfg;
	int most = cfg->max_sequences + STEP_EXTRA_ROWS, rc = 0;
	for (int n = LEAST_TUNED; cfg->loose_products && n / 2 < s->max_rows && rc == 0; n *= 2) {
		struct kn_step step = prompt_of(s, n, 0);
		rc = run_wanted(s, &step, step.n_rows < most ? step.n_rows : most);
	}
	return rc;
}

/* The widest step comes first: memory grows at once. An encoder's rows see their text, in steps without a past. */
static int run_all(struct stage *s)
{
	static const struct {
		int rows, from;
		bool decode;
	} kinds[] = {{1, 0, true},   {3, 0, true},    {9, 0, true},    {17, 0, false},      {33, 0, false},
		     {65, 0, false}, {129, 0, false}, {257, 0, false}, {1, FAR - 1, false}, {3, FAR - 1, false}};
	bool encoder = s->m->info.arch.encoder;
	int rc = run_prompt(s, s->m->step_tokens, 0);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && rc == 0; i++) {
		if (kinds[i].rows > s->max_rows)
			continue; /* as the widest */
		rc = kinds[i].decode && !encoder ? run_decode(s, kinds[i].rows)
						 : run_prompt(s, kinds[i].rows, encoder ? 0 : kinds[i].from);
	}
	if (rc == 0 && !encoder)
		rc = run_decode(s, s->m->e->cfg.max_sequences);
	if (rc == 0)
		rc = run_draws(s);
	if (rc == 0)
		rc = run_pooling(s);
	return rc == 0 ? run_classes(s) : rc;
}

int rehearse(struct eng_model *m)
{
	struct stage s;
	if (!m->ops->ahead)
		return 0; /* a processor has nothing to load */
	int rc = init(&s, m);
	if (rc == 0)
		rc = run_all(&s);
	dispose(&s);
	if (m->ops->serve != NULL)
		m->ops->serve(m->backend);
	return rc;
}
