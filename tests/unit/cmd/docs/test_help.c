/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/docs/docs.h"

static struct docs_words options, actions;

static const char *joined(const struct docs_words *w)
{
	static char text[8192];
	size_t n = 0;
	text[0] = '\0';
	for (size_t i = 0; i < w->n; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "", w->all[i]);
	return text;
}

static void options_are_found_once(void **unused)
{
	(void)unused;
	docs_help_parse("x",
			"  -c, --config FILE   the file\n"
			"      --set KEY=VALUE [--json] (or --json), `--n`\n"
			"  --top-k K|--top-p P, -o OUT; not--this, a-b, --, ---x, -5, -- x, -ab, --X\n",
			&options, &actions);
	assert_string_equal(joined(&options), "-c --config --set --json --n --top-k --top-p -o --help");
	assert_int_equal(actions.n, 0);
}

static void actions_are_second_words(void **unused)
{
	(void)unused;
	docs_help_parse("keys",
			"usage: sluice keys create NAME --tier TIER\n"
			"       sluice keys list|rotate [--json]\n"
			"       sluice keys NAME\n"
			"       sluice keysmith forge\n"
			"       sluice keys create twice\n"
			"  a sluice keys hidden\n",
			&options, &actions);
	assert_string_equal(joined(&actions), "create list rotate");
}

static void what_is_too_long_or_too_much_is_left_out(void **unused)
{
	(void)unused;
	char text[8192];
	size_t n = (size_t)snprintf(text, sizeof text, " --%0100d --a%0100d", 0, 0);
	for (int i = 0; i < 2 * DOCS_MAX_OPTIONS; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, " --o%d", i);
	docs_help_parse("x", text, &options, &actions);
	assert_int_equal(options.n, DOCS_MAX_OPTIONS);
	assert_string_equal(options.all[0], "--o0");
	docs_help_parse("x", "", &options, &actions);
	assert_string_equal(joined(&options), "--help");
}

static void roff_shows_characters_as_they_are(void **unused)
{
	(void)unused;
	static const char text[] = ".SH it's\n'x -a \\n ~^`";
	char out[256] = "";
	FILE *f = fmemopen(out, sizeof out, "w");
	assert_non_null(f);
	docs_roff(f, text, sizeof text - 1);
	fclose(f);
	assert_string_equal(out, "\\&.SH it\\(aqs\n\\&\\(aqx \\-a \\en \\(ti\\(ha\\(ga");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(options_are_found_once),
	    cmocka_unit_test(actions_are_second_words),
	    cmocka_unit_test(what_is_too_long_or_too_much_is_left_out),
	    cmocka_unit_test(roff_shows_characters_as_they_are),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
