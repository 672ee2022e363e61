/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench machine` and `sluice bench model`: the machine's peak rates, and how close a model's steps come to
 * them, without an engine. A prompt is the rows of one sequence in chunks; an answer is one row for each of several
 * sequences. Speeds are relative to peak rates measured just before. `machine FILE` measures all kinds of steps in
 * turns, so that a disturbance of the machine affects all of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_gpu.h"
#include "cmd/config/cmd.h"
#include "cmd/plan/model_steps.h"
#include "engine/model/weight_cache.h"
#include "kernels/ceiling.h"
#include "kernels/kv_type.h"

enum { MAX_BATCHES = 16, MAX_REPEAT = 99 };

static int n_processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (int)n : 1;
}

/* ---- a model ---- */

struct bench {
	struct model_steps s;
	double state_bytes; /* of a sequence */
	struct weight_cache_config cache;
	double weight_bytes; /* read in every step; expert_bytes: all experts', of which a row touches a share */
	double expert_bytes, expert_share;
	double step_ops; /* per row, without attention; a multiply-add is two */
	double head_ops; /* of step_ops: the output head's, which a prompt needs once */
};

/* weights: cache folder for rearranged weights; NULL: none. */
static int bench_open(struct bench *x, const char *path, const char *kv, const char *weights, int n_threads, int n_seqs,
		      int context)
{
	struct sl_err err = {0};
	x->cache = (struct weight_cache_config){.folder = weights, .max_bytes = UINT64_MAX, .n_threads = n_threads};
	const struct model_how how = {.cache = weights != NULL ? &x->cache : NULL};
	if (model_steps_open(&x->s, path, &how, kv, n_threads, n_seqs, context, &err) != 0)
		return bench_complain(1, "%s", err.text);
	const struct model_info *info = model_info(x->s.m);
	const struct model_arch *a = &info->arch;
	x->state_bytes = (double)arch_state(a) * sizeof(float);
	/* A step reads one row of the embedding per token; if tied, all of it as the output head. */
	double embed = (double)a->n_vocab * a->n_embd;
	x->expert_share = a->experts.n > 0 ? (double)a->experts.n_used / a->experts.n : 0;
	x->expert_bytes = (double)info->expert_bytes;
	x->step_ops = 2 * ((double)info->n_params - (a->tied_embeddings ? 0 : embed) -
			   (1 - x->expert_share) * (double)info->n_expert_params);
	x->head_ops = 2 * embed;
	x->weight_bytes =
	    (double)(info->file_bytes - (a->tied_embeddings ? 0 : info->embed_bytes) - info->expert_bytes);
	return 0;
}

/* Bytes of weights and states that a step of n rows reads; of experts, as many as n rows touch that choose
 * independently. */
static double bytes_read(const struct bench *x, int n)
{
	return x->weight_bytes + n * x->state_bytes + x->expert_bytes * (1 - pow(1 - x->expert_share, n));
}

/* Seconds for a prompt of n tokens; 0: it failed. */
static double prompt_s(struct bench *x, int n)
{
	double sum = 0, ns;
	for (int from = 0; from < n; from += STEPS_CHUNK) {
		int rows = n - from < STEPS_CHUNK ? n - from : STEPS_CHUNK;
		if ((ns = model_steps_prompt_ns(&x->s, from, rows, from + rows == n)) == 0)
			return 0;
		sum += ns;
	}
	return sum / 1e9;
}

/* Seconds for a step of one token for each of `batch` sequences after `past` tokens. */
static double answer_s(struct bench *x, int batch, int past, int n_steps)
{
	double sum = 0, ns;
	for (int k = 0; k < n_steps; k++) {
		if ((ns = model_steps_answer_ns(&x->s, batch, past + k)) == 0)
			return 0;
		sum += ns;
	}
	return sum / 1e9 / n_steps;
}

/* What a context adds to a step of one row, compared with the time to read its keys and values. Steps with and
 * without it alternate, because the machine's speed varies. The pages need not be computed, but they must be written:
 * unwritten memory is a single page of zeros, which stays in the caches. */
static int bench_context(struct bench *x, const struct kn_ceilings *c, int context, int n_steps, int repeat, bool json)
{
	double empty[MAX_REPEAT], full[MAX_REPEAT];
	for (int i = 1; i < x->s.max_pages; i++) {
		if (x->s.ops->page_copy(x->s.b, kv_pool_layout(x->s.pool), 0, i) != 0)
			return bench_complain(1, "can't write a page of keys and values");
	}
	for (int i = 0; i < repeat; i++) {
		empty[i] = answer_s(x, 1, 0, n_steps);
		full[i] = answer_s(x, 1, context, n_steps);
	}
	double least = percentile(empty, (size_t)repeat, 50), with = percentile(full, (size_t)repeat, 50);
	double bytes = x->s.kv_bytes * context, reading = bytes / c->read_bytes;
	if (json)
		printf(",\"context\":{\"tokens\":%d,\"kv\":\"%s\",\"kv_bytes\":%.6g,\"empty_ms\":%.5g,\"full_ms\":%.5g,"
		       "\"reading_ms\":%.5g,\"share_of_read\":%.4g}",
		       context, kn_kv_type_name(x->s.kv_type), bytes, 1e3 * least, 1e3 * with, 1e3 * reading,
		       reading / (with - least));
	else
		printf("\ncontext of %d in %s, %.1f MB: a step of one row %.2f ms, empty %.2f ms; the difference is "
		       "%.1f %% of the read rate (%.2f ms)\n",
		       context, kn_kv_type_name(x->s.kv_type), bytes / 1e6, 1e3 * with, 1e3 * least,
		       100 * reading / (with - least), 1e3 * reading);
	return 0;
}

/* Seconds to verify n - 1 drafted tokens: n rows of one sequence, all with logits. */
static double verify_s(struct bench *x, int n, int past)
{
	uint64_t begin = clock_now_ns();
	for (int i = 0; i < n; i++) {
		x->s.token[i] = i;
		x->s.pos[i] = past + i;
		x->s.seq[i] = 0;
		x->s.want[i] = i;
	}
	return model_steps_run(&x->s, n, n) == 0 ? (double)(clock_now_ns() - begin) / 1e9 : 0;
}

/* ---- the machine ---- */

enum { SUM_PROMPT = 512, SUM_PAST = 128, SUM_DRAFTS = 5, SUM_FEW = 8, SUM_MANY = 16, SUM_TIMES = 9 };

#define SUM_READ_S 0.03

/* What is measured in turns: seconds of steps, and the peak rates beside them. */
struct turns {
	double one[SUM_TIMES], few[SUM_TIMES], many[SUM_TIMES], drafts[SUM_TIMES], prompt[SUM_TIMES], read[SUM_TIMES],
	    rate[SUM_TIMES];
	double one_share[SUM_TIMES], few_share[SUM_TIMES]; /* of reading, as it was right before and after the step */
};

static double few_bytes(const struct bench *x, int n) { return bytes_read(x, n) + n * SUM_PAST * x->s.kv_bytes; }

/* Seconds of a step of n answers, and its share of reading. The read rate of a virtual machine changes from one second
 * to the next (46 and 80 GB/s on one with two processors), so the reference is the mean of what was read right before
 * and right after the step. SL_ENOMEM. */
static int answer_share(struct bench *x, int n_threads, int n, int n_steps, double *step, double *share, double *read)
{
	double before, after;
	if (kn_measure_reading(n_threads, SUM_READ_S, &before) != 0)
		return SL_ENOMEM;
	*step = answer_s(x, n, SUM_PAST, n_steps);
	if (kn_measure_reading(n_threads, SUM_READ_S, &after) != 0)
		return SL_ENOMEM;
	*read = (before + after) / 2;
	*share = few_bytes(x, n) / *step / *read;
	return 0;
}

static int one_turn(struct bench *x, int n_threads, struct turns *t, size_t i)
{
	struct kn_ceilings c;
	double beside;
	if (kn_measure_ceilings(n_threads, 0.1, &c) != 0 ||
	    answer_share(x, n_threads, 1, 3, &t->one[i], &t->one_share[i], &t->read[i]) != 0 ||
	    answer_share(x, n_threads, SUM_FEW, 2, &t->few[i], &t->few_share[i], &beside) != 0)
		return SL_ENOMEM;
	t->rate[i] = c.int8_ops;
	t->drafts[i] = verify_s(x, SUM_DRAFTS, SUM_PAST);
	t->many[i] = answer_s(x, SUM_MANY, SUM_PAST, 1);
	t->prompt[i] = prompt_s(x, SUM_PROMPT);
	return 0;
}

/* The shares of the peak rates that a model reaches: medians of the turns'. */
static int summary(const char *path, int n_threads, int n_times, bool json)
{
	static struct turns t;
	struct bench x = {0};
	int rc = bench_open(&x, path, "auto", NULL, n_threads, SUM_MANY, SUM_PROMPT + 1);
	if (rc != 0) {
		model_steps_close(&x.s);
		return rc;
	}
	prompt_s(&x, SUM_PAST); /* brings the weights into memory */
	size_t n = (size_t)n_times;
	for (size_t i = 0; i < n && rc == 0; i++)
		if (one_turn(&x, n_threads, &t, i) != 0)
			rc = bench_complain(1, "out of memory");
	double reads = percentile(t.read, n, 50), int8 = percentile(t.rate, n, 50), step_1 = percentile(t.one, n, 50);
	double decode = percentile(t.one_share, n, 50), step_few = percentile(t.few, n, 50),
	       few = percentile(t.few_share, n, 50);
	double few_over = SUM_FEW * step_1 / step_few, many_over = SUM_MANY * step_1 / percentile(t.many, n, 50);
	double ops = SUM_PROMPT * (x.step_ops - x.head_ops) + x.head_ops;
	double prefill = percentile(t.prompt, n, 50), share = int8 > 0 ? ops / prefill / int8 : 0;
	double verify = percentile(t.drafts, n, 50) / step_1;
	if (rc == 0 && json)
		printf("{\"threads\":%d,\"backend\":\"%s\",\"read_bytes_per_s\":%.6g,\"int8_ops_per_s\":%.6g,\"decode_"
		       "share_of_read\":%.4g,\"decode_8_share_of_read\":%.4g,"
		       "\"answers_8_over_1\":%.4g,\"answers_16_over_1\":%.4g,\"prefill_512_share_of_int8\":%.4g,"
		       "\"prefill_512_tokens_per_s\":%.4g,\"verify_5_over_1\":%.4g}",
		       n_threads, x.s.ops->name, reads, int8, decode, few, few_over, many_over, share,
		       SUM_PROMPT / prefill, verify);
	else if (rc == 0)
		printf(
		    "\n%s on %s, %d threads, reading %.1f GB/s and %.3f Tops/s of int8 between the steps\n"
		    "  one answer          %7.1f tokens/s, %5.1f %% of reading (weights, keys and values), %.1f GB/s\n"
		    "  %2d answers          %7.1f tokens/s, %5.1f %% of reading, %.1f GB/s\n"
		    "  %2d and %2d answers   %6.2f and %.2f times one in all\n"
		    "  a prompt of %d     %7.1f tokens/s, %5.1f %% of int8\n"
		    "  verifying %d drafts  %6.2f steps\n",
		    path, x.s.ops->name, n_threads, reads / 1e9, int8 / 1e12, 1 / step_1, 100 * decode,
		    few_bytes(&x, 1) / step_1 / 1e9, SUM_FEW, SUM_FEW / step_few, 100 * few,
		    few_bytes(&x, SUM_FEW) / step_few / 1e9, SUM_FEW, SUM_MANY, few_over, many_over, SUM_PROMPT,
		    SUM_PROMPT / prefill, 100 * share, SUM_DRAFTS, verify);
	model_steps_close(&x.s);
	return rc;
}

int bench_machine(int argc, char **argv)
{
	double threads = 0, seconds = 0.5, repeat = SUM_TIMES;
	const char *path = NULL;
	bool json = false;
	const struct bench_option options[] = {
	    {"--threads", &threads, NULL, NULL, 0, 256},
	    {"--seconds", &seconds, NULL, NULL, 0.05, 60},
	    {"--repeat", &repeat, NULL, NULL, 1, SUM_TIMES},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &path);
	if (rc != 0)
		return rc;
	int most = threads > 0 ? (int)threads : n_processors();
	if (json) {
		printf("[");
	} else {
		bench_header();
		printf("threads   read GB/s   int8 Tops/s   bf16 Tflop/s   fp32 Tflop/s   fork-join us\n");
	}
	for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
		struct kn_ceilings c;
		double fork_ns;
		struct sl_err err = {0};
		if (kn_measure_ceilings(n, seconds, &c) != 0)
			return bench_complain(1, "out of memory");
		if (kn_measure_fork_join(n, &fork_ns, &err) != 0)
			return bench_complain(1, "%s", err.text);
		if (json)
			printf("%s{\"threads\":%d,\"read_bytes_per_s\":%.6g,\"int8_ops_per_s\":%.6g,"
			       "\"bf16_ops_per_s\":%.6g,\"fp32_ops_per_s\":%.6g,\"fork_join_ns\":%.6g}",
			       n > 1 ? "," : "", n, c.read_bytes, c.int8_ops, c.bf16_ops, c.fp32_ops, fork_ns);
		else
			printf("%7d %11.1f %13.3f %14.3f %14.3f %14.2f\n", n, c.read_bytes / 1e9, c.int8_ops / 1e12,
			       c.bf16_ops / 1e12, c.fp32_ops / 1e12, fork_ns / 1e3);
		fflush(stdout);
	}
	if (path != NULL) {
		if (json)
			printf(",");
		rc = summary(path, most, (int)repeat, json);
	}
	if (json)
		puts("]");
	return rc;
}

struct asked {
	double context, prompt, tokens, threads, repeat;
	const char *kv, *weights;
	int batches[MAX_BATCHES], n_batches, widest;
	bool json;
};

/* 0, or the exit status after printing an error. */
static int parse(int argc, char **argv, struct asked *a, const char **path)
{
	const char *batches = "1,2,4,8";
	*a = (struct asked){.prompt = 512, .tokens = 64, .repeat = 3, .kv = "auto", .widest = 1};
	const struct bench_option options[] = {
	    {"--prompt", &a->prompt, NULL, NULL, 1, 1 << 20},
	    {"--tokens", &a->tokens, NULL, NULL, 1, 1 << 16},
	    {"--batch", NULL, &batches, NULL, 0, 0},
	    {"--threads", &a->threads, NULL, NULL, 0, 256},
	    {"--repeat", &a->repeat, NULL, NULL, 1, MAX_REPEAT},
	    {"--json", NULL, NULL, &a->json, 0, 0},
	    {"--context", &a->context, NULL, NULL, 0, 1 << 20},
	    {"--kv", NULL, &a->kv, NULL, 0, 0},
	    {"--weights", NULL, &a->weights, NULL, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, path);
	if (rc != 0)
		return rc;
	if (strcmp(a->kv, "auto") != 0 && kn_kv_type_from_name(a->kv) < 0)
		return bench_complain(CMD_EXIT_USAGE, "--kv: no KV cache type is named %s", a->kv);
	a->n_batches = bench_list(batches, 1024, a->batches, MAX_BATCHES);
	if (*path == NULL || a->n_batches == 0)
		return bench_complain(CMD_EXIT_USAGE,
				      *path == NULL ? "model needs a file" : "--batch needs a list of numbers");
	for (int i = 0; i < a->n_batches; i++)
		a->widest = a->batches[i] > a->widest ? a->batches[i] : a->widest;
	return 0;
}

static void tell_prompt(struct bench *x, const struct asked *a, const struct kn_ceilings *c, int n_threads)
{
	double seen[MAX_REPEAT];
	int prompt = (int)a->prompt, n = (int)a->repeat;
	prompt_s(x, 64 < prompt ? 64 : prompt); /* brings the weights into memory */
	for (int i = 0; i < n; i++)
		seen[i] = a->prompt / prompt_s(x, prompt);
	double median = percentile(seen, (size_t)n, 50), share = median * x->step_ops / c->fp32_ops;
	if (a->json) {
		printf("{\"threads\":%d,\"read_bytes_per_s\":%.6g,\"fp32_ops_per_s\":%.6g,\"weight_bytes\":%.6g,"
		       "\"prompt\":{\"tokens\":%d,\"tokens_per_s\":[%.6g,%.6g,%.6g],\"share_of_fp32\":%.4g}",
		       n_threads, c->read_bytes, c->fp32_ops, bytes_read(x, 1), prompt, seen[0], median, seen[n - 1],
		       share);
		return;
	}
	bench_header();
	printf("%d threads read %.1f GB/s and do %.3f Tflop/s; a step reads %.1f MB of weights%s\n\n", n_threads,
	       c->read_bytes / 1e9, c->fp32_ops / 1e12, bytes_read(x, 1) / 1e6,
	       model_was_kept(x->s.m) ? ", mapped from a file" : "");
	printf("                        tokens/s  least / median / most    share of the ceiling\n");
	printf("prompt of %-6d       %10.1f %10.1f %10.1f    %5.1f %% of fp32\n", prompt, seen[0], median, seen[n - 1],
	       100 * share);
}

static void tell_answers(struct bench *x, const struct asked *a, const struct kn_ceilings *c)
{
	double seen[MAX_REPEAT];
	int n = (int)a->repeat;
	for (int k = 0; k < a->n_batches; k++) {
		int batch = a->batches[k];
		for (int i = 0; i < n; i++)
			seen[i] = batch / answer_s(x, batch, (int)a->prompt, (int)a->tokens);
		double median = percentile(seen, (size_t)n, 50),
		       share = median / batch * bytes_read(x, batch) / c->read_bytes;
		if (a->json)
			printf("%s{\"batch\":%d,\"tokens_per_s\":[%.6g,%.6g,%.6g],\"share_of_read\":%.4g}",
			       k > 0 ? "," : ",\"answer\":[", batch, seen[0], median, seen[n - 1], share);
		else
			printf("answer, %3d at once     %10.1f %10.1f %10.1f    %5.1f %% of reading\n", batch, seen[0],
			       median, seen[n - 1], 100 * share);
		fflush(stdout);
	}
	if (a->json)
		printf("]");
}

int bench_model(int argc, char **argv)
{
	if (bench_gpu_asked(argc, argv))
		return bench_gpu_model_of(argc, argv);
	const char *path = NULL;
	struct asked a;
	int rc = parse(argc, argv, &a, &path);
	if (rc != 0)
		return rc;
	int n_threads = a.threads > 0 ? (int)a.threads : n_processors();
	int most = (int)(a.context > a.prompt ? a.context : a.prompt) + (int)a.tokens + 1;
	struct bench x = {0};
	struct kn_ceilings c;
	rc = bench_open(&x, path, a.kv, a.weights, n_threads, a.widest, most);
	if (rc == 0 && kn_measure_ceilings(n_threads, 0.5, &c) != 0)
		rc = bench_complain(1, "out of memory");
	if (rc == 0) {
		tell_prompt(&x, &a, &c, n_threads);
		tell_answers(&x, &a, &c);
		rc = a.context > 0 ? bench_context(&x, &c, (int)a.context, (int)a.tokens, (int)a.repeat, a.json) : 0;
		if (a.json)
			puts("}");
	}
	model_steps_close(&x.s);
	return rc;
}
