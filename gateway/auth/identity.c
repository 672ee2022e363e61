/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/identity.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/request/json_mem.h"

const char identity_registry[] = "keys";

bool identity_name_ok(const char *name)
{
	size_t n = strlen(name);
	return n > 0 && n <= IDENTITY_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static int put_text(struct sl_buf *out, const char *name, const char *value)
{
	int rc = buf_printf(out, "\"%s\":", name);
	if (rc == 0)
		rc = json_out_string(out, value, strlen(value));
	return rc == 0 ? buf_append_str(out, ",") : rc;
}

static int put_origins(struct sl_buf *out, const char *list)
{
	int rc = buf_append_str(out, "\"origins\":[");
	for (bool first = true; rc == 0 && *list != '\0'; first = false) {
		size_t n = strcspn(list, " ");
		if (!first)
			rc = buf_append_str(out, ",");
		if (rc == 0)
			rc = json_out_string(out, list, n);
		list += n;
		list += strspn(list, " ");
	}
	return rc == 0 ? buf_append_str(out, "]}") : rc;
}

int identity_print(struct sl_buf *out, const struct identity *id)
{
	int rc = buf_append_str(out, "{");
	if (rc == 0)
		rc = put_text(out, "name", id->name);
	if (rc == 0)
		rc = put_text(out, "tier", id->tier);
	if (rc == 0)
		rc = put_text(out, "tenant", id->tenant);
	if (rc == 0)
		rc = put_text(out, "start", id->start);
	if (rc == 0)
		rc = buf_printf(out, "\"created\":%lld,\"expires\":%lld,\"revoked\":%lld,", (long long)id->created_s,
				(long long)id->expires_s, (long long)id->revoked_s);
	return rc == 0 ? put_origins(out, id->origins) : rc;
}

static bool take_text(const json_t *record, const char *name, char *out, size_t room)
{
	const char *s = json_string_value(json_object_get(record, name));
	return s != NULL && (size_t)snprintf(out, room, "%s", s) < room;
}

static bool take_time(const json_t *record, const char *name, int64_t *out)
{
	const json_t *t = json_object_get(record, name);
	*out = json_integer_value(t);
	return json_is_integer(t) && *out >= 0;
}

static bool take_origins(const json_t *list, char *out, size_t room)
{
	size_t n = 0, i;
	json_t *one;
	out[0] = '\0';
	if (!json_is_array(list))
		return false;
	json_array_foreach(list, i, one)
	{
		const char *s = json_string_value(one);
		if (s == NULL || s[0] == '\0' || strchr(s, ' ') != NULL)
			return false;
		int len = snprintf(out + n, room - n, "%s%s", n > 0 ? " " : "", s);
		if (len < 0 || (size_t)len >= room - n)
			return false;
		n += (size_t)len;
	}
	return true;
}

int identity_read(const void *bytes, size_t n, struct identity *out)
{
	json_error_t where = {.text = "too long"};
	json_t *r = n <= IDENTITY_RECORD_MAX ? json_mem_load(bytes, n, 0, &where) : NULL;
	memset(out, 0, sizeof *out);
	if (r == NULL && where.text[0] == '\0')
		return SL_ENOMEM;
	bool well = take_text(r, "name", out->name, sizeof out->name) &&
		    take_text(r, "tier", out->tier, sizeof out->tier) &&
		    take_text(r, "tenant", out->tenant, sizeof out->tenant) &&
		    take_text(r, "start", out->start, sizeof out->start) && out->tenant[0] != '\0' &&
		    take_time(r, "created", &out->created_s) && take_time(r, "expires", &out->expires_s) &&
		    take_time(r, "revoked", &out->revoked_s) &&
		    take_origins(json_object_get(r, "origins"), out->origins, sizeof out->origins);
	json_decref(r);
	return well ? 0 : SL_EINVAL;
}

bool identity_valid(const struct identity *id, int64_t now_s)
{
	return id->revoked_s == 0 && (id->expires_s == 0 || now_s < id->expires_s);
}

void identity_key(struct cache_key *out, const uint8_t digest[IDENTITY_DIGEST_BYTES])
{
	cache_key_make(out, CACHE_IDENTITY, identity_registry, digest, IDENTITY_DIGEST_BYTES);
}
