/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts by the small model of a pair: one model of role small and one of role large whose token ids have the same
 * bytes and kinds. Both must be ready. One on demand drafts while its weights are in memory: drafts use it, but bring
 * nothing in.
 *
 * A sequence with drafts has a second KV sequence, the small model's, in a smaller pool that holds nothing else; its
 * page table is the row of the sequence's slot. It follows the large model's text: small_past drops what was rejected,
 * and missing tokens are computed before the next draft, a chunk at a time. It lives as long as the slot; when draft
 * pages run out, sequences that are not drafting lose theirs first.
 *
 * A small model whose layers keep states has states of its own for these sequences. Before a draft the state of the
 * text so far is copied; it goes back there unless all drafts that it has taken in have become the text.
 *
 * Drafts are drawn like the answer, with the same random numbers, so models that agree draw the same token. All
 * sequences draft together, one step of the small model per token of the longest draft. A fault of the small model's
 * device ends that model and its drafts.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/step/in_flight.h"
#include "engine/step/model_residency.h"
#include "engine/step/spec_step.h"

enum { LEAST_CHUNK = 8 };

/* ---- the pair ---- */

bool spec_may_draft(const struct engine *e, const struct eng_model *m)
{
	bool wanted = e->cfg.spec_mode == ENG_SPEC_DRAFT || e->cfg.spec_mode == ENG_SPEC_AUTO;
	if (!wanted || m->role != PROTO_ROLE_SMALL || !m->inspected)
		return false;
	for (int i = 0; i < e->n_models; i++) {
		if (e->models[i].role == PROTO_ROLE_LARGE && e->models[i].inspected)
			return true;
	}
	return false;
}

/* Its states are rows of the slots of one model's sequences. */
static bool has_a_pair(const struct engine *e, const struct eng_model *small)
{
	for (int i = 0; i < e->n_models; i++)
		if (small->draft_states != NULL && e->models[i].drafter == small)
			return true;
	return false;
}

static void pair(struct engine *e, struct eng_model *large, struct eng_model *small)
{
	if (large->shown.tokenizer != small->shown.tokenizer) {
		log_warn("model %s can't draft for %s: their tokens differ", small->name, large->name);
		return;
	}
	large->draft_tables = sl_zalloc_n((size_t)e->cfg.max_sequences * small->max_pages, sizeof(int32_t));
	if (large->draft_tables == NULL) {
		log_warn("model %s can't draft for %s: out of memory", small->name, large->name);
		return;
	}
	large->drafter = small;
	large->draft_accept[SPEC_MODEL] = 0.5;
	log_info("model %s drafts for %s", small->name, large->name);
}

void spec_pair(struct step *st, struct eng_model *m)
{
	struct engine *e = st->e;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *other = &e->models[i];
		struct eng_model *small = m->role == PROTO_ROLE_SMALL ? m : other;
		struct eng_model *large = m->role == PROTO_ROLE_SMALL ? other : m;
		if (small->role == PROTO_ROLE_SMALL && large->role == PROTO_ROLE_LARGE &&
		    atomic_load(&other->state) == PROTO_MODEL_READY && small->draft_pool != NULL &&
		    large->drafter == NULL && !has_a_pair(e, small))
			pair(e, large, small);
	}
}

void spec_unpair(struct eng_model *m)
{
	kv_states_destroy(m->draft_states);
	kv_pool_destroy(m->draft_pool);
	sl_free(m->draft_tables);
}

static bool ready(const struct eng_seq *s, uint32_t most)
{
	const struct eng_model *small = s->model->drafter;
	if (small == NULL || atomic_load(&small->state) != PROTO_MODEL_READY || !model_is_here(small) ||
	    !in_flight_may_forward(small))
		return false;
	uint64_t n = (uint64_t)eng_seq_n_tokens(s) + most, page_tokens = (uint64_t)kv_page_tokens(small->draft_pool);
	return n <= small->n_ctx && n <= (uint64_t)kv_pool_n_pages(small->draft_pool) * page_tokens;
}

/* ---- pages ---- */

static int32_t *table_of(const struct eng_seq *s)
{
	return s->model->draft_tables + (size_t)s->slot * s->model->drafter->max_pages;
}

static void drop(struct eng_seq *s)
{
	while (s->spec.small_pages > 0)
		kv_page_unref(s->model->drafter->draft_pool, table_of(s)[--s->spec.small_pages]);
	if (s->spec.small_state >= 0)
		kv_states_give(s->model->drafter->draft_states, s->spec.small_state);
	s->spec.small_state = -1;
	s->spec.small_past = s->spec.small_kept = s->spec.small_fed = 0; /* a row at position 0 begins anew */
}

/* Keeps the state of all tokens of s, which the small model has. */
static void keep_small(struct eng_seq *s)
{
	struct kv_states *states = s->model->drafter->draft_states;
	if (states == NULL)
		return;
	if (s->spec.small_state < 0)
		s->spec.small_state = kv_states_take(states); /* there is one for each slot */
	s->spec.small_kept = s->spec.small_past;
	s->spec.small_fed = 0;
	/* A fault shows in the next step. */
	(void)kv_states_save(states, s->slot, s->spec.small_state);
}

/* Whether the drafts that the state has taken in are the text now. */
static bool fed_the_text(const struct eng_seq *s)
{
	const struct seq_spec *p = &s->spec;
	if (p->small_kept + p->small_fed > eng_seq_n_tokens(s))
		return false;
	for (uint32_t i = 0; i < p->small_fed; i++)
		if (s->tokens[p->small_kept + i] != p->draft[i])
			return false;
	return true;
}

static void back(struct eng_seq *s)
{
	struct seq_spec *p = &s->spec;
	if (p->small_state < 0) {
		if (p->small_past > s->sched.n_past)
			p->small_past = s->sched.n_past;
		return;
	}
	if (!fed_the_text(s)) {
		(void)kv_states_restore(s->model->drafter->draft_states, p->small_state, s->slot);
		p->small_past = p->small_kept;
	}
	p->small_fed = 0;
}

/* Frees the draft pages of a sequence that is not drafting. */
static bool drop_another(const struct step *st, struct eng_model *m)
{
	for (int i = 0; i < st->e->cfg.max_sequences; i++) {
		struct eng_seq *s = m->slots[i];
		if (s != NULL && s->slot == i && s->spec.small_pages > 0 && s->spec.n_draft == 0) {
			drop(s);
			return true;
		}
	}
	return false;
}

static bool take_pages(const struct step *st, struct eng_seq *s, uint32_t n_tokens)
{
	struct kv_pool *pool = s->model->drafter->draft_pool;
	uint32_t page_tokens = (uint32_t)kv_page_tokens(pool);
	uint32_t want = (n_tokens + page_tokens - 1) / page_tokens;
	while (s->spec.small_pages < want) {
		if (kv_pool_n_free(pool) == 0 && !drop_another(st, s->model))
			return false;
		if (kv_page_alloc(pool, &table_of(s)[s->spec.small_pages]) != 0)
			return false;
		s->spec.small_pages++;
	}
	return true;
}

/* ---- drafting ---- */

/* Rows that the small model may compute to catch up within half the ITL target. */
static uint32_t chunk_rows(const struct step *st, const struct eng_model *small, uint32_t past)
{
	uint32_t rows = (uint32_t)small->step_tokens;
	if (st->e->cfg.itl_target_ms == 0)
		return rows;
	double ns = (double)st->e->cfg.itl_target_ms * (double)NS_PER_MS / 2;
	uint32_t within = cost_rows_within(&small->cost, 0, ns, past, rows);
	uint32_t least = rows < LEAST_CHUNK ? rows : LEAST_CHUNK;
	return within > least ? within : least;
}

static void price(const struct eng_seq *s, uint32_t n_together, struct spec_price *out)
{
	const struct eng_model *small = s->model->drafter;
	uint32_t behind = eng_seq_n_tokens(s) - s->spec.small_past;
	*out = (struct spec_price){.each_ns = cost_rows_ns(&small->verify, n_together) / n_together,
				   .spread = spec_spread(s)};
	/* The cost of catching up with a sequence that it has not followed. */
	if (behind > SPEC_MAX_DRAFT + 1)
		out->once_ns = cost_added_ns(&small->cost, 0, s->spec.small_past, behind);
}

struct drafting {
	struct step *st;
	struct eng_model *small;
	const int32_t *tables;
	struct batch b;
};

/* Adds rows for tokens of s that the small model lacks. False: some are still missing after this step. */
static bool catch_up(struct drafting *d, struct eng_seq *s)
{
	uint32_t n = eng_seq_n_tokens(s), past = s->spec.small_past, left = n - past;
	uint32_t room = chunk_rows(d->st, d->small, past);
	room = room > (uint32_t)d->b.n_rows ? room - (uint32_t)d->b.n_rows : 0;
	uint32_t rows = left < room ? left : room;
	if (!take_pages(d->st, s, past + rows + s->spec.n_draft))
		return false;
	for (uint32_t i = 0; i < rows; i++)
		batch_add_row(d->st, &d->b, s->slot, past + i, s->tokens[past + i]);
	batch_attend(&d->b.attended, past, rows);
	s->spec.small_past += rows;
	return rows == left;
}

static int forward(struct drafting *d)
{
	struct step *st = d->st;
	struct eng_model *small = d->small;
	struct kn_step step = {.n_rows = d->b.n_rows,
			       .row_token = st->row_token,
			       .row_pos = st->row_pos,
			       .row_seq = st->row_seq,
			       .n_seqs = st->e->cfg.max_sequences,
			       .page_table = d->tables,
			       .max_pages = (int)small->max_pages};
	uint64_t begin = clock_now_ns();
	kv_states_in_step(small->draft_states, &step);
	int rc =
	    model_forward(small->model, &step, kv_pool_layout(small->draft_pool), st->want, d->b.n_want, st->logits);
	if (rc != 0)
		return rc;
	double took = (double)(clock_now_ns() - begin);
	if (d->b.n_want == d->b.n_rows)
		spec_cost_learn(&small->verify, (uint32_t)d->b.n_rows, d->b.attended, took);
	else
		cost_learn(&small->cost, (uint32_t)d->b.n_rows, d->b.attended, took);
	return 0;
}

static void draft(struct step *st, struct eng_model *m, struct eng_seq **seqs, int n)
{
	struct drafting d = {.st = st, .small = m->drafter, .tables = m->draft_tables};
	int left = 0;
	for (int i = 0; i < n; i++) {
		struct eng_seq *s = seqs[i];
		if (!catch_up(&d, s))
			continue;
		st->want[d.b.n_want++] = d.b.n_rows - 1;
		seqs[i] = seqs[left];
		seqs[left++] = s;
	}
	int rc = d.b.n_rows > 0 ? forward(&d) : 0;
	for (int i = 0; i < left && rc == 0; i++)
		if (seqs[i]->spec.n_draft > 1 || seqs[i]->spec.small_state < 0)
			keep_small(seqs[i]);
	/* All others keep n_draft until here, so that none loses its pages to a drafting sequence. */
	for (int i = left; i < n; i++)
		seqs[i]->spec.n_draft = 0;
	n = left;
	for (uint32_t k = 0; n > 0; k++) {
		if (rc != 0) {
			for (int i = 0; i < n; i++)
				seqs[i]->spec.n_draft = (uint8_t)k;
			break;
		}
		size_t n_vocab = (size_t)d.small->info.arch.n_vocab;
		d.b = (struct batch){0};
		left = 0;
		for (int i = 0; i < n; i++) {
			struct eng_seq *s = seqs[i];
			s->spec.draft[k] = spec_drafted(st, s, k, st->logits + (size_t)i * n_vocab);
			if (s->spec.draft[k] < 0) {
				s->spec.n_draft = (uint8_t)k;
				continue;
			}
			if (k + 1 == s->spec.n_draft)
				continue;
			uint32_t pos = s->spec.small_past++;
			s->spec.small_fed++;
			batch_add_row(st, &d.b, s->slot, pos, s->spec.draft[k]);
			st->want[d.b.n_want++] = d.b.n_rows - 1;
			batch_attend(&d.b.attended, pos, 1);
			seqs[left++] = s;
		}
		n = left;
		rc = n > 0 ? forward(&d) : 0;
	}
	if (rc != 0)
		step_fail_model(st, d.small, "the device failed in a draft");
}

const struct spec_drafter model_drafter = {.ready = ready, .price = price, .draft = draft, .back = back, .drop = drop};
