/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill and decode apart: one engine computes prompts, another one decodes. Answers have the bits of one engine
 * alone, whether all pages pass, some, or none; nothing is left in either engine or in the area between them.
 */
#include "engine_run.h"

#include <unistd.h>

#include "engine/handover/hand_area.h"
#include "engine/model/model.h"
#include "tests/support/part.h"
#include "tests/support/random_file.h"
#include "tests/support/tiny_gguf.h"

enum { N = 12, TOKENS = 12, PAGE = 16, AREA = 8 << 20 };

static char path[256];
static const char *backend = "cpu-ref";
static struct eng_model_config model[1];
static char prompts[N][1200];

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .backend = backend,
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = PAGE,
				   .kv_bytes = 8 << 20,
				   .max_sequences = 16,
				   .max_waiting = 64,
				   .step_tokens = 64,
				   .max_prompt_bytes = 1 << 20};
}

/* From less than a page to several chunks; half of them begin alike. */
static struct proto_submit request(int i)
{
	char *at = prompts[i];
	size_t length = 60 + (size_t)i * 37, n = 0;
	if (i % 2 == 0 && i > 0)
		n = (size_t)snprintf(at, sizeof prompts[i], "You are a careful helper who answers in one sentence. ");
	if (i == 0)
		snprintf(at, sizeof prompts[i], "Hi");
	else
		run_say(at, sizeof prompts[i], n, length, 0, (size_t)i);
	struct proto_submit req = run_plain(at, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 3 == 0 ? 0 : 0.8f;
	req.seed = 1000 + (uint64_t)i;
	req.tenant = (uint64_t)i % 3;
	return req;
}

static struct answer alone[N];

/* Two engines; the first one computes prompts. */
static struct split {
	int fd;
	struct hand_area *area;
	struct run prefill, decode;
} x;

static void start(uint64_t bytes)
{
	struct eng_config cfg = config();
	assert_int_equal(hand_area_make(bytes, 1u << 2, &x.fd), 0);
	assert_int_equal(hand_area_map(x.fd, &x.area), 0);
	cfg.hand_area = x.area;
	cfg.hand_number = 2;
	run_start(&x.prefill, &cfg);
	cfg.hand_number = 0;
	run_start(&x.decode, &cfg);
}

static void stop(void)
{
	run_stop(&x.decode);
	run_stop(&x.prefill); /* BUG if blocks of the area are left */
	hand_area_unmap(x.area);
	close(x.fd);
}

/* The prompt on the engine that computes. */
static void prefill(uint64_t id, const struct proto_submit *req, const struct proto_hand *hand)
{
	struct proto_submit only = *req;
	struct proto_hand offer = *hand;
	only.flags = PROTO_SUBMIT_PREFILL_ONLY;
	only.n_top_logprobs = 0;
	only.n = only.best_of = 1;
	offer.what = PROTO_HAND_OFFER;
	run_submit(&x.prefill, id, &only);
	engine_hand(x.prefill.e, id, &offer);
	run_credit(&x.prefill, id, 1);
}

/* The request on the engine that decodes, up to its credit. */
static struct proto_hand await(uint64_t id, const struct proto_submit *req, uint32_t wait_ms)
{
	run_submit(&x.decode, id, req);
	RUN_UNTIL(&x.decode, x.decode.answers[id].queued);
	struct proto_hand hand = {.what = PROTO_HAND_AWAIT,
				  .writer = 2,
				  .handle = 1000 + id,
				  .from = x.decode.answers[id].queued_as.n_cached,
				  .wait_ms = wait_ms};
	engine_hand(x.decode.e, id, &hand);
	return hand;
}

static const struct answer *finish(uint64_t id, const struct proto_submit *req)
{
	run_credit(&x.decode, id, req->max_tokens * req->n);
	return run_until_done(&x.decode, id);
}

static enum proto_handed_why why(const struct answer *a)
{
	assert_true(a->handed);
	return (enum proto_handed_why)a->handed_as.why;
}

/* Whole pages before the last token. */
static uint32_t whole(const struct answer *a) { return (a->end.n_prompt - 1) / PAGE; }

/* All prompt tokens but the last ones were computed by the other engine. */
static void computes_last_tokens_only(void)
{
	struct proto_stats s;
	run_until_idle(&x.decode);
	engine_stats(x.decode.e, &s);
	assert_in_range(s.prefill_tokens, 1, N * PAGE);
}

static void one_by_one(void **state)
{
	(void)state;
	start(AREA);
	for (int i = 1; i < N; i++) {
		struct proto_submit req = request(i);
		uint64_t id = (uint64_t)i;
		struct proto_hand hand = await(id, &req, 600000);
		prefill(id, &req, &hand);
		const struct answer *a = finish(id, &req);
		run_assert_same(a, &alone[i]);
		assert_int_equal(why(a), PROTO_HANDED_ALL);
		/* Those that it had are not handed over again. */
		assert_int_equal(a->handed_as.n_pages, whole(a) - hand.from / PAGE);
		/* Nor do those that came count as cached. */
		assert_in_range(a->end.n_cached, hand.from / PAGE * PAGE, hand.from);
		assert_int_equal(a->handed_as.bytes % (a->handed_as.n_pages > 0 ? a->handed_as.n_pages : 1), 0);
		run_until_done(&x.prefill, id);
	}
	computes_last_tokens_only();
	run_until_idle(&x.prefill);
	stop();
}

static void all_at_once(void **state)
{
	struct proto_hand hands[N];
	(void)state;
	start(AREA);
	for (int i = 1; i < N; i++) {
		struct proto_submit req = request(i);
		hands[i] = await((uint64_t)i, &req, 600000);
		run_credit(&x.decode, (uint64_t)i, TOKENS);
	}
	for (int i = 1; i < N; i++) {
		struct proto_submit req = request(i);
		prefill((uint64_t)i, &req, &hands[i]);
	}
	for (int i = 1; i < N; i++) {
		const struct answer *a = run_until_done(&x.decode, (uint64_t)i);
		run_assert_same(a, &alone[i]);
		assert_true(why(a) == PROTO_HANDED_ALL || why(a) == PROTO_HANDED_GONE);
	}
	run_until_idle(&x.decode);
	run_until_idle(&x.prefill);
	stop();
}

static void choices_wait_for_one_hand_over(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	struct proto_submit req = request(N - 1);
	req.n = req.best_of = 4;
	run_start(&r, &cfg);
	run_submit(&r, 1, &req);
	run_credit(&r, 1, 4 * TOKENS);
	const struct answer expect = *run_until_done(&r, 1);
	run_stop(&r);
	start(AREA);
	struct proto_hand hand = await(1, &req, 600000);
	run_credit(&x.decode, 1, 4 * TOKENS);
	prefill(1, &req, &hand);
	const struct answer *a = run_until_done(&x.decode, 1);
	assert_int_equal(run_assert_same_choices(a, &expect, 4), TOKENS);
	assert_int_equal(why(a), PROTO_HANDED_ALL);
	struct proto_stats s;
	run_until_idle(&x.decode);
	engine_stats(x.decode.e, &s);
	assert_true(s.prefill_tokens <= 4 * PAGE);
	stop();
}

/* Beside answers that are being made, a sequence starts in the step after its last page was seen, or the next one. */
static void decodes_go_on_beside(void **state)
{
	(void)state;
	start(AREA);
	struct proto_submit beside = request(1);
	beside.max_tokens = 400;
	for (uint64_t id = 100; id < 104; id++) {
		run_submit(&x.decode, id, &beside);
		run_credit(&x.decode, id, 1000);
	}
	RUN_UNTIL(&x.decode, x.decode.answers[103].n_tokens > 0);
	for (int i = 4; i < N; i++) {
		struct proto_submit req = request(i);
		uint64_t id = (uint64_t)i;
		struct proto_hand hand = await(id, &req, 600000);
		prefill(id, &req, &hand);
		const struct answer *a = finish(id, &req);
		run_assert_same(a, &alone[i]);
		assert_int_equal(why(a), PROTO_HANDED_ALL);
		assert_in_range(a->handed_as.steps, 0, 1);
	}
	for (uint64_t id = 100; id < 104; id++)
		engine_cancel(x.decode.e, id);
	for (uint64_t id = 100; id < 104; id++)
		run_until_done(&x.decode, id);
	stop();
}

/* Whatever happens instead, the answer is the same. */
static const struct answer *without(uint64_t id, int i, uint32_t wait_ms, bool over)
{
	struct proto_submit req = request(i);
	(void)await(id, &req, wait_ms);
	if (over)
		engine_hand(x.decode.e, id, &(struct proto_hand){.what = PROTO_HAND_OVER, .handle = 1000 + id});
	const struct answer *a = finish(id, &req);
	run_assert_same(a, &alone[i]);
	assert_int_equal(a->handed_as.n_pages, 0);
	return a;
}

static void nobody_offers(void **state)
{
	(void)state;
	start(AREA);
	assert_int_equal(why(without(1, 5, 1, false)), PROTO_HANDED_LATE);
	assert_int_equal(why(without(2, 7, 600000, true)), PROTO_HANDED_ENDED);
	assert_int_equal(why(without(3, 0, 600000, false)), PROTO_HANDED_UNFIT); /* less than a page */
	/* It is cancelled while it waits. */
	struct proto_submit req = request(9);
	(void)await(4, &req, 600000);
	run_credit(&x.decode, 4, 1);
	engine_cancel(x.decode.e, 4);
	assert_int_equal(run_until_done(&x.decode, 4)->end.finish, PROTO_FINISH_CANCELLED);
	run_until_idle(&x.decode);
	stop();
}

/* The engine that computes cancels, is full, or computes something else. */
static void what_comes_is_used(void **state)
{
	(void)state;
	start(sizeof(struct hand_head) + (HAND_LEAST_BLOCKS + 1) * DISK_BLOCK); /* a page has two blocks */
	struct proto_submit req = request(10);
	struct proto_hand hand = {.writer = 2, .handle = 500, .wait_ms = 600000};
	prefill(9, &req, &hand); /* which nobody takes */
	run_until_done(&x.prefill, 9);
	req = request(11);
	hand.handle = 1001;
	prefill(1, &req, &hand);
	run_until_done(&x.prefill, 1);
	assert_int_equal(await(1, &req, 600000).handle, hand.handle);
	const struct answer *a = finish(1, &req);
	run_assert_same(a, &alone[11]);
	assert_int_equal(why(a), PROTO_HANDED_FULL);
	assert_in_range(a->handed_as.n_pages, 1, whole(a) - 1);

	req = request(10);
	hand = await(2, &req, 600000);
	struct proto_submit only = req;
	only.flags = PROTO_SUBMIT_PREFILL_ONLY;
	only.n_top_logprobs = 0;
	run_submit(&x.prefill, 2, &only);
	engine_hand(x.prefill.e, 2, &(struct proto_hand){PROTO_HAND_OFFER, 2, hand.handle, 0, 600000});
	engine_cancel(x.prefill.e, 2);
	run_until_done(&x.prefill, 2);
	engine_hand(x.decode.e, 2, &(struct proto_hand){.what = PROTO_HAND_OVER, .handle = hand.handle});
	a = finish(2, &req);
	run_assert_same(a, &alone[10]);
	assert_int_equal(why(a), PROTO_HANDED_ENDED);

	/* Another tenant's pages have other names. */
	req = request(8);
	hand = await(3, &req, 600000);
	struct proto_submit other = req;
	other.tenant = 77;
	prefill(3, &other, &hand);
	a = finish(3, &req);
	run_assert_same(a, &alone[8]);
	assert_int_equal(why(a), PROTO_HANDED_FOREIGN);
	assert_int_equal(a->handed_as.n_pages, 0);
	run_until_idle(&x.prefill);
	run_until_idle(&x.decode);
	stop();
}

/* The engine that computes goes, and comes back: what waits for it goes on, and the next ones work. */
static void the_other_engine_restarts(void **state)
{
	(void)state;
	start(AREA);
	struct proto_submit req = request(7);
	struct proto_hand hand = await(1, &req, 600000);
	prefill(1, &req, &hand);
	run_until_done(&x.prefill, 1);
	run_stop(&x.prefill);
	struct eng_config cfg = config();
	cfg.hand_area = x.area;
	cfg.hand_number = 2;
	run_start(&x.prefill, &cfg);
	engine_hand(x.decode.e, 1, &(struct proto_hand){.what = PROTO_HAND_OVER, .handle = hand.handle});
	run_assert_same(finish(1, &req), &alone[7]);
	req = request(9);
	hand = await(2, &req, 600000);
	prefill(2, &req, &hand);
	const struct answer *a = finish(2, &req);
	run_assert_same(a, &alone[9]);
	assert_int_equal(why(a), PROTO_HANDED_ALL);
	stop();
}

/* Keys are stored rotated or not (engine.kv_rotation), so a page's key depends on that. */
static void keys_rotated_otherwise_are_not_taken(void **state)
{
	(void)state;
	start(AREA);
	run_stop(&x.prefill);
	struct eng_config cfg = config();
	cfg.hand_area = x.area;
	cfg.hand_number = 2;
	cfg.kv_rotation = MODEL_ROTATE_ON;
	run_start(&x.prefill, &cfg);
	struct proto_submit req = request(7);
	struct proto_hand hand = await(1, &req, 600000);
	prefill(1, &req, &hand);
	const struct answer *a = finish(1, &req);
	run_assert_same(a, &alone[7]);
	assert_int_equal(why(a), PROTO_HANDED_FOREIGN);
	run_until_done(&x.prefill, 1);
	stop();
}

/* The decoding engine has a tier on disk: what was handed over is written, and after a restart a longer text has its
 * beginning from there and only the rest from the other engine. */
static void beside_a_tier_on_disk(void **state)
{
	char folder[300], command[400];
	struct proto_stats s;
	(void)state;
	start(AREA);
	run_stop(&x.decode);
	snprintf(folder, sizeof folder, "%s/kv", dir);
	struct eng_config cfg = config();
	cfg.hand_area = x.area;
	cfg.kv_disk = folder;
	cfg.kv_disk_bytes = 64 << 20;
	cfg.kv_disk_always = true;
	run_start(&x.decode, &cfg);
	struct proto_submit req = request(11), begin = req;
	begin.prompt.n = 10 * PAGE; /* its beginning alone */
	struct proto_hand hand = await(1, &begin, 600000);
	prefill(1, &begin, &hand);
	const struct answer *a = finish(1, &begin);
	assert_int_equal(why(a), PROTO_HANDED_ALL);
	uint32_t n_whole = whole(a);
	run_until_done(&x.prefill, 1);
	run_stop(&x.decode); /* writes what is queued */
	run_start(&x.decode, &cfg);
	do {
		usleep(1000);
		engine_stats(x.decode.e, &s);
	} while (s.kv_disk_pages < n_whole);
	hand = await(2, &req, 600000);
	assert_in_range(hand.from, n_whole * PAGE, n_whole * PAGE + PAGE);
	prefill(2, &req, &hand);
	run_until_done(&x.prefill, 2);
	usleep(20000); /* the decoding engine sees that nothing more comes */
	a = finish(2, &req);
	run_assert_same(a, &alone[11]);
	assert_int_equal(why(a), PROTO_HANDED_ALL);
	assert_int_equal(a->handed_as.n_pages, whole(a) - hand.from / PAGE);
	engine_stats(x.decode.e, &s);
	assert_true(s.kv_disk_hits[0] >= n_whole);
	stop();
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

enum { SOME = PART_OF(8) };

/* The model of `path` is another one from now on, with its own answers: SOME of them. */
static void use(const char *shape, int n_layers, int window)
{
	struct model_arch a = random_arch(shape);
	for (const struct kn_ops *const *ops = kn_available(); *ops != NULL; ops++)
		backend = (*ops)->name; /* the fastest one: these are larger */
	struct eng_config cfg = config();
	if (n_layers > 0)
		a.n_layers = n_layers;
	if (window > 0)
		a.window = window;
	random_file_of("model.gguf", &a, "q8_0", 5, 2);
	md_path(path, dir, "model.gguf");
	run_each_alone(&cfg, SOME, request, alone);
}

static const struct answer *hand_over(int i, uint64_t id)
{
	struct proto_submit req = request(i);
	struct proto_hand hand = await(id, &req, 600000);
	prefill(id, &req, &hand);
	const struct answer *a = finish(id, &req);
	run_assert_same(a, &alone[i]);
	return a;
}

/* Some layers windowed, over a part of a page and over several, and all of them. The engine that computes has some of
 * the prompts in its tree already, where pages of windowed groups are gone. */
static void groups_of_layers(void **state)
{
	static const struct {
		const char *shape;
		int n_layers, window;
	} cases[] = {{"tiny-gemma3", 6, 70}, {"tiny-gemma2", 4, 9}, {"tiny-mistral", 3, 50}};
	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		use(cases[k].shape, cases[k].n_layers, cases[k].window);
		start(AREA);
		for (int i = 1; i < SOME; i++)
			assert_int_equal(why(hand_over(i, (uint64_t)i)), PROTO_HANDED_ALL);
		computes_last_tokens_only();
		/* Again, where only the first engine has them. */
		stop();
		start(AREA);
		for (int i = SOME / 2; i < SOME; i++) {
			struct proto_submit only = request(i);
			only.flags = PROTO_SUBMIT_PREFILL_ONLY;
			only.n_top_logprobs = 0;
			run_submit(&x.prefill, (uint64_t)i, &only);
			run_credit(&x.prefill, (uint64_t)i, 1);
			run_until_done(&x.prefill, (uint64_t)i);
		}
		for (int i = SOME / 2; i < SOME; i++)
			assert_int_equal(why(hand_over(i, (uint64_t)i + 100)), PROTO_HANDED_ALL);
		computes_last_tokens_only();
		run_until_idle(&x.prefill);
		stop();
	}
}

static void recurrent_layers_can_not(void **state)
{
	struct proto_model info;
	(void)state;
	use("tiny-qwen3.5", 0, 0);
	start(AREA);
	engine_model_info(x.decode.e, 0, &info);
	assert_int_equal(info.does & PROTO_DOES_HAND_OVER, 0);
	const struct answer *a = hand_over(SOME - 1, 1);
	assert_int_equal(why(a), PROTO_HANDED_UNFIT);
	run_until_done(&x.prefill, 1);
	stop();
}

/* Without a prefix tree there is nowhere to put pages; the sequence is told at once. */
static void engines_that_can_not(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	assert_int_equal(hand_area_make(AREA, 1u << 2, &x.fd), 0);
	assert_int_equal(hand_area_map(x.fd, &x.area), 0);
	cfg.hand_area = x.area;
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	struct proto_model info;
	engine_model_info(r.e, 0, &info);
	assert_int_equal(info.does & PROTO_DOES_HAND_OVER, 0);
	struct proto_submit req = request(5);
	run_submit(&r, 1, &req);
	RUN_UNTIL(&r, r.answers[1].queued);
	engine_hand(r.e, 1, &(struct proto_hand){PROTO_HAND_AWAIT, 2, 9, 0, 600000});
	run_credit(&r, 1, TOKENS);
	const struct answer *a = run_until_done(&r, 1);
	run_assert_same(a, &alone[5]);
	assert_int_equal(why(a), PROTO_HANDED_UNFIT);
	run_stop(&r);
	hand_area_unmap(x.area);
	close(x.fd);
}

int main(void)
{
	snprintf(path, sizeof path, "/tmp/sluice-tiny-hand-%d.gguf", (int)getpid());
	if (!tiny_gguf_write(path, 1))
		return 1;
	model[0] = (struct eng_model_config){.name = "small", .path = path};
	struct eng_config cfg = config();
	run_each_alone(&cfg, N, request, alone);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_by_one),
	    cmocka_unit_test(all_at_once),
	    cmocka_unit_test(choices_wait_for_one_hand_over),
	    cmocka_unit_test(decodes_go_on_beside),
	    cmocka_unit_test(nobody_offers),
	    cmocka_unit_test(what_comes_is_used),
	    cmocka_unit_test(the_other_engine_restarts),
	    cmocka_unit_test(keys_rotated_otherwise_are_not_taken),
	    cmocka_unit_test(engines_that_can_not),
	    cmocka_unit_test(beside_a_tier_on_disk),
	    cmocka_unit_test(groups_of_layers), /* the last ones: with other models */
	    cmocka_unit_test(recurrent_layers_can_not),
	};
	int rc = cmocka_run_group_tests(tests, setup, teardown);
	unlink(path);
	return rc;
}
