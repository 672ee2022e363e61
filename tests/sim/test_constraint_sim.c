/* SPDX-License-Identifier: Apache-2.0
 *
 * Constrained answers in an engine whose models have no weights (fake_model.h). An answer alone, with log
 * probabilities and so without forced tokens, is the reference: whatever is drafted, forced, pre-empted, planned ahead
 * or begun by another model, every answer has its tokens, is of its grammar, and says so when it was cut.
 */
#include "tests/unit/engine/core/draft_prefix_run.h"
#include "fake_model.h"

#include <jansson.h>

#include "base/fault.h"
#include "engine/constraint/constraint.h"
#include "engine/grammar/grammar.h"
#include "engine/kv/kv.h"
#include "tests/support/part.h"

static const struct eng_model_config pair[] = {{.name = "large", .path = "fake.gguf", .role = PROTO_ROLE_LARGE},
					       {.name = "small", .path = "near.gguf", .role = PROTO_ROLE_SMALL}};

static struct eng_config config(int mode)
{
	return (struct eng_config){.models = pair,
				   .n_models = 2,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 2,
				   .page_tokens = 4,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 256,
				   .step_tokens = 32,
				   .max_prompt_bytes = 1 << 20,
				   .spec_mode = mode,
				   .spec_max_draft = 8,
				   .spec_fixed = true};
}

static uint64_t random_state = 1;

static uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* ---- random constraints ---- */

enum { MANY = 64, SCHEMA_BYTES = 8192 };

static struct {
	char text[SCHEMA_BYTES];
	enum proto_constraint kind;
} wanted[MANY];

static void put_schema(char *to, int depth)
{
	static const char *const leaves[] = {
	    "{\"type\":\"boolean\"}",
	    "{\"type\":\"null\"}",
	    "{\"type\":\"integer\",\"minimum\":-20,\"maximum\":900}",
	    "{\"type\":\"string\",\"maxLength\":5}",
	    "{\"enum\":[\"red\",\"green\",7,null]}",
	    "{\"const\":\"exactly so\"}",
	    "{\"type\":\"string\",\"pattern\":\"^[a-c]{2,6}$\"}",
	};
	char *at = to + strlen(to);
	uint32_t kind = depth > 2 ? 0 : at_random(4);
	if (kind < 2) {
		strcpy(at, leaves[at_random(sizeof leaves / sizeof *leaves)]);
	} else if (kind == 2) {
		strcpy(at, "{\"type\":\"array\",\"maxItems\":3,\"items\":");
		put_schema(to, depth + 1);
		strcat(to, "}");
	} else {
		uint32_t n = 1 + at_random(3);
		strcpy(at,
		       "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"first\"],\"properties\":{");
		for (uint32_t i = 0; i < n; i++) {
			static const char *const names[] = {"first", "second one", "\\u00e9t\\u00e9"};
			sprintf(to + strlen(to), "%s\"%s\":", i > 0 ? "," : "", names[i]);
			put_schema(to, depth + 1);
		}
		strcat(to, "}}");
	}
}

static void want_at_random(uint64_t seed)
{
	static const char *const others[] = {"[a-z]{3}-[0-9]{1,9}", "[\"yes\",\"no\",\"it depends\"]",
					     "root ::= \"(\" (root | [a-z]+) \")\"",
					     "start: \"let \" NAME \" = \" NUM\nNAME: /[a-z]{1,4}/\nNUM: /[0-9]+/\n"};
	static const enum proto_constraint kinds[] = {PROTO_CONSTRAINT_REGEX, PROTO_CONSTRAINT_CHOICE,
						      PROTO_CONSTRAINT_GBNF, PROTO_CONSTRAINT_LARK};
	random_state = seed;
	for (int i = 0; i < MANY; i++) {
		wanted[i].text[0] = '\0';
		if (i % 8 == 7) {
			uint32_t k = at_random(4);
			strcpy(wanted[i].text, others[k]);
			wanted[i].kind = kinds[k];
		} else {
			put_schema(wanted[i].text, 0);
			wanted[i].kind = PROTO_CONSTRAINT_JSON_SCHEMA;
		}
	}
}

static char prompts[MANY][64];

static struct proto_submit nth_request(int i)
{
	snprintf(prompts[i], sizeof prompts[i], "request %d wants %.30s", i, wanted[i].text);
	struct proto_submit req = run_plain(prompts[i], i % 6 == 5 ? 7 : 120);
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 2 == 0 ? 0 : 0.9f;
	req.tenant = (uint64_t)(i % 5);
	/* Exact in float: the fake device penalises in double. */
	req.frequency_penalty = i % 4 == 2 ? 0.875f : 0;
	req.min_tokens = i % 8 == 3 ? 7 : 0;
	req.constraint_kind = (uint8_t)wanted[i].kind;
	req.constraint = (struct proto_str){wanted[i].text, strlen(wanted[i].text)};
	return req;
}

/* ---- what an answer must be ---- */

/* Its text is of the grammar, or begins one that is if it was cut. */
static void assert_of_grammar(const struct answer *a, int i)
{
	struct rules *rules;
	struct grammar *g;
	struct grammar_vocab *v;
	struct grammar_state s;
	struct sl_err err = {0};
	struct tokenizer *t = calloc(1, sizeof *t);
	assert_int_equal(grammar_vocab_create(t, &v), 0);
	assert_int_equal(constraint_rules((enum constraint_kind)wanted[i].kind, wanted[i].text, strlen(wanted[i].text),
					  NULL, &rules, &err),
			 0);
	assert_int_equal(grammar_create(v, rules, NULL, &g, &err), 0);
	assert_int_equal(grammar_state_init(&s, g), 0);
	if (grammar_accept_bytes(&s, a->text, a->n_text) != 0)
		fail_msg("%d: %.*s is not of %s", i, (int)a->n_text, a->text, wanted[i].text);
	if (a->end.finish == PROTO_FINISH_STOP && !grammar_may_end(&s))
		fail_msg("%d: %.*s is not all of %s", i, (int)a->n_text, a->text, wanted[i].text);
	grammar_state_dispose(&s);
	grammar_unref(g);
	grammar_vocab_unref(v);
	free(t);
}

static void assert_same(const struct answer *a, const struct answer *b)
{
	if (a->end.finish != b->end.finish)
		fail_msg("finish %d (%s), expected %d; '%.*s' and '%.*s'", a->end.finish, a->message, b->end.finish,
			 (int)a->n_text, a->text, (int)b->n_text, b->text);
	assert_int_equal(a->end.finish, b->end.finish);
	assert_int_equal(a->end.length_why, b->end.length_why);
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
	assert_int_equal(a->n_text, b->n_text);
	assert_memory_equal(a->text, b->text, a->n_text);
}

static struct proto_stats stats_of(struct run *r)
{
	struct proto_stats s;
	run_until_idle(r);
	engine_stats(r->e, &s);
	return s;
}

static void plain_answers(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	int n_whole = 0;
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		out[i] = *run_one(&r, 1, &req);
		if (out[i].end.finish == PROTO_FINISH_ERROR)
			fail_msg("%s: %s", wanted[i].text, out[i].message);
		assert_of_grammar(&out[i], i);
		n_whole += out[i].end.finish == PROTO_FINISH_STOP;
	}
	assert_true(n_whole > MANY / 2 && n_whole < MANY);
	assert_int_equal(stats_of(&r).forced_tokens, 0);
	run_stop(&r);
}

static struct proto_stats together(const struct eng_config *cfg, const struct answer *expect, uint32_t credit)
{
	struct run r;
	run_start(&r, cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		if (i % 4 != 1) {
			req.flags = 0;
			req.n_top_logprobs = 0;
		}
		run_submit(&r, (uint64_t)i + 1, &req);
	}
	/* All at once, however long their constraints take. */
	for (int i = 0; i < MANY; i++)
		RUN_UNTIL(&r, r.answers[i + 1].queued || r.answers[i + 1].done);
	for (int i = 0; i < MANY; i++)
		run_credit(&r, (uint64_t)i + 1, credit); /* pauses on the way */
	for (int i = 0; i < MANY; i++)
		run_credit(&r, (uint64_t)i + 1, 1000);
	for (int i = 0; i < MANY; i++)
		assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	struct proto_stats s = stats_of(&r);
	run_stop(&r);
	return s;
}

/* ---- tests ---- */

enum { ROUNDS = 16 }; /* of MANY random constraints; else one in each mode */

static void same_in_any_company(void **state)
{
	(void)state;
	struct answer *expect = calloc(MANY, sizeof *expect);
	for (uint64_t round = 0; round < (uint64_t)some_of(ENG_SPEC_AUTO + 1, ROUNDS); round++) {
		want_at_random(round + 1);
		plain_answers(expect);
		int mode = (int)(round % (ENG_SPEC_AUTO + 1));
		struct eng_config cfg = config(mode);
		struct proto_stats s = together(&cfg, expect, 5);
		assert_true(s.forced_tokens > MANY);
		/* Short pages: some are pre-empted. */
		cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52 * (mode < ENG_SPEC_DRAFT ? 8 : 9) / 4;
		s = together(&cfg, expect, 3);
		assert_true(s.preemptions > 0);
		/* A device: tokens drawn there, and steps planned ahead. */
		atomic_store(&fake.draws, 1);
		atomic_store(&fake.ahead, 1 + (int)(round % 2));
		cfg = config(mode);
		together(&cfg, expect, 1);
		atomic_store(&fake.draws, 0);
		atomic_store(&fake.ahead, 0);
	}
	free(expect);
}

/* ---- masks that take many slices ---- */

enum { PATTERNS = 60 };

/* An intersection of so many patterns that no state is expanded within a slice. */
static void want_slow(int i)
{
	char *to = wanted[i].text;
	strcpy(to, "{\"type\":\"string\",\"maxLength\":30,\"allOf\":[");
	for (int k = 0; k < PATTERNS; k++)
		sprintf(to + strlen(to), "%s{\"not\":{\"pattern\":\"%c.*%c%c\"}}", k > 0 ? "," : "", 'A' + k % 26,
			'a' + k % 13, 'a' + (k + i) % 17);
	strcat(to, "]}");
	wanted[i].kind = PROTO_CONSTRAINT_JSON_SCHEMA;
}

/* How many slices along the answer do not finish their mask. */
static uint32_t unfinished_slices(const struct answer *a, int i)
{
	struct rules *rules;
	struct grammar *g;
	struct grammar_vocab *v;
	struct grammar_state s;
	struct sl_err err = {0};
	uint32_t n = 0;
	struct tokenizer *t = calloc(1, sizeof *t);
	assert_int_equal(grammar_vocab_create(t, &v), 0);
	assert_int_equal(constraint_rules((enum constraint_kind)wanted[i].kind, wanted[i].text, strlen(wanted[i].text),
					  NULL, &rules, &err),
			 0);
	assert_int_equal(grammar_create(v, rules, NULL, &g, &err), 0);
	assert_int_equal(grammar_state_init(&s, g), 0);
	uint32_t *mask = calloc(grammar_vocab_mask_words(v), sizeof *mask);
	for (uint32_t k = 0; k < a->n_text; k++) {
		while (grammar_mask_within(&s, mask, GRAMMAR_SLICE) == SL_EAGAIN)
			n++;
		assert_int_equal(grammar_accept_bytes(&s, a->text + k, 1), 0);
	}
	grammar_state_dispose(&s);
	grammar_unref(g);
	grammar_vocab_unref(v);
	free(mask);
	free(t);
	return n;
}

/* Their answers wait and are the same, as are all others, which do not wait: on the host and on a device in turn, with
 * THOROUGH in each mode on both. */
static void slow_masks_change_nothing(void **state)
{
	(void)state;
	struct answer *expect = calloc(MANY, sizeof *expect);
	want_at_random(5);
	for (int i = 0; i < MANY; i += 16)
		want_slow(i);
	plain_answers(expect);
	uint32_t n_slices = 0;
	for (int i = 0; i < MANY; i += 16)
		n_slices += unfinished_slices(&expect[i], i);
	assert_true(n_slices > 10);
	for (int mode = 0; mode <= ENG_SPEC_AUTO; mode++) {
		const int all = some_of(0, 1);
		struct eng_config cfg = config(mode);
		if (all || mode % 2 == 0)
			together(&cfg, expect, 5);
		if (!all && mode % 2 == 0)
			continue;
		atomic_store(&fake.draws, 1);
		atomic_store(&fake.ahead, 1 + (all ? mode : mode / 2) % 2);
		together(&cfg, expect, 1);
		atomic_store(&fake.draws, 0);
		atomic_store(&fake.ahead, 0);
	}
	free(expect);
}

/* ---- hostile constraints beside an innocent stream ---- */

enum { HOSTILE = 100, INNOCENT = HOSTILE + 1, LATER, INNOCENT_TOKENS = 400, MOST_SPENT = 4 * GRAMMAR_SLICE };

static char hostile_text[HOSTILE][SCHEMA_BYTES];

/* The i-th: deep, wide, long, ambiguous, of many states, of masks without end, or all forced. No two are equal, so
 * nothing of one is cached for another. */
static enum proto_constraint put_hostile(int i)
{
	char *to = hostile_text[i];
	to[0] = '\0';
	switch (i % 8) {
	case 0:
		want_slow(0);
		sprintf(to, "{\"$comment\":%d,%s", i, wanted[0].text + 1);
		return PROTO_CONSTRAINT_JSON_SCHEMA;
	case 1:
		for (int k = 0; k < 40; k++)
			strcat(to, "{\"type\":\"array\",\"minItems\":1,\"maxItems\":1000000,\"items\":");
		sprintf(to + strlen(to), "{\"const\":%d}", i);
		for (int k = 0; k < 40; k++)
			strcat(to, "}");
		return PROTO_CONSTRAINT_JSON_SCHEMA;
	case 2:
		strcat(to, "{\"type\":\"object\",\"properties\":{");
		for (int k = 0; k < 200; k++)
			sprintf(to + strlen(to), "%s\"p%d of %d\":{\"type\":\"integer\"}", k > 0 ? "," : "", k, i);
		strcat(to, "}}");
		return PROTO_CONSTRAINT_JSON_SCHEMA;
	case 3: sprintf(to, "a{1000000}b{%d}", i + 1); return PROTO_CONSTRAINT_REGEX;
	case 4: sprintf(to, "(a|a|aa|b*)*(c|(d*)*)*e{%d}", i + 1); return PROTO_CONSTRAINT_REGEX;
	case 5: sprintf(to, "([ab]*a[ab]{%d})+", 20 + i); return PROTO_CONSTRAINT_REGEX;
	case 6: sprintf(to, "root ::= root root | \"a\" | root \"b%d\" | \"\"", i); return PROTO_CONSTRAINT_GBNF;
	default:
		sprintf(to, "{\"const\":\"%d ", i);
		for (int k = 0; k < 900; k++)
			sprintf(to + strlen(to), "%c%d", 'a' + (k * k + i) % 26, k);
		strcat(to, "\"}");
		return PROTO_CONSTRAINT_JSON_SCHEMA;
	}
}

/* Between two tokens of one innocent stream: the steps, and what the step thread spends on constraints. */
struct watched {
	struct run r; /* first: the context of run_on_event */
	uint64_t id, steps, spent, most_steps, most_spent, n_gaps, all_spent;
};

static void watch(void *ctx, const struct eng_event *ev)
{
	struct watched *w = ctx;
	if (ev->kind == ENG_TOKENS && ev->id >= INNOCENT) {
		struct proto_stats now;
		engine_stats(w->r.e, &now);
		uint64_t steps = now.steps - w->steps, spent = grammar_spent() - w->spent;
		if (w->id == ev->id) {
			w->most_steps = steps > w->most_steps ? steps : w->most_steps;
			w->most_spent = spent > w->most_spent ? spent : w->most_spent;
			w->all_spent += spent;
			w->n_gaps++;
		}
		w->id = ev->id;
		w->steps = now.steps;
		w->spent = grammar_spent();
	}
	run_on_event(&w->r, ev);
}

static void submit_innocent(struct watched *w, uint64_t id)
{
	struct proto_submit req = run_plain("innocent", INNOCENT_TOKENS);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	run_submit(&w->r, id, &req);
}

static void submit_hostile(struct watched *w)
{
	for (int i = 0; i < HOSTILE; i++) {
		struct proto_submit req = run_plain("hostile", 100);
		req.flags = PROTO_SUBMIT_IGNORE_EOS;
		req.temperature = 1;
		req.seed = (uint64_t)i;
		req.tenant = 2 + (uint64_t)i % 3;
		req.constraint_kind = (uint8_t)put_hostile(i);
		req.constraint = (struct proto_str){hostile_text[i], strlen(hostile_text[i])};
		run_submit(&w->r, (uint64_t)i + 1, &req);
	}
}

/* A hundred at once are compiled beside one stream and answered beside another. Neither ever waits for a second step.
 * Between two tokens come the forced tokens that one step takes after its draws, the masks of the next, and its forced
 * tokens: at most three slices, and what the last attempt of each overshoots. The clock stands still, so a step seems
 * to take no time and earns none for constraints. */
static void hostile_constraints_hold_nobody_up(void **state)
{
	(void)state;
	static struct watched w;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	cfg.n_models = 1;
	cfg.max_sequences = HOSTILE + 2;
	cfg.step_tokens = 2 * HOSTILE;
	cfg.kv_bytes = 64 << 20;
	w = (struct watched){0};
	run_clock_hold();
	run_start_with(&w.r, &cfg, watch, &w);
	submit_innocent(&w, INNOCENT);
	run_credit(&w.r, INNOCENT, INNOCENT_TOKENS);
	submit_hostile(&w);
	for (int i = 0; i < HOSTILE; i++)
		RUN_UNTIL(&w.r, w.r.answers[i + 1].queued || w.r.answers[i + 1].done);
	run_until_done(&w.r, INNOCENT);
	assert_int_equal(w.n_gaps, INNOCENT_TOKENS - 1);
	assert_int_equal(w.most_steps, 1);
	assert_int_equal(w.most_spent, 0);
	submit_innocent(&w, LATER);
	RUN_UNTIL(&w.r, w.r.answers[LATER].queued);
	for (int i = 0; i < HOSTILE; i++)
		run_credit(&w.r, (uint64_t)i + 1, 1000);
	run_credit(&w.r, LATER, INNOCENT_TOKENS);
	run_until_done(&w.r, LATER);
	assert_int_equal(w.n_gaps, 2 * (INNOCENT_TOKENS - 1));
	assert_int_equal(w.most_steps, 1);
	if (w.most_spent > MOST_SPENT)
		fail_msg("%llu of work between two tokens", (unsigned long long)w.most_spent);
	assert_true(w.all_spent > 50 * GRAMMAR_SLICE);
	for (int i = 0; i < HOSTILE; i++)
		engine_cancel(w.r.e, (uint64_t)i + 1);
	run_stop(&w.r);
}

/* What follows a choice between two texts is forced, but for what may join a token behind it. */
static void forced_tokens_take_no_steps(void **state)
{
	(void)state;
	static const char text[] = "[\"(I am certain of it)\",\"[I am certain of it]\"]";
	for (int logprobs = 0; logprobs < 2; logprobs++) {
		struct run r;
		struct eng_config cfg = config(ENG_SPEC_OFF);
		cfg.n_models = 1;
		run_start(&r, &cfg);
		struct proto_submit req = run_plain("sure?", 60);
		req.flags = logprobs ? req.flags : 0;
		req.n_top_logprobs = (uint8_t)logprobs;
		req.constraint_kind = PROTO_CONSTRAINT_CHOICE;
		req.constraint = (struct proto_str){text, sizeof text - 1};
		const struct answer *a = run_one(&r, 1, &req);
		assert_int_equal(a->n_text, strlen("(I am certain of it)"));
		assert_int_equal(a->end.finish, PROTO_FINISH_STOP);
		struct proto_stats s = stats_of(&r);
		assert_true(logprobs ? s.steps == a->n_tokens : s.steps <= 3);
		assert_int_equal(s.forced_tokens, a->n_tokens - s.steps);
		run_stop(&r);
	}
}

/* An answer that another model began, right or wrong from somewhere on. */
static void begun_by_another_model(void **state)
{
	(void)state;
	static struct draft_prefix_case c[MANY];
	struct answer *expect = calloc(MANY, sizeof *expect);
	want_at_random(77);
	plain_answers(expect);
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		uint32_t n = expect[i].n_tokens * (uint32_t)(i % 4) / 4;
		c[i] = draft_prefix_of(&expect[i], n, n, n / 2);
		struct proto_submit s = draft_prefix_request(&req, &c[i], n);
		run_submit(&r, (uint64_t)i + 1, &s);
		run_credit(&r, (uint64_t)i + 1, 1000);
	}
	for (int i = 0; i < MANY; i++) {
		const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
		uint32_t n = expect[i].n_tokens * (uint32_t)(i % 4) / 4;
		assert_int_equal(a->end.finish, expect[i].end.finish);
		assert_int_equal(a->n_tokens, expect[i].n_tokens - n);
		assert_memory_equal(a->ids, expect[i].ids + n, a->n_tokens * sizeof *a->ids);
	}
	run_stop(&r);
	free(expect);
}

/* n and beams: every choice is of the grammar. */
static void several_choices(void **state)
{
	(void)state;
	static int32_t ids[RUN_TOKENS];
	static float logprobs[RUN_TOKENS];
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_AUTO);
	cfg.max_sequences = 24;
	want_at_random(99);
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		bool beams = i % 3 == 2;
		req.n = 3;
		req.best_of = i % 3 == 1 ? 5 : 3;
		req.beam_width = beams ? 4 : 0;
		req.temperature = beams ? 0 : 0.9f;
		req.frequency_penalty = 0;
		req.min_tokens = 0;
		req.top_p = 1;
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 10000);
		const struct answer *a = run_until_done(&r, 1);
		if (a->end.finish == PROTO_FINISH_ERROR)
			fail_msg("%s: %s", wanted[i].text, a->message);
		for (uint8_t k = 0; k < a->n_choices_ended; k++) {
			static struct answer one;
			one = (struct answer){.n_tokens = run_choice(a, k, ids, logprobs)};
			for (uint32_t j = 0; j < one.n_tokens; j++)
				one.text[one.n_text++] = (char)ids[j];
			for (uint32_t j = 0; j < a->n_choices_ended; j++)
				if (a->choices[j].choice == k)
					one.end.finish = a->choices[j].finish;
			assert_of_grammar(&one, i);
		}
	}
	run_until_idle(&r);
	run_stop(&r);
}

/* A stop string inside an incomplete answer: the end says so. */
static void cut_by_a_stop(void **state)
{
	(void)state;
	static const char text[] = "aaaa-bbbb";
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("x", 60);
	req.constraint_kind = PROTO_CONSTRAINT_REGEX;
	req.constraint = (struct proto_str){text, sizeof text - 1};
	req.n_stops = 1;
	req.stops[0] = (struct proto_str){"-", 1};
	const struct answer *a = run_one(&r, 1, &req);
	assert_int_equal(a->n_text, 4);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_STOPPED);
	run_stop(&r);
}

static void bad_constraints_are_refused(void **state)
{
	(void)state;
	static const struct {
		enum proto_constraint kind;
		const char *text;
	} bad[] = {
	    {PROTO_CONSTRAINT_JSON_SCHEMA, "{\"type\":"}, {PROTO_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"no such type\"}"},
	    {PROTO_CONSTRAINT_JSON_SCHEMA, "false"},      {PROTO_CONSTRAINT_REGEX, "(a"},
	    {PROTO_CONSTRAINT_REGEX, "(a)\\1"},           {PROTO_CONSTRAINT_GBNF, "root ::= nothing"},
	    {PROTO_CONSTRAINT_LARK, "start: %"},          {PROTO_CONSTRAINT_CHOICE, "[]"}};
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	run_start(&r, &cfg);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct proto_submit req = run_plain("x", 10);
		req.constraint_kind = (uint8_t)bad[i].kind;
		req.constraint = (struct proto_str){bad[i].text, strlen(bad[i].text)};
		const struct answer *a = run_one(&r, 1, &req);
		assert_int_equal(a->end.finish, PROTO_FINISH_ERROR);
		assert_int_equal(a->end.error, PROTO_ERR_BAD_CONSTRAINT);
		assert_true(strlen(a->message) > 10);
	}
	run_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(slow_masks_change_nothing),
	    cmocka_unit_test(hostile_constraints_hold_nobody_up),
	    cmocka_unit_test(same_in_any_company),
	    cmocka_unit_test(forced_tokens_take_no_steps),
	    cmocka_unit_test(begun_by_another_model),
	    cmocka_unit_test(several_choices),
	    cmocka_unit_test(cut_by_a_stop),
	    cmocka_unit_test(bad_constraints_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
