/* SPDX-License-Identifier: Apache-2.0
 *
 * A few kinds of steps, each several times in turns: single rows of one and of several sequences, and chunks of a
 * prompt, at the beginning of a context and far into it. The least time of each kind counts, since other processes only
 * add to it. struct plan_curve fits them; struct cost begins as it does in the engine.
 */
#include "cmd/plan/plan_costs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/plan/model_steps.h"
#include "engine/sample/sampler.h"

enum { SEQS = 16, FAR = 768, ROUNDS = 3, MOST_ROUNDS = 24, DRAWS = 16, ENGINE_ROWS = 128, MOST_KV_BYTES = 512 << 20 };

static const uint64_t enough_ns = NS_PER_S;

struct shape {
	int n_rows, past;
	bool prompt;
};

/* Dense where kernels change their form. */
static const struct shape shapes[] = {
    {1, 8, false}, {2, 8, false},  {3, 8, false},  {4, 8, false},        {6, 8, false},
    {8, 8, false}, {12, 8, false}, {16, 8, false}, {1, FAR, false},      {8, FAR, false},
    {16, 0, true}, {24, 0, true},  {32, 0, true},  {48, 0, true},        {64, 0, true},
    {96, 0, true}, {128, 0, true}, {256, 0, true}, {32, FAR - 32, true}, {128, FAR - 128, true},
};
enum { N_KINDS = sizeof shapes / sizeof *shapes };

struct kind {
	struct shape shape;
	double least_ns;
};

static int time_all(struct model_steps *x, struct kind *kinds, struct sl_err *err)
{
	uint64_t began = clock_now_ns();
	for (int round = 0; round < ROUNDS || (round < MOST_ROUNDS && clock_now_ns() - began < enough_ns); round++) {
		for (int i = 0; i < N_KINDS; i++) {
			struct kind *k = &kinds[i];
			double ns = k->shape.prompt ? model_steps_prompt_ns(x, k->shape.past, k->shape.n_rows, true)
						    : model_steps_answer_ns(x, k->shape.n_rows, k->shape.past);
			if (ns == 0)
				return sl_errf(err, SL_EIO, "a step failed");
			if (round > 0) /* the first brings weights into memory */
				k->least_ns = k->least_ns == 0 || ns < k->least_ns ? ns : k->least_ns;
		}
	}
	return 0;
}

static struct plan_step step_of(const struct kind *k)
{
	const uint32_t rows = (uint32_t)k->shape.n_rows, n_seqs = k->shape.prompt ? 1 : rows;
	const uint32_t past = (uint32_t)k->shape.past, each = rows / n_seqs;
	const double positions = n_seqs * (double)cost_positions(past, each), reads = n_seqs * ((double)past + each);
	return (struct plan_step){rows, n_seqs, {.positions = positions, .reads = reads}, k->least_ns};
}

/* An engine begins with a line through a step of one row and one of ENGINE_ROWS (engine/core/load.c). */
static void learn(const struct kind *kinds, struct plan_costs *out)
{
	struct plan_step steps[N_KINDS];
	for (int k = 0; k < N_KINDS; k++)
		steps[k] = step_of(&kinds[k]);
	plan_curve_fit(&out->curve, steps, N_KINDS);
	const struct plan_step few = {.rows = 1}, many = {.rows = ENGINE_ROWS};
	const double one = plan_curve_ns(&out->curve, &few), all = plan_curve_ns(&out->curve, &many);
	const double row = all > one ? (all - one) / (ENGINE_ROWS - 1) : one / 2;
	cost_init(&out->cost, one > row ? one - row : 0, row);
}

/* What it takes to draw a token from logits, at a temperature of 1: the usual one. */
static int time_draws(const struct model_steps *x, double *out, struct sl_err *err)
{
	const struct sampler_params p = {
	    .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .seed = 1};
	struct sampler_scratch scratch = {0};
	struct sampler_choice choice;
	const int n_vocab = model_info(x->m)->arch.n_vocab;
	if (sampler_scratch_reserve(&scratch, n_vocab) != 0)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < DRAWS; i++) {
		const uint64_t began = clock_now_ns();
		sampler_draw(&p, &(struct sampler_state){0}, x->logits, n_vocab, i, &scratch, &choice);
		const double ns = (double)(clock_now_ns() - began);
		*out = i == 0 || ns < *out ? ns : *out;
	}
	sampler_scratch_dispose(&scratch);
	return 0;
}

/* The other process. It ends with this one. */
static void run_beside(const char *path, const char *kv, int n_threads, int ready)
{
	struct model_steps x;
	struct sl_err err = {0};
	const struct model_how how = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int rc = model_steps_open(&x, path, &how, kv, n_threads, 1, FAR + 1, &err);
	if (write(ready, rc == 0 ? "+" : "-", 1) != 1 || rc != 0)
		_exit(1);
	for (int i = 0;; i++)
		if (model_steps_answer_ns(&x, 1, i % FAR) == 0)
			_exit(1);
}

static pid_t start_beside(const char *path, const char *kv, int n_threads, struct sl_err *err)
{
	int ends[2];
	char word = '-';
	if (pipe(ends) != 0)
		return (pid_t)sl_errf(err, SL_EIO, "pipe: %s", strerror(errno));
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		run_beside(path, kv, n_threads, ends[1]);
	}
	close(ends[1]);
	bool good = pid > 0 && read(ends[0], &word, 1) == 1 && word == '+';
	close(ends[0]);
	if (good)
		return pid;
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return (pid_t)sl_errf(err, SL_EIO, "%s: a second process could not load it", path);
}

static int measure(const char *path, const char *kv, int n_threads, struct plan_costs *out, struct sl_err *err)
{
	struct model_steps x = {0};
	struct kind kinds[N_KINDS] = {0};
	const struct model_how how = {0};
	for (int i = 0; i < N_KINDS; i++)
		kinds[i].shape = shapes[i];
	int rc = model_steps_open(&x, path, &how, kv, n_threads, SEQS, FAR + 1, err);
	if (rc == 0 && x.kv_bytes * SEQS * FAR > MOST_KV_BYTES)
		rc = sl_errf(err, SL_ELIMIT, "%s: %.0f bytes of keys and values per token are too many for this", path,
			     x.kv_bytes);
	if (rc == 0)
		rc = time_all(&x, kinds, err);
	if (rc == 0) {
		learn(kinds, out);
		rc = time_draws(&x, &out->draw_ns, err);
		out->kv_bytes = x.kv_bytes;
		out->n_ctx = model_info(x.m)->arch.n_ctx;
	}
	model_steps_close(&x);
	return rc;
}

int plan_costs_measure(const char *path, const char *kv, int n_threads, int n_beside, struct plan_costs *out,
		       struct sl_err *err)
{
	*out = (struct plan_costs){0};
	pid_t beside = n_beside > 0 ? start_beside(path, kv, n_beside, err) : 0;
	if (beside < 0)
		return SL_EIO;
	int rc = measure(path, kv, n_threads, out, err);
	if (beside > 0) {
		kill(beside, SIGKILL);
		waitpid(beside, NULL, 0);
	}
	return rc;
}
