/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a block's summary: reads it from the store, or has the small model write one, then checks and stores it.
 *
 * A summary is used if it has most of the block's facts (compress_facts.h) and invents hardly any; missing facts are
 * added as sentences of the conversation. Otherwise a second try summarizes only the turns with the facts; if that
 * fails too, the block gets no summary. Both outcomes are stored under the block's digest, so the next turn pays
 * nothing. Two concurrent requests may both make a summary; generation is greedy, so they get the same one.
 *
 * Its real tokens are charged between QUEUED and the first credit. If the key's limits don't allow them, the block gets
 * no summary. Nothing is logged, because the texts are the users'.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/observe/tier_counts.h"
#include "gateway/compress/compress_priv.h"
#include "gateway/request/request_fields.h"

enum {
	RECORD_VERSION = 0x53,
	RECORD_HEAD = 1, /* 1: a summary follows; 0: there is no good one */
	LEAST_SUMMARY = 32,
	MOST_SUMMARY = 512,  /* tokens */
	SUMMARY_PROMPT = 64, /* tokens of the prompt besides the transcript */
	BYTES_PER_TOKEN = 2, /* of a transcript, at the least */
	SUMMARY_BYTES = 3,   /* per token of a summary */
	MOST_ADDED = 1024,   /* bytes of added facts */
	MOST_TRIES = 2,
	MOST_BLOCKS = 16,        /* summarized per request, the newest */
	FAILED_KEEP_MS = 600000, /* how long "no good summary" is stored */
	WINDOW_TOKENS = 64,
	FOUND_OF_5 = 3,     /* of 5 facts of the block, at least so many must be in the summary */
	INVENTED_OF_5 = 1,  /* of 5 facts of the summary, at most so many may be new: other spellings */
	OTHERS_BYTES = 200, /* of each message that is not the user's: models are verbose */
};

/* ---- metrics ---- */

enum outcome { MADE, STORED, REPAIRED, CHECK_FAILED, STORED_FAILED, REFUSED, NOT_MADE, N_OUTCOMES };
#define SUMMARIES(result)                                                                     \
	METRIC_OF(METRIC_COUNTER, "sluice_compress_summaries_total", "result=\"" result "\"", \
		  "Blocks of conversations to summarize, by outcome")
static struct metric outcomes[N_OUTCOMES] = {
    [MADE] = SUMMARIES("made"),         /* it has all facts */
    [REPAIRED] = SUMMARIES("repaired"), /* missing facts were added */
    [STORED] = SUMMARIES("cached"),
    [CHECK_FAILED] = SUMMARIES("check_failed"), /* this and all below: only trimmed */
    [STORED_FAILED] = SUMMARIES("cached_failed"),
    [REFUSED] = SUMMARIES("refused"),   /* a limit of the key */
    [NOT_MADE] = SUMMARIES("not_made"), /* no time, no room, no engine */
};
METRICS(outcomes);
COUNTER(written_tokens, "sluice_compress_summary_tokens_total",
	"Tokens that writing summaries used: prompts and summaries");

void compress_summary_leave(struct compress_run *r)
{
	struct generation *g = r->gen;
	int64_t used = 0;
	if (g == NULL)
		return;
	if (gen_state(g) >= GEN_RUNNING && gen_state(g) != GEN_CANCELLED) {
		uint32_t n_prompt = gen_queued(g)->n_prompt, n = (uint32_t)gen_n_tokens(g);
		if (gen_state(g) == GEN_FINISHED)
			n = gen_done(g)->n_completion;
		used = (int64_t)n_prompt + n;
		tier_counts_tokens(r->key->tier->name, n_prompt, n);
		metric_add(&written_tokens, used);
	}
	r->gen = NULL;
	gen_unsubscribe(&r->sub);
	quota_settle(r->quota, used);
	r->quota = NULL;
}

/* ---- a block's summary ---- */

static void next_block(struct compress_run *r);

static void settle_block(struct compress_run *r, enum outcome how)
{
	compress_summary_leave(r);
	metric_add(&outcomes[how], 1);
	next_block(r);
}

static void on_written(struct cache_op *op, const struct cache_result *result)
{
	struct compress_run *r = list_entry(op, struct compress_run, op);
	(void)result; /* on failure, the next turn makes it again */
	next_block(r);
}

/* Stores a block's outcome (s NULL: no good summary) and continues. */
static void keep(struct compress_run *r, const struct compress_summary *s, enum outcome how)
{
	struct cache_client *cache = compress_thread(r)->cache;
	uint64_t keep_ms = compress_thread(r)->cfg->responses.keep_ms;
	struct sl_buf record;
	uint8_t head = s != NULL;
	metric_add(&outcomes[how], 1);
	buf_init(&record, RECORD_HEAD + COMPRESS_MOST_TEXT);
	if (cache == NULL || buf_append(&record, &head, RECORD_HEAD) != 0 ||
	    (s != NULL && buf_append(&record, s->text, s->n) != 0)) {
		buf_dispose(&record);
		next_block(r);
		return;
	}
	compress_set_state(r, COMPRESS_WRITING);
	if (s == NULL && keep_ms > FAILED_KEEP_MS)
		keep_ms = FAILED_KEEP_MS;
	cache_put(cache, &r->op, &r->name, RECORD_VERSION, buf_data(&record), record.len, keep_ms, on_written);
	buf_dispose(&record);
}

/* Appends the sentences of missing facts, each once. */
static int add_missing(struct compress_run *r)
{
	size_t start = r->text.len;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < r->facts.n; i++) {
		const struct compress_fact *f = &r->facts.at[i];
		bool told = f->found;
		for (size_t k = 0; k < i && !told; k++)
			told = !r->facts.at[k].found && r->facts.at[k].sentence == f->sentence;
		if (told || r->text.len - start + f->n_sentence > MOST_ADDED)
			continue;
		rc = buf_append_str(&r->text, r->text.len > start ? " " : "\nFacts: ");
		if (rc == 0)
			rc = buf_append(&r->text, f->sentence, f->n_sentence);
	}
	return rc;
}

static bool begin_summary(struct compress_run *r);

/* Counts bytes, so that a stored summary takes as much room as a new one. */
static void take_room(struct compress_run *r, size_t n)
{
	size_t tokens = n / SUMMARY_BYTES + 1;
	r->room -= tokens < r->room ? (uint32_t)tokens : r->room;
}

static void strip(struct sl_buf *text)
{
	while (text->len > 0 && strchr(" \n\t\r", *(const char *)buf_data(text)) != NULL)
		buf_consume(text, 1);
	while (text->len > 0 && strchr(" \n\t\r", ((const char *)buf_data(text))[text->len - 1]) != NULL)
		text->len--;
}

/* Counts the summary's facts that the block does not have. 0, SL_ENOMEM. */
static int count_invented(struct compress_run *r, size_t *out)
{
	const struct compress_excerpt all = {.max_bytes = SIZE_MAX};
	struct sl_buf text;
	size_t n_true = 0;
	r->said.n = 0;
	r->said.clock = r->said.n_texts = 0;
	compress_facts_read(&r->said, (const char *)buf_data(&r->text), r->text.len, 1);
	buf_init(&text, 2 * REQUEST_MAX_PROMPT);
	int rc = compress_block_transcript(r->chat, r->block, &all, &text);
	if (rc == 0)
		rc = compress_facts_check(&r->said, (const char *)buf_data(&text), text.len, &n_true);
	buf_dispose(&text);
	*out = r->said.n - n_true;
	return rc;
}

static void judge(struct compress_run *r)
{
	struct compress_summary *s = &r->summaries[r->block];
	size_t n_found = 0, n_invented = 0;
	strip(&r->text);
	if (r->text.len > 0 &&
	    (compress_facts_check(&r->facts, (const char *)buf_data(&r->text), r->text.len, &n_found) != 0 ||
	     count_invented(r, &n_invented) != 0)) {
		settle_block(r, NOT_MADE);
		return;
	}
	if (r->text.len == 0 || n_found * 5 < r->facts.n * FOUND_OF_5 || n_invented * 5 > r->said.n * INVENTED_OF_5) {
		if (r->tries >= MOST_TRIES)
			keep(r, NULL, CHECK_FAILED);
		else if (!begin_summary(r))
			settle_block(r, NOT_MADE);
		return;
	}
	if (add_missing(r) != 0 || (s->text = sl_strndup((const char *)buf_data(&r->text), r->text.len)) == NULL) {
		settle_block(r, NOT_MADE);
		return;
	}
	s->n = r->text.len;
	take_room(r, s->n);
	keep(r, s, n_found == r->facts.n ? MADE : REPAIRED);
}

static void take_text(struct compress_run *r)
{
	struct gen_chunk chunk;
	while (gen_peek(r->gen, &r->sub, WINDOW_TOKENS, &chunk)) {
		/* Longer text is cut; max_tokens bounds it anyway. */
		if (r->text.len + chunk.n_bytes <= COMPRESS_MOST_TEXT / 2)
			(void)buf_append(&r->text, chunk.text, chunk.n_bytes);
		gen_advance(&r->sub, chunk.n_tokens);
	}
}

static void on_progress(struct subscriber *sub)
{
	struct compress_run *r = list_entry(sub, struct compress_run, sub);
	take_text(r);
	if (gen_state(r->gen) < GEN_FINISHED)
		return;
	bool finished = gen_state(r->gen) == GEN_FINISHED;
	compress_summary_leave(r);
	if (finished)
		judge(r);
	else
		settle_block(r, NOT_MADE);
}

static void admit(struct compress_run *r)
{
	compress_set_state(r, COMPRESS_RUNNING);
	gen_admit(r->gen);
}

static void on_charged(void *ctx, struct quota *q, const struct quota_result *result)
{
	struct compress_run *r = ctx;
	r->quota = result->admitted ? q : NULL;
	if (result->admitted)
		admit(r);
	else
		settle_block(r, REFUSED);
}

static void on_queued(struct subscriber *sub)
{
	struct compress_run *r = list_entry(sub, struct compress_run, sub);
	const struct proto_queued *queued = gen_queued(r->gen);
	int64_t n = (int64_t)queued->n_prompt + r->max_tokens;
	const struct quota_ask ask = {.key = r->key, .tokens = n, .least = n};
	/* Under load, a summary would only delay other requests. */
	if (queued->predicted_ttft_us / 1000 > compress_thread(r)->cfg->compress.wait_ms) {
		settle_block(r, NOT_MADE);
		return;
	}
	compress_set_state(r, COMPRESS_CHARGING);
	int rc = quota_take(&r->x->app->quotas, &ask, on_charged, r, &r->quota);
	if (rc > 0)
		admit(r);
	else if (rc < 0)
		settle_block(r, NOT_MADE);
}

/* The prompt for the small model. */
static int put_question(struct compress_run *r, struct sl_buf *out)
{
	uint32_t n_ctx = engine_link_model(r->x->app->link, r->writer)->n_ctx;
	uint32_t around = r->max_tokens + SUMMARY_PROMPT;
	const struct compress_excerpt excerpt = {.max_bytes =
						     n_ctx > around ? (size_t)(n_ctx - around) * BYTES_PER_TOKEN : 0,
						 .of_others = OTHERS_BYTES,
						 .only = r->tries > 0 && r->facts.n > 0 ? &r->facts : NULL};
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	int rc = compress_block_transcript(r->chat, r->block, &excerpt, &text);
	/* At the end, because models forget what precedes a long text. The second try is worded differently. */
	if (rc == 0 && r->tries == 0)
		rc = buf_append_str(&text, "\n\nSummarize the conversation above.");
	json_t *all = json_pack("{s:[{s:s, s:s}, {s:s, s:s%}]}", "messages", "role", "system", "content",
				"Summarize the conversation and keep all facts the user gave.", "role", "user",
				"content", text.len > 0 ? (const char *)buf_data(&text) : "", (size_t)text.len);
	if (rc == 0)
		rc = all != NULL ? request_put_json(out, all) : SL_ENOMEM;
	json_decref(all);
	buf_dispose(&text);
	return rc;
}

/* False: submitting failed. */
static bool begin_summary(struct compress_run *r)
{
	const struct gw_tier_config *tier = r->key->tier;
	struct proto_submit s = {PROTO_SUBMIT_OFF,
				 .model = (uint16_t)r->writer,
				 .prompt_kind = PROTO_PROMPT_CHAT,
				 .priority = (uint8_t)tier->priority,
				 .tenant = r->key->tenant,
				 .top_p = 1,
				 .max_tokens = r->max_tokens,
				 .deadline_ms = (uint32_t)compress_thread(r)->cfg->compress.wait_ms};
	struct sl_buf prompt;
	if (tier->weight > 0)
		s.weight = (uint32_t)tier->weight;
	buf_clear(&r->text, SIZE_MAX);
	buf_init(&prompt, REQUEST_MAX_PROMPT);
	int rc = put_question(r, &prompt);
	s.prompt = (struct proto_str){(const char *)buf_data(&prompt), prompt.len};
	if (rc == 0) {
		r->tries++;
		compress_set_state(r, COMPRESS_SUBMITTED);
		rc = gen_start(compress_thread(r), &s, WINDOW_TOKENS, &r->sub, &r->gen);
	}
	buf_dispose(&prompt);
	return rc == 0;
}

static void make_summary(struct compress_run *r)
{
	compress_block_facts(r->chat, r->block, &r->facts);
	r->tries = 0;
	if (!begin_summary(r))
		settle_block(r, NOT_MADE);
}

static void on_read(struct cache_op *op, const struct cache_result *result)
{
	struct compress_run *r = list_entry(op, struct compress_run, op);
	struct compress_summary *s = &r->summaries[r->block];
	if (result->code != 0 || result->n < RECORD_HEAD || result->n > RECORD_HEAD + COMPRESS_MOST_TEXT) {
		make_summary(r);
		return;
	}
	if (result->bytes[0] == 0) {
		settle_block(r, STORED_FAILED);
		return;
	}
	s->n = result->n - RECORD_HEAD;
	s->text = sl_strndup((const char *)result->bytes + RECORD_HEAD, s->n);
	s->stored = s->text != NULL;
	take_room(r, s->n);
	settle_block(r, s->stored ? STORED : NOT_MADE);
}

/* The key of the stored summary: block, tenant, writing model. 0, SL_ENOMEM. */
static int name_block(struct compress_run *r)
{
	const struct link_model *writer = engine_link_model(r->x->app->link, r->writer);
	char tenant[24], part[COMPRESS_DIGEST_BYTES + sizeof writer->name + 16];
	int rc = compress_block_digest(r->chat, r->block, (uint8_t *)part);
	if (rc != 0)
		return rc;
	int n = snprintf(part + COMPRESS_DIGEST_BYTES, sizeof part - COMPRESS_DIGEST_BYTES, "%u %s", r->max_tokens,
			 writer->name);
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)r->key->tenant);
	cache_key_make(&r->name, CACHE_SESSION, tenant, part, COMPRESS_DIGEST_BYTES + (size_t)n);
	return 0;
}

uint32_t compress_summary_tokens(const struct compress_run *r, size_t block)
{
	uint64_t n = compress_block_estimate(r->chat, block) / 4;
	return n < LEAST_SUMMARY ? LEAST_SUMMARY : n > MOST_SUMMARY ? MOST_SUMMARY : (uint32_t)n;
}

/* The next older block, or the end. */
static void next_block(struct compress_run *r)
{
	while (r->block > 0 && !r->late) {
		r->block--;
		r->max_tokens = compress_summary_tokens(r, r->block);
		if (r->room < LEAST_SUMMARY || ++r->n_blocks > MOST_BLOCKS || name_block(r) != 0) {
			metric_add(&outcomes[NOT_MADE], 1);
			continue;
		}
		if (compress_thread(r)->cache == NULL) {
			make_summary(r);
			return;
		}
		compress_set_state(r, COMPRESS_READING);
		cache_get(compress_thread(r)->cache, &r->op, &r->name, RECORD_VERSION, on_read);
		return;
	}
	compress_fit(r);
}

void compress_summarize(struct compress_run *r)
{
	r->sub.on_queued = on_queued;
	r->sub.on_progress = on_progress;
	r->block = r->n_out;
	next_block(r);
}

void compress_summary_late(struct compress_run *r)
{
	r->late = true;
	cache_cancel(&r->op);
	if (r->state != COMPRESS_WRITING)
		metric_add(&outcomes[NOT_MADE], 1);
	compress_summary_leave(r);
	compress_fit(r);
}
