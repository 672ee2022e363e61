/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend's table: memory, weights, steps. The same source is the backend "cuda" and, with
 * KN_EMULATED, "cuda-emulated".
 *
 * A step's integers (tokens, positions, sequences, page tables) go to the device in one copy. Rows that
 * stand together and belong to one sequence, a prompt's, become items of up to KN_ITEM_ROWS rows that share
 * what they read; the others are items of their own.
 *
 * Weights lie on the device as in the file. A fault of the device stays in the device layer: every
 * operation then returns SL_EIO, which is what the engine ends a model's streams by.
 *
 * Ownership: everything on the device but what mem_alloc and weight_load gave belongs to the backend.
 */
#include "kernels/cuda/backend.h"

#include <stdio.h>
#include <string.h>

static const struct kn_plugin_host *program;

int kn_cuda_room(struct kn_backend *b, struct kn_room *room, size_t bytes)
{
	if (bytes <= room->bytes)
		return 0;
	int rc = dev_sync(b->dev); /* nobody may still be using it */
	if (rc != 0)
		return rc;
	if (room->at != NULL)
		dev_free(b->dev, room->at);
	room->at = NULL;
	room->bytes = 0;
	size_t grown = bytes + bytes / 2;
	rc = dev_alloc(b->dev, grown, &room->at);
	if (rc == 0)
		room->bytes = grown;
	return rc;
}

static void backend_close(struct kn_backend *b)
{
	void *owned[] = {b->ints.at, b->scratch.at, b->picks.at};
	for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
		if (owned[i] != NULL)
			dev_free(b->dev, owned[i]);
	for (int i = 0; i < KN_N_FREQS; i++)
		if (b->freqs[i].at != NULL)
			dev_free(b->dev, b->freqs[i].at);
	dev_close(b->dev);
	b->host->free(b->packed);
	b->host->free(b);
}

static int backend_open(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	struct kn_backend *b = (struct kn_backend *)program->zalloc(sizeof *b);
	if (b == NULL)
		return program->errf(err, SL_ENOMEM, "no memory for the CUDA backend");
	b->host = program;
	b->max_rows = cfg->max_rows;
	int rc = dev_open(program, &b->dev, err);
	if (rc != 0) {
		program->free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static const char *backend_describe(struct kn_backend *b)
{
	const char *fault = dev_fault(b->dev);
	snprintf(b->line, sizeof b->line, "%s%s%.100s", dev_describe(b->dev), fault[0] ? ", failed: " : "", fault);
	return b->line;
}

static int backend_mem_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	return dev_alloc(b->dev, bytes, out);
}

static void backend_mem_free(struct kn_backend *b, void *p)
{
	dev_free(b->dev, p);
}

static int backend_upload(struct kn_backend *b, float *dst, const float *host, size_t n)
{
	return dev_copy_in(b->dev, dst, host, n * sizeof *dst);
}

static int backend_read_back(struct kn_backend *b, const float *src, size_t n, float *host)
{
	return dev_copy_out(b->dev, host, src, n * sizeof *host);
}

static int backend_weight_load(struct kn_backend *b, const void *host, int type, int n_out, int n_in,
			       struct kn_weight *out, struct sl_err *err)
{
	if (!kn_cuda_can_decode(type))
		return program->errf(err, SL_EUNSUPPORTED, "weights of type %s are not supported by the CUDA backend",
				     program->type_name(type));
	size_t bytes;
	void *at;
	if (n_out < 1 || n_in < 1 || n_in % program->type_block(type) != 0 ||
	    __builtin_mul_overflow(program->row_bytes(type, (size_t)n_in), (size_t)n_out, &bytes))
		return program->errf(err, SL_EINVAL, "a weight of %d × %d %s", n_out, n_in, program->type_name(type));
	int rc = dev_alloc(b->dev, bytes, &at);
	if (rc == 0 && (rc = dev_copy_in(b->dev, at, host, bytes)) != 0)
		dev_free(b->dev, at);
	if (rc != 0)
		return program->errf(err, rc, "%zu bytes of weights on the device: %s", bytes,
				     rc == SL_ENOMEM ? "no memory" : dev_fault(b->dev));
	out->data = at;
	out->type = type;
	out->n_out = n_out;
	out->n_in = n_in;
	return 0;
}

static void backend_weight_free(struct kn_backend *b, struct kn_weight *w)
{
	if (w->data != NULL)
		dev_free(b->dev, const_cast<void *>(w->data));
	w->data = NULL;
}

/* ---- steps ---- */

static void find_items(struct kn_backend *b, const struct kn_step *s, struct kn_item *alone, struct kn_item *together)
{
	b->n_alone = b->n_together = 0;
	for (int32_t r = 0, n; r < s->n_rows; r += n) {
		for (n = 1; n < KN_ITEM_ROWS && r + n < s->n_rows && s->row_seq[r + n] == s->row_seq[r]; n++)
			;
		if (n == 1)
			alone[b->n_alone++] = {r, n};
		else
			together[b->n_together++] = {r, n};
	}
}

/* The next n integers of the step: copied from `from`, or zero where the step has none. */
static int32_t *pack(int32_t **at, const int32_t *from, size_t n)
{
	int32_t *here = *at;
	if (from != NULL && n > 0)
		memcpy(here, from, n * sizeof *here);
	else
		memset(here, 0, n * sizeof *here);
	*at += n;
	return here;
}

static int backend_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	size_t rows = (size_t)s->n_rows, items = rows * sizeof(struct kn_item) / sizeof(int32_t);
	size_t table = (size_t)s->n_seqs * (size_t)s->max_pages, n = 3 * rows + table + 2 * items;
	if (n > b->n_packed) {
		int32_t *grown = (int32_t *)b->host->zalloc(2 * n * sizeof *grown);
		if (grown == NULL)
			return SL_EIO;
		b->host->free(b->packed);
		b->packed = grown;
		b->n_packed = 2 * n;
	}
	if (kn_cuda_room(b, &b->ints, n * sizeof(int32_t)) != 0)
		return SL_EIO;
	int32_t *at = b->packed, *device = (int32_t *)b->ints.at;
	b->token = device + (pack(&at, s->row_token, rows) - b->packed);
	b->pos = device + (pack(&at, s->row_pos, rows) - b->packed);
	b->seq = device + (pack(&at, s->row_seq, rows) - b->packed);
	b->table = device + (pack(&at, s->page_table, table) - b->packed);
	struct kn_item *alone = (struct kn_item *)pack(&at, NULL, items);
	struct kn_item *together = (struct kn_item *)pack(&at, NULL, items);
	b->alone = (const struct kn_item *)(device + ((int32_t *)alone - b->packed));
	b->together = (const struct kn_item *)(device + ((int32_t *)together - b->packed));
	b->last_pos = 0;
	if (s->row_seq != NULL && s->row_pos != NULL) {
		find_items(b, s, alone, together);
		for (int r = 0; r < s->n_rows; r++)
			b->last_pos = s->row_pos[r] > b->last_pos ? s->row_pos[r] : b->last_pos;
	}
	b->step = s;
	return dev_copy_in(b->dev, b->ints.at, b->packed, n * sizeof(int32_t));
}

static int backend_step_end(struct kn_backend *b)
{
	b->step = NULL;
	return dev_sync(b->dev);
}

static bool backend_kv_type(int type)
{
	return kn_kv_element_bytes(type) > 0;
}

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
	o.weight_load = backend_weight_load;
	o.weight_free = backend_weight_free;
	o.step_begin = backend_step_begin;
	o.step_end = backend_step_end;
	o.embed = kn_cuda_embed;
	o.rmsnorm = kn_cuda_rmsnorm;
	o.add_rmsnorm = kn_cuda_add_rmsnorm;
	o.matmul = kn_cuda_matmul;
	o.kv_type = backend_kv_type;
	o.rope_kv_write = kn_cuda_rope_kv_write;
	o.attention = kn_cuda_attention;
	o.silu_mul = kn_cuda_silu_mul;
	o.gelu_mul = kn_cuda_gelu_mul;
	o.add = kn_cuda_add;
	o.add_row = kn_cuda_add_row;
	o.scale = kn_cuda_scale;
	o.softcap = kn_cuda_softcap;
	o.gather = kn_cuda_gather;
	o.read_back = backend_read_back;
	o.page_copy = kn_cuda_page_copy;
	return o;
}

extern "C" __attribute__((visibility("default"))) const struct kn_ops *
sluice_backend(const struct kn_plugin_host *host, struct sl_err *err)
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
