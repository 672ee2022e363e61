/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/admin/streams and DELETE /v1/admin/streams/{id}: the answers of all threads. A thread writes the rows of its
 * newest answers, at most MOST_ROWS of them, and counts all by tier. Tenants are shown as digests with a key that lives
 * as long as the process: their numbers could be guessed from names and addresses.
 */
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/json/json_out.h"
#include "gateway/admin/admin.h"
#include "gateway/admin/gather.h"
#include "gateway/answer/answer.h"
#include "gateway/exchange/app_state.h"

enum { MOST_ROWS = 250, MOST_TIERS = 64, REPLY_BYTES = 8 << 20, KEY_BYTES = 32, DIGEST_BYTES = 6 };

/* ---- digests ---- */

static uint8_t digest_key[KEY_BYTES];
static bool has_key;

static void make_key(void) { has_key = RAND_bytes(digest_key, sizeof digest_key) == 1; }

static void tenant_digest(uint64_t tenant, char out[2 * DIGEST_BYTES + 1])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	pthread_once(&once, make_key);
	out[0] = '\0';
	if (has_key && HMAC(EVP_sha256(), digest_key, KEY_BYTES, (const uint8_t *)&tenant, sizeof tenant, mac, &n))
		hex_put(mac, DIGEST_BYTES, out);
}

/* ---- a thread's part ---- */

struct tier_count {
	char name[65];
	unsigned running, waiting;
};

struct tier_counts {
	size_t n;
	struct tier_count all[MOST_TIERS];
};

static struct tier_count *count_of(struct tier_counts *c, const char *tier)
{
	for (size_t i = 0; i < c->n; i++)
		if (strcmp(c->all[i].name, tier) == 0)
			return &c->all[i];
	if (c->n == MOST_TIERS)
		return NULL;
	snprintf(c->all[c->n].name, sizeof c->all[0].name, "%s", tier);
	return &c->all[c->n++];
}

static const char *state_of(const struct answer *a)
{
	if (a->sharing.alone)
		return "for_others";
	if (answer_load_has_place(a))
		return "queued";
	if (a->state == ANSWER_WAITING || a->first_token_ns == 0)
		return "waiting";
	return "running";
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
	return from_ns > 0 && to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_S : 0;
}

static int put_text(struct sl_buf *out, const char *name, const char *text)
{
	int rc = buf_printf(out, ",\"%s\":", name);
	return rc == 0 ? json_out_string(out, text, strlen(text)) : rc;
}

static int put_row(struct sl_buf *out, const struct answer *a, uint64_t now, bool first)
{
	char tenant[2 * DIGEST_BYTES + 1];
	const struct sse_usage u = answer_usage(a);
	const double told = seconds_between(a->first_token_ns, now);
	int rc = buf_append_str(out, first ? "{\"id\":" : ",{\"id\":");
	tenant_digest(a->key->tenant, tenant);
	if (rc == 0)
		rc = json_out_string(out, a->id, strlen(a->id));
	if (rc == 0)
		rc = put_text(out, "model", a->model != NULL ? a->model : "");
	if (rc == 0)
		rc = put_text(out, "tier", a->key->tier->name);
	if (rc == 0)
		rc = put_text(out, "request_id", a->seen.request_id);
	if (rc == 0)
		rc = buf_printf(
		    out,
		    ",\"tenant\":\"%s\",\"state\":\"%s\",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"tokens\":"
		    "%u,\"max_tokens\":%u,\"tokens_per_s\":%.1f,\"age_s\":%.1f",
		    tenant, state_of(a), u.n_prompt, u.n_cached, u.n_completion, a->max_tokens,
		    told > 0 ? u.n_completion / told : 0, seconds_between(a->started_ns, now));
	if (rc == 0 && a->first_token_ns > 0)
		rc = buf_printf(out, ",\"ttft_ms\":%.1f", seconds_between(a->started_ns, a->first_token_ns) * 1000);
	if (rc == 0 && a->out.logged)
		rc = buf_append_str(out, a->out.background ? ",\"background\":true" : ",\"resumable\":true");
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static void visit_list(struct gw_app *app, struct gather_part *part)
{
	const uint64_t now = clock_now_ns();
	struct tier_counts *tiers = part->own = sl_zalloc(sizeof *tiers);
	for (struct list *it = app->all_answers.prev; it != &app->all_answers; it = it->prev) {
		const struct answer *a = list_entry(it, struct answer, in_all);
		struct tier_count *c = tiers != NULL ? count_of(tiers, a->key->tier->name) : NULL;
		const size_t before = part->out.len;
		if (a->state == ANSWER_ENDED)
			continue;
		if (c != NULL && a->first_token_ns > 0)
			c->running++;
		else if (c != NULL)
			c->waiting++;
		if (part->n == MOST_ROWS || put_row(&part->out, a, now, part->n == 0) != 0) {
			part->more++;
			buf_cut(&part->out, before);
		} else {
			part->n++;
		}
	}
}

/* ---- all parts ---- */

static int put_rows(struct sl_buf *out, const struct gather_part *parts, size_t n)
{
	int rc = buf_append_str(out, "{\"object\":\"streams\",\"streams\":[");
	bool first = true;
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!parts[i].there || parts[i].n == 0)
			continue;
		if (!first)
			rc = buf_append_str(out, ",");
		if (rc == 0)
			rc = buf_append(out, buf_data(&parts[i].out), parts[i].out.len);
		first = false;
	}
	return rc;
}

static int put_tiers(struct sl_buf *out, const struct gather_part *parts, size_t n)
{
	struct tier_counts all = {.n = 0};
	for (size_t i = 0; i < n; i++) {
		const struct tier_counts *c = parts[i].there ? parts[i].own : NULL;
		for (size_t k = 0; c != NULL && k < c->n; k++) {
			struct tier_count *to = count_of(&all, c->all[k].name);
			if (to != NULL) {
				to->running += c->all[k].running;
				to->waiting += c->all[k].waiting;
			}
		}
	}
	int rc = buf_append_str(out, "],\"tiers\":[");
	for (size_t i = 0; i < all.n && rc == 0; i++) {
		rc = buf_append_str(out, i > 0 ? ",{\"name\":" : "{\"name\":");
		if (rc == 0)
			rc = json_out_string(out, all.all[i].name, strlen(all.all[i].name));
		if (rc == 0)
			rc = buf_printf(out, ",\"running\":%u,\"waiting\":%u}", all.all[i].running, all.all[i].waiting);
	}
	return rc;
}

static void on_listed(void *ctx, const struct gather_part *parts, size_t n)
{
	struct exchange *x = ctx;
	struct sl_buf out;
	size_t listed = 0, more = 0, there = 0;
	exchange_disown(x);
	buf_init(&out, REPLY_BYTES);
	for (size_t i = 0; i < n; i++) {
		there += parts[i].there;
		listed += parts[i].there ? parts[i].n : 0;
		more += parts[i].there ? parts[i].more : 0;
	}
	int rc = put_rows(&out, parts, n);
	if (rc == 0)
		rc = put_tiers(&out, parts, n);
	if (rc == 0)
		rc = buf_printf(&out, "],\"total\":%zu,\"left_out\":%zu,\"threads\":%zu,\"threads_silent\":%zu}",
				listed + more, more, n, n - there);
	static const struct http_field no_store = {"cache-control", "no-store"};
	if (rc == 0)
		exchange_reply(x, 200, "application/json", &no_store, 1, buf_data(&out), out.len);
	else
		exchange_reply_no_memory(x);
	buf_dispose(&out);
}

/* ---- requests ---- */

static void on_close(struct exchange *x) { gather_cancel(x->state); }

static void gather(struct exchange *x, void (*visit)(struct gw_app *app, struct gather_part *part), const char *word,
		   void (*done)(void *ctx, const struct gather_part *parts, size_t n))
{
	struct gather *g;
	int rc = gather_start(x->app->t, visit, word, done, x, &g);
	if (rc == SL_ELIMIT) {
		exchange_refuse(x, 429, "too_many_requests", NULL, "Too many administrators' requests at once.");
	} else if (rc != 0) {
		exchange_reply_no_memory(x);
	} else {
		x->state = g;
		x->on_close = on_close;
	}
}

void admin_streams(struct exchange *x)
{
	if (admin_gate(x, ADMIN_LOOK))
		gather(x, visit_list, "", on_listed);
}

static void visit_cancel(struct gw_app *app, struct gather_part *part)
{
	part->n = answers_cancel(app, part->word) ? 1 : 0;
}

static void on_cancelled(void *ctx, const struct gather_part *parts, size_t n)
{
	struct exchange *x = ctx;
	size_t found = 0;
	exchange_disown(x);
	for (size_t i = 0; i < n; i++)
		found += parts[i].there ? parts[i].n : 0;
	if (found > 0)
		exchange_reply(x, 204, NULL, NULL, 0, NULL, 0);
	else
		exchange_refuse(x, 404, "stream_not_found", NULL, "No answer of that id is running here.");
}

/* An answer's id, as the gateway makes them: nothing else gets into the log. */
static bool is_id(const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
	return n > 0 && n < ANSWER_ID_BYTES && id[n] == '\0';
}

void admin_cancel(struct exchange *x)
{
	if (!admin_gate(x, ADMIN_ACT))
		return;
	const char *id = strrchr(http_request(x->stream)->path, '/') + 1; /* the route has one */
	if (!is_id(id)) {
		exchange_refuse(x, 404, "stream_not_found", NULL, "No answer of that id is running here.");
		return;
	}
	admin_audit(x, "cancel %s", id);
	gather(x, visit_cancel, id, on_cancelled);
}
