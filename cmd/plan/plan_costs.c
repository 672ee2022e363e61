/* SPDX-License-Identifier: Apache-2.0
 *
 * A few kinds of steps, each several times in turns: single rows of one and of several sequences, and chunks of a
 * prompt, at the beginning of a context and far into it. The least time of each kind counts, since other processes only
 * add to it. struct cost fits them and reads between them, as it does in the engine.
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

enum { SEQS = 16, FAR = 768, ROUNDS = 3, MOST_ROUNDS = 12, WEIGHT = 8, MOST_KV_BYTES = 512 << 20 };

static const uint64_t enough_ns = 500 * NS_PER_MS;

struct kind {
	int n_rows, past;
	bool prompt;
	double least_ns;
};

/* FAR is replaced by what the memory allows. */
static const struct kind all_kinds[] = {
    {1, 8, false, 0}, {1, FAR, false, 0},       {2, 8, false, 0},    {4, 8, false, 0},
    {8, 8, false, 0}, {8, FAR, false, 0},       {SEQS, 8, false, 0}, {16, 0, true, 0},
    {64, 0, true, 0}, {64, FAR - 256, true, 0}, {256, 0, true, 0},   {256, FAR - 256, true, 0},
};
enum { N_KINDS = sizeof all_kinds / sizeof *all_kinds };

static int time_all(struct model_steps *x, struct kind *kinds, struct sl_err *err)
{
	uint64_t began = clock_now_ns();
	for (int round = 0; round < ROUNDS || (round < MOST_ROUNDS && clock_now_ns() - began < enough_ns); round++) {
		for (int i = 0; i < N_KINDS; i++) {
			struct kind *k = &kinds[i];
			double ns = k->prompt ? model_steps_prompt_ns(x, k->past, k->n_rows, true)
					      : model_steps_answer_ns(x, k->n_rows, k->past);
			if (ns == 0)
				return sl_errf(err, SL_EIO, "a step failed");
			if (round > 0) /* the first brings weights into memory */
				k->least_ns = k->least_ns == 0 || ns < k->least_ns ? ns : k->least_ns;
		}
	}
	return 0;
}

static void learn(const struct kind *kinds, struct cost *out)
{
	double one = kinds[0].least_ns, many = kinds[N_KINDS - 2].least_ns;
	double row = many > one ? (many - one) / (kinds[N_KINDS - 2].n_rows - 1) : one / 2;
	cost_init(out, one > row ? one - row : 0, row);
	for (int k = 0; k < WEIGHT * N_KINDS; k++) {
		const struct kind *i = &kinds[k % N_KINDS];
		const int n_seqs = i->prompt ? 1 : i->n_rows, n = i->prompt ? i->n_rows : 1;
		const struct cost_past past = {.positions =
						   n_seqs * (double)cost_positions((uint64_t)i->past, (uint64_t)n),
					       .reads = (double)n_seqs * (i->past + n)};
		cost_learn(out, (uint32_t)i->n_rows, past, i->least_ns);
	}
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
	struct kind kinds[N_KINDS];
	const struct model_how how = {0};
	memcpy(kinds, all_kinds, sizeof kinds);
	int rc = model_steps_open(&x, path, &how, kv, n_threads, SEQS, FAR + 1, err);
	if (rc == 0 && x.kv_bytes * SEQS * FAR > MOST_KV_BYTES)
		rc = sl_errf(err, SL_ELIMIT, "%s: %.0f bytes of keys and values per token are too many for this", path,
			     x.kv_bytes);
	if (rc == 0)
		rc = time_all(&x, kinds, err);
	if (rc == 0) {
		learn(kinds, &out->cost);
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
