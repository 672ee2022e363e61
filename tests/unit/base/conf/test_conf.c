/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration: what is read, and for everything that is refused the whole line that a person
 * sees, with its place. Then every allocation fails once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/conf/conf.h"
#include "base/fault.h"

struct item {
	char *name, *path;
	int role;
	struct conf_strings tags;
};

struct root {
	char *state;
	bool on;
	int64_t count;
	double ratio;
	uint64_t bytes, wait;
	int level;
	struct conf_address listen;
	struct conf_strings origins;
	struct conf_list models;
};

static const char *const roles[] = {"none", "small", "large", NULL};
static const char *const levels[] = {"debug", "info", NULL};
#define I(f) offsetof(struct item, f)
#define R(f) offsetof(struct root, f)
static const struct conf_row item_rows[] = {
    {.key = "name", .type = CONF_STRING, .offset = I(name), .min = 1, .max = 20},
    {.key = "path", .type = CONF_STRING, .offset = I(path)},
    {.key = "role", .type = CONF_ENUM, .offset = I(role), .fallback = "none", .choices = roles},
    {.key = "tags", .type = CONF_STRINGS, .offset = I(tags), .fallback = "", .max = 2},
    {.key = NULL},
};
static const struct conf_row rows[] = {
    {.key = "state", .type = CONF_STRING, .offset = R(state), .fallback = "state"},
    {.key = "a.on", .type = CONF_BOOL, .offset = R(on), .fallback = "true"},
    {.key = "a.count", .type = CONF_INT, .offset = R(count), .fallback = "5", .min = -10, .max = 10},
    {.key = "a.ratio", .type = CONF_FLOAT, .offset = R(ratio), .fallback = "0.5", .max = 1},
    {.key = "a.limits.body", .type = CONF_BYTES, .offset = R(bytes), .fallback = "1MiB", .min = 1, .max = 1073741824},
    {.key = "a.wait", .type = CONF_DURATION, .offset = R(wait), .fallback = "30s", .max = 3600000},
    {.key = "a.level", .type = CONF_ENUM, .offset = R(level), .fallback = "info", .choices = levels},
    {.key = "a.listen", .type = CONF_ADDRESS, .offset = R(listen), .fallback = "127.0.0.1:8443"},
    {.key = "a.origins", .type = CONF_STRINGS, .offset = R(origins), .fallback = "x,y"},
    {.key = "b.models",
     .type = CONF_LIST,
     .offset = R(models),
     .max = 3,
     .item_rows = item_rows,
     .item_size = sizeof(struct item),
     .item_name = "name"},
    {.key = NULL},
};

static char path[64];

static int make_file(void **unused)
{
	(void)unused;
	const char *dir = getenv("TMPDIR");
	snprintf(path, sizeof path, "%.40s/conf-XXXXXX", dir ? dir : "/tmp");
	int fd = mkstemp(path);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static int remove_file(void **unused)
{
	(void)unused;
	return unlink(path);
}

static void write_file(const char *text, size_t n)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static int load(const char *yaml, const char *const *sets, size_t n_sets, struct root *r, struct conf **c,
		struct sl_err *err)
{
	if (yaml == NULL)
		return conf_load(rows, NULL, sets, n_sets, r, c, err);
	write_file(yaml, strlen(yaml));
	return conf_load(rows, path, sets, n_sets, r, c, err);
}

static const char *const good_yaml =
    "# comment\nstate: /s\na:\n  on: false\n  count: -7\n  ratio: 0.25\n  limits: {body: 64KiB}\n"
    "  wait: 5m\n  level: debug\n  listen: \"[::1]:80\"\n  origins: [\"http://localhost:*\", b]\n"
    "b:\n  models:\n    - name: m.1\n      path: /p\n      role: large\n      tags: [t]\n"
    "    - {name: \"2\", path: q}\n";

static void reads_every_type(void **unused)
{
	(void)unused;
	struct root r;
	struct conf *c;
	struct sl_err err;
	assert_int_equal(load(good_yaml, NULL, 0, &r, &c, &err), 0);
	assert_string_equal(r.state, "/s");
	assert_false(r.on);
	assert_int_equal(r.count, -7);
	assert_true(r.ratio == 0.25);
	assert_int_equal(r.bytes, 65536);
	assert_int_equal(r.wait, 300000);
	assert_int_equal(r.level, 0);
	assert_string_equal(r.listen.host, "::1");
	assert_int_equal(r.listen.port, 80);
	assert_int_equal(r.origins.n, 2);
	assert_string_equal(r.origins.items[0], "http://localhost:*");
	assert_int_equal(r.models.n, 2);
	const struct item *m = r.models.items;
	assert_string_equal(m[0].name, "m.1");
	assert_int_equal(m[0].role, 2);
	assert_int_equal(m[0].tags.n, 1);
	assert_string_equal(m[1].name, "2");
	assert_int_equal(m[1].role, 0);
	conf_free(c);
}

static void defaults_without_a_file(void **unused)
{
	(void)unused;
	struct root r;
	struct conf *c;
	struct sl_err err;
	static const char *const empty[] = {NULL, "", "# nothing\n", "---\n", "a:\nb:\n  models:\n"};
	for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
		assert_int_equal(load(empty[i], NULL, 0, &r, &c, &err), 0);
		assert_string_equal(r.state, "state");
		assert_true(r.on);
		assert_int_equal(r.wait, 30000);
		assert_int_equal(r.origins.n, 2);
		assert_int_equal(r.models.n, 0);
		conf_free(c);
	}
}

static void overrides(void **unused)
{
	(void)unused;
	struct root r;
	struct conf *c;
	struct sl_err err;
	static const char *const sets[] = {"a.count=1",
					   "a.count=2",
					   "a.origins=",
					   "a.listen=*:9",
					   "b.models.m.1.path=/new=x",
					   "b.models.three.path=/3",
					   "b.models.three.role=small",
					   "b.models.three.tags=u,v",
					   "state="};
	assert_int_equal(load(good_yaml, sets, sizeof sets / sizeof *sets, &r, &c, &err), 0);
	assert_int_equal(r.count, 2);
	assert_int_equal(r.origins.n, 0);
	assert_string_equal(r.listen.host, "");
	assert_string_equal(r.state, "");
	assert_int_equal(r.models.n, 3);
	const struct item *m = r.models.items;
	assert_string_equal(m[0].path, "/new=x");
	assert_string_equal(m[2].name, "three");
	assert_int_equal(m[2].role, 1);
	assert_int_equal(m[2].tags.n, 2);
	conf_free(c);

	static const char *const emptied[] = {"b.models=", "b.models.only.path=z"};
	assert_int_equal(load(good_yaml, emptied, 2, &r, &c, &err), 0);
	assert_int_equal(r.models.n, 1);
	conf_free(c);
}

static void shows_values_and_origins(void **unused)
{
	(void)unused;
	struct root r;
	struct conf *c;
	struct sl_err err;
	struct sl_buf out;
	char want[1024];
	static const char *const sets[] = {"a.wait=90s", "a.origins=off,\"q\\"};
	assert_int_equal(load("state: yes\na:\n  limits:\n    body: 1025\nb:\n  models:\n  - name: k\n    path: ''\n",
			      sets, 2, &r, &c, &err),
			 0);
	buf_init(&out, 1 << 16);
	assert_int_equal(conf_show(c, NULL, &out), 0);
	snprintf(want, sizeof want,
		 "state: \"yes\"  # %s:1\na.on: true  # default\na.count: 5  # default\n"
		 "a.ratio: 0.5  # default\na.limits.body: 1025  # %s:4\na.wait: 90s  # command line\n"
		 "a.level: info  # default\na.listen: \"127.0.0.1:8443\"  # default\n"
		 "a.origins: [\"off\", \"\\\"q\\\\\"]  # command line\nb.models.k.name: k  # %s:7\n"
		 "b.models.k.path: \"\"  # %s:8\nb.models.k.role: none  # default\n"
		 "b.models.k.tags: []  # default\n",
		 path, path, path, path);
	assert_string_equal(buf_cstr(&out), want);
	assert_int_equal(conf_fail(c, "b.models.k.path", &err, "is %d", 5), SL_EINVAL);
	snprintf(want, sizeof want, "%s:8:11: b.models.k.path: is 5", path);
	assert_string_equal(err.text, want);
	assert_int_equal(conf_fail(c, "a.wait", &err, "no"), SL_EINVAL);
	assert_string_equal(err.text, "--set: a.wait: no");
	buf_dispose(&out);
	conf_free(c);
}

/* yaml, what stands behind the file's name. */
static const char *const wrong_files[][2] = {
    {"a:\n  cuont: 1\n", ":2:3: a.cuont: no such key; did you mean a.count?"},
    {"wait: 3s\n", ":1:1: wait: no such key; did you mean a.wait?"},
    {"zebra: 3s\n", ":1:1: zebra: no such key"},
    {"b:\n  models:\n  - name: x\n    pth: y\n", ":4:5: b.models.pth: no such key; did you mean path?"},
    {"a.count: 3\n", ":1:1: a.count: write sections as nested keys, not with dots"},
    {"a: {count: 1, count: 2}\n", ":1:15: count: given twice, first on line 1"},
    {"a: 3\n", ":1:4: a: keys are wanted below this one"},
    {"[1]\n", ":1:1: keys are wanted (key: value)"},
    {"state: *x\n", ":1:8: aliases (*name) are not allowed; a text that begins with * needs quotes"},
    {"state: &x y\n", ":1:8: anchors (&name) are not allowed"},
    {"a: &x {}\n", ":1:4: anchors (&name) are not allowed"},
    {"a: {count: !!int 3}\n", ":1:12: tags (!name) are not allowed"},
    {"state: x\n---\nstate: y\n", ":2:1: a second document is not allowed"},
    {"state: \"a\\nb\"\n", ":1:8: line breaks and control characters are not allowed in a text"},
    {"state: \"\\0\"\n", ":1:8: line breaks and control characters are not allowed in a text"},
    {"state:\n", ":1:7: state: has no value; a text is wanted"},
    {"state: [a]\n", ":1:8: state: a text is wanted"},
    {"{[a]: b}\n", ":1:2: a key must be a word"},
    {"a: {on: yes}\n", ":1:9: a.on: 'yes' is not true or false"},
    {"a: {on: 'true'}\n", ":1:9: a.on: true or false is wanted, not a text in quotes"},
    {"a: {count: 1.5}\n", ":1:12: a.count: '1.5' is not a whole number"},
    {"a: {count: 11}\n", ":1:12: a.count: must be between -10 and 10, not '11'"},
    {"a: {count: 99999999999999999999}\n", ":1:12: a.count: must be between -10 and 10, not '99999999999999999999'"},
    {"a: {ratio: nan}\n", ":1:12: a.ratio: 'nan' is not a number"},
    {"a: {ratio: 0x1}\n", ":1:12: a.ratio: '0x1' is not a number"},
    {"a: {ratio: 1e999}\n", ":1:12: a.ratio: must be between 0 and 1, not '1e999'"},
    {"a: {limits: {body: 1MB}}\n", ":1:20: a.limits.body: '1MB' is not a size such as 512, 64KiB, 16MiB or 2GiB"},
    {"a: {limits: {body: 0}}\n", ":1:20: a.limits.body: must be between 1 and 1GiB, not '0'"},
    {"a: {limits: {body: 99999999999TiB}}\n", ":1:20: a.limits.body: must be between 1 and 1GiB, not '99999999999TiB'"},
    {"a: {wait: 30}\n", ":1:11: a.wait: '30' is not a time such as 250ms, 30s, 5m or 1h"},
    {"a: {wait: 2h}\n", ":1:11: a.wait: must be between 0 and 1h, not '2h'"},
    {"a: {level: loud}\n", ":1:12: a.level: 'loud' is not one of debug, info"},
    {"a: {listen: 8080}\n",
     ":1:13: a.listen: '8080' is not an address such as 127.0.0.1:8443, \"[::1]:8443\", \"*:80\" or off"},
    {"a: {listen: '1.2.3.4:70000'}\n", ":1:13: a.listen: the port must be between 0 and 65535, not 70000"},
    {"a: {listen: 'here:80'}\n", ":1:13: a.listen: 'here' is not an IP address; an address such as 127.0.0.1:8443, "
				 "\"[::1]:8443\", \"*:80\" or off is wanted"},
    {"a: {origins: x}\n", ":1:14: a.origins: a list of texts is wanted"},
    {"a: {origins: [[x]]}\n", ":1:15: a.origins: an item must be a text"},
    {"b: {models: 3}\n", ":1:13: b.models: a list is wanted (each item begins with '- ')"},
    {"b: {models: [3]}\n", ":1:14: b.models: an item must be a mapping (key: value)"},
    {"b: {models: [{name: x}]}\n", ":1:14: b.models.x.path: must be given"},
    {"b: {models: [{path: x}]}\n", ":1:14: b.models.(item).name: must be given"},
    {"b: {models: [{name: x, path: y}, {name: x, path: z}]}\n", ":1:34: b.models: two items have the name 'x'"},
    {"b: {models: [{name: '', path: y}]}\n", ":1:21: b.models.name: must not be empty"},
    {"b: {models: [{name: x, path: y, tags: [a, b, c]}]}\n", ":1:46: b.models.tags: more than 2 items"},
    {"b: {models: [{name: p, path: y}, {name: q, path: y}, {name: r, path: y}, {name: s, path: y}]}\n",
     ":1:74: b.models: more than 3 items"},
    {"state: \xff\n", ":1:8: not YAML: invalid leading UTF-8 octet"},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", ":1:17: nested too deeply"},
};

static void refuses_with_a_place(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof wrong_files / sizeof *wrong_files; i++) {
		struct root r;
		struct conf *c;
		struct sl_err err = {0};
		char want[512];
		snprintf(want, sizeof want, "%s%s", path, wrong_files[i][1]);
		memset(&r, 0x5A, sizeof r);
		if (load(wrong_files[i][0], NULL, 0, &r, &c, &err) == 0)
			fail_msg("taken: %s", wrong_files[i][0]);
		assert_string_equal(err.text, want);
		assert_true(err.code < 0);
		for (size_t k = 0; k < sizeof r; k++)
			assert_int_equal(((uint8_t *)&r)[k], 0x5A); /* untouched */
	}
}

static void refuses_overrides(void **unused)
{
	(void)unused;
	static const char *const cases[][2] = {
	    {"a.count", "--set: 'a.count' is not KEY=VALUE"},
	    {"=1", "--set: '=1' is not KEY=VALUE"},
	    {"a.cout=1", "--set: a.cout: no such key; did you mean a.count?"},
	    {"a.count=x", "--set: a.count: 'x' is not a whole number"},
	    {"a=1", "--set: a: a section: its keys are set one by one"},
	    {"b.models=x", "--set: b.models: a list is emptied (KEY=) or its items are set by name (KEY.NAME.…=…)"},
	    {"b.models.x.rol=small", "--set: b.models.x.rol: no such key; did you mean role?"},
	    {"b.models.x.role=small", "--set: b.models.x.path: must be given"},
	    {"a.origins=a,,b", "--set: a.origins: an empty item in the list"},
	    {"state=a\nb", "--set: control characters are not allowed"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct root r;
		struct conf *c;
		struct sl_err err = {0};
		assert_int_not_equal(load(NULL, &cases[i][0], 1, &r, &c, &err), 0);
		assert_string_equal(err.text, cases[i][1]);
	}
}

static void size_and_file_errors(void **unused)
{
	(void)unused;
	struct root r;
	struct conf *c;
	struct sl_err err;
	assert_int_equal(conf_load(rows, "/nonexistent/x", NULL, 0, &r, &c, &err), SL_EIO);
	assert_string_equal(err.text, "/nonexistent/x: can't be opened: No such file or directory");
	size_t n = (1 << 20) + 1;
	char *big = malloc(n);
	memset(big, '#', n);
	write_file(big, n);
	assert_int_equal(conf_load(rows, path, NULL, 0, &r, &c, &err), SL_ELIMIT);
	write_file(big, n - 1);
	assert_int_equal(conf_load(rows, path, NULL, 0, &r, &c, &err), 0);
	conf_free(c);
	/* As many list items as fit. */
	for (size_t i = 0; i + 2 <= n; i += 2)
		memcpy(big + i, "a,", 2);
	memcpy(big, "state: [", 8);
	write_file(big, n - 1);
	assert_int_equal(conf_load(rows, path, NULL, 0, &r, &c, &err), SL_ELIMIT);
	free(big);
}

struct told {
	char keys[256];
	const struct conf *from;
	char sets[32][128];
	size_t n;
};

static int add_set(void *ctx, const char *set)
{
	struct told *t = ctx;
	assert_true(t->n < 32);
	snprintf(t->sets[t->n++], sizeof t->sets[0], "%s", set);
	return 0;
}

static int tell(void *ctx, const char *key)
{
	struct told *t = ctx;
	size_t n = strlen(t->keys);
	snprintf(t->keys + n, sizeof t->keys - n, "%s ", key);
	return t->from == NULL ? 0 : conf_overrides(t->from, key, add_set, t);
}

static int stop_at_once(void *ctx, const char *key)
{
	(void)ctx, (void)key;
	return 7;
}

static void compares_and_keeps(void **unused)
{
	(void)unused;
	struct root r, other;
	struct conf *a, *b, *kept;
	struct sl_err err;
	const char *all[32];
	/* Everything differs but a.ratio, also the list: an item less, one more, one changed. */
	static const char *const sets[] = {
	    "state=/t",     "a.on=true",  "a.count=3", "a.limits.body=1",      "a.wait=1s",         "a.level=info",
	    "a.listen=off", "a.origins=", "b.models=", "b.models.m.1.path=/q", "b.models.z.path=/z"};
	struct told t = {.keys = ""};
	assert_int_equal(load(good_yaml, NULL, 0, &r, &a, &err), 0);
	assert_int_equal(load(good_yaml, NULL, 0, &other, &b, &err), 0);
	assert_int_equal(conf_compare(a, b, tell, &t), 0);
	assert_string_equal(t.keys, "");
	conf_free(b);
	assert_int_equal(load(good_yaml, sets, sizeof sets / sizeof *sets, &other, &b, &err), 0);
	assert_int_equal(conf_compare(a, b, stop_at_once, NULL), 7);
	t.from = a;
	assert_int_equal(conf_compare(a, b, tell, &t), 0);
	assert_string_equal(t.keys, "state a.on a.count a.limits.body a.wait a.level a.listen "
				    "a.origins b.models ");
	/* With those overrides on top of the other, it is the first again. */
	for (size_t i = 0; i < t.n; i++)
		all[i] = t.sets[i];
	assert_int_equal(load("state: /u\nb: {models: [{name: y, path: y}]}\n", all, t.n, &other, &kept, &err), 0);
	t = (struct told){.keys = ""};
	assert_int_equal(conf_compare(a, kept, tell, &t), 0);
	assert_string_equal(t.keys, "a.ratio ");
	assert_int_equal(other.models.n, 2);
	conf_free(kept);
	conf_free(b);
	/* A text with a comma in a list of texts can't be said that way. */
	assert_int_equal(load("a: {origins: [\"x,y\"]}\n", NULL, 0, &other, &b, &err), 0);
	assert_int_equal(conf_overrides(b, "a.origins", add_set, &t), SL_EINVAL);
	conf_free(b);
	conf_free(a);
}

static void every_allocation_fails_once(void **unused)
{
	(void)unused;
	static const char *const sets[] = {"b.models.three.path=/3", "a.origins=p,q"};
	int failures = 0;
	for (long nth = 1;; nth++) {
		struct root r;
		struct conf *c = NULL;
		struct sl_err err;
		write_file(good_yaml, strlen(good_yaml));
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = conf_load(rows, path, sets, 2, &r, &c, &err);
		fault_disarm_all();
		if (rc == 0) {
			conf_free(c);
			break;
		}
		assert_int_equal(rc, SL_ENOMEM);
		failures++;
	}
	assert_true(failures > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_every_type),
	    cmocka_unit_test(defaults_without_a_file),
	    cmocka_unit_test(overrides),
	    cmocka_unit_test(shows_values_and_origins),
	    cmocka_unit_test(refuses_with_a_place),
	    cmocka_unit_test(refuses_overrides),
	    cmocka_unit_test(size_and_file_errors),
	    cmocka_unit_test(every_allocation_fails_once),
	    cmocka_unit_test(compares_and_keeps),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
