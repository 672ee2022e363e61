/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows and what they are judged by. A ceiling is the longer of moving a figure's bytes at the rate of a copy and of
 * doing its operations at the rate of a large product, both measured in the same run.
 */
#include "tests/gpu/kit/kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 160, CELL = 96 };

/* By what a row is judged: the share of its ceiling; a's time over b's; seconds; bytes or operations a second; a share
 * of all that were counted. */
enum kind { SHARE, TIMES, SECONDS, BYTE_RATE, OPERATION_RATE, OF_COUNT };

/* demand, stretch: at least; below 0: at most; 0: none. */
struct target {
	const char *what;
	enum kind kind;
	const char *a, *b;
	double demand, stretch;
};

static const struct target targets[] = {
    {"copy, read and written", BYTE_RATE, "copy", NULL, 0, 0},
    {"product of 8192³, bf16", OPERATION_RATE, "matrix_bf16", NULL, 0, 0},
    {"product of 8192³, weights in fp8", OPERATION_RATE, "matrix_fp8", NULL, 0, 0},
    {"product of 8192³, bf16, cuBLASLt where it is quicker", OPERATION_RATE, "library_bf16", NULL, 0, 0},
    {"product of 8192³, fp8, cuBLASLt where it is quicker", OPERATION_RATE, "library_fp8", NULL, 0, 0},
    {"8B bf16 decode, one sequence, of its floor", SHARE, "decode_bf16_1", NULL, 0.70, 0.80},
    {"8B bf16 decode, batch 8 at 1K", SHARE, "decode_bf16_8", NULL, 0.65, 0.75},
    {"8B bf16 decode, batch 64 at 1K", SHARE, "decode_bf16_64", NULL, 0.55, 0.65},
    {"8B bf16 decode, batch 256 at 1K", SHARE, "decode_bf16_256", NULL, 0.45, 0.55},
    {"1B bf16 decode, one sequence, of its floor", SHARE, "decode_1b_1", NULL, 0, 0},
    {"1B bf16 decode, batch 8 at 1K", SHARE, "decode_1b_8", NULL, 0, 0},
    {"1B bf16 decode, batch 64 at 1K", SHARE, "decode_1b_64", NULL, 0, 0},
    {"1B bf16 decode, batch 256 at 1K", SHARE, "decode_1b_256", NULL, 0, 0},
    {"8B fp8 decode, one sequence, of its floor", SHARE, "decode_fp8_1", NULL, 0, 0},
    {"8B int4 decode, one sequence, of its floor", SHARE, "decode_int4_1", NULL, 0, 0},
    {"8B Q4_0 decode, one sequence, of its floor", SHARE, "decode_q4_0_1", NULL, 0, 0},
    {"fp8 decode, one sequence, against bf16", TIMES, "decode_bf16_1", "decode_fp8_1", 1.5, 1.7},
    {"int4 decode, groups of 128, one sequence, against bf16", TIMES, "decode_bf16_1", "decode_int4_1", 2.2, 2.8},
    {"decode attention, 64 × 4K", SHARE, "attention_decode", NULL, 0.75, 0.85},
    {"prompt of 2K, 8B bf16", SHARE, "prompt_bf16_2048", NULL, 0.65, 0.75},
    {"prompt of 8K, 8B bf16", SHARE, "prompt_bf16_8192", NULL, 0.65, 0.75},
    {"prompt of 2K, 8B bf16, cuBLASLt where it is quicker", SHARE, "prompt_library_2048", NULL, 0, 0},
    {"prompt of 2K, 8B fp8", SHARE, "prompt_fp8_2048", NULL, 0, 0},
    {"prompt of 2K, 8B int4", SHARE, "prompt_int4_2048", NULL, 0, 0},
    {"attention of a prompt of 4K", SHARE, "attention_prompt", NULL, 0, 0},
    {"attention of a prompt of 4K, against PyTorch's SDPA", TIMES, "torch_attention_prompt", "attention_prompt", 0.70,
     1.0},
    {"against PyTorch: 8B bf16 decode, one sequence", TIMES, "torch_decode_bf16_1", "decode_bf16_1", 0, 0},
    {"against PyTorch: 8B bf16 decode, batch 64 at 1K", TIMES, "torch_decode_bf16_64", "decode_bf16_64", 0, 0},
    {"against PyTorch: prompt of 2K, 8B bf16", TIMES, "torch_prompt_bf16_2048", "prompt_bf16_2048", 0, 0},
    {"norm of 512 rows of 4096", SHARE, "rows_norm", NULL, 0, 0},
    {"gate of 512 rows of 14336", SHARE, "rows_gate", NULL, 0, 0},
    {"sum and norm of 512 rows of 4096", SHARE, "rows_add_norm", NULL, 0, 0},
    {"gap of a step, 8B bf16, one sequence", SECONDS, "gap_bf16_1", NULL, -50e-6, -15e-6},
    {"gap of a step, 8B bf16, batch 64", SECONDS, "gap_bf16_64", NULL, -50e-6, -15e-6},
    {"gap of a step, 8B bf16, batch 256", SECONDS, "gap_bf16_256", NULL, -50e-6, -15e-6},
    {"gap of a step, 1B bf16, one sequence", SECONDS, "gap_1b_1", NULL, -50e-6, -15e-6},
    {"decodes that ran as a graph, 8B bf16", OF_COUNT, "hits_bf16", NULL, 0.99, 1},
    {"decodes that ran as a graph, 1B bf16", OF_COUNT, "hits_1b", NULL, 0.99, 1},
    {"sampling, 256 sequences", SECONDS, "sample_256", NULL, -150e-6, -80e-6},
    {"prompt of 2K + 100, all of it against 2K of it there", TIMES, "prefix_miss_bf16", "prefix_hit_bf16", 8, 12},
    {"verifying 5 tokens, against one", TIMES, "verify_bf16_5", "verify_bf16_1", -1.15, -1.08},
    {"an adapter of rank 16, 8B, one sequence, against none", TIMES, "adapter_bf16_1", "plain_bf16_1", -1.087, -1.05},
    {"8 adapters of rank 16, 8B, batch 8, against none", TIMES, "adapter_bf16_8", "plain_bf16_8", -1.087, -1.05},
    {"8 adapters of rank 16, 8B, batch 64, against none", TIMES, "adapter_bf16_64", "plain_bf16_64", -1.087, -1.05},
    {"prompt of 2K with an adapter, 8B, against none", TIMES, "adapter_prompt_bf16_2048", "plain_prompt_bf16_2048",
     -1.111, -1.06},
    {"8 adapters of rank 16, 1B, batch 8, against none", TIMES, "adapter_1b_8", "plain_1b_8", -1.087, -1.05},
    {"8 adapters of rank 16, 1B, batch 64, against none", TIMES, "adapter_1b_64", "plain_1b_64", -1.087, -1.05},
    {"prompt of 2K with an adapter, 1B, against none", TIMES, "adapter_prompt_1b_2048", "plain_prompt_1b_2048", -1.111,
     -1.06},
    {"upload of weights, from pageable memory", BYTE_RATE, "upload", NULL, 0, 0},
    {"opening the device", SECONDS, "open", NULL, 0, 0},
    {"first product after that", SECONDS, "first", NULL, 0, 0},
    {"first step, 8B bf16", SECONDS, "first_bf16", NULL, 0, 0},
};

struct row {
	int order;    /* 0: failed; 1: fell short; 2: not run; 3: as demanded; 4: judged by nothing */
	double score; /* over the demand */
	char cell[7][CELL];
};

static struct row rows[MOST_ROWS];
static size_t n_rows;
static double copy_rate, product_rate; /* 0: not measured */

static struct row *add(const char *what, int order, const char *verdict)
{
	static struct row spare;
	struct row *r = n_rows < MOST_ROWS ? &rows[n_rows++] : &spare;
	r->order = order;
	r->score = 0;
	for (int i = 0; i < 7; i++)
		snprintf(r->cell[i], CELL, "–");
	snprintf(r->cell[0], CELL, "%s", what);
	snprintf(r->cell[6], CELL, "%s", verdict);
	return r;
}

static void time_cell(double s, char *out)
{
	if (s >= 1)
		snprintf(out, CELL, "%.2f s", s);
	else if (s >= 1e-3)
		snprintf(out, CELL, "%.3f ms", 1e3 * s);
	else
		snprintf(out, CELL, "%.1f µs", 1e6 * s);
}

static void value_cell(enum kind kind, double v, char *out)
{
	switch (kind) {
	case SHARE:
	case OF_COUNT: snprintf(out, CELL, "%.1f %%", 100 * v); break;
	case TIMES: snprintf(out, CELL, "%.2f ×", v); break;
	case SECONDS: time_cell(v, out); break;
	case BYTE_RATE: snprintf(out, CELL, "%.3f TB/s", v / 1e12); break;
	case OPERATION_RATE: snprintf(out, CELL, "%.4f PFLOP/s", v / 1e15); break;
	}
}

static void demand_cell(enum kind kind, double v, char *out)
{
	char cell[CELL - 8];
	if (v == 0)
		return;
	value_cell(kind, v < 0 ? -v : v, cell);
	snprintf(out, CELL, "%s %s", v < 0 ? "≤" : "≥", cell);
}

/* The longer of both; 0: a rate is missing. */
static double floor_of(const struct figure *f)
{
	if ((f->bytes > 0 && copy_rate <= 0) || (f->operations > 0 && product_rate <= 0))
		return 0;
	double moving = f->bytes > 0 ? f->bytes / copy_rate : 0;
	double computing = f->operations > 0 ? f->operations / product_rate : 0;
	return moving > computing ? moving : computing;
}

/* The value that is judged; below 0: not measured. */
static double value_of(const struct target *t, struct row *r)
{
	const struct figure *a = figure_of(t->a), *b = t->b != NULL ? figure_of(t->b) : NULL;
	if (a == NULL || (t->b != NULL && b == NULL))
		return -1;
	if (t->kind != OF_COUNT)
		time_cell(a->seconds, r->cell[1]);
	switch (t->kind) {
	case SHARE:
		if (floor_of(a) <= 0 || a->seconds <= 0)
			return -1;
		time_cell(floor_of(a), r->cell[2]);
		return floor_of(a) / a->seconds;
	case TIMES: return b != NULL && b->seconds > 0 ? a->seconds / b->seconds : -1;
	case SECONDS: return a->seconds;
	case BYTE_RATE: return a->seconds > 0 ? a->bytes / a->seconds : -1;
	case OPERATION_RATE: return a->seconds > 0 ? a->operations / a->seconds : -1;
	case OF_COUNT: return a->operations > 0 ? a->bytes / a->operations : -1;
	}
	return -1;
}

/* How far the value is above the demand, or below one that is a most: 1 is just enough. */
static double score_of(double value, double demand)
{
	if (demand < 0)
		return value > 0 ? -demand / value : 1e9;
	return value / demand;
}

static void judge(const struct target *t)
{
	struct row *r = add(t->what, 4, "–");
	double value = value_of(t, r);
	demand_cell(t->kind, t->demand, r->cell[4]);
	demand_cell(t->kind, t->stretch, r->cell[5]);
	if (value < 0) {
		r->order = t->demand != 0 ? 2 : 4;
		snprintf(r->cell[6], CELL, "not run");
		return;
	}
	value_cell(t->kind, value, r->cell[3]);
	if (t->demand == 0)
		return;
	r->score = score_of(value, t->demand);
	r->order = r->score < 1 ? 1 : 3;
	snprintf(r->cell[6], CELL, "%s",
		 r->score < 1                      ? "FELL SHORT"
		 : score_of(value, t->stretch) < 1 ? "as demanded"
						   : "stretch");
}

static void judge_products(void)
{
	static const char *const types[] = {"BF16", "fp8", "Q8_0", "INT4", "Q4_0", "Q4_K"};
	static const int counts[] = {1, 8, 64, 256};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
			char name[64], what[CELL];
			bool few = counts[k] <= 8;
			snprintf(name, sizeof name, "product_%s_%d", types[i], counts[k]);
			snprintf(what, sizeof what, "products of an 8B layer, %s, rows: %d", types[i], counts[k]);
			judge(&(struct target){what, SHARE, name, NULL, few ? 0.80 : 0, few ? 0.90 : 0});
		}
}

/* A part that is a test, or one that went wrong. */
static void judge_part(const struct outcome *o)
{
	bool bad = o->failed > 0 || o->why[0] != '\0';
	if ((!o->part->test && !bad) || o->part->optional)
		return;
	struct row *r = add(o->part->name, bad ? 0 : 3, bad ? "FAILED" : "as demanded");
	r->score = 2;
	if (o->part->test) {
		snprintf(r->cell[3], CELL, "%d passed, %d failed", o->passed, o->failed);
		snprintf(r->cell[4], CELL, "0 failed");
	}
	if (o->why[0] != '\0')
		snprintf(r->cell[1], CELL, "%.90s", o->why);
	else
		time_cell(o->seconds, r->cell[1]);
}

static int compare(const void *x, const void *y)
{
	const struct row *a = x, *b = y;
	if (a->order != b->order)
		return a->order - b->order;
	if (a->score != b->score)
		return a->score < b->score ? -1 : 1;
	return a < b ? -1 : 1; /* never equal */
}

static double larger_rate(double rate, const char *name, bool operations)
{
	const struct figure *f = figure_of(name);
	double other = f != NULL && f->seconds > 0 ? (operations ? f->operations : f->bytes) / f->seconds : 0;
	return other > rate ? other : rate;
}

int table_print(const struct kit *k, const struct outcome *all, size_t n)
{
	int bad = 0;
	copy_rate = larger_rate(larger_rate(0, "copy", false), "torch_copy", false);
	product_rate = larger_rate(larger_rate(0, "matrix_bf16", true), "library_bf16", true);
	product_rate = larger_rate(product_rate, "torch_matrix_bf16", true);
	for (size_t i = 0; i < n; i++)
		judge_part(&all[i]);
	for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
		judge(&targets[i]);
	judge_products();
	/* A stable order of equal ones: by where they stand. */
	static struct row *sorted[MOST_ROWS];
	for (size_t i = 0; i < n_rows; i++) {
		size_t at = i;
		for (; at > 0 && compare(sorted[at - 1], &rows[i]) > 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = &rows[i];
	}
	if (k->tiny)
		printf("Not a device: tiny shapes, to try the program. The figures mean nothing.\n\n");
	printf("| what | measured | ceiling | ratio | demand | stretch | verdict |\n|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < n_rows; i++) {
		const struct row *r = sorted[i];
		bad += r->order < 2 && !(k->tiny && r->order == 1);
		printf("| %s | %s | %s | %s | %s | %s | %s |\n", r->cell[0], r->cell[1], r->cell[2], r->cell[3],
		       r->cell[4], r->cell[5], r->cell[6]);
	}
	return bad;
}
