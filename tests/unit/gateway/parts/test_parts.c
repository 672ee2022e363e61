/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream's interface, when events come, declared types, forced calls. What answers split into: test_parts_corpus.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fault.h"
#include "gateway/parts/parts_priv.h"
#include "tests/support/parts_rig.h"

static struct parts_tools *tools;

static int set_up(void **state)
{
	(void)state;
	tools = parts_rig_tools();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	parts_tools_destroy(tools);
	return 0;
}

static struct parts *open_stream(struct parts_init init, struct parts_log *log)
{
	struct parts *p;
	parts_log_init(log);
	init.tools = tools;
	init.on_event = parts_log_event;
	init.ctx = log;
	assert_int_equal(parts_create(&init, &p), 0);
	return p;
}

static int feed(struct parts *p, const char *text) { return parts_feed(p, -1, text, strlen(text)); }

static void expect(const struct parts_log *log, const char *want)
{
	size_t n = strlen(want);
	if (log->text.len != n || memcmp(buf_data(&log->text), want, n) != 0)
		fail_msg("%.*s\n--- not\n%s", (int)log->text.len, (char *)buf_data(&log->text), want);
}

static void close_stream(struct parts *p, struct parts_log *log)
{
	parts_destroy(p);
	buf_dispose(&log->text);
}

/* ---- the interface ---- */

static void test_bad_init(void **state)
{
	(void)state;
	struct parts_log log;
	struct parts *p;
	const struct parts_init good = {.on_event = parts_log_event, .ctx = &log};
	struct parts_init bad = good;
	bad.format = PARTS_N_FORMATS;
	assert_int_equal(parts_create(&bad, &p), SL_EINVAL);
	assert_null(p);
	bad = good;
	bad.reasoning = PARTS_N_REASONINGS;
	assert_int_equal(parts_create(&bad, &p), SL_EINVAL);
	bad = good;
	bad.n_markers = PARTS_MAX_MARKERS + 1;
	assert_int_equal(parts_create(&bad, &p), SL_EINVAL);
	bad = good;
	bad.on_event = NULL;
	assert_int_equal(parts_create(&bad, &p), SL_EINVAL);
	parts_destroy(NULL);
}

static void test_stops_after_one_call(void **state)
{
	(void)state;
	struct parts_log log;
	struct parts *p = open_stream((struct parts_init){.format = PARTS_HERMES, .one_call = true}, &log);
	assert_int_equal(feed(p, "<tool_call>{\"name\": \"noop\", \"arguments\": {}"), 0);
	assert_int_equal(feed(p, "}</tool_call>more"), PARTS_STOP);
	assert_int_equal(feed(p, "more"), PARTS_STOP);
	assert_int_equal(parts_finish(p), 0);
	assert_int_equal(parts_calls(p), 1);
	expect(&log, "call noop «{}»\n");
	close_stream(p, &log);
}

/* A call that is held until its name is complete is not reasoning. */
static void test_reasons(void **state)
{
	(void)state;
	struct parts_log log;
	struct parts *p = open_stream((struct parts_init){.format = PARTS_HERMES,
							  .reasoning = PARTS_REASONING_THINK,
							  .starts_in_reasoning = true},
				      &log);
	assert_true(parts_reasons(p));
	assert_int_equal(feed(p, "hm</th"), 0);
	assert_true(parts_reasons(p));
	assert_int_equal(feed(p, "ink>"), 0);
	assert_false(parts_reasons(p));
	assert_int_equal(feed(p, "<tool_call>{\"name\": \"no"), 0);
	assert_false(parts_reasons(p));
	assert_int_equal(parts_finish(p), 0);
	close_stream(p, &log);
}

static void test_events_come_early(void **state)
{
	(void)state;
	static const struct {
		const char *text, *so_far;
	} steps[] = {
	    {"Hello ", "content «Hello"},
	    {"world <", "content «Hello world"},
	    {"b> <tool_c", "content «Hello world <b>"},
	    {"all>{\"name\": \"get_w", "content «Hello world <b>"},
	    {"eather", "content «Hello world <b>"},
	    {"\"", "content «Hello world <b>»\ncall get_weather «"},
	    {", \"arguments\": {\"ci", "content «Hello world <b>»\ncall get_weather «{\"ci"},
	    {"ty\": \"</tool_", "content «Hello world <b>»\ncall get_weather «{\"city\": \"</tool_"},
	    {"\"}", "content «Hello world <b>»\ncall get_weather «{\"city\": \"</tool_\"}"},
	    {"}", "content «Hello world <b>»\ncall get_weather «{\"city\": \"</tool_\"}»\n"},
	};
	struct parts_log log;
	struct parts *p = open_stream((struct parts_init){.format = PARTS_HERMES}, &log);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		assert_int_equal(feed(p, steps[i].text), 0);
		expect(&log, steps[i].so_far);
	}
	close_stream(p, &log);
}

static void test_a_string_argument_streams(void **state)
{
	(void)state;
	struct parts_log log;
	struct parts *p = open_stream((struct parts_init){.format = PARTS_QWEN_CODER}, &log);
	feed(p, "<tool_call>\n<function=write_file>\n<parameter=text>\nab\"");
	expect(&log, "call write_file «{\"text\": \"ab\\\"");
	feed(p, "\n");
	expect(&log, "call write_file «{\"text\": \"ab\\\"");
	feed(p, "c");
	expect(&log, "call write_file «{\"text\": \"ab\\\"\\nc");
	close_stream(p, &log);
}

static void test_passes_through_without_calls(void **state)
{
	(void)state;
	struct parts_log log;
	struct parts *p = open_stream((struct parts_init){.format = PARTS_PLAIN}, &log);
	feed(p, "a <tool_call>{\"name\": \"noop\"}</tool_call> <think>");
	expect(&log, "content «a <tool_call>{\"name\": \"noop\"}</tool_call> <think>");
	close_stream(p, &log);
}

static int refuse(void *ctx, const struct parts_event *e)
{
	(void)ctx;
	(void)e;
	return SL_ELIMIT;
}

static void test_failure_stays(void **state)
{
	(void)state;
	const struct parts_init init = {.on_event = refuse};
	struct parts *p;
	assert_int_equal(parts_create(&init, &p), 0);
	assert_int_equal(feed(p, " "), 0);
	assert_int_equal(feed(p, "a"), SL_ELIMIT);
	assert_int_equal(feed(p, "b"), SL_ELIMIT);
	assert_int_equal(parts_finish(p), SL_ELIMIT);
	parts_destroy(p);
}

static void test_copies_are_independent(void **state)
{
	(void)state;
	struct parts_log log, other;
	struct parts *copy, *p = open_stream((struct parts_init){.format = PARTS_HERMES}, &log);
	feed(p, "<tool_call>{\"name\": \"no");
	parts_log_init(&other);
	assert_int_equal(parts_copy(p, parts_log_event, &other, &copy), 0);
	feed(p, "op\"}</tool_call>");
	feed(copy, "pe\"}</tool_call>");
	assert_int_equal(parts_finish(p) + parts_finish(copy), 0);
	expect(&log, "call noop «{}»\n");
	expect(&other, "content «<tool_call>{\"name\": \"nope\"}</tool_call>");
	close_stream(copy, &other);
	close_stream(p, &log);
}

/* What a call's beginning may hold is bounded: longer ones are text, also when all of it comes at once. */
static void test_held_is_bounded(void **state)
{
	(void)state;
	enum { N = 2 * PARTS_MAX_HELD };
	char *blanks = malloc(N);
	memset(blanks, ' ', N);
	for (size_t step = 1; step <= N; step *= N) {
		struct parts_log log;
		struct parts *p = open_stream((struct parts_init){.format = PARTS_HERMES}, &log);
		feed(p, "<tool_call>");
		for (size_t at = 0; at < N; at += step) {
			assert_int_equal(parts_feed(p, -1, blanks, step), 0);
			assert_true(p->queue.len <= PARTS_MAX_HELD);
		}
		feed(p, "{\"name\": \"noop\"}</tool_call>");
		assert_int_equal(parts_finish(p), 0);
		assert_int_equal(parts_calls(p), 0);
		assert_true(log.text.len > N);
		close_stream(p, &log);
	}
	free(blanks);
}

/* A value of no declared type that is too long to be held is a string. */
static void test_long_value_is_a_string(void **state)
{
	(void)state;
	enum { N = PARTS_MAX_HELD + 100 };
	char *digits = malloc(N);
	memset(digits, '1', N);
	for (size_t step = 1; step <= N; step *= N) {
		struct parts_log log;
		struct parts *p = open_stream((struct parts_init){.format = PARTS_GLM}, &log);
		feed(p, "<tool_call>noop\n<arg_key>a</arg_key><arg_value>");
		for (size_t at = 0; at < N; at += step)
			parts_feed(p, -1, digits, step);
		feed(p, "</arg_value></tool_call>");
		assert_int_equal(parts_finish(p), 0);
		assert_true(log.text.len > N);
		assert_memory_equal(buf_data(&log.text), "call noop «{\"a\": \"1", 20);
		close_stream(p, &log);
	}
	free(digits);
}

/* ---- tools ---- */

static int make_tools(const char *name, const char *schema)
{
	struct parts_tool t = {.name = name, .schema = schema, .n_schema = schema != NULL ? strlen(schema) : 0};
	struct parts_tools *made;
	int rc = parts_tools_create(&t, 1, &made);
	assert_true((rc == 0) == (made != NULL));
	parts_tools_destroy(made);
	return rc;
}

static void test_bad_tools(void **state)
{
	(void)state;
	char name[PARTS_MAX_NAME + 2];
	memset(name, 'a', sizeof name);
	name[PARTS_MAX_NAME + 1] = '\0';
	assert_int_equal(make_tools(name, NULL), SL_EINVAL);
	name[PARTS_MAX_NAME] = '\0';
	assert_int_equal(make_tools(name, NULL), 0);
	assert_int_equal(make_tools("", NULL), SL_EINVAL);
	assert_int_equal(make_tools("a", "[]"), SL_EINVAL);
	assert_int_equal(make_tools("a", "{"), SL_EINVAL);
	assert_int_equal(make_tools("a", "{} x"), SL_EINVAL);
	assert_int_equal(make_tools("a", "{\"properties\": {\"x\": }}"), SL_EINVAL);
	assert_int_equal(make_tools("a", "{\"properties\": [1], \"type\": {\"a\": []}}"), 0);
	struct parts_tools *made;
	assert_int_equal(parts_tools_create(NULL, PARTS_MAX_TOOLS + 1, &made), SL_ELIMIT);
	assert_int_equal(parts_tools_create(NULL, 0, &made), 0);
	parts_tools_destroy(made);
	parts_tools_destroy(NULL);
}

static void test_types(void **state)
{
	(void)state;
	static const char schema[] =
	    "{\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": [\"integer\", \"null\"]}, \"c\": "
	    "{\"enum\": [\"x\", 1, null]}, \"d\": {\"anyOf\": [{\"type\": \"boolean\"}, {\"oneOf\": [{\"type\": "
	    "\"array\"}]}]}, "
	    "\"e\": {}, \"f\": true, \"g\\u0022\": {\"const\": {}}, \"h\": {\"type\": \"number\", \"enum\": [\"x\"]}, "
	    "\"i\": {\"$ref\": \"#/x\"}}, \"required\": [\"a\"]}";
	static const struct {
		const char *key;
		unsigned types;
	} want[] = {{"a", TYPE_STRING},
		    {"b", TYPE_NUMBER | TYPE_NULL},
		    {"c", TYPE_STRING | TYPE_NUMBER | TYPE_NULL},
		    {"d", TYPE_BOOLEAN | TYPE_ARRAY},
		    {"e", 0},
		    {"f", 0},
		    {"g\"", TYPE_OBJECT},
		    {"h", TYPE_NUMBER},
		    {"i", 0},
		    {"required", 0}};
	const struct parts_tool tool = {.name = "t", .schema = schema, .n_schema = sizeof schema - 1};
	struct parts_tools *made;
	assert_int_equal(parts_tools_create(&tool, 1, &made), 0);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		assert_int_equal(tools_types(made, 0, want[i].key, strlen(want[i].key)), want[i].types);
	assert_string_equal(tools_argument(made, 0, 1), "b");
	assert_null(tools_argument(made, 0, 9));
	parts_tools_destroy(made);
}

static void test_strict_json(void **state)
{
	(void)state;
	static const char *const good[] = {
	    "1",         "-0.5e+3",        "0",  "true", "null",
	    "\"\"",      "\"\\u00e9\\n\"", "[]", "{}",   " [1, {\"a\": [false]}, \"x\"] ",
	    "{\"a\":{}}"};
	static const char *const bad[] = {"",     " ",     "01",    "1.",      ".5",          "+1",          "1e",
					  "tru",  "truex", "\"",    "\"\\x\"", "\"\\u00g0\"", "\"\n\"",      "[",
					  "[1,]", "[,1]",  "[1 2]", "{\"a\"}", "{a: 1}",      "{\"a\": 1,}", "[}",
					  "1 2",  "{} {}", "'a'",   "-",       "\"\\"};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!value_is_json(good[i], strlen(good[i])))
			fail_msg("%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (value_is_json(bad[i], strlen(bad[i])))
			fail_msg("%s", bad[i]);
	char deep[2 * (MAX_DEPTH + 1)];
	memset(deep, '[', MAX_DEPTH + 1);
	memset(deep + MAX_DEPTH + 1, ']', MAX_DEPTH + 1);
	assert_false(value_is_json(deep, sizeof deep));
	assert_true(value_is_json(deep + 1, sizeof deep - 2));
}

/* ---- forced calls ---- */

static const struct parts_tool forced[] = {{"noop", NULL, 0}, {"get", "{\"type\": \"object\"}", 18}};

/* {"a": 1} as the grammar's arguments. */
static const char *some_arguments(const struct parts_grammar *g, char *out, size_t max)
{
	const char *name = g->member != NULL ? strstr(g->member, "%s") : NULL;
	if (name == NULL)
		return "{\"a\": 1}";
	snprintf(out, max, "%.*sa%s1%s", (int)(name - g->member), g->member, name + 2, g->member_end);
	return out;
}

/* The text of a grammar's calls is split into just these calls, with literals as control tokens or (plain) as text. */
static void check_grammar(enum parts_format f, bool several, bool plain)
{
	struct parts_marker markers[PARTS_RIG_MARKERS];
	struct parts_grammar g;
	struct parts_log log;
	char text[1000], arguments[200];
	assert_int_equal(parts_grammar(f, forced, 2, several ? NULL : "get", several, &g, NULL), 0);
	assert_int_equal(g.n_calls, several ? 2 : 1);
	const struct parts_grammar_call *get = &g.calls[g.n_calls - 1];
	assert_string_equal(get->name, "get");
	assert_ptr_equal(get->schema, forced[1].schema);
	const char *number = g.number != NULL ? g.number : "";
	assert_int_equal(g.number != NULL, parts_format_desc(f)->numbered);
	int n = snprintf(text, sizeof text, "%s%s%s%s%s%s", g.begin, get->prefix, g.number != NULL ? "9" : "", number,
			 some_arguments(&g, arguments, sizeof arguments), g.suffix);
	if (g.several)
		n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%s%s%s%s", g.separator, g.calls[0].prefix,
			      g.number != NULL ? "10" : "", number, g.member != NULL ? "" : "{}", g.suffix);
	n += snprintf(text + n, sizeof text - (size_t)n, "%s", g.end);
	struct parts *p = open_stream(
	    (struct parts_init){.format = f,
				.markers = markers,
				.n_markers = plain ? 0 : parts_rig_markers(f, PARTS_REASONING_NONE, markers)},
	    &log);
	for (const char *at = text; *at != '\0';) {
		size_t k = 0, len;
		while (k < p->n_markers && strncmp(at, markers[k].text, strlen(markers[k].text)) != 0)
			k++;
		len = k < p->n_markers ? strlen(markers[k].text) : 1;
		assert_int_equal(parts_feed(p, k < p->n_markers ? markers[k].id : -1, at, len), 0);
		at += len;
	}
	assert_int_equal(parts_finish(p), 0);
	expect(&log, g.several ? "call get «{\"a\": 1}»\ncall noop «{}»\n" : "call get «{\"a\": 1}»\n");
	close_stream(p, &log);
	parts_grammar_dispose(&g);
}

static void test_grammars(void **state)
{
	(void)state;
	int n_forced = 0;
	for (int f = 0; f < PARTS_N_FORMATS; f++) {
		const struct parts_format_desc *d = parts_format_desc((enum parts_format)f);
		struct parts_grammar g;
		struct sl_err err = {0};
		if (d->n_forms == 0) {
			assert_int_equal(parts_grammar((enum parts_format)f, forced, 2, NULL, true, &g, &err),
					 SL_EUNSUPPORTED);
			assert_non_null(strstr(err.text, d->name));
			continue;
		}
		for (int several = 0; several < 2; several++) {
			check_grammar((enum parts_format)f, several != 0, false);
			if (d->control == NULL)
				check_grammar((enum parts_format)f, several != 0, true);
		}
		assert_int_equal(parts_grammar((enum parts_format)f, forced, 2, "other", true, &g, &err), SL_ENOTFOUND);
		n_forced++;
	}
	assert_int_equal(n_forced, PARTS_N_FORMATS - 1);
}

static void test_grammar_escapes_names(void **state)
{
	(void)state;
	const struct parts_tool odd = {.name = "a\"b"};
	struct parts_grammar g;
	assert_int_equal(parts_grammar(PARTS_HERMES, &odd, 1, NULL, false, &g, NULL), 0);
	assert_string_equal(g.calls[0].prefix, "<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": ");
	parts_grammar_dispose(&g);
}

/* ---- want of memory ---- */

static int ignore_event(void *ctx, const struct parts_event *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

static int one_life(void)
{
	struct parts_tools *made = NULL;
	struct parts_grammar g = {0};
	struct parts *p = NULL, *copy = NULL;
	const struct parts_tool tool = {
	    .name = "noop", .schema = "{\"properties\": {\"a\": {\"type\": \"integer\"}}}", .n_schema = 42};
	int rc = parts_tools_create(&tool, 1, &made);
	const struct parts_init init = {.format = PARTS_QWEN_CODER, .tools = made, .on_event = ignore_event};
	if (rc == 0)
		rc = parts_create(&init, &p);
	if (rc == 0)
		rc = feed(p, "a <tool_call><function=noop><parameter=a>");
	if (rc == 0)
		rc = parts_copy(p, ignore_event, NULL, &copy);
	if (rc == 0)
		rc = feed(p, "1</parameter></function></tool_call>");
	if (rc == 0)
		rc = parts_finish(p);
	if (rc == 0)
		rc = parts_grammar(PARTS_JSON, &tool, 1, NULL, false, &g, NULL);
	parts_grammar_dispose(&g);
	parts_destroy(copy);
	parts_destroy(p);
	parts_tools_destroy(made);
	return rc;
}

static void test_no_memory(void **state)
{
	(void)state;
	int rc = SL_ENOMEM;
	for (long nth = 1; rc != 0; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		rc = one_life();
		fault_disarm_all();
		assert_true(rc == 0 ? nth > 8 : rc == SL_ENOMEM);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bad_init),
	    cmocka_unit_test(test_stops_after_one_call),
	    cmocka_unit_test(test_reasons),
	    cmocka_unit_test(test_events_come_early),
	    cmocka_unit_test(test_a_string_argument_streams),
	    cmocka_unit_test(test_passes_through_without_calls),
	    cmocka_unit_test(test_failure_stays),
	    cmocka_unit_test(test_copies_are_independent),
	    cmocka_unit_test(test_held_is_bounded),
	    cmocka_unit_test(test_long_value_is_a_string),
	    cmocka_unit_test(test_bad_tools),
	    cmocka_unit_test(test_types),
	    cmocka_unit_test(test_strict_json),
	    cmocka_unit_test(test_grammars),
	    cmocka_unit_test(test_grammar_escapes_names),
	    cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
