/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/seq.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step/internal.h"
#include "engine/token/tokenizer.h"

static const char *const state_names[SEQ_N_STATES] = {"new", "text", "waiting", "prefill", "decode", "ended", "done"};

void eng_seq_set_state(struct eng_counters *c, struct eng_seq *s, enum eng_seq_state to)
{
	/* Row: from; bit: to. */
	static const unsigned allowed[SEQ_N_STATES] = {
	    [SEQ_NEW] = 1u << SEQ_TEXT,
	    [SEQ_TEXT] = 1u << SEQ_WAITING | 1u << SEQ_DONE,
	    [SEQ_WAITING] = 1u << SEQ_PREFILL | 1u << SEQ_ENDED | 1u << SEQ_DONE,
	    [SEQ_PREFILL] = 1u << SEQ_DECODE | 1u << SEQ_WAITING | 1u << SEQ_ENDED | 1u << SEQ_DONE,
	    [SEQ_DECODE] = 1u << SEQ_WAITING | 1u << SEQ_ENDED | 1u << SEQ_DONE,
	    [SEQ_ENDED] = 1u << SEQ_DONE,
	    [SEQ_DONE] = 0,
	};
	BUG_IF((allowed[s->state] & 1u << to) == 0, "sequence: from %s to %s", state_names[s->state], state_names[to]);
	if (s->state != SEQ_NEW)
		atomic_fetch_sub(&c->in_state[s->state], 1);
	if (to != SEQ_DONE)
		atomic_fetch_add(&c->in_state[to], 1);
	s->state = to;
}

enum { GRID_LEAST_NS = 10000000, GRID_MOST_NS = 1280000000 };

/* A bucket of `burst` tokens filled at rate_tps, kept as the time at which the next token would be
 * due if none were early (the generic cell rate algorithm of ITU-T I.371). */
static void set_pace(struct eng_seq *s, double rate_tps, uint32_t burst)
{
	if (rate_tps <= 0)
		return;
	double each = 1e9 / rate_tps;
	double early = each * (burst > 0 ? burst - 1 : 0);
	s->pace_each_ns = each < 1e15 ? (uint64_t)each + 1 : (uint64_t)1e15;
	s->pace_early_ns = early < 1e18 ? (uint64_t)early : (uint64_t)1e18;
}

void eng_seq_pace(struct eng_seq *s, uint64_t now_ns)
{
	if (s->pace_each_ns == 0)
		return;
	if (s->pace_next_ns < now_ns)
		s->pace_next_ns = now_ns;
	s->pace_next_ns += s->pace_each_ns;
}

/* About a quarter of the time between two tokens, at most 1.28 s; 0: the pace is too fast for a grid. */
static uint64_t grid_of(uint64_t each_ns)
{
	uint64_t grid = 0;
	for (uint64_t g = GRID_LEAST_NS; g <= GRID_MOST_NS && g <= each_ns / 4; g *= 2)
		grid = g;
	return grid;
}

uint64_t eng_seq_due(const struct eng_seq *s)
{
	uint64_t due = s->pace_next_ns > s->pace_early_ns ? s->pace_next_ns - s->pace_early_ns : 0;
	/* Without the allowance for early tokens, each rounding would slow the sequence down. */
	uint64_t grid = due > 0 && s->pace_early_ns > 0 ? grid_of(s->pace_each_ns) : 0;
	return grid > 0 ? (due + grid - 1) / grid * grid : due;
}

static int by_id(const void *a, const void *b)
{
	const struct proto_id_f32 *x = a, *y = b;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int set_sampling(struct eng_seq *s, const struct proto_submit *req)
{
	s->sampling = (struct sampler_params){.temperature = req->temperature,
					      .top_p = req->top_p,
					      .min_p = req->min_p,
					      .typical_p = req->typical_p,
					      .repetition_penalty = req->repetition_penalty,
					      .presence_penalty = req->presence_penalty,
					      .frequency_penalty = req->frequency_penalty,
					      .top_k = req->top_k,
					      .seed = req->seed,
					      .min_tokens = req->min_tokens,
					      .ignore_eos = (req->flags & PROTO_SUBMIT_IGNORE_EOS) != 0,
					      .only_biased = (req->flags & PROTO_SUBMIT_ONLY_BIASED) != 0,
					      .want_logprob = (req->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0,
					      .n_top = req->n_top_logprobs,
					      .n_bias = req->n_logit_bias,
					      .n_stop_ids = req->n_stop_ids,
					      .stop_ids = s->stop_ids};
	for (int i = 0; i < req->n_stop_ids; i++)
		s->stop_ids[i] = (int32_t)req->stop_ids[i];
	size_t room = req->n_logit_bias + 2u * req->n_bad_words;
	if (room == 0)
		return 0;
	s->bias = sl_zalloc_n(room, sizeof *s->bias);
	if (s->bias == NULL)
		return SL_ENOMEM;
	for (uint16_t i = 0; i < req->n_logit_bias; i++)
		s->bias[i] = proto_bias_at(req, i);
	qsort(s->bias, req->n_logit_bias, sizeof *s->bias, by_id);
	s->sampling.bias = s->bias;
	return 0;
}

/* The words of a request, copied. */
static int set_bad_words(struct eng_seq *s, const struct proto_submit *req)
{
	struct seq_text *t = &s->text;
	size_t n = req->n_bad_words * sizeof *t->bad_words, bytes = 0;
	if (n == 0)
		return 0;
	for (int i = 0; i < req->n_bad_words; i++)
		bytes += proto_bad_word_at(req, i).n;
	t->bad_words = sl_alloc(n + bytes);
	if (t->bad_words == NULL)
		return SL_ENOMEM;
	char *at = (char *)t->bad_words + n;
	for (int i = 0; i < req->n_bad_words; i++) {
		struct proto_str word = proto_bad_word_at(req, i);
		t->bad_words[i] = (struct proto_str){at, word.n};
		memcpy(at, word.at, word.n);
		at += word.n;
	}
	t->n_bad_words = req->n_bad_words;
	return 0;
}

/* The finalizer of splitmix64, so that pairs collide only by chance. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t eng_seq_salt(const struct eng_seq *s, bool shared)
{
	uint64_t salt = (shared ? 0 : s->tenant_digest) ^ mix(s->cache_salt);
	return s->lora != NULL ? eng_seq_salt_of(salt, s->lora->digest) : salt;
}

uint64_t eng_seq_salt_of(uint64_t salt, uint64_t digest) { return mix(mix(salt) + mix(digest) + 0x9e3779b97f4a7c15u); }

void eng_seq_set_lora(struct eng_seq *s, struct lora_version *v)
{
	if (s->lora != NULL)
		lora_leave(s->lora);
	s->lora = v;
	s->salt = eng_seq_salt(s, s->shares);
	s->on_disk = (struct kv_disk_turn){0};
}

static int set_draft_prefix(struct eng_seq *s, const struct proto_submit *req)
{
	s->draft_prefix = (struct seq_draft_prefix){.n = req->n_given, .n_keep = req->n_keep};
	if (req->n_given == 0)
		return 0;
	s->draft_prefix.ids = sl_zalloc_n(req->n_given, sizeof *s->draft_prefix.ids);
	if (s->draft_prefix.ids == NULL)
		return SL_ENOMEM;
	for (uint16_t i = 0; i < req->n_given; i++)
		s->draft_prefix.ids[i] = (int32_t)proto_given_at(req, i);
	return 0;
}

static int copy_texts(struct eng_seq *s, const struct proto_submit *req)
{
	s->mem = sl_alloc(req->prompt.n + req->constraint.n + 1);
	if (s->mem == NULL)
		return SL_ENOMEM;
	char *constraint = s->mem + req->prompt.n;
	if (req->prompt.n > 0)
		memcpy(s->mem, req->prompt.at, req->prompt.n);
	if (req->constraint.n > 0)
		memcpy(constraint, req->constraint.at, req->constraint.n);
	s->text.prompt = (struct proto_str){.at = s->mem, .n = req->prompt.n};
	s->text.constraint = (struct proto_str){.at = constraint, .n = req->constraint.n};
	s->text.constraint_kind = req->constraint_kind;
	return 0;
}

/* Initial fields of every sequence. */
static struct eng_seq *seq_new(uint64_t id)
{
	struct eng_seq *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return NULL;
	s->node.key = id;
	list_init(&s->signals.in_signaled);
	list_init(&s->in_all);
	list_init(&s->waiter.link);
	s->deadline_ns = UINT64_MAX;
	s->slot = s->spec.state = s->spec.small_state = s->coming_state = -1;
	return s;
}

int eng_seq_create(uint64_t id, const struct proto_submit *req, struct eng_seq **out)
{
	struct eng_seq *s = seq_new(id);
	if (s == NULL)
		return SL_ENOMEM;
	if (copy_texts(s, req) != 0 || set_sampling(s, req) != 0 || set_draft_prefix(s, req) != 0 ||
	    set_bad_words(s, req) != 0 || text_stream_init(&s->stream, req->stops, req->n_stops) != 0) {
		eng_seq_free(s);
		return SL_ENOMEM;
	}
	s->stream.keeps = (req->flags & PROTO_SUBMIT_INCLUDE_STOP) != 0;
	s->text.model = req->model;
	s->text.prompt_kind = req->prompt_kind;
	bool plain = req->n_stops == 0 && req->temperature == 0 && req->presence_penalty == 0 &&
		     req->frequency_penalty == 0 && req->repetition_penalty == 1;
	s->text.searching = req->beam_width > 0 && !plain;
	s->n_choices = req->n;
	s->best_of = req->beam_width > 0 ? req->n : req->best_of;
	s->beam_width = req->beam_width;
	s->length_penalty = req->length_penalty;
	s->n_reserved = s->best_of > 1 && s->beam_width == 0 ? s->best_of - 1u : 0;
	s->tenant_digest = req->tenant;
	s->cache_salt = req->cache_salt;
	s->shares = (req->flags & PROTO_SUBMIT_SHARED_PREFIX) != 0;
	s->owner = s->shares ? 0 : req->tenant;
	s->salt = eng_seq_salt(s, s->shares);
	s->sched.priority = req->priority;
	s->sched.width = s->beam_width > 0 ? s->beam_width : 1;
	s->sched.prefilling = true;
	s->prefill_only = (req->flags & PROTO_SUBMIT_PREFILL_ONLY) != 0;
	s->embed = (req->flags & PROTO_SUBMIT_EMBED) != 0;
	s->unshared = req->prompt_logprobs > 0;
	s->max_tokens = req->max_tokens;
	s->thinking_tokens = req->thinking_tokens;
	s->weight = req->weight;
	s->prompt_logprobs = req->prompt_logprobs;
	s->arrived_ns = s->sched.served_ns = clock_now_ns();
	if (req->deadline_ms > 0)
		s->deadline_ns = s->arrived_ns + req->deadline_ms * NS_PER_MS;
	set_pace(s, (double)req->rate_tps, req->burst);
	*out = s;
	return 0;
}

int eng_seq_follow(const struct eng_seq *lead, uint8_t choice, struct eng_seq **out)
{
	struct eng_seq *s = seq_new(lead->node.key);
	if (s == NULL)
		return SL_ENOMEM;
	s->tokens = sl_zalloc_n(lead->n_prompt, sizeof *s->tokens);
	if (s->tokens == NULL || text_stream_init(&s->stream, lead->stream.stops, lead->stream.n_stops) != 0 ||
	    sampler_state_copy(&s->said, &lead->said) != 0 ||
	    constrain_follow(&s->constraint, &lead->constraint) != 0) {
		eng_seq_free(s);
		return SL_ENOMEM;
	}
	s->stream.keeps = lead->stream.keeps;
	s->stream.whole = lead->stream.whole;
	memcpy(s->tokens, lead->tokens, lead->n_prompt * sizeof *s->tokens);
	s->tokens_cap = s->n_prompt = lead->n_prompt;
	s->model = lead->model;
	s->tenant_digest = lead->tenant_digest;
	s->weight = lead->weight;
	s->salt = lead->salt;
	s->owner = lead->owner;
	s->shares = lead->shares;
	if ((s->lora = lead->lora) != NULL)
		lora_ref(s->lora);
	s->sampling = lead->sampling;
	s->sampling.choice = choice;
	s->choice = choice;
	s->choices = lead->choices;
	s->max_tokens = lead->max_tokens;
	s->length_why = lead->length_why;
	s->pace_each_ns = lead->pace_each_ns;
	s->pace_early_ns = lead->pace_early_ns;
	s->arrived_ns = lead->arrived_ns;
	s->sched = (struct sched_seq){.order = lead->sched.order + choice,
				      .served_ns = lead->sched.served_ns,
				      .priority = lead->sched.priority,
				      .width = 1,
				      .prefilling = true,
				      .n_left = lead->n_prompt,
				      .n_cached = lead->n_prompt - 1};
	*out = s;
	return 0;
}

void eng_seq_free(struct eng_seq *s)
{
	BUG_IF(s->state != SEQ_NEW && s->state != SEQ_DONE, "sequence: freed while %s", state_names[s->state]);
	BUG_IF(s->slot >= 0 || s->sched.n_pages != 0 || s->sched.queue != NULL, "sequence: freed with pages");
	text_stream_dispose(&s->stream);
	tok_ids_dispose(&s->text.ids);
	if (s->text.grammar != NULL)
		grammar_unref(s->text.grammar);
	constrain_dispose(&s->constraint);
	tok_ids_dispose(&s->text.bad_ids);
	sl_free(s->text.bad_words);
	sl_free(s->tokens);
	sampler_state_dispose(&s->said);
	ngram_dispose(&s->spec.said);
	sl_free(s->bias);
	sl_free(s->draft_prefix.ids);
	sl_free(s->borders);
	if (s->lora != NULL)
		lora_leave(s->lora);
	sl_free(s->mem);
	sl_free(s);
}

static struct proto_str piece_of(const void *tokenizer, uint32_t id)
{
	bool known = id < (uint32_t)tokenizer_n_vocab(tokenizer);
	return known ? tokenizer_bytes(tokenizer, (int32_t)id) : (struct proto_str){"", 0};
}

struct proto_pieces eng_seq_pieces(const struct eng_seq *s, bool wanted)
{
	if (!wanted)
		return (struct proto_pieces){0};
	return (struct proto_pieces){.of = piece_of, .ctx = model_tokenizer(s->model->model)};
}
