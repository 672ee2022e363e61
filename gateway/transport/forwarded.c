/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields are read from the left and the last HOPS_MAX entries are kept. Then the hops are walked from the right:
 * the peer, the last entry, the entry before it. Entries left of the first untrusted address are ignored, because the
 * client may have written them.
 *
 * X-Forwarded-For has no grammar beyond commas, so an odd entry is just an entry without an address. In Forwarded a
 * quoted string may hold commas: a client that sends an open quote could swallow the entry that the proxy appends. So a
 * field that breaks the grammar of RFC 7239 section 4 is an error.
 */
#include "gateway/transport/forwarded.h"

#include <string.h>
#include <strings.h>

enum { HOPS_MAX = 32, NODE_MAX = 128 };

struct hop {
	bool known;
	struct net_addr addr;
};

struct hops {
	struct hop hops[HOPS_MAX];
	size_t n; /* entries seen; the last HOPS_MAX are kept */
};

/* ":80", or an obfuscated port of Forwarded, ":_x". */
static bool is_port(const char *p, size_t n)
{
	if (n < 2 || p[0] != ':')
		return false;
	for (size_t i = 1; i < n; i++)
		if ((p[i] < '0' || p[i] > '9') && p[1] != '_')
			return false;
	return true;
}

/* An address, optionally in brackets (IPv6) and with a port. */
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
		/* A single colon ends an IPv4 address; a bare IPv6 address has several. */
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

static void add_hop(struct hops *w, struct hop h)
{
	w->hops[w->n % HOPS_MAX] = h;
	w->n++;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static void read_x_forwarded_for(const char *v, struct hops *w)
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

/* Reads a token or a quoted string, unescaped into out and truncated to its size (no address is that long). Returns the
 * end; NULL: malformed. */
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

/* Reads one element: pairs separated by semicolons, without blanks. Returns the end; NULL: malformed. */
static const char *read_element(const char *p, struct hops *w)
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
			if (has_for) /* at most once per element */
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

static int read_forwarded(const char *p, struct hops *w)
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
	struct hops w;
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
		/* A peer on a unix socket has no address and is trusted: the permissions of the socket protect it. */
		bool by_unix = i == 0 && !net_addr_known(peer);
		if (!h->known || !(by_unix || net_blocks_hold(trusted, client)))
			break;
		*client = h->addr;
	}
	return 0;
}
