/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of one model: the scheduler's plan, the flat arrays of the forward pass, and a token
 * for every sequence whose last row was computed.
 *
 * A sequence is a list of tokens of which the first n_past are in its pages. Prefill, decode and
 * computing again after a pre-emption are the same thing: rows for the tokens after n_past. Since
 * a row's result depends on its own past only (kernels.h) and the draw on seed and index only
 * (sampler.h), what a sequence says does not depend on who shares its steps or on how often it was
 * pre-empted.
 *
 * The plan counts pages and the pool has them; when an allocation fails all the same (a fault
 * point), the sequence sits this step out.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step.h"

enum { TOKENS_GROW = 64, RETRY_MS = 1 };

/* ---- places and pages ---- */

static int32_t *page_row(const struct eng_seq *s)
{
	return s->model->page_tables + (size_t)s->place * s->model->max_pages;
}

void batch_release(struct eng_seq *s)
{
	if (s->place < 0)
		return;
	int32_t *row = page_row(s);
	for (uint32_t i = 0; i < s->n_pages; i++)
		kv_page_unref(s->model->pool, row[i]);
	s->n_pages = 0;
	s->n_past = 0;
	s->model->places[s->place] = NULL;
	s->place = -1;
}

static void take_place(const struct step *st, struct eng_seq *s)
{
	int n = st->e->cfg.max_sequences, i = 0;
	while (i < n && s->model->places[i] != NULL)
		i++;
	BUG_IF(i == n, "the plan starts more sequences than there are places");
	s->model->places[i] = s;
	s->place = i;
}

/* Pages for the positions below n_tokens. */
static int take_pages(struct eng_seq *s, uint32_t n_tokens)
{
	uint32_t page_tokens = (uint32_t)kv_page_tokens(s->model->pool);
	uint32_t want = (n_tokens + page_tokens - 1) / page_tokens;
	BUG_IF(want > s->model->max_pages, "a sequence beyond its context");
	while (s->n_pages < want) {
		int rc = kv_page_alloc(s->model->pool, &page_row(s)[s->n_pages]);
		if (rc != 0)
			return rc;
		s->n_pages++;
	}
	return 0;
}

/* ---- the plan ---- */

static void look(struct step *st, struct eng_model *m)
{
	st->n_views = 0;
	list_each(it, &st->all) {
		struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (s->model != m || s->state == SEQ_TEXT)
			continue;
		BUG_IF(st->n_views == st->max_seqs, "more sequences than were let in");
		st->view_seqs[st->n_views] = s;
		st->views[st->n_views++] = (struct sched_seq){
		    .order = s->order,
		    .share = s->tenant->share,
		    .served_ns = s->served_ns,
		    .due_ns = eng_seq_due(s),
		    .n_past = s->n_past,
		    .n_left = eng_seq_n_tokens(s) - s->n_past,
		    .n_pages = s->n_pages,
		    .priority = s->priority,
		    .started = s->place >= 0,
		    .prefilling = s->state != SEQ_DECODE,
		    .credit = s->credit > 0,
		};
	}
}

static bool evict_planned(struct step *st)
{
	bool any = false;
	for (size_t i = 0; i < st->n_views; i++) {
		if (!st->views[i].evict)
			continue;
		batch_release(st->view_seqs[i]);
		eng_seq_set_state(&st->e->counters, st->view_seqs[i], SEQ_WAITING);
		any = true;
	}
	return any;
}

/* ---- the batch ---- */

struct batch {
	int n_rows, n_want;
	uint32_t n_decode, n_prefill;
};

/* Adds the planned rows of s. */
static void add_rows(struct step *st, struct batch *b, struct eng_seq *s, uint32_t n, uint64_t now)
{
	if (s->place < 0) {
		take_place(st, s);
		eng_seq_set_state(&st->e->counters, s, SEQ_PREFILL);
		if (s->started_ns == 0)
			s->started_ns = now;
	}
	if (take_pages(s, s->n_past + n) != 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		int row = b->n_rows++;
		st->row_token[row] = s->tokens[s->n_past + i];
		st->row_pos[row] = (int32_t)(s->n_past + i);
		st->row_seq[row] = s->place;
	}
	bool decoding = s->state == SEQ_DECODE;
	b->n_decode += decoding;
	b->n_prefill += decoding ? 0 : n;
	s->tenant->share += (uint64_t)n * (decoding ? SCHED_DECODE_WEIGHT : SCHED_PREFILL_WEIGHT);
	s->served_ns = now;
	s->n_past += n;
	if (s->n_past == eng_seq_n_tokens(s)) {
		st->want[b->n_want] = b->n_rows - 1;
		st->want_seqs[b->n_want++] = s;
	}
}

static void collect(struct step *st, struct batch *b, uint64_t now)
{
	/* Decodes first: they are what somebody is reading. */
	for (int prefill = 0; prefill < 2; prefill++) {
		for (size_t i = 0; i < st->n_views; i++) {
			const struct sched_seq *v = &st->views[i];
			if (v->n_tokens > 0 && v->prefilling == (prefill == 1))
				add_rows(st, b, st->view_seqs[i], v->n_tokens, now);
		}
	}
}

static double average(double before, double now)
{
	return before == 0 ? now : before + (now - before) / 8;
}

static void measure(struct engine *e, struct eng_model *m, const struct batch *b, uint64_t took_ns)
{
	double ns = (double)took_ns;
	if (b->n_prefill == 0) {
		m->ns_per_decode_step = average(m->ns_per_decode_step, ns);
	} else {
		double decodes = b->n_decode > 0 ? m->ns_per_decode_step : 0;
		ns -= decodes < ns / 2 ? decodes : ns / 2;
		m->ns_per_prefill_token = average(m->ns_per_prefill_token, ns / b->n_prefill);
	}
	atomic_fetch_add(&e->steps, 1);
	atomic_fetch_add(&e->prefill_tokens, b->n_prefill);
	atomic_fetch_add(&e->decode_tokens, b->n_decode);
	atomic_store(&e->us_per_prefill_token, (unsigned)(m->ns_per_prefill_token / 1e3));
	atomic_store(&e->us_per_decode_step, (unsigned)(m->ns_per_decode_step / 1e3));
}

/* ---- tokens ---- */

static int append_token(struct eng_seq *s, int32_t id)
{
	size_t n = eng_seq_n_tokens(s);
	if (n == s->tokens_cap) {
		int32_t *grown = sl_realloc_n(s->tokens, n + TOKENS_GROW, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		s->tokens = grown;
		s->tokens_cap = n + TOKENS_GROW;
	}
	s->tokens[n] = id;
	s->n_made++;
	if (s->counts != NULL && s->counts[id] < UINT16_MAX)
		s->counts[id]++;
	return 0;
}

static void tell_token(struct step *st, struct eng_seq *s, struct sampler_choice choice)
{
	struct proto_token token = {.id = (uint32_t)choice.id,
				    .logprob = choice.logprob,
				    .n_bytes = (uint16_t)st->text.len};
	struct eng_event ev = {
	    .kind = ENG_TOKENS,
	    .id = s->node.key,
	    .u.tokens = {.n = 1,
			 .tokens = &token,
			 .text = {.at = (const char *)buf_data(&st->text), .n = st->text.len}}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}

/* What the token adds to the text; *stopped: the answer ends with it, and what it is not shown. */
static int release_text(struct step *st, struct eng_seq *s, int32_t id, bool *stopped)
{
	const struct tokenizer *t = model_tokenizer(s->model->model);
	if (tokenizer_is_end(t, id) && !s->ignore_eos) {
		*stopped = true;
		return text_stream_finish(&s->stream, &st->text);
	}
	enum tok_attr attr = tokenizer_attr(t, id);
	int rc = 0;
	if (attr != TOK_CONTROL && attr != TOK_UNUSED && attr != TOK_UNKNOWN) {
		struct proto_str bytes = tokenizer_bytes(t, id);
		rc = text_stream_push(&s->stream, bytes.at, bytes.n, &st->text, stopped);
	}
	if (rc == 0 && !*stopped && s->n_made >= s->max_tokens)
		rc = text_stream_finish(&s->stream, &st->text);
	return rc;
}

/* The draw for one sequence; it may end, and then s is gone. */
static void draw(struct step *st, struct eng_seq *s, float *logits, uint64_t now)
{
	struct sampler_choice choice =
	    sampler_draw(&s->sampling, logits, s->model->info.arch.n_vocab, s->counts, s->n_made,
			 st->scratch);
	if (choice.id < 0) {
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_INTERNAL,
			    "The model produced no usable result.");
		return;
	}
	bool stopped = false;
	buf_clear(&st->text, PROTO_MAX_TEXT_PER_FRAME);
	int rc = append_token(s, choice.id);
	if (rc == 0)
		rc = release_text(st, s, choice.id, &stopped);
	if (rc != 0) {
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED,
			    "The engine is out of memory.");
		return;
	}
	if (s->first_ns == 0)
		s->first_ns = now;
	s->credit--;
	eng_seq_pace(s, now);
	if (!stopped || st->text.len > 0)
		tell_token(st, s, choice);
	if (stopped)
		step_finish(st, s, PROTO_FINISH_STOP, 0, "");
	else if (s->n_made >= s->max_tokens)
		step_finish(st, s, PROTO_FINISH_LENGTH, 0, "");
	else if (s->state == SEQ_PREFILL)
		eng_seq_set_state(&st->e->counters, s, SEQ_DECODE);
}

bool batch_step(struct step *st, struct eng_model *m, uint64_t *next_due_ns)
{
	struct sched_plan plan;
	struct batch b = {0};
	uint64_t now = clock_now_ns();
	look(st, m);
	if (st->n_views == 0)
		return false;
	sched_plan(&st->sched, st->views, st->n_views, st->order,
		   (uint32_t)kv_pool_n_free(m->pool), now, &plan);
	if (plan.next_due_ns < *next_due_ns)
		*next_due_ns = plan.next_due_ns;
	bool changed = evict_planned(st);
	collect(st, &b, now);
	if (b.n_rows == 0) {
		/* Pages that the pool refused are asked for again soon, not in a loop. */
		if (plan.n_decode + plan.n_prefill > 0 && now + RETRY_MS * NS_PER_MS < *next_due_ns)
			*next_due_ns = now + RETRY_MS * NS_PER_MS;
		return changed && plan.n_decode + plan.n_prefill == 0;
	}
	struct kn_step step = {.n_rows = b.n_rows,
			       .row_token = st->row_token,
			       .row_pos = st->row_pos,
			       .row_seq = st->row_seq,
			       .n_seqs = st->e->cfg.max_sequences,
			       .page_table = m->page_tables,
			       .max_pages = (int)m->max_pages};
	int rc = model_forward(m->model, &step, kv_pool_layout(m->pool), st->want, b.n_want,
			       st->logits);
	if (rc != 0) {
		step_fail_model(st, m, "the device failed in a step");
		return true;
	}
	uint64_t done = clock_now_ns();
	measure(st->e, m, &b, done - now);
	for (int i = 0; i < b.n_want; i++)
		draw(st, st->want_seqs[i], st->logits + (size_t)i * (size_t)m->info.arch.n_vocab,
		     done);
	return true;
}
