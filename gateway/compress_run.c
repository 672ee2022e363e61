/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries compression out.
 *
 * The limit is 75 % of what the model's context has beside the answer that is asked for, or what the tier
 * allows a prompt. A block is about a quarter of that. How many must go is found by counting what is left;
 * then each has a summary of at most a quarter of its tokens, all together of at most a quarter of the
 * limit: where they don't fit, are too many, or time is short, the oldest have none.
 *
 * A summary is used when it says most of the facts that matter (compress_facts.h) and hardly any that
 * nobody said; those it lacks are added in the words of the conversation. Otherwise it is asked for once
 * more, of the turns alone in which the facts are; then its block goes without. Both outcomes are kept in the store, by the digest of the block, so that
 * the next turn of the conversation costs nothing. Two requests at once may both make one: they make the
 * same, for it is greedy.
 *
 * A run holds one of its key's places, like the answer it is for. A summary is charged with its real
 * tokens, between QUEUED and the first credit; when the key's limits refuse it, its block goes without.
 *
 * Nothing here is told to logs: texts are the conversation's.
 */
#include "gateway/compress_run.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/metrics.h"
#include "cache/cache.h"
#include "gateway/app_state.h"
#include "gateway/chat_metrics.h"
#include "gateway/compress.h"
#include "gateway/generation.h"
#include "gateway/request_fields.h"

enum {
	RECORD_VERSION = 0x53,
	RECORD_HEAD = 1, /* whether there is a summary */
	LEAST_SUMMARY = 32, MOST_SUMMARY = 512, /* tokens */
	SUMMARY_PROMPT = 64,    /* tokens around a transcript */
	BYTES_PER_TOKEN = 2,    /* of a transcript, at least */
	SUMMARY_BYTES = 3,      /* of a summary's token */
	MOST_TEXT = 16 << 10,   /* bytes of a summary with its facts */
	MOST_ADDED = 1024,      /* bytes of facts that are added */
	MOST_TRIES = 2,
	MOST_BLOCKS = 16,       /* that are summarized for one request, the newest */
	MOST_TRIMS = 8,         /* counts until all goes that may */
	FIT_MS = 1000,          /* for the last count, when the time is over */
	FAILED_KEEP_MS = 600000, /* that a block has no good summary */
	TOLD_BYTES = 256,
	WINDOW_TOKENS = 64,
	FOUND_OF_5 = 3,         /* of 5 facts so many must be there */
	INVENTED_OF_5 = 1,      /* and of 5 in the summary so many may be new: other ways to write them */
	OTHERS_BYTES = 200,     /* of a message that isn't the user's: models say much, and it is theirs */
};

enum state { IDLE, COUNTING, TRIMMING, READING, SUBMITTED, CHARGING, RUNNING, WRITING, FITTING, OVER };

static const char heading[] = "Summary of the conversation so far: ";

struct summary {
	char *text; /* owned; NULL: none */
	size_t n;
	bool stored; /* it came from the store */
};

struct compress_run {
	struct exchange *x;
	enum state state;
	struct compress_ask ask;
	struct auth_key *key;
	struct compress_chat *chat;
	enum compress_mode mode;
	enum compress_form form;
	int writer;            /* the model that writes summaries */
	uint32_t limit, n_ctx; /* tokens of the answering model */
	uint32_t n_before, n_trimmed, n_after;
	uint64_t count_id;     /* 0: none is awaited */
	bool placed;
	bool late;             /* the time for summaries is over */
	size_t n_out;          /* blocks that go */
	int n_trims;
	struct summary *summaries; /* [n_out] */
	size_t block;          /* the one that is summarized; going down */
	int n_blocks;          /* that were, or not */
	uint32_t room;         /* tokens that summaries may still have */
	/* Of the block. */
	int tries;
	uint32_t max_tokens;
	struct cache_key name;
	struct cache_op op;
	struct subscriber sub;
	struct generation *gen;
	struct quota *quota;
	struct sl_buf text;    /* what the model wrote */
	struct compress_facts facts, said; /* of the block, of its summary */
	struct gw_timer timer;
	struct sl_buf out;     /* the prompt */
	char told[TOLD_BYTES];
	compress_done *done;
	void *ctx;
};

/* ---- metrics ---- */

#define REQUESTS(how)                                                                               \
	{.kind = METRIC_COUNTER, .name = "sluice_compressed_requests_total", .labels = "how=\"" how "\"", \
	 .help = "Requests whose conversation was made shorter"}
static struct metric requests_summary = REQUESTS("summary"), requests_trim = REQUESTS("trim");
static struct metric removed_tokens = {.kind = METRIC_COUNTER, .name = "sluice_compressed_tokens_total",
				       .help = "Tokens of conversations that compression removed"};

enum outcome { MADE, STORED, REPAIRED, CHECK_FAILED, STORED_FAILED, REFUSED, NOT_MADE, N_OUTCOMES };
#define SUMMARIES(result)                                                                              \
	{.kind = METRIC_COUNTER, .name = "sluice_compress_summaries_total", .labels = "result=\"" result "\"", \
	 .help = "Blocks of conversations that were to be summarized, by what came of it"}
static struct metric outcomes[N_OUTCOMES] = {
    [MADE] = SUMMARIES("made"),                   /* all facts were in it */
    [REPAIRED] = SUMMARIES("repaired"),           /* some were added */
    [STORED] = SUMMARIES("cached"),
    [CHECK_FAILED] = SUMMARIES("check_failed"),   /* fell back to trimming, as all below */
    [STORED_FAILED] = SUMMARIES("cached_failed"),
    [REFUSED] = SUMMARIES("refused"),             /* by a limit of the key */
    [NOT_MADE] = SUMMARIES("not_made"),           /* no time, no room, no engine */
};
static struct metric written_tokens = {.kind = METRIC_COUNTER, .name = "sluice_compress_summary_tokens_total",
				       .help = "Tokens that writing summaries took, prompts and summaries"};

void compress_metrics_register(void)
{
	metric_register(&requests_summary);
	metric_register(&requests_trim);
	metric_register(&removed_tokens);
	for (int i = 0; i < N_OUTCOMES; i++)
		metric_register(&outcomes[i]);
	metric_register(&written_tokens);
}

/* ---- life ---- */

static void set_state(struct compress_run *r, enum state to)
{
	static const uint16_t allowed[] = {
	    [IDLE] = 1 << COUNTING,
	    [COUNTING] = 1 << TRIMMING | 1 << OVER,
	    [TRIMMING] = 1 << TRIMMING | 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [READING] = 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [SUBMITTED] = 1 << CHARGING | 1 << RUNNING | 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [CHARGING] = 1 << RUNNING | 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [RUNNING] = 1 << WRITING | 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [WRITING] = 1 << READING | 1 << SUBMITTED | 1 << FITTING | 1 << OVER,
	    [FITTING] = 1 << FITTING | 1 << OVER,
	    [OVER] = 0,
	};
	BUG_IF(!(allowed[r->state] & 1 << to), "a compression from state %d to %d", (int)r->state, (int)to);
	r->state = to;
}

static struct gw_thread *thread_of(const struct compress_run *r) { return r->x->app->t; }

/* The summary that is being written ends here: what it took is paid. */
static void leave_generation(struct compress_run *r)
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
		chat_metrics_tokens(r->key->tier->name, n_prompt, n);
		metric_add(&written_tokens, used);
	}
	r->gen = NULL;
	gen_unsubscribe(&r->sub);
	quota_settle(r->quota, used);
	r->quota = NULL;
}

static void leave_place(struct compress_run *r)
{
	if (r->placed)
		atomic_fetch_sub(r->key->n_running, 1);
	r->placed = false;
}

/* Nothing more will come. */
static void stop(struct compress_run *r)
{
	if (r->count_id != 0)
		engine_link_uncount(r->x->app->link, r->count_id);
	r->count_id = 0;
	cache_cancel(&r->op);
	leave_generation(r);
	gw_timer_stop(&thread_of(r)->timers, &r->timer);
	leave_place(r);
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

static void finish(struct compress_run *r, bool changed)
{
	struct proto_str prompt = r->ask.prompt;
	set_state(r, OVER);
	stop(r);
	if (changed)
		prompt = (struct proto_str){(const char *)buf_data(&r->out), r->out.len};
	r->done(r->ctx, prompt, changed ? r->told : NULL);
}

/* ---- counting ---- */

static void on_counted(void *ctx, const struct proto_counted *m);

/* 0, or it can't be counted. */
static int count(struct compress_run *r, struct proto_str prompt)
{
	const struct proto_count req = {.model = (uint16_t)r->ask.model, .prompt_kind = PROTO_PROMPT_CHAT, .prompt = prompt};
	return engine_link_count(r->x->app->link, &req, on_counted, r, &r->count_id);
}

/* The prompt without the blocks that go, with what there is instead. */
static int write_prompt(struct compress_run *r, const struct sl_buf *summary)
{
	buf_clear(&r->out, SIZE_MAX);
	return compress_write(r->chat, r->n_out, r->form, summary != NULL ? (const char *)buf_data(summary) : "",
			      summary != NULL ? summary->len : 0, &r->out);
}

static int count_written(struct compress_run *r)
{
	return count(r, (struct proto_str){(const char *)buf_data(&r->out), r->out.len});
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
		const struct summary *s = &r->summaries[i];
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
	metric_add(summarized ? &requests_summary : &requests_trim, 1);
	metric_add(&removed_tokens, removed);
	snprintf(r->told, sizeof r->told,
		 "\"compressed\":{\"removed_messages\":%zu,\"removed_tokens\":%u,\"summary_tokens\":%u,\"how\":\"%s\",\"cached\":%s}",
		 compress_n_messages(r->chat, r->n_out), removed, summary, summarized ? "summary" : "trim",
		 stored ? "true" : "false");
	finish(r, true);
}

/* Writes what there is and has it counted. */
static void fit(struct compress_run *r)
{
	struct sl_buf summary;
	bool stored;
	set_state(r, FITTING);
	r->n_after = r->n_trimmed;
	buf_init(&summary, PROTO_MAX_PAYLOAD);
	int rc = join_summaries(r, &summary);
	if (rc == 0)
		rc = write_prompt(r, &summary);
	buf_dispose(&summary);
	if (rc != 0) {
		finish(r, false);
		return;
	}
	if (n_summaries(r, &stored) == 0 || count_written(r) != 0)
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
	/* A template that has no place for it there. */
	if (m->error != PROTO_ERR_NONE && r->form == COMPRESS_MESSAGE) {
		r->form = COMPRESS_FOLDED;
		fit(r);
		return;
	}
	r->n_after = m->error == PROTO_ERR_NONE ? m->n_tokens : r->n_trimmed;
	if ((m->error != PROTO_ERR_NONE || m->n_tokens > r->limit) && drop_oldest(r)) {
		fit(r);
		return;
	}
	finish_shorter(r);
}

/* ---- a block's summary ---- */

static void next_block(struct compress_run *r);

static void settle_block(struct compress_run *r, enum outcome how)
{
	metric_add(&outcomes[how], 1);
	next_block(r);
}

static void on_written(struct cache_op *op, const struct cache_result *result)
{
	struct compress_run *r = list_entry(op, struct compress_run, op);
	(void)result; /* without it the next turn makes another one */
	next_block(r);
}

/* Keeps what came of a block, NULL: nothing good, and goes on. */
static void keep(struct compress_run *r, const struct summary *s, enum outcome how)
{
	struct cache_client *cache = thread_of(r)->cache;
	uint64_t keep_ms = thread_of(r)->cfg->responses.keep_ms;
	struct sl_buf record;
	uint8_t head = s != NULL;
	metric_add(&outcomes[how], 1);
	buf_init(&record, RECORD_HEAD + MOST_TEXT);
	if (cache == NULL || buf_append(&record, &head, RECORD_HEAD) != 0 ||
	    (s != NULL && buf_append(&record, s->text, s->n) != 0)) {
		buf_dispose(&record);
		next_block(r);
		return;
	}
	set_state(r, WRITING);
	if (s == NULL && keep_ms > FAILED_KEEP_MS)
		keep_ms = FAILED_KEEP_MS;
	cache_put(cache, &r->op, &r->name, RECORD_VERSION, buf_data(&record), record.len, keep_ms, on_written);
	buf_dispose(&record);
}

/* What the summary lacks, in the words of the conversation; each sentence once. */
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

/* There is one of n bytes. By its bytes, so that a stored one takes as much as when it was made. */
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

/* How many of the facts it has are nobody's. 0, or there is no memory to tell. */
static int count_invented(struct compress_run *r, size_t *out)
{
	const struct compress_telling all = {.max_bytes = SIZE_MAX};
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

/* The model has written all it will. */
static void judge(struct compress_run *r)
{
	struct summary *s = &r->summaries[r->block];
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
		/* One that is too long ends where it is cut: max_tokens bounds it anyway. */
		if (r->text.len + chunk.n_bytes <= MOST_TEXT / 2)
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
	bool good = gen_state(r->gen) == GEN_FINISHED;
	leave_generation(r);
	if (good)
		judge(r);
	else
		settle_block(r, NOT_MADE);
}

static void admit(struct compress_run *r)
{
	set_state(r, RUNNING);
	gen_admit(r->gen);
}

static void on_charged(void *ctx, struct quota *q, const struct quota_result *result)
{
	struct compress_run *r = ctx;
	r->quota = result->admitted ? q : NULL;
	if (result->admitted) {
		admit(r);
		return;
	}
	leave_generation(r);
	settle_block(r, REFUSED);
}

static void on_queued(struct subscriber *sub)
{
	struct compress_run *r = list_entry(sub, struct compress_run, sub);
	int64_t n = (int64_t)gen_queued(r->gen)->n_prompt + r->max_tokens;
	const struct quota_ask ask = {.key = r->key, .tokens = n, .least = n};
	set_state(r, CHARGING);
	int rc = quota_take(&r->x->app->quotas, &ask, on_charged, r, &r->quota);
	if (rc > 0) {
		admit(r);
	} else if (rc < 0) {
		leave_generation(r);
		settle_block(r, NOT_MADE);
	}
}

/* What the small model is asked. */
static int put_question(struct compress_run *r, struct sl_buf *out)
{
	uint32_t n_ctx = engine_link_model(r->x->app->link, r->writer)->n_ctx;
	uint32_t around = r->max_tokens + SUMMARY_PROMPT;
	const struct compress_telling telling = {.max_bytes = n_ctx > around ? (size_t)(n_ctx - around) * BYTES_PER_TOKEN : 0,
						 .of_others = OTHERS_BYTES,
						 .only = r->tries > 0 && r->facts.n > 0 ? &r->facts : NULL};
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	int rc = compress_block_transcript(r->chat, r->block, &telling, &text);
	/* After what may be long, for models forget what stood before it; the second time in other words. */
	if (rc == 0 && r->tries == 0)
		rc = buf_append_str(&text, "\n\nSummarize the conversation above.");
	if (rc == 0)
		rc = buf_append_str(out, "{\"messages\":[{\"role\":\"system\",\"content\":\"Summarize the conversation and keep "
					 "all facts the user gave.\"},{\"role\":\"user\",\"content\":");
	if (rc == 0)
		rc = json_out_string(out, text.len > 0 ? (const char *)buf_data(&text) : "", text.len);
	buf_dispose(&text);
	return rc == 0 ? buf_append_str(out, "}]}") : rc;
}

/* False: it can't be made. */
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
				 .deadline_ms = (uint32_t)thread_of(r)->cfg->compress.wait_ms};
	struct sl_buf prompt;
	if (tier->weight > 0)
		s.weight = (uint32_t)tier->weight;
	buf_clear(&r->text, SIZE_MAX);
	buf_init(&prompt, REQUEST_MAX_PROMPT);
	int rc = put_question(r, &prompt);
	s.prompt = (struct proto_str){(const char *)buf_data(&prompt), prompt.len};
	if (rc == 0) {
		r->tries++;
		set_state(r, SUBMITTED);
		rc = gen_start(thread_of(r), &s, WINDOW_TOKENS, &r->sub, &r->gen);
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
	struct summary *s = &r->summaries[r->block];
	if (result->code != 0 || result->n < RECORD_HEAD || result->n > RECORD_HEAD + MOST_TEXT) {
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

/* By what the block says, who asks, and who writes. 0 or SL_ENOMEM. */
static int name_block(struct compress_run *r)
{
	const struct link_model *writer = engine_link_model(r->x->app->link, r->writer);
	char tenant[24], part[COMPRESS_DIGEST_BYTES + sizeof writer->name + 16];
	int rc = compress_block_digest(r->chat, r->block, (uint8_t *)part);
	if (rc != 0)
		return rc;
	int n = snprintf(part + COMPRESS_DIGEST_BYTES, sizeof part - COMPRESS_DIGEST_BYTES, "%u %s", r->max_tokens, writer->name);
	snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)r->key->tenant);
	cache_key_make(&r->name, CACHE_SESSION, tenant, part, COMPRESS_DIGEST_BYTES + (size_t)n);
	return 0;
}

static uint32_t summary_tokens(const struct compress_run *r, size_t block)
{
	uint64_t n = compress_block_estimate(r->chat, block) / 4;
	return n < LEAST_SUMMARY ? LEAST_SUMMARY : n > MOST_SUMMARY ? MOST_SUMMARY : (uint32_t)n;
}

/* The next older block, or the end. */
static void next_block(struct compress_run *r)
{
	while (r->block > 0 && !r->late) {
		r->block--;
		r->max_tokens = summary_tokens(r, r->block);
		if (r->room < LEAST_SUMMARY || ++r->n_blocks > MOST_BLOCKS || name_block(r) != 0) {
			metric_add(&outcomes[NOT_MADE], 1);
			continue;
		}
		if (thread_of(r)->cache == NULL) {
			make_summary(r);
			return;
		}
		set_state(r, READING);
		cache_get(thread_of(r)->cache, &r->op, &r->name, RECORD_VERSION, on_read);
		return;
	}
	fit(r);
}

/* ---- how much must go ---- */

/* Tokens that summaries of the first n blocks may have. */
static uint32_t room_for(const struct compress_run *r, size_t n)
{
	uint64_t all = 0;
	for (size_t i = 0; r->mode == COMPRESS_SUMMARY && i < n; i++)
		all += summary_tokens(r, i);
	return all < r->limit / 4 ? (uint32_t)all : r->limit / 4;
}

/* How many blocks must go by the estimate, put right by what was counted; at least `least`. */
static size_t guess(const struct compress_run *r, size_t least)
{
	size_t n = 0, most = compress_n_blocks(r->chat);
	double left = r->n_before, scale = left / (double)(compress_estimate(r->chat) + 1);
	for (; n < most && (n < least || left + room_for(r, n) > r->limit); n++)
		left -= (double)compress_block_estimate(r->chat, n) * scale;
	return n;
}

static void trim(struct compress_run *r, size_t least)
{
	set_state(r, TRIMMING);
	r->n_out = ++r->n_trims > MOST_TRIMS ? compress_n_blocks(r->chat) : guess(r, least);
	if (write_prompt(r, NULL) != 0 || count_written(r) != 0)
		finish(r, false);
}

static void on_trimmed(struct compress_run *r, const struct proto_counted *m)
{
	if (m->error != PROTO_ERR_NONE) {
		finish(r, false);
		return;
	}
	if (m->n_tokens + room_for(r, r->n_out) > r->limit && r->n_out < compress_n_blocks(r->chat)) {
		trim(r, r->n_out + 1);
		return;
	}
	r->n_trimmed = m->n_tokens;
	r->room = room_for(r, r->n_out);
	if (r->mode == COMPRESS_SUMMARY)
		r->summaries = sl_zalloc_n(r->n_out, sizeof *r->summaries);
	r->block = r->summaries != NULL ? r->n_out : 0;
	next_block(r);
}

static void on_counted(void *ctx, const struct proto_counted *m)
{
	struct compress_run *r = ctx;
	r->count_id = 0;
	if (m == NULL) {
		finish(r, false);
		return;
	}
	if (r->state == FITTING) {
		on_fitted(r, m);
	} else if (r->state == TRIMMING) {
		on_trimmed(r, m);
	} else if (m->error != PROTO_ERR_NONE || m->n_tokens <= r->limit) {
		finish(r, false);
	} else {
		r->n_before = m->n_tokens;
		trim(r, 1);
	}
}

static void on_timer(struct gw_timer *timer)
{
	struct compress_run *r = list_entry(timer, struct compress_run, timer);
	r->late = true;
	if (r->state == COUNTING || r->state == TRIMMING) {
		finish(r, false);
		return;
	}
	if (r->state == FITTING) {
		r->n_after = r->n_trimmed;
		finish_shorter(r);
		return;
	}
	/* A summary in the making is left. */
	cache_cancel(&r->op);
	if (r->state != WRITING)
		metric_add(&outcomes[NOT_MADE], 1);
	leave_generation(r);
	gw_timer_start(&thread_of(r)->timers, &r->timer, FIT_MS * NS_PER_MS);
	fit(r);
}

/* ---- the beginning ---- */

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

static bool take_place(struct compress_run *r)
{
	r->placed = atomic_fetch_add(r->key->n_running, 1) < r->key->tier->concurrency;
	if (!r->placed)
		atomic_fetch_sub(r->key->n_running, 1); /* the answer says so */
	return r->placed;
}

/* Is there anything that could go? False also when there is no memory to see. */
static bool may_shorten(struct compress_run *r)
{
	return compress_chat_read(r->ask.prompt.at, r->ask.prompt.n, r->n_ctx / 16 * 3, &r->chat) == 0 &&
	       compress_n_blocks(r->chat) > 0;
}

static uint32_t limit_for(const struct exchange *x, const struct compress_ask *ask)
{
	return limit_of(x->key->tier, engine_link_model(x->app->link, ask->model)->n_ctx, ask->max_tokens);
}

bool compress_may_apply(const struct exchange *x, const struct compress_ask *ask)
{
	/* A token has a byte at least, and JSON more bytes around a message than a template has tokens. */
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
	r->sub.on_queued = on_queued;
	r->sub.on_progress = on_progress;
	buf_init(&r->text, MOST_TEXT);
	buf_init(&r->out, REQUEST_MAX_PROMPT);
	gw_timer_init(&r->timer, on_timer);
	if (!may_shorten(r) || !take_place(r) || count(r, ask->prompt) != 0) {
		compress_free(r);
		return 1;
	}
	set_state(r, COUNTING);
	gw_timer_start(&thread_of(r)->timers, &r->timer, thread_of(r)->cfg->compress.wait_ms * NS_PER_MS);
	*out = r;
	return 0;
}
