/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine protocol's frames: what is encoded comes back the same, and no truncated, extended or
 * out-of-bounds frame is taken. The check is the same for every type: decode(encode(m)) encodes to
 * the same bytes again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/proto.h"

#define STR(s) ((struct proto_str){s, sizeof(s) - 1})

/* Decodes a payload of the type and, when that went well, encodes it again into out. */
static int decode(uint8_t type, uint64_t id, const uint8_t *p, size_t n, struct sl_buf *out)
{
	struct sl_err err;
	union {
		struct proto_hello hello;
		struct proto_submit submit;
		struct proto_credit credit;
		struct proto_count count;
		struct proto_model model;
		struct proto_queued queued;
		struct proto_tokens tokens;
		struct proto_done done;
		struct proto_counted counted;
		struct proto_stats stats;
		struct proto_bye bye;
	} u;
	struct proto_token tokens[PROTO_MAX_TOKENS_PER_FRAME];
	int rc;
#define TYPE(T, f, put)                                  \
	case T:                                          \
		rc = proto_get_##f(p, n, &u.f, &err);    \
		return rc != 0 ? rc : put
	switch (type) {
		TYPE(PROTO_HELLO, hello, proto_put_hello(out, &u.hello));
		TYPE(PROTO_SUBMIT, submit, proto_put_submit(out, id, &u.submit));
		TYPE(PROTO_CREDIT, credit, proto_put_credit(out, id, &u.credit));
		TYPE(PROTO_COUNT, count, proto_put_count(out, id, &u.count));
		TYPE(PROTO_MODEL, model, proto_put_model(out, &u.model));
		TYPE(PROTO_QUEUED, queued, proto_put_queued(out, id, &u.queued));
		TYPE(PROTO_DONE, done, proto_put_done(out, id, &u.done));
		TYPE(PROTO_COUNTED, counted, proto_put_counted(out, id, &u.counted));
		TYPE(PROTO_STATS, stats, proto_put_stats(out, &u.stats));
		TYPE(PROTO_BYE, bye, proto_put_bye(out, &u.bye));
	case PROTO_TOKENS:
		rc = proto_get_tokens(p, n, &u.tokens, &err);
		if (rc != 0)
			return rc;
		for (uint16_t i = 0; i < u.tokens.n; i++)
			tokens[i] = proto_token_at(&u.tokens, i);
		u.tokens.tokens = tokens;
		return proto_put_tokens(out, id, &u.tokens);
	default: fail_msg("type %d", type);
	}
	return -1;
}

static const struct proto_submit full_submit = {
    .model = 3, .prompt_kind = PROTO_PROMPT_CHAT, .flags = PROTO_SUBMIT_IGNORE_EOS, .priority = 2,
    .n_stops = 2, .tenant = 0x1122334455667788, .seed = 0x99aabbccddeeff00, .temperature = 0.75f,
    .top_p = 0.5f, .min_p = 0.25f, .presence_penalty = -2.0f, .frequency_penalty = 1.5f,
    .top_k = 40, .max_tokens = 77, .deadline_ms = 1000, .rate_tps = 12.5f, .burst = 4,
    .stops = {STR("END"), STR("\xED\x95\x9C")}, .prompt = STR("{\"messages\":[]}")};
static const struct proto_token two_tokens[] = {{5, -0.5f, 3}, {6, -1.25f, 2}};

static void frames(struct sl_buf frame[11])
{
	for (int i = 0; i < 11; i++)
		buf_init(&frame[i], 1 << 20);
	assert_int_equal(proto_put_hello(&frame[0], &(struct proto_hello){1, 42, 2, STR("engine")}), 0);
	assert_int_equal(proto_put_submit(&frame[1], 7, &full_submit), 0);
	assert_int_equal(proto_put_credit(&frame[2], 7, &(struct proto_credit){64}), 0);
	assert_int_equal(proto_put_count(&frame[3], 8, &(struct proto_count){1, PROTO_PROMPT_TEXT, STR("x y")}), 0);
	assert_int_equal(proto_put_model(&frame[4], &(struct proto_model){1, PROTO_MODEL_FAILED, 2, 2048, 32000,
			 1234567890123, STR("large"), STR("no such file")}), 0);
	assert_int_equal(proto_put_queued(&frame[5], 7, &(struct proto_queued){10, 5, 1, 20000}), 0);
	assert_int_equal(proto_put_tokens(&frame[6], 7, &(struct proto_tokens){.n = 2, .tokens = two_tokens, .text = STR("abcde")}), 0);
	assert_int_equal(proto_put_done(&frame[7], 7, &(struct proto_done){PROTO_FINISH_ERROR, PROTO_ERR_INTERNAL, 0,
			 1, 2, 3, 4, 5, 6, STR("why")}), 0);
	assert_int_equal(proto_put_counted(&frame[8], 8, &(struct proto_counted){0, 99, STR("")}), 0);
	assert_int_equal(proto_put_stats(&frame[9], &(struct proto_stats){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}), 0);
	assert_int_equal(proto_put_bye(&frame[10], &(struct proto_bye){STR("bye")}), 0);
}

static void round_trip_and_every_truncation(void **unused)
{
	(void)unused;
	struct sl_buf frame[11];
	frames(frame);
	for (int i = 0; i < 11; i++) {
		struct proto_head head;
		const uint8_t *bytes = buf_data(&frame[i]);
		assert_int_equal(proto_head_read(bytes, &head, NULL), 0);
		assert_int_equal(head.length + PROTO_HEAD_BYTES, frame[i].len);
		assert_non_null(proto_type_name(head.type));
		for (size_t n = 0; n <= head.length + 1u; n++) {
			struct sl_buf again;
			buf_init(&again, 1 << 20);
			/* On the heap and exactly as long, so that a sanitizer sees one byte too far. */
			uint8_t *payload = calloc(1, n ? n : 1);
			memcpy(payload, bytes + PROTO_HEAD_BYTES, n <= head.length ? n : head.length);
			int rc = decode(head.type, head.id, payload, n, &again);
			if (n == head.length) {
				assert_int_equal(rc, 0);
				assert_int_equal(again.len, frame[i].len);
				assert_memory_equal(buf_data(&again), bytes, again.len);
			} else if (rc != SL_EPROTO) {
				fail_msg("%s: %zu of %u bytes: %d", proto_type_name(head.type), n,
					 head.length, rc);
			}
			free(payload);
			buf_dispose(&again);
		}
		buf_dispose(&frame[i]);
	}
}

/* Any single byte changed: refused, or read as something that encodes to the same bytes. */
static void every_byte_changed(void **unused)
{
	(void)unused;
	struct sl_buf frame[11];
	frames(frame);
	for (int i = 0; i < 11; i++) {
		struct proto_head head;
		assert_int_equal(proto_head_read(buf_data(&frame[i]), &head, NULL), 0);
		for (size_t at = 0; at < head.length; at++) {
			for (int flip = 0; flip < 8; flip++) {
				uint8_t *p = malloc(head.length);
				struct sl_buf again;
				buf_init(&again, 1 << 20);
				memcpy(p, buf_data(&frame[i]) + PROTO_HEAD_BYTES, head.length);
				p[at] ^= (uint8_t)(1 << flip);
				int rc = decode(head.type, head.id, p, head.length, &again);
				if (rc == 0)
					assert_memory_equal(buf_data(&again) + PROTO_HEAD_BYTES, p,
							    head.length);
				else
					assert_int_equal(rc, SL_EPROTO);
				free(p);
				buf_dispose(&again);
			}
		}
		buf_dispose(&frame[i]);
	}
}

static void heads(void **unused)
{
	(void)unused;
	struct sl_buf b;
	struct proto_head head;
	struct sl_err err;
	buf_init(&b, 64);
	assert_int_equal(proto_put_ping(&b, 0x1234), 0);
	uint8_t h[PROTO_HEAD_BYTES];
	memcpy(h, buf_data(&b), sizeof h);
	buf_dispose(&b);
	assert_int_equal(proto_head_read(h, &head, &err), 0);
	assert_int_equal(head.type, PROTO_PING);
	assert_int_equal(head.id, 0x1234);
	for (int type = 0; type < 256; type++) {
		h[4] = (uint8_t)type;
		uint32_t max = proto_type_max((uint8_t)type);
		bool known = (type >= PROTO_HELLO && type <= PROTO_PING) ||
			     (type >= PROTO_MODEL && type <= PROTO_BYE);
		assert_int_equal(proto_head_read(h, &head, &err), known ? 0 : SL_EPROTO);
		assert_true(max <= PROTO_MAX_PAYLOAD);
		if (!known)
			continue;
		uint8_t longer[PROTO_HEAD_BYTES];
		memcpy(longer, h, sizeof h);
		for (int i = 0; i < 4; i++)
			longer[i] = (uint8_t)(((uint64_t)max + 1) >> (8 * i));
		assert_int_equal(proto_head_read(longer, &head, &err), SL_EPROTO);
		memset(longer, 0xFF, 4);
		assert_int_equal(proto_head_read(longer, &head, &err), SL_EPROTO);
	}
	h[4] = PROTO_PING;
	h[5] = PROTO_VERSION + 1;
	assert_int_equal(proto_head_read(h, &head, &err), SL_EPROTO);
}

static void encoders_refuse_what_decoders_would(void **unused)
{
	(void)unused;
	struct sl_buf b;
	char long_text[PROTO_MAX_STOP_BYTES + 2];
	memset(long_text, 'x', sizeof long_text);
	buf_init(&b, 8 << 20);
	struct proto_submit s = full_submit;
	s.n_stops = PROTO_MAX_STOPS + 1;
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
	s = full_submit;
	s.stops[0] = (struct proto_str){long_text, PROTO_MAX_STOP_BYTES + 1};
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
	struct proto_tokens t = {.n = 0, .tokens = two_tokens};
	assert_int_equal(proto_put_tokens(&b, 1, &t), SL_EINVAL);
	t.n = PROTO_MAX_TOKENS_PER_FRAME + 1;
	assert_int_equal(proto_put_tokens(&b, 1, &t), SL_EINVAL);
	struct proto_bye bye = {{long_text, PROTO_MAX_MESSAGE + 1}};
	char *message = calloc(1, PROTO_MAX_MESSAGE + 1);
	bye.reason.at = message;
	assert_int_equal(proto_put_bye(&b, &bye), SL_EINVAL);
	free(message);
	char *prompt = calloc(1, PROTO_MAX_PAYLOAD + 1);
	s = full_submit;
	s.prompt = (struct proto_str){prompt, PROTO_MAX_PAYLOAD};
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
	free(prompt);
	assert_int_equal(b.len, 0); /* nothing was left half-written */
	buf_dispose(&b);
	buf_init(&b, PROTO_HEAD_BYTES + 1);
	assert_int_equal(proto_put_credit(&b, 1, &(struct proto_credit){1}), SL_ELIMIT);
	assert_int_equal(b.len, 0);
	buf_dispose(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(round_trip_and_every_truncation),
	    cmocka_unit_test(every_byte_changed),
	    cmocka_unit_test(heads),
	    cmocka_unit_test(encoders_refuse_what_decoders_would),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
