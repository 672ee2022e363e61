/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's table: memory, weights, and which operation is which function. The same source is the backend
 * "cuda" and, with KN_EMULATED, "cuda-emulated".
 *
 * A fault of the device stays in the device layer: every
 * operation then returns SL_EIO, which is what the engine ends a model's streams by.
 *
 * Ownership: everything on the device but what mem_alloc and weight_load gave belongs to the backend.
 */
#include "kernels/cuda/backend.h"

#include <stdio.h>
#include <string.h>

static const struct kn_plugin_host *program;

static void backend_close(struct kn_backend *b)
{
	dev_record(b->dev, NULL);
	kn_graphs_drop(b->dev, &b->graphs);
	kn_list_dispose(&b->list);
	(void)dev_sync(b->dev); /* a step that nobody waits for any more may be at it */
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		kn_cuda_host_room_free(b, &b->sets[i].staged);
		kn_cuda_host_room_free(b, &b->sets[i].draws_staged);
		kn_cuda_host_room_free(b, &b->sets[i].results);
		b->host->free(b->sets[i].reads);
	}
	void *owned[] = {b->ints.at, b->scratch.at, b->picks.at, b->draws.at,        b->drawn.at,
			 b->rows.at, b->parts.at,   b->stage.at, b->flat_weights.at, b->flat_rows.at};
	for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
		if (owned[i] != NULL)
			dev_free(b->dev, owned[i]);
	for (int i = 0; i < KN_N_FREQS; i++)
		if (b->freqs[i].at != NULL)
			dev_free(b->dev, b->freqs[i].at);
	kn_cuda_library_close(b);
	dev_close(b->dev);
	b->host->free(b->numbers);
	b->host->free(b);
}

static int backend_open(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	struct kn_backend *b = (struct kn_backend *)program->zalloc(sizeof *b);
	if (b == NULL)
		return program->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	b->host = program;
	b->max_rows = cfg->max_rows;
	b->fp8_weights = cfg->fp8_weights;
	b->pad_rows = cfg->pad_rows;
	b->list.host = program;
	b->list.before = kn_cuda_send;
	b->list.ctx = b;
	int rc = dev_open(program, cfg->priority, &b->dev, err);
	if (rc != 0) {
		program->free(b);
		return rc;
	}
	if (cfg->loose_products)
		kn_cuda_library_open(b, cfg->choices_path);
	*out = b;
	return 0;
}

static const char *backend_describe(struct kn_backend *b)
{
	const char *fault = dev_fault(b->dev);
	int n =
	    snprintf(b->line, sizeof b->line, "%s%s%.100s", dev_describe(b->dev), fault[0] ? ", failed: " : "", fault);
	if (b->lacked > 0 && n > 0 && (size_t)n < sizeof b->line)
		snprintf(b->line + n, sizeof b->line - (size_t)n, ", no memory for %zu bytes of its steps", b->lacked);
	return b->line;
}

static int backend_mem_alloc(struct kn_backend *b, size_t bytes, void **out) { return dev_alloc(b->dev, bytes, out); }

static void backend_mem_free(struct kn_backend *b, void *p) { dev_free(b->dev, p); }

static int backend_upload(struct kn_backend *b, float *dst, const float *host, size_t n)
{
	return dev_copy_in(b->dev, dst, host, n * sizeof *dst);
}

/* ---- steps, with names for profilers ---- */

/* A step with rows that follow one another in a sequence computes a prompt, or verifies a draft. */
static bool is_decode(const struct kn_step *s)
{
	for (int r = 1; s->row_seq != NULL && r < s->n_rows; r++)
		if (s->row_seq[r] == s->row_seq[r - 1])
			return false;
	return true;
}

static int op_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	dev_range(b->dev, is_decode(s) ? "decode" : "prefill");
	return kn_cuda_step_begin(b, s);
}

static int op_sample(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		     struct kn_drawn *out)
{
	dev_range(b->dev, "sampling");
	return kn_cuda_sample(b, logits, n_vocab, draws, n, out);
}

/* What was recorded is launched here: by then the step is at its end. */
static int op_step_issue(struct kn_backend *b)
{
	dev_range(b->dev, "step");
	int rc = kn_cuda_step_issue(b);
	dev_range(b->dev, NULL);
	return rc;
}

static int op_step_wait(struct kn_backend *b)
{
	dev_range(b->dev, "wait");
	int rc = kn_cuda_step_wait(b);
	dev_range(b->dev, NULL);
	return rc;
}

static int op_step_end(struct kn_backend *b)
{
	dev_range(b->dev, "step");
	int rc = kn_cuda_step_end(b);
	dev_range(b->dev, NULL);
	return rc;
}

/* ---- operations on rows, in a step that was filled up ---- */

static int op_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width,
		      float *y)
{
	return kn_cuda_rmsnorm(b, x, gain, eps, kn_cuda_rows(b, n_rows), width, y);
}

static int op_add_rmsnorm(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
			  int width, float *y)
{
	return kn_cuda_add_rmsnorm(b, x, add, gain, eps, kn_cuda_rows(b, n_rows), width, y);
}

static int op_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	return kn_cuda_matmul(b, w, x, kn_cuda_rows(b, n_rows), y);
}

static int op_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	return kn_cuda_silu_mul(b, gate, up, kn_cuda_rows(b, n_rows), width);
}

static int op_gelu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	return kn_cuda_gelu_mul(b, gate, up, kn_cuda_rows(b, n_rows), width);
}

static int op_gate_mul(struct kn_backend *b, const float *x, int n_rows, int width, bool gelu, float *y)
{
	return kn_cuda_gate_mul(b, x, kn_cuda_rows(b, n_rows), width, gelu, y);
}

static int op_qkv_norm(struct kn_backend *b, float *qkv, int n_heads, int n_kv_heads, int head_dim, const float *q_gain,
		       const float *k_gain, float eps, int n_rows)
{
	return kn_cuda_qkv_norm(b, qkv, n_heads, n_kv_heads, head_dim, q_gain, k_gain, eps, kn_cuda_rows(b, n_rows));
}

static int op_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	return kn_cuda_add(b, x, y, kn_cuda_rows(b, n_rows), width);
}

static int op_add_row(struct kn_backend *b, float *x, const float *row, int n_rows, int width)
{
	return kn_cuda_add_row(b, x, row, kn_cuda_rows(b, n_rows), width);
}

static int op_scale(struct kn_backend *b, float *x, float factor, int n_rows, int width)
{
	return kn_cuda_scale(b, x, factor, kn_cuda_rows(b, n_rows), width);
}

static int op_softcap(struct kn_backend *b, float *x, float cap, int n_rows, int width)
{
	return kn_cuda_softcap(b, x, cap, kn_cuda_rows(b, n_rows), width);
}

static void backend_stats(struct kn_backend *b, struct kn_stats *out)
{
	out->steps = b->n_steps;
	out->graph_hits = b->graphs.hits;
	out->graph_misses = b->graphs.misses;
	out->graph_captures = b->graphs.captures;
	out->graph_refusals = b->graphs.refused;
	out->graphs = (uint64_t)b->graphs.n;
	out->device_ns = dev_busy_ns(b->dev);
	snprintf(out->pci, sizeof out->pci, "%s", dev_pci(b->dev));
}

static bool backend_kv_type(int type) { return kn_kv_element_bytes(type) > 0; }

static struct kn_ops make_ops(void)
{
	struct kn_ops o = {};
#ifdef KN_EMULATED
	o.name = "cuda-emulated";
#else
	o.name = "cuda";
#endif
	o.open = backend_open;
	o.close = backend_close;
	o.describe = backend_describe;
	o.mem_alloc = backend_mem_alloc;
	o.mem_free = backend_mem_free;
	o.upload = backend_upload;
	o.weight_load = kn_cuda_weight_load;
	o.weight_free = kn_cuda_weight_free;
	o.weight_load_joined = kn_cuda_weight_load_joined;
	o.weight_random = kn_cuda_weight_random;
	o.qkv_norm = op_qkv_norm;
	o.qkv_rope_write = kn_cuda_qkv_rope_write;
	o.gate_mul = op_gate_mul;
	o.ahead = true;
	o.step_begin = op_step_begin;
	o.step_issue = op_step_issue;
	o.step_wait = op_step_wait;
	o.step_ready = kn_cuda_step_ready;
	o.step_end = op_step_end;
	o.embed = kn_cuda_embed;
	o.rmsnorm = op_rmsnorm;
	o.add_rmsnorm = op_add_rmsnorm;
	o.matmul = op_matmul;
	o.kv_type = backend_kv_type;
	o.rope_kv_write = kn_cuda_rope_kv_write;
	o.attention = kn_cuda_attention;
	o.silu_mul = op_silu_mul;
	o.gelu_mul = op_gelu_mul;
	o.add = op_add;
	o.add_row = op_add_row;
	o.scale = op_scale;
	o.softcap = op_softcap;
	o.gather = kn_cuda_gather;
	o.read_back = kn_cuda_read_back;
	o.page_copy = kn_cuda_page_copy;
	o.memory = kn_cuda_memory;
	o.settle = kn_cuda_settle;
	o.host_alloc = kn_cuda_host_alloc;
	o.host_free = kn_cuda_host_free;
	o.page_out = kn_cuda_page_out;
	o.page_in = kn_cuda_page_in;
	o.pages_there = kn_cuda_pages_there;
	o.sample = op_sample;
	o.stats = backend_stats;
	return o;
}

extern "C" __attribute__((visibility("default"))) const struct kn_ops *sluice_backend(const struct kn_plugin_host *host,
										      struct sl_err *err)
{
	static struct kn_ops ops;
	if (host->abi != KN_PLUGIN_ABI || host->ops_size != sizeof(struct kn_ops) ||
	    host->kv_size != sizeof(struct kn_kv) || host->step_size != sizeof(struct kn_step)) {
		host->errf(err, SL_EUNSUPPORTED, "the CUDA backend was built for another version of this program");
		return NULL;
	}
	if (dev_probe(host, err) != 0)
		return NULL;
	program = host;
	ops = make_ops();
	return &ops;
}
