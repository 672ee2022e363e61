/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculative decoding. A decoding sequence computes its last token and, in the same chunk, a draft of the tokens that
 * may follow, and needs the logits of all these rows. A row does not depend on the rest of its step (kernels.h), and a
 * draw depends only on seed and index (sampler.h). So the first row yields the token of a plain step; if that token is
 * the draft's first, the second row is what the next plain step would compute, and so on. The answer is identical to
 * the plain one bit for bit, greedy or sampled, with penalties, stop strings, log probabilities and minimum lengths.
 *
 * Rows of rejected tokens wrote to pages behind the sequence's end. These pages are its own (the prefix tree ends at
 * n_past, which counts accepted rows only): the next step overwrites them, and whole pages are freed at once.
 *
 * Drafts use only spare rows of the step's budget and spare pages, and none in steps with prompts or while a request
 * waits to start. A draft never exceeds credit, pace or the answer's length.
 *
 * A state has passed rejected tokens, too. So where layers keep one, it is copied before the draft. When a token is
 * rejected, the copy returns, and the next step computes the accepted tokens again. Drafts end where a snapshot is due.
 * Such a model makes no drafts for others.
 */
#include "engine/step/in_flight.h"
#include "engine/step/spec_step.h"

#include <string.h>

/* Weight of one draft in the acceptance that new requests start from. */
static const double recent = 0.05;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* How many tokens s may take beyond the next one. */
static uint32_t most_of(const struct step *st, const struct eng_seq *s, uint32_t room, uint64_t now)
{
	uint32_t most = least((uint32_t)st->e->cfg.spec_max_draft, least(SPEC_MAX_DRAFT, room));
	most = least(most, least(s->credit - 1, s->max_tokens - s->n_made - 1));
	if (s->model->states != NULL)
		most = least(most,
			     prefix_next_snapshot(s->model->prefix, &s->path, s->sched.n_past) - s->sched.n_past - 1);
	if (s->pace_each_ns > 0) {
		uint64_t due = eng_seq_due(s), early = now > due ? (now - due) / s->pace_each_ns : 0;
		most = most < early ? most : (uint32_t)early;
	}
	return most;
}

static void init_rates(struct eng_seq *s)
{
	if (s->spec.rates[0].patience > 0)
		return;
	spec_rate_init(&s->spec.rates[SPEC_NGRAM], 0.5);
	spec_rate_init(&s->spec.rates[SPEC_MODEL], s->model->draft_accept);
}

/* Chooses source and length of a draft for s; makes it if the source is the n-grams. */
static uint32_t choose(struct step *st, struct eng_seq *s, const struct spec_now *now, uint32_t most,
		       uint32_t n_together)
{
	const struct eng_config *cfg = &st->e->cfg;
	struct seq_spec *sp = &s->spec;
	struct spec_rate *said = &sp->rates[SPEC_NGRAM], *small = &sp->rates[SPEC_MODEL];
	uint32_t past = s->sched.n_past, n = 0;
	init_rates(s);
	if (cfg->spec_mode != ENG_SPEC_DRAFT)
		n = ngram_draft(&sp->said, s->tokens, eng_seq_n_tokens(s), sp->draft, most);
	n = mask_cut(st, &s->constraint, sp->draft, n);
	if (n > 0 && !cfg->spec_fixed)
		n = spec_length(said, now, past, n, &(struct spec_price){0});
	sp->source = SPEC_NGRAM;
	if (cfg->spec_mode == ENG_SPEC_NGRAM || (n > 0 && (cfg->spec_fixed || said->accept >= small->accept)) ||
	    !draft_model_ready(s, most))
		return n;
	struct spec_price price;
	draft_model_price(s, n_together, &price);
	uint32_t by_model = cfg->spec_fixed ? most : spec_length(small, now, past, most, &price);
	if (by_model == 0)
		return n;
	sp->source = SPEC_MODEL;
	return by_model;
}

static void drop_state(struct eng_seq *s)
{
	if (s->spec.state >= 0)
		kv_states_give(s->model->states, s->spec.state);
	s->spec.state = -1;
}

/* Copies the state of s, where there is one. False: there is no slot for it. */
static bool keep_state(struct eng_seq *s)
{
	struct eng_model *m = s->model;
	if (m->states == NULL)
		return true;
	drop_state(s);
	s->spec.state = prefix_state_slot(m->prefix);
	if (s->spec.state < 0)
		return false;
	if (kv_states_save(m->states, s->slot, s->spec.state) == 0)
		return true;
	drop_state(s);
	return false;
}

/* The state of s had `past` tokens before the draft: back to there, unless all of it is accepted. */
static void settle_state(struct eng_seq *s, uint32_t past, bool all, uint64_t now)
{
	struct eng_model *m = s->model;
	if (s->spec.state < 0)
		return;
	if (!all && kv_states_restore(m->states, s->spec.state, s->slot) == 0) {
		s->sched.n_past = past;
		s->sched.n_left = eng_seq_n_own(s) - past;
		sched_update(m->sched, &s->sched, now);
	}
	drop_state(s);
	prefix_computed(m->prefix, &s->path, s->tokens, s->sched.n_past, batch_row(m, s->slot));
	prefix_snapshot(m->prefix, &s->path, s->sched.n_past, s->slot);
}

void spec_prepare(struct step *st, struct eng_model *m, struct sched_plan *plan, uint64_t now)
{
	const struct eng_config *cfg = &st->e->cfg;
	if (cfg->spec_mode == ENG_SPEC_OFF)
		return;
	struct spec_now step = {.cost = &m->verify, .rows = plan->n_decode, .tokens = plan->n_decode};
	uint32_t n_wide = 0;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct eng_seq *s = seq_of(plan->run[i]);
		s->spec.n_draft = 0;
		drop_state(s);
		draft_model_back(s);
		step.past.positions += (double)s->sched.width * (s->sched.n_past + 1);
		step.past.reads += (double)s->sched.width * (s->sched.n_past + 1);
		n_wide += is_searching(s) ? s->sched.width : 0;
	}
	bool busy = plan->n_prefill > 0 || sched_n_queued(m->sched) > 0;
	if ((busy && !cfg->spec_fixed) || plan->n_decode == n_wide)
		return;
	if (m->n_drafting >= SPEC_PLAIN_EACH && !cfg->spec_fixed) {
		m->n_drafting = 0;
		return;
	}
	/* Half of the extra rows with logits are reserved for prompts. */
	uint32_t room = plan->n_prefill > 0 ? STEP_EXTRA_ROWS / 2 : STEP_EXTRA_ROWS;
	const uint32_t all_room = room;
	int n_by_model = 0;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct eng_seq *s = seq_of(plan->run[i]);
		bool plain = s->state == SEQ_DECODE && s->sched.n_left == 1 && !is_searching(s);
		uint32_t most = plain ? most_of(st, s, room, now) : 0;
		if (most == 0)
			continue;
		uint32_t n = choose(st, s, &step, most, plan->n_decode - n_wide);
		if (n > 0 && !keep_state(s))
			continue;
		n = n > 0 ? sched_grant_draft(m->sched, plan, &s->sched, n) : 0;
		if (n == 0) {
			drop_state(s);
			continue;
		}
		s->spec.n_draft = (uint8_t)n;
		spec_now_add(&step, &s->spec.rates[s->spec.source], s->sched.n_past, n);
		room -= n;
		if (s->spec.source == SPEC_MODEL)
			st->want_seqs[n_by_model++] = s;
	}
	m->n_drafting = room < all_room ? m->n_drafting + 1 : 0;
	if (n_by_model > 0)
		draft_model_draft(st, m, st->want_seqs, n_by_model);
}

bool spec_pays(struct step *st, struct eng_model *m, const struct step_in_flight *f, uint64_t now)
{
	const struct eng_config *cfg = &st->e->cfg;
	if (cfg->spec_mode == ENG_SPEC_OFF || (sched_n_queued(m->sched) > 0 && !cfg->spec_fixed))
		return false;
	struct spec_now step = {.cost = &m->verify};
	for (int i = 0; i < f->b.n_want; i++) {
		const struct eng_seq *s = f->wants[i].s;
		if (s == NULL || s->state != SEQ_DECODE)
			continue;
		step.rows++;
		step.tokens++;
		batch_attend(&step.past, s->sched.n_past, 1);
	}
	for (int i = 0; i < f->b.n_want; i++) {
		struct eng_seq *s = f->wants[i].s;
		bool plain = s != NULL && s->state == SEQ_DECODE && s->credit > 0 && !is_searching(s);
		uint32_t most = plain ? most_of(st, s, STEP_EXTRA_ROWS, now) : 0;
		if (most == 0)
			continue;
		/* A rejected chance counts here, an accepted one when spec_prepare takes it. */
		struct spec_rate rates[SPEC_SOURCES];
		init_rates(s);
		memcpy(rates, s->spec.rates, sizeof rates);
		if (choose(st, s, &step, most, (uint32_t)step.rows) == 0)
			continue;
		memcpy(s->spec.rates, rates, sizeof rates);
		return true;
	}
	return false;
}

void spec_rows(struct step *st, struct batch *b, struct eng_seq *s)
{
	uint32_t past = s->sched.n_past, n = s->spec.n_draft;
	for (uint32_t i = 0; i < n; i++) {
		batch_add_row(st, b, s->slot, past + i, s->spec.draft[i]);
		batch_want(st, b, s);
	}
	b->attended.positions += (double)cost_positions(past, n);
	b->attended.reads += n;
	b->n_extra_rows += n;
}

void spec_accept(struct step *st, struct eng_seq *s, float *logits, uint64_t now)
{
	struct engine *e = st->e;
	struct eng_model *m = s->model;
	size_t n_vocab = (size_t)m->info.arch.n_vocab;
	uint32_t n_draft = s->spec.n_draft, n_compared = 0, n_accepted = 0;
	struct spec_rate *rate = &s->spec.rates[s->spec.source];
	struct seq_spec *total = s->choices != NULL ? &s->choices->lead->spec : &s->spec;
	uint32_t past = s->sched.n_past - 1; /* before the step's rows: its last token and the draft */
	s->spec.n_draft = 0;
	atomic_fetch_add(&e->spec_drafts, 1);
	atomic_fetch_add(&e->spec_drafted, n_draft);
	m->figures.spec_drafts++;
	m->figures.spec_drafted += n_draft;
	total->n_drafted += n_draft; /* first: DONE may be sent within the loop */
	for (uint32_t row = 0;; row++) {
		batch_draw(st, s, logits + row * n_vocab, now);
		if (s->state != SEQ_DECODE || row == n_draft)
			break;
		n_compared++;
		if (s->tokens[eng_seq_n_tokens(s) - 1] != s->spec.draft[row])
			break;
		/* Without the next mask, the draft ends here, and a later step computes its last token again. */
		if (!mask_make(st, &s->constraint, &s->constraint.now, GRAMMAR_SLICE / 8))
			break;
		n_accepted++;
		total->n_accepted++;
		/* Its row is already computed, as if by this step. */
		BUG_IF(s->credit == 0, "a draft beyond the credit");
		s->sched.n_past++;
		if (s->spec.state < 0)
			prefix_computed(m->prefix, &s->path, s->tokens, s->sched.n_past, batch_row(m, s->slot));
	}
	atomic_fetch_add(&e->spec_accepted, n_accepted);
	atomic_fetch_add(&e->decode_tokens, n_accepted);
	m->figures.spec_accepted += n_accepted;
	m->figures.decode_tokens += n_accepted;
	if (n_compared > 0) {
		spec_rate_learn(rate, n_compared, n_accepted);
		if (s->spec.source == SPEC_MODEL)
			m->draft_accept += recent * (rate->accept - m->draft_accept);
	}
	if (s->state != SEQ_DECODE)
		return;
	settle_state(s, past, n_accepted == n_draft, now);
	batch_trim_pages(s);
}

void spec_release(struct eng_seq *s)
{
	s->spec.n_draft = 0;
	drop_state(s);
	draft_model_drop(s);
}
