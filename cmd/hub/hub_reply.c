/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_reply.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "cmd/hub/hub_net.h"

struct text {
	const char *at;
	size_t n;
};

/* Digits only, up to INT64_MAX. */
static int64_t number(struct text t)
{
	int64_t v = 0;
	for (size_t i = 0; i < t.n; i++)
		if (t.at[i] < '0' || t.at[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, t.at[i] - '0', &v))
			return -1;
	return t.n > 0 ? v : -1;
}

static void copy(struct text t, char *out, size_t size)
{
	if (t.n >= size || text_has_control(t.at, t.n))
		return;
	memcpy(out, t.at, t.n);
	out[t.n] = '\0';
}

/* A strong validator (RFC 9110, 8.8.3): only these are good for If-Range. */
static void take_etag(struct hub_reply *r, struct text t)
{
	if (t.n >= 2 && t.at[0] == '"' && t.at[t.n - 1] == '"')
		copy(t, r->etag, sizeof r->etag);
}

static void take_linked_etag(struct hub_reply *r, struct text t)
{
	if (t.n >= 2 && t.at[0] == '"' && t.at[t.n - 1] == '"')
		t = (struct text){t.at + 1, t.n - 2};
	copy(t, r->linked_etag, sizeof r->linked_etag);
}

/* bytes 1000-1999/2000 */
static void take_range(struct hub_reply *r, struct text t)
{
	if (t.n < 6 || strncasecmp(t.at, "bytes ", 6) != 0)
		return;
	t = (struct text){t.at + 6, t.n - 6};
	const char *dash = memchr(t.at, '-', t.n), *slash = memchr(t.at, '/', t.n);
	if (dash == NULL || slash == NULL || slash < dash)
		return;
	r->start = number((struct text){t.at, (size_t)(dash - t.at)});
	r->total = number((struct text){slash + 1, t.n - (size_t)(slash + 1 - t.at)});
}

static void take_retry(struct hub_reply *r, struct text t)
{
	int64_t s = number(t); /* dates are ignored */
	r->retry_after_s = s > 0 ? (uint64_t)s : 0;
}

static void take(struct hub_reply *r, struct text name, struct text value)
{
	static const char *const names[] = {"etag",          "x-linked-etag", "x-linked-size", "x-repo-commit",
					    "content-range", "retry-after",   "link"};
	size_t i = 0;
	while (i < sizeof names / sizeof *names &&
	       (strlen(names[i]) != name.n || strncasecmp(names[i], name.at, name.n) != 0))
		i++;
	switch (i) {
	case 0: take_etag(r, value); break;
	case 1: take_linked_etag(r, value); break;
	case 2: r->linked_size = number(value); break;
	case 3: copy(value, r->commit, sizeof r->commit); break;
	case 4: take_range(r, value); break;
	case 5: take_retry(r, value); break;
	case 6: hub_link_next(value.at, value.n, r->next, sizeof r->next); break;
	default: break;
	}
}

void hub_reply_header(struct hub_reply *r, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	if (colon == NULL)
		return;
	struct text name = {line, (size_t)(colon - line)}, value = {colon + 1, n - name.n - 1};
	while (value.n > 0 && (value.at[0] == ' ' || value.at[0] == '\t'))
		value = (struct text){value.at + 1, value.n - 1};
	while (value.n > 0 && strchr(" \t\r\n", value.at[value.n - 1]) != NULL)
		value.n--;
	take(r, name, value);
}
