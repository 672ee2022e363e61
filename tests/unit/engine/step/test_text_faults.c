/* SPDX-License-Identifier: Apache-2.0
 *
 * The way from a chat to ids and from bytes to safe text with each allocation failing in turn: the
 * result is SL_ENOMEM and nothing leaks (the sanitized build sees to that), or all went well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/utf8.h"
#include "engine/chat/chat_template.h"
#include "engine/step/text_stream.h"
#include "engine/token/tokenizer_source.h"
#include "tests/support/tok_make.h"

static int render_and_encode(const struct tok_source *src, const json_t *messages)
{
	static const struct proto_str merges[] = {{"a b", 3}, {"ab c", 4}, {"x y", 3}};
	static const char source[] =
	    "{% for m in messages %}{% set x = '<s>' ~ m.content | trim ~ loop.index %}"
	    "{{ x.replace('a', 'b') }}{{ m | tojson }}{{ [1, 2][::-1] | join(m.role) }}{% endfor %}"
	    "{% macro f(a, b=[1]) %}{% set s %}{{ a ~ b }}{% endset %}{{ s | upper }}{% endmacro %}"
	    "{% for m in messages if m.role %}{% set n = namespace(x=f(m.content)) %}{{ n.x }}"
	    "{{ messages | map(attribute='role') | sort | list }}{{ dict(a=1).items() | list }}"
	    "{% endfor %}{% set l = range(600) | list %}{{ l | length }}";
	struct chat_template *tmpl = NULL;
	struct tokenizer *t = NULL;
	struct tok_ids ids = {0};
	struct sl_buf text, trust;
	struct sl_err err;
	struct chat_vars vars = {.messages = messages};
	buf_init(&text, 1 << 16);
	buf_init(&trust, 1 << 16);
	int rc = chat_template_compile(source, sizeof(source) - 1, &tmpl, &err);
	if (rc == 0)
		rc = tok_make(src, "llama-bpe", merges, &t, &err);
	if (rc == 0)
		rc = chat_template_render(tmpl, &vars, &text, &trust, &err);
	if (rc == 0)
		rc = tokenizer_encode(t, (const char *)buf_data(&text), text.len, buf_data(&trust), &ids);
	tok_ids_dispose(&ids);
	buf_dispose(&text);
	buf_dispose(&trust);
	chat_template_free(tmpl);
	tokenizer_destroy(t);
	return rc;
}

static int stream(void)
{
	const struct proto_str stop = {"stop", 4};
	struct text_stream s;
	struct sl_buf out;
	bool stopped = false;
	buf_init(&out, 1 << 16);
	int rc = text_stream_init(&s, &stop, 1);
	if (rc == 0) {
		rc = text_stream_push(&s, "a st stop", 9, &out, &stopped);
		if (rc == 0)
			rc = text_stream_finish(&s, &out);
		text_stream_dispose(&s);
	}
	buf_dispose(&out);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	char bytes[256][2];
	struct proto_str tokens[259];
	int32_t attrs[259];
	uint32_t next = 0x100;
	for (unsigned b = 0; b < 256; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		tokens[b].n = (size_t)utf8_encode(prints ? b : next++, (uint8_t *)bytes[b]);
		tokens[b].at = bytes[b];
		attrs[b] = TOK_NORMAL;
	}
	tokens[256] = (struct proto_str){"<s>", 3};
	tokens[257] = (struct proto_str){"ab", 2};
	tokens[258] = (struct proto_str){"abc", 3};
	attrs[256] = TOK_CONTROL;
	attrs[257] = attrs[258] = TOK_NORMAL;
	const struct tok_source src = {.tokens = tokens,
				       .attrs = attrs,
				       .n_tokens = 259,
				       .n_merges = 3,
				       .bos = 256,
				       .eos = -1,
				       .eot = -1,
				       .unknown = -1,
				       .add_bos = -1};
	json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", " abc <s> ");
	/* How many allocations there are: a point armed out of reach counts. */
	long before = fault_passes(FAULT_ALLOC);
	fault_arm(FAULT_ALLOC, 1L << 30, 1);
	assert_int_equal(render_and_encode(&src, messages), 0);
	long between = fault_passes(FAULT_ALLOC);
	assert_int_equal(stream(), 0);
	long after = fault_passes(FAULT_ALLOC);
	fault_disarm_all();
	assert_true(between - before > 20);
	int failed = 0;
	for (long nth = 1; nth <= between - before; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = render_and_encode(&src, messages);
		fault_disarm_all();
		/* A pattern that the just-in-time compiler has no memory for is interpreted. */
		assert_true(rc == SL_ENOMEM || rc == 0);
		failed += rc != 0;
	}
	assert_true(failed > 20);
	for (long nth = 1; nth <= after - between; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = stream();
		fault_disarm_all();
		assert_int_equal(rc, SL_ENOMEM);
	}
	json_decref(messages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
