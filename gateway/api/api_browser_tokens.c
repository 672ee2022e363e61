/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/browser_tokens: the back end of a web page gets a token with its key and gives it to the page's visitor. A
 * token grants what its key grants, for at most an hour and from the listed origins; it cannot create tokens.
 */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/auth/browser_token.h"
#include "gateway/auth/cors.h"
#include "gateway/api/handlers.h"
#include "gateway/request/json_mem.h"
#include "gateway/auth/token_secrets.h"

enum { MAX_BODY = 16384, SHORTEST_S = 60, USUAL_S = 600 };

struct minting {
	struct exchange *x;
	struct secret_wait wait;
	bool waits;
	int64_t period;
	struct browser_token token;
};

static void on_close(struct exchange *x)
{
	struct minting *m = x->state;
	if (m->waits)
		secret_wait_cancel(&m->wait);
	sl_free(m);
}

/* ---- the answer ---- */

/* The names in a list that blanks separate. */
static json_t *array_of(const char *list)
{
	json_t *all = json_array();
	int failed = 0;
	for (size_t n; (n = strcspn(list, " ")) > 0; list += n + strspn(list + n, " "))
		failed |= json_array_append_new(all, json_stringn(list, n));
	if (!failed)
		return all;
	json_decref(all);
	return NULL;
}

static void reply(struct minting *m, enum secret_verdict v, const uint8_t *secret)
{
	const struct browser_token *t = &m->token;
	struct sl_buf token;
	if (v != SECRET_THERE) {
		exchange_error(m->x, &exchange_no_memory, "The secret that signs tokens was not available in time.");
		return;
	}
	if (browser_token_print(t, m->period, secret, &token) != 0)
		exchange_reply_no_memory(m->x);
	else
		exchange_reply_json_no_store(m->x, json_pack("{s:s, s:s%, s:I, s:s, s:o}", "object", "browser_token",
							     "token", (const char *)buf_data(&token), (size_t)token.len,
							     "expires_at", (json_int_t)t->expires_s, "subject",
							     t->subject, "origins", array_of(t->origins)));
	buf_dispose(&token);
}

static void on_secret(struct secret_wait *w, enum secret_verdict v, const uint8_t *secret)
{
	struct minting *m = list_entry(w, struct minting, wait);
	m->waits = false;
	reply(m, v, secret);
}

/* ---- the request ---- */

/* Always false. */
static bool bad(struct exchange *x, const char *param, const char *message)
{
	return exchange_refuse(x, 400, "invalid_value", param, "%s", message);
}

static bool take_ttl(struct exchange *x, const json_t *v, int64_t *out)
{
	*out = v == NULL ? USUAL_S : json_integer_value(v);
	if ((v == NULL || json_is_integer(v)) && *out >= SHORTEST_S && *out <= BROWSER_TOKEN_LONGEST_S)
		return true;
	return bad(x, "ttl", "ttl is a number of seconds and must be between 60 and 3600.");
}

static bool take_subject(struct exchange *x, const json_t *v, char out[BROWSER_TOKEN_SUBJECT_MAX + 1])
{
	const char *s = json_string_value(v);
	size_t n = s == NULL ? 0 : json_string_length(v);
	bool well = n > 0 && n <= BROWSER_TOKEN_SUBJECT_MAX && strlen(s) == n;
	for (size_t i = 0; well && i < n; i++)
		well = (unsigned char)s[i] >= ' ' && s[i] != 0x7f;
	if (!well)
		return bad(x, "subject", "subject says whom the token is for: 1 to 128 bytes of text.");
	memcpy(out, s, n + 1);
	return true;
}

/* The key allows every origin that the entry covers. */
static bool within_key(const char *origins, const char *entry)
{
	size_t n = strlen(entry);
	if (auth_origin_allowed(origins, entry))
		return true;
	for (const char *at = origins; (at = strstr(at, entry)) != NULL; at++)
		if ((at == origins || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

static bool take_origins(struct exchange *x, const json_t *v, char out[BROWSER_TOKEN_ORIGINS_MAX + 1])
{
	size_t n = 0, i;
	const json_t *one;
	if (v == NULL || (json_is_array(v) && json_array_size(v) == 0)) {
		if (strlen(x->key->origins) > BROWSER_TOKEN_ORIGINS_MAX)
			return bad(x, "origins",
				   "The key has too many origins: 'origins' must name those that the token is for.");
		memcpy(out, x->key->origins, strlen(x->key->origins) + 1);
		return true;
	}
	if (!json_is_array(v))
		return bad(x, "origins", "origins is a list of web origins.");
	json_array_foreach(v, i, one)
	{
		const char *s = json_string_value(one);
		size_t len = s == NULL ? 0 : strlen(s);
		if (s == NULL || len != json_string_length(one) || !cors_is_origin(s))
			return bad(x, "origins", "An origin is written as https://chat.example or http://localhost:*.");
		if (!within_key(x->key->origins, s))
			return bad(x, "origins", "A token can't be used from more origins than its key.");
		if (n + len + 2 > BROWSER_TOKEN_ORIGINS_MAX)
			return bad(x, "origins", "Too many origins.");
		if (n > 0)
			out[n++] = ' ';
		memcpy(out + n, s, len + 1);
		n += len;
	}
	return true;
}

static bool take_all(struct exchange *x, const json_t *o, struct browser_token *t)
{
	const char *name;
	json_t *value;
	int64_t ttl_s;
	if (!json_is_object(o))
		return bad(x, NULL,
			   "The body must be a JSON object: {\"ttl\": 600, \"subject\": \"…\", \"origins\": […]}.");
	json_object_foreach((json_t *)o, name, value)
	{
		(void)value;
		if (strcmp(name, "ttl") != 0 && strcmp(name, "subject") != 0 && strcmp(name, "origins") != 0)
			return exchange_refuse(x, 400, "unknown_parameter", name, "Unknown parameter: '%.100s'.", name);
	}
	if (!take_ttl(x, json_object_get(o, "ttl"), &ttl_s) ||
	    !take_subject(x, json_object_get(o, "subject"), t->subject) ||
	    !take_origins(x, json_object_get(o, "origins"), t->origins))
		return false;
	t->expires_s = clock_unix_s() + ttl_s;
	if (x->key->expires_s != 0 && x->key->expires_s < t->expires_s)
		t->expires_s = x->key->expires_s;
	return true;
}

/* The token's key. */
static bool take_key(struct exchange *x, struct browser_token *t)
{
	static const char too_long[] = "The name of this key is too long for tokens.";
	const struct auth_key *k = x->key;
	t->stored = k->kind == AUTH_STORED;
	memcpy(t->digest, k->digest, sizeof t->digest);
	if (strlen(k->name) > IDENTITY_NAME_MAX)
		return bad(x, NULL, too_long);
	memcpy(t->name, k->name, strlen(k->name) + 1);
	if (!t->stored)
		return true;
	if (strlen(k->tier->name) > IDENTITY_NAME_MAX || strlen(k->tenant_name) > IDENTITY_NAME_MAX)
		return bad(x, NULL, too_long);
	memcpy(t->tier, k->tier->name, strlen(k->tier->name) + 1);
	memcpy(t->tenant, k->tenant_name, strlen(k->tenant_name) + 1);
	return true;
}

static void mint(struct minting *m)
{
	struct exchange *x = m->x;
	const uint8_t *secret = NULL;
	m->period = token_secrets_period(clock_unix_s());
	m->wait.done = on_secret;
	enum secret_verdict v = token_secrets_find(x->app->secrets, m->period, &m->wait, &secret);
	m->waits = v == SECRET_ASKED;
	if (!m->waits)
		reply(m, v, secret);
}

void api_browser_tokens(struct exchange *x)
{
	json_error_t where = {.text = "too long"};
	if (!api_needs_key(x, "Only an API key may create browser tokens."))
		return;
	if (x->app->secrets == NULL) {
		exchange_reply_no_memory(x);
		return;
	}
	struct minting *m = exchange_own(x, sizeof *m, on_close);
	if (m == NULL)
		return;
	m->x = x;
	json_t *o = x->body.len <= MAX_BODY
			? json_mem_load(exchange_body(x), x->body.len, JSON_REJECT_DUPLICATES, &where)
			: NULL;
	if (o == NULL && where.text[0] == '\0')
		exchange_reply_no_memory(x);
	else if (take_all(x, o, &m->token) && take_key(x, &m->token))
		mint(m);
	json_decref(o);
}
