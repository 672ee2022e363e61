/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/chat_template: what templates render to, whose text is trusted, what does not compile and
 * which bounds hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/chat/chat_template.h"

struct result {
	int rc;
	struct sl_err err;
	struct sl_buf text, trust;
};

static void result_dispose(struct result *x)
{
	buf_dispose(&x->text);
	buf_dispose(&x->trust);
}

/* Compiles and renders; messages as JSON. */
static struct result render_n(const char *source, size_t n, const char *messages)
{
	struct result x = {0};
	struct chat_template *t = NULL;
	buf_init(&x.text, 64 << 20);
	buf_init(&x.trust, 64 << 20);
	x.rc = chat_template_compile(source, n, &t, &x.err);
	if (x.rc != 0)
		return x;
	json_t *j = json_loads(messages, 0, NULL);
	assert_non_null(j);
	struct chat_vars vars = {.messages = j, .bos_token = "<s>", .eos_token = "</s>", .add_generation_prompt = true};
	x.rc = chat_template_render(t, &vars, &x.text, &x.trust, &x.err);
	assert_int_equal(x.text.len, x.trust.len);
	if (x.rc != 0)
		assert_int_equal(x.text.len, 0);
	json_decref(j);
	chat_template_free(t);
	return x;
}

static struct result render(const char *source, const char *messages)
{
	return render_n(source, strlen(source), messages);
}

static void gives(const char *source, const char *messages, const char *want)
{
	struct result x = render(source, messages);
	if (x.rc != 0)
		fail_msg("%s: %s", source, x.err.text);
	assert_string_equal(buf_cstr(&x.text), want);
	result_dispose(&x);
}

/* Checks text and the trust of each byte: t or . */
static void trusts(const char *source, const char *messages, const char *want, const char *mask)
{
	struct result x = render(source, messages);
	if (x.rc != 0)
		fail_msg("%s: %s", source, x.err.text);
	assert_string_equal(buf_cstr(&x.text), want);
	for (size_t i = 0; i < x.trust.len; i++)
		if ((mask[i] == 't') != (buf_data(&x.trust)[i] != 0))
			fail_msg("%s: trust of byte %zu of \"%s\"", source, i, want);
	result_dispose(&x);
}

static void fails(const char *source, const char *messages, int rc, const char *message)
{
	struct result x = render(source, messages);
	if (x.rc != rc || strstr(x.err.text, message) == NULL)
		fail_msg("%s: %d \"%s\", not %d \"%s\"", source, x.rc, x.err.text, rc, message);
	result_dispose(&x);
}

#define CHAT                                                                                        \
	"[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\" Hi \"}" \
	",{\"role\":\"assistant\",\"content\":\"Yes?\"},{\"role\":\"user\",\"content\":\"x\"}]"

static void chatml(void **state)
{
	(void)state;
	static const char one_line[] =
	    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
	    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt "
	    "%}{{ '<|im_start|>assistant\\n' }}{% endif %}";
	static const char spread[] = "{%- for message in messages %}\n"
				     "    {{- '<|im_start|>' + message.role + '\\n' }}\n"
				     "    {{- message.content }}\n"
				     "    {{- '<|im_end|>\\n' }}\n"
				     "{%- endfor %}\n"
				     "{%- if add_generation_prompt %}\n"
				     "    {{- '<|im_start|>assistant\\n' }}\n"
				     "{%- endif %}\n";
	static const char want[] = "<|im_start|>system\nBe brief.<|im_end|>\n"
				   "<|im_start|>user\n Hi <|im_end|>\n"
				   "<|im_start|>assistant\nYes?<|im_end|>\n"
				   "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n";
	gives(one_line, CHAT, want);
	gives(spread, CHAT, want);
	trusts("{% for m in messages %}{{'<' + m['role'] + '>' + m['content'] + '</>'}}{% endfor %}",
	       "[{\"role\":\"user\",\"content\":\"</>\"}]", "<user></></>", "t....t...ttt");
}

/* In the style of Llama 2: the system text goes into the first user turn. */
static void bracketed_style(void **state)
{
	(void)state;
	static const char source[] =
	    "{% if messages[0]['role'] == 'system' %}"
	    "{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
	    "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}"
	    "{% for m in rest %}"
	    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
	    "{{ raise_exception('Roles must alternate, not ' + m['role']) }}{% endif %}"
	    "{% if loop.index0 == 0 and system != false %}"
	    "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}"
	    "{% else %}{% set content = m['content'] %}{% endif %}"
	    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
	    "{% elif m['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }}"
	    "{% endif %}{% endfor %}";
	gives(source, CHAT, "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yes? </s><s>[INST] x [/INST]");
	gives(source, "[{\"role\":\"user\",\"content\":\"a\"}]", "<s>[INST] a [/INST]");
	fails(source, "[{\"role\":\"assistant\",\"content\":\"a\"}]", SL_EINVAL, "Roles must alternate, not assistant");
}

/* In the style of Llama 3: headers, bos before the first turn. */
static void header_style(void **state)
{
	(void)state;
	gives("{% set loop_messages = messages %}{% for message in loop_messages %}"
	      "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
	      "message['content'] | trim + '<|eot_id|>' %}"
	      "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
	      "{{ content }}{% endfor %}"
	      "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
	      "{% endif %}",
	      "[{\"role\":\"user\",\"content\":\" Hi \"}]",
	      "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
	      "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void white_space(void **state)
{
	(void)state;
	gives("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "[]", "a\n  b\nc");
	gives("a {% if true %} b {% endif %} c", "[]", "a  b  c");
	gives("a \n {%- if true -%} \n b \n {%- endif -%} \n c", "[]", "abc");
	gives("a\n  {%+ if true +%}\nb{% endif %}", "[]", "a\n  \nb");
	gives("  {{ 'a' }}\n  {{- 'b' -}}  \n c", "[]", "  abc");
	gives("a\n  {# note #}\nb{#- x -#}  c", "[]", "a\nbc");
	gives("a\r\n{% if 1 %}\r\nb{% endif %}\rc\n\n", "[]", "a\nbc\n");
	gives("{{ '}}' }}{{ \"%}\" }}{{ {'a': {'b': 1}}['a']['b'] }}", "[]", "}}%}1");
}

static void expressions(void **state)
{
	(void)state;
	gives("{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}", "[]", "3 9 -4 2 3.5");
	gives("{{ 1 ~ 2 ~ none ~ true ~ nothing }}|{{ nothing }}|{{ 0.1 }} {{ 4 / 2 }}", "[]", "12NoneTrue||0.1 2.0");
	gives("{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 'b' in 'abc' }} {{ 2 not in [1, 3] }} {{ 'k' in {'k': 1} }}", "[]",
	      "True True True True True");
	gives("{{ not 1 == 2 and 0 or 'x' }} {{ 'y' if false else 'n' }}{{ 'z' if false }}", "[]", "x n");
	gives("{{ nothing is defined }}{{ none is none }}{{ 'a' is not string }}{{ 1 is number }}"
	      "{{ messages is mapping }}{{ messages is iterable }}",
	      "[]", "FalseTrueFalseTrueFalseTrue");
	gives("{{ 'abc'[0] }}{{ 'a\xC3\xA9z'[-2] }}{{ 'abcd'[1:-1] }}{{ [1, 2, 3][::-1] | join('-') }}", "[]",
	      "a\xC3\xA9"
	      "bc3-2-1");
	gives("{{ ' x ' | trim | length }}{{ 'aB' | upper }}{{ 'aB'.lower() }}{{ nothing | default('d') }}"
	      "{{ '' | default('e', true) }}",
	      "[]", "1ABabde");
	gives("{{ 'a,b,c'.split(',')[1] }}{{ 'abc'.replace('b', '--') }}{{ 'abc'.startswith('ab') }}", "[]",
	      "ba--cTrue");
	gives("{{ messages | tojson }}", "[{\"a\":[1,null,true,1.5],\"b\":\"\\\"\\n\\u00e9\\u0001\"}]",
	      "[{\"a\": [1, null, true, 1.5], \"b\": \"\\\"\\n\xC3\xA9\\u0001\"}]");
	gives("{{ messages[0].a.b.c }}{{ messages[0]['a']['nope'] }}", "[{\"a\":{\"b\":{\"c\":\"d\"}}}]", "d");
	gives("{{ 'a' 'b' }}{{ '\\x41\\u00e9\\t\\'' }}", "[]", "abA\xC3\xA9\t'");
}

static void statements(void **state)
{
	(void)state;
	gives("{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }} "
	      "{% endfor %}",
	      "[]", "1TrueFalse3 2FalseFalse3 3FalseTrue3 ");
	gives("{% set x = 1 %}{% for i in [2] %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "[]", "21");
	gives("{% set n = namespace(x=1, s='') %}{% for i in range(3) %}{% set n.x = n.x + i %}{% endfor %}"
	      "{{ n.x }}",
	      "[]", "4");
	gives("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}", "[]", "a1b2");
	gives("{% for x in nothing %}x{% else %}none{% endfor %}", "[]", "none");
	gives("{% if 0 %}a{% elif '' %}b{% elif [] %}c{% else %}d{% endif %}", "[]", "d");
}

/* No way of building text from the request makes it trusted. */
static void trust(void **state)
{
	(void)state;
	static const char m[] = "[{\"c\":\"ab\",\"n\":7}]";
	trusts("x{{ messages[0].c }}", m, "xab", "t..");
	trusts("{{ 'x' ~ messages[0].c ~ 'y' }}", m, "xaby", "t..t");
	trusts("{{ (messages[0].c + 'y')[1:] }}", m, "by", ".t");
	trusts("{{ ('x' + messages[0].c) | upper }}", m, "XAB", "t..");
	trusts("{{ messages[0].c.replace('a', '<|') }}", m, "<|b", "tt.");
	trusts("{{ '1-2'.replace('-', messages[0].c) }}", m, "1ab2", "t..t");
	trusts("{{ [messages[0].c, 'q'] | join('+') }}", m, "ab+q", "..tt");
	trusts("{{ messages[0].n }}{{ messages[0].n + 1 }}{{ 3 }}", m, "783", "..t");
	trusts("{{ messages | tojson }}", "[]", "[]", "..");
	trusts("{% for k in messages[0] %}{{ k }}{% endfor %}", m, "cn", "..");
	trusts("{{ messages[0].nope | default('x') }}", m, "x", "t");
	trusts("{{ bos_token }}", m, "<s>", "ttt");
	trusts("{{ (' ' + messages[0].c + ' ') | trim }}{{ messages[0].c.split('a')[1] }}", m, "abb", "...");
	trusts("{% set n = namespace(t='') %}{% for i in [1, 2] %}{% set n.t = n.t + messages[0].c + '.' %}"
	       "{% endfor %}{{ n.t }}",
	       m, "ab.ab.", "..t..t");
}

/* Nor any way of building it with macros, captures, formats and cases. */
static void trust_of_constructs(void **state)
{
	(void)state;
	static const char m[] = "[{\"c\":\"ab\",\"n\":7}]";
	trusts("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].c) }}", m, "<ab>", "t..t");
	trusts("{% set s %}<{{ messages[0].c }}>{% endset %}{{ s | upper }}", m, "<AB>", "t..t");
	trusts("{% filter replace('b', '<') %}({{ messages[0].c }}){% endfilter %}", m, "(a<)", "t.tt");
	trusts("{{ '<%s|%d>' % (messages[0].c, messages[0].n) }}", m, "<ab|7>", "t..t.t");
	trusts("{{ '<%4s>' % messages[0].c }}", m, "<  ab>", "ttt..t");
	trusts("{{ ('<' ~ messages[0].c) * 2 }}", m, "<ab<ab", "t..t..");
	trusts("{{ ('<' ~ messages[0].c)[::-1] }}", m, "ba<", "..t");
	trusts("{{ ('<' ~ messages[0].c) | reverse }}", m, "ba<", "..t");
	trusts("{{ ('<' ~ messages[0].c) | list | join('-') }}", m, "<-a-b", "tt.t.");
	trusts("{{ ('x' ~ messages[0].c) | title }}", m, "Xab", "t..");
	trusts("{{ messages[0].c | indent(2, true) }}", m, "  ab", "tt..");
	trusts("{{ ['<', messages[0].c] }}", m, "['<', 'ab']", "...........");
	trusts("{{ messages[0] | items | first | first }}{{ messages[0] | length }}", m, "c2", "..");
	trusts("{{ messages | map(attribute='c') | first }}{{ messages | groupby('c') | first | first }}", m, "abab",
	       "....");
	trusts("{{ 'x'.join([messages[0].c, messages[0].c]) }}", m, "abxab", "..t..");
	trusts("{{ messages[0].c.center(6, '<') }}", m, "<<ab<<", "tt..tt");
	trusts("{% for c in messages[0].c %}{{ c }}{% endfor %}", m, "ab", "..");
	trusts("{{ messages[0].n | string ~ (messages[0].n | abs) ~ -messages[0].n }}", m, "77-7", "....");
	trusts("{{ messages[0].c | int(5) }}{{ '9' | int }}", m, "59", "t.");
}

static struct result render_vars(const char *source, const struct chat_vars *vars)
{
	struct result x = {0};
	struct chat_template *t = NULL;
	buf_init(&x.text, 1 << 20);
	buf_init(&x.trust, 1 << 20);
	x.rc = chat_template_compile(source, strlen(source), &t, &x.err);
	if (x.rc == 0)
		x.rc = chat_template_render(t, vars, &x.text, &x.trust, &x.err);
	chat_template_free(t);
	return x;
}

static void gives_vars(const char *source, const struct chat_vars *vars, const char *want)
{
	struct result x = render_vars(source, vars);
	if (x.rc != 0)
		fail_msg("%s: %s", source, x.err.text);
	assert_string_equal(buf_cstr(&x.text), want);
	result_dispose(&x);
}

static void variables(void **state)
{
	(void)state;
	json_t *messages = json_loads("[{\"role\":\"user\",\"content\":\"x\"}]", 0, NULL);
	json_t *tools = json_loads("[{\"function\":{\"name\":\"f\"}}]", 0, NULL);
	json_t *more = json_loads("{\"enable_thinking\":false,\"levels\":[1,2],\"messages\":1}", 0, NULL);
	struct chat_vars vars = {.messages = messages};
	gives_vars("{{ tools is none }}{{ documents is none }}{{ tools is defined }}"
		   "{{ enable_thinking is defined }}{{ bos_token is defined }}",
		   &vars, "TrueTrueTrueFalseFalse");
	vars.tools = vars.documents = tools;
	vars.more = more;
	gives_vars("{{ tools[0].function.name }}{{ documents | length }}{{ enable_thinking }}"
		   "{{ levels | sum }}{{ messages | length }}",
		   &vars, "f1False31");
	assert_int_equal(setenv("TZ", "UTC-2", 1), 0);
	vars.now_s = 1700000000; /* 2023-11-14 22:13:20 UTC */
	gives_vars("{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%H:%M') }}|{{ strftime_now('') }}|"
		   "{{ strftime_now is defined }}",
		   &vars, "15 Nov 2023|00:13||True");
	unsetenv("TZ");
	json_decref(messages);
	json_decref(tools);
	json_decref(more);
}

/* A template that goes through parts gets them, any other one text. */
static void parts_of_content(void **state)
{
	(void)state;
	static const char m[] = "[{\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
				"{\"type\":\"text\",\"text\":\"b\"}]}]";
	trusts("{{ messages[0].content }}", m, "a\nb", "...");
	gives("{% for p in messages[0]['content'] %}<{{ p.text }}>{% endfor %}", m, "<a><b>");
	gives("{% for m in messages %}{% set content = m.content %}{% for p in content %}<{{ p.text }}>"
	      "{% endfor %}{% endfor %}",
	      m, "<a><b>");
}

static void continued(void **state)
{
	(void)state;
	static const char source[] = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
	static const char kept[] = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
	json_t *messages = json_loads("[{\"content\":\"b\"},{\"content\":\" a <b> \"}]", 0, NULL);
	struct chat_vars vars = {.messages = messages, .continue_final_message = true};
	gives_vars(source, &vars, "<b><a <b>");
	gives_vars(kept, &vars, "<b>< a <b> ");
	struct result x = render_vars("nothing", &vars);
	assert_int_equal(x.rc, SL_EINVAL);
	assert_int_equal(x.text.len + x.trust.len, 0);
	result_dispose(&x);
	json_array_append_new(messages, json_pack("{s:n}", "content"));
	x = render_vars(kept, &vars);
	assert_int_equal(x.rc, SL_EINVAL);
	result_dispose(&x);
	json_decref(messages);
}

static void refusals_at_compile_time(void **state)
{
	(void)state;
	const struct {
		const char *source, *message;
	} cases[] = {
	    {"\n{% include 'x' %}", "line 2, column 1: the statement \"include\""},
	    {"{% import 'x' as y %}", "the statement \"import\""},
	    {"{% block x %}{% endblock %}", "the statement \"block\""},
	    {"a\n\n {{ x | urlize }}", "line 3, column 9: the filter \"urlize\""},
	    {"{{ x is odder }}", "the test \"odder\""},
	    {"{{ x is not odder }}", "the test \"odder\""},
	    {"{{ lipsum() }}", "the function \"lipsum\""},
	    {"{% macro f() %}{% endmacro %}{{ g() }}", "the function \"g\""},
	    {"{{ x.format(1) }}", "the method \"format\""},
	    {"{{ x.__class__() }}", "the method \"__class__\""},
	    {"{{ loop.nope }}", "the loop's \"nope\""},
	    {"{{ x | tojson(indents=2) }}", "the keyword argument \"indents\""},
	    {"{{ x | map('urlize') }}", "the filter \"urlize\""},
	    {"{{ x | selectattr('a', 'odder') }}", "the test \"odder\""},
	    {"{{ x | reject('odder') }}", "the test \"odder\""},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fails(cases[i].source, "[]", SL_EUNSUPPORTED, cases[i].message);
	const char *const malformed[] = {
	    "{{ 'a }}",
	    "{{ a",
	    "{% if 1 %}",
	    "{% endif %}",
	    "{{ }}",
	    "{{ 1 + }}",
	    "{{ a b }}",
	    "{# a",
	    "{% for in x %}",
	    "{% set 1 = 2 %}",
	    "{{ a[ }}",
	    "{{ a[] }}",
	    "{{ '\\x1' }}",
	    "{{ 'a' | }}",
	    "{% if 1 %}{% else %}{% elif 1 %}{% endif %}",
	    "{{ ? }}",
	    "{{ 99999999999999999999 }}",
	    "{% if %}",
	    "{%",
	    "{{",
	    "{{ {'a' 1} }}",
	    "{{ 1x }}",
	    "{{ 'a' | trim(1, 2) }}",
	    "\xFF",
	};
	for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
		fails(malformed[i], "[]", SL_EINVAL, "template");
}

static void refusals_at_run_time(void **state)
{
	(void)state;
	const struct {
		const char *source, *message;
	} cases[] = {
	    {"\n{{ nothing.x }}", "line 2, column 12: \"nothing\" is undefined"},
	    {"{{ range }}", "a function can't be printed"},
	    {"{{ 'a' + 1 }}", "arithmetic with a string and an integer"},
	    {"{{ 'a' + none }}", "a string and none"},
	    {"{{ 1 // 0 }}", "division by zero"},
	    {"{{ 1 < 'a' }}", "no order"},
	    {"{% for c in 5 %}{% endfor %}", "an integer has no items"},
	    {"{{ raise_exception('No ' ~ 'way') }}", "No way"},
	    {"{{ 9223372036854775807 + 1 }}", "out of range"},
	    {"{% set x = 1 %}{% set x.y = 2 %}", "set of an attribute of an integer"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fails(cases[i].source, "[]", SL_EINVAL, cases[i].message);
}

/* Each bound gives SL_ELIMIT, and none of these takes long or much. */
static void bounds(void **state)
{
	(void)state;
	fails("{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{{ a }}"
	      "{% endfor %}{% endfor %}{% endfor %}",
	      "[]", SL_ELIMIT, "steps");
	fails("{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}"
	      "{% set n.s = n.s + n.s %}{% endfor %}",
	      "[]", SL_ELIMIT, "line 1");
	fails("{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(18) %}"
	      "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}{{ n.s }}{{ n.s }}",
	      "[]", SL_ELIMIT, "bytes of text");
	fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "[]", SL_ELIMIT, "in each other");
	fails("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{% macro g() %}{% call g() %}{% endcall %}"
	      "{{ caller }}{% endmacro %}{% call g() %}{% endcall %}",
	      "[]", SL_ELIMIT, "in each other");
	fails("{% for x in [[]] recursive %}{% set y = [x] %}{{ loop([y]) }}{% endfor %}", "[]", SL_ELIMIT,
	      "in each other");
	fails("{% set l = [] %}{% do l.append(l) %}{{ l }}", "[]", SL_ELIMIT, "nested deeper");
	fails("{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}", "[]", SL_ELIMIT, "");
	fails("{{ 'a' * 99999999999 }}", "[]", SL_ELIMIT, "");
	fails("{{ [1] * 99999999999 }}", "[]", SL_ELIMIT, "");
	fails("{{ [1] | batch(99999999999, 0) | list }}", "[]", SL_ELIMIT, "");
	fails("{{ [1] | slice(99999999999) | list }}", "[]", SL_ELIMIT, "");
	fails("{{ 'a'.center(99999999999) }}", "[]", SL_ELIMIT, "");
	fails("{{ '%999999999s' % 'a' }}{{ '%99d' % 1 }}", "[]", SL_ELIMIT, "");
	fails("{{ [1] | tojson(indent=99999999999) }}", "[]", SL_ELIMIT, "");
	fails("{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}{% endfor %}", "[]",
	      SL_ELIMIT, "");
	fails("{% set n = namespace(l=[1]) %}{% for i in range(70) %}{% set n.l = [n.l] %}{% endfor %}"
	      "{{ n.l }}",
	      "[]", SL_ELIMIT, "nested deeper");
	fails("{{ range(9999999) }}", "[]", SL_ELIMIT, "range");
	size_t n = 300000;
	char *big = malloc(n + 1);
	assert_non_null(big);
	memset(big, 'a', n);
	struct result x = render_n(big, n, "[]");
	assert_int_equal(x.rc, SL_ELIMIT);
	result_dispose(&x);
	const char *const openers[] = {"(", "[", "-", "not ", "{1:", "1 if ", "1 if 1 else ", "a[", "a|d("};
	for (size_t i = 0; i < sizeof(openers) / sizeof(openers[0]); i++) {
		char *at = big;
		at += sprintf(at, "{%% set x = ");
		for (int k = 0; k < 10000; k++)
			at += sprintf(at, "%s", openers[i]);
		at += sprintf(at, " %%}");
		x = render_n(big, (size_t)(at - big), "[]");
		if (x.rc != SL_ELIMIT)
			fail_msg("%zu: %s", i, x.err.text);
		result_dispose(&x);
	}
	const char *const chains[] = {"+1", "~1", "|trim", ".a", "[0]", " and 1", " or 1", " is none"};
	for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++) {
		char *at = big;
		at += sprintf(at, "{{ 1");
		for (int k = 0; k < 10000; k++)
			at += sprintf(at, "%s", chains[i]);
		at += sprintf(at, " }}");
		x = render_n(big, (size_t)(at - big), "[]");
		if (x.rc != SL_ELIMIT)
			fail_msg("%zu: %s", i, x.err.text);
		result_dispose(&x);
	}
	/* Deep JSON from the request. */
	char *at = big;
	for (int k = 0; k < 1000; k++)
		*at++ = '[';
	for (int k = 0; k < 1000; k++)
		*at++ = ']';
	*at = '\0';
	fails("{{ messages | tojson }}", big, SL_ELIMIT, "nested deeper");
	fails("{{ messages == messages }}", big, SL_ELIMIT, "nested deeper");
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(chatml),
	    cmocka_unit_test(bracketed_style),
	    cmocka_unit_test(header_style),
	    cmocka_unit_test(white_space),
	    cmocka_unit_test(expressions),
	    cmocka_unit_test(statements),
	    cmocka_unit_test(trust),
	    cmocka_unit_test(trust_of_constructs),
	    cmocka_unit_test(variables),
	    cmocka_unit_test(parts_of_content),
	    cmocka_unit_test(continued),
	    cmocka_unit_test(refusals_at_compile_time),
	    cmocka_unit_test(refusals_at_run_time),
	    cmocka_unit_test(bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
