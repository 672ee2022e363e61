/* SPDX-License-Identifier: Apache-2.0
 *
 * Models some of whose layers keep a state, with random weights: short convolutions and the gated delta rule, dense and
 * with experts. Every answer is, bit for bit, the one of the request alone with nothing computed before: in batches, in
 * other chunks and pages, after hits (whole, in part, of snapshots), pre-empted, with drafts, several choices and
 * beams, on one thread and on two. A conversation goes on from its last turn each time. More of states:
 * tests/sim/test_states_sim.c.
 */
#include "engine_run.h"

#include <unistd.h>

#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/source/random_model.h"
#include "kernels/kv_type.h"

enum { MOST = 200, TOKENS = 16, PAGE = 16 };

static struct eng_model_config model[] = {{.name = "recurrent"}};
static char prompts[MOST][700];
static int n_requests;
/* Of all runs: tokens that were not computed; tokens of drafts, and those accepted. */
static uint64_t n_cached, n_drafted, n_accepted;

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .kv_type = "f16",
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = PAGE,
				   .kv_bytes = 64 << 20,
				   .max_sequences = 24,
				   .max_waiting = 2 * MOST,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* Some begin alike, for longer and shorter; every tenth is one of before. */
static struct proto_submit request(int i)
{
	int as = i % 10 == 9 ? i / 2 : i;
	char *at = prompts[i];
	run_say(at, sizeof prompts[i], 0, 10 + (size_t)(as * 97) % 450, (size_t)(as % 4) * 100, (size_t)as);
	struct proto_submit req = run_plain(at, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = as % 3 == 0 ? 0 : 0.8f;
	req.seed = 1000 + (uint64_t)as;
	req.tenant = (uint64_t)as % 2;
	return req;
}

static void each_alone(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config();
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	for (int i = 0; i < n_requests; i++) {
		struct proto_submit req = request(i);
		out[i] = *run_one(&r, 1, &req);
		assert_int_equal(out[i].n_tokens, TOKENS);
	}
	run_stop(&r);
}

/* All of them; in a second round much of each prompt is there. Returns the pre-emptions. */
static uint64_t all_at_once(const struct eng_config *cfg, const struct answer *expect, int n_rounds)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	for (int round = 0; round < n_rounds; round++) {
		for (int i = 0; i < n_requests; i++) {
			struct proto_submit req = request(i);
			req.priority = (uint8_t)(i % 4); /* the better ones take from the worse */
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, i % 5 == 0 ? TOKENS / 2 : TOKENS);
		}
		for (int i = 0; i < n_requests; i += 5)
			run_credit(&r, (uint64_t)i + 1, TOKENS);
		for (int i = 0; i < n_requests; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
			n_cached += r.answers[i + 1].end.n_cached;
		}
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	n_drafted += s.spec_drafted;
	n_accepted += s.spec_accepted;
	run_stop(&r);
	return s.preemptions;
}

static void check(struct answer *expect, const struct model_arch *a)
{
	struct eng_config cfg = config();
	each_alone(expect);
	(void)all_at_once(&cfg, expect, 2);
	cfg.max_sequences = 8;
	cfg.step_tokens = 17;
	cfg.n_threads = 2;
	(void)all_at_once(&cfg, expect, 1);
	cfg = config();
	cfg.page_tokens = 5; /* no power of two */
	cfg.spec_mode = ENG_SPEC_NGRAM;
	cfg.spec_max_draft = 8;
	cfg.spec_fixed = true;
	(void)all_at_once(&cfg, expect, 1);
	/* 36 pages for six sequences, and six snapshots, or as many as half of the memory holds. */
	cfg = config();
	uint64_t page =
	    kv_page_bytes(KN_F16, PAGE, a->n_layers - arch_n_recurrent(a, a->n_layers), a->n_kv_heads, a->head_dim);
	cfg.max_sequences = 6;
	uint64_t pages = 36 * page, states = 6 * arch_state(a) * sizeof(float);
	cfg.kv_bytes = 2 * states <= pages ? pages + 2 * states : states <= pages ? 2 * pages : pages + states;
	assert_true(all_at_once(&cfg, expect, 1) > 0);
}

/* Choices and beams: the same as alone. */
static void forks(void)
{
	static struct answer expect[2];
	for (int how = 0; how < 3; how++) {
		struct run r;
		struct eng_config cfg = config();
		cfg.no_prefix_cache = how == 0;
		cfg.step_tokens = how == 2 ? 13 : 128;
		cfg.n_threads = how == 2 ? 2 : 1;
		run_start(&r, &cfg);
		for (int i = 10; i < 16 && how > 0; i++) {
			struct proto_submit req = request(i);
			run_submit(&r, (uint64_t)i, &req);
			run_credit(&r, (uint64_t)i, TOKENS);
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
			static int32_t x[RUN_TOKENS], y[RUN_TOKENS];
			static float p[RUN_TOKENS], q[RUN_TOKENS];
			assert_int_not_equal(a->end.finish, PROTO_FINISH_ERROR);
			if (how == 0) {
				expect[kind] = *a;
				continue;
			}
			for (uint8_t i = 0; i < (kind == 0 ? 4 : 3); i++) {
				uint32_t n = run_choice(a, i, x, p);
				assert_true(n > 0 && n == run_choice(&expect[kind], i, y, q));
				assert_memory_equal(x, y, n * sizeof *x);
				assert_memory_equal(p, q, n * sizeof *p);
			}
		}
		for (uint64_t i = 10; i < 16 && how > 0; i++)
			run_until_done(&r, i);
		run_until_idle(&r);
		run_stop(&r);
	}
}

enum { TURNS = 50 };

/* Fifty turns, with others between: each turn computes no more than what is new and what is left of a page. */
static void conversation(void)
{
	struct run r;
	struct eng_config cfg = config();
	static char text[8000];
	size_t n = (size_t)snprintf(text, sizeof text, "Once upon a time there was a box with two cores. ");
	uint32_t before = 0;
	run_start(&r, &cfg);
	for (int turn = 0; turn < TURNS; turn++) {
		struct proto_submit req = run_plain(text, 6);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		const struct answer *a = run_one(&r, (uint64_t)turn + 1, &req);
		/* Where the last answer's bytes are other tokens in the prompt, the prompt's border still counts. */
		if (turn > 0 && a->end.n_cached < before / PAGE * PAGE)
			fail_msg("turn %d: %u of %u tokens were there", turn, a->end.n_cached, before);
		before = a->end.n_prompt - 1;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s And then, %d? ", a->n_text > 0 ? "ok" : "", turn);
		struct proto_submit other = request(turn % n_requests);
		(void)run_one(&r, TURNS + 1, &other);
	}
	run_stop(&r);
}

static void as_alone(void **state)
{
	(void)state;
	static const struct {
		const char *shape;
		int n_requests;
	} cases[] = {{"tiny-lfm2-2", MOST},
		     {"tiny-lfm2moe", 32},
		     {"tiny-qwen3.5", 48},
		     {"tiny-qwen3.5moe", 32},
		     {"tiny-qwen3next", 32}};
	struct answer *expect = calloc(MOST, sizeof *expect);
	assert_non_null(expect);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char path[] = "/tmp/sluice-recurrent-XXXXXX";
		struct sl_err err = {0};
		struct random_model m = {.path = path, .name = "recurrent", .seed = 5, .n_threads = 2};
		int fd = mkstemp(path);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(random_shape_find(cases[i].shape, &m.arch, &err), 0);
		m.arch.n_ctx = 4096;
		assert_int_equal(weight_plan_parse("q8_0", &m.plan, &err), 0);
		if (random_model_write(&m, NULL, &err) != 0)
			fail_msg("%s", err.text);
		model[0].path = path;
		n_requests = cases[i].n_requests;
		n_cached = n_drafted = n_accepted = 0;
		check(expect, &m.arch);
		forks();
		conversation();
		print_message("%s: %d requests, %llu tokens were there, %llu of %llu of drafts accepted\n",
			      cases[i].shape, cases[i].n_requests, (unsigned long long)n_cached,
			      (unsigned long long)n_accepted, (unsigned long long)n_drafted);
		assert_true(n_accepted > 0 && n_accepted < n_drafted);
		assert_true(n_cached > 40u * (unsigned)n_requests);
		unlink(path);
	}
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_alone)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
