/* SPDX-License-Identifier: Apache-2.0
 *
 * X-Forwarded-For and Forwarded: whose request it is, and who does not get to say so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/transport/forwarded.h"

static char *trusted_items[] = {"10.0.0.0/8", "2001:db8:f::/48"};
static const struct conf_strings trusted_texts = {trusted_items, 2};
static struct net_blocks trusted;
static char text[NET_ADDR_TEXT];

static struct net_addr addr(const char *s)
{
	struct net_addr a = {0};
	if (s[0] != '\0')
		assert_true(net_addr_parse(s, strlen(s), &a));
	return a;
}

/* What two fields (the second may be NULL) from that peer say; "!" for an error. */
static const char *client(enum forwarded_kind kind, const char *peer, const char *one, const char *two)
{
	const char *name = kind == FORWARDED_RFC7239 ? "forwarded" : "x-forwarded-for";
	const struct http_field fields[] = {{"accept", "1.1.1.1"}, {name, one}, {name, two}};
	struct net_addr p = addr(peer), out;
	if (forwarded_client(kind, fields, two != NULL ? 3 : one != NULL ? 2 : 1, &trusted, &p, &out) != 0)
		return "!";
	net_addr_print(&out, text);
	return text;
}

struct one {
	const char *peer, *value, *second, *client;
};

static void run(enum forwarded_kind kind, const struct one *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct one *c = &cases[i];
		const char *got = client(kind, c->peer, c->value, c->second);
		if (strcmp(got, c->client) != 0)
			fail_msg("%s from %s: %s, not %s", c->value, c->peer, got, c->client);
	}
}

static void x_forwarded_for(void **state)
{
	(void)state;
	static const struct one cases[] = {
	    {"10.0.0.1", NULL, NULL, "10.0.0.1"},
	    {"10.0.0.1", "192.0.2.1", NULL, "192.0.2.1"},
	    /* The right-most that is not trusted; what the client made up is left of it. */
	    {"10.0.0.1", "127.0.0.1, 192.0.2.1", NULL, "192.0.2.1"},
	    {"10.0.0.1", "192.0.2.66, 192.0.2.1, 10.2.2.2", NULL, "192.0.2.1"},
	    {"10.0.0.1", "192.0.2.66", "192.0.2.1,10.2.2.2", "192.0.2.1"},
	    {"10.0.0.1", "192.0.2.1\t ,10.2.2.2 ,  10.0.0.2", NULL, "192.0.2.1"},
	    /* All trusted: the first of them. */
	    {"10.0.0.1", "10.3.3.3, 10.2.2.2", NULL, "10.3.3.3"},
	    /* Nobody asked the peer. */
	    {"192.0.2.9", "1.2.3.4", NULL, "192.0.2.9"},
	    {"", "1.2.3.4", NULL, "1.2.3.4"},
	    {"10.0.0.1", "2001:db8::1", NULL, "2001:db8::1"},
	    {"10.0.0.1", "[2001:db8::1]:443", NULL, "2001:db8::1"},
	    {"10.0.0.1", "[2001:db8::1]", NULL, "2001:db8::1"},
	    {"10.0.0.1", "192.0.2.1:1234", NULL, "192.0.2.1"},
	    {"2001:db8:f::1", "2001:db8:e::1, 2001:db8:f::2", NULL, "2001:db8:e::1"},
	    {"10.0.0.1", ", ,192.0.2.1,,", NULL, "192.0.2.1"},
	    /* No address: the hop that wrote it is as far as anybody knows. */
	    {"10.0.0.1", "192.0.2.1, unknown", NULL, "10.0.0.1"},
	    {"10.0.0.1", "192.0.2.1, 10.0.0.", NULL, "10.0.0.1"},
	    {"10.0.0.1", "192.0.2.1, unknown, 10.2.2.2", NULL, "10.2.2.2"},
	    {"10.0.0.1", "garbage \" here, 192.0.2.1", NULL, "192.0.2.1"},
	    {"10.0.0.1", "[192.0.2.1]", NULL, "10.0.0.1"},
	    {"10.0.0.1", "[2001:db8::1", NULL, "10.0.0.1"},
	    {"10.0.0.1", "192.0.2.1:", NULL, "10.0.0.1"},
	    {"10.0.0.1", "192.0.2.1:8x", NULL, "10.0.0.1"},
	    {"10.0.0.1", "", NULL, "10.0.0.1"},
	};
	run(FORWARDED_X_FORWARDED_FOR, cases, sizeof cases / sizeof *cases);
}

static void forwarded(void **state)
{
	(void)state;
	static const struct one cases[] = {
	    {"10.0.0.1", NULL, NULL, "10.0.0.1"},
	    {"10.0.0.1", "for=192.0.2.1", NULL, "192.0.2.1"},
	    {"10.0.0.1", "For=\"192.0.2.1\"", NULL, "192.0.2.1"},
	    {"10.0.0.1", "For=\"[2001:db8:cafe::17]:4711\"", NULL, "2001:db8:cafe::17"},
	    {"10.0.0.1", "for=192.0.2.1;proto=http;by=203.0.113.43", NULL, "192.0.2.1"},
	    {"10.0.0.1", "proto=https;host=\"a, for=9.9.9.9\";for=192.0.2.1", NULL, "192.0.2.1"},
	    {"10.0.0.1", "for=192.0.2.66, for=192.0.2.1 , for=10.2.2.2", NULL, "192.0.2.1"},
	    {"10.0.0.1", "for=192.0.2.66", "for=192.0.2.1", "192.0.2.1"},
	    {"10.0.0.1", "for=192.0.2.66, proto=http", NULL, "10.0.0.1"},
	    {"10.0.0.1", "for=192.0.2.66, for=unknown", NULL, "10.0.0.1"},
	    {"10.0.0.1", "for=_hidden, for=\"10.2.2.2:_p0\"", NULL, "10.2.2.2"},
	    {"10.0.0.1", "for=\"1\\92.0.2.1\"", NULL, "192.0.2.1"},
	    {"10.0.0.1", ",for=192.0.2.1,", NULL, "192.0.2.1"},
	    /* A client's open quote does not swallow what the proxy says. */
	    {"10.0.0.1", "for=\"1.1.1.1, for=192.0.2.1", NULL, "!"},
	    {"10.0.0.1", "for=\"1.1.1.1, for=\"192.0.2.1\"", NULL, "!"},
	    {"10.0.0.1", "for=\"", "for=192.0.2.1", "!"},
	    {"10.0.0.1", "for=\"\\", NULL, "!"},
	    {"10.0.0.1", "for", NULL, "!"},
	    {"10.0.0.1", "=1.1.1.1", NULL, "!"},
	    {"10.0.0.1", "for=", NULL, "!"},
	    {"10.0.0.1", "for= 1.1.1.1", NULL, "!"},
	    {"10.0.0.1", "for=1.1.1.1;for=2.2.2.2", NULL, "!"},
	    {"10.0.0.1", "for=1.1.1.1;", NULL, "!"},
	    {"10.0.0.1", "for=1.1.1.1 for=2.2.2.2", NULL, "!"},
	    {"10.0.0.1", "for=1.1.1.1:80", NULL, "!"}, /* wants quotes */
	};
	run(FORWARDED_RFC7239, cases, sizeof cases / sizeof *cases);
	/* The other field says nothing. */
	const struct http_field both[] = {{"x-forwarded-for", "1.1.1.1"}, {"forwarded", "for=2.2.2.2"}};
	struct net_addr p = addr("10.0.0.1"), out;
	assert_int_equal(forwarded_client(FORWARDED_RFC7239, both, 2, &trusted, &p, &out), 0);
	net_addr_print(&out, text);
	assert_string_equal(text, "2.2.2.2");
	assert_int_equal(forwarded_client(FORWARDED_OFF, both, 2, &trusted, &p, &out), 0);
	assert_true(net_addr_equal(&p, &out));
}

/* However many entries a client invents, the last ones count and nothing is kept. */
static void long_lists(void **state)
{
	(void)state;
	static char value[100000];
	size_t n = 0;
	while (n < sizeof value - 32) {
		memcpy(value + n, "10.0.0.7,", 9);
		n += 9;
	}
	strcpy(value + n, "192.0.2.1, 10.2.2.2");
	assert_string_equal(client(FORWARDED_X_FORWARDED_FOR, "10.0.0.1", value, NULL), "192.0.2.1");
	strcpy(value + n, "10.2.2.2");
	assert_string_equal(client(FORWARDED_X_FORWARDED_FOR, "10.0.0.1", value, NULL), "10.0.0.7");
}

int main(void)
{
	net_blocks_read(&trusted_texts, &trusted);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(x_forwarded_for),
	    cmocka_unit_test(forwarded),
	    cmocka_unit_test(long_lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
