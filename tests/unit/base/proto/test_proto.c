/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine protocol's frames: what is encoded comes back the same, and no truncated, extended or
 * out-of-bounds frame is taken. The check is the same for every type: decode(encode(m)) encodes to
 * the same bytes again.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/proto/proto.h"

enum { N_FRAMES = 25 };

#define STR(s) ((struct proto_str){s, sizeof(s) - 1})

/* Decodes a payload of the type and, when that went well, encodes it again into out. */
/* The decoded pieces of one frame, in their order. */
static struct proto_str pieces_left;

static struct proto_str next_piece(const void *ctx, uint32_t id)
{
	(void)ctx, (void)id;
	return proto_piece_next(&pieces_left);
}

static struct proto_str piece_of_id(const void *ctx, uint32_t id)
{
	static const char *const pieces[] = {"", "a", "bc", "\xff"};
	(void)ctx;
	return (struct proto_str){pieces[id % 4], strlen(pieces[id % 4])};
}

static int decode(uint8_t type, uint64_t id, const uint8_t *p, size_t n, struct sl_buf *out)
{
	struct sl_err err;
	union {
		struct proto_hello hello;
		struct proto_submit submit;
		struct proto_credit credit;
		struct proto_count count;
		struct proto_keep keep;
		struct proto_levels levels;
		struct proto_erase erase;
		struct proto_adapter adapter;
		struct proto_hand hand;
		struct proto_handed handed;
		struct proto_model model;
		struct proto_queued queued;
		struct proto_tokens tokens;
		struct proto_prompt_logprobs prompt;
		struct proto_choice choice;
		struct proto_done done;
		struct proto_counted counted;
		struct proto_stats stats;
		struct proto_load load;
		struct proto_verified verified;
		struct proto_embedding embedding;
		struct proto_prefixes prefixes;
		struct proto_bye bye;
	} u;
	static struct proto_token tokens[PROTO_MAX_TOKENS_PER_FRAME];
	static struct proto_id_f32 pairs[PROTO_MAX_TOKENS_PER_FRAME * (1 + PROTO_MAX_TOP_LOGPROBS)];
	int rc;
#define TYPE(T, f, put) \
	case T: rc = proto_get_##f(p, n, &u.f, &err); return rc != 0 ? rc : put
	switch (type) {
		TYPE(PROTO_HELLO, hello, proto_put_hello(out, &u.hello));
		TYPE(PROTO_SUBMIT, submit, proto_put_submit(out, id, &u.submit));
		TYPE(PROTO_CREDIT, credit, proto_put_credit(out, id, &u.credit));
		TYPE(PROTO_COUNT, count, proto_put_count(out, id, &u.count));
		TYPE(PROTO_KEEP, keep, proto_put_keep(out, &u.keep));
		TYPE(PROTO_LEVELS, levels, proto_put_levels(out, &u.levels));
		TYPE(PROTO_ERASE, erase, proto_put_erase(out, &u.erase));
		TYPE(PROTO_ADAPTER, adapter, proto_put_adapter(out, id, &u.adapter));
		TYPE(PROTO_HAND, hand, proto_put_hand(out, id, &u.hand));
		TYPE(PROTO_HANDED, handed, proto_put_handed(out, id, &u.handed));
		TYPE(PROTO_MODEL, model, proto_put_model(out, &u.model));
		TYPE(PROTO_QUEUED, queued, proto_put_queued(out, id, &u.queued));
		TYPE(PROTO_CHOICE, choice, proto_put_choice(out, id, &u.choice));
		TYPE(PROTO_DONE, done, proto_put_done(out, id, &u.done));
		TYPE(PROTO_COUNTED, counted, proto_put_counted(out, id, &u.counted));
		TYPE(PROTO_STATS, stats, proto_put_stats(out, &u.stats));
		TYPE(PROTO_LOAD, load, proto_put_load(out, &u.load));
		TYPE(PROTO_VERIFIED, verified, proto_put_verified(out, id, &u.verified));
		TYPE(PROTO_BYE, bye, proto_put_bye(out, &u.bye));
	case PROTO_EMBEDDING: {
		static float numbers[PROTO_MAX_EMBEDDING];
		rc = proto_get_embedding(p, n, &u.embedding, &err);
		if (rc != 0)
			return rc;
		proto_embedding_read(&u.embedding, numbers);
		u.embedding.values = numbers;
		return proto_put_embedding(out, id, &u.embedding);
	}
	case PROTO_PREFIXES: {
		static uint64_t changes[PROTO_MAX_PREFIXES];
		rc = proto_get_prefixes(p, n, &u.prefixes, &err);
		if (rc != 0)
			return rc;
		for (uint16_t i = 0; i < u.prefixes.n; i++)
			changes[i] = proto_prefix_at(&u.prefixes, i);
		u.prefixes.changes = changes;
		return proto_put_prefixes(out, &u.prefixes);
	}
	case PROTO_TOKENS:
		rc = proto_get_tokens(p, n, &u.tokens, &err);
		if (rc != 0)
			return rc;
		for (uint16_t i = 0; i < u.tokens.n; i++) {
			tokens[i] = proto_token_at(&u.tokens, i);
			for (uint8_t k = 0; k < u.tokens.n_top; k++)
				pairs[i * u.tokens.n_top + k] = proto_top_at(&u.tokens, i, k);
		}
		u.tokens.tokens = tokens;
		u.tokens.tops = pairs;
		pieces_left = u.tokens.pieces.all;
		u.tokens.pieces.of = pieces_left.n > 0 ? next_piece : NULL;
		return proto_put_tokens(out, id, &u.tokens);
	case PROTO_PROMPT_LOGPROBS:
		rc = proto_get_prompt_logprobs(p, n, &u.prompt, &err);
		if (rc != 0)
			return rc;
		for (uint16_t i = 0; i < u.prompt.n; i++) {
			for (uint8_t k = 0; k <= u.prompt.n_top; k++)
				pairs[i * (1 + u.prompt.n_top) + k] = proto_prompt_logprob_at(&u.prompt, i, k);
		}
		u.prompt.entries = pairs;
		pieces_left = u.prompt.pieces.all;
		u.prompt.pieces.of = pieces_left.n > 0 ? next_piece : NULL;
		return proto_put_prompt_logprobs(out, id, &u.prompt);
	default: fail_msg("type %d", type);
	}
	return -1;
}

static const struct proto_id_f32 six_pairs[] = {{1, -0.5f}, {2, -1.5f}, {3, -2}, {4, -0.25f}, {5, -3}, {6, -4}};
static const struct proto_str two_words[] = {{"no", 2}, {"never", 5}};
static const struct proto_submit full_submit = {.typical_p = 0.9f,
						.repetition_penalty = 1.25f,
						.length_penalty = -1,
						.min_tokens = 3,
						.n_top_logprobs = 20,
						.prompt_logprobs = 21,
						.n = 2,
						.best_of = 4,
						.beam_width = 3,
						.n_stop_ids = 3,
						.stop_ids = {7, 8, 9},
						.n_logit_bias = 6,
						.logit_bias = six_pairs,
						.weight = PROTO_MAX_WEIGHT,
						.model = 3,
						.prompt_kind = PROTO_PROMPT_CHAT,
						.flags = 7 | PROTO_SUBMIT_INCLUDE_STOP | PROTO_SUBMIT_ONLY_BIASED,
						.cache_salt = 0x0102030405060708,
						.n_bad_words = 2,
						.bad_words = two_words,
						.constraint_kind = PROTO_CONSTRAINT_REGEX,
						.constraint = STR("a+"),
						.thinking_tokens = 12,
						.priority = 2,
						.n_stops = 2,
						.tenant = 0x1122334455667788,
						.seed = 0x99aabbccddeeff00,
						.temperature = 0.75f,
						.top_p = 0.5f,
						.min_p = 0.25f,
						.presence_penalty = -2.0f,
						.frequency_penalty = 1.5f,
						.top_k = 40,
						.max_tokens = 77,
						.deadline_ms = 1000,
						.rate_tps = 12.5f,
						.burst = 4,
						.stops = {STR("END"), STR("\xED\x95\x9C")},
						.prompt = STR("{\"messages\":[]}")};
/* An answer that goes on: nothing that does not go with it. */
static const uint32_t three_ids[] = {70000, 2, 3};
static const struct proto_submit given_submit = {PROTO_SUBMIT_OFF,
						 .prompt_kind = PROTO_PROMPT_TEXT,
						 .top_p = 1,
						 .max_tokens = 4,
						 .min_tokens = 6,
						 .n_given = 3,
						 .n_keep = 2,
						 .given = three_ids,
						 .n_stop_ids = 1,
						 .stop_ids = {5},
						 .n_logit_bias = 1,
						 .logit_bias = six_pairs,
						 .n_stops = 1,
						 .stops = {STR("END")},
						 .prompt = STR("so far")};
static const struct proto_token two_tokens[] = {{5, -0.5f, 3}, {6, -1.25f, 2}};

static void frames(struct sl_buf frame[N_FRAMES])
{
	for (int i = 0; i < N_FRAMES; i++)
		buf_init(&frame[i], 1 << 20);
	assert_int_equal(proto_put_hello(&frame[0], &(struct proto_hello){2, 42, 2, STR("engine")}), 0);
	assert_int_equal(proto_put_submit(&frame[1], 7, &full_submit), 0);
	assert_int_equal(proto_put_credit(&frame[2], 7, &(struct proto_credit){64}), 0);
	assert_int_equal(proto_put_count(&frame[3], 8,
					 &(struct proto_count){1, PROTO_PROMPT_TEXT, 3, PROTO_COUNT_IDS,
							       0x1122334455667788, STR("x y")}),
			 0);
	assert_int_equal(proto_put_model(&frame[4], &(struct proto_model){.index = 1,
									  .state = PROTO_MODEL_FAILED,
									  .role = 2,
									  .percent = 54,
									  .residence = PROTO_RESIDENCE_COMING,
									  .parent = 1,
									  .n_ctx = 2048,
									  .n_vocab = 32000,
									  .n_params = 1234567890123,
									  .name = STR("large"),
									  .reason = STR("no such file"),
									  .tokenizer = 0x1122334455667788,
									  .format = 3,
									  .reasoning = 1,
									  .does = PROTO_DOES_EMBED | PROTO_DOES_SHORTEN,
									  .n_lengths = 2,
									  .lengths = {64, 128},
									  .n_markers = 3,
									  .markers = {7, -1, 31999}}),
			 0);
	assert_int_equal(
	    proto_put_queued(&frame[5], 7, &(struct proto_queued){10, 5, PROTO_MISS_SHORT, 1, 20000, true, true}), 0);
	assert_int_equal(
	    proto_put_tokens(&frame[6], 7,
			     &(struct proto_tokens){.n = 2, .choice = 15, .tokens = two_tokens, .text = STR("abcde")}),
	    0);
	assert_int_equal(proto_put_done(&frame[7], 7,
					&(struct proto_done){PROTO_FINISH_ERROR, PROTO_ERR_INTERNAL, 0, PROTO_STOP_ID,
							     9, 1, 2, 3, 4, 5, 6, 7, 8, 30, STR("why")}),
			 0);
	assert_int_equal(
	    proto_put_counted(&frame[8], 8, &(struct proto_counted){0, 2, STR(""), {"abcdefgh", 8}, STR("xy")}), 0);
	assert_int_equal(
	    proto_put_stats(
		&frame[9],
		&(struct proto_stats){1,
				      2,
				      3,
				      4,
				      5,
				      6,
				      7,
				      8,
				      9,
				      10,
				      11,
				      39,
				      12,
				      13,
				      14,
				      15,
				      16,
				      17,
				      18,
				      19,
				      20,
				      21,
				      34,
				      35,
				      36,
				      40,
				      37,
				      38,
				      {1, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40},
				      41,
				      42,
				      43,
				      44,
				      45,
				      46,
				      47,
				      48,
				      49,
				      50,
				      51,
				      {52, 53, 54},
				      {55, 56, 57, 58, 59},
				      60,
				      61,
				      62,
				      63,
				      {64, 65, 66},
				      67,
				      68,
				      69,
				      70,
				      {1,
				       0,
				       71,
				       72,
				       73,
				       {74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 107},
				       1,
				       101,
				       102,
				       103,
				       104,
				       105,
				       106},
				      90,
				      91,
				      92,
				      93,
				      94,
				      95,
				      96}),
	    0);
	assert_int_equal(proto_put_bye(&frame[10], &(struct proto_bye){STR("bye")}), 0);
	assert_int_equal(proto_put_tokens(&frame[11], 7,
					  &(struct proto_tokens){.n = 2,
								 .n_top = 3,
								 .tokens = two_tokens,
								 .tops = six_pairs,
								 .text = STR("abcde"),
								 .pieces = {.of = piece_of_id}}),
			 0);
	assert_int_equal(
	    proto_put_prompt_logprobs(
		&frame[12], 7,
		&(struct proto_prompt_logprobs){
		    .first = 256, .n = 2, .n_top = 2, .entries = six_pairs, .pieces = {.of = piece_of_id}}),
	    0);
	assert_int_equal(proto_put_choice(&frame[13], 7,
					  &(struct proto_choice){3, PROTO_FINISH_LENGTH, PROTO_LENGTH_CONTEXT,
								 PROTO_STOP_STRING, 15, 99, -12.5f}),
			 0);
	assert_int_equal(
	    proto_put_load(&frame[14], &(struct proto_load){63,
							    true,
							    {1, 2, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22},
							    {{3, 4, 1, 2}, {5, 6, 9, 10}, [7] = {7, 8, 11, 12}}}),
	    0);
	assert_int_equal(proto_put_keep(&frame[18], &(struct proto_keep){63, 0x1122334455667788, 300000}), 0);
	assert_int_equal(proto_put_levels(&frame[19], &(struct proto_levels){3, {0, 1, PROTO_LAST_LEVEL}}), 0);
	assert_int_equal(proto_put_erase(&frame[20], &(struct proto_erase){0x1122334455667789}), 0);
	assert_int_equal(proto_put_adapter(&frame[22], 9, &(struct proto_adapter){true, STR("style"), STR("a/style")}),
			 0);
	assert_int_equal(
	    proto_put_hand(&frame[23], 9, &(struct proto_hand){PROTO_HAND_AWAIT, 3, 0x1122334455667788, 48, 2000}), 0);
	assert_int_equal(
	    proto_put_handed(&frame[24], 9, &(struct proto_handed){PROTO_HANDED_LATE, 7, 1ull << 33, 5000, 1}), 0);
	assert_int_equal(proto_put_submit(&frame[15], 9, &given_submit), 0);
	static const float three[] = {1.5f, -0.0f, 3e-39f};
	assert_int_equal(proto_put_embedding(&frame[17], 9, &(struct proto_embedding){.n = 3, .values = three}), 0);
	static const uint64_t changes[] = {0x123456789abcdef1, 2};
	assert_int_equal(proto_put_prefixes(&frame[21], &(struct proto_prefixes){true, 2, changes, NULL}), 0);
	assert_int_equal(proto_put_verified(&frame[16], 9, &(struct proto_verified){2, 3}), 0);
}

static void round_trip_and_every_truncation(void **unused)
{
	(void)unused;
	struct sl_buf frame[N_FRAMES];
	frames(frame);
	for (int i = 0; i < N_FRAMES; i++) {
		struct proto_head head;
		const uint8_t *bytes = buf_data(&frame[i]);
		assert_int_equal(proto_head_read(bytes, &head, NULL), 0);
		assert_int_equal(head.length + PROTO_HEAD_BYTES, frame[i].len);
		assert_non_null(proto_type_name(head.type));
		for (size_t n = 0; n <= head.length + 1u; n++) {
			struct sl_buf again;
			buf_init(&again, frame[i].len); /* a buffer may be bounded by its longest frame */
			/* On the heap and exactly as long, so that a sanitizer sees one byte too far. */
			uint8_t *payload = calloc(1, n ? n : 1);
			memcpy(payload, bytes + PROTO_HEAD_BYTES, n <= head.length ? n : head.length);
			int rc = decode(head.type, head.id, payload, n, &again);
			if (n == head.length) {
				assert_int_equal(rc, 0);
				assert_int_equal(again.len, frame[i].len);
				assert_memory_equal(buf_data(&again), bytes, again.len);
			} else if (rc != SL_EPROTO) {
				fail_msg("%s: %zu of %u bytes: %d", proto_type_name(head.type), n, head.length, rc);
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
	struct sl_buf frame[N_FRAMES];
	frames(frame);
	for (int i = 0; i < N_FRAMES; i++) {
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
					assert_memory_equal(buf_data(&again) + PROTO_HEAD_BYTES, p, head.length);
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
		bool known =
		    (type >= PROTO_HELLO && type <= PROTO_HAND) || (type >= PROTO_MODEL && type <= PROTO_LEAVE);
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
	t = (struct proto_tokens){.n = 1, .tokens = two_tokens, .choice = PROTO_MAX_CHOICES};
	assert_int_equal(proto_put_tokens(&b, 1, &t), SL_EINVAL);
	t = (struct proto_tokens){.n = 1, .tokens = two_tokens, .tops = six_pairs, .n_top = PROTO_MAX_TOP_LOGPROBS + 1};
	assert_int_equal(proto_put_tokens(&b, 1, &t), SL_EINVAL);
	const float infinite[] = {1, INFINITY};
	struct proto_embedding e = {.n = 0, .values = infinite};
	assert_int_equal(proto_put_embedding(&b, 1, &e), SL_EINVAL);
	e.n = 2;
	assert_int_equal(proto_put_embedding(&b, 1, &e), SL_EINVAL);
	e.n = PROTO_MAX_EMBEDDING + 1;
	assert_int_equal(proto_put_embedding(&b, 1, &e), SL_EINVAL);
	struct proto_prefixes px = {.n = PROTO_MAX_PREFIXES + 1};
	assert_int_equal(proto_put_prefixes(&b, &px), SL_EINVAL);
	struct proto_prompt_logprobs pl = {.n = 0, .entries = six_pairs};
	assert_int_equal(proto_put_prompt_logprobs(&b, 1, &pl), SL_EINVAL);
	pl.n = PROTO_MAX_TOKENS_PER_FRAME + 1;
	assert_int_equal(proto_put_prompt_logprobs(&b, 1, &pl), SL_EINVAL);
	s = full_submit;
	s.n_logit_bias = PROTO_MAX_LOGIT_BIAS + 1;
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
	s = full_submit;
	s.n_stop_ids = PROTO_MAX_STOP_IDS + 1;
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
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

/* What a request may ask for: every bound of SUBMIT, one step inside and one outside. */
/* Only the prompt: nothing that goes with choices or a prompt's logprobs. */
static void bounds_of_a_prefill(void **unused)
{
	(void)unused;
	static const struct {
		uint8_t n, beam_width, prompt_logprobs;
		int rc;
	} cases[] = {{1, 0, 0, 0}, {2, 0, 0, SL_EPROTO}, {1, 2, 0, SL_EPROTO}, {1, 0, 1, SL_EPROTO}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct proto_submit s = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT,   .top_p = 1,
					 .max_tokens = 1,  .flags = PROTO_SUBMIT_PREFILL_ONLY, .prompt = {"x", 1}},
				    got;
		struct sl_buf b;
		struct sl_err err;
		s.n = s.best_of = cases[i].n;
		s.beam_width = cases[i].beam_width;
		s.prompt_logprobs = cases[i].prompt_logprobs;
		buf_init(&b, 4096);
		assert_int_equal(proto_put_submit(&b, 1, &s), 0);
		assert_int_equal(
		    proto_get_submit(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &got, &err),
		    cases[i].rc);
		buf_dispose(&b);
	}
}

/* An embedding: as a prefill, and not one as well; inputs and pairs are for embeddings only. */
static void bounds_of_levels(void **unused)
{
	struct sl_buf b;
	struct proto_levels l = {.n = PROTO_MAX_LEVELS}, back;
	struct sl_err err;
	(void)unused;
	buf_init(&b, 1024);
	assert_int_equal(proto_put_levels(&b, &l), 0);
	uint8_t *p = buf_data(&b) + PROTO_HEAD_BYTES;
	const size_t n = b.len - PROTO_HEAD_BYTES;
	assert_int_equal(proto_get_levels(p, n, &back, &err), 0);
	assert_int_equal(back.n, PROTO_MAX_LEVELS);
	p[3] = PROTO_LAST_LEVEL + 1;
	assert_int_equal(proto_get_levels(p, n, &back, &err), SL_EPROTO);
	p[3] = 0;
	p[0] = PROTO_MAX_LEVELS + 1;
	assert_int_equal(proto_get_levels(p, n, &back, &err), SL_EPROTO);
	p[0] = PROTO_MAX_LEVELS - 1; /* a byte too many */
	assert_int_equal(proto_get_levels(p, n, &back, &err), SL_EPROTO);
	buf_dispose(&b);
}

static void bounds_of_an_embedding(void **unused)
{
	(void)unused;
	static const struct {
		uint8_t kind, flags, n;
		int rc;
	} cases[] = {
	    {PROTO_PROMPT_INPUT, PROTO_SUBMIT_EMBED, 1, 0},
	    {PROTO_PROMPT_PAIR, PROTO_SUBMIT_EMBED, 1, 0},
	    {PROTO_PROMPT_TOKENS, PROTO_SUBMIT_EMBED, 1, 0},
	    {PROTO_PROMPT_LAST + 1, PROTO_SUBMIT_EMBED, 1, SL_EPROTO},
	    {PROTO_PROMPT_INPUT, 0, 1, SL_EPROTO},
	    {PROTO_PROMPT_PAIR, PROTO_SUBMIT_PREFILL_ONLY, 1, SL_EPROTO},
	    {PROTO_PROMPT_TEXT, PROTO_SUBMIT_EMBED | PROTO_SUBMIT_PREFILL_ONLY, 1, SL_EPROTO},
	    {PROTO_PROMPT_INPUT, PROTO_SUBMIT_EMBED, 2, SL_EPROTO},
	    {PROTO_PROMPT_TEXT, 32, 1, SL_EPROTO},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct proto_submit s = {PROTO_SUBMIT_OFF, .top_p = 1, .max_tokens = 1, .prompt = {"abcd", 4}}, got;
		struct sl_buf b;
		struct sl_err err;
		s.prompt_kind = cases[i].kind;
		s.flags = cases[i].flags;
		s.n = s.best_of = cases[i].n;
		buf_init(&b, 4096);
		assert_int_equal(proto_put_submit(&b, 1, &s), 0);
		assert_int_equal(
		    proto_get_submit(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &got, &err),
		    cases[i].rc);
		buf_dispose(&b);
	}
}

/* Given tokens: their number, what is kept of them, and what does not go with them. */
static void bounds_of_given_tokens(void **unused)
{
	(void)unused;
	static const struct {
		uint16_t n_given, n_keep;
		uint32_t min_tokens;
		uint8_t n, best_of, beam_width, prompt_logprobs, flags;
		int rc;
	} cases[] = {
	    {3, 3, 0, 1, 1, 0, 0, 0, 0},
	    {3, 0, 0, 1, 1, 0, 0, 0, 0},
	    {3, 4, 0, 1, 1, 0, 0, 0, SL_EPROTO},
	    {0, 0, 0, 2, 2, 2, 0, 0, 0},
	    {0, 1, 0, 1, 1, 0, 0, 0, SL_EPROTO},
	    {PROTO_MAX_GIVEN, PROTO_MAX_GIVEN, 0, 1, 1, 0, 0, 0, 0},
	    {3, 0, 4 + 3, 1, 1, 0, 0, 0, 0},
	    {3, 0, 4 + 3 + 1, 1, 1, 0, 0, 0, SL_EPROTO},
	    {3, 0, 0, 2, 2, 0, 0, 0, SL_EPROTO},
	    {3, 0, 0, 1, 2, 0, 0, 0, SL_EPROTO},
	    {3, 0, 0, 1, 1, 1, 0, 0, SL_EPROTO},
	    {3, 0, 0, 1, 1, 0, 1, 0, SL_EPROTO},
	    {3, 0, 0, 1, 1, 0, 0, PROTO_SUBMIT_PREFILL_ONLY, SL_EPROTO},
	};
	static uint32_t ids[PROTO_MAX_GIVEN + 1];
	for (uint32_t i = 0; i <= PROTO_MAX_GIVEN; i++)
		ids[i] = i * 77777;
	struct proto_submit got, s;
	struct sl_buf b;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		s = given_submit;
		s.given = ids;
		s.n_given = cases[i].n_given;
		s.n_keep = cases[i].n_keep;
		s.min_tokens = cases[i].min_tokens;
		s.n = cases[i].n;
		s.best_of = cases[i].best_of;
		s.beam_width = cases[i].beam_width;
		s.prompt_logprobs = cases[i].prompt_logprobs;
		s.flags = cases[i].flags;
		buf_init(&b, 1 << 20);
		assert_int_equal(proto_put_submit(&b, 1, &s), 0);
		int rc = proto_get_submit(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &got, NULL);
		if (rc != cases[i].rc)
			fail_msg("case %zu: %d", i, rc);
		for (uint16_t k = 0; rc == 0 && k < s.n_given; k++)
			assert_int_equal(proto_given_at(&got, k), ids[k]);
		buf_dispose(&b);
	}
	buf_init(&b, 1 << 20);
	s = given_submit;
	s.given = ids;
	s.n_given = PROTO_MAX_GIVEN + 1;
	assert_int_equal(proto_put_submit(&b, 1, &s), SL_EINVAL);
	assert_int_equal(proto_put_verified(&b, 1, &(struct proto_verified){2, 1}), SL_EINVAL);
	assert_int_equal(proto_put_verified(&b, 1, &(struct proto_verified){0, PROTO_MAX_GIVEN + 1}), SL_EINVAL);
	assert_int_equal(b.len, 0);
	/* A decoder believes none of that either. */
	assert_int_equal(proto_put_verified(&b, 1, &(struct proto_verified){1, 1}), 0);
	uint8_t payload[8];
	struct proto_verified v;
	memcpy(payload, buf_data(&b) + PROTO_HEAD_BYTES, sizeof payload);
	payload[0] = 2;
	assert_int_equal(proto_get_verified(payload, sizeof payload, &v, NULL), SL_EPROTO);
	payload[5] = 5;
	assert_int_equal(proto_get_verified(payload, sizeof payload, &v, NULL), SL_EPROTO);
	buf_dispose(&b);
}

static void bounds_of_a_submit(void **unused)
{
	(void)unused;
	static const struct {
		const char *field;
		size_t at, size;
		double good, bad;
	} cases[] = {
#define U(f, good, bad) {#f, offsetof(struct proto_submit, f), sizeof full_submit.f, good, bad}
#define F(f, good, bad)                                            \
	{                                                          \
#f, offsetof(struct proto_submit, f), 0, good, bad \
	}
	    U(flags, 7, 8 + 7),
	    U(n_top_logprobs, 20, 21),
	    U(prompt_logprobs, 21, 22),
	    U(n, 1, 0),
	    U(n, 3, 17),
	    U(best_of, 2, 1),
	    U(best_of, 16, 17),
	    U(beam_width, 0, 1),
	    U(beam_width, 16, 17),
	    U(weight, 1, 0),
	    U(weight, 10000, 10001),
	    U(min_tokens, 77, 78),
	    U(max_tokens, 3, 2),
	    U(max_tokens, 3, 0),
	    U(prompt_kind, 2, 0),
	    U(prompt_kind, 1, 4),
	    F(typical_p, 0x1p-20, 0),
	    F(typical_p, 1, 1.0625),
	    F(repetition_penalty, 0x1p-20, 0),
	    F(repetition_penalty, 2, 2.0625),
	    F(length_penalty, 8, 8.5),
	    F(length_penalty, -8, -8.5),
	    F(temperature, 2, 2.5),
	    F(temperature, 0, -1),
	    F(top_p, 1, 0),
	    F(top_p, 1, 1.5),
	    F(min_p, 1, 1.5),
	    F(min_p, 0, -0.5),
	    F(presence_penalty, 2, 2.5),
	    F(presence_penalty, -2, -2.5),
	    F(frequency_penalty, 2, 2.5),
	    F(frequency_penalty, -2, -2.5),
	    F(rate_tps, 1e6, 2e6),
	    F(typical_p, 1, NAN),
	    F(repetition_penalty, 1, NAN),
	    F(length_penalty, 0, NAN),
	    F(temperature, 1, NAN),
	    F(top_p, 1, NAN),
	    F(min_p, 0, NAN),
#undef U
#undef F
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		for (int bad = 0; bad < 2; bad++) {
			struct proto_submit s = full_submit, got;
			struct sl_err err = {0};
			struct sl_buf b;
			double v = bad ? cases[i].bad : cases[i].good;
			uint8_t *at = (uint8_t *)&s + cases[i].at;
			float f = (float)v;
			uint64_t u = v >= 0 ? (uint64_t)v : 0;
			memcpy(at, cases[i].size == 0 ? (void *)&f : (void *)&u,
			       cases[i].size == 0 ? sizeof f : cases[i].size);
			buf_init(&b, 1 << 20);
			assert_int_equal(proto_put_submit(&b, 1, &s), 0);
			int rc =
			    proto_get_submit(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &got, &err);
			if (rc != (bad ? SL_EPROTO : 0) ||
			    (bad && cases[i].size == 0 && strstr(err.text, cases[i].field) == NULL))
				fail_msg("%s %g: %d %s", cases[i].field, v, rc, err.text);
			buf_dispose(&b);
		}
	}
	/* A top-logprob without the logprobs, and a bias beyond its bound. */
	struct proto_submit s = full_submit, got;
	struct sl_buf b;
	struct proto_id_f32 biases[] = {{3, 100}, {4, -100}};
	for (int i = 0; i < 6; i++) {
		s = full_submit;
		s.logit_bias = biases;
		s.n_logit_bias = 2;
		biases[1].v = i == 2 ? -100.5f : i == 3 ? 101 : i == 4 ? NAN : -100;
		if (i == 1)
			s.flags = 0;
		buf_init(&b, 1 << 20);
		assert_int_equal(proto_put_submit(&b, 1, &s), 0);
		int rc = proto_get_submit(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &got, NULL);
		assert_int_equal(rc, i == 0 || i == 5 ? 0 : SL_EPROTO);
		if (rc == 0) {
			assert_int_equal(proto_bias_at(&got, 0).id, 3);
			assert_true(proto_bias_at(&got, 1).v == -100);
			for (int k = 0; k < 2; k++) {
				struct proto_str word = proto_bad_word_at(&got, k);
				assert_int_equal(word.n, two_words[k].n);
				assert_memory_equal(word.at, two_words[k].at, word.n);
			}
		}
		buf_dispose(&b);
	}
}

/* A SUBMIT made from its own earlier frame is the one that is encoded from its fields. */
static void a_frame_with_other_scalars(void **unused)
{
	(void)unused;
	static const struct proto_submit *const of[] = {&full_submit, &given_submit};
	for (size_t i = 0; i < 2; i++) {
		struct sl_buf first, plain, again;
		struct proto_submit s = *of[i];
		uint64_t seed;
		buf_init(&first, 1 << 20);
		s.n_given = s.n_keep = 0;
		assert_int_equal(proto_put_submit(&first, 0, &s), 0);
		memcpy(&seed, (const uint8_t *)buf_data(&first) + PROTO_SUBMIT_SEED_AT, sizeof seed);
		assert_int_equal(le64toh(seed), s.seed);
		s.model = 1;
		s.seed = 12345;
		s.max_tokens = 9;
		s.n_top_logprobs = 3;
		s.given = three_ids;
		s.n_given = (uint16_t)(3 * i);
		s.n_keep = (uint16_t)i;
		buf_init(&plain, 1 << 20);
		assert_int_equal(proto_put_submit(&plain, 77, &s), 0);
		s.frame = (struct proto_str){(const char *)buf_data(&first), first.len};
		s.prompt = (struct proto_str){NULL, 0}; /* the frame has it */
		buf_init(&again, plain.len);
		assert_int_equal(proto_put_submit(&again, 77, &s), 0);
		assert_int_equal(again.len, plain.len);
		assert_memory_equal(buf_data(&again), buf_data(&plain), plain.len);
		buf_dispose(&first);
		buf_dispose(&plain);
		buf_dispose(&again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(round_trip_and_every_truncation),
	    cmocka_unit_test(every_byte_changed),
	    cmocka_unit_test(heads),
	    cmocka_unit_test(bounds_of_a_submit),
	    cmocka_unit_test(a_frame_with_other_scalars),
	    cmocka_unit_test(bounds_of_a_prefill),
	    cmocka_unit_test(bounds_of_levels),
	    cmocka_unit_test(bounds_of_an_embedding),
	    cmocka_unit_test(bounds_of_given_tokens),
	    cmocka_unit_test(encoders_refuse_what_decoders_would),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
