/* SPDX-License-Identifier: Apache-2.0
 *
 * Before a request is submitted: is the same request being answered, so that this one can join it? Is one being
 * answered that this one replaces?
 *
 * Joined is only what would be the same work for the same user: the key with the `user` (or
 * safety_identifier, or the conversation) that the request names. A request that names none may want many answers
 * by many requests, so then it must be clear that they would be equal: at temperature 0 or with a seed,
 * and in flight. So it must be between users, where a tier allows that. What is compared is the request as
 * the engine would get it (its bytes, but the seed when it would be drawn), so nothing can be forgotten.
 *
 * The first one never waits: it leads, and its generation's log is kept (token_log.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/answer/answer_priv.h"

enum { MAX_ASKED = 64 << 10 };

COUNTER(joined_total, "sluice_twins_joined_total", "Requests that were answered by the generation of another");

bool answer_is_coalesced(const struct answer *a)
{
	const struct generation *g = a->runs[0].gen;
	return g != NULL && gen_state(g) < GEN_FINISHED && gen_is_shared_by_others(g);
}

void answer_unshare(struct answer *a)
{
	static const char text[] = "The answer that this one shared did not begin.";
	static const struct proto_done gone = {
	    .finish = PROTO_FINISH_ERROR, .error = PROTO_ERR_OVERLOADED, .message = {text, sizeof text - 1}};
	if (a->sharing.lead != NULL) {
		token_log_end(a->sharing.lead, &gone);
		token_log_unref(a->sharing.lead);
		a->sharing.lead = NULL;
	}
	supersede_end(a->sharing.prompt);
	a->sharing.prompt = NULL;
}

/* ---- which user asks, and for what ---- */

/* With the zero at its end: what follows can't be taken for a part of it. */
static int put_text(struct sl_buf *out, const char *s) { return buf_append(out, s, strlen(s) + 1); }

struct asked {
	bool may_join;
	bool named; /* whose it is */
	struct request_digest digest;
};

/* What is not in the frame. */
static int put_asked(struct sl_buf *all, const struct answer *a, const struct answer_spec *spec, bool between_users)
{
	const char *user = spec->user != NULL ? spec->user : spec->conversation;
	int rc = put_text(all, a->format->id_prefix);
	if (rc == 0 && !between_users && user != NULL)
		rc = put_text(all, spec->user != NULL ? "user" : "conversation");
	if (rc == 0 && !between_users && user != NULL)
		rc = put_text(all, user);
	if (rc == 0)
		rc = put_text(all, spec->has_seed ? "seed" : "");
	return rc == 0 ? put_text(all, a->automatic ? answer_auto_name : "") : rc;
}

static bool is_named(const struct answer_spec *spec) { return spec->user != NULL || spec->conversation != NULL; }

/* Equal requests get equal answers. */
static bool is_certain(const struct answer_spec *spec) { return spec->submit->temperature <= 0 || spec->has_seed; }

bool answer_may_join(const struct auth_key *key, const struct answer_spec *spec)
{
	return key->tier->coalesce != GW_COALESCE_OFF && spec->n_prompts == 1 && spec->submit->prompt_logprobs == 0 &&
	       (is_named(spec) || is_certain(spec));
}

static void ask(const struct answer *a, const struct answer_spec *spec, const struct submit_frame *frame,
		struct asked *out)
{
	static const char no_seed[sizeof frame->s.seed];
	struct sl_buf all;
	*out = (struct asked){.named = is_named(spec)};
	if (!answer_may_join(a->key, spec))
		return;
	buf_init(&all, MAX_ASKED);
	out->may_join = put_asked(&all, a, spec, a->key->tier->coalesce == GW_COALESCE_TENANT && is_certain(spec)) == 0;
	/* A seed that was drawn is not what was asked for. */
	char *bytes = (char *)buf_data(&frame->bytes), *seed = bytes + PROTO_SUBMIT_SEED_AT;
	size_t n_seed = sizeof no_seed;
	const struct iovec parts[] = {{buf_data(&all), all.len},
				      {bytes, PROTO_SUBMIT_SEED_AT},
				      {spec->has_seed ? seed : (char *)no_seed, n_seed},
				      {seed + n_seed, frame->bytes.len - PROTO_SUBMIT_SEED_AT - n_seed}};
	if (out->may_join)
		inflight_digest(a->app->inflight, parts, 4, &out->digest);
	buf_dispose(&all);
}

/* ---- newer and older ---- */

static void on_superseded(void *ctx) { answer_supersede(ctx); }

static struct iovec text_part(const char *s) { return (struct iovec){(void *)(uintptr_t)s, strlen(s)}; }

static void supersede_older(struct answer *a, const struct answer_spec *spec, const struct asked *asked)
{
	const struct gw_tier_config *tier = a->key->tier;
	struct inflight *inflight = a->app->inflight;
	struct supersede_request r = {.named = spec->conversation != NULL,
				      .guess = tier->supersede == GW_SUPERSEDE_ANY && spec->user != NULL &&
					       spec->messages != NULL,
				      .may_join = asked->may_join,
				      .request = asked->digest,
				      .burst_ns = a->app->t->cfg->coalescing.burst_ms * NS_PER_MS};
	if (tier->supersede == GW_SUPERSEDE_OFF || !(r.named || r.guess))
		return;
	const struct iovec user[] = {{&a->key->tenant, sizeof a->key->tenant},
				     text_part(spec->user != NULL ? spec->user : "")};
	inflight_digest(inflight, user, 2, &r.user);
	if (r.named) {
		struct iovec name = text_part(spec->conversation);
		inflight_digest(inflight, &name, 1, &r.name);
	}
	if (spec->messages != NULL)
		r.messages = *spec->messages;
	supersede_begin(inflight, &r, a->app->t, on_superseded, a, &a->sharing.prompt);
}

/* ---- joining ---- */

static int join(struct answer *a, struct token_log *log, const struct submit_frame *frame)
{
	uint32_t window = (uint32_t)a->app->t->cfg->limits.window_tokens;
	struct answer_run *run = &a->runs[0];
	int rc = gen_join(a->app->t, log, &frame->s, window, &run->sub, &run->gen);
	a->sharing.coalesced = rc == 0;
	if (rc == 0)
		answer_observe_run(a, run);
	metric_add(&joined_total, a->sharing.coalesced);
	return rc;
}

/* The same answer again, so it has its name. */
static int join_first(struct answer *a, struct token_log *log, const char *id, int64_t created,
		      const struct submit_frame *frame)
{
	snprintf(a->id, sizeof a->id, "%s", id);
	a->created = created;
	return join(a, log, frame) == 0 ? 1 : SL_ERANGE;
}

int answer_share(struct answer *a, const struct answer_spec *spec, const struct submit_frame *frame)
{
	uint64_t window_ns = a->app->t->cfg->coalescing.window_ms * NS_PER_MS;
	struct asked asked;
	const char *id;
	int64_t created;
	struct token_log *log = idempotent_joins(a->sharing.idempotent, &id, &created);
	if (log != NULL)
		return join_first(a, log, id, created, frame);
	ask(a, spec, frame, &asked);
	supersede_older(a, spec, &asked);
	if (asked.may_join && coalesce_enter(a->app->inflight, &asked.digest, asked.named ? window_ns : 0, &log) > 0) {
		bool joined = join(a, log, frame) == 0; /* or it has failed this moment: then by itself */
		if (joined)
			idempotent_begin(a->sharing.idempotent, a->id, a->created, log);
		token_log_unref(log);
		if (joined)
			return 1;
		log = NULL;
	}
	if (log == NULL && a->sharing.idempotent != NULL && spec->n_prompts == 1)
		log = coalesce_log(a->app->inflight);
	idempotent_begin(a->sharing.idempotent, a->id, a->created, log);
	a->sharing.lead = log;
	return 0;
}
