/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of models and what they split into, tests/data/parts/FORMAT.txt:
 *
 *   %%% format NAME REASONING
 *   %%% case name [options]
 *   the answer
 *   %%% becomes
 *   lines as parts_rig.h has them
 *
 * The newline before a %%% line is not part of an answer. Options: text, markers: the format's literals are only
 * ordinary text, or only control tokens (else both are tried); think: starts in reasoning; none: no tools; one: one
 * call. A literal with ¬ before
 * it is text that spells it. ⟦n*x⟧ stands for n times x.
 *
 * Each answer is split at every byte into two pieces, fed byte by byte, and cut after every byte; long ones only at
 * some.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/parts_rig.h"

enum { MIN_CASES = 60, MAX_SPLITS = 400 };

static const char folder[] = "tests/data/parts";

struct token {
	int32_t id; /* -1: text */
	char byte;
};

struct a_case {
	char name[100], options[60];
	struct sl_buf text, want;
	const char *file;
	enum parts_format format;
	enum parts_reasoning reasoning;
};

struct stream {
	struct parts *p;
	struct parts_log log;
};

static struct parts_tools *tools;
static struct parts_marker markers[PARTS_RIG_MARKERS];
static size_t n_markers;
static struct token *tokens;
static size_t n_tokens;

static bool option(const struct a_case *c, const char *word) { return strstr(c->options, word) != NULL; }

/* ---- running ---- */

static void stream_open(struct stream *s, const struct a_case *c)
{
	const struct parts_init init = {.format = c->format,
					.reasoning = c->reasoning,
					.starts_in_reasoning = option(c, "think"),
					.tools = option(c, "none") ? NULL : tools,
					.one_call = option(c, "one"),
					.markers = markers,
					.n_markers = n_markers,
					.on_event = parts_log_event,
					.ctx = &s->log};
	parts_log_init(&s->log);
	assert_int_equal(parts_create(&init, &s->p), 0);
}

static void stream_close(struct stream *s)
{
	parts_destroy(s->p);
	buf_dispose(&s->log.text);
}

/* Tokens from one to another: text between markers at once. */
static void feed(struct stream *s, size_t from, size_t to)
{
	char *text = malloc(to - from + 1);
	size_t n = 0;
	for (; from < to; from++) {
		if (tokens[from].id < 0) {
			text[n++] = tokens[from].byte;
			continue;
		}
		assert_true(parts_feed(s->p, -1, text, n) >= 0);
		n = 0;
		assert_true(parts_feed(s->p, tokens[from].id, "never shown", 11) >= 0);
	}
	assert_true(parts_feed(s->p, -1, text, n) >= 0);
	free(text);
}

static void finish(struct stream *s)
{
	assert_int_equal(parts_finish(s->p), 0);
	parts_log_close(&s->log, "\xc2\xbb\n");
	assert_int_equal(s->log.n_begun, s->log.n_ended);
	assert_int_equal(parts_calls(s->p), s->log.n_begun);
}

static bool same(const struct sl_buf *a, const struct sl_buf *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(buf_data(a), buf_data(b), a->len) == 0);
}

static void expect(const struct a_case *c, const struct sl_buf *got, const char *how, size_t at)
{
	if (!same(got, &c->want))
		fail_msg("%s: %s, %s %zu:\n%.*s\n--- became\n%.*s--- not\n%.*s", c->file, c->name, how, at,
			 (int)c->text.len, (char *)buf_data(&c->text), (int)got->len, (char *)buf_data(got),
			 (int)c->want.len, (char *)buf_data(&c->want));
}

static void check_split(const struct a_case *c, size_t at)
{
	struct stream s;
	stream_open(&s, c);
	feed(&s, 0, at);
	feed(&s, at, n_tokens);
	finish(&s);
	expect(c, &s.log.text, "split at", at);
	stream_close(&s);
}

/* A stream that ends here has the same events so far; what it had held is whatever it can be. */
static void check_cut(const struct a_case *c, const struct stream *s, size_t at)
{
	const struct sl_buf *so_far = &s->log.text;
	if (so_far->len > c->want.len ||
	    (so_far->len > 0 && memcmp(buf_data(so_far), buf_data(&c->want), so_far->len) != 0))
		fail_msg("%s: %s: after %zu: %.*s", c->file, c->name, at, (int)so_far->len, (char *)buf_data(so_far));
	struct stream end = {.log = s->log};
	buf_init(&end.log.text, SIZE_MAX);
	assert_int_equal(buf_append(&end.log.text, buf_data(so_far), so_far->len), 0);
	assert_int_equal(parts_copy(s->p, parts_log_event, &end.log, &end.p), 0);
	finish(&end);
	assert_true(end.log.text.len >= so_far->len);
	assert_memory_equal(buf_data(&end.log.text), buf_data(so_far), so_far->len);
	stream_close(&end);
}

static void check_bytes(const struct a_case *c)
{
	struct stream s;
	size_t step = n_tokens > MAX_SPLITS ? n_tokens / 50 : 1;
	stream_open(&s, c);
	for (size_t i = 0; i < n_tokens; i++) {
		feed(&s, i, i + 1);
		if (i % step == 0)
			check_cut(c, &s, i);
	}
	finish(&s);
	expect(c, &s.log.text, "byte by byte", 0);
	stream_close(&s);
}

static void tokenize(const struct a_case *c)
{
	static const char spelled[] = "\xc2\xac";
	const char *at = (const char *)buf_data(&c->text), *end = at + c->text.len;
	tokens = malloc((c->text.len + 1) * sizeof *tokens);
	n_tokens = 0;
	while (at < end) {
		size_t k = 0;
		bool plain = end - at > 2 && memcmp(at, spelled, 2) == 0;
		at += plain ? 2 : 0;
		while (k < n_markers && (plain || strncmp(at, markers[k].text, strlen(markers[k].text)) != 0))
			k++;
		tokens[n_tokens++] = (struct token){.id = k < n_markers ? markers[k].id : -1, .byte = *at};
		at += k < n_markers ? strlen(markers[k].text) : 1;
	}
}

static void check_mode(const struct a_case *c, bool with_markers)
{
	n_markers = with_markers ? parts_rig_markers(c->format, c->reasoning, markers) : 0;
	tokenize(c);
	size_t step = n_tokens > MAX_SPLITS ? n_tokens / 50 : 1;
	check_split(c, n_tokens);
	for (size_t i = 0; i < n_tokens; i += step)
		check_split(c, i);
	check_bytes(c);
	free(tokens);
}

static void check_case(const struct a_case *c)
{
	bool control = parts_format_desc(c->format)->control != NULL;
	if (!option(c, "markers") && !control)
		check_mode(c, false);
	if (!option(c, "text"))
		check_mode(c, true);
}

/* ---- the files ---- */

static char *file_text(const char *path)
{
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	size_t n = (size_t)ftell(f);
	rewind(f);
	char *text = malloc(n + 1);
	assert_int_equal(fread(text, 1, n, f), n);
	text[n] = '\0';
	fclose(f);
	return text;
}

/* ⟦n*x⟧ */
static void take_text(struct sl_buf *out, const char *at, const char *end)
{
	static const char open[] = "\xe2\x9f\xa6", shut[] = "\xe2\x9f\xa7";
	buf_init(out, SIZE_MAX);
	while (at < end) {
		if (strncmp(at, open, 3) != 0) {
			assert_int_equal(buf_append(out, at++, 1), 0);
			continue;
		}
		char *x;
		long n = strtol(at + 3, &x, 10);
		at = strstr(x, shut);
		for (; n > 0; n--)
			assert_int_equal(buf_append(out, x + 1, (size_t)(at - x - 1)), 0);
		at += 3;
	}
}

static const char *take_case(const char *at, struct a_case *c)
{
	if (sscanf(at, "%%%%%% case %99[^[\n][%59[^]\n]]", c->name, c->options) < 1)
		fail_msg("not the beginning of a case: %.60s", at);
	at = strchr(at, '\n') + 1;
	const char *becomes = strstr(at, "\n%%% becomes\n");
	if (becomes == NULL)
		fail_msg("%s: no end", c->name);
	take_text(&c->text, at, becomes);
	const char *lines = becomes + 13, *next = strstr(lines - 1, "\n%%% case");
	next = next != NULL ? next + 1 : lines + strlen(lines);
	take_text(&c->want, lines, next);
	return next;
}

static void check_file(const char *name)
{
	char path[300], format[40], reasoning[40];
	size_t n = 0;
	struct a_case c = {.file = name};
	snprintf(path, sizeof path, "%s/%s", folder, name);
	char *text = file_text(path);
	if (sscanf(text, "%%%%%% format %39s %39s", format, reasoning) != 2 ||
	    !parts_format_named(format, strlen(format), &c.format))
		fail_msg("%s: what format?", name);
	while (c.reasoning < PARTS_N_REASONINGS && strcmp(parts_reasoning_desc(c.reasoning)->name, reasoning) != 0)
		c.reasoning++;
	for (const char *at = strchr(text, '\n') + 1; *at != '\0'; n++) {
		c.options[0] = '\0';
		at = take_case(at, &c);
		check_case(&c);
		buf_dispose(&c.text);
		buf_dispose(&c.want);
	}
	free(text);
	if (n < MIN_CASES)
		fail_msg("%s: only %zu cases", name, n);
}

static void test_corpus(void **state)
{
	(void)state;
	DIR *d = opendir(folder);
	size_t n = 0;
	assert_non_null(d);
	tools = parts_rig_tools();
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		if (strstr(e->d_name, ".txt") != NULL) {
			check_file(e->d_name);
			n++;
		}
	closedir(d);
	parts_tools_destroy(tools);
	assert_true(n >= 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpus)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
