/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of chat, completion, response, embedding, rerank and score requests, and of the dialects; the first byte says
 * which. An accepted one gives a submit that the protocol takes, a refused one a message of valid UTF-8.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "gateway/dialect/messages_request.h"
#include "gateway/dialect/ollama_request.h"
#include "gateway/request/chat_request.h"
#include "gateway/request/completion_request.h"
#include "gateway/request/embedding_request.h"
#include "gateway/request/response_request.h"
#include "tests/fuzz/fuzz.h"

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"

static const char *const seeds[] = {
    "c{\"model\":\"m\",\"messages\":[" USER "]}",
    "c{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"\\ud83d\\ude00\"}]"
    "}],"
    "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\",\"b\"],\"seed\":-1,\"top_p\":0.5,"
    "\"temperature\":1e-1,\"max_tokens\":3,\"n\":2,\"logit_bias\":{\"1\":-100},\"tools\":[],\"stop_token_ids\":[1,2]}",
    "c{\"model\":\"m\",\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"i\","
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":"
    "\"i\","
    "\"content\":\"7\"}],\"logprobs\":true,\"top_logprobs\":3,\"documents\":[{}],\"metadata\":{\"a\":\"b\"}}",
    "c{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}],\"stop\":null}",
    "c{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"},{\"type\":"
    "\"file\","
    "\"file\":{\"file_id\":\"file-1\"}},{\"type\":\"file\",\"file\":{\"filename\":\"a\",\"file_data\":"
    "\"data:text/plain;base64,aGVsbG8=\"}}]}]}",
    "r{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\",\"file_id\":\"file-1\"},{"
    "\"type\":\"input_file\",\"filename\":\"a\",\"file_data\":\"data:text/plain;base64,aGVsbG8=\"}]}]}",
    "r{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\",\"file_data\":"
    "\"data:text/plain;base64,aGVsbG8=\"}]}]}",
    "m{\"model\":\"m\",\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\","
    "\"source\":{"
    "\"type\":\"file\",\"file_id\":\"file-1\"}},{\"type\":\"document\",\"title\":\"t\",\"source\":{\"type\":\"text\","
    "\"data\":\"hello\"}}]}]}",
    "p{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"echo\":true,\"best_of\":3,\"n\":2}",
    "p{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"logprobs\":2,\"suffix\":\"\"}",
    "p{\"model\":\"m\",\"prompt\":[1,2147483647]}",
    "r{\"model\":\"m\",\"input\":\"hi\",\"instructions\":\"be "
    "brief\",\"store\":false,\"reasoning\":{\"effort\":\"low\"}}",
    "r{\"model\":\"m\",\"previous_response_id\":\"resp_1\",\"include\":[\"message.output_text.logprobs\"],\"input\":["
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},"
    "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"b\"}]},"
    "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"c\"}]},"
    "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},"
    "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"2\"}]}",
    "r{\"model\":\"m\",\"prompt\":{\"id\":\"p\",\"version\":\"1\",\"variables\":{\"a\":\"b\",\"c\":{\"type\":"
    "\"input_text\",\"text\":\"d\"}}},\"text\":{\"format\":{\"type\":\"text\"}},\"top_logprobs\":2}",
    "e{\"model\":\"m\",\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\",\"dimensions\":3,\"user\":\"u\"}",
    "e{\"model\":\"m\",\"input\":[[1,2],[3]]}",
    "k{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"}],\"top_n\":1,\"return_documents\":true}",
    "m{\"model\":\"m\",\"max_tokens\":5,\"messages\":[" USER "],\"system\":[{\"type\":\"text\",\"text\":\"a\"}],"
    "\"stop_sequences\":[\"b\"],\"top_k\":3,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9},\"metadata\":{"
    "\"user_id\":\"u\"},\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{}}}}",
    "m{\"model\":\"m\",\"max_tokens\":5,\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":"
    "\"object\"}}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\",\"disable_parallel_tool_use\":true},\"messages\":"
    "[" USER
    ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},{\"type\":"
    "\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"a\":[1,null]}}]},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"tool_result\",\"tool_use_id\":\"1\",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"r\"}]}]}]}",
    "o{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER
    ",{\"role\":\"assistant\",\"thinking\":"
    "\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"tool_name\":"
    "\"f\",\"content\":\"r\"}],\"options\":{\"num_predict\":-1,\"num_ctx\":9,\"stop\":[\"x\"],\"seed\":1},\"format\":"
    "\"json\",\"think\":\"low\",\"stream\":false,\"logprobs\":true,\"top_logprobs\":2,\"keep_alive\":\"5m\"}",
    "g{\"model\":\"m\",\"prompt\":\"p\",\"system\":\"s\",\"format\":{\"type\":\"object\"},\"context\":[],\"images\":[]"
    "}",
    "g{\"model\":\"m\",\"prompt\":\"p\",\"raw\":true,\"suffix\":\"\"}",
    "s{\"model\":\"m\",\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}",
};

static const struct request_limits limits = {.messages = 16, .json_depth = 16, .prompts = 8};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static void refused(int rc, const struct request_error *e)
{
	FUZZ_REQUIRE(rc == SL_EINVAL);
	FUZZ_REQUIRE(e->message[0] != '\0' && utf8_valid(e->message, strlen(e->message)));
	FUZZ_REQUIRE(utf8_valid(e->param, strlen(e->param)));
}

static void goes_out(const struct request_common *c)
{
	struct proto_submit s = c->submit;
	struct sl_buf frame;
	s.max_tokens = s.min_tokens > 0 ? s.min_tokens : 1;
	buf_init(&frame, PROTO_MAX_PAYLOAD + 64);
	FUZZ_REQUIRE(proto_put_submit(&frame, 1, &s) == 0);
	buf_dispose(&frame);
}

/* The texts of the files that it names. */
static void give_files(struct request_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		FUZZ_REQUIRE(files->at[i].text == NULL && files->at[i].id[0] != '\0');
		files->at[i].text = sl_strndup("a text", 6);
		files->at[i].n = 6;
	}
}

/* Parsed again, it lacks nothing. */
static int parse_twice(int (*parse)(const void *bytes, size_t n, const struct request_limits *l,
				    struct chat_request *out, struct request_error *e),
		       const uint8_t *data, size_t n, struct chat_request *r, struct request_error *e)
{
	struct request_files files = {0};
	struct request_limits l = limits;
	l.files = &files;
	int rc = parse(data, n, &l, r, e);
	if (rc == SL_EAGAIN) {
		FUZZ_REQUIRE(files.n > 0);
		give_files(&files);
		rc = parse(data, n, &l, r, e);
		FUZZ_REQUIRE(rc != SL_EAGAIN);
	}
	request_files_dispose(&files);
	return rc;
}

static void chat(const uint8_t *data, size_t n)
{
	struct chat_request r;
	struct request_error e;
	int rc = parse_twice(chat_request_parse, data, n, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	FUZZ_REQUIRE(utf8_valid(r.c.submit.prompt.at, r.c.submit.prompt.n));
	goes_out(&r.c);
	chat_request_dispose(&r);
}

static void completion(const uint8_t *data, size_t n)
{
	struct completion_request r;
	struct request_error e;
	int rc = completion_request_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	FUZZ_REQUIRE(r.n_prompts >= 1 && r.n_prompts <= 8);
	for (int i = 0; i < r.n_prompts; i++) {
		const struct completion_prompt *p = &r.prompts[i];
		FUZZ_REQUIRE(p->kind == PROTO_PROMPT_TOKENS ? p->text.n % 4 == 0 : utf8_valid(p->text.at, p->text.n));
		r.c.submit.prompt_kind = p->kind;
		r.c.submit.prompt = p->text;
		goes_out(&r.c);
	}
	completion_request_dispose(&r);
}

/* What was taken once is its own normal form. */
static void stays_normal(const json_t *input)
{
	json_t *again;
	struct request_error e;
	int rc = response_items_normalise(input, "input", 16, &again, &e);
	FUZZ_REQUIRE(rc == 0 && json_equal(again, input));
	json_decref(again);
}

static void response(const uint8_t *data, size_t n)
{
	struct response_request r;
	struct request_error e;
	struct sl_buf prompt;
	int rc = response_request_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	stays_normal(r.input);
	buf_init(&prompt, REQUEST_MAX_PROMPT);
	rc = response_messages(&r, r.input, &prompt, &e);
	if (rc != 0) {
		refused(rc, &e);
	} else {
		json_t *v = json_loadb((const char *)buf_data(&prompt), prompt.len, JSON_REJECT_DUPLICATES, NULL);
		FUZZ_REQUIRE(json_array_size(json_object_get(v, "messages")) > 0);
		json_decref(v);
		r.c.submit.prompt = (struct proto_str){.at = (const char *)buf_data(&prompt), .n = prompt.len};
		goes_out(&r.c);
	}
	buf_dispose(&prompt);
	response_request_dispose(&r);
}

static void embedding(const uint8_t *data, size_t n)
{
	struct embedding_request r;
	struct request_error e;
	int rc = embedding_request_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	FUZZ_REQUIRE(r.n_inputs >= 1 && r.n_inputs <= EMBEDDING_MAX_INPUTS);
	for (int i = 0; i < r.n_inputs; i++) {
		const struct embedding_text *t = &r.inputs[i];
		FUZZ_REQUIRE(t->text.n > 0);
		FUZZ_REQUIRE(t->kind == PROTO_PROMPT_TOKENS ? t->text.n % 4 == 0 : utf8_valid(t->text.at, t->text.n));
	}
	embedding_request_dispose(&r);
}

static void rank(bool score, const uint8_t *data, size_t n)
{
	struct rank_request r;
	struct request_error e;
	int rc = score ? score_request_parse(data, n, &limits, &r, &e) : rerank_request_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	FUZZ_REQUIRE(r.n_right >= 1 && (r.n_left == 1 || r.n_left == r.n_right));
	FUZZ_REQUIRE(score || (r.top_n >= 1 && r.top_n <= r.n_right));
	for (int i = 0; i < r.n_right; i++)
		FUZZ_REQUIRE(r.right[i].text.n > 0 && utf8_valid(r.right[i].text.at, r.right[i].text.n));
	rank_request_dispose(&r);
}

/* The messages that a dialect's became. */
static void check_chat(const struct chat_request *r)
{
	json_t *v = json_loadb((const char *)buf_data(&r->prompt), r->prompt.len, JSON_REJECT_DUPLICATES, NULL);
	FUZZ_REQUIRE(json_array_size(json_object_get(v, "messages")) > 0);
	json_decref(v);
}

static void messages(const uint8_t *data, size_t n)
{
	struct chat_request r;
	struct request_error e;
	int rc = parse_twice(messages_request_parse, data, n, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	check_chat(&r);
	goes_out(&r.c);
	chat_request_dispose(&r);
	FUZZ_REQUIRE(parse_twice(messages_count_parse, data, n, &r, &e) == 0);
	chat_request_dispose(&r);
}

static void ollama(bool generates, const uint8_t *data, size_t n)
{
	struct ollama_request r;
	struct request_error e;
	int rc =
	    generates ? ollama_generate_parse(data, n, &limits, &r, &e) : ollama_chat_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		refused(rc, &e);
		return;
	}
	const struct proto_str prompt = r.chat.c.submit.prompt;
	FUZZ_REQUIRE(utf8_valid(prompt.at, prompt.n) && (r.loads || prompt.n > 0));
	if (!r.loads && !r.raw)
		check_chat(&r.chat);
	if (!r.loads)
		goes_out(&r.chat.c);
	ollama_request_dispose(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0)
		return 0;
	if (data[0] == 'c')
		chat(data + 1, n - 1);
	else if (data[0] == 'p')
		completion(data + 1, n - 1);
	else if (data[0] == 'e')
		embedding(data + 1, n - 1);
	else if (data[0] == 'm')
		messages(data + 1, n - 1);
	else if (data[0] == 'o' || data[0] == 'g')
		ollama(data[0] == 'g', data + 1, n - 1);
	else if (data[0] == 'k' || data[0] == 's')
		rank(data[0] == 's', data + 1, n - 1);
	else
		response(data + 1, n - 1);
	return 0;
}
