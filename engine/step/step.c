/* SPDX-License-Identifier: Apache-2.0
 *
 * The step thread: owner of sequences, pages, the scheduler and the models' forward passes.
 *
 * One iteration: take signals (new, credit, cancel) and mail (text ready, model loaded), end sequences past their
 * deadline, then run one step of one model, chosen by engine/sched/model_sched.h. Without work the thread sleeps until
 * mail, the next due time of a paced sequence or the next deadline, so pacing costs no spinning.
 *
 * Signals are taken before the mail that arrived with them, so a sequence is known before its text arrives.
 */
#include "engine/step/choices.h"
#include "engine/step/embed.h"
#include "engine/step/in_flight.h"
#include "engine/step/draft_prefix.h"
#include "engine/step/queue_status.h"
#include "engine/step/seq_swap.h"
#include "engine/step/spec_step.h"
#include "engine/step/step.h"
#include "engine/step/kv_rebalance.h"
#include "engine/step/model_residency.h"
#include "engine/sched/model_sched.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/flight.h"

enum { FLIGHT_EVENTS = 16384 }; /* two a step: the last seconds of a small model, minutes of a large one */
enum { STEP_SLEEP_MS = 100 };   /* upper bound: the loop must update its heartbeat */

/* ---- the end of a sequence ---- */

static void seq_drop(struct engine *e, struct eng_seq *s)
{
	unsigned n = 1 + s->n_reserved;
	pthread_mutex_lock(&e->index_lock);
	wait_limits_leave(&e->wait_limits, &s->wait_entry);
	pthread_mutex_unlock(&e->index_lock);
	eng_seq_free(s);
	atomic_fetch_sub(&e->n_live, n);
}

static void learn_answer(struct eng_model *m, uint8_t priority, double ns)
{
	for (int i = priority < SCHED_TIERS ? priority : SCHED_TIERS - 1; i < SCHED_TIERS; i++)
		m->ns_per_answer[i] = m->ns_per_answer[i] == 0 ? ns : m->ns_per_answer[i] * 0.9 + ns * 0.1;
}

/* Frees the slot and pages of s, and its entries with scheduler and tenant. */
static void free_resources(struct step *st, struct eng_seq *s, uint64_t now)
{
	batch_release(s);
	seq_swap_drop(s);
	if (s->model != NULL && s->model->hand != NULL) {
		kv_hand_end(s->model->hand, &s->hand);
		kv_hand_leave(s->model->hand, &s->hand);
	}
	if (s->model != NULL) {
		sched_remove(s->model->sched, &s->sched);
		batch_wake(s->model, now);
		if (s->first_ns != 0)
			learn_answer(s->model, s->sched.priority, (double)(now - s->first_ns));
	}
	if (s->sched.tenant != NULL)
		sched_tenant_leave(&st->tenants, s->sched.tenant);
	s->sched.tenant = NULL;
	list_remove(&s->waiter.link);
}

void step_rest(struct step *st, struct eng_seq *s)
{
	free_resources(st, s, clock_now_ns());
	eng_seq_set_state(&st->e->counters, s, SEQ_ENDED);
}

void step_leave(struct step *st, struct eng_seq *s)
{
	free_resources(st, s, clock_now_ns());
	list_remove(&s->in_all);
	eng_seq_set_state(&st->e->counters, s, SEQ_DONE);
	list_push_back(&st->ended, &s->in_all);
}

static void free_ended(struct step *st)
{
	list_each_safe(it, tmp, &st->ended) {
		list_remove(it);
		seq_drop(st->e, list_entry(it, struct eng_seq, in_all));
	}
}

void step_finish(struct step *st, struct eng_seq *s, uint8_t finish, uint8_t error, const char *message)
{
	struct engine *e = st->e;
	uint64_t now = clock_now_ns();
	uint32_t n_made = s->draft_prefix.open ? 0 : s->n_made - s->draft_prefix.n_used; /* without the draft prefix */
	if (s->choices != NULL) {
		s = s->choices->lead; /* the whole request ends */
		n_made = s->choices->n_completion;
	}
	if (finish == PROTO_FINISH_STOP || finish == PROTO_FINISH_LENGTH)
		model_residency_used(s, now);
	free_resources(st, s, now);
	if (s->choices != NULL)
		choices_drop(st, s);
	if (s->by_deadline.in)
		heap_remove(&st->deadlines, &s->by_deadline);
	list_remove(&s->in_all);
	eng_seq_set_state(&e->counters, s, SEQ_DONE);
	if (finish == PROTO_FINISH_CANCELLED)
		atomic_fetch_add(&e->counters.cancelled, 1);
	else if (finish == PROTO_FINISH_ERROR)
		atomic_fetch_add(&e->counters.failed, 1);
	else
		atomic_fetch_add(&e->counters.finished, 1);

	/* What no worker has begun leaves at once: held memory of cancelled requests must displace no others. */
	if (s->with_worker) {
		atomic_store(&s->text.unwanted, true);
		s->with_worker = !text_queue_withdraw(&e->text_queue, s);
	}
	/* Out of the index first: after DONE the identifier may be reused. */
	pthread_mutex_lock(&e->index_lock);
	idmap_remove(&e->index, &s->node);
	list_remove(&s->signals.in_signaled);
	if (s->with_worker)
		wait_limits_start(&e->wait_limits, &s->wait_entry); /* its memory is still held */
	else
		wait_limits_leave(&e->wait_limits, &s->wait_entry);
	pthread_mutex_unlock(&e->index_lock);
	struct eng_event ev = {
	    .kind = ENG_DONE,
	    .id = s->node.key,
	    .u.done = {.finish = finish,
		       .error = error,
		       .length_why = finish == PROTO_FINISH_LENGTH ? s->length_why : 0,
		       .stop = finish == PROTO_FINISH_STOP ? s->stop : 0,
		       .stop_at = finish == PROTO_FINISH_STOP ? s->stop_at : 0,
		       .n_prompt = s->n_prompt,
		       .n_cached = s->n_cached,
		       .n_completion = n_made,
		       .queue_us = clock_us_between(s->arrived_ns, s->started_ns ? s->started_ns : now),
		       .prefill_us = clock_us_between(s->started_ns, s->first_ns ? s->first_ns : now),
		       .decode_us = clock_us_between(s->first_ns, now),
		       .n_drafted = s->spec.n_drafted,
		       .n_accepted = s->spec.n_accepted,
		       .message = {.at = message, .n = strlen(message)}}};
	e->on_event(e->on_event_ctx, &ev);
	if (!s->with_worker)
		list_push_back(&st->ended, &s->in_all);
}

void step_fail(struct step *st, struct eng_seq *s, uint8_t error)
{
	step_finish(st, s, PROTO_FINISH_ERROR, error,
		    error == PROTO_ERR_OVERLOADED ? "The engine is out of memory."
						  : "The model produced no usable result.");
}

void step_fail_constraint(struct step *st, struct eng_seq *s, int rc)
{
	if (rc == SL_ENOMEM)
		step_fail(st, s, PROTO_ERR_OVERLOADED);
	else
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_BAD_CONSTRAINT,
			    "The constraint became too complex for this answer.");
}

/* ---- models ---- */

static struct eng_seq *first_of_model(const struct step *st, const struct eng_model *m)
{
	list_each(it, &st->all) {
		struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (s->model == m)
			return s;
	}
	return NULL;
}

void step_fail_model(struct step *st, struct eng_model *m, const char *reason)
{
	in_flight_drop(m); /* its steps in flight fail with it */
	/* Ending one sequence may end others, so each pass searches anew. */
	for (struct eng_seq *s; (s = first_of_model(st, m)) != NULL;)
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_INTERNAL, "The model's device failed.");
	model_state_set(st->e, m, PROTO_MODEL_FAILED, reason);
	if (st->e->cfg.on_fault != NULL)
		st->e->cfg.on_fault(st->e->cfg.on_fault_ctx);
}

static bool grow_logits(struct step *st, size_t n_vocab)
{
	if (n_vocab <= st->n_vocab_max)
		return true;
	size_t rows = (size_t)st->e->cfg.max_sequences + STEP_EXTRA_ROWS, n;
	if (__builtin_mul_overflow(rows, n_vocab, &n))
		return false;
	float *logits = sl_zalloc_n(n, sizeof *logits);
	size_t words = (n_vocab + 31) / 32;
	uint32_t *mask = sl_zalloc_n(words, sizeof *mask);
	uint32_t *masks = sl_zalloc_n((size_t)st->e->cfg.max_sequences * words, sizeof *masks);
	if (logits == NULL || mask == NULL || masks == NULL ||
	    sampler_scratch_reserve(&st->scratch, (int)n_vocab) != 0) {
		sl_free(logits);
		sl_free(mask);
		sl_free(masks);
		return false;
	}
	sl_free(st->logits);
	sl_free(st->mask);
	sl_free(st->masks);
	st->logits = logits;
	st->mask = mask;
	st->masks = masks;
	st->n_vocab_max = n_vocab;
	return true;
}

enum { N_ROW_ARRAYS = 9 };

static int32_t **row_array(struct step *st, int i)
{
	int32_t **const all[N_ROW_ARRAYS] = {&st->row_token,   &st->row_pos,  &st->row_seq,
					     &st->row_from,    &st->row_type, &st->row_sees,
					     &st->row_adapter, &st->want,     &st->drawn_at};
	return all[i];
}

/* The arrays by rows hold what one step needs from its plan to its issue, so they may move between steps. */
static bool grow_rows(struct step *st, size_t max_rows)
{
	if (max_rows <= st->max_rows)
		return true;
	for (int i = 0; i < N_ROW_ARRAYS; i++) {
		int32_t *grown = sl_realloc_n(*row_array(st, i), max_rows, sizeof *grown);
		if (grown == NULL)
			return false;
		*row_array(st, i) = grown;
	}
	struct eng_seq **seqs = sl_realloc_n(st->want_seqs, max_rows, sizeof(void *));
	if (seqs != NULL)
		st->want_seqs = seqs;
	struct kn_draw *draws = seqs != NULL ? sl_realloc_n(st->draws, max_rows, sizeof *draws) : NULL;
	if (draws != NULL)
		st->draws = draws;
	bool *taken = draws != NULL ? sl_realloc_n(st->taken, max_rows, sizeof *taken) : NULL;
	if (taken == NULL)
		return false;
	st->taken = taken;
	st->max_rows = max_rows;
	return true;
}

static void on_model(struct step *st, struct eng_model *m)
{
	const char *failure = NULL;
	char line[PROTO_MAX_MESSAGE];
	if (m->loaded && !model_residency_fits(m, line, sizeof line)) {
		failure = line;
	} else if (!m->loaded) {
		kv_rebalance_leave(m);
		failure = m->load_err.text;
	} else if (!m->info.arch.encoder && !grow_logits(st, (size_t)m->info.arch.n_vocab)) {
		failure = "out of memory for logits";
	} else if (!grow_rows(st, (size_t)m->step_tokens + (size_t)st->e->cfg.max_sequences)) {
		failure = "out of memory for rows";
	} else if (in_flight_create(m) != 0) {
		failure = "out of memory for steps";
	}
	if (failure != NULL) {
		model_state_set(st->e, m, PROTO_MODEL_FAILED, failure);
		return;
	}
	kv_rebalance_join(m);
	model_state_set(st->e, m, PROTO_MODEL_READY, "");
	spec_pair(st, m);
}

/* ---- text ---- */

uint8_t step_no_memory(struct sl_err *err)
{
	sl_errf(err, SL_ENOMEM, "The engine is out of memory.");
	return PROTO_ERR_OVERLOADED;
}

static uint8_t refuse_token(uint8_t error, const char *field, uint32_t id, uint32_t n_vocab, struct sl_err *err)
{
	sl_errf(err, SL_EINVAL, "Invalid token %u in '%s': the ids of this model's tokens are between 0 and %u.", id,
		field, n_vocab - 1);
	return error;
}

/* Whether the model has every token that the sampling names. 0 or an error. */
static uint8_t check_sampling(const struct eng_seq *s, const struct eng_model *m, struct sl_err *err)
{
	uint32_t n_vocab = (uint32_t)m->info.arch.n_vocab;
	for (int i = 0; i < s->sampling.n_stop_ids; i++) {
		uint32_t id = (uint32_t)s->sampling.stop_ids[i];
		if (id >= n_vocab)
			return refuse_token(PROTO_ERR_BAD_STOP_IDS, "stop_token_ids", id, n_vocab, err);
	}
	for (int i = 0; i < s->sampling.n_bias; i++) {
		uint32_t id = s->sampling.bias[i].id;
		if (id >= n_vocab)
			return refuse_token(PROTO_ERR_BAD_LOGIT_BIAS, "logit_bias", id, n_vocab, err);
	}
	return 0;
}

static bool has_bias(const struct eng_seq *s, uint32_t id)
{
	for (uint16_t i = 0; i < s->sampling.n_bias; i++)
		if (s->bias[i].id == id)
			return true;
	return false;
}

/* The bias removes the tokens of bad words. If only biased tokens are allowed anyway, other tokens need no bias. */
static uint8_t take_bad_ids(struct eng_seq *s, struct sl_err *err)
{
	struct sampler_params *p = &s->sampling;
	for (size_t i = 0; i < s->text.bad_ids.n; i++) {
		uint32_t id = (uint32_t)s->text.bad_ids.ids[i];
		bool known = has_bias(s, id);
		for (uint16_t k = 0; known && k < p->n_bias; k++)
			s->bias[k].v = s->bias[k].id == id ? -INFINITY : s->bias[k].v;
		if (known || p->only_biased)
			continue;
		if (p->n_bias == PROTO_MAX_LOGIT_BIAS) {
			sl_errf(err, SL_ELIMIT, "'bad_words' and 'logit_bias' have more than %d tokens together.",
				PROTO_MAX_LOGIT_BIAS);
			return PROTO_ERR_BAD_WORDS;
		}
		s->bias[p->n_bias++] = (struct proto_id_f32){.id = id, .v = -INFINITY};
	}
	p->bias = s->bias;
	return 0;
}

/* Never reveals whether another tenant has the prefix, since that would disclose its prompts. */
static uint8_t miss_of(enum prefix_miss miss)
{
	static const uint8_t of[] = {[PREFIX_MISS_NONE] = PROTO_MISS_NONE,
				     [PREFIX_MISS_NEW] = PROTO_MISS_NEW,
				     [PREFIX_MISS_EVICTED] = PROTO_MISS_EVICTED,
				     [PREFIX_MISS_SHORT] = PROTO_MISS_SHORT};
	BUG_IF((size_t)miss >= sizeof of, "prefix tree: miss %d", miss);
	return of[miss];
}

/* How many of its tokens need not be computed, by what is in memory (match) and on disk now. */
static uint32_t foresee(const struct step *st, struct eng_seq *s, struct prefix_match *match)
{
	struct eng_model *m = s->model;
	if (st->e->cfg.no_prefix_cache || s->unshared)
		return 0;
	prefix_lookup(m->prefix, s->salt, s->tokens, s->n_prompt, match);
	const struct kv_disk_ask ask = batch_disk_ask(s);
	return m->disk != NULL ? kv_disk_foresee(m->disk, &ask, match) : match->n_tokens;
}

/* Takes the tokenized prompt; s may then wait to start. 0 or an error. */
static uint8_t accept_text(struct step *st, struct eng_seq *s, struct sl_err *err)
{
	struct eng_model *m = &st->e->models[s->text.model];
	size_t n = s->text.ids.n;
	if (atomic_load(&m->state) != PROTO_MODEL_READY) {
		sl_errf(err, SL_EIO, "The model has failed.");
		return PROTO_ERR_NOT_READY;
	}
	if (m->retry_ns > clock_now_ns()) {
		sl_errf(err, SL_EIO, "The model's weights can't be read.");
		return PROTO_ERR_NOT_READY;
	}
	s->n_prompt = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
	s->n_first = s->text.n_first;
	uint8_t refused = embed_accept(s, m, err);
	if (refused != 0)
		return refused;
	/* A prompt must leave room for a new token; an embedding's text need not. */
	if (n + !s->embed > m->n_ctx) {
		sl_errf(err, SL_ELIMIT,
			"This model's maximum context length is %u tokens. However, your %s %zu tokens.", m->n_ctx,
			s->embed ? "input has" : "messages resulted in", n);
		return PROTO_ERR_CONTEXT_LENGTH;
	}
	if (!s->embed && s->max_tokens > m->n_ctx - s->n_prompt) {
		s->max_tokens = m->n_ctx - s->n_prompt;
		s->length_why = PROTO_LENGTH_CONTEXT;
	}
	refused = check_sampling(s, m, err);
	if (refused == 0)
		refused = take_bad_ids(s, err);
	if (refused != 0)
		return refused;
	s->sampling.end_ids = m->end_ids;
	s->sampling.n_end_ids = m->n_end_ids;
	s->sched.tenant = sched_tenant_enter(&st->tenants, s->tenant_digest, s->weight);
	if (s->sched.tenant == NULL ||
	    (sampler_needs_prompt(&s->sampling) && sampler_state_add_prompt(&s->said, s->text.ids.ids, n) != 0))
		return step_no_memory(err);
	s->model = m;
	s->tokens = s->text.ids.ids;
	s->tokens_cap = s->text.ids.cap;
	s->text.ids = (struct tok_ids){0};
	const struct parts_detected *parts =
	    s->lora != NULL && s->lora->template != NULL ? &s->lora->form.parts : &m->form.parts;
	const struct constrain_how how = {.grammar = s->text.grammar,
					  .phase = s->text.phase,
					  .reasoning = parts->reasoning,
					  .budget = s->thinking_tokens,
					  .channels = s->text.constraint_kind == PROTO_CONSTRAINT_CALLS &&
						      parts->reasoning == PARTS_REASONING_HARMONY,
					  .tok = model_tokenizer(m->model)};
	s->text.grammar = NULL;
	if (constrain_init(&s->constraint, &how) != 0)
		return step_no_memory(err);
	s->stream.whole = how.grammar != NULL;
	sl_free(s->mem); /* the texts are no longer needed */
	s->mem = NULL;
	refused = draft_prefix_accept(s, m, err);
	if (refused != 0)
		return refused;
	if (st->e->cfg.share_prefixes) {
		s->shares = true;
		s->salt = eng_seq_salt(s, true);
		s->owner = 0;
	}
	s->sched.n_left = eng_seq_n_tokens(s);
	struct prefix_match match = {0};
	s->sched.n_cached = foresee(st, s, &match);
	s->miss = miss_of(match.miss);
	s->sched.credit = s->credit > 0 && adapter_is_here(s);
	s->sched.whole = m->info.arch.encoder;
	if (sched_add(m->sched, &s->sched, clock_now_ns()) != 0)
		return step_no_memory(err);
	if ((s->best_of > 1 || s->n_choices > 1 || s->beam_width > 0) &&
	    (s->sched.width > (uint32_t)st->e->cfg.max_sequences || choices_make(st, s) != 0))
		return step_no_memory(err);
	return 0;
}

static void on_text(struct step *st, struct eng_seq *s)
{
	s->with_worker = false;
	if (s->state == SEQ_DONE) {
		seq_drop(st->e, s);
		return;
	}
	struct sl_err err = s->text.err;
	uint8_t error = s->text.error;
	if (error == 0)
		error = accept_text(st, s, &err);
	if (error != 0) {
		step_finish(st, s, PROTO_FINISH_ERROR, error, err.text);
		return;
	}
	eng_seq_set_state(&st->e->counters, s, SEQ_WAITING);
	queue_status_report(st, s);
}

/* ---- the loop ---- */

void step_give_credit(struct eng_seq *s, uint32_t n)
{
	bool had = s->credit > 0;
	eng_add_credit(&s->credit, n);
	if (had || n == 0)
		return;
	uint64_t now = clock_now_ns();
	if (s->credited_ns == 0)
		s->credited_ns = now;
	s->sched.served_ns = now; /* it could not be served earlier */
	s->sched.credit = s->model == NULL || adapter_is_here(s);
	if (s->model != NULL)
		sched_update(s->model->sched, &s->sched, now);
}

/* Ends s to make room for a new request, unless some of its answer was reported. */
static void displace(struct step *st, struct eng_seq *s)
{
	bool begun = s->choices != NULL ? s->choices->n_completion > 0 : s->first_ns != 0;
	if (begun)
		return;
	atomic_fetch_add(&st->e->counters.displaced, 1);
	step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED,
		    "The server is busy: this request had to make room for others.");
}

/* Its prompt's pages come from another engine, or go to one. */
static void hand(struct step *st, struct eng_seq *s, const struct proto_hand *m)
{
	struct eng_event ev = {.kind = ENG_HANDED, .id = s->node.key, .u.handed.why = PROTO_HANDED_UNFIT};
	if (s->state == SEQ_DONE)
		return;
	if (m->what == PROTO_HAND_OFFER)
		kv_hand_offer(&s->hand, m, clock_now_ns());
	else if (s->state == SEQ_WAITING && s->started_ns == 0 && s->model->hand != NULL && !s->unshared && !s->embed)
		batch_await(s, m, clock_now_ns());
	else
		st->e->on_event(st->e->on_event_ctx, &ev);
}

static void take_signals(struct step *st)
{
	struct engine *e = st->e;
	for (;;) {
		pthread_mutex_lock(&e->index_lock);
		if (list_empty(&e->signaled)) {
			pthread_mutex_unlock(&e->index_lock);
			return;
		}
		struct eng_seq *s = list_entry(e->signaled.next, struct eng_seq, signals.in_signaled);
		list_remove(&s->signals.in_signaled);
		struct seq_signals k = s->signals;
		s->signals.credit = 0;
		s->signals.fresh = s->signals.displaced = s->signals.hand_over = false;
		s->signals.hand.what = 0;
		pthread_mutex_unlock(&e->index_lock);
		if (k.fresh) {
			list_push_back(&st->all, &s->in_all);
			if (s->deadline_ns != UINT64_MAX)
				heap_insert(&st->deadlines, &s->by_deadline);
		}
		if (k.hand.what != 0)
			hand(st, s, &k.hand);
		if (k.hand_over)
			kv_hand_over(&s->hand);
		if (k.credit > 0 && s->choices != NULL)
			choices_credit(st, s, k.credit);
		else
			step_give_credit(s, k.credit);
		if (k.cancel && s->state != SEQ_DONE)
			step_finish(st, s, PROTO_FINISH_CANCELLED, 0, "");
		else if (k.displaced && s->state != SEQ_DONE)
			displace(st, s);
	}
}

static void take_mail(struct step *st, struct mail *it)
{
	struct mail *next;
	for (; it != NULL; it = next) {
		next = it->next;
		struct step_mail *m = (struct step_mail *)(void *)it;
		if (m->kind == STEP_MODEL)
			on_model(st, (struct eng_model *)(void *)m);
		else if (m->kind == STEP_WEIGHTS)
			model_residency_done(st, list_entry(m, struct eng_model, weights_mail));
		else
			on_text(st, (struct eng_seq *)(void *)m);
	}
}

/* Ends sequences past their deadline. Returns the next deadline. */
static uint64_t check_deadlines(struct step *st)
{
	uint64_t now = clock_now_ns();
	while (st->deadlines.top != NULL) {
		struct eng_seq *s = heap_entry(st->deadlines.top, struct eng_seq, by_deadline);
		if (now < s->deadline_ns)
			return s->deadline_ns;
		s->length_why = PROTO_LENGTH_DEADLINE;
		step_finish(st, s, PROTO_FINISH_LENGTH, 0, "");
	}
	return UINT64_MAX;
}

static void publish_pages(struct engine *e)
{
	unsigned held = 0, total = 0, n_free = 0, prefix = 0, used = 0, slots = 0, places_used = 0;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		if (atomic_load(&m->state) != PROTO_MODEL_READY)
			continue;
		total += (unsigned)kv_pool_n_pages(m->pool);
		n_free += (unsigned)kv_pool_n_free(m->pool) + prefix_n_reclaimable(m->prefix);
		used += (unsigned)(kv_pool_n_pages(m->pool) - kv_pool_n_free(m->pool));
		prefix += prefix_n_pages(m->prefix);
		slots += m->swap != NULL ? kv_swap_n_slots(m->swap) : 0;
		places_used += m->swap != NULL ? kv_swap_n_slots(m->swap) - kv_swap_n_free(m->swap) : 0;
		held += sched_n_held(m->sched);
	}
	atomic_store(&e->held, held);
	atomic_store(&e->swap_places, slots);
	atomic_store(&e->swap_used, places_used);
	atomic_store(&e->pages_total, total);
	atomic_store(&e->pages_free, n_free);
	atomic_store(&e->prefix_pages, prefix);
	atomic_store(&e->kv_used_permille, total > 0 ? (unsigned)((uint64_t)used * 1000 / total) : 0);
}

static bool is_ready(const struct eng_model *m) { return atomic_load(&m->state) == PROTO_MODEL_READY; }

/* Computes the models' shares. Returns how many models have work or steps in flight. */
static int update_shares(struct engine *e, struct model_share *shares, bool *skip)
{
	uint64_t now = clock_now_ns();
	int n_busy = 0;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		skip[i] = !is_ready(m) || !model_is_here(m);
		shares[i].vtime_ns = m->vtime_ns;
		if (!skip[i])
			sched_demand(m->sched, now, &shares[i].demand);
		n_busy += shares[i].demand.load > 0 || m->n_in_flight > 0;
	}
	model_sched_level(shares, e->n_models);
	for (int i = 0; i < e->n_models; i++)
		e->models[i].vtime_ns = shares[i].vtime_ns;
	return n_busy;
}

static void land(struct step *st, const struct model_share *shares, int i)
{
	struct engine *e = st->e;
	e->models[i].vtime_ns += model_sched_charge(shares, e->n_models, i, batch_land(st, &e->models[i]));
}

/* The model whose step in flight should end first; -1: none is in flight. */
static int soonest(const struct engine *e)
{
	int best = -1;
	double best_ns = 0;
	for (int i = 0; i < e->n_models; i++) {
		const struct eng_model *m = &e->models[i];
		if (m->n_in_flight == 0)
			continue;
		const struct step_in_flight *f = m->in_flight[0];
		double ns =
		    f->waited ? 0 : (double)(f->issued_ns > m->landed_ns ? f->issued_ns : m->landed_ns) + f->expect_ns;
		if (best < 0 || ns < best_ns) {
			best = i;
			best_ns = ns;
		}
	}
	return best;
}

/* For backends whose steps run parallel to the host: every busy model gets a step in flight; a model that is busy alone
 * gets two. Then waits for one of them. */
static bool keep_busy(struct step *st, const struct model_share *shares, int n_busy, bool *skip, uint64_t *next_due)
{
	struct engine *e = st->e;
	bool worked = false;
	int next;
	for (int i = 0; i < e->n_models && n_busy > 1; i++) {
		while (e->models[i].n_in_flight > 0 && model_ready(e->models[i].model)) {
			land(st, shares, i);
			worked = true;
		}
	}
	while ((next = model_sched_next(shares, e->n_models, skip)) >= 0) {
		struct eng_model *m = &e->models[next];
		skip[next] = true;
		if (!is_ready(m))
			continue; /* failed in this loop */
		if (m->n_in_flight == 0)
			worked |= batch_issue(st, m, next_due) != BATCH_IDLE;
		if (n_busy == 1 && is_ready(m) && batch_may_go_ahead(m))
			(void)batch_issue(st, m, next_due);
	}
	if ((next = soonest(e)) < 0)
		return worked;
	land(st, shares, next);
	return true;
}

/* For backends whose steps run on the host: one step, of the first model in turn that has work. */
static bool step_one(struct step *st, const struct model_share *shares, bool *skip, uint64_t *next_due)
{
	struct engine *e = st->e;
	int next;
	while ((next = model_sched_next(shares, e->n_models, skip)) >= 0) {
		struct eng_model *m = &e->models[next];
		skip[next] = true;
		uint64_t begin = clock_now_ns();
		enum batch_issued issued = batch_issue(st, m, next_due);
		if (issued == BATCH_IDLE)
			continue;
		if (issued == BATCH_ISSUED)
			(void)batch_land(st, m);
		m->vtime_ns += model_sched_charge(shares, e->n_models, next, clock_now_ns() - begin);
		return true;
	}
	return false;
}

static bool step_some_model(struct step *st, uint64_t *next_due)
{
	struct engine *e = st->e;
	bool skip[PROTO_MAX_MODELS] = {0}, ahead = false;
	struct model_share shares[PROTO_MAX_MODELS] = {0};
	int n_busy = update_shares(e, shares, skip);
	for (int i = 0; i < e->n_models; i++)
		ahead = ahead || (!skip[i] && model_ahead(e->models[i].model));
	return ahead ? keep_busy(st, shares, n_busy, skip, next_due) : step_one(st, shares, skip, next_due);
}

/* Tenants whose texts are to be erased from the disk. */
static void take_erases(struct engine *e)
{
	pthread_mutex_lock(&e->index_lock);
	struct engine_erases k = e->erases;
	e->erases = (struct engine_erases){0};
	pthread_mutex_unlock(&e->index_lock);
	for (uint32_t i = 0; i < k.n; i++) {
		for (int j = 0; j < e->n_models; j++)
			if (is_ready(&e->models[j]) && e->models[j].disk != NULL)
				kv_disk_forget(e->models[j].disk, k.tenants[i], k.all);
		disk_tier_erase(e->disk, k.tenants[i]);
	}
	if (k.all)
		disk_tier_erase_all(e->disk);
}

static void turn_disk(struct engine *e)
{
	uint64_t now = clock_now_ns();
	if (e->disk == NULL)
		return;
	take_erases(e);
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		if (is_ready(m) && m->disk != NULL && kv_disk_tick(m->disk, now))
			batch_wake(m, now);
	}
}

/* Takes pages from other engines, and frees what they have taken. True: it is to be called again soon. */
static bool turn_hand(struct engine *e)
{
	uint64_t now = clock_now_ns();
	bool soon = false;
	if (e->cfg.hand_area == NULL)
		return false;
	if (e->hand_writer != NULL)
		hand_writer_tick(e->hand_writer, now);
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		if (!is_ready(m) || !kv_hand_waiting(m->hand))
			continue;
		kv_hand_tick(m->hand, now);
		batch_wake(m, now);
		soon = soon || kv_hand_waiting(m->hand);
	}
	return soon;
}

void *step_main(void *engine)
{
	struct engine *e = engine;
	struct step *st = e->step;
	uint64_t sleep_until = 0;
	st->beat_slot = beat_slot("engine step");
	flight_open("step", FLIGHT_EVENTS);
	while (!atomic_load(&e->stopping)) {
		struct mail *mail = mailbox_wait(&e->box, sleep_until);
		beat_touch(st->beat_slot);
		take_signals(st);
		take_mail(st, mail);
		kv_rebalance_follow_pressure(e);
		turn_disk(e);
		bool soon = turn_hand(e);
		uint64_t next = check_deadlines(st);
		bool worked = step_some_model(st, &next);
		free_ended(st);
		publish_pages(e);
		uint64_t now = clock_now_ns(), latest = now + (soon ? HAND_TICK_MS : STEP_SLEEP_MS) * NS_PER_MS;
		model_residency_tick(st, now);
		uint64_t turn = adapter_turns_tick(st, now);
		next = turn < next ? turn : next;
		queue_status_tick(st, now);
		sleep_until = worked ? 0 : next < latest ? next : latest;
	}
	take_signals(st);
	for (int i = 0; i < e->n_models; i++)
		in_flight_drop(&e->models[i]);
	while (!list_empty(&st->all))
		step_finish(st, list_entry(st->all.next, struct eng_seq, in_all), PROTO_FINISH_CANCELLED, 0, "");
	free_ended(st);
	beat_slot_close(st->beat_slot);
	flight_close();
	return NULL;
}

/* ---- life ---- */

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct eng_seq, by_deadline)->deadline_ns <
	       heap_entry(b, const struct eng_seq, by_deadline)->deadline_ns;
}

int step_create(struct engine *e, struct step **out)
{
	struct step *st = sl_zalloc(sizeof *st);
	if (st == NULL || sched_tenants_init(&st->tenants) != 0) {
		sl_free(st);
		return SL_ENOMEM;
	}
	const struct eng_config *cfg = &e->cfg;
	st->e = e;
	list_init(&st->all);
	list_init(&st->ended);
	buf_init(&st->text, PROTO_MAX_TEXT_PER_FRAME);
	heap_init(&st->deadlines, sooner);
	*out = st;
	st->texts = sl_zalloc_n((size_t)cfg->max_sequences, sizeof *st->texts);
	st->text_seqs = sl_zalloc_n((size_t)cfg->max_sequences, sizeof(void *));
	bool rows = grow_rows(st, (size_t)cfg->step_tokens + (size_t)cfg->max_sequences);
	return st->texts != NULL && st->text_seqs != NULL && rows ? 0 : SL_ENOMEM; /* engine_destroy frees st */
}

void step_destroy(struct step *st)
{
	struct mail *next, *it = mailbox_take_all(&st->e->box);
	for (; it != NULL; it = next) {
		next = it->next;
		struct step_mail *m = (struct step_mail *)(void *)it;
		if (m->kind == STEP_TEXT)
			seq_drop(st->e, (struct eng_seq *)(void *)m);
	}
	BUG_IF(!list_empty(&st->all), "the step thread left sequences behind");
	sched_tenants_dispose(&st->tenants);
	buf_dispose(&st->text);
	for (int i = 0; i < N_ROW_ARRAYS; i++)
		sl_free(*row_array(st, i));
	sl_free(st->want_seqs);
	sl_free(st->texts);
	sl_free(st->text_seqs);
	sl_free(st->draws);
	sl_free(st->taken);
	sampler_adjusts_dispose(&st->adjusts);
	sl_free(st->logits);
	sl_free(st->mask);
	sl_free(st->masks);
	sampler_scratch_dispose(&st->scratch);
	sl_free(st);
}
