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
 * waits to start. A draft never exceeds credit, pace or the answer's length. Every decode step goes to the model's
 * account (spec.h), which decides whether the next one may draft at all; steps that also recompute tokens do not.
 *
 * A state has passed rejected tokens, too. So where layers keep one, it is copied before the draft. When a token is
 * rejected, the copy returns, and the next step computes the accepted tokens again. Drafts end where a snapshot is due.
 * Such a model makes no drafts for others.
 */
#include "engine/step/spec_step.h"

#include "base/clock.h"
#include "engine/step/in_flight.h"

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

/* What drafts besides the text itself, in the order in which equal ones are chosen. */
static const struct {
	enum spec_source source;
	const struct spec_drafter *is;
	int mode; /* the one that names it */
} drafters[] = {{SPEC_HEAD, &head_drafter, ENG_SPEC_HEAD}, {SPEC_MODEL, &model_drafter, ENG_SPEC_DRAFT}};

enum { N_DRAFTERS = sizeof drafters / sizeof *drafters };

static void init_rates(struct eng_seq *s)
{
	if (s->spec.rates[0].accept > 0)
		return;
	spec_rate_init(&s->spec.rates[SPEC_NGRAM], 0.5);
	for (int i = 0; i < N_DRAFTERS; i++)
		spec_rate_init(&s->spec.rates[drafters[i].source], s->model->draft_accept[drafters[i].source]);
}

/* Of the drafters that are accepted more often than `surer` the one with which the step makes most: sets the source and
 * returns the length; 0: none. */
static uint32_t choose_drafter(const struct step *st, struct eng_seq *s, const struct spec_now *now, uint32_t most,
			       uint32_t n_together, double surer, struct spec_price *best_price)
{
	const struct eng_config *cfg = &st->e->cfg;
	struct seq_spec *sp = &s->spec;
	struct spec_account *account = &s->model->spec;
	struct spec_price before = {0};
	uint32_t past = s->sched.n_past, best = 0;
	for (int i = 0; i < N_DRAFTERS; i++) {
		const struct spec_rate *rate = &sp->rates[drafters[i].source];
		struct spec_price price;
		bool named = cfg->spec_mode == drafters[i].mode || cfg->spec_mode == ENG_SPEC_AUTO;
		if (!named || rate->accept <= surer || (cfg->spec_fixed && best > 0) || !drafters[i].is->ready(s, most))
			continue;
		drafters[i].is->price(s, n_together, &price);
		uint32_t n = cfg->spec_fixed ? most
					     : spec_length(rate, &account->trials[drafters[i].source], account->steps,
							   now, past, most, &price);
		if (n == 0 || (best > 0 && spec_gain(rate, now, past, most, &price) <=
					       spec_gain(&sp->rates[sp->source], now, past, most, &before)))
			continue;
		before = price;
		*best_price = price;
		sp->source = (uint8_t)drafters[i].source;
		best = n;
	}
	return best;
}

/* Chooses source and length of a draft for s; makes it if the source is the n-grams. */
static uint32_t choose(struct step *st, struct eng_seq *s, const struct spec_now *now, uint32_t most,
		       uint32_t n_together, struct spec_price *price)
{
	const struct eng_config *cfg = &st->e->cfg;
	struct seq_spec *sp = &s->spec;
	struct spec_account *account = &s->model->spec;
	const struct spec_rate *said = &sp->rates[SPEC_NGRAM];
	uint32_t past = s->sched.n_past, n = 0;
	init_rates(s);
	*price = (struct spec_price){0};
	if (cfg->spec_mode == ENG_SPEC_NGRAM || cfg->spec_mode == ENG_SPEC_AUTO)
		n = ngram_draft(&sp->said, s->tokens, eng_seq_n_tokens(s), sp->draft, most);
	n = mask_cut(st, &s->constraint, sp->draft, n);
	if (n > 0 && !cfg->spec_fixed)
		n = spec_length(said, &account->trials[SPEC_NGRAM], account->steps, now, past, n, price);
	sp->source = SPEC_NGRAM;
	double surer = n == 0 ? 0 : cfg->spec_fixed ? 1 : said->accept;
	uint32_t by_other = choose_drafter(st, s, now, most, n_together, surer, price);
	return by_other > 0 ? by_other : n;
}

uint32_t spec_spread(const struct eng_seq *s)
{
	uint32_t usual = (uint32_t)s->model->spec.length + 1, to_come = s->max_tokens - s->n_made;
	return least(to_come, least(usual, SPEC_SPREAD));
}

static void draft_all(struct step *st, struct eng_model *m, const struct sched_plan *plan)
{
	for (int i = 0; i < N_DRAFTERS; i++) {
		int n = 0;
		for (uint32_t k = 0; k < plan->n_run; k++) {
			struct eng_seq *s = seq_of(plan->run[k]);
			if (s->spec.n_draft > 0 && s->spec.source == drafters[i].source)
				st->want_seqs[n++] = s;
		}
		if (n > 0)
			drafters[i].is->draft(st, m, st->want_seqs, n);
	}
}

int32_t spec_drafted(struct step *st, struct eng_seq *s, uint32_t k, float *logits)
{
	struct seq_constraint *c = &s->constraint;
	bool ready = mask_make(st, c, k == 0 ? &c->now : &c->ahead, GRAMMAR_SLICE / 8);
	return ready ? batch_peek(st, s, k, logits) : -1;
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

void spec_prepare(struct step *st, struct eng_model *m, struct sched_plan *plan, struct batch *b, uint64_t now)
{
	const struct eng_config *cfg = &st->e->cfg;
	if (cfg->spec_mode == ENG_SPEC_OFF)
		return;
	struct spec_now step = {
	    .cost = &m->verify, .beside_ns = m->spec.beside_ns, .rows = plan->n_decode, .tokens = plan->n_decode};
	uint32_t n_wide = 0;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct eng_seq *s = seq_of(plan->run[i]);
		s->spec.n_draft = 0;
		drop_state(s);
		for (int k = 0; k < N_DRAFTERS; k++)
			drafters[k].is->back(s);
		step.past.positions += (double)s->sched.width * (s->sched.n_past + 1);
		step.past.reads += (double)s->sched.width * (s->sched.n_past + 1);
		n_wide += is_searching(s) ? s->sched.width : 0;
	}
	bool busy = plan->n_prefill > 0 || sched_n_queued(m->sched) > 0;
	if ((busy && !cfg->spec_fixed) || plan->n_decode == n_wide)
		return;
	if (!cfg->spec_fixed && !spec_may_draft_now(&m->spec))
		return;
	/* Half of the extra rows with logits are reserved for prompts. */
	uint32_t room = plan->n_prefill > 0 ? STEP_EXTRA_ROWS / 2 : STEP_EXTRA_ROWS;
	const uint32_t all_room = room;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct eng_seq *s = seq_of(plan->run[i]);
		bool plain = s->state == SEQ_DECODE && s->sched.n_left == 1 && !is_searching(s);
		uint32_t most = plain ? most_of(st, s, room, now) : 0;
		if (most == 0)
			continue;
		struct spec_price price;
		uint32_t n = choose(st, s, &step, most, plan->n_decode - n_wide, &price);
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
		b->draft_expected_ns += price.once_ns + price.draft_ns + n * price.each_ns;
	}
	m->spec.n_drafting = room < all_room ? m->spec.n_drafting + 1 : 0;
	if (room < all_room) {
		uint64_t begin = clock_now_ns();
		draft_all(st, m, plan);
		b->draft_ns = (double)(clock_now_ns() - begin);
	}
}

void spec_account_step(struct eng_model *m, const struct step_in_flight *f, uint32_t n_accepted, double took_ns,
		       double beside_ns)
{
	const struct batch *b = &f->b;
	const struct eng_config *cfg = &m->e->cfg;
	if (cfg->spec_mode == ENG_SPEC_OFF || cfg->spec_fixed || b->n_prefill > 0 || b->n_want != b->n_rows)
		return;
	const struct cost_past plain = {.positions = b->attended.positions - b->drafts.positions,
					.reads = b->attended.reads - b->drafts.reads};
	const struct spec_step s = {.plain_ns = cost_step_ns(&m->verify, (uint32_t)b->n_rows - b->n_draft, plain),
				    .expected_ns = cost_step_ns(&m->verify, (uint32_t)b->n_rows, b->attended) +
						   b->draft_expected_ns,
				    .took_ns = took_ns + b->draft_ns,
				    .beside_ns = beside_ns - b->draft_ns,
				    .n_decode = (uint32_t)b->n_rows - b->n_draft,
				    .n_accepted = n_accepted,
				    .drafted = b->n_draft > 0 || b->draft_ns > 0};
	spec_account_learn(&m->spec, &s);
}

bool spec_pays(struct step *st, struct eng_model *m, const struct step_in_flight *f, uint64_t now)
{
	const struct eng_config *cfg = &st->e->cfg;
	if (cfg->spec_mode == ENG_SPEC_OFF || (sched_n_queued(m->sched) > 0 && !cfg->spec_fixed))
		return false;
	struct spec_now step = {.cost = &m->verify, .beside_ns = m->spec.beside_ns};
	/* A rejected chance counts here, an accepted one when spec_prepare takes it. */
	const struct spec_account before = m->spec;
	if (!cfg->spec_fixed && !spec_may_draft_now(&m->spec))
		return false;
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
		struct spec_price price;
		if (choose(st, s, &step, most, (uint32_t)step.rows, &price) == 0)
			continue;
		m->spec = before;
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
	b->drafts.positions += (double)cost_positions(past, n);
	b->drafts.reads += n;
	b->n_draft += n;
	b->n_extra_rows += n;
}

void spec_accept(struct step *st, struct eng_seq *s, float *logits, uint64_t now)
{
	struct engine *e = st->e;
	struct eng_model *m = s->model;
	size_t n_vocab = (size_t)m->info.arch.n_vocab;
	uint32_t n_draft = s->spec.n_draft, n_compared = 0, n_accepted = 0;
	uint8_t source = s->spec.source;
	struct spec_rate *rate = &s->spec.rates[source];
	struct spec_trial *trial = &m->spec.trials[source];
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
		spec_rate_learn(rate, trial, n_compared, n_accepted);
		m->draft_accept[source] += recent * (rate->accept - m->draft_accept[source]);
	}
	if (s->state != SEQ_DECODE)
		return;
	settle_state(s, past, n_accepted == n_draft, now);
	batch_trim_pages(s);
}

void spec_release(struct eng_seq *s)
{
	s->spec.n_draft = 0;
	if (s->n_made > 0)
		spec_account_ended(&s->model->spec, s->n_made);
	drop_state(s);
	for (int i = 0; i < N_DRAFTERS; i++)
		drafters[i].is->drop(s);
}
