/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference: every operation as plainly as it can be written, one thread, double accumulators.
 * It is the oracle of the tests and is never optimised.
 */
#include "kernels/cpu/ref.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/host.h"
#include "kernels/cpu/route.h"
#include "kernels/kv_type.h"
#include "kernels/quantize.h"

struct kn_backend {
	const struct kn_step *step;
	float *row; /* one dequantized weight row */
	float *scores;
	double *weights; /* of the positions, by their scores; after these the sums of a head's elements */
	size_t n_scores;
	int max_width;
};

static int ref_open(const struct kn_config *cfg, struct kn_backend **out, struct sl_err *err)
{
	if (cfg->fp8_weights)
		return sl_errf(err, SL_EUNSUPPORTED, "the reference backend has no weights of type fp8");
	struct kn_backend *b = sl_zalloc(sizeof *b);
	if (b != NULL)
		b->row = sl_zalloc_n((size_t)cfg->max_width, sizeof *b->row);
	if (b == NULL || b->row == NULL) {
		sl_free(b);
		return sl_errf(err, SL_ENOMEM, "no memory for the reference backend");
	}
	b->max_width = cfg->max_width;
	*out = b;
	return 0;
}

static void ref_close(struct kn_backend *b)
{
	sl_free(b->row);
	sl_free(b->scores);
	sl_free(b->weights);
	sl_free(b);
}

static const char *ref_describe(struct kn_backend *b)
{
	(void)b;
	return "reference, one thread";
}

static int ref_weight_load(struct kn_backend *b, const void *host, int type, int n_out, int n_in, struct kn_weight *out,
			   struct sl_err *err)
{
	if (kn_type_block(type) == 0)
		return sl_errf(err, SL_EUNSUPPORTED, "weights of type %s are not supported", kn_type_name(type));
	if (n_in > b->max_width)
		return sl_errf(err, SL_EINVAL, "a weight row of %d, the widest is %d", n_in, b->max_width);
	*out = (struct kn_weight){.data = host, .type = type, .n_out = n_out, .n_in = n_in};
	return 0;
}

static void ref_weight_free(struct kn_backend *b, struct kn_weight *w)
{
	(void)b;
	w->data = NULL;
}

static int ref_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	b->step = s;
	return 0;
}

static int ref_step_end(struct kn_backend *b)
{
	b->step = NULL;
	return 0;
}

static int ref_embed(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	for (int r = 0; r < b->step->n_rows; r++)
		kn_dequantize_row(w, b->step->row_token[r], y + (size_t)r * (size_t)w->n_in);
	return 0;
}

static int ref_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width,
		       float *y)
{
	(void)b;
	for (int r = 0; r < n_rows; r++, x += width, y += width) {
		double sum = 0;
		for (int i = 0; i < width; i++)
			sum += (double)x[i] * (double)x[i];
		double scale = 1.0 / sqrt(sum / width + (double)eps);
		for (int i = 0; i < width; i++)
			y[i] = (float)((double)x[i] * scale * (double)gain[i]);
	}
	return 0;
}

static int ref_layernorm(struct kn_backend *b, float *x, const float *add, const float *gain, const float *bias,
			 float eps, int n_rows, int width, float *y)
{
	(void)b;
	for (int r = 0; r < n_rows; r++, x += width, y += width) {
		double sum = 0, squares = 0;
		for (int i = 0; i < width; i++) {
			if (add != NULL)
				x[i] += add[(size_t)r * (size_t)width + (size_t)i];
			sum += (double)x[i];
		}
		double mean = sum / width;
		for (int i = 0; i < width; i++)
			squares += ((double)x[i] - mean) * ((double)x[i] - mean);
		double scale = 1.0 / sqrt(squares / width + (double)eps);
		for (int i = 0; i < width; i++)
			y[i] = (float)(((double)x[i] - mean) * scale * (double)gain[i] +
				       (bias != NULL ? (double)bias[i] : 0));
	}
	return 0;
}

static int ref_embed_add(struct kn_backend *b, const float *w, enum kn_embed_by by, int width, float *y)
{
	const int32_t *rows = by == KN_EMBED_POS ? b->step->row_pos : b->step->row_type;
	for (int r = 0; r < b->step->n_rows; r++, y += width)
		for (int i = 0; i < width; i++)
			y[i] += w[(size_t)(rows != NULL ? rows[r] : 0) * (size_t)width + (size_t)i];
	return 0;
}

static int ref_add_rmsnorm(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
			   int width, float *y)
{
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] += add[i];
	return ref_rmsnorm(b, x, gain, eps, n_rows, width, y);
}

static int ref_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	for (int o = 0; o < w->n_out; o++) {
		kn_dequantize_row(w, o, b->row);
		for (int r = 0; r < n_rows; r++) {
			double sum = 0;
			for (int i = 0; i < w->n_in; i++)
				sum += (double)b->row[i] * (double)x[(size_t)r * (size_t)w->n_in + (size_t)i];
			y[(size_t)r * (size_t)w->n_out + (size_t)o] = (float)sum;
		}
	}
	return 0;
}

static void rotate(const struct kn_rope *rope, float *head, int32_t pos)
{
	int half = rope->n_rot / 2;
	for (int i = 0; i < half; i++) {
		double angle = (double)pos * rope->inv_freq[i], m = (double)rope->magnitude;
		float *x = rope->halves ? &head[i] : &head[2 * i], *y = rope->halves ? &head[i + half] : x + 1;
		double c = m * cos(angle), s = m * sin(angle), a = (double)*x, d = (double)*y;
		*x = (float)(a * c - d * s);
		*y = (float)(a * s + d * c);
	}
}

/* A query: turned, and larger at later positions. */
static void rotate_query(const struct kn_rope *rope, float *head, int head_dim, int32_t pos)
{
	double grown = kn_rope_grown(rope, pos);
	rotate(rope, head, pos);
	for (int i = 0; i < head_dim; i++)
		head[i] = (float)((double)head[i] * grown);
}

static bool ref_kv_type(int type) { return kn_kv_element_bytes(type) > 0; }

/* The block of a position of a sequence in one layer, in k or v. */
static void *block_of(const struct kn_step *s, const struct kn_kv *kv, void *side, int layer, int32_t seq, int32_t pos,
		      int head)
{
	int32_t page = kn_table_of(s, seq, kv->group)[pos / kv->page_tokens];
	BUG_IF(page < 0 || page >= kv->n_pages, "page %d at position %d", page, pos);
	return (uint8_t *)side + kn_kv_block_at(kv, page, layer, head);
}

/* The Hadamard matrix has -1 where the row's and the column's number have an odd number of ones in common. */
static void transform(const struct kn_kv *kv, float *head)
{
	float x[KN_MAX_ROTATED];
	int n = kv->rotate;
	BUG_IF(n > KN_MAX_ROTATED, "blocks of %d elements", n);
	for (int from = 0; n > 0 && from < kv->head_dim; from += n, head += n) {
		memcpy(x, head, (size_t)n * sizeof *x);
		for (int i = 0; i < n; i++) {
			double sum = 0;
			for (int j = 0; j < n; j++)
				sum += __builtin_parity((unsigned)(i & j)) ? -(double)x[j] : (double)x[j];
			head[i] = (float)(sum / sqrt(n));
		}
	}
}

static int ref_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			     const float *v, const struct kn_kv *kv, int layer)
{
	const struct kn_step *s = b->step;
	size_t hd = (size_t)kv->head_dim, kv_width = (size_t)kv->n_kv_heads * hd;
	for (int r = 0; r < s->n_rows; r++) {
		for (int h = 0; h < n_heads; h++) {
			float *head = q + ((size_t)r * (size_t)n_heads + (size_t)h) * hd;
			rotate_query(rope, head, kv->head_dim, s->row_pos[r]);
			transform(kv, head);
		}
		for (int h = 0; h < kv->n_kv_heads; h++) {
			rotate(rope, k + (size_t)r * kv_width + (size_t)h * hd, s->row_pos[r]);
			transform(kv, k + (size_t)r * kv_width + (size_t)h * hd);
		}
		for (int h = 0; h < kv->n_kv_heads; h++) {
			size_t from = (size_t)r * kv_width + (size_t)h * hd;
			int32_t pos = s->row_pos[r], token = pos % kv->page_tokens;
			kn_kv_put(kv->type, block_of(s, kv, kv->k, layer, s->row_seq[r], pos, h), true, kv->page_tokens,
				  kv->head_dim, token, k + from);
			kn_kv_put(kv->type, block_of(s, kv, kv->v, layer, s->row_seq[r], pos, h), false,
				  kv->page_tokens, kv->head_dim, token, v + from);
		}
	}
	return 0;
}

/* The row of values after the norm of its first elements and the turn of the others. */
static void latent_row(const struct kn_rope *rope, const float *gain, float eps, const struct kn_kv *kv, int32_t pos,
		       float *row)
{
	ref_rmsnorm(NULL, row, gain, eps, 1, kv->latent, row);
	rotate(rope, row + kv->latent, pos);
}

static int ref_latent_write(struct kn_backend *b, const struct kn_rope *rope, const float *gain, float eps,
			    const float *q, int n_heads, int q_width, float *row, float *q_latent,
			    const struct kn_kv *kv, int layer)
{
	const struct kn_step *s = b->step;
	int width = kv->head_dim, turned = width - kv->latent;
	for (int r = 0; r < s->n_rows; r++, row += width) {
		int32_t pos = s->row_pos[r], token = pos % kv->page_tokens;
		int32_t page = kn_table_of(s, s->row_seq[r], kv->group)[pos / kv->page_tokens];
		for (int h = 0; h < n_heads; h++, q += q_width, q_latent += width) {
			for (int i = 0; i < turned; i++)
				q_latent[kv->latent + i] = q[q_width - turned + i];
			rotate(rope, q_latent + kv->latent, pos);
		}
		latent_row(rope, gain, eps, kv, pos, row);
		BUG_IF(page < 0 || page >= kv->n_pages, "page %d at position %d", page, pos);
		void *block = kn_kv_latent_block(kv, page, layer, &token);
		kn_kv_put(kv->type, block, false, kv->page_tokens / 2, width, token, row);
	}
	return 0;
}

static int ref_matmul_heads(struct kn_backend *b, const struct kn_weight *w, int n_heads, const float *x, int x_width,
			    int n_rows, float *work, float *y, int y_width)
{
	(void)work;
	for (int r = 0; r < n_rows; r++)
		for (int h = 0; h < n_heads; h++, x += x_width, y += y_width)
			ref_matmul(b, &w[h], x, 1, y);
	return 0;
}

static int32_t sees(const struct kn_step *s, int row)
{
	return s->row_sees != NULL ? s->row_sees[row] : s->row_pos[row] + 1;
}

/* Where the key or the value of a position is. */
struct cells {
	const void *block;
	int page_tokens, token; /* as kn_kv_get takes them */
	bool keys;
};

static struct cells cells_of(const struct kn_step *s, const struct kn_kv *kv, bool keys, int layer, int32_t seq,
			     int32_t pos, int kv_head)
{
	struct cells c = {NULL, kv->page_tokens, pos % kv->page_tokens, keys};
	if (kv->latent == 0) {
		c.block = block_of(s, kv, keys ? kv->k : kv->v, layer, seq, pos, kv_head);
		return c;
	}
	int32_t page = kn_table_of(s, seq, kv->group)[pos / kv->page_tokens];
	c.block = kn_kv_latent_block(kv, page, layer, &c.token);
	c.page_tokens /= 2;
	c.keys = false;
	return c;
}

static double element(const struct kn_kv *kv, const struct cells *c, int d)
{
	return (double)kn_kv_get(kv->type, c->block, c->keys, c->page_tokens, kv->head_dim, c->token, d);
}

static void attend(struct kn_backend *b, const float *q, const struct kn_kv *kv, int layer, int head, int kv_head,
		   int row, const struct kn_attn *attn, float *out)
{
	const struct kn_step *s = b->step;
	int32_t n = sees(s, row), seq = s->row_seq[row];
	int32_t from = kn_first_seen(attn, n);
	float max = -INFINITY;
	for (int32_t p = from; p < n; p++) {
		const struct cells k = cells_of(s, kv, true, layer, seq, p, kv_head);
		double dot = 0;
		for (int d = 0; d < kv->head_dim; d++)
			dot += (double)q[d] * element(kv, &k, d);
		dot *= (double)attn->scale;
		if (attn->softcap > 0)
			dot = (double)attn->softcap * tanh(dot / (double)attn->softcap);
		b->scores[p] = (float)dot;
		max = b->scores[p] > max ? b->scores[p] : max;
	}
	double sum = 0, *sums = b->weights + n;
	for (int32_t p = from; p < n; p++)
		sum += b->weights[p] = exp((double)(b->scores[p] - max));
	if (attn->sinks != NULL)
		sum += exp((double)(attn->sinks[head] - max));
	int width = kv->latent > 0 ? kv->latent : kv->head_dim;
	for (int d = 0; d < width; d++)
		sums[d] = 0;
	for (int32_t p = from; p < n; p++) {
		const struct cells v = cells_of(s, kv, false, layer, seq, p, kv_head);
		double weight = b->weights[p] / sum;
		for (int d = 0; d < width; d++)
			sums[d] += weight * element(kv, &v, d);
	}
	for (int d = 0; d < width; d++)
		out[d] = (float)sums[d];
}

/* Room for n positions and the elements of a head. */
static int reserve(struct kn_backend *b, size_t n, size_t head_dim)
{
	n += head_dim;
	if (n <= b->n_scores)
		return 0;
	b->n_scores = 0;
	float *scores = sl_realloc_n(b->scores, n * 2, sizeof *scores);
	if (scores == NULL)
		return SL_EIO;
	b->scores = scores;
	double *weights = sl_realloc_n(b->weights, n * 2, sizeof *weights);
	if (weights == NULL)
		return SL_EIO;
	b->weights = weights;
	b->n_scores = n * 2;
	return 0;
}

static int ref_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
			 const struct kn_attn *attn, float *out)
{
	const struct kn_step *s = b->step;
	int group = n_heads / kv->n_kv_heads;
	for (int r = 0; r < s->n_rows; r++) {
		if (reserve(b, (size_t)sees(s, r), (size_t)kv->head_dim) != 0)
			return SL_EIO;
		for (int h = 0; h < n_heads; h++) {
			size_t at = (size_t)r * (size_t)n_heads + (size_t)h, width = (size_t)kv->head_dim;
			attend(b, q + at * width, kv, layer, h, h / group, r, attn,
			       out + at * (kv->latent > 0 ? (size_t)kv->latent : width));
		}
	}
	return 0;
}

static int ref_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++) {
		double g = (double)gate[i];
		gate[i] = (float)(g / (1.0 + exp(-g)) * (double)up[i]);
	}
	return 0;
}

static int ref_gelu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++) {
		double g = (double)gate[i];
		double inner = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
		gate[i] = (float)(0.5 * g * (1 + tanh(inner)) * (double)up[i]);
	}
	return 0;
}

static int ref_gelu(struct kn_backend *b, float *x, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] = (float)((double)x[i] * 0.5 * erfc(-(double)x[i] / sqrt(2)));
	return 0;
}

static int ref_add_row(struct kn_backend *b, float *x, const float *row, int n_rows, int width)
{
	(void)b;
	for (int r = 0; r < n_rows; r++, x += width)
		for (int i = 0; i < width; i++)
			x[i] += row[i];
	return 0;
}

static int ref_scale(struct kn_backend *b, float *x, float factor, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] *= factor;
	return 0;
}

static int ref_softcap(struct kn_backend *b, float *x, float cap, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] = (float)((double)cap * tanh((double)x[i] / (double)cap));
	return 0;
}

static int ref_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	(void)b;
	for (size_t i = 0; i < (size_t)n_rows * (size_t)width; i++)
		x[i] += y[i];
	return 0;
}

static void add_bias(float *x, const float *bias, int expert, int n)
{
	for (int i = 0; i < n && bias != NULL; i++)
		x[i] += bias[(size_t)expert * (size_t)n + (size_t)i];
}

static int ref_relu_square(struct kn_backend *b, float *x, int n_rows, int width)
{
	(void)b;
	for (int64_t i = 0; i < (int64_t)n_rows * width; i++)
		x[i] = x[i] < 0 ? 0 : (float)((double)x[i] * (double)x[i]);
	return 0;
}

static void clamped_mul(float *gate, const float *up, int n)
{
	for (int i = 0; i < n; i++) {
		double g = fmin((double)gate[i], (double)KN_CLAMP);
		double u = fmax(fmin((double)up[i], (double)KN_CLAMP), -(double)KN_CLAMP);
		gate[i] = (float)(g / (1 + exp(-(double)KN_CLAMP_SLOPE * g)) * (u + 1));
	}
}

/* Number i of an adapter's matrix. */
static double lora_at(int type, const void *of, size_t i)
{
	float v;
	if (type == KN_LORA_I8)
		return ((const int8_t *)of)[i];
	kn_dequantize(type, (const uint8_t *)of + i * kn_lora_bytes(type), 1, &v);
	return (double)v;
}

/* t of a row x. */
static void shrink_row(const struct kn_lora *l, const float *x, float *t)
{
	for (int j = 0; j < l->rank; j++) {
		double sum = 0;
		for (int k = 0; k < l->n_in; k++)
			sum += lora_at(l->type, l->a, (size_t)j * (size_t)l->n_in + (size_t)k) * (double)x[k];
		t[j] = (float)(sum * (l->scales != NULL ? (double)l->scales[j] : 1));
	}
}

static void expand_row(int type, const struct kn_lora_part *p, const float *t, float *y)
{
	for (int o = 0; o < p->n_out; o++) {
		double sum = 0;
		for (int j = 0; j < p->rank; j++) {
			int at = (o / KN_LORA_TILE * p->rank + j) * KN_LORA_TILE + o % KN_LORA_TILE;
			sum += lora_at(type, p->b, (size_t)at) * (double)t[j];
		}
		y[o] = (float)((double)y[o] + (double)p->scale * sum);
	}
}

/* What an adapter adds to parts of one row's products; ys NULL: there is no such part. */
static void add_lora(const struct kn_lora *l, const float *x, float *t, float *const ys[KN_LORA_PARTS])
{
	if (l == NULL || l->rank == 0)
		return;
	shrink_row(l, x, t);
	for (int p = 0; p < l->n_parts; t += l->parts[p++].rank)
		if (l->parts[p].rank > 0)
			expand_row(l->type, &l->parts[p], t, ys[p]);
}

/* One expert's output for a row. */
static void one_expert(struct kn_backend *b, const struct kn_experts *e, int which, const struct kn_lora *loras,
		       const float *x, float *work, float *y)
{
	int n_ff = e->up[0].n_out;
	const struct kn_lora *l = loras != NULL ? &loras[which * KN_EXPERT_LORAS] : NULL;
	float *t = l != NULL ? e->lora->t : NULL;
	if (e->act != KN_NO_GATE)
		ref_matmul(b, &e->gate[which], x, 1, work);
	ref_matmul(b, &e->up[which], x, 1, work + n_ff);
	add_lora(l, x, t, (float *const[KN_LORA_PARTS]){work, work + n_ff});
	add_bias(work, e->gate_bias, which, n_ff);
	add_bias(work + n_ff, e->up_bias, which, n_ff);
	if (e->act == KN_NO_GATE)
		for (int i = 0; i < n_ff; i++)
			work[i] = work[n_ff + i];
	if (e->act == KN_NO_GATE)
		ref_relu_square(b, work, 1, n_ff);
	else if (e->act == KN_GATE_CLAMPED)
		clamped_mul(work, work + n_ff, n_ff);
	else
		(e->act == KN_GATE_GELU ? ref_gelu_mul : ref_silu_mul)(b, work, work + n_ff, 1, n_ff);
	ref_matmul(b, &e->down[which], work, 1, y);
	add_lora(l != NULL ? l + 1 : NULL, work, t, (float *const[KN_LORA_PARTS]){y});
	add_bias(y, e->down_bias, which, e->down[which].n_out);
}

/* Of the adapter of row r. */
static const struct kn_lora *loras_of(const struct kn_experts *e, int r)
{
	const struct kn_lora_rows *rows = e->lora != NULL ? e->lora->rows : NULL;
	for (int g = 0; rows != NULL && g < rows->n_groups; g++)
		for (int i = rows->groups[g].first; i < rows->groups[g].first + rows->groups[g].n; i++)
			if (rows->rows[i] == r)
				return e->lora->of[g];
	return NULL;
}

static int ref_experts(struct kn_backend *b, const struct kn_experts *e, const float *logits, const float *x,
		       int n_rows, float *work, float *y)
{
	int width = e->up[0].n_in;
	for (int r = 0; r < n_rows; r++, x += width, y += width, logits += e->route.n) {
		int32_t chosen[KN_MAX_EXPERTS_USED];
		float weights[KN_MAX_EXPERTS_USED], *sum = work, *out = work + width;
		kn_route_row(&e->route, logits, chosen, weights);
		for (int i = 0; i < width; i++)
			sum[i] = 0;
		for (int k = 0; k < e->route.n_used; k++) {
			for (int i = 0; i < width; i++)
				out[i] = e->weighs_input ? weights[k] * x[i] : x[i];
			one_expert(b, e, chosen[k], loras_of(e, r), out, out + width, out);
			for (int i = 0; i < width; i++)
				sum[i] += e->weighs_input ? out[i] : weights[k] * out[i];
			if (e->n_rows != NULL)
				e->n_rows[chosen[k]]++;
		}
		for (int i = 0; i < width; i++)
			y[i] = sum[i];
	}
	return 0;
}

static int ref_lora_shrink(struct kn_backend *b, const struct kn_lora_rows *rows, const float *x, float *t)
{
	(void)b;
	for (int g = 0; g < rows->n_groups; g++) {
		const struct kn_lora *l = rows->groups[g].lora;
		for (int i = rows->groups[g].first, end = i + rows->groups[g].n; i < end; i++)
			shrink_row(l, x + (size_t)rows->rows[i] * (size_t)l->n_in,
				   t + (size_t)i * (size_t)rows->t_width);
	}
	return 0;
}

static int ref_lora_lookup(struct kn_backend *b, const struct kn_lora_rows *rows, float *t)
{
	for (int g = 0; g < rows->n_groups; g++) {
		const struct kn_lora *l = rows->groups[g].lora;
		for (int i = rows->groups[g].first, end = i + rows->groups[g].n; i < end; i++)
			for (int j = 0; j < l->rank; j++) {
				size_t at = (size_t)b->step->row_token[rows->rows[i]] * (size_t)l->rank + (size_t)j;
				double scale = l->scales != NULL ? (double)l->scales[j] : 1;
				t[(size_t)i * (size_t)rows->t_width + (size_t)j] =
				    (float)(lora_at(l->type, l->a, at) * scale);
			}
	}
	return 0;
}

static int ref_lora_expand(struct kn_backend *b, const struct kn_lora_rows *rows, const float *t,
			   const struct kn_lora_out outs[KN_LORA_PARTS])
{
	(void)b;
	for (int g = 0; g < rows->n_groups; g++) {
		const struct kn_lora *l = rows->groups[g].lora;
		for (int i = rows->groups[g].first, end = i + rows->groups[g].n; i < end; i++) {
			const float *at = t + (size_t)i * (size_t)rows->t_width;
			for (int p = 0; p < l->n_parts; at += l->parts[p++].rank)
				if (l->parts[p].rank > 0)
					expand_row(l->type, &l->parts[p], at,
						   outs[p].y + (size_t)rows->rows[i] * (size_t)outs[p].width);
		}
	}
	return 0;
}

static int ref_add_gated(struct kn_backend *b, float *x, const float *add, const float *gate, int n_rows, int width)
{
	(void)b;
	for (int r = 0; r < n_rows; r++, x += width, add += width)
		for (int i = 0; i < width; i++)
			x[i] += (float)(1 / (1 + exp(-(double)gate[r])) * (double)add[i]);
	return 0;
}

static int ref_sigmoid_mul(struct kn_backend *b, float *x, const float *gate, int n_rows, int width)
{
	(void)b;
	for (int64_t i = 0; i < (int64_t)n_rows * width; i++)
		x[i] = (float)((double)x[i] / (1 + exp(-(double)gate[i])));
	return 0;
}

static int ref_halve(struct kn_backend *b, const float *x, int n_rows, int width, float *first, float *second)
{
	(void)b;
	for (int r = 0; r < n_rows; r++)
		for (int i = 0; i < width; i++) {
			first[r * width + i] = x[2 * r * width + i];
			second[r * width + i] = x[(2 * r + 1) * width + i];
		}
	return 0;
}

static int ref_conv(struct kn_backend *b, const struct kn_conv *c, const float *x, int n_rows, float *y)
{
	return ref_conv_rows(b->step, c, x, n_rows, y);
}

static int ref_delta(struct kn_backend *b, const struct kn_delta *d, const float *qkv, const float *beta,
		     const float *alpha, int n_rows, float *y)
{
	return ref_delta_rows(b->step, d, qkv, beta, alpha, n_rows, y);
}

static int ref_ssm(struct kn_backend *b, const struct kn_ssm *s, const float *xbc, const float *step, int n_rows,
		   float *y)
{
	return ref_ssm_rows(b->step, s, xbc, step, n_rows, y);
}

static int ref_rmsnorm_groups(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows,
			      int n_groups, int width, float *y)
{
	for (int i = 0; i < n_rows * n_groups; i++)
		ref_rmsnorm(b, x + (size_t)i * (size_t)width, gain + i % n_groups * width, eps, 1, width,
			    y + (size_t)i * (size_t)width);
	return 0;
}

const struct kn_ops kn_ref_ops = {.name = "cpu-ref",
				  .open = ref_open,
				  .close = ref_close,
				  .describe = ref_describe,
				  .weight_load = ref_weight_load,
				  .weight_free = ref_weight_free,
				  .step_begin = ref_step_begin,
				  .step_issue = ref_step_end,
				  .step_end = ref_step_end,
				  .embed = ref_embed,
				  .embed_add = ref_embed_add,
				  .layernorm = ref_layernorm,
				  .rmsnorm = ref_rmsnorm,
				  .add_rmsnorm = ref_add_rmsnorm,
				  .matmul = ref_matmul,
				  .kv_type = ref_kv_type,
				  .rope_kv_write = ref_rope_kv_write,
				  .attention = ref_attention,
				  .latent_write = ref_latent_write,
				  .matmul_heads = ref_matmul_heads,
				  .sinks = true,
				  .rotates = true,
				  .experts = ref_experts,
				  .add_gated = ref_add_gated,
				  .lora_shrink = ref_lora_shrink,
				  .lora_expand = ref_lora_expand,
				  .lora_lookup = ref_lora_lookup,
				  .conv = ref_conv,
				  .delta = ref_delta,
				  .ssm = ref_ssm,
				  .relu_square = ref_relu_square,
				  .rmsnorm_groups = ref_rmsnorm_groups,
				  .halve = ref_halve,
				  .sigmoid_mul = ref_sigmoid_mul,
				  .silu_mul = ref_silu_mul,
				  .gelu_mul = ref_gelu_mul,
				  .gelu = ref_gelu,
				  .add = ref_add,
				  .add_row = ref_add_row,
				  .scale = ref_scale,
				  .softcap = ref_softcap,
				  .gather = kn_host_gather,
				  KN_HOST_OPS(KN_HOST_ENTRY)};
