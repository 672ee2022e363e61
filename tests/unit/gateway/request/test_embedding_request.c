/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of /v1/embeddings, /v1/rerank and /v1/score: what is read of them, and what is refused by which name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/request/embedding_request.h"

static const struct request_limits limits = {.messages = 100, .json_depth = 8, .prompts = 128};

static int read_embedding(const char *body, struct embedding_request *r, struct request_error *e)
{
	return embedding_request_parse(body, strlen(body), &limits, r, e);
}

static void embeddings_are_read(void **state)
{
	struct embedding_request r;
	struct request_error e;
	(void)state;
	assert_int_equal(read_embedding("{\"model\":\"m\",\"input\":\"a b\",\"user\":null,\"more\":1}", &r, &e), 0);
	assert_string_equal(r.model, "m");
	assert_int_equal(r.n_inputs, 1);
	assert_int_equal(r.inputs[0].kind, PROTO_PROMPT_INPUT);
	assert_int_equal(r.inputs[0].index, -1);
	assert_memory_equal(r.inputs[0].text.at, "a b", 3);
	assert_true(!r.base64 && r.dimensions == 0);
	assert_string_equal(r.ignored.text, "more");
	embedding_request_dispose(&r);
	assert_int_equal(read_embedding("{\"model\":\"m\",\"input\":[\"a\",\"bc\"],\"encoding_format\":\"base64\","
					"\"dimensions\":7}",
					&r, &e),
			 0);
	assert_true(r.n_inputs == 2 && r.inputs[1].index == 1 && r.inputs[1].text.n == 2);
	assert_true(r.base64 && r.dimensions == 7);
	embedding_request_dispose(&r);
	static const uint8_t wire[] = {1, 0, 0, 0, 0x02, 0x01, 0, 0, 3, 0, 0, 0};
	assert_int_equal(read_embedding("{\"model\":\"m\",\"input\":[1,258,3]}", &r, &e), 0);
	assert_true(r.n_inputs == 1 && r.inputs[0].kind == PROTO_PROMPT_TOKENS && r.inputs[0].index == -1);
	assert_int_equal(r.inputs[0].text.n, sizeof wire);
	assert_memory_equal(r.inputs[0].text.at, wire, sizeof wire);
	embedding_request_dispose(&r);
	assert_int_equal(read_embedding("{\"model\":\"m\",\"input\":[[1,258],[3]]}", &r, &e), 0);
	assert_true(r.n_inputs == 2 && r.inputs[1].index == 1);
	assert_memory_equal(r.inputs[0].text.at, wire, 8);
	assert_memory_equal(r.inputs[1].text.at, wire + 8, 4);
	embedding_request_dispose(&r);
}

static void embeddings_are_refused(void **state)
{
	static const struct {
		const char *body, *code, *param;
	} cases[] = {
	    {"{\"input\":\"a\"}", "missing_required_parameter", "model"},
	    {"{\"model\":\"\",\"input\":\"a\"}", "invalid_value", "model"},
	    {"{\"model\":3,\"input\":\"a\"}", "invalid_type", "model"},
	    {"{\"model\":\"m\"}", "missing_required_parameter", "input"},
	    {"{\"model\":\"m\",\"input\":5}", "invalid_type", "input"},
	    {"{\"model\":\"m\",\"input\":[]}", "empty_array", "input"},
	    {"{\"model\":\"m\",\"input\":\"\"}", "invalid_value", "input"},
	    {"{\"model\":\"m\",\"input\":[\"a\",\"\"]}", "invalid_value", "input[1]"},
	    {"{\"model\":\"m\",\"input\":[\"a\",[1]]}", "invalid_type", "input[1]"},
	    {"{\"model\":\"m\",\"input\":[[1],\"a\"]}", "invalid_type", "input[1]"},
	    {"{\"model\":\"m\",\"input\":[[1],[]]}", "empty_array", "input[1]"},
	    {"{\"model\":\"m\",\"input\":[[1],[2,-1]]}", "invalid_value", "input[1][1]"},
	    {"{\"model\":\"m\",\"input\":[1,\"a\"]}", "invalid_type", "input[1]"},
	    {"{\"model\":\"m\",\"input\":[1,2.5]}", "invalid_type", "input[1]"},
	    {"{\"model\":\"m\",\"input\":\"a\\u0000\"}", "invalid_value", "input"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":\"int8\"}", "invalid_value", "encoding_format"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":1}", "invalid_type", "encoding_format"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"dimensions\":0}", "invalid_value", "dimensions"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"dimensions\":16385}", "invalid_value", "dimensions"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"dimensions\":\"8\"}", "invalid_type", "dimensions"},
	    {"{\"model\":\"m\",\"input\":\"a\",\"user\":7}", "invalid_type", "user"},
	};
	struct embedding_request r;
	struct request_error e;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(read_embedding(cases[i].body, &r, &e), SL_EINVAL);
		if (e.code == NULL || strcmp(e.code, cases[i].code) != 0 || strcmp(e.param, cases[i].param) != 0)
			fail_msg("%s: %s, %s: %s", cases[i].body, e.code != NULL ? e.code : "null", e.param, e.message);
	}
}

/* As many inputs as there may be, and one more. */
static void inputs_are_bounded(void **state)
{
	char *body = malloc(16 << 10);
	struct embedding_request r;
	struct request_error e;
	(void)state;
	for (int more = 0; more < 2; more++) {
		size_t n = (size_t)sprintf(body, "{\"model\":\"m\",\"input\":[\"a\"");
		for (int i = 1; i < EMBEDDING_MAX_INPUTS + more; i++)
			n += (size_t)sprintf(body + n, ",\"a\"");
		strcpy(body + n, "]}");
		assert_int_equal(read_embedding(body, &r, &e), more ? SL_EINVAL : 0);
		if (!more) {
			assert_int_equal(r.n_inputs, EMBEDDING_MAX_INPUTS);
			embedding_request_dispose(&r);
		}
	}
	assert_string_equal(e.code, "array_above_max_length");
	free(body);
}

static int read_rerank(const char *body, struct rank_request *r, struct request_error *e)
{
	return rerank_request_parse(body, strlen(body), &limits, r, e);
}

static int read_score(const char *body, struct rank_request *r, struct request_error *e)
{
	return score_request_parse(body, strlen(body), &limits, r, e);
}

static void ranks_are_read(void **state)
{
	struct rank_request r;
	struct request_error e;
	(void)state;
	assert_int_equal(
	    read_rerank("{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"bc\",\"id\":1}]}", &r, &e),
	    0);
	assert_true(r.n_left == 1 && r.n_right == 2 && r.top_n == 2 && !r.return_documents);
	assert_true(r.right[1].index == 1 && r.right[1].text.n == 2);
	rank_request_dispose(&r);
	assert_int_equal(read_rerank("{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\"],\"top_n\":2,"
				     "\"return_documents\":true}",
				     &r, &e),
			 0);
	assert_true(r.top_n == 2 && r.return_documents);
	rank_request_dispose(&r);
	assert_int_equal(read_rerank("{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\"],\"top_n\":99}", &r, &e),
			 0);
	assert_int_equal(r.top_n, 1);
	rank_request_dispose(&r);
	assert_int_equal(read_score("{\"model\":\"m\",\"text_1\":\"q\",\"text_2\":[\"a\",\"b\"]}", &r, &e), 0);
	assert_true(r.n_left == 1 && r.n_right == 2);
	rank_request_dispose(&r);
	assert_int_equal(read_score("{\"model\":\"m\",\"text_1\":[\"q\",\"p\"],\"text_2\":[\"a\",\"b\"]}", &r, &e), 0);
	assert_true(r.n_left == 2 && r.n_right == 2);
	rank_request_dispose(&r);
}

static void ranks_are_refused(void **state)
{
	static const struct {
		const char *body, *code, *param;
		bool score;
	} cases[] = {
	    {"{\"model\":\"m\",\"documents\":[\"a\"]}", "missing_required_parameter", "query", false},
	    {"{\"model\":\"m\",\"query\":[\"q\"],\"documents\":[\"a\"]}", "invalid_type", "query", false},
	    {"{\"model\":\"m\",\"query\":\"q\"}", "missing_required_parameter", "documents", false},
	    {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[]}", "empty_array", "documents", false},
	    {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",{\"id\":1}]}", "invalid_type", "documents[1]",
	     false},
	    {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",3]}", "invalid_type", "documents[1]", false},
	    {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\"],\"top_n\":0}", "invalid_value", "top_n", false},
	    {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\"],\"return_documents\":1}", "invalid_type",
	     "return_documents", false},
	    {"{\"model\":\"m\",\"text_1\":\"q\"}", "missing_required_parameter", "text_2", true},
	    {"{\"model\":\"m\",\"text_1\":[\"q\",\"p\"],\"text_2\":[\"a\"]}", "invalid_value", "text_2", true},
	    {"{\"model\":\"m\",\"text_1\":[\"q\",\"\"],\"text_2\":[\"a\",\"b\"]}", "invalid_value", "text_1[1]", true},
	};
	struct rank_request r;
	struct request_error e;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int rc = cases[i].score ? read_score(cases[i].body, &r, &e) : read_rerank(cases[i].body, &r, &e);
		assert_int_equal(rc, SL_EINVAL);
		if (e.code == NULL || strcmp(e.code, cases[i].code) != 0 || strcmp(e.param, cases[i].param) != 0)
			fail_msg("%s: %s, %s: %s", cases[i].body, e.code != NULL ? e.code : "null", e.param, e.message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(embeddings_are_read), cmocka_unit_test(embeddings_are_refused),
	    cmocka_unit_test(inputs_are_bounded),  cmocka_unit_test(ranks_are_read),
	    cmocka_unit_test(ranks_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
