/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's table of operations, and its memory and weights. The same source is the backend "cuda" and, with
 * KN_EMULATED, "cuda-emulated".
 *
 * A fault of the device stays in the device layer: every operation then returns SL_EIO, and the engine ends the model's
 * streams.
 *
 * Ownership: everything on the device belongs to the backend, except the results of mem_alloc and weight_load.
 */
#include "kernels/cuda/backend.h"

#include <stdio.h>
#include <string.h>

static const struct kn_plugin_host *program;

void kn_cuda_close(struct kn_backend *b)
{
	dev_record(b->dev, NULL);
	kn_graphs_drop(b->dev, &b->graphs);
	kn_list_dispose(&b->list);
	(void)dev_sync(b->dev); /* an abandoned step may still run */
	kn_cuda_uploads_end(b);
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		kn_cuda_host_room_free(b, &b->sets[i].staged);
		kn_cuda_host_room_free(b, &b->sets[i].draws_staged);
		kn_cuda_host_room_free(b, &b->sets[i].results);
		b->host->free(b->sets[i].reads);
		b->host->free(b->sets[i].counted);
	}
	kn_cuda_experts_end(b);
	void *owned[] = {b->ints.at,         b->scratch.at,   b->picks.at,   b->texts.at,  b->draws.at,
			 b->drawn.at,        b->rows[0].at,   b->rows[1].at, b->parts.at,  b->stage.at,
			 b->flat_weights.at, b->flat_rows.at, b->arrived,    b->routed.at, b->counts.at};
	for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
		if (owned[i] != NULL)
			dev_free(b->dev, owned[i]);
	for (int i = 0; i < KN_N_FREQS; i++) {
		if (b->freqs[i].at != NULL)
			dev_free(b->dev, b->freqs[i].at);
		if (b->freqs[i].turns.at != NULL)
			dev_free(b->dev, b->freqs[i].turns.at);
	}
	kn_cuda_head_tables_end(b);
	kn_cuda_library_close(b);
	dev_close(b->dev);
	b->host->free(b->numbers);
	b->host->free(b);
}

int kn_cuda_open(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	struct kn_backend *b = (struct kn_backend *)program->zalloc(sizeof *b);
	if (b == NULL)
		return program->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	b->host = program;
	b->max_rows = cfg->max_rows;
	b->fp8_weights = cfg->fp8_weights;
	b->pad_rows = cfg->pad_rows;
	b->drawn.kept = true; /* the next step's first kernel reads it */
	b->list.host = program;
	b->list.before = kn_cuda_send;
	b->list.ctx = b;
	int rc = dev_open(program, cfg->priority, &b->dev, err);
	if (rc != 0) {
		program->free(b);
		return rc;
	}
	void *arrived = NULL;
	b->n_arrived = b->max_rows > KN_LEAST_ARRIVED ? b->max_rows : KN_LEAST_ARRIVED;
	(void)dev_alloc(b->dev, (size_t)b->n_arrived * sizeof *b->arrived, &arrived);
	b->arrived = (uint32_t *)arrived;
	if (cfg->loose_products)
		kn_cuda_library_open(b, cfg->choices_path);
	*out = b;
	return 0;
}

const char *kn_cuda_describe(struct kn_backend *b)
{
	const char *fault = dev_fault(b->dev);
	int n =
	    snprintf(b->line, sizeof b->line, "%s%s%.100s", dev_describe(b->dev), fault[0] ? ", failed: " : "", fault);
	if (b->lacked > 0 && n > 0 && (size_t)n < sizeof b->line)
		n += snprintf(b->line + n, sizeof b->line - (size_t)n, ", no memory for %zu bytes of its steps",
			      b->lacked);
	if (b->lacks[0] != '\0' && n > 0 && (size_t)n < sizeof b->line)
		snprintf(b->line + n, sizeof b->line - (size_t)n, ", %s", b->lacks);
	return b->line;
}

void kn_cuda_serve(struct kn_backend *b)
{
	kn_cuda_uploads_end(b);
	b->serving = true;
}

int kn_cuda_mem_alloc(struct kn_backend *b, size_t bytes, void **out) { return dev_alloc(b->dev, bytes, out); }

void kn_cuda_mem_free(struct kn_backend *b, void *p) { dev_free(b->dev, p); }

int kn_cuda_upload(struct kn_backend *b, float *dst, const float *host, size_t n)
{
	return dev_copy_in(b->dev, dst, host, n * sizeof *dst);
}

void kn_cuda_stats(struct kn_backend *b, struct kn_stats *out)
{
	out->steps = b->n_steps;
	out->graph_hits = b->graphs.hits;
	out->graph_misses = b->graphs.misses;
	out->graph_captures = b->graphs.captures;
	out->graph_refusals = b->graphs.refused;
	out->graph_compares = b->graphs.compares;
	out->graphs = (uint64_t)b->graphs.n;
	out->launches = dev_counts(b->dev)->launches;
	out->transfers = dev_counts(b->dev)->transfers;
	out->allocations = dev_counts(b->dev)->allocations;
	out->device_ns = dev_busy_ns(b->dev);
	snprintf(out->pci, sizeof out->pci, "%s", dev_pci(b->dev));
}

bool kn_cuda_kv_type(int type) { return kn_kv_element_bytes(type) > 0; }

static struct kn_ops make_ops(void)
{
	struct kn_ops o = {};
#ifdef KN_EMULATED
	o.name = "cuda-emulated";
#else
	o.name = "cuda";
#endif
	o.ahead = o.sinks = true;
#define SET(op) o.op = kn_cuda_##op;
	KN_CUDA_OPS(SET)
#undef SET
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
