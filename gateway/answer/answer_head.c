/* SPDX-License-Identifier: Apache-2.0
 *
 * What another gateway needs to continue a logged answer after a crash (gateway/resume reads it), kept in the store
 * beside the answer's events: JSON, a zero byte and the SUBMIT as a frame. It is written when the log opens, with what
 * has been decided by then: the drawn seed, the model, the tokens that the key has left. The deadline is not in it; it
 * begins anew.
 *
 * An answer of the cascade also stores {"small": NAME, "large": NAME, "degraded": bool, "size": N, "past": HEX}: what
 * its run decided by clocks, budgets, failures and races. The head is written again whenever the run decides more, and
 * a decision takes effect only once it is stored (cascade_run_on_past).
 */
#include <jansson.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"
#include "gateway/answer/answer_priv.h"
#include "gateway/auth/auth.h"
#include "gateway/replay/replay_store.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/request_fields.h"

void answer_keep_frame(struct answer *a, struct submit_frame *frame)
{
	if (a->out.logged && replay_store_on(a->app->replay_store) && answer_n_choices(a) == 1 && a->n_made == 1 &&
	    (a->own == NULL || a->format->save != NULL))
		a->frame = submit_frame_ref(frame);
}

static void drop_frame(struct answer *a)
{
	submit_frame_unref(a->frame);
	a->frame = NULL;
}

static json_t *key_of(const struct answer *a)
{
	const struct auth_key *k = a->key;
	char tenant[17];
	hex_put(&k->tenant, sizeof k->tenant, tenant);
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s}", "name", k->name, "kind", (int)k->kind, "tier", k->tier->name,
			 "tenant_name", k->tenant_name, "subject", k->subject, "tenant", tenant);
}

static json_t *ticket_of(const struct answer *a)
{
	struct quota_ticket t;
	char id[2 * sizeof t.id + 1];
	if (a->budget.quota != NULL)
		quota_ticket(a->budget.quota, &t);
	else if (a->continued != NULL && a->continued->has_ticket)
		t = a->continued->ticket;
	else
		return json_null();
	hex_put(t.id, sizeof t.id, id);
	return json_pack("{s:s, s:I, s:I, s:b}", "id", id, "requests", (json_int_t)t.requests, "tokens",
			 (json_int_t)t.tokens, "local", t.local);
}

static uint32_t cached_of(const struct answer *a)
{
	if (a->runs[0].keeps_cached)
		return a->runs[0].usage.n_cached;
	return a->runs[0].cascade != NULL ? cascade_run_cached(a->runs[0].cascade)
					  : gen_queued(a->runs[0].gen)->n_cached;
}

/* A new reference; null where it is not of the cascade; NULL: no memory. */
static json_t *save_cascade(const struct answer *a)
{
	const struct cascade_run *run = a->runs[0].cascade;
	char hex[2 * sizeof(struct casc_past) + 1];
	if (!a->automatic || run == NULL)
		return json_null();
	hex_put(cascade_run_past(run), sizeof(struct casc_past), hex);
	return json_pack("{s:s, s:s, s:b, s:I, s:s}", "small", cascade_run_small(run), "large", cascade_run_large(run),
			 "degraded", cascade_run_tells_degraded(run), "size", (json_int_t)sizeof(struct casc_past),
			 "past", hex);
}

/* The model that makes its tokens, where that is not the one it names: a variant's. */
static const char *answered_by(const struct answer *a)
{
	if (a->automatic || a->load.model < 0)
		return NULL;
	const char *name = engine_link_model(a->app->link, a->load.model)->name;
	return strcmp(name, a->model) != 0 ? name : NULL;
}

/* A new reference; NULL: no memory. */
static json_t *describe(const struct answer *a)
{
	json_t *own = a->format->save != NULL ? a->format->save(a) : json_null();
	/* Of what was granted; what was sent since will be sent again. */
	int64_t left =
	    a->budget.left == INT64_MAX ? -1 : a->budget.left + (a->out.replaying ? 0 : (int64_t)a->budget.sent);
	return json_pack(
	    "{s:i, s:s, s:s, s:I, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:s?, s:b, s:s?, "
	    "s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:s?}",
	    "draw", ANSWER_DRAW, "owner", replay_store_owner(a->app->replay_store), "id", a->id, "created",
	    (json_int_t)a->created, "model", a->model, "format", a->format->id_prefix, "stream", a->out.stream, "usage",
	    a->out.include_usage, "obfuscate", a->out.obfuscate, "background", a->out.background, "keep_text",
	    a->out.keep_text, "ids", a->out.ids, "max_tokens", (json_int_t)a->max_tokens, "cached",
	    (json_int_t)cached_of(a), "tokens_left", (json_int_t)left, "tokens_short", (json_int_t)a->budget.short_by,
	    "degraded", a->load.degraded, "shortened", a->load.shortened || a->load.short_at != UINT64_MAX, "told",
	    a->members, "key", key_of(a), "quota", ticket_of(a), "own", own, "cascade", save_cascade(a), "split",
	    answer_split_save(a->split), "token_ids", a->out.token_ids, "tokens_as_ids", a->out.tokens_as_ids,
	    "answered_by", answered_by(a));
}

/* With the seed of its generation. */
static int put_frame(const struct answer *a, struct sl_buf *out)
{
	if (a->frame == NULL)
		return 0;
	struct proto_submit s = a->frame->s;
	if (a->runs[0].gen != NULL)
		s.seed = gen_seed(a->runs[0].gen);
	/* What load has made of it. */
	if (s.max_tokens > a->max_tokens)
		s.max_tokens = a->max_tokens;
	if (s.min_tokens > s.max_tokens)
		s.min_tokens = s.max_tokens;
	return proto_put_submit(out, 0, &s);
}

static int put_head(const struct answer *a, struct sl_buf *out)
{
	json_t *o = describe(a);
	int rc = o != NULL ? request_put_json(out, o) : SL_ENOMEM;
	json_decref(o);
	if (rc == 0)
		rc = buf_append(out, "", 1);
	return rc == 0 ? put_frame(a, out) : rc;
}

/* An upstream that does not list its tokens may divide an answer otherwise the next time, so that events which were
 * sent but not stored would not come again. */
static bool same_tokens(const struct answer *a, int model)
{
	const struct link_model *m = model >= 0 ? engine_link_model(a->app->link, model) : NULL;
	return m == NULL || !link_model_is_remote(m) || (m->does & PROTO_DOES_GIVE_IDS) != 0;
}

/* Can others continue it? */
static bool repeats(const struct answer *a)
{
	const struct cascade_run *run = a->runs[0].cascade;
	if (!a->automatic)
		return same_tokens(a, a->load.model);
	return a->n_runs == 1 && run != NULL && cascade_run_repeats(run) &&
	       same_tokens(a, engine_link_find_model(a->app->link, cascade_run_small(run))) &&
	       same_tokens(a, engine_link_find_model(a->app->link, cascade_run_large(run)));
}

void answer_open_spool(struct answer *a, uint64_t from)
{
	struct sl_buf head;
	a->out.spooled = true;
	if (!replay_store_on(a->app->replay_store))
		return;
	if (!repeats(a))
		drop_frame(a);
	buf_init(&head, ANSWER_MAX_WHOLE);
	if (put_head(a, &head) == 0)
		a->out.spool = spool_open(a->app->replay_store, a->out.log, a->key->tenant, from, buf_data(&head),
					  head.len, a->out.background);
	if (a->out.spool == NULL)
		log_warn("a stream is kept in this process only: no memory");
	buf_dispose(&head);
	/* That of the cascade will be written again. */
	if (!a->automatic || a->out.spool == NULL)
		drop_frame(a);
}

static void on_saved(void *ctx)
{
	struct answer *a = ctx;
	cascade_run_saved(a->runs[0].cascade);
}

/* The run has decided more: the head is written again, and on_saved is called when it is stored or can't be. False:
 * only this process has it. */
static bool on_past(void *ctx)
{
	struct answer *a = ctx;
	struct sl_buf head;
	bool is_on_its_way = false;
	if (a->out.spool == NULL || a->frame == NULL || a->runs[0].gen == NULL)
		return false;
	buf_init(&head, ANSWER_MAX_WHOLE);
	if (put_head(a, &head) == 0)
		is_on_its_way = spool_rewrite(a->out.spool, buf_data(&head), head.len, on_saved, a);
	buf_dispose(&head);
	return is_on_its_way;
}

void answer_auto_watch(struct answer *a) { cascade_run_on_past(a->runs[0].cascade, on_past, a); }

bool answer_can_be_left(const struct answer *a)
{
	const struct gw_thread *t = a->app->t;
	return a->out.log != NULL && a->x == NULL && a->end == ANSWER_UNDECIDED && !a->sharing.alone && t->draining &&
	       (a->out.background || t->replaced) && spool_works(a->out.spool);
}
