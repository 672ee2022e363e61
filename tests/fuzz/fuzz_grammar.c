/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/grammar. The input is a grammar and bytes: masks must have exactly the tokens whose bytes may follow, whether
 * caches are kept or dropped at every turn.
 *
 * Input: rules, each of lines of symbols (A to E: rules; a and b: literals; *: any number of a; j: a JSON string of at
 * most three characters; 2 and 9: a repetition of the line's first symbol) up to an empty line; then the bytes.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocab.h"
#include "engine/token/tokenizer_source.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/tok_make.h"

enum { RULES = 5, MAX_SYMS = 8, WORDS = 6, TOKENS = 256 + WORDS, SLICES = 30 };

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "aBb\n\nA\n\nab",
	    "Aab\nb\n\n\nbabab",
	    "j\n\n\"a\\u00e9\"",
	    "2aB\n\n*b\n\naabaab",
	    "9Bb\n\nC\n*\n\nAa\nb\n\nabab",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static struct tokenizer *tokenizer(void)
{
	static const char *const words[WORDS] = {"aa", "ab", "ba", "aab", "\\u00", "\","};
	static char bytes[256][4];
	struct proto_str tokens[TOKENS];
	int32_t attrs[TOKENS];
	uint32_t next = 0x100;
	for (unsigned b = 0; b < 256; b++) {
		bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
		int n = utf8_encode(prints ? b : next++, (uint8_t *)bytes[b]);
		tokens[b] = (struct proto_str){bytes[b], (size_t)n};
	}
	for (int i = 0; i < WORDS; i++)
		tokens[256 + i] = (struct proto_str){words[i], strlen(words[i])};
	for (int i = 0; i < TOKENS; i++)
		attrs[i] = TOK_NORMAL;
	struct tok_source src = {.tokens = tokens,
				 .attrs = attrs,
				 .n_tokens = TOKENS,
				 .bos = -1,
				 .eos = -1,
				 .eot = -1,
				 .unknown = -1,
				 .add_bos = -1};
	struct tokenizer *t = NULL;
	struct sl_err err;
	FUZZ_REQUIRE(tok_make(&src, "gpt-2", NULL, &t, &err) == 0);
	return t;
}

static struct rules_sym symbol(struct rules *r, const struct rules_sym *rules, char c)
{
	struct rx_pool *p = rules_pool(r);
	rx a = rx_literal(p, "a", 1), quote = rx_literal(p, "\"", 1);
	if (c >= 'A' && c < 'A' + RULES)
		return rules[c - 'A'];
	if (c == '*')
		return rules_terminal(r, rx_repeat(p, a, 0, RX_UNBOUNDED));
	if (c == 'j')
		return rules_terminal(
		    r, rx_cat(p, quote, rx_cat(p, rx_json(p, rx_repeat(p, rx_chars_except(p, NULL, 0), 0, 3)), quote)));
	if ((uint8_t)c == VOCAB_MARK) /* begins a control token; grammars of texts have none */
		return rules_terminal(r, quote);
	return rules_terminal(r, rx_literal(p, &c, 1));
}

static void add_line(struct rules *r, const struct rules_sym *rules, struct rules_sym rule, const char *line, size_t n)
{
	struct rules_sym of[MAX_SYMS];
	size_t count = 0;
	bool repeat = n > 1 && (line[0] == '2' || line[0] == '9');
	for (size_t i = repeat; i < n && count < MAX_SYMS; i++)
		of[count++] = symbol(r, rules, line[i]);
	if (repeat)
		of[0] = rules_repeat(r, of[0], NULL, 0, line[0] == '2' ? 2 : 0, line[0] == '2' ? 4 : RX_UNBOUNDED);
	rules_add(r, rule, of, count);
}

/* Returns the bytes behind the rules. */
static const char *read_rules(struct rules *r, const char *at, const char *end)
{
	struct rules_sym rules[RULES];
	for (int i = 0; i < RULES; i++)
		rules[i] = rules_new(r);
	for (int i = 0; i < RULES && at < end;) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		if (stop == NULL)
			stop = end;
		if (stop == at)
			i++;
		else
			add_line(r, rules, rules[i], at, (size_t)(stop - at));
		at = stop < end ? stop + 1 : end;
	}
	rules_start(r, rules[0]);
	return at;
}

static void check(struct grammar_state *s, const struct tokenizer *t)
{
	uint32_t mask[(TOKENS + 31) / 32];
	int32_t forced[1];
	bool any = false;
	int rc = SL_EAGAIN;
	/* In the smallest slices, at first. */
	for (int i = 0; rc == SL_EAGAIN && i < SLICES; i++)
		rc = grammar_mask_within(s, mask, 1 + (uint64_t)i);
	if (rc == SL_EAGAIN)
		rc = grammar_mask(s, mask);
	FUZZ_REQUIRE(rc != SL_EAGAIN);
	if (rc != 0)
		return;
	bool is_forced = grammar_forced(s, forced, 1) == 1;
	for (int32_t id = 0; id < TOKENS; id++) {
		struct grammar_state next;
		struct proto_str b = tokenizer_bytes(t, id);
		grammar_state_copy(&next, s);
		rc = grammar_accept_bytes(&next, b.at, b.n);
		bool has = (mask[id / 32] >> (id % 32) & 1) != 0;
		any |= has;
		FUZZ_REQUIRE(rc == SL_ELIMIT || has == (rc == 0 && (!is_forced || id == forced[0])));
		grammar_state_dispose(&next);
	}
	FUZZ_REQUIRE(any || grammar_may_end(s));
}

static void run(struct grammar_vocab *v, const struct tokenizer *t, const char *data, size_t n, size_t max_states)
{
	struct rules *r = NULL;
	struct grammar *g = NULL;
	struct sl_err err;
	struct grammar_limits limits = {.max_states = max_states, .max_work = 1 << 16};
	FUZZ_REQUIRE(rules_create(&(struct rules_limits){.max_rx_nodes = 1 << 16}, &r) == 0);
	const char *text = read_rules(r, data, data + n), *end = data + n;
	if (grammar_create(v, r, &limits, &g, &err) != 0)
		return;
	struct grammar_state s;
	FUZZ_REQUIRE(grammar_state_init(&s, g) == 0);
	check(&s, t);
	for (int i = 0; i < 12 && text < end && grammar_accept_bytes(&s, text, 1) == 0; i++, text++)
		check(&s, t);
	grammar_state_dispose(&s);
	grammar_unref(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct tokenizer *t;
	static struct grammar_vocab *v;
	if (n > 400)
		return 0;
	if (t == NULL) {
		t = tokenizer();
		FUZZ_REQUIRE(grammar_vocab_create(t, &v) == 0);
	}
	run(v, t, (const char *)data, n, 0);
	run(v, t, (const char *)data, n, 1);
	return 0;
}
