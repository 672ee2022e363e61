/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields are read from the left, the last HOPS_MAX entries are kept, then the way is walked from the
 * right: peer, last entry, the one before. Entries left of the first untrusted one may be the
 * client's invention and are ignored.
 *
 * X-Forwarded-For has no grammar beyond commas, so an odd entry is just an entry without address.
 * In Forwarded a quoted string may hold commas: a client that sends an open quote could swallow what
 * the proxy appends. So a field that breaks the grammar of RFC 7239 section 4 is an error.
 */
#include "gateway/transport/forwarded.h"

#include <string.h>
#include <strings.h>

enum { HOPS_MAX = 32, NODE_MAX = 128 };

struct hop {
	bool known;
	struct net_addr addr;
};

struct way {
	struct hop hops[HOPS_MAX];
	size_t n; /* entries seen; the last HOPS_MAX are kept */
};

/* ":80", or in Forwarded a port's made-up name, ":_x". */
static bool is_port(const char *p, size_t n)
{
	if (n < 2 || p[0] != ':')
		return false;
	for (size_t i = 1; i < n; i++)
		if ((p[i] < '0' || p[i] > '9') && p[1] != '_')
			return false;
	return true;
}

/* An address, in brackets if IPv6 and with a port or not. */
static struct hop read_node(const char *p, size_t n)
{
	struct hop h = {0};
	const char *rest = p + n;
	size_t n_addr = n;
	bool bracketed = n > 0 && p[0] == '[';
	if (bracketed) {
		const char *end = memchr(p, ']', n);
		if (end == NULL)
			return h;
		rest = end + 1;
		n_addr = (size_t)(end - ++p);
	} else {
		/* One colon ends an IPv4 address, several belong to a bare IPv6 one. */
		const char *colon = memchr(p, ':', n);
		if (colon != NULL && memchr(colon + 1, ':', (size_t)(rest - colon - 1)) == NULL) {
			n_addr = (size_t)(colon - p);
			rest = colon;
		}
	}
	size_t n_rest = n - n_addr - (bracketed ? 2 : 0);
	h.known = (n_rest == 0 || is_port(rest, n_rest)) && (!bracketed || memchr(p, ':', n_addr) != NULL) &&
		  net_addr_parse(p, n_addr, &h.addr);
	return h;
}

static void add_hop(struct way *w, struct hop h)
{
	w->hops[w->n % HOPS_MAX] = h;
	w->n++;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static void read_x_forwarded_for(const char *v, struct way *w)
{
	for (;;) {
		size_t n = strcspn(v, ",");
		const char *p = v;
		size_t m = n;
		while (m > 0 && is_blank(p[0])) {
			p++;
			m--;
		}
		while (m > 0 && is_blank(p[m - 1]))
			m--;
		if (m > 0)
			add_hop(w, read_node(p, m));
		if (v[n] == '\0')
			return;
		v += n + 1;
	}
}

/* A token or a quoted string, unescaped into out (cut at its size: no address is that long).
 * Returns what follows, NULL: neither. */
static const char *read_value(const char *p, char out[NODE_MAX], size_t *n)
{
	*n = 0;
	if (*p != '"') {
		const char *from = p;
		for (; http_is_token(*p); p++)
			if (*n < NODE_MAX)
				out[(*n)++] = *p;
		return p == from ? NULL : p;
	}
	for (p++; *p != '"'; p++) {
		if (*p == '\\')
			p++;
		if (*p == '\0')
			return NULL;
		if (*n < NODE_MAX)
			out[(*n)++] = *p;
	}
	return p + 1;
}

/* One element: pairs between semicolons, no blanks around them. Returns what follows, NULL: not
 * one. */
static const char *read_element(const char *p, struct way *w)
{
	struct hop h = {0};
	bool has_for = false;
	for (;;) {
		const char *name = p;
		char value[NODE_MAX];
		size_t n_value;
		while (http_is_token(*p))
			p++;
		size_t n_name = (size_t)(p - name);
		if (n_name == 0 || *p != '=')
			return NULL;
		p = read_value(p + 1, value, &n_value);
		if (p == NULL)
			return NULL;
		if (n_name == 3 && strncasecmp(name, "for", 3) == 0) {
			if (has_for) /* each at most once */
				return NULL;
			has_for = true;
			h = read_node(value, n_value);
		}
		if (*p != ';')
			break;
		p++;
	}
	add_hop(w, h);
	return p;
}

static int read_forwarded(const char *p, struct way *w)
{
	for (;;) {
		while (is_blank(*p) || *p == ',') /* RFC 9110 5.6.1: empty elements */
			p++;
		if (*p == '\0')
			return 0;
		p = read_element(p, w);
		if (p == NULL)
			return SL_EPROTO;
		while (is_blank(*p))
			p++;
		if (*p != ',' && *p != '\0')
			return SL_EPROTO;
	}
}

int forwarded_client(enum forwarded_kind kind, const struct http_field *fields, size_t n_fields,
		     const struct net_blocks *trusted, const struct net_addr *peer, struct net_addr *client)
{
	struct way w;
	w.n = 0;
	*client = *peer;
	for (size_t i = 0; i < n_fields; i++) {
		if (kind == FORWARDED_X_FORWARDED_FOR && strcmp(fields[i].name, "x-forwarded-for") == 0)
			read_x_forwarded_for(fields[i].value, &w);
		else if (kind == FORWARDED_RFC7239 && strcmp(fields[i].name, "forwarded") == 0 &&
			 read_forwarded(fields[i].value, &w) != 0)
			return SL_EPROTO;
	}
	size_t kept = w.n < HOPS_MAX ? w.n : HOPS_MAX;
	for (size_t i = 0; i < kept; i++) {
		const struct hop *h = &w.hops[(w.n - 1 - i) % HOPS_MAX];
		/* A peer without an address is a unix socket's, whose permissions protect it: trusted. */
		bool by_socket = i == 0 && !net_addr_known(peer);
		if (!h->known || !(by_socket || net_blocks_hold(trusted, client)))
			break;
		*client = h->addr;
	}
	return 0;
}
