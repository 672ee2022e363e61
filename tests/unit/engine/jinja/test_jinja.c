/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/jinja_*: one table of templates for each part of the language. What they give is what
 * Python's jinja2 gives, in an environment as the transformers library makes it (trim_blocks,
 * lstrip_blocks, loop controls, its own tojson); what that refuses, so does this, with a message of
 * its own. Bounds and trust are in test_chat_template.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/chat/chat_template.h"

struct same {
	const char *source, *text;
};

/* 0 and the text, or the code and the message. */
static int render(const char *source, struct sl_buf *text, struct sl_err *err)
{
	static const char chat[] = "[{\"role\":\"system\",\"content\":\"Be \u00e9\"},"
				   "{\"role\":\"user\",\"content\":\" Hi \"},"
				   "{\"role\":\"user\",\"content\":\"x\"}]";
	struct chat_template *t = NULL;
	struct sl_buf trust;
	*err = (struct sl_err){0};
	buf_init(text, 1 << 20);
	int rc = chat_template_compile(source, strlen(source), &t, err);
	if (rc != 0)
		return rc;
	json_t *messages = json_loads(chat, 0, NULL);
	assert_non_null(messages);
	struct chat_vars vars = {.messages = messages, .add_generation_prompt = true};
	buf_init(&trust, 1 << 20);
	rc = chat_template_render(t, &vars, text, &trust, err);
	buf_dispose(&trust);
	json_decref(messages);
	chat_template_free(t);
	return rc;
}

static void all_same(const struct same *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_buf text;
		struct sl_err err;
		if (render(cases[i].source, &text, &err) != 0)
			fail_msg("%s: %s", cases[i].source, err.text);
		if (strcmp(buf_cstr(&text), cases[i].text) != 0)
			fail_msg("%s\n  gives %s\n  not   %s", cases[i].source, buf_cstr(&text), cases[i].text);
		buf_dispose(&text);
	}
}

/* It ends with the message; what stands before is line and column. */
static void fails(const char *source, const char *message)
{
	struct sl_buf text;
	struct sl_err err;
	int rc = render(source, &text, &err);
	if (rc == 0 || strstr(err.text, message) == NULL || strstr(err.text, "line 1, column ") == NULL)
		fail_msg("%s: %d \"%s\", not \"%s\"", source, rc, err.text, message);
	buf_dispose(&text);
}

static void macros(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f"
	     "(1, 3) }}{{ f(1, c='z') }}{{ f(c=1, a=2, b=3) }}",
	     "12x;13x;12z;231;"},
	    {"{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f() }}", "11"},
	    {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "(1, 2){'x': 3}"},
	    {"{% macro f(a) %}{{ g(a) }}{% endmacro %}{% macro g(a) %}<{{ a }}>{% endmacro %"
	     "}{{ f('q') }}",
	     "<q>"},
	    {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{"
	     " f(5) }}",
	     "54321"},
	    {"{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}", "[in]"},
	    {"{% macro f() %}[{{ caller(3, 4) }}]{% endmacro %}{% call(x, y) f() %}{{ x }}{{"
	     " y }}{% endcall %}",
	     "[34]"},
	    {"{% macro f() %}{% if caller %}yes{% else %}no{% endif %}{% endmacro %}{{ f() }"
	     "}{% call f() %}{% endcall %}",
	     "noyes"},
	    {"{% macro f() %}{% macro g() %}g{% endmacro %}{{ g() }}{% endmacro %}{{ f() }}", "g"},
	    {"{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "2"},
	    {"{% for i in [1,2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "12"},
	    {"{% set ns = namespace(f=1) %}{% macro g() %}{% set ns.f = ns.f + 1 %}{% endmac"
	     "ro %}{{ g() }}{{ g() }}{{ ns.f }}",
	     "3"},
	    {"{% macro f(a, a2) %}{{ a }}{{ a2 is undefined }}{% endmacro %}{{ f(1) | trim }"
	     "}{{ (f(1) ~ '!') | upper }}",
	     "1True1TRUE!"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void blocks(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]{{ x | length }}", "[a1b]3"},
	    {"{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "[AB]"},
	    {"{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}", "21"},
	    {"{% filter upper %}abc{{ 'd' }}{% endfilter %}", "ABCD"},
	    {"{% filter replace('a', 'b') | upper %}aba{% endfilter %}", "BBB"},
	    {"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "12"},
	    {"{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "155"},
	    {"{% generation %}x{% set q = 1 %}{% endgeneration %}{{ q }}", "x"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void loops(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}"
	     "{% break %}{% endif %}{{ i }}{% endfor %}",
	     "02"},
	    {"{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% end"
	     "if %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
	     "00 10 20 "},
	    {"{% for i in range(6) if i % 2 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% "
	     "else %}none{% endfor %}",
	     "1/3:1 2/3:3 3/3:5 "},
	    {"{% for i in [1, 2] if i > 5 %}{{ i }}{% else %}none{% endfor %}", "none"},
	    {"{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ l"
	     "oop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previt"
	     "em }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a', 'b"
	     "') }} {% endfor %}",
	     "1032TrueFalse3210a 2121FalseFalse31310b 3210FalseTrue3210a "},
	    {"{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }}{{ loop.changed(i, 1) }} {% end"
	     "for %}",
	     "TrueTrue TrueTrue TrueTrue TrueTrue TrueTrue "},
	    {"{% for x in [{'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3, 'c': [{'n': 4, 'c': []"
	     "}]}]}] recursive %}{{ loop.depth }}:{{ x.n }}({{ loop(x.c) }}){% endfor %}",
	     "1:1(2:2()2:3(3:4()))"},
	    {"{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "1234"},
	    {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
	    {"{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}", "12"},
	    {"{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}{% for k, v in {'a': 1}.item"
	     "s() %}{{ k }}{{ v }}{% endfor %}",
	     "aba1"},
	    {"{% for c in 'aé😀' %}<{{ c }}>{% endfor %}", "<a><é><😀>"},
	    {"{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "123"},
	    {"{% for k, v in [{'r': 'b', 'n': 1}, {'r': 'a', 'n': 2}, {'r': 'b', 'n': 3}] | "
	     "groupby('r') %}{{ k }}:{{ v | map(attribute='n') | list }} {% endfor %}{% for "
	     "g in [{'r': 1}] | groupby('r') %}{{ g.grouper }}{{ g.list }}{% endfor %}",
	     "a:[2] b:[1, 3] 1[{'r': 1}]"},
	    {"{% set j = joiner('|') %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}{"
	     "% set k = joiner() %}{{ k() }}{{ k() }}",
	     "1|2|3, "},
	    {"{% for m in messages %}{% if loop.previtem is defined and loop.previtem.role ="
	     "= m.role %}same{% endif %}{% if not loop.last %}{{ loop.nextitem.role }}{% end"
	     "if %}{% endfor %}",
	     "userusersame"},
	    {"{{ ('a', 'b') | join }}{% set t = (1, 2) %}{{ t[0] }}{{ t | length }}{% for q "
	     "in t %}{{ q }}{% endfor %}",
	     "ab1212"},
	    {"{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}", "FalseTrue"},
	    {"{% for i in [3, 4] %}{% set outer = loop %}{% for j in [5, 6] %}{{ outer.index"
	     " }}{{ loop.index }} {% endfor %}{% endfor %}",
	     "11 12 21 22 "},
	    {"{%for i in[1,2]%}{{i}}{%endfor%}{{1+2*3-4//2%3}}{{not true or true}}{{not (tru"
	     "e or true)}}",
	     "125TrueFalse"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void filters_of_lists(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ [1,2,3,4] | select('odd') | list }}{{ [1,2,3,4] | reject('odd') | list }}{{"
	     " [0,1,'',none,'a'] | select | list }}{{ [0,1] | reject | list }}{{ [1,5,9] | s"
	     "elect('gt', 4) | list }}{{ [1,5] | select('>', 4) | list }}",
	     "[1, 3][2, 4][1, 'a'][0][5, 9][5]"},
	    {"{{ [{'a': 1}, {'a': 2}, {}] | selectattr('a') | map(attribute='a') | list }}{{"
	     " [{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list }}{{ [{'a': 1}, {"
	     "'b': 2}] | rejectattr('a', 'defined') | list }}{{ [{'a': {'b': 3}}] | map(attr"
	     "ibute='a.b') | list }}{{ [{'a': [7]}] | map(attribute='a.0') | first }}",
	     "[1, 2][{'a': 2}][{'b': 2}][3]7"},
	    {"{{ [{'a': 1}, {}] | map(attribute='a', default='d') | list }}{{ ['a', 'b'] | m"
	     "ap('upper') | join(',') }}{{ [' a '] | map('trim') | list }}{{ ['a'] | map('re"
	     "place', 'a', 'b') | list }}{{ [[3,1],[2]] | map('sort') | list }}{{ [1.55] | m"
	     "ap('round', 1) | list }}",
	     "[1, 'd']A,B['a']['b'][[1, 3], [2]][1.6]"},
	    {"{{ [3,1,2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sens"
	     "itive=true) }}{{ [1,2,3] | sort(reverse=true) }}{{ [{'a': 2}, {'a': 1}] | sort"
	     "(attribute='a') }}{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,"
	     "b') }}",
	     "[1, 2, 3]['A', 'b', 'c']['A', 'b'][3, 2, 1][{'a': 1}, {'a': 2}][{'a': 1, 'b': "
	     "1}, {'a': 1, 'b': 2}]"},
	    {"{{ {'b': 1, 'a': 2} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(by='value') }}"
	     "{{ {'b': 1, 'a': 2} | dictsort(false, 'key', true) }}",
	     "[('a', 2), ('b', 1)][('b', 1), ('a', 2)][('b', 1), ('a', 2)]"},
	    {"{{ [1,2,1,'A','a'] | unique | list }}{{ ['A','a'] | unique(true) | list }}{{ ["
	     "3,1,2] | min }}{{ [3,1,2] | max }}{{ ['b','A'] | min }}{{ [] | min }}{{ [{'a':"
	     " 2}, {'a': 1}] | max(attribute='a') }}",
	     "[1, 2, 'A']['A', 'a']13A{'a': 2}"},
	    {"{{ [1,2,3] | sum }}{{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }}{{ [1.5, 2] "
	     "| sum }}{{ [1] | sum(start=10) }}",
	     "633.511"},
	    {"{{ [1,2,3,4,5] | batch(2) | list }}{{ [1,2,3] | batch(2, 'x') | list }}{{ [1,2"
	     ",3,4,5] | slice(2) | list }}{{ [1,2,3,4,5] | slice(3, 'x') | list }}",
	     "[[1, 2], [3, 4], [5]][[1, 2], [3, 'x']][[1, 2, 3], [4, 5]][[1, 2], [3, 4], [5,"
	     " 'x']]"},
	    {"{{ [1,2] | first }}{{ [1,2] | last }}{{ 'abc' | first }}{{ [] | first }}{{ 'ab"
	     "c' | last }}{{ [1,2,3] | reverse | list }}{{ 'abc' | reverse }}{{ 'abc' | list"
	     " }}{{ {'a': 1} | list }}{{ {'a': 1} | first }}",
	     "12ac[3, 2, 1]cba['a', 'b', 'c']['a']a"},
	    {"{{ [1,2] | join }}{{ [1,2] | join(', ') }}{{ [{'a': 1}] | join(',', attribute="
	     "'a') }}{{ 'abc' | join('-') }}{{ [1, none, true] | join('|') }}",
	     "121, 21a-b-c1|None|True"},
	    {"{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a"
	     "': 1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ {'a': 1}.items() | list"
	     " }}{{ {'a': 1} | items | list }}{{ nothing | items | list }}",
	     "1None2['a'][1][('a', 1)][('a', 1)][]"},
	    {"{{ dict(a=1, b=2) }}{{ dict({'a': 1}, b=2) }}{{ dict([('a', 1)]) }}{{ range(3)"
	     " | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{{ range(0) |"
	     " list }}",
	     "{'a': 1, 'b': 2}{'a': 1, 'b': 2}{'a': 1}[0, 1, 2][1, 3, 5][3, 2, 1][]"},
	    {"{{ messages[0].content }}{{ messages[0]['role'] | upper }}{{ messages | length"
	     " }}{{ messages[-1].nope is defined }}{{ (messages | last).content[:2] }}",
	     "Be éSYSTEM3Falsex"},
	    {"{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('ro"
	     "le', 'eq', 'user') | map(attribute='content') | list | length }}",
	     "system,user,user2"},
	    {"{{ messages[0].items() | list }}{{ messages[0] }}{{ messages }}",
	     "[('role', 'system'), ('content', 'Be é')]{'role': 'system', 'content': 'Be é'}"
	     "[{'role': 'system', 'content': 'Be é'}, {'role': 'user', 'content': ' Hi '}, {"
	     "'role': 'user', 'content': 'x'}]"},
	    {"{{ nothing ~ 'x' }}{{ nothing | upper }}{{ nothing | trim }}|{{ nothing | list"
	     " }}{{ nothing | join }}",
	     "x|[]"},
	    {"{{ [[1, 2], [3]] | sum(start=[]) }}", "[1, 2, 3]"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void is_tests(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% set ns = namespace(a=1, b='x') %}{% set ns.a = 2 %}{% set ns.c = 3 %}{{ ns."
	     "a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}{{ ns.d is defined }}",
	     "2x32False"},
	    {"{{ '%s is %d' % ('a', 3) }}|{{ '%05.2f' % 3.14159 }}|{{ '%x' % 255 }}|{{ '%-5s"
	     "|' % 'a' }}|{{ '%5s' % 'é' }}|{{ '%%' % () }}|{{ '%s' % [1] }}|{{ '%+d' % 5 }}"
	     "|{{ '%.2s' % 'abc' }}|{{ '%e' % 12345.678 }}|{{ '%g' % 0.0001 }}",
	     "a is 3|03.14|ff|a    ||    é|%|[1]|+5|ab|1.234568e+04|0.0001"},
	    {"{{ none is none }}{{ nothing is none }}{{ nothing is defined }}{{ nothing is u"
	     "ndefined }}{{ 1 is defined }}",
	     "TrueFalseFalseTrueTrue"},
	    {"{{ 'a' is string }}{{ 1 is string }}{{ {} is mapping }}{{ [] is mapping }}{{ ["
	     "] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}{{"
	     " (1,) is iterable }}{{ 1 is iterable }}{{ nothing is iterable }}",
	     "TrueFalseTrueFalseTrueTrueTrueFalseTrueFalseTrue"},
	    {"{{ 1 is number }}{{ 1.0 is number }}{{ true is number }}{{ 'a' is number }}{{ "
	     "1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ 1 is float }}{{ true "
	     "is boolean }}{{ 1 is boolean }}{{ true is true }}{{ 1 is true }}{{ false is fa"
	     "lse }}{{ 0 is false }}",
	     "TrueTrueTrueFalseTrueFalseTrueFalseTrueFalseTrueFalseTrueFalse"},
	    {"{{ range is callable }}{{ 1 is callable }}{{ 'a'.upper is callable }}", "TrueFalseTrue"},
	    {"{{ 3 is odd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 7 is divisibleby(3) }}"
	     "{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is gt 1"
	     " }}{{ 2 is ge 2 }}{{ 2 is le 1 }}{{ 1 is in [1] }}{{ 'abc' is lower }}{{ 'ABC'"
	     " is upper }}{{ 'Abc' is lower }}{{ '1' is lower }}{{ none is sameas none }}{{ "
	     "1 is sameas true }}",
	     "TrueTrueTrueFalseTrueFalseTrueTrueTrueTrueFalseTrueTrueTrueFalseFalseTrueFalse"},
	    {"{{ 1 is not odd }}{{ not 1 is odd }}{{ 1 is odd and 2 is even }}{{ 4 is divisi"
	     "bleby 2 and true }}",
	     "FalseFalseTrueTrue"},
	    {"{{ 'trim' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}", "TrueFalseTrue"},
	    {"{% if messages is defined and messages is not none and messages | length > 0 %"
	     "}y{% endif %}",
	     "y"},
	    {"{% set x = messages[0].content if messages[0].content is string else '' %}{{ x"
	     " }}",
	     "Be é"},
	    {"{{ 1 if 2 is odd else 3 }}{{ [1, 2, 3,] }}{{ {'a': 1,} }}{{ dict(a=1,) }}", "3[1, 2, 3]{'a': 1}{'a': 1}"},
	    {"{{ \"a\" is in \"abc\" }}{{ \"a\" in [\"a\"] and not \"b\" in [\"a\"] }}{{ 1 i"
	     "s not in [1] }}",
	     "TrueTrueFalse"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void filters(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ +1 }}{{ - 1 }}{{ -1 | abs }}{{ --1 }}{{ true + 1 }}{{ -true }}{{ not 1 }}", "1-1112-1False"},
	    {"{{ \"%s-%s\" | format(1, 'b') }}", "1-b"},
	    {"{{ 'abc' | length }}{{ [1] | count }}{{ {} | length }}{{ nothing | length }}{{"
	     " 'é😀' | length }}",
	     "31002"},
	    {"{{ nothing | default('d') }}{{ none | default('d') }}{{ none | default('d', tr"
	     "ue) }}{{ '' | default('d', boolean=true) }}{{ nothing | d }}{{ 0 | d(5, true) "
	     "}}",
	     "dNonedd5"},
	    {"{{ '  a ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 5 | trim }}|{{ 'a-b' | replac"
	     "e('-', '+') }}|{{ 'aaa' | replace('a', 'b', 2) }}|{{ 121 | replace(1, 3) }}|{{"
	     " 'ab' | replace('', '-') }}|{{ 'ab'.replace('', '-', 2) }}",
	     "a|a|5|a+b|bba|323|-a-b-|-a-b"},
	    {"{{ 'hello world-foo (bar)' | title }}|{{ \"it's a dog's\" | title }}|{{ \"it's"
	     " a dog's\".title() }}|{{ 'hELLO' | capitalize }}|{{ 'éa ÉB' | capitalize }}|{{"
	     " 'straße' | upper }}|{{ 'ΑΣ' | lower }}|{{ 'İ' | lower | length }}|{{ 'ﬁx' | t"
	     "itle }}|{{ 'aé ñb' | title }}|{{ 'ÀÉ' | lower }}|{{ 5 | upper }}|{{ 'ǆ' | titl"
	     "e }}|{{ 'ŉ' | upper }}",
	     "Hello World-Foo (Bar)|It's A Dog's|It'S A Dog'S|Hello|Éa éb|STRASSE|ας|2|FIx|A"
	     "é Ñb|àé|5|Ǆ|ʼN"},
	    {"{{ '5' | int }}{{ '5.7' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ 5.9 | int "
	     "}}{{ -5.9 | int }}{{ 'ff' | int(0, 16) }}{{ ' 12 ' | int }}{{ true | int }}{{ "
	     "none | int }}{{ '1_0' | int }}{{ '1e2' | int }}",
	     "55075-5255121010100"},
	    {"{{ '5' | float }}{{ 'x' | float }}{{ 'x' | float(1.5) }}{{ 3 | float }}{{ '1e3"
	     "' | float }}{{ none | float }}",
	     "5.00.01.53.01000.00.0"},
	    {"{{ -5 | abs }}{{ -5.5 | abs }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | rou"
	     "nd(2) }}{{ 1.25 | round(1, 'ceil') }}{{ 1.25 | round(1, 'floor') }}{{ 5 | roun"
	     "d }}{{ 1234 | round(-2) }}{{ 42.55 | round(1) }}{{ 2.4 | round | int }}",
	     "55.52.04.02.671.31.25120042.52"},
	    {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | "
	     "indent(2, blank=true) }}|{{ 'a\\nb\\n' | indent('>>') }}|{{ '' | indent }}",
	     "a\n    b\n\n    c|  a\n  b|a\n  \n  b|a\n>>b\n|"},
	    {"{{ 'a b  c' | wordcount }}{{ '<a&\"\\'>' | escape }}{{ 'x' | safe }}{{ 5 | str"
	     "ing }}{{ [1] | string }}",
	     "3&lt;a&amp;&#34;&#39;&gt;x5[1]"},
	    {"{{ {'a': [1, 2.0, none, true, 'é<>&\\'\"\\n\\u0001'], 'b': {}, 'c': []} | tojs"
	     "on }}",
	     "{\"a\": [1, 2.0, null, true, \"é<>&'\\\"\\n\\u0001\"], \"b\": {}, \"c\": []}"},
	    {"{{ {'a': [1, {'b': 2}], 'c': {}, 'd': []} | tojson(indent=2) }}",
	     "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {},\n  \"d"
	     "\": []\n}"},
	    {"{{ {'b': 1, 'a': 'é😀'} | tojson(ensure_ascii=true, sort_keys=true) }}{{ {'a': "
	     "[1, 2]} | tojson(separators=(',', ':')) }}{{ [1, 2] | tojson(indent=0) }}{{ [1"
	     "] | tojson(indent=4, separators=(';', '=')) }}",
	     "{\"a\": \"\\u00e9\\ud83d\\ude00\", \"b\": 1}{\"a\":[1,2]}[\n1,\n2\n][\n    1\n"
	     "]"},
	    {"{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }}{{ 'a/b' | tojson }}{{ "
	     "1e16 | tojson }}{{ (1, 2) | tojson }}{{ none | tojson }}{{ '\\x7f\\u2028' | to"
	     "json }}",
	     "{\"1\": \"c\", \"null\": \"b\", \"1.5\": \"d\"}\"a/b\"1e+16[1, 2]null\"\x7f \""},
	    {"{{ [1, [2, [3]]] | string | length }}{{ [none, nothing] }}", "13[None, Undefined]"},
	    {"{{ 'A' | lower | upper | title | capitalize }}", "A"},
	    {"{{ 'a' 'b' }}{{ 'a' \"c\" | upper }}", "abAC"},
	    {"{{ 'İstanbul'.lower() }}{{ 'ΣΑΣ ΣΣ' | lower }}", "i̇stanbulσας σς"},
	    {"{{ '日本語'[1] }}{{ '日本語'[::-1] }}{{ '日本語' | length }}{{ '日本語'.find('語') }}", "本語本日32"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void methods(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ 'a1b2'.title() }}|{{ 'x'.capitalize() }}|{{ ''.capitalize() }}|{{ 'ß'.title"
	     "() }}",
	     "A1B2|X||Ss"},
	    {"{{ 'a,b,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a"
	     " b c'.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(none, 1"
	     ") }}{{ ''.split() }}{{ ''.split(',') }}{{ 'a,b'.split(sep=',') }}{{ 'abcabc'.s"
	     "plit('bc') }}{{ 'aaa'.rsplit('aa', 1) }}",
	     "['a', 'b', 'c']['a', 'b']['a', 'b,c']['a', 'b c']['a,b', 'c'][' a b', 'c'][]['"
	     "']['a', 'b']['a', 'a', '']['a', '']"},
	    {"{{ ' a '.strip() }}|{{ 'xax'.strip('x') }}|{{ 'xya'.lstrip('xy') }}|{{ 'axy'.r"
	     "strip('yx') }}|{{ ' a '.strip(none) }}|{{ 'éaé'.strip('é') }}",
	     "a|a|a|a|a|a"},
	    {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith(('x'"
	     ", 'a')) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc"
	     "'.startswith('') }}{{ 'abc'.startswith('', 4) }}",
	     "TrueTrueTrueTrueTrueTrueFalse"},
	    {"{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'abc'.find('z') }}{{ 'éb'.find"
	     "('b') }}{{ 'abcb'.find('b', 2) }}{{ 'abc'.index('c') }}{{ 'abab'.count('ab') }"
	     "}{{ 'aaa'.count('aa') }}{{ 'abc'.count('') }}{{ 'abcb'.find('b', -2) }}",
	     "13-11322143"},
	    {"{{ '-'.join(['a', 'b']) }}{{ ''.join('abc') }}{{ 'a\\nb\\r\\nc\\n'.splitlines("
	     ") }}{{ 'a\\nb'.splitlines(true) }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.remove"
	     "suffix('bc') }}{{ 'abc'.removeprefix('z') }}",
	     "a-babc['a', 'b', 'c']['a\\n', 'b']bcaabc"},
	    {"{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}"
	     "{{ ' '.isspace() }}{{ 'ab'.islower() }}{{ 'AB'.isupper() }}{{ 'é'.isalpha() }}"
	     "{{ '1a'.islower() }}",
	     "TrueFalseTrueTrueTrueTrueTrueTrueTrue"},
	    {"{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '-') }}|{{ 'a'.center(4) }}|{{ 'ab'.center("
	     "5, '*') }}|{{ 'abc'.partition('b') }}{{ 'abc'.partition('z') }}{{ 'abcb'.rpart"
	     "ition('b') }}{{ 'a'.rpartition('z') }}",
	     "a  |--a| a  |**ab*|('a', 'b', 'c')('abc', '', '')('abc', 'b', '')('', '', 'a')"},
	    {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.c"
	     "urrent }}{% set _ = c.reset() %}{{ c.current }}",
	     "ababa"},
	    {"{{ [1,2].index(2) }}{{ [1,1].count(1) }}{{ (1, 2).index(2) }}", "121"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void source(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ '\\x41\\u00e9\\U0001F600\\101\\q\\'\\\"' }}{{ \"a\\\nb\" }}", "Aé😀A\\q'\"ab"},
	    {"{% raw %}{{ x }}{% y %}{# z #}{% endraw %}|{%- raw -%}  a  {%- endraw -%}  |",
	     "{{ x }}{% y %}{# z #}|a|"},
	    {"a {% raw %} b {% endraw %} c", "a  b  c"},
	    {"  {% raw %}\n  x\n  {% endraw %}\ny", "\n  x\ny"},
	    {"a{#- c -#} b {# d #}", "ab "},
	    {"{% if 1 %}\n  a\n  {%- if 1 %}\n  b\n  {% endif +%}\n  c\n{% endif %}\nd", "  a  b\n\n  c\nd"},
	    {"   {# c #}", ""},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void operators(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}", "1221"},
	    {"{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q }}{{ ns.r }}", "12"},
	    {"{{ (1, 2) }}{{ (1,) }}{{ () }}{{ [1, 'a', none, true, 1.5, {'k': 'v'}] }}",
	     "(1, 2)(1,)()[1, 'a', None, True, 1.5, {'k': 'v'}]"},
	    {"{{ [\"it's\", 'say \"x\"', 'both \\' and \"', '\\n\\t\\\\', 'é', '\\x00\\x7f',"
	     " '\\u200b\\u00a0', '😀'] }}",
	     "[\"it's\", 'say \"x\"', 'both \\' and \"', '\\n\\t\\\\', 'é', '\\x00\\x7f', '\\"
	     "u200b\\xa0', '😀']"},
	    {"{{ {'a': [1, (2, 3)], 1: none, none: true, true: 2} }}", "{'a': [1, (2, 3)], 1: 2, None: True}"},
	    {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 3 > 2 >= 2 != 1 }}{{ 1 == 1 in [1] }}{{ 1 < 2"
	     " == true }}",
	     "TrueFalseTrueTrueFalse"},
	    {"{{ 2 ** 3 ** 2 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 2.0 ** 0.5 }}{{ 0 ** 0 }}", "640.541.41421356237309511"},
	    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % "
	     "2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 1e3 }} {{ 1_000 }}",
	     "3 -4 -2 2 3.0 0.5 3.5 3.0 1000.0 1000"},
	    {"{{ 'ab' * 3 }}{{ 2 * 'x' }}{{ [1, 2] * 2 }}{{ 'a' * 0 }}{{ 'a' * -1 }}{{ (1,) "
	     "* 2 }}",
	     "abababxx[1, 2, 1, 2](1, 1)"},
	    {"{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] }}", "[1, 2](1, 2)a1NoneTrue1.0[1]"},
	    {"{{ 'x' if false }}{{ 'x' if true else 'y' }}{{ 'a' if 0 else 'b' if 0 else 'c'"
	     " }}",
	     "xc"},
	    {"{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::2] }}{{ 'abcdef'"
	     "[::-1] }}{{ 'aéb'[1:] }}{{ 'abc'[5:] }}{{ 'abc'[-2:] }}{{ 'abcdef'[4:1:-1] }}",
	     "acbcdacefedcbaébbcedc"},
	    {"{{ [1,2,3,4][::-1] }}{{ [1,2,3,4][1:-1] }}{{ [1,2,3,4][-3::2] }}{{ (1,2,3)[1:]"
	     " }}{{ [1,2,3][10:] }}{{ [1,2][true] }}",
	     "[4, 3, 2, 1][2, 3][2, 4](2, 3)[]2"},
	    {"{{ [1,2].0 }}{{ {'a': {'b': 1}}.a.b }}{{ {'a': 1}['a'] }}{{ {'items': 5}['item"
	     "s'] }}{{ {'x': 1}.x }}",
	     "11151"},
	    {"{{ 'a' in 'abc' }}{{ 'z' not in 'abc' }}{{ 1 in [1] }}{{ 'k' in {'k': 1} }}{{ "
	     "1 in (1, 2) }}{{ none in [none] }}{{ 'a' in nothing }}",
	     "TrueTrueTrueTrueTrueTrueFalse"},
	    {"{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123"
	     "456789.123 }} {{ 1e100 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 * "
	     "10 }}",
	     "1.0 0.30000000000000004 1e+16 1000000000000000.0 1e-05 0.0001 123456789.123 1e"
	     "+100 -0.0 5e-324 inf"},
	    {"{{ {'a': 1} == {'a': 1.0} }}{{ [1] == (1,) }}{{ 'a' == 1 }}{{ none == false }}"
	     "{{ 1 == true }}{{ nothing == nothing2 }}{{ [1, 2] < [1, 3] }}{{ (1,) < (1, 0) "
	     "}}{{ 'a' < 'b' }}",
	     "TrueFalseFalseFalseTrueTrueTrueTrueTrue"},
	    {"{{- 1 -}}  {{+ 2 }} {%+ if true %} x {% endif %}", "12  x "},
	    {"e", "e"},
	    {"{% set a = [] %}{{ a }}{% if a %}x{% else %}y{% endif %}{{ a or 'z' }}{{ 0 or "
	     "none }}{{ 1 and 'a' }}",
	     "[]yzNonea"},
	    {"{{ [1,2][5] }}{{ {}.a }}{{ 'abc'[9] }}{{ (1).x }}", ""},
	    {"{{ {'a': {'b': [1, 2, {'c': 3}]}}['a'].b[2]['c'] }}", "3"},
	    {"{{ 9223372036854775807 }}{{ -9223372036854775807 - 1 }}", "9223372036854775807-9223372036854775808"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
}

static void refusals(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{% macro f(*a) %}{% endmacro %}", "a name expected, not \"*\""},
	    {"{{ nothing.x }}", "\"nothing\" is undefined"},
	    {"{{ nothing() }}", "the function \"nothing\" is not supported"},
	    {"{{ none.x }}{{ none.x.y }}", "\"x\" is undefined"},
	    {"{{ none + 'a' }}", "arithmetic with none and a string"},
	    {"{{ 'a' + 1 }}", "arithmetic with a string and an integer"},
	    {"{{ 'a'.nope() }}", "the method \"nope\" is not supported"},
	    {"{{ 1 / 0 }}", "division by zero"},
	    {"{{ 1 < 'a' }}", "an integer and a string have no order"},
	    {"{{ [] | sort(attribute='a') }}{{ [1, 'a'] | sort }}", "an integer and a string have no order"},
	    {"{{ 'a' | abs }}", "a number expected, not a string"},
	    {"{{ none | length }}", "none has no length"},
	    {"{{ none | list }}", "none has no items to go through"},
	    {"{{ 5 in 5 }}", "an integer in an integer"},
	    {"{% for x in none %}{% endfor %}", "none has no items to go through"},
	    {"{% set x = 1 %}{% set x.y = 2 %}", "set of an attribute of an integer"},
	    {"{{ nothing | tojson }}", "undefined as JSON"},
	    {"{% for a, b in [1] %}{% endfor %}", "an integer has no items to go through"},
	    {"{{ 'x' | replace('a') }}", "\"replace\" with too few arguments"},
	    {"{{ range() }}", "\"range\" with too few arguments"},
	    {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "too many arguments for the macro \"f\""},
	    {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "the macro \"f\" has no parameter \"b\""},
	    {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "the parameter \"a\" given twice"},
	    {"{% macro f(a) %}{{ a }}{% endmacro %}{% call f(1) %}{% endcall %}",
	     "the macro \"f\" has no use for a call block"},
	    {"{% macro f(a=1, b) %}{% endmacro %}", "a parameter without a default behind one with a default"},
	    {"{% break %}", "\"break\" outside of a loop"},
	    {"{{ ''.join([1]) }}", "a string expected, not an integer"},
	    {"{{ 'a'.split('') }}", "an empty separator"},
	    {"{{ [1] + (2,) }}", "arithmetic with a list and a tuple"},
	    {"{{ {[1]: 2} }}", "a list as the key of a dictionary"},
	    {"{{ '%d' % 'a' }}", "%d of a string"},
	    {"{{ '%s %s' % 'a' }}", "not enough values for the format"},
	    {"{{ 10 | string | length }}{{ 'x' | string | first }}{{ 1 ~ 2 | int + 3 }}",
	     "arithmetic with a string and an integer"},
	    {"{{ 'x' * 3 ~ 'y' }}{{ 1 - -1 }}{{ 2 * (3 + 4) }}{{ 10 - 2 - 3 }}{{ 2 - 1 ~ 5 }"
	     "}",
	     "arithmetic with an integer and a string"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fails(cases[i].source, cases[i].text);
}

static void odd_arguments(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ false | map('string') | list }}{{ none | select | list }}{{ 0 | reject('odd') | list }}", "[][][]"},
	    {"{{ 'x' % [1] }}{{ 'x' % {} }}{{ 'x' % nothing }}", "xxx"},
	    {"{{ '3.7 a_b c-d' | wordcount }}{{ true | round }}{{ 2.5 is divisibleby(2) }}{{ 3.0 is odd }}",
	     "51FalseTrue"},
	    {"{{ ' a b '.split(none, 1) }}{{ ' a b c '.rsplit(none, 1) }}", "['a', 'b '][' a b', 'c']"},
	    {"{% macro f(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set l = [1, 2] %}"
	     "{{ f(*l) }}{{ f(*[4], **{'b': 5, 'c': 6}) }}{{ range(*l) | list }}{{ dict(**{'a': 1}) }}",
	     "123456[1]{'a': 1}"},
	    {"{% set l = [1] %}{% do l.append(2) %}{% do l.insert(0, 0) %}{% do l.extend([3]) %}{{ l }}"
	     "{{ l.pop() }}{{ l.pop(0) }}{{ l }}{% set d = {'a': 1} %}{% do d.update(b=2) %}{{ d.pop('a') }}{{ d }}"
	     "{{ d.setdefault('c', 3) }}{{ d.copy() }}",
	     "[0, 1, 2, 3]30[1, 2]1{'b': 2}3{'b': 2, 'c': 3}"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
	fails("{{ nothing | int }}", "\"nothing\" is undefined");
	fails("{{ {} in {} }}", "a dictionary in a dictionary");
	fails("{{ [{}] | unique | list }}", "unique of a dictionary");
	fails("{{ 5[1:] }}", "a slice of an integer");
	fails("{{ none | indent }}", "a string expected, not none");
}

/* The expected texts are jinja2 3.1.6's and markupsafe 3.0.3's. */
static void markup(void **state)
{
	(void)state;
	static const struct same cases[] = {
	    {"{{ '<b>'|safe }}{{ 5|safe }}{{ none|safe }}{{ [1,'<']|safe }}", "<b>5None[1, '<']"},
	    {"{{ '<b>'|safe + '<' }}|{{ '<' + '<b>'|safe }}|{{ '<'|safe + '>'|safe }}|{{ '<' + '&' }}",
	     "<b>&lt;|&lt;<b>|<>|<&"},
	    {"{{ '<b>'|safe ~ '<' }}|{{ '<' ~ ('<b>'|safe + '&') }}", "<b><|<<b>&amp;"},
	    {"{{ ('<'|safe ~ '>') + '<' }}|{{ '<'|safe ~ '>' + '<'|safe }}", "<><|&lt;&gt;<"},
	    {"{{ ('<'|safe) * 2 + '>' }}|{{ 2 * ('<'|safe) + '>' }}", "<<&gt;|<<&gt;"},
	    {"{{ '<b>%s</b>'|safe % '<' }}|{{ '%s %d %s' |safe % ('<', 3, '&'|safe) }}|{{ '<%5s|%-5s>'|safe % ('<', "
	     "'>') }}",
	     "<b>&lt;</b>|&lt; 3 &|< &lt;|&gt; >"},
	    {"{{ '%s'|safe % [1, '<'] }}|{{ '%s' % ('<'|safe) }}|{{ '%.1f<'|safe % 2 }}", "[1, &#39;&lt;&#39;]|<|2.0<"},
	    {"{{ '%s-%s'|safe|format('<', 7) }}|{{ '%s'|format('<'|safe) }}", "&lt;-7|<"},
	    {"{{ ('<a>'|e) + '<b>' }}|{{ '<a>'|e|e }}|{{ '<a>'|safe|e }}|{{ '<a>'|escape|upper }}",
	     "&lt;a&gt;&lt;b&gt;|&lt;a&gt;|<a>|&LT;A&GT;"},
	    {"{{ ('<a>'|safe)[0] + '<' }}|{{ ('<a>'|safe)[0:2] + '<' }}|{{ ('<a>'|safe)[::-1] + '<' }}",
	     "<&lt;|<a&lt;|>a<&lt;"},
	    {"{{ '<a>'|safe|first + '<' }}|{{ '<a>'|safe|last + '<' }}|{{ '<a>'|safe|reverse + '<' }}",
	     "<<|>&lt;|>a<&lt;"},
	    {"{% for c in '<&'|safe %}{{ c + '<' }}{% endfor %}|{{ ('<a'|safe|list)[0] + '<' }}", "<<&<|<<"},
	    {"{{ '<A>'|safe|lower + '<' }}|{{ '<a>'|safe|capitalize + '<' }}|{{ '<a>'|safe|title + '<' }}|{{ ' <a> "
	     "'|safe|trim + '<' }}|{{ '<a>'|safe|string + '<' }}",
	     "<a>&lt;|<a>&lt;|<A><|<a>&lt;|<a>&lt;"},
	    {"{{ '<a>'|safe|replace('a', '&') }}|{{ ('<a>'|safe).replace('a', '&') }}|{{ '<a>'|safe|replace('a', '&') "
	     "+ '<' }}",
	     "<&>|<&amp;>|<&><"},
	    {"{{ '<a>'.replace('a', '&'|safe) + '<' }}", "<&><"},
	    {"{{ ['<', '>'|safe]|join(',') + '<' }}|{{ (','|safe).join(['<', '>'|safe]) + '<' }}|{{ ','.join(['<', "
	     "'>'|safe]) + '<' }}|{{ ('<'|safe).join(['a', 'b']) }}|{{ (''|safe).join([1, '<']) }}",
	     "<,><|&lt;,>&lt;|<,><|a<b|1&lt;"},
	    {"{{ ('<a,<b'|safe).split(',')[1] + '<' }}|{{ ('<a,<b'|safe).rsplit(',', 1)[0] + '<' }}|{{ "
	     "('<a\\n<b'|safe).splitlines()[1] + '<' }}|{{ ('<a,<b'|safe).partition(',')[1] + '<' }}|{{ "
	     "('<ab'|safe).partition(',')[2] + '<' }}",
	     "<b&lt;|<a&lt;|<b&lt;|,&lt;|&lt;"},
	    {"{{ ('<a'|safe).strip('a') + '<' }}|{{ ('<a'|safe).lstrip('<') + '<' }}|{{ ('<a'|safe).rstrip() + '<' "
	     "}}|{{ ('<a'|safe).upper() + '<' }}|{{ ('<a'|safe).title() + '<' }}|{{ ('<a'|safe).capitalize() + '<' }}",
	     "<&lt;|a&lt;|<a&lt;|<A&lt;|<A&lt;|<a&lt;"},
	    {"{{ ('<a'|safe).ljust(4) + '<' }}|{{ ('<a'|safe).rjust(4, '*') + '<' }}|{{ ('<a'|safe).center(4) + '<' }}",
	     "<a  &lt;|**<a&lt;| <a &lt;"},
	    {"{{ ('<a'|safe).removeprefix('<') + '<' }}|{{ ('<a'|safe).removesuffix('a') + '<' }}", "a&lt;|<&lt;"},
	    {"{{ ['<'|safe] }}|{{ {'a'|safe: '<'|safe} }}|{{ ('<'|safe,) }}|{{ ['<'|safe]|string }}",
	     "[Markup('<')]|{Markup('a'): Markup('<')}|(Markup('<'),)|[Markup('<')]"},
	    {"{{ '<'|safe|tojson }}|{{ ['<'|safe]|tojson }}|{{ ('<'|safe|tojson) + '<' }}", "\"<\"|[\"<\"]|\"<\"<"},
	    {"{{ '<'|safe == '<' }}|{{ '<'|safe in '<a' }}|{{ {'<': 1}['<'|safe] }}|{{ '<'|safe is string }}|{{ "
	     "'<'|safe is escaped }}|{{ '<' is escaped }}|{{ 5 is escaped }}|{{ ('<'|e) is escaped }}",
	     "True|True|1|True|True|False|False|True"},
	    {"{{ 'a\\nb<'|safe|indent(2) + '<' }}|{{ 'a\\nb<'|safe|indent('<') }}|{{ 'a\\nb'|indent('<'|safe) + '<' }}",
	     "a\n  b<&lt;|a\n<b<|a\n<b<"},
	    {"{{ '<'|safe|default('x') + '<' }}|{{ nothing|default('<'|safe) + '<' }}", "<&lt;|<&lt;"},
	    {"{% set x %}<{% endset %}{{ x + '<' }}|{% set y | safe %}<{% endset %}{{ y + '<' }}|{% macro m(a) %}{{ a "
	     "}}{% endmacro %}{{ m('<'|safe) + '<' }}",
	     "<<|<&lt;|<<"},
	    {"{% filter safe %}<{% endfilter %}|{{ ['<', 'b']|map('safe')|first + '<' }}|{{ ['<', "
	     "'b']|map('e')|join('<') }}",
	     "<|<&lt;|&lt;<b"},
	    {"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content|safe %}{% endfor "
	     "%}{{ ns.t + '<' }}",
	     "Be é Hi x&lt;"},
	    {"{{ '<'|safe if true else '' + '<' }}|{{ ('<'|safe or 'x') + '<' }}|{{ ('' or '<') + ('&'|safe) }}",
	     "<|<&lt;|&lt;&"},
	    {"{{ ('é<'|safe)[1:] + '\\'\"' }}|{{ 'x'|safe + '\\'\"' }}", "<&#39;&#34;|x&#39;&#34;"},
	};
	all_same(cases, sizeof(cases) / sizeof(cases[0]));
	fails("{{ 5|safe + 1 }}", "arithmetic with a string and an integer");
	fails("{{ ('a'|safe).ljust(4, '<') }}", "text is filled with one character");
}

enum ending { LOADS, RUN, REFUSED };

/* As jinja2 3.1.6 does: refused when it is compiled, an error when it runs, or neither. */
static void unknown_names(void **state)
{
	(void)state;
	static const struct {
		enum ending ending;
		const char *source;
	} cases[] = {
	    {REFUSED, "{{ x|nof }}"},
	    {LOADS, "{% if false %}{{ x|nof }}{% endif %}"},
	    {RUN, "{% if true %}{{ x|nof }}{% endif %}"},
	    {RUN, "{% if x|nof %}a{% endif %}"},
	    {RUN, "{% if false %}{% elif x|nof %}a{% endif %}"},
	    {LOADS, "{% if true %}{% elif x|nof %}a{% endif %}"},
	    {LOADS, "{% if true %}{% else %}{{ x|nof }}{% endif %}"},
	    {LOADS, "{{ 1 if x is not defined else x|nof }}"},
	    {RUN, "{{ 1 if x is defined else x|nof }}"},
	    {LOADS, "{{ x|nof if y else 1 }}"},
	    {REFUSED, "{{ (x|nof) or (2 if y else 1) }}"},
	    {RUN, "{{ 1 if (x|nof) else 2}}"},
	    {REFUSED, "{% for i in [] %}{{ i|nof }}{% endfor %}"},
	    {REFUSED, "{% if false %}{% for i in [] %}{{ i|nof }}{% endfor %}{% endif %}"},
	    {LOADS, "{% if false %}{% for i in x|nof %}{% endfor %}{% endif %}"},
	    {REFUSED, "{% if false %}{% for i in [] if i|nof %}{% endfor %}{% endif %}"},
	    {REFUSED, "{% if false %}{% for i in [] recursive %}{{ loop(i|nof) }}{% endfor %}{% endif %}"},
	    {LOADS, "{% if false %}{% for i in x|nof recursive %}{% endfor %}{% endif %}"},
	    {REFUSED, "{% if false %}{% for i in [] %}{% else %}{{ x|nof }}{% endfor %}{% endif %}"},
	    {LOADS, "{% for i in [] %}{% if false %}{{ i|nof }}{% endif %}{% endfor %}"},
	    {REFUSED, "{% if false %}{% macro m(a=x|nof) %}{% endmacro %}{% endif %}"},
	    {REFUSED, "{% if false %}{% macro m(a) %}{{ a|nof }}{% endmacro %}{% endif %}"},
	    {LOADS, "{% macro m(a) %}{% if a %}{{ a|nof }}{% endif %}{% endmacro %}{{ m(0) }}"},
	    {LOADS, "{% if false %}{% set q = x|nof %}{% endif %}"},
	    {REFUSED, "{% if false %}{% set q %}{{ x|nof }}{% endset %}{% endif %}"},
	    {REFUSED, "{% if false %}{% set q | nof %}a{% endset %}{% endif %}"},
	    {REFUSED, "{% if false %}{% filter nof %}a{% endfilter %}{% endif %}"},
	    {REFUSED, "{% filter nof %}a{% endfilter %}"},
	    {REFUSED, "{% if false %}{% filter upper %}{{ x|nof }}{% endfilter %}{% endif %}"},
	    {LOADS, "{% if false %}{% with a = x|nof %}{{ a }}{% endwith %}{% endif %}"},
	    {REFUSED, "{% if false %}{% with a = 1 %}{{ x|nof }}{% endwith %}{% endif %}"},
	    {REFUSED, "{% macro m() %}{{ caller() }}{% endmacro %}{% if false %}{% call m() %}{{ x|nof }}{% endcall "
		      "%}{% endif %}"},
	    {LOADS,
	     "{% macro m(a) %}{{ caller() }}{% endmacro %}{% if false %}{% call m(x|nof) %}{% endcall %}{% endif %}"},
	    {REFUSED, "{% if false %}{% call(a=x|nof) m() %}{% endcall %}{% endif %}"},
	    {REFUSED, "{{ x is nosuch }}"},
	    {LOADS, "{% if false %}{{ x is nosuch }}{% endif %}"},
	    {RUN, "{% if x is nosuch %}{% endif %}"},
	    {RUN, "{{ 1 if x is nosuch else 2 }}"},
	    {RUN, "{% if x is not nosuch %}{% endif %}"},
	    {LOADS, "{{ 1 if true else (x|nof) }}"},
	    {LOADS, "{{ (x|nof) if false else 2 }}"},
	    {RUN, "{% if x|nof %}{% endif %}"},
	    {REFUSED, "{{ [1 if true else 2, x|nof] }}"},
	    {RUN, "{{ x.y.z|nof if true }}"},
	    {RUN, "{% if true %}{{ x.y.z|nof(q.r.s) }}{% endif %}"},
	    {RUN, "{% if true %}{{ 1|nof(a=2) }}{% endif %}"},
	    {RUN, "{% if true %}{{ 'a'|nof|upper }}{% endif %}"},
	    {LOADS, "{% set ns=namespace(a=1) %}{% if false %}{% set ns.a = 1|nof %}{% endif %}"},
	    {RUN, "{% if true %}{% if 1 is defined and (2|nof) %}{% endif %}{% endif %}"},
	    {LOADS, "{% if 0 and (2|nof) %}{% endif %}done"},
	    {LOADS, "{% for x in (1|nof if false else [2]) %}{{x}}{% endfor %}"},
	    {LOADS, "{% for x in [1,2] if (x|nof if false else true) %}{{x}}{% endfor %}"},
	    {LOADS, "{% macro m(a=(1|nof if false else 7)) %}{{ a }}{% endmacro %}{{ m() }}"},
	    {REFUSED, "{% if false %}{% filter upper|nof %}a{% endfilter %}{% endif %}"},
	    {RUN, "{% if true %}{{ [1]|map('nof')|list }}{% endif %}"},
	    {LOADS, "{% if false %}{{ [1]|map('nof')|list }}{% endif %}"},
	    {LOADS, "{% if false %}{{ [1]|select('nosuch')|list }}{% endif %}"},
	    {LOADS, "{% if false %}{{ [1]|selectattr('a', 'nosuch')|list }}{% endif %}"},
	    {LOADS, "{% if false %}{% if true %}{{ x|nof }}{% endif %}{% endif %}"},
	    {LOADS, "{% if true %}{% if false %}{{ x|nof }}{% endif %}{{ 1 }}{% endif %}"},
	    {REFUSED, "{{ [x|nof, 1 if true else 2] }}"},
	    {REFUSED, "{{ (1 if true else 2)|nof }}"},
	    {RUN, "{{ {'a': 1 if x|nof else 2} }}"},
	    {LOADS, "{% set q = x|nof if false else 2 %}"},
	    {REFUSED, "{% set q = 1, x|nof %}"},
	    {LOADS, "{% if false %}{{ m(x|nof) }}{% endif %}{% macro m(a) %}{% endmacro %}"},
	    {LOADS, "{% if false %}{% do x|nof %}{% endif %}"},
	    /* transformers' own statement, a call block to jinja2 */
	    {REFUSED, "{% if false %}{% generation %}{{ x|nof }}{% endgeneration %}{% endif %}"},
	    {LOADS, "{% generation %}{% if false %}{{ x|nof }}{% endif %}{% endgeneration %}"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_buf text;
		struct sl_err err = {0};
		struct chat_template *t = NULL;
		int loaded = chat_template_compile(cases[i].source, strlen(cases[i].source), &t, &err);
		chat_template_free(t);
		int ran = loaded == 0 ? render(cases[i].source, &text, &err) : 0;
		enum ending ending = loaded != 0 ? REFUSED : ran != 0 ? RUN : LOADS;
		if (ending != cases[i].ending)
			fail_msg("%s: %d, not %d: %s", cases[i].source, (int)ending, (int)cases[i].ending, err.text);
		if (loaded == 0)
			buf_dispose(&text);
	}
	fails("{% if true %}{{ 'x'|from_json }}{% endif %}",
	      "template line 1, column 21: the filter \"from_json\" is not supported");
	fails("{{ 1 if 2 is nosuch else 3 }}", "template line 1, column 14: the test \"nosuch\" is not supported");
	fails("{{ [1, 'x'|first|from_json] }}",
	      "template line 1, column 18: the filter \"from_json\" is not supported");
	fails("{% if false %}{% for i in [] %}{{ i|a|b }}{% endfor %}{% endif %}", "the filter \"a\" is not supported");
	fails("{% if true %}{{ 'a'.nope() }}{% endif %}", "a string has no method \"nope\"");
	fails("{{ [1]|map('nof')|list }}", "the filter \"nof\" is not supported");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(macros),           cmocka_unit_test(blocks),   cmocka_unit_test(loops),
	    cmocka_unit_test(filters_of_lists), cmocka_unit_test(is_tests), cmocka_unit_test(filters),
	    cmocka_unit_test(methods),          cmocka_unit_test(source),   cmocka_unit_test(operators),
	    cmocka_unit_test(odd_arguments),    cmocka_unit_test(refusals), cmocka_unit_test(markup),
	    cmocka_unit_test(unknown_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
