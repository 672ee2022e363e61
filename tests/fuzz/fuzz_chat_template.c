/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/chat_template: the input is a template; messages are fixed and hold a marker in every
 * text. Whatever the template does with them, no byte of a marker that comes out is trusted.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/chat/chat_template.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
	    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
	    "{{ '<|im_start|>assistant\\n' }}{% endif %}",
	    "{%- if messages[0]['role'] == 'system' -%}{% set rest = messages[1:] %}{% else %}"
	    "{% set rest = messages %}{% endif %}\n  {# x #}\n{% for m in rest %}{{ loop.index ~ bos_token }}"
	    "{{ m.content | trim }}{% elif 1 %}{% endfor %}",
	    "{% set n = namespace(x=1, s='') %}{% for i in range(3) %}{% set n.x = n.x + i %}{% endfor %}"
	    "{{ n.x }}{{ messages | tojson }}{{ [1, 2.5, none, true, {'a': 'b'}] | tojson }}",
	    "{{ 'abc'[1:-1] }}{{ [1, 2, 3][::-1] | join('-') }}{{ messages[-1].content.split('a')[0] }}"
	    "{{ messages[0].content.replace('a', '<') }}{{ x | default('y', true) | upper | length }}",
	    "{% for k, v in {'a': 1}.items() %}{{ k ~ v }}{% else %}none{% endfor %}{{ 7 // -2 % 3 / 4 }}"
	    "{{ 1 if a is defined and not b in [1] or c else messages[0].content.strip('x').lower() }}",
	    "{% macro g(a, b=a) %}<{{ a | upper }}{{ b }}"
	    "{{ caller() if caller }}{{ varargs }}{{ kwargs }}>{% endmacro %}{{ g(messages[0].content) }}",
	    "{% macro g(a, b=a) %}<{{ a | upper }}{{ b }}{{ caller(1) if caller }}{{ varargs }}{{ kwargs }}>"
	    "{% endmacro %}{% call(x) g(*[messages[0].content, 2, 3], **{'c': 4}) %}{{ x }}{% endcall %}",
	    "{% for a, b in messages[0].items() if a is string recursive %}{{ loop.cycle(a, b) }}"
	    "{{ loop.changed(a) }}{{ loop.previtem }}{% if loop.last %}{% break %}{% else %}{% continue %}"
	    "{% endif %}{{ loop([]) }}{% endfor %}",
	    "{% set s | trim %} {{ messages[1].content }} {% endset %}{% filter title %}{{ s }}{% endfilter %}"
	    "{% with q = s * 2 %}{{ q[::-2] }}{% endwith %}{% generation %}{{ '%5s|%d' % (s, 3) }}"
	    "{% endgeneration %}{% raw %}{{ x }}{% endraw %}",
	    "{{ messages | selectattr('role', 'ne', 'x') | map(attribute='content') | map('capitalize') | "
	    "sort(reverse=true) | unique | join(', ') }}{{ messages | groupby('role') | list }}"
	    "{{ messages[0] | dictsort }}{{ tools | tojson(indent=2, separators=(',', ':')) }}",
	    "{% set l = [] %}{% do l.append(messages[0].content) %}{{ l.pop() }}{{ l.insert(0, 1) }}{{ l }}"
	    "{{ {'a': 1}.update(b=2) }}{{ 'a b'.split() }}{{ 'a\nb'.splitlines() | indent }}"
	    "{{ 'aba'.rfind('a') }}{{ messages[0].content.partition(' ') }}{{ 1 < 2 < 3 ** 2 }}",
	    "{{ strftime_now('%Y') }}{% set c = cycler('a', messages[0].role) %}{{ c.next() }}{{ c.current }}"
	    "{% set j = joiner('-') %}{{ j() }}{{ j() }}{{ messages | batch(2, 0) | list }}{{ 3.5 | round }}",
	    "{% if 1 > 0 and 'a' <= 'b' %}{{ raise_exception('no ' + messages[0].role) }}{% endif %}",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

/* The marker's characters stand in no text of the template: raw ones are blanked, and a source that
 * may write them by an escape is left out. */
static const char marker[] = "\x01\x02";

static bool may_write_marker(const char *source, size_t n)
{
	static const char *const escapes[] = {"\\x0", "\\u000", "\\U0000", "\\0", "\\1", "\\2"};
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++)
		if (memmem(source, n, escapes[i], strlen(escapes[i])) != NULL)
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n > 16384)
		return 0;
	char *source = sl_alloc(n + 1);
	FUZZ_REQUIRE(source != NULL);
	for (size_t i = 0; i < n; i++)
		source[i] = (char)(data[i] == 1 || data[i] == 2 ? ' ' : data[i]);
	struct chat_template *t = NULL;
	struct sl_err err = {0};
	if (may_write_marker(source, n)) {
		sl_free(source);
		return 0;
	}
	int rc = chat_template_compile(source, n, &t, &err);
	FUZZ_REQUIRE((rc == 0) == (t != NULL));
	if (rc == 0) {
		json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s,s:[i,f,n,{s:s}]}]", "role", "sys\x01\x02tem",
					     "content", "\x01\x02 abc \x01\x02", "role", "user", "content",
					     "a\x01\x02\xC3\xA9", "parts", 3, 1.5, "t", "\x01\x02");
		FUZZ_REQUIRE(messages != NULL);
		struct chat_vars vars = {.messages = messages,
					 .tools = n % 3 == 0 ? messages : NULL,
					 .bos_token = "<s>",
					 .add_generation_prompt = n % 2 == 0,
					 .continue_final_message = n % 8 == 1,
					 .now_s = 1};
		struct sl_buf text, trust;
		buf_init(&text, 16 << 20);
		buf_init(&trust, 16 << 20);
		rc = chat_template_render(t, &vars, &text, &trust, &err);
		FUZZ_REQUIRE(text.len == trust.len && (rc == 0 || text.len == 0));
		for (size_t i = 0; i < text.len; i++)
			FUZZ_REQUIRE(memchr(marker, buf_data(&text)[i], sizeof(marker) - 1) == NULL ||
				     !buf_data(&trust)[i]);
		buf_dispose(&text);
		buf_dispose(&trust);
		json_decref(messages);
	}
	chat_template_free(t);
	sl_free(source);
	return 0;
}
