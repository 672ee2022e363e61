/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses, blocks and groups.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gateway/loop/net_addr.h"

static struct net_addr addr(const char *text)
{
	struct net_addr a;
	if (!net_addr_parse(text, strlen(text), &a))
		fail_msg("%s is an address", text);
	return a;
}

static void addresses_are_read_strictly(void **state)
{
	(void)state;
	static const char *const good[] = {"127.0.0.1", "0.0.0.0", "::1", "2001:db8::5", "fe80::1"};
	static const char *const bad[] = {"",           "127.0.0",  "127.0.0.01", "127.0.0.256",
					  " 1.2.3.4",   "1.2.3.4 ", "[::1]",      "::1%lo",
					  "1.2.3.4:80", ":::",      "localhost",  "1:2:3:4:5:6:7:8:9"};
	struct net_addr a;
	char text[NET_ADDR_TEXT];
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_true(net_addr_parse(good[i], strlen(good[i]), &a));
		net_addr_print(&a, text);
		assert_string_equal(text, good[i]);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (net_addr_parse(bad[i], strlen(bad[i]), &a))
			fail_msg("'%s' is no address", bad[i]);
	assert_false(net_addr_parse("1.2\0.3.4", 8, &a));
	/* Both ways to write it are the same address. */
	struct net_addr b = addr("::ffff:10.1.2.3");
	a = addr("10.1.2.3");
	assert_true(net_addr_equal(&a, &b));
	net_addr_print(&(struct net_addr){0}, text);
	assert_string_equal(text, "");
}

static void blocks_hold(void **state)
{
	(void)state;
	static const struct {
		const char *block, *in, *out;
	} cases[] = {
	    {"10.0.0.0/8", "10.255.0.1", "11.0.0.0"},
	    {"10.1.2.0/23", "10.1.3.255", "10.1.4.0"},
	    {"10.1.2.3", "10.1.2.3", "10.1.2.4"},
	    {"10.1.2.3/32", "::ffff:10.1.2.3", "10.1.2.2"},
	    {"0.0.0.0/0", "1.2.3.4", "::1"},
	    {"::/0", "1.2.3.4", NULL},
	    {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"},
	    {"::1", "::1", "::2"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct net_block b;
		assert_true(net_block_parse(cases[i].block, &b));
		struct net_addr a = addr(cases[i].in);
		assert_true(net_block_holds(&b, &a));
		if (cases[i].out != NULL) {
			a = addr(cases[i].out);
			assert_false(net_block_holds(&b, &a));
		}
	}
	static const char *const bad[] = {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/",      "10.0.0.0/+8",  "::/129", "/8",
					  "",           "10.0.0.0/8x", "2001:db8::1/64", "10.0.0.0/0008"};
	struct net_block b;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (net_block_parse(bad[i], &b))
			fail_msg("'%s' is no block", bad[i]);
}

static void lists_hold_what_one_block_holds(void **state)
{
	(void)state;
	char *items[] = {"10.0.0.0/8", "no block", "::1"};
	struct conf_strings list = {items, 3};
	struct net_addr a = addr("10.9.9.9"), b = addr("::1"), c = addr("192.0.2.1");
	struct net_blocks blocks;
	net_blocks_read(&list, &blocks);
	assert_int_equal(blocks.n, 2);
	assert_true(net_blocks_hold(&blocks, &a));
	assert_true(net_blocks_hold(&blocks, &b));
	assert_false(net_blocks_hold(&blocks, &c));
	/* No more than there is room for. */
	char *many[NET_BLOCKS_MOST + 1];
	for (size_t i = 0; i < NET_BLOCKS_MOST; i++)
		many[i] = items[0];
	many[NET_BLOCKS_MOST] = items[2];
	net_blocks_read(&(struct conf_strings){many, NET_BLOCKS_MOST + 1}, &blocks);
	assert_int_equal(blocks.n, NET_BLOCKS_MOST);
	assert_false(net_blocks_hold(&blocks, &b));
	net_blocks_read(&(struct conf_strings){0}, &blocks);
	assert_false(net_blocks_hold(&blocks, &a));
}

static void groups_are_hosts(void **state)
{
	(void)state;
	struct net_addr a = addr("10.1.2.3"), g = net_addr_group(&a);
	assert_true(net_addr_equal(&a, &g));
	a = addr("2001:db8:1:2:3:4:5:6");
	g = net_addr_group(&a);
	struct net_addr want = addr("2001:db8:1:2::");
	assert_true(net_addr_equal(&g, &want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(addresses_are_read_strictly),
	    cmocka_unit_test(blocks_hold),
	    cmocka_unit_test(lists_hold_what_one_block_holds),
	    cmocka_unit_test(groups_are_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
