/* SPDX-License-Identifier: Apache-2.0
 *
 * base/conf: the input is a configuration file for a table with one row of each type. It loads, or
 * it fails with one line that says where; what it loads is inside of its row's range.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "tests/fuzz/fuzz.h"

struct item {
	char *name;
	int64_t weight;
};

struct root {
	char *text;
	bool flag;
	int64_t count;
	double ratio;
	uint64_t bytes, wait_ms;
	int level;
	struct conf_address listen;
	struct conf_strings words;
	struct conf_list items;
};

static const char *const levels[] = {"low", "high", NULL};

static const struct conf_row item_rows[] = {
    {.key = "name", .type = CONF_STRING, .offset = offsetof(struct item, name), .min = 1, .max = 20},
    {.key = "weight", .type = CONF_INT, .offset = offsetof(struct item, weight), .fallback = "1", .min = 0, .max = 10},
    {0},
};

#define ROW(field, t, fb, lo, hi) \
	.key = "a." #field, .type = t, .offset = offsetof(struct root, field), .fallback = fb, .min = lo, .max = hi
static const struct conf_row rows[] = {
    {ROW(text, CONF_STRING, "x", 0, 40)},
    {ROW(flag, CONF_BOOL, "true", 0, 0)},
    {ROW(count, CONF_INT, "3", -5, 500)},
    {ROW(ratio, CONF_FLOAT, "0.5", 0, 1)},
    {ROW(bytes, CONF_BYTES, "1KiB", 0, 1 << 20)},
    {ROW(wait_ms, CONF_DURATION, "1s", 0, 60000)},
    {ROW(level, CONF_ENUM, "low", 0, 0), .choices = levels},
    {ROW(listen, CONF_ADDRESS, "off", 0, 0)},
    {ROW(words, CONF_STRINGS, "", 0, 8)},
    {ROW(items, CONF_LIST, "", 0, 4), .item_rows = item_rows, .item_size = sizeof(struct item), .item_name = "name"},
    {0},
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "a:\n  text: hello\n  flag: false\n  count: 7\n  ratio: 0.25\n  bytes: 16KiB\n"
	    "  wait_ms: 250ms\n  level: high\n  listen: '[::1]:8443'\n  words: [a, b]\n"
	    "  items:\n    - name: one\n      weight: 2\n    - {name: two}\n",
	    "a: {count: -5, ratio: 1e-3, listen: 127.0.0.1:80}\n",
	    "# comment\n---\na:\n  count: 1\n  count: 2\n",
	    "a: &x\n  text: |\n    long\n  flag: *x\n",
	    "a:\n  items:\n    - name: one\n    - name: one\n  wait_ms: 5m\n  bytes: 1MiB\n",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static void check_ranges(const struct root *r)
{
	FUZZ_REQUIRE(r->count >= -5 && r->count <= 500);
	FUZZ_REQUIRE(r->ratio >= 0 && r->ratio <= 1);
	FUZZ_REQUIRE(r->bytes <= 1 << 20 && r->wait_ms <= 60000);
	FUZZ_REQUIRE((r->level == 0 || r->level == 1) && r->words.n <= 8 && r->items.n <= 4);
	const struct item *items = r->items.items;
	for (size_t i = 0; i < r->items.n; i++) {
		FUZZ_REQUIRE(items[i].name != NULL && items[i].weight >= 0 && items[i].weight <= 10);
		for (size_t k = 0; k < i; k++)
			FUZZ_REQUIRE(strcmp(items[i].name, items[k].name) != 0);
	}
}

/* conf_load reads a file: one in memory. */
static const char *as_file(const uint8_t *data, size_t n)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		FILE *f = tmpfile();
		FUZZ_REQUIRE(f != NULL);
		fd = fileno(f);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	FUZZ_REQUIRE(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
	return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct root root = {0};
	struct conf *c = NULL;
	struct sl_err err = {0};
	int rc = conf_load(rows, as_file(data, n), NULL, 0, &root, &c, &err);
	if (rc != 0) {
		FUZZ_REQUIRE(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return 0;
	}
	check_ranges(&root);
	struct sl_buf shown;
	buf_init(&shown, 1 << 20);
	rc = conf_show(c, NULL, &shown);
	FUZZ_REQUIRE(rc == 0 && shown.len > 0);
	buf_dispose(&shown);
	conf_free(c);
	return 0;
}
