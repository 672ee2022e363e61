/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench machine` and `sluice bench model`: what the machine can do, and what a model file
 * makes of it, without the engine around it. Prompts are one sequence's rows in chunks; answers are
 * one row for each of so many sequences. Speed is told beside the ceilings measured just before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "engine/kv.h"
#include "engine/model.h"
#include "kernels/ceiling.h"

enum { MAX_BATCHES = 16, MAX_REPEAT = 99, PAGE = 16, CHUNK = 256 };

static int n_processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (int)n : 1;
}

int bench_machine(int argc, char **argv)
{
	double threads = 0, seconds = 0.5;
	bool json = false;
	const struct bench_option options[] = {
	    {"--threads", &threads, NULL, NULL, 0, 256},
	    {"--seconds", &seconds, NULL, NULL, 0.05, 60},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, NULL);
	if (rc != 0)
		return rc;
	int most = threads > 0 ? (int)threads : n_processors();
	if (json) {
		printf("[");
	} else {
		bench_header();
		printf("threads   read GB/s   int8 Tops/s   bf16 Tflop/s   fp32 Tflop/s\n");
	}
	for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
		struct kn_ceilings c;
		if (kn_measure_ceilings(n, seconds, &c) != 0)
			return bench_complain(1, "out of memory");
		if (json)
			printf("%s{\"threads\":%d,\"read_bytes_per_s\":%.6g,\"int8_ops_per_s\":%.6g,"
			       "\"bf16_ops_per_s\":%.6g,\"fp32_ops_per_s\":%.6g}", n > 1 ? "," : "", n, c.read_bytes,
			       c.int8_ops, c.bf16_ops, c.fp32_ops);
		else
			printf("%7d %11.1f %13.3f %14.3f %14.3f\n", n, c.read_bytes / 1e9, c.int8_ops / 1e12,
			       c.bf16_ops / 1e12, c.fp32_ops / 1e12);
		fflush(stdout);
	}
	if (json)
		puts("]");
	return 0;
}

/* ---- a model ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int n_seqs, max_pages;
	int32_t *pages; /* [n_seqs][max_pages] */
	int32_t *token, *pos, *seq, *want;
	float *logits;
	double weight_bytes; /* read for one step */
	double step_ops;     /* multiply and add, for one row, without attention */
};

static int bench_open(struct bench *x, const char *path, int n_threads, int n_seqs, int context)
{
	struct sl_err err = {0};
	struct model_info info;
	if (model_inspect(path, &info, &err) != 0)
		return bench_complain(1, "%s", err.text);
	const struct model_arch *a = &info.arch;
	int rows = n_seqs > CHUNK ? n_seqs : CHUNK;
	struct kn_config kc = {.n_threads = n_threads, .max_rows = rows, .max_width = a->n_vocab > a->n_ff ? a->n_vocab : a->n_ff};
	x->ops = kn_select("auto", &err);
	if (x->ops == NULL || x->ops->open(&kc, &x->b, &err) != 0 ||
	    model_load(path, x->ops, x->b, rows, 0, &x->m, &err) != 0)
		return bench_complain(1, "%s", err.text);
	x->n_seqs = n_seqs;
	x->max_pages = (context + PAGE - 1) / PAGE;
	if (kv_pool_create(x->ops, x->b, KN_F32, n_seqs * x->max_pages, PAGE, a->n_layers, a->n_kv_heads, a->head_dim, &x->pool,
			   &err) != 0)
		return bench_complain(1, "%s", err.text);
	x->pages = sl_zalloc_n((size_t)n_seqs * (size_t)x->max_pages, sizeof *x->pages);
	x->token = sl_zalloc_n((size_t)rows, sizeof *x->token);
	x->pos = sl_zalloc_n((size_t)rows, sizeof *x->pos);
	x->seq = sl_zalloc_n((size_t)rows, sizeof *x->seq);
	x->want = sl_zalloc_n((size_t)rows, sizeof *x->want);
	x->logits = sl_zalloc_n((size_t)n_seqs * (size_t)a->n_vocab, sizeof *x->logits);
	if (!x->pages || !x->token || !x->pos || !x->seq || !x->want || !x->logits)
		return bench_complain(1, "out of memory");
	for (int i = 0; i < n_seqs * x->max_pages; i++)
		x->pages[i] = i;
	/* The embedding is read a row at a time, but a tied one once more as the output. */
	double embed = (double)a->n_vocab * a->n_embd;
	x->step_ops = 2 * ((double)info.n_params - (a->tied_embeddings ? 0 : embed));
	x->weight_bytes = (double)info.file_bytes * (x->step_ops / 2 / (double)info.n_params);
	return 0;
}

static void bench_close(struct bench *x)
{
	kv_pool_destroy(x->pool);
	if (x->m != NULL)
		model_free(x->m);
	if (x->b != NULL)
		x->ops->close(x->b);
	void *all[] = {x->pages, x->token, x->pos, x->seq, x->want, x->logits};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		sl_free(all[i]);
}

static int step(struct bench *x, int n_rows, int n_want)
{
	struct kn_step s = {.n_rows = n_rows, .row_token = x->token, .row_pos = x->pos, .row_seq = x->seq,
			    .n_seqs = x->n_seqs, .page_table = x->pages, .max_pages = x->max_pages};
	return model_forward(x->m, &s, kv_pool_layout(x->pool), x->want, n_want, x->logits);
}

/* Seconds for a prompt of n tokens. */
static double prompt_s(struct bench *x, int n)
{
	uint64_t begin = clock_now_ns();
	for (int from = 0; from < n; from += CHUNK) {
		int rows = n - from < CHUNK ? n - from : CHUNK;
		for (int i = 0; i < rows; i++) {
			x->token[i] = (from + i) * 7919 % model_info(x->m)->arch.n_vocab;
			x->pos[i] = from + i;
			x->seq[i] = 0;
		}
		x->want[0] = rows - 1;
		if (step(x, rows, from + rows == n) != 0)
			return 0;
	}
	return (double)(clock_now_ns() - begin) / 1e9;
}

/* Seconds for a step of one token for each of `batch` sequences after `past` tokens. */
static double answer_s(struct bench *x, int batch, int past, int n_steps)
{
	uint64_t begin = clock_now_ns();
	for (int k = 0; k < n_steps; k++) {
		for (int i = 0; i < batch; i++) {
			x->token[i] = (k * 31 + i) % model_info(x->m)->arch.n_vocab;
			x->pos[i] = past + k;
			x->seq[i] = i;
			x->want[i] = i;
		}
		if (step(x, batch, batch) != 0)
			return 0;
	}
	return (double)(clock_now_ns() - begin) / 1e9 / n_steps;
}

int bench_model(int argc, char **argv)
{
	const char *path = NULL, *batches_text = "1,2,4,8";
	double prompt = 512, tokens = 64, threads = 0, repeat = 3;
	bool json = false;
	const struct bench_option options[] = {
	    {"--prompt", &prompt, NULL, NULL, 1, 1 << 20},    {"--tokens", &tokens, NULL, NULL, 1, 1 << 16},
	    {"--batch", NULL, &batches_text, NULL, 0, 0},     {"--threads", &threads, NULL, NULL, 0, 256},
	    {"--repeat", &repeat, NULL, NULL, 1, MAX_REPEAT}, {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &path);
	if (rc != 0)
		return rc;
	int batches[MAX_BATCHES], n_batches = bench_list(batches_text, 1024, batches, MAX_BATCHES), widest = 1;
	if (path == NULL || n_batches == 0)
		return bench_complain(CMD_EXIT_USAGE, path == NULL ? "model needs a file" : "--batch: not a list of numbers");
	for (int i = 0; i < n_batches; i++)
		widest = batches[i] > widest ? batches[i] : widest;
	int n_threads = threads > 0 ? (int)threads : n_processors();
	struct bench x = {0};
	struct kn_ceilings c;
	rc = bench_open(&x, path, n_threads, widest, (int)(prompt + tokens) + 1);
	if (rc == 0 && kn_measure_ceilings(n_threads, 0.5, &c) != 0)
		rc = bench_complain(1, "out of memory");
	if (rc != 0) {
		bench_close(&x);
		return rc;
	}
	double seen[MAX_REPEAT];
	int n = (int)repeat;
	prompt_s(&x, 64 < (int)prompt ? 64 : (int)prompt); /* brings the weights into memory */
	for (int i = 0; i < n; i++)
		seen[i] = prompt / prompt_s(&x, (int)prompt);
	double median = bench_percentile(seen, (size_t)n, 50), share = median * x.step_ops / c.fp32_ops;
	if (json) {
		printf("{\"threads\":%d,\"read_bytes_per_s\":%.6g,\"fp32_ops_per_s\":%.6g,\"weight_bytes\":%.6g,"
		       "\"prompt\":{\"tokens\":%d,\"tokens_per_s\":[%.6g,%.6g,%.6g],\"share_of_fp32\":%.4g},\"answer\":[",
		       n_threads, c.read_bytes, c.fp32_ops, x.weight_bytes, (int)prompt, seen[0], median, seen[n - 1], share);
	} else {
		bench_header();
		printf("%d threads read %.1f GB/s and do %.3f Tflop/s; a step reads %.1f MB of weights\n\n", n_threads,
		       c.read_bytes / 1e9, c.fp32_ops / 1e12, x.weight_bytes / 1e6);
		printf("                        tokens/s  least / median / most    share of the ceiling\n");
		printf("prompt of %-6d       %10.1f %10.1f %10.1f    %5.1f %% of fp32\n", (int)prompt, seen[0], median,
		       seen[n - 1], 100 * share);
	}
	for (int k = 0; k < n_batches; k++) {
		for (int i = 0; i < n; i++)
			seen[i] = batches[k] / answer_s(&x, batches[k], (int)prompt, (int)tokens);
		median = bench_percentile(seen, (size_t)n, 50);
		share = median / batches[k] * x.weight_bytes / c.read_bytes;
		if (json)
			printf("%s{\"batch\":%d,\"tokens_per_s\":[%.6g,%.6g,%.6g],\"share_of_read\":%.4g}", k > 0 ? "," : "",
			       batches[k], seen[0], median, seen[n - 1], share);
		else
			printf("answer, %3d at once     %10.1f %10.1f %10.1f    %5.1f %% of reading\n", batches[k], seen[0],
			       median, seen[n - 1], 100 * share);
		fflush(stdout);
	}
	if (json)
		puts("]}");
	bench_close(&x);
	return 0;
}
