/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench gpu model`: steps of a model on a device that also draws the tokens: decodes of several batch sizes
 * at a given context, prompts, verification of a draft, a prompt that is mostly in the prefix tree; with --adapters
 * also decodes and prompts whose rows have adapters, in turns with the same ones without.
 *
 * Times are the host's, from before a step is issued until its tokens are on the host: the median of several steps
 * after the first ones, which capture graphs. If the backend reports device time (kn_stats), the rest is the step's
 * gap. The context that decodes read need not have been computed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench_folder.h"
#include "cmd/bench/bench_gpu.h"
#include "engine/adapter/adapter_make.h"
#include "engine/kv/kv.h"
#include "engine/kv/kv_states.h"
#include "engine/model/adapters.h"
#include "engine/model/model.h"
#include "kernels/kv_type.h"

enum { PAGE = 16, MOST_SEQS = 256, MOST_STEPS = 40, WARM = 4, DRAFT = 5, ADAPTERS = 8, RANK = 16, TURNS = 2 };

struct rig {
	struct gpu_bench *x;
	struct model *m;
	struct kv_pool *pool;
	struct kv_states *states; /* NULL: no layer keeps one */
	int n_seqs, max_pages, chunk, n_vocab;
	int32_t *pages, *token, *pos, *seq, *slot;
	bool adapted;      /* rows have adapters */
	int n_adapters;    /* loaded, in slots from 0 on */
	double slot_bytes; /* of one */
	int32_t want[MOST_SEQS];
	struct kn_draw draws[MOST_SEQS];
	struct kn_drawn drawn[MOST_SEQS];
	bool taken[MOST_SEQS];
	uint64_t hits, n_hits; /* steps that ran as a graph: of the last one, of all measured decodes */
	int n_measured;
	double first_s;                                              /* the first step; 0: none yet */
	double weight_bytes, step_ops, head_ops, kv_bytes, attn_ops; /* kv_bytes, attn_ops: per position */
	double state_bytes;                                          /* of a sequence */
	double expert_bytes, expert_share;                           /* of all experts; what a row touches of them */
};

static int open_rig(struct rig *r, const char *path, int n_seqs, int context, int longest)
{
	struct gpu_bench *x = r->x;
	struct sl_err err = {0};
	struct model_info info;
	if (model_inspect(path, &info, &err) != 0)
		return bench_complain(1, "%s", err.text);
	const struct model_arch *a = &info.arch;
	int rows = r->chunk > n_seqs ? r->chunk : n_seqs, widest = a->n_vocab > a->n_ff ? a->n_vocab : a->n_ff;
	int rc = bench_gpu_open(x, rows, widest, x->fp8);
	if (rc != 0)
		return rc;
	if (model_load(path, x->ops, x->b, rows, 0, &r->m, &err) != 0)
		return bench_complain(1, "%s", err.text);
	if (!model_can_draw(r->m))
		return bench_complain(1, "%s cannot draw tokens", x->ops->name);
	/* Each sequence has a page table for the longest context; sequences share no pages. */
	int each = (context + PAGE - 1) / PAGE, one = (longest + PAGE - 1) / PAGE;
	int n_pages = n_seqs * each > one ? n_seqs * each : one, type = kn_kv_type_auto(x->ops);
	r->n_seqs = n_seqs;
	r->max_pages = one > each ? one : each;
	r->n_vocab = a->n_vocab;
	struct kn_kv layout = model_kv_layout(a, type, PAGE, a->n_layers);
	layout.n_pages = n_pages;
	if (kv_pool_make(x->ops, x->b, &layout, &r->pool, &err) != 0)
		return bench_complain(1, "%s", err.text);
	if (arch_is_recurrent(a) && kv_states_create(x->ops, x->b, arch_state(a), n_seqs, 0, &r->states, &err) != 0)
		return bench_complain(1, "%s", err.text);
	r->state_bytes = (double)arch_state(a) * sizeof(float);
	r->pages = sl_zalloc_n((size_t)n_seqs * (size_t)r->max_pages, sizeof *r->pages);
	r->token = sl_zalloc_n((size_t)rows, sizeof *r->token);
	r->pos = sl_zalloc_n((size_t)rows, sizeof *r->pos);
	r->seq = sl_zalloc_n((size_t)rows, sizeof *r->seq);
	r->slot = sl_zalloc_n((size_t)rows, sizeof *r->slot);
	if (!r->pages || !r->token || !r->pos || !r->seq || !r->slot)
		return bench_complain(1, "out of memory");
	for (int q = 0; q < n_seqs; q++)
		for (int p = 0; p < r->max_pages; p++)
			r->pages[q * r->max_pages + p] = (q * each + p) % n_pages;
	double embed = (double)a->n_vocab * a->n_embd;
	r->expert_share = a->experts.n > 0 ? (double)a->experts.n_used / a->experts.n : 0;
	r->step_ops = 2 * ((double)info.n_params - (a->tied_embeddings ? 0 : embed) -
			   (1 - r->expert_share) * (double)info.n_expert_params);
	r->head_ops = 2 * embed;
	r->expert_bytes = x->fp8 ? (double)info.n_expert_params : (double)info.expert_bytes;
	r->weight_bytes = (double)(info.file_bytes - (a->tied_embeddings ? 0 : info.embed_bytes) - info.expert_bytes);
	if (x->fp8)
		r->weight_bytes = r->step_ops / 2 - r->expert_share * r->expert_bytes;
	r->kv_bytes = (double)kv_layout_bytes(&layout) / PAGE * arch_n_attending(a, a->n_layers) / a->n_layers;
	r->attn_ops = 4.0 * arch_n_attending(a, a->n_layers) * a->n_heads * a->head_dim;
	return 0;
}

/* Bytes that a decode of n rows reads; of experts, as many as n rows touch that choose independently. */
static double decode_bytes(const struct rig *r, double n, int context)
{
	return r->weight_bytes + r->expert_bytes * (1 - pow(1 - r->expert_share, n)) +
	       n * (context * r->kv_bytes + 2 * r->state_bytes);
}

static void close_rig(struct rig *r)
{
	void *all[] = {r->pages, r->token, r->pos, r->seq, r->slot};
	kv_pool_destroy(r->pool);
	kv_states_destroy(r->states);
	if (r->m != NULL)
		model_free(r->m);
	if (r->x->b != NULL)
		r->x->ops->close(r->x->b);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		sl_free(all[i]);
}

/* Runs a step of the n prepared rows; the last n_want draw a token each. Seconds; 0: a fault. */
static double step(struct rig *r, int n, int n_want, uint64_t *device_ns)
{
	struct kn_step s = {.n_rows = n,
			    .row_token = r->token,
			    .row_pos = r->pos,
			    .row_seq = r->seq,
			    .row_adapter = r->adapted ? r->slot : NULL,
			    .n_seqs = r->n_seqs,
			    .page_table = r->pages,
			    .max_pages = r->max_pages,
			    .page_tokens = PAGE};
	kv_states_in_step(r->states, &s);
	struct model_draws d = {.draws = r->draws, .n = n_want, .drawn = r->drawn, .taken = r->taken};
	struct kn_stats before = {0}, after = {0};
	for (int i = 0; i < n_want; i++) {
		r->want[i] = n - n_want + i;
		r->taken[i] = true;
		r->draws[i] = (struct kn_draw){.row = i, .top_p = 1};
	}
	r->x->ops->stats(r->x->b, &before);
	uint64_t begin = clock_now_ns();
	int rc = model_forward_draw(r->m, &s, kv_pool_layout(r->pool), r->want, n_want, NULL, &d);
	double took = (double)(clock_now_ns() - begin) / 1e9;
	r->x->ops->stats(r->x->b, &after);
	r->hits = after.graph_hits - before.graph_hits;
	r->first_s = r->first_s > 0 ? r->first_s : took;
	if (device_ns != NULL)
		*device_ns = after.device_ns - before.device_ns;
	return rc == 0 ? took : 0;
}

/* Median seconds of a decode step of `batch` rows at a context; *gap: the part without device work. */
static double decode_s(struct rig *r, int batch, int context, int n_steps, double *gap)
{
	double took[MOST_STEPS], rest[MOST_STEPS];
	int n = 0;
	int warm = r->x->tiny ? 1 : WARM;
	for (int k = 0; k < warm + n_steps; k++) {
		uint64_t device_ns = 0;
		for (int i = 0; i < batch; i++) {
			r->token[i] = (k * 31 + i * 7919) % r->n_vocab;
			r->pos[i] = context - 1;
			r->seq[i] = i;
			r->slot[i] = r->n_adapters > 0 ? (i + k) % r->n_adapters : -1;
		}
		double seconds = step(r, batch, batch, &device_ns);
		if (!(seconds > 0))
			return 0;
		if (k < warm)
			continue;
		r->n_hits += r->hits;
		r->n_measured++;
		took[n] = seconds;
		rest[n++] = device_ns > 0 ? seconds - (double)device_ns / 1e9 : 0;
	}
	*gap = percentile(rest, (size_t)n, 50);
	return percentile(took, (size_t)n, 50);
}

/* Seconds for tokens [from, to) of a prompt, the best of n_times. */
static double prompt_s(struct rig *r, int from, int to, int n_times)
{
	double best = 0;
	for (int k = 0; k < n_times; k++) {
		double all = 0;
		for (int at = from; at < to; at += r->chunk) {
			int n = to - at < r->chunk ? to - at : r->chunk;
			for (int i = 0; i < n; i++) {
				r->token[i] = (int)((int64_t)(at + i) * 7919 % r->n_vocab);
				r->pos[i] = at + i;
				r->seq[i] = 0;
				r->slot[i] = 0;
			}
			double seconds = step(r, n, 1, NULL);
			if (!(seconds > 0))
				return 0;
			all += seconds;
		}
		best = k == 0 || all < best ? all : best;
	}
	return best;
}

/* Median seconds of a step that verifies a draft: n rows of one sequence, each drawing a token. */
static double verify_s(struct rig *r, int n, int context, int n_steps)
{
	double took[MOST_STEPS];
	int warm = r->x->tiny ? 1 : WARM;
	for (int k = -warm; k < n_steps; k++) {
		for (int i = 0; i < n; i++) {
			r->token[i] = (k + warm + i) % r->n_vocab;
			r->pos[i] = context - n + i;
			r->seq[i] = 0;
		}
		double seconds = step(r, n, n, NULL);
		if (!(seconds > 0))
			return 0;
		if (k >= 0)
			took[k] = seconds;
	}
	return percentile(took, (size_t)n_steps, 50);
}

static void tell(const char *what, const char *kind, int n, double seconds, double bytes, double operations)
{
	char name[96];
	if (n > 0)
		snprintf(name, sizeof name, "%s_%.32s_%d", what, kind, n);
	else
		snprintf(name, sizeof name, "%s_%.32s", what, kind);
	if (seconds > 0)
		bench_gpu_tell(name, seconds, bytes, operations);
}

/* How many of the measured decodes ran as a graph, as `bytes` of `operations`; and what the very first step took. */
static void tell_start(struct rig *r, const char *kind)
{
	char name[96];
	snprintf(name, sizeof name, "hits_%.32s", kind);
	bench_gpu_tell(name, 0, (double)r->n_hits, (double)r->n_measured);
	tell("first", kind, 0, r->first_s, 0, 0);
}

static int decodes(struct rig *r, const char *kind, int context, int n_steps)
{
	static const int batches[] = {1, 8, 64, 256};
	for (size_t i = 0; i < sizeof batches / sizeof *batches && batches[i] <= r->n_seqs; i++) {
		double n = batches[i], gap = 0, seconds = decode_s(r, batches[i], context, n_steps, &gap);
		if (!(seconds > 0))
			return bench_complain(1, "%s", r->x->ops->describe(r->x->b));
		tell("decode", kind, batches[i], seconds, decode_bytes(r, n, context),
		     n * (r->step_ops + context * r->attn_ops));
		tell("gap", kind, batches[i], gap, 0, 0);
	}
	tell_start(r, kind);
	return 0;
}

static int prompts(struct rig *r, const char *kind, int few, int n_times)
{
	for (int i = 0; i < 2; i++) {
		int n = i == 0 ? few : 4 * few;
		double seconds = prompt_s(r, 0, n, n_times);
		if (!(seconds > 0))
			return bench_complain(1, "%s", r->x->ops->describe(r->x->b));
		tell("prompt", kind, i == 0 ? 2048 : 8192, seconds, 0,
		     n * (r->step_ops - r->head_ops) + r->head_ops + r->attn_ops * n * n / 2);
	}
	int more = few / 20 > 0 ? few / 20 : 1; /* 100 after 2048 */
	tell("prefix_miss", kind, 0, prompt_s(r, 0, few + more, n_times), 0, 0);
	tell("prefix_hit", kind, 0, prompt_s(r, few, few + more, n_times), 0, 0);
	return 0;
}

/* ---- adapters ---- */

/* One file in all slots: what it adds does not matter, where its bytes are does. */
static int load_adapters(struct rig *r, const char *path)
{
	char dir[128], file[160];
	struct sl_err err = {0};
	int slot, rc = bench_folder_make(dir, sizeof dir, &err);
	if (rc != 0)
		return bench_complain(1, "%s", err.text);
	snprintf(file, sizeof file, "%s/a.gguf", dir);
	struct adapter_make m = {.base = path, .out = file, .type = KN_BF16, .seed = 1, .replace = true};
	for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
		m.ranks[t] = RANK;
		m.alphas[t] = 2 * RANK;
	}
	rc = adapter_make(&m, &err);
	for (r->n_adapters = 0; rc == 0 && r->n_adapters < ADAPTERS; r->n_adapters += rc == 0)
		rc = model_load_adapter(r->m, file, &slot, &err);
	bench_folder_remove(dir);
	if (rc != 0)
		return bench_complain(1, "%s", err.text);
	r->slot_bytes = (double)model_adapter_bytes(r->m, 0);
	return 0;
}

/* Decodes of `batch` sequences, of eight adapters in turn; the better of each kind's turns. */
static int adapted_decodes(struct rig *r, const char *kind, int batch, int context, int n_steps)
{
	double best[2] = {0, 0}, gap;
	for (int turn = 0; turn < 2 * TURNS; turn++) {
		int with = turn % 2;
		r->adapted = with != 0;
		double seconds = decode_s(r, batch, context, n_steps, &gap);
		if (!(seconds > 0))
			return bench_complain(1, "%s", r->x->ops->describe(r->x->b));
		best[with] = turn < 2 || seconds < best[with] ? seconds : best[with];
	}
	r->adapted = false;
	double used = batch < ADAPTERS ? batch : ADAPTERS, bytes = decode_bytes(r, batch, context);
	tell("plain", kind, batch, best[0], bytes, 0);
	tell("adapter", kind, batch, best[1], bytes + used * r->slot_bytes, 0);
	return 0;
}

static int adapters(struct rig *r, const char *path, const char *kind, int context, int few, int n_steps, int n_times)
{
	static const int batches[] = {1, 8, 64};
	if (r->x->ops->lora_shrink == NULL)
		return 0;
	int rc = load_adapters(r, path);
	for (size_t i = 0; i < sizeof batches / sizeof *batches && batches[i] <= r->n_seqs && rc == 0; i++)
		rc = adapted_decodes(r, kind, batches[i], context, n_steps);
	for (int with = 0; with < 2 && rc == 0; with++) {
		r->adapted = with != 0;
		double seconds = prompt_s(r, 0, few, n_times);
		tell(with ? "adapter_prompt" : "plain_prompt", kind, 2048, seconds, 0, 0);
		rc = seconds > 0 ? 0 : bench_complain(1, "%s", r->x->ops->describe(r->x->b));
	}
	r->adapted = false;
	return rc;
}

int bench_gpu_model(struct gpu_bench *x, const char *path, const char *kind)
{
	static struct rig r;
	int context = x->tiny ? 24 : 1024, few = x->tiny ? 16 : 2048, n_steps = x->tiny ? 1 : 30,
	    n_times = x->tiny ? 1 : 3;
	r = (struct rig){.x = x, .chunk = few};
	int rc = open_rig(&r, path, x->tiny ? 8 : MOST_SEQS, context, 4 * few + few / 4);
	if (rc == 0)
		rc = decodes(&r, kind, context, n_steps);
	if (rc == 0) {
		tell("verify", kind, 1, verify_s(&r, 1, context, n_steps), 0, 0);
		tell("verify", kind, DRAFT, verify_s(&r, DRAFT, context, n_steps), 0, 0);
		rc = prompts(&r, kind, few, n_times);
	}
	if (rc == 0 && x->adapters)
		rc = adapters(&r, path, kind, context, few, n_steps, n_times);
	close_rig(&r);
	return rc;
}

int bench_gpu_steps(struct gpu_bench *x, const char *path, const char *kind, int batch, int prompt)
{
	static struct rig r;
	const int context = x->tiny ? 24 : 1024;
	double gap = 0, seconds;
	r = (struct rig){.x = x, .chunk = prompt > 0 ? prompt : 1};
	int rc = open_rig(&r, path, batch > 0 ? batch : 1, context, prompt > context ? prompt : context);
	if (rc == 0 && batch > 0) {
		seconds = decode_s(&r, batch, context, 2, &gap);
		tell("decode", kind, batch, seconds, 0, 0);
		tell("gap", kind, batch, gap, 0, 0);
		rc = seconds > 0 ? 0 : bench_complain(1, "%s", x->ops->describe(x->b));
	}
	if (rc == 0 && prompt > 0) {
		seconds = prompt_s(&r, 0, prompt, 2);
		tell("prompt", kind, prompt, seconds, 0, 0);
		rc = seconds > 0 ? 0 : bench_complain(1, "%s", x->ops->describe(x->b));
	}
	close_rig(&r);
	return rc;
}
