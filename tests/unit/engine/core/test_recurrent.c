/* SPDX-License-Identifier: Apache-2.0
 *
 * Models some of whose layers keep a state, with random weights: short convolutions, the gated delta rule and state
 * spaces, dense and with experts. Every answer is, bit for bit, the one of the request alone with nothing computed
 * before: in batches, in other chunks and pages, after hits (whole, in part, of snapshots), pre-empted, with drafts,
 * several choices and beams, on one thread and on two. A conversation goes on from its last turn each time. More of
 * states: tests/sim/test_states_sim.c.
 */
#include "crowd_run.h"

#include "base/log.h"
#include "engine/kv/kv.h"
#include "tests/support/random_file.h"

/* Bytes for 36 pages for six sequences, and six snapshots, or as many as half of the memory holds. */
static uint64_t scarce(const struct model_arch *a)
{
	uint64_t page = kv_page_bytes(KN_F16, CROWD_PAGE, arch_n_attending(a, a->n_layers), a->n_kv_heads, a->head_dim);
	uint64_t pages = 36 * page, states = 6 * arch_state(a) * sizeof(float);
	return 2 * states <= pages ? pages + 2 * states : states <= pages ? 2 * pages : pages + states;
}

/* Choices and beams: the same as alone. */
static void forks(void)
{
	static struct answer expect[2];
	for (int how = 0; how < 3; how++) {
		struct run r;
		struct eng_config cfg = crowd_config();
		cfg.no_prefix_cache = how == 0;
		cfg.step_tokens = how == 2 ? 13 : 128;
		cfg.n_threads = how == 2 ? 2 : 1;
		run_start(&r, &cfg);
		for (int i = 10; i < 16 && how > 0; i++) {
			struct proto_submit req = crowd_request(i);
			run_submit(&r, (uint64_t)i, &req);
			run_credit(&r, (uint64_t)i, CROWD_TOKENS);
		}
		for (int kind = 0; kind < 2; kind++) {
			struct proto_submit req = run_plain("Which of these is the better one, and why is it so?", 20);
			req.flags |= PROTO_SUBMIT_IGNORE_EOS;
			req.temperature = kind == 0 ? 0.9f : 0;
			req.n = req.best_of = kind == 0 ? 4 : 3;
			req.beam_width = kind == 0 ? 0 : 5;
			run_submit(&r, (uint64_t)kind + 1, &req);
			run_credit(&r, (uint64_t)kind + 1, 1000);
		}
		for (int kind = 0; kind < 2; kind++) {
			const struct answer *a = run_until_done(&r, (uint64_t)kind + 1);
			assert_int_not_equal(a->end.finish, PROTO_FINISH_ERROR);
			if (how == 0)
				expect[kind] = *a;
			else
				assert_true(run_assert_same_choices(a, &expect[kind], kind == 0 ? 4 : 3) > 0);
		}
		for (uint64_t i = 10; i < 16 && how > 0; i++)
			run_until_done(&r, i);
		run_until_idle(&r);
		run_stop(&r);
	}
}

/* A model that is its own small one: its drafts are what it says next, but for penalties, and answers stay. */
static void drafts_for_itself(const struct answer *expect)
{
	const struct eng_model_config both[] = {
	    {.name = "large", .path = crowd_model[0].path, .role = PROTO_ROLE_LARGE},
	    {.name = "small", .path = crowd_model[0].path, .role = PROTO_ROLE_SMALL}};
	struct eng_config cfg = crowd_config();
	int n = crowd_n;
	cfg.models = both;
	cfg.n_models = 2;
	cfg.max_sequences = 6;
	cfg.spec_mode = ENG_SPEC_DRAFT;
	cfg.spec_max_draft = 5;
	cfg.spec_fixed = true;
	crowd_n = 12;
	struct proto_stats s = crowd_together(&cfg, expect, 1);
	crowd_n = n;
	print_message("%llu of %llu of its own drafts accepted; ", (unsigned long long)s.spec_accepted,
		      (unsigned long long)s.spec_drafted);
	assert_true(s.spec_drafted > 50 && s.spec_accepted * 10 > s.spec_drafted * 9);
}

enum { TURNS = 50, FEW_TURNS = 10 };

/* Turns, with others between: each turn computes no more than what is new and what is left of a page. */
static void conversation(int turns)
{
	struct run r;
	struct eng_config cfg = crowd_config();
	static char text[8000];
	size_t n = (size_t)snprintf(text, sizeof text, "Once upon a time there was a box with two cores. ");
	uint32_t before = 0;
	run_start(&r, &cfg);
	for (int turn = 0; turn < turns; turn++) {
		struct proto_submit req = run_plain(text, 6);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		const struct answer *a = run_one(&r, (uint64_t)turn + 1, &req);
		/* Where the last answer's bytes are other tokens in the prompt, the prompt's border still counts. */
		if (turn > 0 && a->end.n_cached < before / CROWD_PAGE * CROWD_PAGE)
			fail_msg("turn %d: %u of %u tokens were there", turn, a->end.n_cached, before);
		before = a->end.n_prompt - 1;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s And then, %d? ", a->n_text > 0 ? "ok" : "", turn);
		struct proto_submit other = crowd_request(turn % crowd_n);
		(void)run_one(&r, TURNS + 1, &other);
	}
	run_stop(&r);
}

static void as_alone(void **state)
{
	(void)state;
	static const struct {
		const char *shape;
		int n_most, n_requests,
		    n_turns; /* of each kind of layer one long conversation; with THOROUGH all are */
	} cases[] = {{"tiny-lfm2-2", CROWD_MOST, 40, TURNS},   {"tiny-lfm2moe", 32, 16, FEW_TURNS},
		     {"tiny-qwen3.5", 48, 20, TURNS},          {"tiny-qwen3.5moe", 32, 16, FEW_TURNS},
		     {"tiny-qwen3next", 32, 16, FEW_TURNS},    {"tiny-granite4moe", 24, 16, TURNS},
		     {"tiny-nemotron-h-2", 16, 16, FEW_TURNS}, {"tiny-nemotron3-2", 16, 16, FEW_TURNS}};
	const bool thorough = getenv("THOROUGH") != NULL;
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	char path[256];
	uint64_t n_accepted = 0, n_drafted = 0;
	assert_non_null(expect);
	md_path(path, dir, "model.gguf");
	crowd_model[0].path = path;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_arch a = random_arch(cases[i].shape);
		a.n_ctx = 4096;
		random_file_of("model.gguf", &a, "q8_0", 5, 2);
		crowd_n = thorough ? cases[i].n_most : cases[i].n_requests;
		crowd_cached = 0;
		struct eng_config cfg = crowd_config();
		crowd_alone(&cfg, expect);
		struct proto_stats s = crowd_in_every_way(expect, 5, scarce(&a), 6); /* 5: no power of two */
		forks();
		conversation(thorough ? TURNS : cases[i].n_turns);
		drafts_for_itself(expect);
		print_message("%llu of %llu of drafts accepted; ", (unsigned long long)s.spec_accepted,
			      (unsigned long long)s.spec_drafted);
		crowd_assert_cached(cases[i].shape);
		assert_true(s.spec_accepted > 0);
		n_accepted += s.spec_accepted;
		n_drafted += s.spec_drafted;
	}
	/* Of all: which drafts a run makes depends on when its requests come, and some shapes hardly err. */
	assert_true(n_accepted < n_drafted);
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_alone)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, setup, teardown);
}
