/* SPDX-License-Identifier: Apache-2.0
 *
 * From what generations have made to events. Tokens that came together become one event, at most so
 * many, which ends at the end of a line or a sentence so that readers may render or speak it. Without
 * gateway.flush, no token waits for another. In a logged answer each token with text is one event, so that the
 * events depend on the tokens alone and not on when they came: a gateway that continues it (gateway/resume) renders
 * the same.
 *
 * Several prompts take turns. A choice ends when its generation has ended and its text is out.
 */
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "gateway/answer/answer_priv.h"

enum {
	GROUP_TOKENS = 5,
	EXTEND_AT = 16, /* tokens of its key's day left: more are asked for, so that they come in time */
};

/* A line or a sentence ends here: in Latin scripts, Devanagari, Arabic, Chinese and Japanese. */
static bool is_boundary(const char *text, size_t n)
{
	static const char *const wide[] = {"。", "！", "？", "．", "…", "｡", "।", "؟", "۔"};
	if (n > 0 && text[n - 1] == '\n')
		return true;
	while (n > 0 && text[n - 1] == ' ')
		n--;
	if (n == 0)
		return false;
	char last = text[n - 1];
	if (last == '.' || last == '!' || last == '?')
		return true;
	if (((unsigned char)last & 0x80) == 0)
		return false; /* none of the others ends so */
	for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
		size_t len = strlen(wide[i]);
		if (n >= len && memcmp(text + n - len, wide[i], len) == 0)
			return true;
	}
	return false;
}

/* Cuts a chunk down to one event. */
static void cut(const struct generation *g, struct gen_chunk *chunk)
{
	size_t bytes = 0;
	/* Behind the last one it ends anyway. */
	for (uint32_t i = 0; i + 1 < chunk->n_tokens; i++) {
		struct gen_token t;
		gen_token_at(g, chunk->first_token + i, &t);
		bytes += t.n_bytes;
		if (t.n_bytes > 0 && is_boundary(chunk->text, bytes)) {
			chunk->n_tokens = i + 1;
			chunk->n_bytes = bytes;
			return;
		}
	}
}

/* Fewer tokens than are wanted, and time for more to come? */
static bool hold_back(struct answer *a, struct answer_run *run, const struct gen_chunk *chunk)
{
	const struct gw_flush *flush = &a->app->t->cfg->flush;
	uint64_t now;
	if (a->out.logged || flush->hold_ms == 0 || !run->begun || chunk->n_tokens >= flush->tokens ||
	    gen_state(run->gen) >= GEN_FINISHED || is_boundary(chunk->text, chunk->n_bytes))
		return false;
	now = clock_now_ns();
	if (run->held_ns == 0) {
		run->held_ns = now;
		answer_wait(a, flush->hold_ms * NS_PER_MS);
	}
	return now - run->held_ns < flush->hold_ms * NS_PER_MS;
}

/* A paced tier's answers flow evenly, however the engine makes them: after the first burst one token a
 * tick. */
static bool is_paced(const struct answer *a)
{
	const struct gw_tier_config *tier = a->key->tier;
	return tier->pace_tps > 0 && !a->out.replaying && a->budget.sent >= (uint64_t)tier->pace_burst;
}

/* The next token's time has not come. */
static bool wait_for_tick(struct answer *a)
{
	uint64_t now;
	if (!is_paced(a) || (now = clock_now_ns()) >= a->out.pace_ns)
		return false;
	answer_wait(a, a->out.pace_ns - now);
	return true;
}

/* A token with text is sent. Lateness is made up a little at a time; the first burst is not,
 * or it would be followed by silence. */
static void tick(struct answer *a)
{
	if (a->key->tier->pace_tps <= 0)
		return;
	uint64_t each = (uint64_t)(1e9 / a->key->tier->pace_tps), now = clock_now_ns();
	if (!is_paced(a))
		a->out.pace_ns = now;
	a->out.pace_ns = a->out.pace_ns + each > now + each * 3 / 4 ? a->out.pace_ns + each : now + each * 3 / 4;
}

/* How many tokens may be sent together. */
static uint32_t together(const struct answer *a)
{
	const struct gw_tier_config *tier = a->key->tier;
	if (a->out.logged || is_paced(a))
		return 1;
	uint64_t left =
	    tier->pace_tps > 0 && !a->out.replaying ? (uint64_t)tier->pace_burst - a->budget.sent : GROUP_TOKENS;
	return left < GROUP_TOKENS ? (uint32_t)left : GROUP_TOKENS;
}

static int take_logprobs(struct answer *a, struct answer_run *run, struct answer_choice *c,
			 const struct gen_chunk *chunk)
{
	const char *text = chunk->text;
	int rc = 0;
	for (uint32_t i = 0; rc == 0 && (a->out.wants_logprobs || a->out.token_ids) && i < chunk->n_tokens; i++) {
		struct gen_token t;
		gen_token_at(run->gen, chunk->first_token + i, &t);
		rc = answer_take_id(a, c, t.id);
		if (rc == 0 && a->out.wants_logprobs)
			rc = a->format->logprob(a, c, &t);
		c->n_characters += (uint32_t)utf8_characters(text, t.n_bytes);
		text += t.n_bytes;
	}
	return rc;
}

/* The log probabilities of what was sent: kept with its text where that is kept. */
static int settle_logprobs(const struct answer *a, struct answer_choice *c)
{
	int rc = 0;
	if (!a->out.wants_logprobs)
		return 0;
	if (a->out.keep_text && c->logprobs[0].len > 0) {
		if (c->logprobs[ANSWER_SENT].len > 0)
			rc = buf_append_str(&c->logprobs[ANSWER_SENT], ",");
		if (rc == 0)
			rc = buf_append(&c->logprobs[ANSWER_SENT], buf_data(&c->logprobs[0]), c->logprobs[0].len);
	}
	for (int i = 0; i < ANSWER_LISTS; i++)
		buf_clear(&c->logprobs[i], SIZE_MAX);
	return rc;
}

static int tell_text(struct answer *a, struct sl_buf *out, unsigned index, const char *text, size_t n)
{
	struct answer_choice *c = &a->choices[index];
	int rc = a->format->text(a, out, index, text, n);
	if (rc == 0 && a->out.keep_text)
		rc = buf_append(&c->text, text, n);
	buf_clear(&c->ids, SIZE_MAX);
	return rc == 0 ? settle_logprobs(a, c) : rc;
}

/* As tell_text, of an answer that is split. Log probabilities go with the content's events; of other items there are
 * none. */
static int tell_items(struct answer *a, struct answer_run *run, unsigned index, const struct gen_chunk *chunk,
		      struct sl_buf *out)
{
	struct answer_choice *c = &a->choices[index];
	unsigned before = c->parts != NULL ? c->parts->n_told : 0;
	int rc = answer_parts_feed(a, run, index, chunk->first_token, chunk->n_tokens, chunk->text, out);
	bool told = c->parts != NULL && c->parts->n_told != before;
	if (told && out != NULL)
		buf_clear(&c->ids, SIZE_MAX);
	return rc == 0 && told ? settle_logprobs(a, c) : rc;
}

static const char *reason_of(enum proto_finish finish) { return finish == PROTO_FINISH_LENGTH ? "length" : "stop"; }

/* A choice's end by its model is a call where it has made one. */
static const char *reason_with_calls(const struct answer *a, unsigned index, const char *reason)
{
	if (answer_parts_calls(a->choices[index].parts) == 0 || strcmp(reason, "stop") != 0)
		return reason;
	return a->split->functions ? "function_call" : "tool_calls";
}

static int close_choice(struct answer *a, struct answer_run *run, struct sl_buf *out, unsigned index,
			const char *reason)
{
	struct answer_choice *c = &a->choices[index];
	int rc = 0;
	c->reason = reason;
	if (a->split != NULL) {
		rc = answer_parts_finish(a, run, index, out);
		if (rc == 0 && out != NULL)
			rc = settle_logprobs(a, c);
		reason = reason_with_calls(a, index, reason);
	} else if (c->logprobs[0].len > 0 || c->ids.len > 0) { /* of tokens that had no text of their own */
		rc = tell_text(a, out, index, "", 0);
	}
	c->closed = true;
	c->reason = reason;
	return rc == 0 && a->format->close != NULL ? a->format->close(a, out, index, reason) : rc;
}

/* Not while it waits for tokens of its key's day. */
static bool may_tell_more(const struct answer *a, const struct answer_run *run)
{
	return answer_live(run) && a->budget.left > 0;
}

/* How many of `most` tokens may be sent. */
static uint32_t may_tell(const struct answer *a, uint32_t most)
{
	uint64_t left = a->load.cut_at > a->budget.sent ? a->load.cut_at - a->budget.sent : 0;
	left = (uint64_t)a->budget.left < left ? (uint64_t)a->budget.left : left;
	return left < most ? (uint32_t)left : most;
}

static void count_sent(struct answer *a, struct answer_run *run, struct answer_choice *c, uint32_t n_tokens)
{
	c->n_tokens += n_tokens;
	a->budget.sent += n_tokens;
	/* Another gateway has counted what it comes to again, and got more than it had at first, perhaps. */
	a->budget.left -= a->budget.left == INT64_MAX || a->out.replaying ? 0 : n_tokens;
	gen_advance(&run->sub, n_tokens);
	if (a->budget.left <= EXTEND_AT && a->budget.short_by > 0 && !a->budget.extending)
		answer_extend(a);
	if (answer_load_is_cut(a))
		answer_cap(a);
	else if (a->budget.left == 0)
		answer_out_of_tokens(a);
}

/* Why a choice ended, once it has; a released one ends as if it had finished. */
static enum proto_finish end_of(const struct answer *a, const struct answer_run *run, uint8_t i)
{
	if (run->late)
		return 0;
	if (!answer_live(run))
		return a->budget.capped ? PROTO_FINISH_LENGTH : PROTO_FINISH_STOP;
	return gen_choice_end(run->gen, &run->sub, i);
}

/* Why it ended early, unless the request itself ended it. */
static const char *cut_by(const struct answer *a, const struct answer_run *run, uint8_t i, enum proto_finish finish)
{
	if (a->sharing.superseded && !answer_live(run))
		return "superseded";
	if (finish != PROTO_FINISH_LENGTH)
		return NULL;
	if (run->gen == NULL)
		return !a->budget.capped ? NULL : a->load.cut ? "load" : "budget";
	enum proto_length_why why = gen_choice_why(run->gen, i);
	if (why == PROTO_LENGTH_MAX_TOKENS && a->load.shortened)
		return "load";
	return why == PROTO_LENGTH_DEADLINE ? "deadline" : NULL;
}

static int render_run(struct answer *a, struct answer_run *run, struct sl_buf *out)
{
	unsigned first = (unsigned)(run - a->runs) * a->n;
	struct gen_chunk chunk;
	if (may_tell_more(a, run) && gen_peek(run->gen, &run->sub, may_tell(a, together(a)), &chunk)) {
		unsigned index = first + chunk.choice;
		cut(run->gen, &chunk);
		if (is_paced(a) ? wait_for_tick(a) : hold_back(a, run, &chunk))
			return 0;
		if (chunk.n_bytes > 0)
			tick(a);
		run->held_ns = 0;
		run->begun = run->begun || chunk.n_bytes > 0;
		int rc = take_logprobs(a, run, &a->choices[index], &chunk);
		/* Tokens whose text is held back (an unfinished character) make no event. */
		if (rc == 0 && a->split != NULL)
			rc = tell_items(a, run, index, &chunk, out);
		else if (rc == 0 && chunk.n_bytes > 0)
			rc = tell_text(a, out, index, chunk.text, chunk.n_bytes);
		count_sent(a, run, &a->choices[index], chunk.n_tokens);
		return rc == 0 ? 1 : rc;
	}
	if (!answer_live(run) && a->end == ANSWER_FAILED)
		return 0;
	for (uint8_t i = 0; i < a->n; i++) {
		if (a->choices[first + i].closed)
			continue;
		enum proto_finish finish = end_of(a, run, i);
		if (finish == 0 || finish == PROTO_FINISH_ERROR)
			continue;
		a->choices[first + i].ended_by = cut_by(a, run, i, finish);
		answer_note_stop(a, run, first + i, i);
		int rc = close_choice(a, run, out, first + i, reason_of(finish));
		return rc == 0 ? 1 : rc;
	}
	return 0;
}

const char *answer_ended_by(const struct answer *a)
{
	for (unsigned i = 0; i < answer_n_choices(a); i++)
		if (a->choices[i].ended_by != NULL)
			return a->choices[i].ended_by;
	return NULL;
}

struct sse_about answer_about(struct answer *a, unsigned index)
{
	const char *by = index == ANSWER_ALL ? answer_ended_by(a) : a->choices[index].ended_by;
	struct sse_about about = {.ended_by = by, .degraded = a->load.degraded, .members = a->members};
	answer_auto_about(a, index, &about);
	return about;
}

static bool all_closed(const struct answer *a)
{
	for (unsigned i = 0; i < answer_n_choices(a); i++)
		if (!a->choices[i].closed)
			return false;
	return true;
}

/* The usage is known with the engine's DONE, which follows the last choice's end. */
static bool all_done(const struct answer *a)
{
	for (int i = 0; i < a->n_runs; i++)
		if (answer_live(&a->runs[i]) && gen_state(a->runs[i].gen) != GEN_FINISHED)
			return false;
	return true;
}

static bool settle(struct answer *a)
{
	if (a->end == ANSWER_UNDECIDED)
		a->end = ANSWER_DONE;
	if (!a->settling) {
		a->settling = true;
		a->settled = a->format->settle == NULL || a->format->settle(a);
	}
	return a->settled;
}

int answer_render(struct answer *a, struct sl_buf *out)
{
	int rc = 0;
	if (a->stage == ANSWER_BEGIN && answer_load_quiet(a))
		return 0;
	if (a->stage == ANSWER_BEGIN) {
		a->stage = ANSWER_CHOICES;
		if (a->format->begin != NULL && (rc = a->format->begin(a, out)) != 0)
			return rc;
		if (out->len > 0)
			return 1;
	}
	if (a->stage == ANSWER_CHOICES) {
		for (int i = 0; i < a->n_runs; i++) {
			int k = (a->turn + i) % a->n_runs;
			rc = render_run(a, &a->runs[k], out);
			if (rc != 0) {
				a->turn = (k + 1) % a->n_runs;
				return rc;
			}
		}
		/* What had come before a failure has been sent. */
		if (a->end != ANSWER_FAILED && (!all_closed(a) || !all_done(a)))
			return 0;
		a->stage = ANSWER_SETTLE;
	}
	if (a->stage == ANSWER_SETTLE) {
		if (!settle(a))
			return 0;
		a->stage = ANSWER_END;
	}
	if (a->stage == ANSWER_END) {
		if (a->end == ANSWER_FAILED && a->continued != NULL)
			a->continued->failing(a);
		a->stage = ANSWER_OVER;
		rc = a->end == ANSWER_FAILED ? a->format->error(a, out, answer_error(a), answer_error_text(a))
					     : a->format->end(a, out);
		return rc == 0 ? 1 : rc;
	}
	return 0;
}

int answer_collect(struct answer *a)
{
	for (int k = 0; k < a->n_runs; k++) {
		struct answer_run *run = &a->runs[k];
		unsigned first = (unsigned)k * a->n;
		struct gen_chunk chunk;
		while (may_tell_more(a, run) && gen_peek(run->gen, &run->sub, may_tell(a, UINT32_MAX), &chunk)) {
			struct answer_choice *c = &a->choices[first + chunk.choice];
			int rc = take_logprobs(a, run, c, &chunk);
			if (rc == 0 && a->split != NULL)
				rc = answer_parts_feed(a, run, first + chunk.choice, chunk.first_token, chunk.n_tokens,
						       chunk.text, NULL);
			else if (rc == 0)
				rc = buf_append(&c->text, chunk.text, chunk.n_bytes);
			if (rc != 0)
				return rc;
			count_sent(a, run, c, chunk.n_tokens);
		}
		for (uint8_t i = 0; i < a->n; i++) {
			struct answer_choice *c = &a->choices[first + i];
			enum proto_finish f = c->closed ? 0 : end_of(a, run, i);
			if (f == PROTO_FINISH_STOP)
				answer_note_stop(a, run, first + i, i);
			bool closes = !c->closed && f != 0 && f != PROTO_FINISH_ERROR;
			c->reason = closes ? reason_of(f) : c->reason;
			int rc = closes && a->split != NULL ? answer_parts_finish(a, run, first + i, NULL) : 0;
			if (rc != 0)
				return rc;
			c->closed = c->closed || closes;
			c->reason = f != 0 ? reason_with_calls(a, first + i, reason_of(f)) : c->reason;
			c->ended_by = f != 0 ? cut_by(a, run, i, f) : c->ended_by;
		}
	}
	return all_closed(a) && all_done(a) && settle(a);
}
