/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of one model: the scheduler's plan, the flat arrays of the forward pass, and a token for every sequence
 * whose last row was computed.
 *
 * A sequence is a list of tokens, of which the first n_past are in its pages. Prefill, decode and recomputation after
 * pre-emption are the same operation: rows for the tokens after n_past. A row's result depends only on its own past
 * (kernels.h), a draw only on seed and index (sampler.h), so an answer depends neither on the other sequences of its
 * steps nor on pre-emptions.
 *
 * The plan counts free pages, so allocation fails only by injected faults; the sequence then skips the step.
 */
#define LOG_SUBSYSTEM LOG_STEP

#include <math.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "engine/step/choices.h"
#include "engine/step/embed.h"
#include "engine/step/in_flight.h"
#include "engine/step/draft_prefix.h"
#include "engine/step/seq_swap.h"
#include "engine/step/spec_step.h"
#include "engine/step/kv_rebalance.h"

enum { TOKENS_GROW = 64, RETRY_MS = 1, SOON_MS = 5 };

/* ---- slots and pages ---- */

static int32_t *page_row(const struct eng_seq *s) { return batch_row(s->model, s->slot); }

/* The tokens of s that others may share: its own tokens in its pages, without unverified ones. */
static uint32_t own_past(const struct eng_seq *s)
{
	uint32_t own = eng_seq_n_own(s), past = s->sched.n_past - s->n_flying;
	return past < own ? past : own;
}

void batch_release(struct eng_seq *s)
{
	if (s->slot < 0)
		return;
	if (is_searching(s))
		beam_rows_release(s);
	spec_release(s);
	int32_t *row = page_row(s);
	prefix_end(s->model->prefix, &s->path, s->tokens, own_past(s), row);
	batch_drop_pages(s->model, row, s->sched.first_page, s->sched.n_pages);
	s->model->slots[s->slot] = NULL;
	s->slot = -1;
	s->arriving = false;
	/* The prefix tree keeps most of it until the pages are needed. */
	s->sched.n_cached = own_past(s);
	s->sched.n_left = eng_seq_n_tokens(s);
	s->sched.n_pages = s->sched.first_page = s->sched.n_past = 0;
	in_flight_leave(s);
	s->sched.prefilling = true;
	s->sched.started = false;
	s->sched.credit = s->credit > 0 && adapter_is_here(s); /* in_flight_foresee may have taken it */
}

int batch_take_slot(const struct step *st, struct eng_seq *s)
{
	int n = st->e->cfg.max_sequences, i = 0;
	while (i < n && s->model->slots[i] != NULL)
		i++;
	BUG_IF(i == n, "the plan starts more sequences than there are slots");
	s->model->slots[i] = s;
	return i;
}

int batch_take_index(const struct eng_model *m, int32_t *row, uint32_t index, uint32_t n_groups)
{
	for (uint32_t g = n_groups; g < m->kv_groups.n_groups; g++)
		*batch_page(m, row, g, index) = -1;
	for (uint32_t g = 0; g < n_groups; g++) {
		int rc = prefix_page_alloc(m->prefix, batch_page(m, row, g, index));
		if (rc == 0)
			continue;
		while (g-- > 0)
			kv_page_unref(m->pool, *batch_page(m, row, g, index));
		return rc;
	}
	return 0;
}

/* Pages of groups from `group` up to `end`, of these indices. */
static void drop_of(const struct eng_model *m, int32_t *row, uint32_t group, uint32_t end, uint32_t first, uint32_t to)
{
	for (; group < end; group++)
		for (uint32_t i = first; i < to; i++) {
			kv_page_unref(m->pool, *batch_page(m, row, group, i));
			*batch_page(m, row, group, i) = -1;
		}
}

void batch_drop_pages(const struct eng_model *m, int32_t *row, uint32_t first, uint32_t end)
{
	drop_of(m, row, 0, m->kv_groups.n_full, 0, end);
	drop_of(m, row, m->kv_groups.n_full, m->kv_groups.n_groups, first, end);
}

void batch_pass_row(const struct eng_model *m, int32_t *row, uint32_t from, uint32_t first)
{
	drop_of(m, row, m->kv_groups.n_full, m->kv_groups.n_groups, from, first);
}

/* Pages for the positions below n_tokens. */
static int take_pages(struct eng_seq *s, uint32_t n_tokens)
{
	uint32_t want = kv_groups_indices(&s->model->kv_groups, n_tokens);
	BUG_IF(want > s->model->max_pages, "a sequence beyond its context");
	while (s->sched.n_pages < want) {
		int rc = batch_take_index(s->model, page_row(s), s->sched.n_pages, s->model->kv_groups.n_groups);
		if (rc != 0)
			return rc;
		s->sched.n_pages++;
	}
	return 0;
}

void batch_cut_pages(struct eng_seq *s, uint32_t end)
{
	const struct eng_model *m = s->model;
	uint32_t first = s->sched.first_page > end ? s->sched.first_page : end;
	drop_of(m, page_row(s), 0, m->kv_groups.n_full, end, s->sched.n_pages);
	drop_of(m, page_row(s), m->kv_groups.n_full, m->kv_groups.n_groups, first, s->sched.n_pages);
	s->sched.n_pages = s->sched.n_pages < end ? s->sched.n_pages : end;
}

void batch_rewind(struct eng_seq *s)
{
	uint32_t own = eng_seq_n_own(s);
	if (s->sched.n_past <= own)
		return;
	batch_cut_pages(s, own / s->model->kv_groups.page_tokens + 1);
	s->sched.n_past = prefix_restore(s->model->prefix, &s->path, own, s->slot);
}

void batch_trim_pages(struct eng_seq *s) { batch_cut_pages(s, s->sched.n_past / s->model->kv_groups.page_tokens + 1); }

/* Gives back the pages that no row of s to come sees in windowed layers. What may be taken back, rows in flight and
 * unverified tokens, counts as still to come. */
static void pass_window(struct eng_seq *s)
{
	const struct eng_model *m = s->model;
	uint32_t first = kv_groups_first(&m->kv_groups, own_past(s));
	if (first <= s->sched.first_page)
		return;
	prefix_pass(m->prefix, &s->path, s->tokens, first);
	if (is_searching(s) && s->state == SEQ_DECODE)
		beam_rows_pass(s, first);
	else
		batch_pass_row(m, page_row(s), s->sched.first_page, first);
	s->sched.first_page = first;
}

static void pass_windows(struct eng_model *m)
{
	for (int i = 0; m->kv_groups.window > 0 && i < m->e->cfg.max_sequences; i++) {
		struct eng_seq *s = m->slots[i];
		if (s != NULL && s->slot == i)
			pass_window(s);
	}
}

void batch_wake(struct eng_model *m, uint64_t now_ns)
{
	struct prefix_waiter *w;
	while ((w = prefix_woken(m->prefix)) != NULL) {
		struct eng_seq *s = list_entry(w, struct eng_seq, waiter);
		s->sched.blocked = false;
		sched_update(m->sched, &s->sched, now_ns);
	}
}

/* ---- the plan ---- */

struct planning_for {
	struct eng_model *m;
	uint64_t now_ns;
};

/* What tells an adapter's pages on disk from others: what it adds, and its type in memory. A name that is loaded anew
 * has another version, so it never finds pages of the former. */
static struct disk_key variant_of(const struct lora_version *v)
{
	if (v == NULL)
		return (struct disk_key){0};
	const uint64_t what[] = {v->digest, (uint64_t)v->type};
	XXH128_hash_t h = XXH3_128bits(what, sizeof what);
	return (struct disk_key){.lo = h.low64, .hi = h.high64};
}

/* Whose texts s adds to the tree, by the adapter that computes them. */
static struct prefix_origin origin_of(const struct eng_seq *s)
{
	return (struct prefix_origin){.owner = s->owner, .variant = variant_of(s->lora)};
}

struct kv_disk_ask batch_disk_ask(struct eng_seq *s)
{
	return (struct kv_disk_ask){.salt = s->salt,
				    .origin = origin_of(s),
				    .tokens = s->tokens,
				    .n = eng_seq_n_own(s),
				    .turn = &s->on_disk,
				    .waiter = &s->waiter};
}

/* Whether s waits for pages from disk. */
static bool reads(struct eng_model *m, struct eng_seq *s, const struct prefix_match *match, uint64_t now)
{
	const struct kv_disk_ask ask = batch_disk_ask(s);
	return m->disk != NULL && s->swapped.n_pages == 0 && kv_disk_look(m->disk, &ask, match, now);
}

static struct kv_hand_text hand_text(const struct eng_seq *s)
{
	return (struct kv_hand_text){.salt = s->salt, .origin = origin_of(s), .tokens = s->tokens, .n = s->n_prompt};
}

void batch_await(struct eng_seq *s, const struct proto_hand *m, uint64_t now)
{
	const struct kv_hand_text text = hand_text(s);
	kv_hand_await(s->model->hand, &s->hand, s->node.key, &text, m, now);
	if (s->hand.wait != NULL)
		s->sched.n_cached = s->n_prompt - 1; /* for predictions: little of it is computed here */
}

/* Whether s waits for pages that another engine computes. */
static bool is_handed(struct eng_model *m, struct eng_seq *s, const struct prefix_match *match)
{
	const struct kv_hand_text text = hand_text(s);
	return kv_hand_waiting(m->hand) && s->swapped.n_pages == 0 && kv_hand_waits(m->hand, &text, match, &s->waiter);
}

/* What s would find in the tree if it started now. If another sequence is computing it, s waits and that sequence
 * inherits its priority. */
static void look(void *ctx, struct sched_seq *view, struct sched_look *out)
{
	const struct planning_for *p = ctx;
	struct eng_model *m = p->m;
	struct eng_seq *s = seq_of(view);
	struct prefix_match match;
	if (m->e->cfg.no_prefix_cache || s->unshared) {
		out->n_cached = seq_swap_would_have(s, 0);
		return;
	}
	prefix_lookup(m->prefix, s->salt, s->tokens, eng_seq_n_own(s), &match);
	if (match.pending != NULL) {
		struct eng_seq *other = list_entry(prefix_claimant(match.pending), struct eng_seq, path);
		sched_boost(m->sched, &other->sched, view->priority, p->now_ns);
		prefix_await(match.pending, &s->waiter);
		out->blocked = true;
		return;
	}
	if (is_handed(m, s, &match) || reads(m, s, &match, p->now_ns)) {
		out->blocked = true;
		return;
	}
	out->n_cached = seq_swap_would_have(s, match.n_tokens);
	out->n_cached_pages = match.n_pages;
	out->n_unpinned = match.n_unpinned;
}

static uint32_t pages_back(void *ctx, const struct sched_seq *view)
{
	const struct eng_seq *s = seq_of(view);
	(void)ctx;
	if (is_searching(s) && s->state == SEQ_DECODE)
		return beam_rows_pages_back(s);
	const struct kv_groups *g = &s->model->kv_groups;
	return kv_groups_held(g, view->first_page, view->n_pages) -
	       kv_groups_held(g, s->path.n_passed, s->path.n_pages) + prefix_n_exclusive(s->model->prefix, &s->path);
}

static uint32_t more_pages(void *ctx, const struct sched_seq *by, uint64_t n)
{
	const struct planning_for *p = ctx;
	return kv_rebalance_more_pages(p->m, by, n, p->now_ns);
}

void batch_preempt(struct eng_seq *s, uint64_t now)
{
	struct engine *e = s->model->e;
	seq_swap_out(s, own_past(s));
	batch_release(s);
	eng_seq_set_state(&e->counters, s, SEQ_WAITING);
	sched_update(s->model->sched, &s->sched, now);
	const unsigned long long total = atomic_fetch_add(&e->preemptions, 1) + 1;
	s->model->figures.preemptions++;
	flight_note(FLIGHT_PREEMPT, (uint64_t)s->model->index, s->node.key, eng_seq_n_own(s), total, 0);
	log_debug("model %s: sequence %llu lost its pages at %u tokens; %llu pre-emptions so far", s->model->name,
		  (unsigned long long)s->node.key, eng_seq_n_own(s), total);
}

int32_t batch_row_page(const struct eng_seq *s, int slot, uint32_t i)
{
	const struct eng_model *m = s->model;
	uint32_t first = s->sched.first_page, group, index;
	uint32_t end = is_searching(s) && s->state == SEQ_DECODE ? beam_rows_row_pages(s, slot)
		       : slot == s->slot                         ? s->sched.n_pages
								 : 0;
	if (i >= kv_groups_held(&m->kv_groups, first, end))
		return -1;
	kv_groups_at(&m->kv_groups, first, end, i, &group, &index);
	return *batch_page(m, batch_row(m, slot), group, index);
}

/* ---- the batch ---- */

/* s has got pages: the first token that is not in them is where its prompt has left the cache. */
static void note_start(const struct eng_seq *s)
{
	static const char *const misses[] = {[PROTO_MISS_NONE] = "the rest is less than a page",
					     [PROTO_MISS_NEW] = "new from there on",
					     [PROTO_MISS_EVICTED] = "evicted",
					     [PROTO_MISS_PRIVATE] = "another tenant's",
					     [PROTO_MISS_SHORT] = "the shared part ends within a page"};
	const struct eng_model *m = s->model;
	flight_note(FLIGHT_START, (uint64_t)m->index, s->node.key, s->n_prompt, s->sched.n_past, s->miss);
	log_of(LOG_CACHE, LOG_DEBUG,
	       "model %s: sequence %llu has %u prompt tokens and leaves the cache at token %u (%s)%s", m->name,
	       (unsigned long long)s->node.key, s->n_prompt, s->sched.n_past, misses[s->miss],
	       s->started_ns != 0 ? ", after a pre-emption" : "");
}

static void start(struct step *st, struct eng_seq *s, uint64_t now)
{
	struct eng_model *m = s->model;
	uint32_t n = eng_seq_n_tokens(s), own = eng_seq_n_own(s);
	s->slot = batch_take_slot(st, s);
	if (is_searching(s))
		beam_rows_start(st, s);
	eng_seq_set_state(&st->e->counters, s, SEQ_PREFILL);
	s->path = (struct prefix_path){.cut = true};
	s->sched.n_past = 0;
	const struct prefix_origin origin = origin_of(s);
	prefix_set_origin(m->prefix, &origin);
	if (!st->e->cfg.no_prefix_cache && !s->unshared)
		s->sched.n_past =
		    prefix_begin(m->prefix, s->salt, s->tokens, own, own, &s->path, page_row(s), &s->sched.n_pages);
	s->sched.first_page = s->path.n_passed;
	s->sched.n_past = prefix_restore(m->prefix, &s->path, s->sched.n_past, s->slot);
	seq_swap_in(s);
	s->sched.n_left = n - s->sched.n_past;
	s->sched.started = true;
	if (m->hand != NULL)
		kv_hand_started(m->hand, &s->hand, s->node.key);
	note_start(s);
	if (s->started_ns != 0)
		return;
	s->started_ns = now;
	/* From now on no new request can displace it. */
	pthread_mutex_lock(&st->e->index_lock);
	wait_limits_start(&st->e->wait_limits, s->choices != NULL ? &s->choices->lead->wait_entry : &s->wait_entry);
	pthread_mutex_unlock(&st->e->index_lock);
	/* What another engine has computed for it was not cached. */
	s->n_cached = s->sched.n_past > s->hand.n_came ? s->sched.n_past - s->hand.n_came : 0;
	atomic_fetch_add(&st->e->prefix_queries, s->n_prompt);
	atomic_fetch_add(&st->e->prefix_hits, s->n_cached);
	s->model->figures.prefix_queries += s->n_prompt;
	s->model->figures.prefix_hits += s->n_cached;
}

/* Adds the planned rows of s. */
static void add_rows(struct step *st, struct batch *b, struct eng_seq *s, uint64_t now)
{
	uint32_t n = s->sched.n_tokens;
	s->n_rows = 0;
	if (s->slot < 0)
		start(st, s, now);
	/* Steps of other sequences do not wait for swapped pages. */
	bool others = b->n_rows > 0 || s->model->n_in_flight > 0;
	n = n < s->sched.n_left ? n : s->sched.n_left;
	if (in_flight_must_sit_out(s) || (others && seq_swap_arriving(s)) || !mask_ready(st, s, n)) {
		sched_update(s->model->sched, &s->sched, now);
		return;
	}
	if (is_searching(s) && s->state == SEQ_DECODE) {
		beam_rows_rows(st, b, s, now);
		return;
	}
	uint32_t past = s->sched.n_past;
	struct row_range prompt_rows = prompt_rows_wanted(s), prefix_rows = draft_prefix_rows_wanted(s);
	n = rows_fit(prompt_rows, past, n, STEP_EXTRA_ROWS - b->n_extra_rows);
	n = rows_fit(prefix_rows, past, n, STEP_EXTRA_ROWS - b->n_extra_rows);
	uint32_t snapshot = prefix_next_snapshot(s->model->prefix, &s->path, past);
	if (snapshot <= eng_seq_n_own(s) && snapshot - past < n) /* of verified tokens only */
		n = snapshot - past;
	if (s->spec.n_draft > 0 && take_pages(s, past + n + s->spec.n_draft) != 0)
		s->spec.n_draft = 0;
	if (take_pages(s, past + n) == 0) {
		in_flight_keep_state(s);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t pos = past + i;
			bool coming = pos >= eng_seq_n_tokens(s);
			BUG_IF(coming && (s->n_coming == 0 || s->coming_from < 0),
			       "a row whose token no sequence draws");
			batch_add_row(st, b, s->slot, pos, coming ? 0 : s->tokens[pos]);
			st->row_type[b->n_rows - 1] = pos >= s->n_first;
			st->row_sees[b->n_rows - 1] = (int32_t)(s->model->info.arch.encoder ? s->n_prompt : pos + 1);
			if (coming)
				st->row_from[b->n_rows - 1] = s->coming_from;
			if (in_rows(prompt_rows, pos) || in_rows(prefix_rows, pos)) {
				batch_want(st, b, s);
				b->n_extra_rows++;
			}
		}
		bool decoding = !s->sched.prefilling;
		b->n_decode += decoding;
		b->n_prefill += decoding ? 0 : n;
		batch_attend(&b->attended, past, n);
		s->sched.served_ns = now;
		s->sched.n_past += n;
		s->sched.n_left -= n;
		s->n_rows = n;
		s->n_flying += n;
		if (s->embed) {
			embed_rows(st, b, s, n);
		} else if (s->sched.n_left == 0) {
			batch_want(st, b, s);
			spec_rows(st, b, s);
		}
	}
	if (s->sched.n_left > 0)
		sched_update(s->model->sched, &s->sched, now);
}

/* Predictions assume credit that arrives at once, so only such requests correct them. */
static void first_token(struct eng_seq *s, uint64_t now)
{
	s->first_ns = now;
	if (s->queued_ns != 0 && s->credited_ns <= s->queued_ns + SOON_MS * NS_PER_MS)
		cost_bias_learn(&s->model->ttft_bias[s->found_busy], s->predicted_ns, (double)(now - s->queued_ns));
}

static double average(double before, double now) { return before == 0 ? now : before + (now - before) / 8; }

static void measure(struct engine *e, struct eng_model *m, const struct step_in_flight *f, uint64_t took_ns)
{
	const struct batch *b = &f->b;
	if (b->n_decode > 0)
		sched_took(m->sched, cost_step_ns(&m->cost, (uint32_t)b->n_rows, b->attended), (double)took_ns);
	cost_learn(&m->cost, (uint32_t)b->n_rows, b->attended, (double)took_ns);
	if (e->cfg.spec_mode != ENG_SPEC_OFF && b->n_prefill == 0 && b->n_want == b->n_rows)
		spec_cost_learn(&m->verify, (uint32_t)b->n_rows, b->attended, (double)took_ns);
	if (b->n_prefill == 0)
		m->ns_per_decode_step = average(m->ns_per_decode_step, (double)took_ns);
	uint32_t n_decoded = b->n_decode - (f->n_dropped < b->n_decode ? f->n_dropped : b->n_decode);
	flight_note(FLIGHT_LANDED, (uint64_t)m->index, (uint64_t)b->n_rows, took_ns / 1000,
		    (uint64_t)kv_pool_n_free(m->pool), 0);
	atomic_fetch_add(&e->steps, 1);
	atomic_fetch_add(&e->prefill_tokens, b->n_prefill);
	atomic_fetch_add(&e->decode_tokens, n_decoded);
	m->figures.prefill_tokens += b->n_prefill;
	m->figures.decode_tokens += n_decoded;
	atomic_store(&e->us_per_prefill_token,
		     (unsigned)(cost_rows_ns(&m->cost, m->step_tokens) / 1e3 / m->step_tokens));
	atomic_store(&e->us_per_decode_step, (unsigned)(m->ns_per_decode_step / 1e3));
}

/* ---- tokens ---- */

static int append_token(struct eng_seq *s, int32_t id)
{
	size_t n = eng_seq_n_own(s);
	if (n == s->tokens_cap) {
		int32_t *grown = sl_realloc_n(s->tokens, n + TOKENS_GROW, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		s->tokens = grown;
		s->tokens_cap = n + TOKENS_GROW;
	}
	s->tokens[n] = id;
	s->n_made++;
	return sampler_needs_state(&s->sampling) ? sampler_state_add(&s->said, id) : 0;
}

void batch_report_token(struct step *st, const struct eng_seq *s, uint8_t choice, const struct sampler_choice *token,
			struct proto_str text)
{
	struct proto_token record = {.id = (uint32_t)token->id, .logprob = token->logprob, .n_bytes = (uint16_t)text.n};
	struct eng_event ev = {
	    .kind = ENG_TOKENS,
	    .id = s->node.key,
	    .u.tokens = {.n = 1,
			 .choice = choice,
			 .n_top = token->n_top,
			 .tokens = &record,
			 .tops = token->top,
			 .text = text,
			 .pieces = eng_seq_pieces(s, s->sampling.want_logprob && !isnan(token->logprob))}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}

static bool is_stop_id(const struct eng_seq *s, int32_t id)
{
	for (int i = 0; i < s->sampling.n_stop_ids; i++) {
		if (s->sampling.stop_ids[i] == id)
			return true;
	}
	return false;
}

bool batch_is_end(const struct eng_seq *s, int32_t id)
{
	if (is_stop_id(s, id))
		return true;
	return !s->sampling.ignore_eos && tokenizer_is_end(model_tokenizer(s->model->model), id);
}

struct proto_str batch_token_text(const struct eng_model *m, int32_t id)
{
	const struct tokenizer *t = model_tokenizer(m->model);
	enum tok_attr attr = tokenizer_attr(t, id);
	bool shown = attr != TOK_CONTROL && attr != TOK_UNUSED && attr != TOK_UNKNOWN;
	return shown ? tokenizer_bytes(t, id) : (struct proto_str){0};
}

/* Releases the text that the token adds. *stopped: the token ends the answer and adds no text of its own. */
static int release_text(struct step *st, struct eng_seq *s, int32_t id, bool *stopped)
{
	text_stream_may_stop(&s->stream, s->n_made >= s->sampling.min_tokens);
	struct proto_str bytes = batch_token_text(s->model, id);
	if (batch_is_end(s, id)) {
		bool by_id = is_stop_id(s, id);
		s->stop = by_id ? PROTO_STOP_ID : PROTO_STOP_NONE;
		s->stop_at = by_id ? (uint32_t)id : 0;
		*stopped = true;
		int rc = by_id && s->stream.keeps
			     ? text_stream_push(&s->stream, bytes.at, bytes.n, &st->text, &(bool){false})
			     : 0;
		return rc == 0 ? text_stream_finish(&s->stream, &st->text) : rc;
	}
	int rc = text_stream_push(&s->stream, bytes.at, bytes.n, &st->text, stopped);
	if (rc == 0 && *stopped) {
		s->stop = PROTO_STOP_STRING;
		s->stop_at = s->stream.by;
	}
	if (rc == 0 && !*stopped && s->n_made >= s->max_tokens)
		rc = text_stream_finish(&s->stream, &st->text);
	return rc;
}

int batch_take_token(struct step *st, struct eng_seq *s, int32_t id, bool *stopped)
{
	buf_clear(&st->text, PROTO_MAX_TEXT_PER_FRAME);
	int rc = append_token(s, id);
	if (rc == 0 && !batch_is_end(s, id))
		rc = constrain_take(&s->constraint, &s->constraint.now, id);
	if (rc == 0)
		rc = release_text(st, s, id, stopped);
	if (rc != 0 || *stopped || !constrain_complete(&s->constraint.now))
		return rc;
	*stopped = true;
	return text_stream_finish(&s->stream, &st->text);
}

uint8_t batch_finish_of(struct eng_seq *s, int32_t last)
{
	bool cut = s->stream.stopped || (batch_is_end(s, last) && constrain_is_partial(&s->constraint.now));
	if (s->constraint.how.grammar == NULL || !cut)
		return PROTO_FINISH_STOP;
	s->length_why = PROTO_LENGTH_STOPPED;
	return PROTO_FINISH_LENGTH;
}

static void end_answer(struct step *st, struct eng_seq *s, uint8_t finish)
{
	if (s->choices != NULL)
		choices_end(st, s, finish);
	else
		step_finish(st, s, finish, 0, "");
}

void batch_continue(struct step *st, struct eng_seq *s, uint64_t now)
{
	if (s->state == SEQ_PREFILL)
		eng_seq_set_state(&st->e->counters, s, SEQ_DECODE);
	s->sched.prefilling = false;
	s->sched.n_left = 1;
	s->sched.credit = s->credit > 0 && adapter_is_here(s);
	s->sched.due_ns = eng_seq_due(s);
	sched_update(s->model->sched, &s->sched, now);
}

/* st->choice is the next token of s. False: it ended s, which is then invalid. */
static bool take_one(struct step *st, struct eng_seq *s, uint64_t now)
{
	int32_t id = st->choice.id;
	bool stopped = false;
	if (id < 0) {
		step_fail(st, s, PROTO_ERR_INTERNAL);
		return false;
	}
	int rc = batch_take_token(st, s, id, &stopped);
	if (rc != 0) {
		step_fail_constraint(st, s, rc);
		return false;
	}
	if (s->first_ns == 0)
		first_token(s, now);
	s->credit--;
	eng_seq_pace(s, now);
	/* A token that ends the answer and adds no text is not reported, except as the last token of a constraint: a
	 * control token that closes a call. */
	bool last = stopped && !batch_is_end(s, id) && constrain_complete(&s->constraint.now);
	bool reported = !stopped || st->text.len > 0 || last;
	if (s->choices != NULL)
		choices_token(st, s, reported);
	else if (reported)
		batch_report_token(st, s, 0, &st->choice, step_text(st));
	bool ended = stopped || s->n_made >= s->max_tokens;
	if (ended)
		end_answer(st, s, stopped ? batch_finish_of(s, id) : PROTO_FINISH_LENGTH);
	return !ended;
}

static void take_choice(struct step *st, struct eng_seq *s, uint64_t now)
{
	if (take_one(st, s, now))
		batch_continue(st, s, now);
}

/* Whether s may take a token without a draw now: no log probability is wanted, and credit and pace permit it. */
static bool may_take_more(const struct eng_seq *s, uint64_t now)
{
	return s->credit > 0 && !s->sampling.want_logprob && eng_seq_due(s) <= now;
}

/* s has drawn a token: the tokens that its constraint then forces are taken at once, as far as the step has work left.
 * The next step computes them all. */
static void take_forced(struct step *st, struct eng_seq *s, uint64_t now)
{
	int32_t id;
	uint32_t n = 0;
	while (may_take_more(s, now) && (id = mask_forced(st, &s->constraint)) >= 0) {
		st->choice = (struct sampler_choice){.id = id, .logprob = NAN};
		if (!take_one(st, s, now))
			return;
		n++;
	}
	if (n == 0)
		return;
	atomic_fetch_add(&st->e->forced_tokens, n);
	atomic_fetch_add(&st->e->decode_tokens, n);
	s->model->figures.decode_tokens += n;
	batch_continue(st, s, now);
	s->sched.n_left = eng_seq_n_own(s) - s->sched.n_past;
}

int32_t batch_peek(struct step *st, struct eng_seq *s, uint32_t i, float *logits)
{
	struct sampler_params p = s->sampling;
	struct seq_constraint *c = &s->constraint;
	p.want_logprob = false;
	if (i == 0 && constrain_is_on(c))
		constrain_ahead(c);
	if (constrain_draw(c, &c->ahead, st->mask, &p) != 0)
		return -1;
	sampler_draw(&p, &s->said, logits, s->model->info.arch.n_vocab, s->n_made + i, &st->scratch, &st->choice);
	int32_t id = st->choice.id;
	bool follows = id >= 0 && !batch_is_end(s, id);
	return follows && constrain_take(c, &c->ahead, id) != 0 ? -1 : id;
}

void batch_draw(struct step *st, struct eng_seq *s, float *logits, uint64_t now)
{
	if (s->prefill_only) { /* its pages are in the tree, which was the request */
		step_finish(st, s, PROTO_FINISH_LENGTH, 0, "");
		return;
	}
	struct sampler_params p = s->sampling;
	int rc = constrain_draw(&s->constraint, &s->constraint.now, st->mask, &p);
	if (rc != 0) {
		step_fail_constraint(st, s, rc);
		return;
	}
	sampler_draw(&p, &s->said, logits, s->model->info.arch.n_vocab, s->n_made, &st->scratch, &st->choice);
	take_choice(st, s, now);
}

/* Serves the wanted rows of one sequence from the i-th on: prompt rows first, then the row of the next draw. Returns
 * the index after them. */
static int serve_rows(struct step *st, const struct step_in_flight *f, int i, uint64_t now)
{
	struct eng_seq *s = f->wants[i].s;
	if (s == NULL)
		return i + 1; /* it has ended, or another choice ended its request */
	size_t n_vocab = (size_t)s->model->info.arch.n_vocab;
	float *logits = st->logits + (size_t)i * n_vocab;
	int end = i + 1;
	while (end < f->b.n_want && f->wants[end].s == s)
		end++;
	bool drawing = f->wants[end - 1].drawing;
	s->n_coming -= drawing;
	bool usable = true, decoding = s->state == SEQ_DECODE;
	if (decoding && is_searching(s)) {
		beam_rows_serve(st, s, logits, now);
		return end;
	}
	if (decoding && s->spec.n_draft > 0) {
		spec_accept(st, s, logits, now);
		return end;
	}
	if (s->draft_prefix.open) {
		draft_prefix_serve(st, s, logits, end - i, now);
		return end;
	}
	for (; usable && i < end - drawing; i++)
		usable = prompt_row_take(st, s, st->logits + (size_t)i * n_vocab);
	prompt_rows_report(st, s);
	if (!usable)
		step_fail(st, s, PROTO_ERR_INTERNAL);
	else if (drawing && is_searching(s))
		beam_rows_serve(st, s, st->logits + (size_t)(end - 1) * n_vocab, now);
	else if (drawing && f->wants[end - 1].drawn_at < 0)
		batch_draw(st, s, st->logits + (size_t)(end - 1) * n_vocab, now);
	else if (drawing) {
		sampler_device_choice(&f->drawn[f->wants[end - 1].drawn_at], &st->choice);
		take_choice(st, s, now);
	}
	return end;
}

static int serve(struct step *st, const struct step_in_flight *f, int i, uint64_t now)
{
	int end = serve_rows(st, f, i, now);
	struct eng_seq *s = f->wants[end - 1].s; /* NULL: it has ended */
	if (s != NULL && constrain_is_on(&s->constraint) && s->state == SEQ_DECODE && s->sched.n_left == 1 &&
	    !is_searching(s))
		take_forced(st, s, now);
	return end;
}

/* ---- steps ---- */

/* Fails m with the device's own description of the fault. */
static void fail(struct step *st, struct eng_model *m)
{
	char why[PROTO_MAX_MESSAGE + 1];
	const char *more = m->ops->memory != NULL ? m->ops->describe(m->backend) : "";
	snprintf(why, sizeof why, "the device failed in a step%s%s", more[0] != '\0' ? ": " : "", more);
	step_fail_model(st, m, why);
}

/* Of each row the slot of its sequence's adapter. */
static const int32_t *row_adapters(struct step *st, const struct eng_model *m, int n_rows)
{
	bool some = false;
	for (int i = 0; i < n_rows; i++) {
		const struct lora_version *v = m->slots[st->row_seq[i]]->lora;
		BUG_IF(v != NULL && v->slot < 0, "a row of an adapter that is not in memory");
		st->row_adapter[i] = v != NULL ? v->slot : -1;
		some = some || v != NULL;
	}
	if (!some)
		return NULL;
	return st->row_adapter;
}

static int issue(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan)
{
	struct kn_step step = {.n_rows = b->n_rows,
			       .row_token = st->row_token,
			       .row_pos = st->row_pos,
			       .row_seq = st->row_seq,
			       .row_from = m->n_in_flight > 0 ? st->row_from : NULL,
			       .row_type = m->info.arch.n_types > 1 ? st->row_type : NULL,
			       .row_sees = m->info.arch.encoder ? st->row_sees : NULL,
			       .row_adapter = row_adapters(st, m, b->n_rows),
			       .n_seqs = st->e->cfg.max_sequences,
			       .page_table = m->page_tables,
			       .max_pages = (int)m->max_pages};
	kv_states_in_step(m->states, &step);
	struct model_draws draws;
	const struct model_pooling pooling = {
	    .texts = st->texts, .n = b->n_texts, .out = m->in_flight[m->n_in_flight]->pooled};
	device_draw_plan(st, b, m, &draws);
	uint64_t begin = clock_now_ns();
	int rc =
	    model_issue(m->model, &step, kv_pool_layout(m->pool), st->want, b->n_want, st->logits, &draws, &pooling);
	if (rc != 0)
		return rc;
	head_drafts_keep(st, m, b);
	in_flight_depart(st, m, b, plan);
	m->in_flight[m->n_in_flight - 1]->issued_ns = begin;
	return 0;
}

/* Tokens taken without a draw are computed with the sequence's next row, as far as the plan has room. */
static void grant_forced(const struct eng_model *m, struct sched_plan *plan)
{
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct sched_seq *s = plan->run[i];
		if (!s->prefilling && s->n_left > 1)
			s->n_tokens += sched_grant_draft(m->sched, plan, s, s->n_left - 1);
	}
}

enum batch_issued batch_issue(struct step *st, struct eng_model *m, uint64_t *next_due_ns)
{
	struct sched_plan plan;
	struct batch b = {0};
	bool ahead = m->n_in_flight > 0;
	uint64_t now = clock_now_ns();
	struct planning_for whom = {.m = m, .now_ns = now};
	const struct sched_owner owner = {
	    .ctx = &whom, .look = look, .pages_back = pages_back, .more_pages = more_pages, .gentle = ahead};
	if (sched_n_started(m->sched) == 0 && sched_n_queued(m->sched) == 0)
		return BATCH_IDLE;
	if (ahead && !in_flight_foresee(m, now))
		return BATCH_IDLE;
	pass_windows(m);
	uint32_t n_free = (uint32_t)kv_pool_n_free(m->pool) + prefix_n_reclaimable(m->prefix);
	sched_ease(m->sched, atomic_load(&st->e->slowed) != 0 ? st->e->ease_itl_ns : NULL);
	sched_plan(m->sched, &owner, &m->cost, n_free, now, &plan);
	if (plan.next_due_ns < *next_due_ns)
		*next_due_ns = plan.next_due_ns;
	m->settle = plan.wants_room;
	if (plan.hopeless != NULL && !kv_rebalance_may_grow(m) && !kv_disk_loading(m->disk)) {
		step_finish(st, seq_of(plan.hopeless), PROTO_FINISH_ERROR, PROTO_ERR_BAD_REQUEST,
			    "\"beam_width\": the search needs more KV memory than the model has.");
		return BATCH_CHANGED;
	}
	for (uint32_t i = 0; i < plan.n_evict; i++)
		batch_preempt(seq_of(plan.evict[i]), now);
	batch_wake(m, now);
	grant_forced(m, &plan);
	mask_turns(st, m, &plan);
	if (!ahead)
		spec_prepare(st, m, &plan, &b, now);
	/* Sequences with slots first: a start copies a page at most, and may take one of theirs. */
	for (uint32_t i = 0; i < plan.n_run; i++)
		add_rows(st, &b, seq_of(plan.run[i]), now);
	if (b.n_rows == 0) {
		if (!ahead && st->masks_missing)
			*next_due_ns = now;
		/* Retries a failed page allocation soon, but without spinning. */
		if (!ahead && plan.n_run > 0 && now + RETRY_MS * NS_PER_MS < *next_due_ns)
			*next_due_ns = now + RETRY_MS * NS_PER_MS;
		return plan.n_evict > 0 && plan.n_run == 0 ? BATCH_CHANGED : BATCH_IDLE;
	}
	if (issue(st, m, &b, &plan) == 0)
		return BATCH_ISSUED;
	fail(st, m);
	return BATCH_CHANGED;
}

bool batch_may_go_ahead(const struct eng_model *m)
{
	return m->n_in_flight == 1 && !m->settle && !m->e->cfg.no_launch_ahead && model_ahead(m->model) &&
	       !m->in_flight[0]->waited;
}

/* Its prompt is computed: gateways learn what the tree has of it. */
static void publish(struct eng_seq *s)
{
	prefix_mark(s->model->prefix, &s->path, s->n_prompt, s->borders);
	sl_free(s->borders);
	s->borders = NULL;
}

/* Another engine gets the whole pages that s has so far. */
static void hand_out(struct eng_seq *s, uint32_t past, uint64_t now)
{
	const struct kv_hand_text text = hand_text(s);
	kv_hand_publish(s->model->hand, &s->hand, &text, past, page_row(s), now);
}

uint64_t batch_land(struct step *st, struct eng_model *m)
{
	struct step_in_flight *f = m->in_flight[0];
	if (in_flight_wait(m) != 0) {
		fail(st, m);
		return 0;
	}
	/* The device runs steps one at a time. */
	uint64_t done = clock_now_ns(), began = f->issued_ns > m->landed_ns ? f->issued_ns : m->landed_ns;
	uint64_t idle_from = m->served_ns, accepted = m->figures.spec_accepted;
	m->landed_ns = done;
	measure(st->e, m, f, done - began);
	for (uint32_t i = 0; i < f->n_run; i++) {
		const struct in_flight_run *r = &f->runs[i];
		struct eng_seq *s = r->s;
		if (s == NULL || (is_searching(s) && s->state == SEQ_DECODE))
			continue; /* it has ended, or its rows are hypotheses */
		s->n_flying -= r->n_rows;
		uint32_t own = eng_seq_n_own(s), past = r->n_past < own ? r->n_past : own;
		prefix_computed(m->prefix, &s->path, s->tokens, past, page_row(s));
		if (s->hand.ask.what != 0 && m->hand != NULL)
			hand_out(s, past, done);
		if (s->borders != NULL && past >= s->n_prompt)
			publish(s);
		in_flight_snapshot(s, past, past == r->n_past);
	}
	for (int i = 0; i < f->b.n_want;)
		i = serve(st, f, i, done);
	embed_serve(st, m, f);
	/* Drafts need the tokens so far, so a step planned ahead has none. */
	if (m->n_in_flight > 1 && spec_pays(st, m, f, done))
		m->settle = true;
	/* Since the step before was served: the thread was at work, or had to wait for some. */
	idle_from = idle_from > f->issued_ns ? f->issued_ns : idle_from;
	spec_account_step(m, f, (uint32_t)(m->figures.spec_accepted - accepted), (double)(done - began),
			  (double)(f->issued_ns - idle_from));
	in_flight_pop(m);
	batch_wake(m, done);
	m->served_ns = clock_now_ns();
	return done - began;
}
