/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/client/term_text.h"

/* What a text becomes when it comes in pieces of that many bytes; escapes as `{1}` (bold), `{0}` (reset) …. */
static char *shown(const char *text, size_t piece, bool plain)
{
	static char out[4096];
	char *raw = NULL;
	size_t n_raw, n = strlen(text), k = 0;
	struct term_text t;
	FILE *f = open_memstream(&raw, &n_raw);
	term_text_init(&t, f, plain, false);
	for (size_t at = 0; at < n; at += piece)
		term_text_put(&t, text + at, n - at < piece ? n - at : piece);
	term_text_end(&t);
	fclose(f);
	for (size_t i = 0; i < n_raw && k + 2 < sizeof out; i++) {
		if (raw[i] != '\033') {
			out[k++] = raw[i];
			continue;
		}
		out[k++] = '{';
		for (i += 2; raw[i] != 'm'; i++)
			out[k++] = raw[i];
		out[k++] = '}';
	}
	out[k] = '\0';
	free(raw);
	return out;
}

static void check(const char *text, const char *want)
{
	for (size_t piece = 1; piece <= strlen(text); piece++)
		assert_string_equal(shown(text, piece, false), want);
}

static void markup_is_shown(void **state)
{
	(void)state;
	check("plain text\n", "plain text\n{0}");
	check("a **bold** word", "a {0}{1}bold{0} word{0}");
	check("an *italic* one", "an {0}{3}italic{0} one{0}");
	check("2 * 3 ** 4", "2 * 3 ** 4{0}");
	check("call `f(x*y)` now", "call {0}{36}f(x*y){0} now{0}");
	check("# Title\nbelow", "{0}{1}Title{0}\nbelow{0}");
	check("####### no\n#no\n", "####### no\n#no\n{0}");
	check("- one\n  * two\n-3\n", "\xe2\x80\xa2 one\n  \xe2\x80\xa2 two\n-3\n{0}");
	check("> said\n", "\xe2\x94\x82 said\n{0}");
	check("```c\nx * y = **p;\n# no\n```\nafter *it*",
	      "{0}{36}```c\nx * y = **p;\n# no\n{0}```\nafter {0}{3}it{0}{0}");
	check("\\*no\\* \\d \\\n", "*no* \\d \\\n{0}");
	check("**open\nclosed", "{0}{1}open{0}\nclosed{0}");
	check("*", "*{0}");
	check("`", "`{0}");
	check("\n\n x\n", "\n\n x\n{0}");
}

static void nothing_commands_the_terminal(void **state)
{
	(void)state;
	check("a\033[2Jb\rc\x7f", "a\xef\xbf\xbd[2Jb\xef\xbf\xbd"
				  "c\xef\xbf\xbd{0}");
	/* C1's CSI, right-to-left override, isolate. */
	check("x\xc2\x9b\xe2\x80\xae\xe2\x81\xa6y", "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdy{0}");
	/* Bytes that are no UTF-8, in the middle of a character too. */
	check("a\xff"
	      "b\xe2\x82"
	      "c",
	      "a\xef\xbf\xbd"
	      "b\xef\xbf\xbd"
	      "c{0}");
	check("\xed\x95\x9c \xf0\x9f\x98\x80", "\xed\x95\x9c \xf0\x9f\x98\x80{0}");
}

static void a_pipe_gets_the_text(void **state)
{
	(void)state;
	static const char text[] = "# *as* it\033 is\n";
	assert_string_equal(shown("# *as* it is\n", 3, true), "# *as* it is\n");
	char *raw = NULL;
	size_t n;
	struct term_text t;
	FILE *f = open_memstream(&raw, &n);
	term_text_init(&t, f, true, false);
	term_text_put(&t, text, sizeof text - 1);
	term_text_end(&t);
	fclose(f);
	assert_int_equal(n, sizeof text - 1);
	assert_memory_equal(raw, text, n);
	free(raw);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(markup_is_shown),
	    cmocka_unit_test(nothing_commands_the_terminal),
	    cmocka_unit_test(a_pipe_gets_the_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
