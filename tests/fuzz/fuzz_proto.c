/* SPDX-License-Identifier: Apache-2.0
 *
 * base/proto's decoders. Input: a byte that is the frame's type, then the payload (or a head where
 * the type is none). What decodes must encode to the same payload, for every type.
 */
#include <string.h>

#include "base/proto/proto.h"
#include "tests/fuzz/fuzz.h"

static struct sl_buf frame;

/* A frame made by an encoder as a seed: its type and payload. */
static size_t seed_of(uint8_t type, int rc, uint8_t *out, size_t max)
{
	FUZZ_REQUIRE(rc == 0);
	size_t n = frame.len - PROTO_HEAD_BYTES;
	if (n > max - 1)
		n = max - 1;
	out[0] = type;
	memcpy(out + 1, buf_data(&frame) + PROTO_HEAD_BYTES, n);
	buf_dispose(&frame);
	return n + 1;
}

static struct proto_str word_of(const void *ctx, uint32_t id)
{
	(void)ctx;
	return (struct proto_str){"piece", id % 6};
}

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	const struct proto_str word = {"word", 4};
	const struct proto_token toks[2] = {{.id = 7, .logprob = -0.5f, .n_bytes = 1},
					    {.id = 8, .logprob = -1.5f, .n_bytes = 3}};
	const struct proto_id_f32 pairs[4] = {{7, -0.5f}, {9, 1}, {8, -1.5f}, {10, -9}};
	const struct proto_submit submit = {PROTO_SUBMIT_OFF,
					    .n_stop_ids = 2,
					    .stop_ids = {5, 6},
					    .n_logit_bias = 2,
					    .logit_bias = pairs,
					    .prompt_kind = PROTO_PROMPT_TEXT,
					    .n_stops = 2,
					    .stops = {word, word},
					    .prompt = word,
					    .temperature = 1,
					    .top_p = 1,
					    .max_tokens = 5,
					    .seed = 1};
	buf_init(&frame, 1 << 20);
	switch (i) {
	case 0:
		return seed_of(PROTO_HELLO,
			       proto_put_hello(&frame,
					       &(struct proto_hello){
						   .version = PROTO_VERSION, .epoch = 5, .n_models = 2, .name = word}),
			       out, max);
	case 1: return seed_of(PROTO_SUBMIT, proto_put_submit(&frame, 1, &submit), out, max);
	case 2: return seed_of(PROTO_CREDIT, proto_put_credit(&frame, 1, &(struct proto_credit){9}), out, max);
	case 3:
		return seed_of(
		    PROTO_COUNT,
		    proto_put_count(&frame, 1, &(struct proto_count){.prompt_kind = PROTO_PROMPT_TEXT, .prompt = word}),
		    out, max);
	case 4:
		return seed_of(
		    PROTO_MODEL,
		    proto_put_model(&frame,
				    &(struct proto_model){.state = PROTO_MODEL_FAILED, .name = word, .reason = word}),
		    out, max);
	case 5:
		return seed_of(PROTO_QUEUED,
			       proto_put_queued(&frame, 1, &(struct proto_queued){.n_prompt = 1, .position = 3}), out,
			       max);
	case 6:
		return seed_of(PROTO_TOKENS,
			       proto_put_tokens(&frame, 1,
						&(struct proto_tokens){.n = 2,
								       .n_top = 2,
								       .tokens = toks,
								       .tops = pairs,
								       .text = word,
								       .pieces = {.of = word_of}}),
			       out, max);
	case 7:
		return seed_of(PROTO_DONE,
			       proto_put_done(&frame, 1,
					      &(struct proto_done){.finish = PROTO_FINISH_ERROR,
								   .error = PROTO_ERR_INTERNAL,
								   .message = word}),
			       out, max);
	case 8:
		return seed_of(PROTO_COUNTED,
			       proto_put_counted(&frame, 1, &(struct proto_counted){.n_tokens = 3, .message = word}),
			       out, max);
	case 9: return seed_of(PROTO_STATS, proto_put_stats(&frame, &(struct proto_stats){.running = 1}), out, max);
	case 16:
		return seed_of(PROTO_KEEP,
			       proto_put_keep(&frame, &(struct proto_keep){.model = 1, .tenant = 2, .keep_ms = 3}), out,
			       max);
	case 17: return seed_of(PROTO_LEVELS, proto_put_levels(&frame, &(struct proto_levels){2, {1, 3}}), out, max);
	case 18: return seed_of(PROTO_ERASE, proto_put_erase(&frame, &(struct proto_erase){.tenant = 2}), out, max);
	case 20:
		return seed_of(PROTO_ADAPTER, proto_put_adapter(&frame, 1, &(struct proto_adapter){true, word, word}),
			       out, max);
	case 21:
		return seed_of(
		    PROTO_HAND,
		    proto_put_hand(&frame, 1, &(struct proto_hand){PROTO_HAND_AWAIT, .writer = 1, .handle = 9}), out,
		    max);
	case 22:
		return seed_of(PROTO_HANDED,
			       proto_put_handed(&frame, 1, &(struct proto_handed){PROTO_HANDED_LATE, .n_pages = 3}),
			       out, max);
	case 10: return seed_of(PROTO_BYE, proto_put_bye(&frame, &(struct proto_bye){word}), out, max);
	case 11:
		return seed_of(
		    PROTO_PROMPT_LOGPROBS,
		    proto_put_prompt_logprobs(
			&frame, 1, &(struct proto_prompt_logprobs){.first = 3, .n = 2, .n_top = 1, .entries = pairs}),
		    out, max);
	case 12:
		return seed_of(
		    PROTO_CHOICE,
		    proto_put_choice(&frame, 1, &(struct proto_choice){.finish = PROTO_FINISH_STOP, .n_completion = 4}),
		    out, max);
	case 13: {
		struct proto_submit going_on = submit;
		going_on.n_given = going_on.n_keep = 2;
		going_on.given = (const uint32_t[]){9, 70000};
		return seed_of(PROTO_SUBMIT, proto_put_submit(&frame, 1, &going_on), out, max);
	}
	case 14:
		return seed_of(PROTO_VERIFIED, proto_put_verified(&frame, 1, &(struct proto_verified){1, 2}), out, max);
	case 15: {
		const float numbers[] = {1, -2.5f};
		return seed_of(PROTO_EMBEDDING,
			       proto_put_embedding(&frame, 1, &(struct proto_embedding){.n = 2, .values = numbers}),
			       out, max);
	}
	case 19: {
		const uint64_t changes[] = {3, 8, 5};
		return seed_of(
		    PROTO_PREFIXES,
		    proto_put_prefixes(&frame, &(struct proto_prefixes){.anew = true, .n = 3, .changes = changes}), out,
		    max);
	}
	default: return 0;
	}
}

/* Decodes into m and, where that worked, encodes again; *rc is the decoder's result. */
#define AGAIN(name, kind, ...)                                                     \
	{                                                                          \
		struct proto_##name m = {0};                                       \
		rc = proto_get_##name(p, n, &m, &err);                             \
		again = rc == 0 ? proto_put_##name(&frame, ##__VA_ARGS__, &m) : 0; \
		break;                                                             \
	}

static struct proto_str pieces_left;

static struct proto_str next_piece(const void *ctx, uint32_t id)
{
	(void)ctx, (void)id;
	return proto_piece_next(&pieces_left);
}

/* TOKENS decodes to records and encodes from an array. */
static int tokens_again(const struct proto_tokens *m)
{
	static struct proto_token toks[PROTO_MAX_TOKENS_PER_FRAME];
	FUZZ_REQUIRE(m->n <= PROTO_MAX_TOKENS_PER_FRAME);
	static struct proto_id_f32 tops[PROTO_MAX_TOKENS_PER_FRAME * PROTO_MAX_TOP_LOGPROBS];
	for (uint16_t i = 0; i < m->n; i++) {
		toks[i] = proto_token_at(m, i);
		for (uint8_t k = 0; k < m->n_top; k++)
			tops[i * m->n_top + k] = proto_top_at(m, i, k);
	}
	struct proto_tokens copy = *m;
	copy.tokens = toks;
	copy.tops = tops;
	pieces_left = m->pieces.all;
	copy.pieces.of = pieces_left.n > 0 ? next_piece : NULL;
	return proto_put_tokens(&frame, 1, &copy);
}

static int prompt_again(const struct proto_prompt_logprobs *m)
{
	static struct proto_id_f32 all[PROTO_MAX_TOKENS_PER_FRAME * (1 + PROTO_MAX_TOP_LOGPROBS)];
	FUZZ_REQUIRE(m->n <= PROTO_MAX_TOKENS_PER_FRAME && m->n_top <= PROTO_MAX_TOP_LOGPROBS);
	for (uint16_t i = 0; i < m->n; i++) {
		for (uint8_t k = 0; k <= m->n_top; k++)
			all[i * (1 + m->n_top) + k] = proto_prompt_logprob_at(m, i, k);
	}
	struct proto_prompt_logprobs copy = *m;
	copy.entries = all;
	pieces_left = m->pieces.all;
	copy.pieces.of = pieces_left.n > 0 ? next_piece : NULL;
	return proto_put_prompt_logprobs(&frame, 1, &copy);
}

static int embedding_again(const struct proto_embedding *m)
{
	static float numbers[PROTO_MAX_EMBEDDING];
	struct proto_embedding copy = *m;
	proto_embedding_read(m, numbers);
	copy.values = numbers;
	return proto_put_embedding(&frame, 1, &copy);
}

static int prefixes_again(const struct proto_prefixes *m)
{
	static uint64_t changes[PROTO_MAX_PREFIXES];
	FUZZ_REQUIRE(m->n <= PROTO_MAX_PREFIXES);
	for (uint16_t i = 0; i < m->n; i++)
		changes[i] = proto_prefix_at(m, i);
	struct proto_prefixes copy = *m;
	copy.changes = changes;
	return proto_put_prefixes(&frame, &copy);
}

static void check_payload(uint8_t type, const uint8_t *p, size_t n)
{
	struct sl_err err = {0};
	int rc = SL_EPROTO, again = 0;
	struct proto_tokens tokens = {0};
	struct proto_prompt_logprobs prompt = {0};
	struct proto_embedding embedding = {0};
	struct proto_prefixes prefixes = {0};
	buf_init(&frame, 16 << 20);
	switch (type) {
	case PROTO_HELLO: AGAIN(hello, HELLO)
	case PROTO_SUBMIT: AGAIN(submit, SUBMIT, 1)
	case PROTO_CREDIT: AGAIN(credit, CREDIT, 1)
	case PROTO_COUNT: AGAIN(count, COUNT, 1)
	case PROTO_KEEP: AGAIN(keep, KEEP)
	case PROTO_LEVELS: AGAIN(levels, LEVELS)
	case PROTO_ERASE: AGAIN(erase, ERASE)
	case PROTO_ADAPTER: AGAIN(adapter, ADAPTER, 1)
	case PROTO_HAND: AGAIN(hand, HAND, 1)
	case PROTO_HANDED: AGAIN(handed, HANDED, 1)
	case PROTO_MODEL: AGAIN(model, MODEL)
	case PROTO_QUEUED: AGAIN(queued, QUEUED, 1)
	case PROTO_TOKENS:
		rc = proto_get_tokens(p, n, &tokens, &err);
		again = rc == 0 ? tokens_again(&tokens) : 0;
		break;
	case PROTO_PROMPT_LOGPROBS:
		rc = proto_get_prompt_logprobs(p, n, &prompt, &err);
		again = rc == 0 ? prompt_again(&prompt) : 0;
		break;
	case PROTO_EMBEDDING:
		rc = proto_get_embedding(p, n, &embedding, &err);
		again = rc == 0 ? embedding_again(&embedding) : 0;
		break;
	case PROTO_PREFIXES:
		rc = proto_get_prefixes(p, n, &prefixes, &err);
		again = rc == 0 ? prefixes_again(&prefixes) : 0;
		break;
	case PROTO_CHOICE: AGAIN(choice, CHOICE, 1)
	case PROTO_DONE: AGAIN(done, DONE, 1)
	case PROTO_COUNTED: AGAIN(counted, COUNTED, 1)
	case PROTO_LOAD: AGAIN(load, LOAD)
	case PROTO_VERIFIED: AGAIN(verified, VERIFIED, 1)
	case PROTO_STATS: AGAIN(stats, STATS)
	case PROTO_BYE: AGAIN(bye, BYE)
	default: break;
	}
	FUZZ_REQUIRE(rc == 0 || rc == SL_EPROTO);
	if (rc == 0) {
		struct proto_head head;
		FUZZ_REQUIRE(again == 0);
		again = proto_head_read(buf_data(&frame), &head, &err);
		FUZZ_REQUIRE(again == 0 && head.type == type && head.length == n);
		FUZZ_REQUIRE(memcmp(buf_data(&frame) + PROTO_HEAD_BYTES, p, n) == 0);
	}
	buf_dispose(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0)
		return 0;
	if (n > PROTO_HEAD_BYTES) {
		struct proto_head head;
		struct sl_err err;
		int rc = proto_head_read(data + 1, &head, &err);
		FUZZ_REQUIRE(rc == SL_EPROTO || (rc == 0 && head.length <= proto_type_max(head.type)));
	}
	if (n - 1 <= proto_type_max(data[0]))
		check_payload(data[0], data + 1, n - 1);
	return 0;
}
