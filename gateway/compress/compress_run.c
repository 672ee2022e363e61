/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit is 75 % of the model's context after subtracting the requested answer, or the tier's limit on prompts if
 * that is lower. A block is about a quarter of the limit. The number of blocks to remove is found by counting what is
 * left. Each removed block gets a summary of at most a quarter of its tokens; together they get at most a quarter of
 * the limit. If they don't fit, are too many, or time is short, the oldest blocks get none.
 *
 * Where blocks alone can't make room, because the last message is too long, its paragraphs that matter are extracted
 * (compress_extract.h) before blocks are removed.
 *
 * compress_summary.c makes the summaries. A run counts as one of its key's running requests, like the answer it is for.
 */
#include "gateway/compress/compress_extract.h"
#include "gateway/compress/compress_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/request/request_fields.h"

enum {
	MOST_TRIMS = 8, /* counts; then every block is removed */
	FIT_MS = 1000,  /* for the last count, after the time limit */
};

/* Of the limit, what an extracted message and what stays beside it take: counts and estimates differ. */
#define EXTRACT_PART 0.9

static const char heading[] = "Summary of the conversation so far: ";

/* ---- metrics ---- */

#define REQUESTS(var, how)                                                                 \
	METRIC(var, METRIC_COUNTER, "sluice_compressed_requests_total", "how=\"" how "\"", \
	       "Requests whose conversation was shortened")
REQUESTS(requests_summary, "summary");
REQUESTS(requests_trim, "trim");
REQUESTS(requests_extract, "extract");
COUNTER(removed_tokens, "sluice_compressed_tokens_total", "Tokens of conversations that compression removed");

/* ---- lifetime ---- */

/* After a block: the next one, or the end. */
#define NEXT_BLOCK (1 << COMPRESS_READING | 1 << COMPRESS_SUBMITTED | 1 << COMPRESS_FITTING | 1 << COMPRESS_OVER)

void compress_set_state(struct compress_run *r, enum compress_state to)
{
	static const uint16_t allowed[] = {
	    [COMPRESS_IDLE] = 1 << COMPRESS_COUNTING,
	    [COMPRESS_COUNTING] = 1 << COMPRESS_TRIMMING | 1 << COMPRESS_OVER,
	    [COMPRESS_TRIMMING] = 1 << COMPRESS_TRIMMING | NEXT_BLOCK,
	    [COMPRESS_READING] = NEXT_BLOCK,
	    [COMPRESS_SUBMITTED] = 1 << COMPRESS_CHARGING | NEXT_BLOCK,
	    [COMPRESS_CHARGING] = 1 << COMPRESS_RUNNING | NEXT_BLOCK,
	    [COMPRESS_RUNNING] = 1 << COMPRESS_WRITING | NEXT_BLOCK,
	    [COMPRESS_WRITING] = NEXT_BLOCK,
	    [COMPRESS_FITTING] = 1 << COMPRESS_FITTING | 1 << COMPRESS_OVER,
	    [COMPRESS_OVER] = 0,
	};
	BUG_IF(!(allowed[r->state] & 1 << to), "compress: state %d to %d", (int)r->state, (int)to);
	r->state = to;
}

static void uncount_running(struct compress_run *r)
{
	if (r->counted)
		atomic_fetch_sub(r->key->n_running, 1);
	r->counted = false;
}

/* Cancels all that is pending. */
static void stop(struct compress_run *r)
{
	if (r->count_id != 0)
		engine_link_uncount(r->x->app->link, r->count_id);
	r->count_id = 0;
	cache_cancel(&r->op);
	compress_summary_leave(r);
	gw_timer_stop(&compress_thread(r)->timers, &r->timer);
	uncount_running(r);
}

void compress_free(struct compress_run *r)
{
	if (r == NULL)
		return;
	stop(r);
	for (size_t i = 0; r->summaries != NULL && i < r->n_out; i++)
		sl_free(r->summaries[i].text);
	sl_free(r->summaries);
	compress_chat_free(r->chat);
	auth_key_unref(r->key);
	buf_dispose(&r->text);
	buf_dispose(&r->out);
	sl_free(r);
}

static void finish(struct compress_run *r, struct proto_str prompt, const char *told)
{
	compress_set_state(r, COMPRESS_OVER);
	stop(r);
	r->done(r->ctx, prompt, told);
}

static void leave_unchanged(struct compress_run *r) { finish(r, r->ask.prompt, NULL); }

static struct proto_str written(const struct compress_run *r)
{
	return (struct proto_str){(const char *)buf_data(&r->out), r->out.len};
}

/* ---- counting ---- */

static void on_counted(void *ctx, const struct proto_counted *m);

/* Has the engine count a prompt. 0, or a code. */
static int count(struct compress_run *r, struct proto_str prompt)
{
	const struct proto_count req = {.model = (uint16_t)r->ask.model,
					.prompt_kind = PROTO_PROMPT_CHAT,
					.priority = (uint8_t)r->key->tier->priority,
					.tenant = r->key->tenant,
					.prompt = prompt};
	return engine_link_count(r->x->app->link, &req, on_counted, r, &r->count_id);
}

/* The prompt without the removed blocks, with the summary. */
static int write_prompt(struct compress_run *r, const struct sl_buf *summary)
{
	buf_clear(&r->out, SIZE_MAX);
	return compress_write(r->chat, r->n_out, r->form, summary != NULL ? (const char *)buf_data(summary) : "",
			      summary != NULL ? summary->len : 0, &r->out);
}

/* ---- the end ---- */

static size_t n_summaries(const struct compress_run *r, bool *stored)
{
	size_t n = 0;
	*stored = true;
	for (size_t i = 0; r->summaries != NULL && i < r->n_out; i++) {
		n += r->summaries[i].text != NULL;
		*stored = *stored && (r->summaries[i].text == NULL || r->summaries[i].stored);
	}
	*stored = *stored && n > 0;
	return n;
}

static int join_summaries(const struct compress_run *r, struct sl_buf *out)
{
	int rc = 0;
	for (size_t i = 0; r->summaries != NULL && rc == 0 && i < r->n_out; i++) {
		const struct compress_summary *s = &r->summaries[i];
		if (s->text == NULL)
			continue;
		rc = buf_append_str(out, out->len > 0 ? "\n" : heading);
		if (rc == 0)
			rc = buf_append(out, s->text, s->n);
	}
	return rc;
}

static void finish_shorter(struct compress_run *r)
{
	bool stored;
	bool summarized = n_summaries(r, &stored) > 0;
	uint32_t removed = r->n_before > r->n_trimmed ? r->n_before - r->n_trimmed : 0;
	uint32_t summary = summarized && r->n_after > r->n_trimmed ? r->n_after - r->n_trimmed : 0;
	const char *how = summarized ? "summary" : r->n_out > 0 ? "trim" : "extract";
	metric_add(summarized ? &requests_summary : r->n_out > 0 ? &requests_trim : &requests_extract, 1);
	metric_add(&removed_tokens, removed);
	snprintf(r->told, sizeof r->told,
		 "\"compressed\":{\"removed_messages\":%zu,\"removed_tokens\":%u,\"summary_tokens\":%u,\"how\":\"%s\","
		 "\"cached\":%s,\"removed_paragraphs\":%u}",
		 compress_n_messages(r->chat, r->n_out), removed, summary, how, stored ? "true" : "false",
		 r->extracted);
	finish(r, written(r), r->told);
}

void compress_fit(struct compress_run *r)
{
	struct sl_buf summary;
	bool stored;
	compress_set_state(r, COMPRESS_FITTING);
	r->n_after = r->n_trimmed;
	buf_init(&summary, PROTO_MAX_PAYLOAD);
	int rc = join_summaries(r, &summary);
	if (rc == 0)
		rc = write_prompt(r, &summary);
	buf_dispose(&summary);
	if (rc != 0)
		leave_unchanged(r);
	else if (n_summaries(r, &stored) == 0 || count(r, written(r)) != 0)
		finish_shorter(r);
}

static bool drop_oldest(struct compress_run *r)
{
	for (size_t i = 0; i < r->n_out; i++)
		if (r->summaries[i].text != NULL) {
			sl_free(r->summaries[i].text);
			r->summaries[i].text = NULL;
			return true;
		}
	return false;
}

static void on_fitted(struct compress_run *r, const struct proto_counted *m)
{
	/* The template allows no system message there. */
	if (m->error != PROTO_ERR_NONE && r->form == COMPRESS_MESSAGE) {
		r->form = COMPRESS_FOLDED;
		compress_fit(r);
		return;
	}
	r->n_after = m->error == PROTO_ERR_NONE ? m->n_tokens : r->n_trimmed;
	if ((m->error != PROTO_ERR_NONE || m->n_tokens > r->limit) && drop_oldest(r)) {
		compress_fit(r);
		return;
	}
	finish_shorter(r);
}

/* ---- how many blocks to remove ---- */

/* Tokens that summaries of the first n blocks may have. */
static uint32_t room_for(const struct compress_run *r, size_t n)
{
	uint64_t all = 0;
	for (size_t i = 0; r->mode == COMPRESS_SUMMARY && i < n; i++)
		all += compress_summary_tokens(r, i);
	return all < r->limit / 4 ? (uint32_t)all : r->limit / 4;
}

/* Blocks to remove by the estimate, scaled by the count; at least `least`. */
static size_t guess(const struct compress_run *r, size_t least)
{
	size_t n = 0, most = compress_n_blocks(r->chat);
	double left = r->n_left, scale = left / (double)(compress_estimate(r->chat) + 1);
	for (; n < most && (n < least || left + room_for(r, n) > r->limit); n++)
		left -= (double)compress_block_estimate(r->chat, n) * scale;
	return n;
}

static void trim(struct compress_run *r, size_t least)
{
	compress_set_state(r, COMPRESS_TRIMMING);
	r->n_out = ++r->n_trims > MOST_TRIMS ? compress_n_blocks(r->chat) : guess(r, least);
	if (write_prompt(r, NULL) != 0 || count(r, written(r)) != 0)
		leave_unchanged(r);
}

static void on_trimmed(struct compress_run *r, const struct proto_counted *m)
{
	if (m->error != PROTO_ERR_NONE) {
		leave_unchanged(r);
		return;
	}
	if (m->n_tokens + room_for(r, r->n_out) > r->limit && r->n_out < compress_n_blocks(r->chat)) {
		trim(r, r->n_out + 1);
		return;
	}
	r->n_trimmed = m->n_tokens;
	r->room = room_for(r, r->n_out);
	if (r->mode == COMPRESS_SUMMARY && r->n_out > 0)
		r->summaries = sl_zalloc_n(r->n_out, sizeof *r->summaries);
	if (r->summaries != NULL)
		compress_summarize(r);
	else
		compress_fit(r);
}

/* Tokens, about, that blocks can't free. */
static double fixed_tokens(const struct compress_run *r)
{
	uint64_t fixed = compress_estimate(r->chat);
	for (size_t i = 0; i < compress_n_blocks(r->chat); i++)
		fixed -= compress_block_estimate(r->chat, i);
	return (double)fixed;
}

/* Shortens the last message so far that without any block the prompt fits; nothing where it does anyway, or where the
 * message can't be divided. */
static void extract_last(struct compress_run *r)
{
	double scale = (double)r->n_before / (double)(compress_estimate(r->chat) + 1), fixed = fixed_tokens(r) * scale;
	struct compress_extract got;
	struct sl_buf text;
	size_t n;
	uint64_t estimate = 0;
	const char *last = compress_last_text(r->chat, &n, &estimate);
	double own = (double)estimate * scale, others = fixed - own, room = EXTRACT_PART * r->limit - others;
	if (fixed <= r->limit || last == NULL || room <= 0 || own <= room)
		return;
	buf_init(&text, REQUEST_MAX_PROMPT);
	int rc = compress_extract(last, n, (size_t)((double)n * room / own), &text, &got);
	if (rc == 0 && text.len < n && compress_set_last_text(r->chat, (const char *)buf_data(&text), text.len) == 0) {
		r->extracted = (uint32_t)(got.n_paragraphs - got.n_kept);
		r->n_left = (uint32_t)((double)compress_estimate(r->chat) * scale);
	}
	buf_dispose(&text);
}

static void on_counted(void *ctx, const struct proto_counted *m)
{
	struct compress_run *r = ctx;
	r->count_id = 0;
	if (m != NULL && r->state == COMPRESS_FITTING) {
		on_fitted(r, m);
	} else if (m != NULL && r->state == COMPRESS_TRIMMING) {
		on_trimmed(r, m);
	} else if (m == NULL || m->error != PROTO_ERR_NONE || m->n_tokens <= r->limit) {
		leave_unchanged(r);
	} else {
		r->n_before = r->n_left = m->n_tokens;
		extract_last(r);
		if (r->extracted == 0 && compress_n_blocks(r->chat) == 0)
			leave_unchanged(r);
		else
			trim(r, r->extracted == 0);
	}
}

static void on_timer(struct gw_timer *timer)
{
	struct compress_run *r = list_entry(timer, struct compress_run, timer);
	if (r->state == COMPRESS_COUNTING || r->state == COMPRESS_TRIMMING) {
		leave_unchanged(r);
	} else if (r->state == COMPRESS_FITTING) {
		r->n_after = r->n_trimmed;
		finish_shorter(r);
	} else {
		gw_timer_start(&compress_thread(r)->timers, &r->timer, FIT_MS * NS_PER_MS);
		compress_summary_late(r);
	}
}

/* ---- start ---- */

static int small_model(const struct engine_link *link, int otherwise)
{
	for (int i = 0; i < engine_link_n_models(link); i++) {
		const struct link_model *m = engine_link_model(link, i);
		if (m->role == 1 && m->state == PROTO_MODEL_READY)
			return i;
	}
	return otherwise;
}

static uint32_t limit_of(const struct gw_tier_config *tier, uint32_t n_ctx, uint32_t max_tokens)
{
	uint32_t answer = max_tokens < tier->max_output ? max_tokens : (uint32_t)tier->max_output;
	answer = answer < n_ctx / 2 ? answer : n_ctx / 2;
	uint32_t limit = (uint32_t)((uint64_t)(n_ctx - answer) * 3 / 4);
	return tier->max_prompt > 0 && tier->max_prompt < limit ? (uint32_t)tier->max_prompt : limit;
}

static bool count_running(struct compress_run *r)
{
	r->counted = atomic_fetch_add(r->key->n_running, 1) < r->key->tier->concurrency;
	if (!r->counted)
		atomic_fetch_sub(r->key->n_running, 1); /* over the limit: the answer reports it */
	return r->counted;
}

/* Can any block be removed, or the last message be shortened? False also without memory. */
static bool may_shorten(struct compress_run *r)
{
	size_t n;
	uint64_t estimate;
	return compress_chat_read(r->ask.prompt.at, r->ask.prompt.n, r->n_ctx / 16 * 3, &r->chat) == 0 &&
	       (compress_n_blocks(r->chat) > 0 || compress_last_text(r->chat, &n, &estimate) != NULL);
}

static uint32_t limit_for(const struct exchange *x, const struct compress_ask *ask)
{
	return limit_of(x->key->tier, engine_link_model(x->app->link, ask->model)->n_ctx, ask->max_tokens);
}

bool compress_may_apply(const struct exchange *x, const struct compress_ask *ask)
{
	/* A token has at least one byte, and JSON adds more bytes to a message than a template adds tokens. */
	return x->key->tier->compress != COMPRESS_OFF && ask->prompt.n > limit_for(x, ask);
}

int compress_start(struct exchange *x, const struct compress_ask *ask, compress_done *done, void *ctx,
		   struct compress_run **out)
{
	const struct gw_tier_config *tier = x->key->tier;
	*out = NULL;
	if (!compress_may_apply(x, ask))
		return 1;
	struct compress_run *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return 1;
	r->x = x;
	r->ask = *ask;
	r->key = auth_key_ref(x->key);
	r->mode = (enum compress_mode)tier->compress;
	r->writer = small_model(x->app->link, ask->model);
	r->n_ctx = engine_link_model(x->app->link, ask->model)->n_ctx;
	r->limit = limit_for(x, ask);
	r->done = done;
	r->ctx = ctx;
	buf_init(&r->text, COMPRESS_MOST_TEXT);
	buf_init(&r->out, REQUEST_MAX_PROMPT);
	gw_timer_init(&r->timer, on_timer);
	if (!may_shorten(r) || !count_running(r) || count(r, ask->prompt) != 0) {
		compress_free(r);
		return 1;
	}
	compress_set_state(r, COMPRESS_COUNTING);
	gw_timer_start(&compress_thread(r)->timers, &r->timer, compress_thread(r)->cfg->compress.wait_ms * NS_PER_MS);
	*out = r;
	return 0;
}
