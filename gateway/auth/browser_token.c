/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/browser_token.h"

#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/json/json_out.h"
#include "gateway/request/json_mem.h"

enum { MAC_BYTES = 32, MAC_CHARS = 43, PERIOD_DIGITS = 10, PAYLOAD_MAX = 4096 };

static const char prefix[] = "sbt_";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* RFC 4648 5, without padding. out: room for (4 n + 2) / 3 characters. Returns how many. */
static size_t encode(const uint8_t *in, size_t n, char *out)
{
	size_t at = 0;
	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v =
		    (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
		for (size_t k = 0; k < (left > 2 ? 4 : left + 1); k++)
			out[at++] = digits[v >> (18 - 6 * k) & 63];
	}
	return at;
}

/* False: malformed. out: room for 3 n / 4 bytes. */
static bool decode(const char *in, size_t n, uint8_t *out, size_t *n_out)
{
	uint32_t v = 0;
	unsigned bits = 0;
	*n_out = 0;
	if (n % 4 == 1)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *d = in[i] != '\0' ? strchr(digits, in[i]) : NULL;
		if (d == NULL)
			return false;
		v = v << 6 | (uint32_t)(d - digits);
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		out[(*n_out)++] = (uint8_t)(v >> bits);
		v &= (1u << bits) - 1;
	}
	return v == 0; /* otherwise a token would have several spellings */
}

static bool sign(const uint8_t *secret, const void *text, size_t n, uint8_t out[MAC_BYTES])
{
	unsigned len = 0;
	return HMAC(EVP_sha256(), secret, BROWSER_TOKEN_SECRET_BYTES, text, n, out, &len) != NULL && len == MAC_BYTES;
}

static int put_member(struct sl_buf *out, const char *name, const char *value)
{
	int rc = buf_printf(out, ",\"%s\":", name);
	return rc == 0 ? json_out_string(out, value, strlen(value)) : rc;
}

static int put_payload(const struct browser_token *t, struct sl_buf *out)
{
	char hex[2 * IDENTITY_DIGEST_BYTES + 1];
	hex_put(t->digest, IDENTITY_DIGEST_BYTES, hex);
	int rc = buf_printf(out, "{\"exp\":%lld", (long long)t->expires_s);
	if (rc == 0)
		rc = put_member(out, "name", t->name);
	if (rc == 0)
		rc = put_member(out, "sub", t->subject);
	if (rc == 0 && t->origins[0] != '\0')
		rc = put_member(out, "org", t->origins);
	if (rc == 0 && t->stored)
		rc = put_member(out, "key", hex);
	if (rc == 0 && t->stored)
		rc = put_member(out, "tier", t->tier);
	if (rc == 0 && t->stored)
		rc = put_member(out, "tenant", t->tenant);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

int browser_token_print(const struct browser_token *t, int64_t period, const uint8_t secret[BROWSER_TOKEN_SECRET_BYTES],
			struct sl_buf *out)
{
	struct sl_buf payload;
	uint8_t mac[MAC_BYTES], *room;
	char text[MAC_CHARS + 1];
	buf_init(&payload, PAYLOAD_MAX);
	buf_init(out, BROWSER_TOKEN_MAX);
	int rc = put_payload(t, &payload);
	if (rc == 0)
		rc = buf_printf(out, "%s%lld.", prefix, (long long)period);
	if (rc == 0)
		rc = buf_reserve(out, payload.len * 4 / 3 + 4, &room);
	if (rc == 0) {
		buf_commit(out, encode(buf_data(&payload), payload.len, (char *)room));
		rc = sign(secret, buf_data(out), out->len, mac) ? 0 : SL_ENOMEM;
	}
	if (rc == 0) {
		text[encode(mac, sizeof mac, text)] = '\0';
		rc = buf_printf(out, ".%s", text);
	}
	buf_dispose(&payload);
	return rc;
}

bool browser_token_period(const char *text, int64_t *period)
{
	if (strncmp(text, prefix, sizeof prefix - 1) != 0)
		return false;
	text += sizeof prefix - 1;
	size_t n = strspn(text, "0123456789");
	if (n == 0 || n > PERIOD_DIGITS || text[n] != '.')
		return false;
	*period = strtoll(text, NULL, 10);
	return true;
}

static bool take(const json_t *o, const char *name, char *out, size_t room)
{
	const char *s = json_string_value(json_object_get(o, name));
	return s != NULL && (size_t)snprintf(out, room, "%s", s) < room;
}

static bool read_payload(const json_t *o, struct browser_token *out)
{
	out->expires_s = json_integer_value(json_object_get(o, "exp"));
	out->stored = json_object_get(o, "key") != NULL;
	if (!take(o, "name", out->name, sizeof out->name) || !take(o, "sub", out->subject, sizeof out->subject))
		return false;
	if (json_object_get(o, "org") != NULL && !take(o, "org", out->origins, sizeof out->origins))
		return false;
	return !out->stored ||
	       (hex_get(json_string_value(json_object_get(o, "key")), out->digest, IDENTITY_DIGEST_BYTES) &&
		take(o, "tier", out->tier, sizeof out->tier) && take(o, "tenant", out->tenant, sizeof out->tenant));
}

int browser_token_read(const char *text, const uint8_t secret[BROWSER_TOKEN_SECRET_BYTES], int64_t now_s,
		       struct browser_token *out)
{
	uint8_t mac[MAC_BYTES], claimed[MAC_BYTES], payload[PAYLOAD_MAX];
	size_t n = strnlen(text, BROWSER_TOKEN_MAX + 1), n_claimed, n_payload;
	const char *first = strchr(text, '.'), *second = first == NULL ? NULL : strchr(first + 1, '.');
	memset(out, 0, sizeof *out);
	if (n > BROWSER_TOKEN_MAX || second == NULL || strlen(second + 1) != MAC_CHARS ||
	    !decode(second + 1, MAC_CHARS, claimed, &n_claimed) || !sign(secret, text, (size_t)(second - text), mac) ||
	    CRYPTO_memcmp(mac, claimed, sizeof mac) != 0)
		return SL_EINVAL;
	size_t n_text = (size_t)(second - first) - 1;
	if (n_text * 3 / 4 > sizeof payload || !decode(first + 1, n_text, payload, &n_payload))
		return SL_EINVAL;
	json_error_t where;
	json_t *o = json_mem_load((const char *)payload, n_payload, 0, &where);
	if (o == NULL && where.text[0] == '\0')
		return SL_ENOMEM;
	bool well = read_payload(o, out);
	json_decref(o);
	if (!well)
		return SL_EINVAL;
	bool in_time =
	    now_s < out->expires_s && out->expires_s - now_s <= BROWSER_TOKEN_LONGEST_S + BROWSER_TOKEN_SKEW_S;
	return in_time ? 0 : SL_ETIMEOUT;
}
