/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts by the layer of a model that predicts the token after the next (engine/model/draft_head.h).
 *
 * Every step leaves the last hidden rows of its sequences, prompts' too, so drafting costs nothing until it begins. The
 * layer's keys and values are those of positions that it has had hidden rows of: of each slot a few pages that are
 * never shared, from position head_base of the sequence on, which is their position 0. So a sequence that comes from
 * the prefix tree, from swap or another engine, or that has not drafted for longer than rows are kept, begins anew with
 * the rows that there are, as one does that has filled its pages. Whatever it has, it changes drafts only.
 *
 * A row is of position p, by the hidden row there and the token at p + 1: rows of the text's own are computed once.
 * Rows of drafts go on from the layer's own results and are computed again once the model's hidden rows are there.
 *
 * Sequences with several hypotheses, and those without an answer, leave no rows. Drafts are drawn as in draft_model.c.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/model/draft_head.h"
#include "engine/step/in_flight.h"
#include "engine/step/spec_step.h"

enum { FEW_ROWS = 16 };

/* Of acceptance. The layer was trained with its model, so it begins; short answers leave no time for trials. */
static const double first_guess = 0.7;

/* ---- memory ---- */

bool head_drafts_wanted(const struct eng_model *m)
{
	int mode = m->e->cfg.spec_mode;
	return (mode == ENG_SPEC_HEAD || mode == ENG_SPEC_AUTO) && m->inspected && m->info.arch.n_drafting > 0 &&
	       !m->info.arch.encoder && !m->no_head;
}

static int pages_of(const struct eng_model *m)
{
	int page_tokens = m->e->cfg.page_tokens;
	return (DRAFT_HEAD_PAST + page_tokens - 1) / page_tokens;
}

static struct kn_kv layout_of(const struct eng_model *m)
{
	struct kn_kv layout = model_kv_layout(&m->info.arch, m->kv_type, m->e->cfg.page_tokens, 1);
	layout.n_pages = m->e->cfg.max_sequences * pages_of(m);
	return layout;
}

uint64_t head_drafts_bytes(const struct eng_model *m)
{
	if (!head_drafts_wanted(m))
		return 0;
	struct kn_kv layout = layout_of(m);
	return (uint64_t)layout.n_pages * kv_layout_bytes(&layout) +
	       draft_head_row_bytes(&m->info.arch, m->e->cfg.max_sequences);
}

void head_drafts_dispose(struct eng_model *m)
{
	kv_pool_destroy(m->head_pool);
	sl_free(m->head_tables);
	m->head_pool = NULL;
	m->head_tables = NULL;
}

static struct kn_step step_of(const struct eng_model *m, int n_rows, const int32_t *token, const int32_t *pos,
			      const int32_t *seq)
{
	return (struct kn_step){.n_rows = n_rows,
				.row_token = token,
				.row_pos = pos,
				.row_seq = seq,
				.n_seqs = m->e->cfg.max_sequences,
				.page_table = m->head_tables,
				.max_pages = pages_of(m)};
}

/* The first guess of what a step of the head costs, and on a device the first use of its operations. */
static int time_first(struct eng_model *m, float *logits)
{
	int32_t zeros[FEW_ROWS] = {0}, pos[FEW_ROWS];
	double ns[2] = {0};
	int rc = 0, max_rows = m->step_tokens + m->e->cfg.max_sequences,
	    few = max_rows < FEW_ROWS ? max_rows : FEW_ROWS;
	for (int i = 0; i < few; i++)
		pos[i] = i;
	for (int i = 0; i < 4 && rc == 0; i++) {
		struct kn_step step = step_of(m, i % 2 == 0 ? 1 : few, zeros, pos, zeros);
		uint64_t begin = clock_now_ns();
		rc = draft_head_forward(m->model, &step, kv_pool_layout(m->head_pool), zeros, false, zeros, 1, logits);
		ns[i % 2] = (double)(clock_now_ns() - begin);
	}
	double row_ns = few > 1 && ns[1] > ns[0] ? (ns[1] - ns[0]) / (few - 1) : ns[0] / 2;
	cost_init(&m->head_cost, ns[0] > row_ns ? ns[0] - row_ns : 0, row_ns);
	return rc;
}

int head_drafts_make(struct eng_model *m)
{
	int n_slots = m->e->cfg.max_sequences, n_pages = pages_of(m);
	struct kn_kv layout = layout_of(m);
	if (!head_drafts_wanted(m) || !draft_head_is_here(m->model))
		return 0;
	layout.rotate = kv_pool_layout(m->pool)->rotate;
	int rc = kv_pool_make(m->ops, m->backend, &layout, &m->head_pool, &m->load_err);
	if (rc == 0)
		rc = draft_head_make_rows(m->model, n_slots, &m->load_err);
	if (rc != 0)
		return rc;
	m->head_tables = sl_zalloc_n((size_t)n_slots * (size_t)n_pages, sizeof *m->head_tables);
	float *logits = sl_zalloc_n((size_t)m->info.arch.n_vocab, sizeof *logits);
	for (int i = 0; m->head_tables != NULL && i < n_slots * n_pages; i++)
		m->head_tables[i] = i;
	rc = m->head_tables == NULL || logits == NULL ? SL_ENOMEM : time_first(m, logits);
	sl_free(logits);
	if (rc != 0)
		return sl_errf(&m->load_err, rc, "%s: the layer that drafts failed: %s", m->path, sl_code_name(rc));
	m->draft_accept[SPEC_HEAD] = first_guess;
	log_info("model %s drafts by a layer of its own; %llu KiB for %d sequences", m->name,
		 (unsigned long long)(head_drafts_bytes(m) >> 10), n_slots);
	return 0;
}

/* ---- hidden rows ---- */

/* The step's rows have left hidden rows of n positions from pos on. */
static void note_kept(struct seq_spec *p, uint32_t pos, uint32_t n)
{
	/* At most a draft is taken back, or all of it is another text. */
	bool another = p->kept_end > pos + SPEC_MAX_DRAFT + 1;
	if (p->kept_end == 0 || another || pos < p->kept_from || pos > p->kept_end) {
		p->kept_from = pos;
		p->kept_end = pos + n;
	}
	p->kept_end = pos + n > p->kept_end ? pos + n : p->kept_end;
}

/* The first position whose row and all after it are kept. */
static uint32_t first_kept(const struct seq_spec *p)
{
	uint32_t over = p->kept_end > DRAFT_HEAD_ROWS ? p->kept_end - DRAFT_HEAD_ROWS : 0;
	return p->kept_from > over ? p->kept_from : over;
}

void head_drafts_keep(struct step *st, struct eng_model *m, const struct batch *b)
{
	int rc = 0;
	for (int r = 0, end; m->head_pool != NULL && r < b->n_rows && rc == 0; r = end) {
		int slot = st->row_seq[r];
		for (end = r + 1; end < b->n_rows && st->row_seq[end] == slot; end++)
			;
		struct eng_seq *s = m->slots[slot];
		if (s == NULL || s->slot != slot || is_searching(s) || s->embed || s->prefill_only)
			continue;
		note_kept(&s->spec, (uint32_t)st->row_pos[r], (uint32_t)(end - r));
		rc = draft_head_keep(m->model, r, end - r, slot, (uint32_t)st->row_pos[r]);
	}
	/* A fault shows when the step is waited for. */
}

/* ---- the drafter ---- */

static bool ready(const struct eng_seq *s, uint32_t most)
{
	const struct seq_spec *p = &s->spec;
	(void)most; /* less than what is left of the pages after a beginning */
	return s->model->head_pool != NULL && first_kept(p) < s->sched.n_past && p->kept_end >= s->sched.n_past;
}

static void price(const struct eng_seq *s, uint32_t n_together, struct spec_price *out)
{
	const struct cost *cost = &s->model->head_cost;
	const struct seq_spec *p = &s->spec;
	uint32_t from = p->head_base + p->head_past;
	from = from > first_kept(p) ? from : first_kept(p);
	uint32_t behind = s->sched.n_past > from ? s->sched.n_past - from : 1;
	*out = (struct spec_price){.each_ns = cost_rows_ns(cost, n_together) / n_together, .spread = spec_spread(s)};
	double rows_ns = cost_added_ns(cost, n_together, 0, behind - 1);
	/* Rows of what the last draft got right come with each draft. */
	if (p->head_past > 0 && behind <= SPEC_MAX_DRAFT + 1)
		out->draft_ns = rows_ns;
	else
		out->once_ns = rows_ns;
}

/* Where the rows of s begin, at most room of them; what was computed before may be of no use. 0 … n_past - 1. */
static uint32_t begin_rows(struct eng_seq *s, uint32_t room)
{
	struct seq_spec *p = &s->spec;
	uint32_t past = s->sched.n_past, kept = first_kept(p), from = p->head_base + p->head_past;
	from = from < past ? from : past - 1;
	if (p->head_past > 0 && from >= kept && past - from <= room &&
	    past - p->head_base + p->n_draft <= DRAFT_HEAD_PAST)
		return from;
	from = past - kept <= room ? kept : past - room;
	p->head_base = from;
	p->head_past = 0;
	return from;
}

static void add_row(struct step *st, struct batch *b, const struct eng_seq *s, uint32_t pos, int32_t token,
		    int32_t from)
{
	uint32_t at = pos - s->spec.head_base;
	batch_add_row(st, b, s->slot, at, token);
	st->row_from[b->n_rows - 1] = from;
}

/* Adds the rows of s up to its last token: its logits are those of the first drafted one. */
static void follow(struct step *st, struct batch *b, struct eng_seq *s, uint32_t room)
{
	uint32_t past = s->sched.n_past, from = begin_rows(s, room);
	for (uint32_t p = from; p < past; p++)
		add_row(st, b, s, p, s->tokens[p + 1], s->slot * DRAFT_HEAD_ROWS + (int32_t)(p % DRAFT_HEAD_ROWS));
	batch_attend(&b->attended, from - s->spec.head_base, past - from);
	s->spec.head_past = past - s->spec.head_base;
	st->want[b->n_want++] = b->n_rows - 1;
}

static int forward(struct step *st, struct eng_model *m, const struct batch *b, bool chained)
{
	struct kn_step step = step_of(m, b->n_rows, st->row_token, st->row_pos, st->row_seq);
	uint64_t begin = clock_now_ns();
	int rc = draft_head_forward(m->model, &step, kv_pool_layout(m->head_pool), st->row_from, chained, st->want,
				    b->n_want, st->logits);
	if (rc == 0)
		spec_cost_learn(&m->head_cost, (uint32_t)b->n_rows, b->attended, (double)(clock_now_ns() - begin));
	return rc;
}

/* Takes the k-th tokens of n drafts, which logits have, and adds rows for those that go on: which are left in seqs. */
static int take(struct step *st, struct eng_model *m, struct batch *b, struct eng_seq **seqs, int n, uint32_t k)
{
	size_t n_vocab = (size_t)m->info.arch.n_vocab;
	int left = 0;
	*b = (struct batch){0};
	for (int i = 0; i < n; i++) {
		struct eng_seq *s = seqs[i];
		s->spec.draft[k] = spec_drafted(st, s, k, st->logits + (size_t)i * n_vocab);
		if (s->spec.draft[k] < 0)
			s->spec.n_draft = (uint8_t)k;
		if (k + 1 >= s->spec.n_draft)
			continue;
		add_row(st, b, s, s->sched.n_past + k, s->spec.draft[k], i);
		batch_attend(&b->attended, s->spec.head_past + k, 1);
		st->want[b->n_want++] = b->n_rows - 1;
		seqs[left++] = s;
	}
	return left;
}

static void cut(struct eng_seq **seqs, int n, uint32_t k)
{
	for (int i = 0; i < n; i++)
		seqs[i]->spec.n_draft = (uint8_t)k;
}

static void draft(struct step *st, struct eng_model *m, struct eng_seq **seqs, int n)
{
	struct batch b = {0};
	uint32_t room = (uint32_t)(m->step_tokens + m->e->cfg.max_sequences);
	if (!in_flight_may_forward(m)) {
		cut(seqs, n, 0);
		return;
	}
	for (int i = 0; i < n; i++)
		follow(st, &b, seqs[i], room - (uint32_t)b.n_rows - (uint32_t)(n - i - 1));
	int rc = forward(st, m, &b, false);
	for (uint32_t k = 0; n > 0; k++) {
		if (rc != 0) { /* the model's next step fails with it */
			cut(seqs, n, k);
			return;
		}
		n = take(st, m, &b, seqs, n, k);
		rc = n > 0 ? forward(st, m, &b, true) : 0;
	}
}

static void back(struct eng_seq *s) { (void)s; }

static void drop(struct eng_seq *s)
{
	s->spec.kept_from = s->spec.kept_end = s->spec.head_base = s->spec.head_past = 0;
}

const struct spec_drafter head_drafter = {.ready = ready, .price = price, .draft = draft, .back = back, .drop = drop};
