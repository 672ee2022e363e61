/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows and pages of a beam search. The prompt is computed like any other, in the row of the first slot; then each
 * hypothesis has its own row of the page tables. Hypotheses with a common parent share its pages; the first to write to
 * a last page that is not full copies it (copy on write).
 *
 * The scheduler sees one sequence with a width. It is pre-empted as a whole and then starts over: nothing was reported,
 * and the search finds the same result.
 */
#include <string.h>

#include "engine/step/batch.h"

/* Tokens in the pages of every hypothesis: all but its last one. */
static uint32_t n_past(const struct eng_seq *s)
{
	const struct beam *b = &s->choices->beam;
	return s->n_prompt + (b->live[0].n > 0 ? b->live[0].n - 1 : 0);
}

void beam_rows_start(const struct step *st, struct eng_seq *s)
{
	struct choices *c = s->choices;
	c->rows[0] = s->slot;
	c->n_pages[0] = 0;
	for (uint32_t i = 1; i < c->beam.width; i++) {
		c->rows[i] = batch_take_slot(st, s);
		c->n_pages[i] = 0;
	}
}

static void drop_row(const struct eng_seq *s, uint32_t i)
{
	struct choices *c = s->choices;
	batch_drop_pages(s->model, batch_row(s->model, c->rows[i]), s->sched.first_page, c->n_pages[i]);
	c->n_pages[i] = 0;
}

void beam_rows_release(struct eng_seq *s)
{
	struct choices *c = s->choices;
	if (s->state == SEQ_DECODE) {
		/* All rows share the prompt's full pages; frees the rest of row 0. */
		uint32_t own = s->path.n_pages < c->n_pages[0] ? s->path.n_pages : c->n_pages[0];
		s->sched.n_pages = c->n_pages[0];
		s->sched.n_past = own * s->model->kv_groups.page_tokens;
		batch_cut_pages(s, own);
	}
	for (uint32_t i = 1; i < c->beam.width; i++) {
		drop_row(s, i);
		s->model->slots[c->rows[i]] = NULL;
	}
	beam_reset(&c->beam);
	s->n_made = 0;
}

uint32_t beam_rows_pages_back(const struct eng_seq *s)
{
	const struct choices *c = s->choices;
	const struct eng_model *m = s->model;
	uint32_t n = prefix_n_exclusive(m->prefix, &s->path);
	for (uint32_t i = 0; i < c->beam.n_live; i++)
		for (uint32_t g = 0; g < m->kv_groups.n_groups; g++) {
			uint32_t k = g < m->kv_groups.n_full || s->path.n_pages > s->sched.first_page
					 ? s->path.n_pages
					 : s->sched.first_page;
			for (; k < c->n_pages[i]; k++)
				n += kv_page_refs(m->pool, *batch_page(m, batch_row(m, c->rows[i]), g, k)) == 1;
		}
	return n;
}

uint32_t beam_rows_row_pages(const struct eng_seq *s, int slot)
{
	const struct choices *c = s->choices;
	for (uint32_t i = 0; i < c->beam.width; i++) {
		if (c->rows[i] == slot)
			return c->n_pages[i];
	}
	return 0;
}

/* Pages of its own for the next token of hypothesis i. */
static int make_room(struct eng_seq *s, uint32_t i)
{
	struct choices *c = s->choices;
	struct eng_model *m = s->model;
	int32_t *row = batch_row(m, c->rows[i]);
	uint32_t index = n_past(s) / m->kv_groups.page_tokens;
	if (index == c->n_pages[i]) {
		int rc = batch_take_index(m, row, index, m->kv_groups.n_groups);
		c->n_pages[i] += rc == 0;
		return rc;
	}
	int rc = 0;
	for (uint32_t g = 0; g < m->kv_groups.n_groups && rc == 0; g++) {
		int32_t *page = batch_page(m, row, g, index);
		bool room = kv_page_refs(m->pool, *page) == 1 || prefix_room(m->prefix);
		rc = room ? kv_page_make_own(m->pool, page) : SL_ELIMIT;
	}
	return rc;
}

void beam_rows_pass(struct eng_seq *s, uint32_t first)
{
	const struct choices *c = s->choices;
	for (uint32_t i = 0; i < c->beam.n_live; i++)
		batch_pass_row(s->model, batch_row(s->model, c->rows[i]), s->sched.first_page, first);
}

bool beam_rows_ready(struct step *st, struct eng_seq *s, uint32_t work)
{
	struct beam *b = &s->choices->beam;
	for (uint32_t i = 0; i < b->n_live; i++)
		if (!mask_make(st, &s->constraint, &b->live[i].at, work))
			return false;
	return true;
}

void beam_rows_rows(struct step *st, struct batch *b, struct eng_seq *s, uint64_t now)
{
	struct choices *c = s->choices;
	uint32_t past = n_past(s);
	for (uint32_t i = 0; i < c->beam.n_live; i++)
		if (make_room(s, i) != 0)
			return; /* it skips this step */
	for (uint32_t i = 0; i < c->beam.n_live; i++) {
		const struct beam_hyp *h = &c->beam.live[i];
		batch_add_row(st, b, c->rows[i], past, h->tokens[h->n - 1]);
		batch_want(st, b, s);
		batch_attend(&b->attended, past, 1);
	}
	b->n_decode += c->beam.n_live;
	s->sched.served_ns = now;
	s->sched.n_left = 0;
}

/* Row i of the next generation has the pages of row parents[i] of this one. */
static void inherit(struct eng_seq *s, uint32_t n_before, const uint8_t *parents)
{
	if (s->model->states != NULL) /* a fault shows in the next step */
		(void)kv_states_inherit(s->model->states, s->choices->rows, s->choices->beam.width, parents,
					s->choices->beam.n_live);
	struct choices *c = s->choices;
	struct eng_model *m = s->model;
	size_t width = (size_t)m->kv_groups.n_groups * m->max_pages;
	uint32_t n_pages[BEAM_MAX];
	for (uint32_t i = 0; i < c->beam.n_live; i++) {
		int slot = c->rows[parents[i]];
		int32_t page;
		n_pages[i] = c->n_pages[parents[i]];
		memcpy(c->next_rows + (size_t)i * width, batch_row(m, slot), width * sizeof(int32_t));
		for (uint32_t k = 0; (page = batch_row_page(s, slot, k)) >= 0; k++)
			kv_page_ref(m->pool, page);
	}
	for (uint32_t i = 0; i < n_before; i++)
		drop_row(s, i);
	for (uint32_t i = 0; i < c->beam.n_live; i++) {
		memcpy(batch_row(m, c->rows[i]), c->next_rows + (size_t)i * width, width * sizeof(int32_t));
		c->n_pages[i] = n_pages[i];
	}
}

static bool ends(const void *ctx, int32_t id) { return batch_is_end(ctx, id); }

void beam_rows_serve(struct step *st, struct eng_seq *s, float *logits, uint64_t now)
{
	struct choices *c = s->choices;
	struct proto_id_f32 found[2 * BEAM_MAX];
	struct beam_top tops[BEAM_MAX * 2 * BEAM_MAX];
	uint8_t parents[BEAM_MAX];
	int n_vocab = s->model->info.arch.n_vocab, k = (int)beam_n_tops(&c->beam);
	uint32_t n_before = c->beam.n_live;
	bool finished = false;
	k = k < n_vocab ? k : n_vocab;
	if (s->state == SEQ_PREFILL)
		c->n_pages[0] = s->sched.n_pages;
	if (constrain_is_on(&s->constraint) && c->beam.constraint == NULL)
		beam_constrain(&c->beam, &s->constraint);
	for (uint32_t i = 0; i < n_before; i++) {
		struct sampler_params p = s->sampling;
		int rc = constrain_draw(&s->constraint, &c->beam.live[i].at, st->mask, &p);
		if (rc != 0) {
			step_fail_constraint(st, s, rc);
			return;
		}
		int got = sampler_top(&p, &s->said, logits + (size_t)i * (size_t)n_vocab, n_vocab, c->beam.live[i].n, k,
				      &st->scratch, found);
		for (int j = 0; j < k; j++)
			tops[(int)i * k + j] = (struct beam_top){.id = j < got ? (int32_t)found[j].id : -1,
								 .logprob = j < got ? found[j].v : -1e30f};
	}
	int rc = beam_advance(&c->beam, tops, (uint32_t)k, ends, s, parents, &finished);
	if (rc != 0) {
		step_fail_constraint(st, s, rc);
		return;
	}
	if (s->first_ns == 0)
		s->first_ns = now;
	if (finished && c->beam.n_done == 0) {
		step_fail(st, s, PROTO_ERR_INTERNAL);
		return;
	}
	if (finished) {
		/* Frees all rows but the first; the prompt's pages follow as usual. */
		for (uint32_t i = 1; i < n_before; i++)
			drop_row(s, i);
		c->beam.n_live = 0;
		choices_found(st, s);
		return;
	}
	inherit(s, n_before, parents);
	s->n_made = c->beam.live[0].n;
	batch_continue(st, s, now);
	s->sched.n_past = n_past(s);
	s->sched.n_pages = c->n_pages[0];
}
