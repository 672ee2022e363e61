/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys, values and attention of every table this processor can run, and of the emulated CUDA kernels: attention,
 * rope_kv_write and page_copy for every type of keys and values that a table has, against the same computation in
 * double (long double for angles) written here. As in test_ops.c bounds are derived beside each case and outputs lie
 * between canaries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

static const int thread_counts[] = {1, 2, 4};

static struct kn_backend *open_table(const struct kn_ops *o, int n_threads)
{
	return open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = 64, .max_width = 8448});
}

enum { N_SEQS = 3, LAYERS = 2, LAYER = 1, MAX_HEAD = 128, LONGEST = 513, MAX_ROW = 18 * 32 };
static const int32_t row_seq[] = {1, 0, 2, 0, 1, 0, 1, 0, 2, 1, 0};
static const int32_t row_pos[] = {512, 0, 3, 255, 257, 1, 511, 256, 17, 510, 254};
/* The whole of each row's text, or a part that ends behind the row. */
static const int32_t row_sees[] = {513, 257, 18, 257, 513, 2, 512, 257, 18, 513, 256};
static const int longest[N_SEQS] = {257, LONGEST, 18};

struct cache {
	struct kn_kv kv;
	struct kn_step step;
	int32_t table[N_SEQS * 64];
	size_t n; /* floats that k takes the room of */
};

/* Pages scattered by a stride coprime to their number; unheld entries are no page at all. What nobody has
 * written is no number in any type, nor is its scale (in q8 the scale alone). */
static void make_cache(struct cache *c, const struct kn_ops *o, struct kn_backend *b, int type, int page_tokens,
		       int n_kv_heads, int head_dim)
{
	int pages = 0, n_rows = N(row_pos);
	c->kv = (struct kn_kv){.type = type,
			       .n_pages = 83,
			       .page_tokens = page_tokens,
			       .n_layers = LAYERS,
			       .n_kv_heads = n_kv_heads,
			       .head_dim = head_dim};
	c->n = ((size_t)c->kv.n_pages * kn_kv_page_bytes(&c->kv) + 3) / sizeof(float);
	c->kv.k = guarded(o, b, c->n);
	c->kv.v = guarded(o, b, c->n);
	memset(c->kv.k, 0xFF, c->n * sizeof(float));
	memset(c->kv.v, 0xFF, c->n * sizeof(float));
	for (int i = 0; i < N(c->table); i++)
		c->table[i] = -1;
	for (int s = 0; s < N_SEQS; s++)
		for (int p = 0; p * page_tokens < longest[s]; p++)
			c->table[s * 64 + p] = (pages++ * 29 + 7) % c->kv.n_pages;
	assert_true(pages <= c->kv.n_pages);
	c->step = (struct kn_step){.n_rows = n_rows,
				   .row_pos = row_pos,
				   .row_seq = row_seq,
				   .n_seqs = N_SEQS,
				   .page_table = c->table,
				   .max_pages = 64};
}

/* The block of a position's page and head. */
static void *block_at(const struct cache *c, bool keys, int layer, int seq, int pos, int head)
{
	return (uint8_t *)(keys ? c->kv.k : c->kv.v) +
	       kn_kv_block_at(&c->kv, c->table[seq * 64 + pos / c->kv.page_tokens], layer, head);
}

/* The keys or the values of the layer in double: [sequence][head][position][element]. */
static void decode(const struct cache *c, bool keys, double *out)
{
	const struct kn_kv *kv = &c->kv;
	for (int seq = 0; seq < N_SEQS; seq++)
		for (int head = 0; head < kv->n_kv_heads; head++)
			for (int pos = 0; pos < longest[seq]; pos++) {
				const void *block = block_at(c, keys, LAYER, seq, pos, head);
				double *to = out + ((seq * kv->n_kv_heads + head) * LONGEST + pos) * kv->head_dim;
				for (int d = 0; d < kv->head_dim; d++)
					to[d] = (double)kn_kv_get(kv->type, block, keys, kv->page_tokens, kv->head_dim,
								  pos % kv->page_tokens, d);
			}
}

static void kv_put(const struct cache *c, bool keys, int seq, int pos, int head, const float *x)
{
	const struct kn_kv *kv = &c->kv;
	kn_kv_put(kv->type, block_at(c, keys, LAYER, seq, pos, head), keys, kv->page_tokens, kv->head_dim,
		  pos % kv->page_tokens, x);
}

/* The first position of a window, or of a chunk, that ends before `end`. */
static int first_of(const struct kn_attn *how, int end)
{
	int first = 0;
	for (int p = 0; p < end && how->window > 0; p++)
		if (how->chunked ? p % how->window == 0 : p + how->window == end)
			first = p;
	return first;
}

static void check_attention(const struct cache *c, const struct kn_ops *o, const float *q, int n_heads,
			    const struct kn_attn *how, const float *out)
{
	static double s[LONGEST], w[LONGEST], keys[N_SEQS * LONGEST * MAX_ROW], values[N_SEQS * LONGEST * MAX_ROW];
	int hd = c->kv.head_dim;
	assert_true(c->kv.n_kv_heads * hd <= MAX_ROW);
	decode(c, true, keys);
	decode(c, false, values);
	double scale = (double)how->scale, cap = (double)how->softcap;
	/* An element with a scale is rounded where it is multiplied, here each by itself, there the sum or the
	 * weight: U for either. */
	double scaled = kn_kv_has_scales(c->kv.type) ? 2 * U : 0;
	for (int i = 0; i < c->step.n_rows * n_heads; i++) {
		int row = i / n_heads, head = i % n_heads / (n_heads / c->kv.n_kv_heads);
		int n = c->step.row_sees != NULL ? row_sees[row] : row_pos[row] + 1, seq = row_seq[row],
		    blocks = (n + KN_ATTN_BLOCK - 1) / KN_ATTN_BLOCK;
		int from = first_of(how, n);
		size_t at = (size_t)((seq * c->kv.n_kv_heads + head) * LONGEST * hd);
		const double *k = keys + at, *v = values + at;
		double max = -INFINITY, min = INFINITY, sum = 0, score_error = 0;
		for (int p = from; p < n; p++) {
			double dot = 0, magnitude = 0;
			for (int d = 0; d < hd; d++) {
				double x = (double)q[i * hd + d] * k[p * hd + d];
				dot += x;
				magnitude += fabs(x);
			}
			s[p] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
			max = fmax(max, s[p]);
			min = fmin(min, s[p]);
			score_error = fmax(score_error, (gamma_of(hd) + U + scaled) * magnitude * scale + 4 * U * cap);
		}
		for (int p = from; p < n; p++)
			sum += w[p] = exp(s[p] - max);
		/* A term like the others, whose score is exact. */
		double sink = how->sinks != NULL ? (double)how->sinks[i % n_heads] : max;
		sum += how->sinks != NULL ? exp(sink - max) : 0;
		for (int p = from; p < n; p++)
			w[p] /= sum;
		/* A weight: its score is off by score_error, its difference to the maximum by U of the range,
		 * its exponential by 2U; each later block may shrink it by a factor that is off by as much
		 * and a product. That stands above and below the fraction; so does a summation of n terms.
		 * The quotient adds U. The factor covers the second order. */
		double range = fmax(max, sink) - fmin(min, sink) + 2 * score_error;
		double weight_error = score_error + blocks * (U * range + 3 * U);
		double relative = 1.001 * (2 * weight_error + 2 * gamma_of(n) + U + scaled);
		for (int d = 0; d < hd; d++) {
			double want = 0, magnitude = 0;
			for (int p = from; p < n; p++) {
				double x = w[p] * v[p * hd + d];
				want += x;
				magnitude += fabs(x);
			}
			expect_near("attention", o, (double)out[i * hd + d], want, relative * magnitude);
		}
	}
}

/* The tables of three groups, the second of which has the pages, as far as the row sees them; all others are none. */
static void give_back(const struct cache *c, int row, const struct kn_attn *how, int32_t *tables)
{
	int end = c->step.row_sees != NULL ? row_sees[row] : row_pos[row] + 1, seq = row_seq[row];
	int first = first_of(how, end);
	for (int i = 0; i < 3 * N(c->table); i++)
		tables[i] = -1;
	for (int p = first / c->kv.page_tokens; p * c->kv.page_tokens < end; p++)
		tables[(seq * 3 + 1) * 64 + p] = c->table[seq * 64 + p];
}

static void attention_case(const struct kn_ops *o, int type, int head_dim, int n_kv_heads, int group, int page_tokens,
			   float sharpness, int window, float softcap, bool both_ways)
{ /* window below 0: chunks of as many */
	int n_heads = n_kv_heads * group, n_rows = N(row_pos);
	size_t row = (size_t)n_heads * (size_t)head_dim, n = (size_t)n_rows * row;
	struct kn_attn how = {.scale = sharpness / sqrtf((float)head_dim),
			      .softcap = softcap,
			      .window = abs(window),
			      .chunked = window < 0};
	float *first = malloc(n * sizeof *first);
	uint64_t start = state;
	for (int t = 0; t < N(thread_counts); t++) {
		struct kn_backend *b = open_table(o, thread_counts[t]);
		struct cache c;
		state = start;
		make_cache(&c, o, b, type, page_tokens, n_kv_heads, head_dim);
		c.step.row_sees = both_ways ? row_sees : NULL;
		/* Only held positions of the layer are numbers: whatever else is read shows as NaN. */
		for (int s = 0; s < N_SEQS; s++)
			for (int p = 0; p < longest[s]; p++)
				for (int side = 0; side < 2 * n_kv_heads; side++) {
					float x[MAX_HEAD];
					for (int d = 0; d < head_dim; d++)
						x[d] = next_float();
					kv_put(&c, side % 2 == 0, s, p, side / 2, x);
				}
		float *q = random_floats(o, b, n), *out = guarded(o, b, n),
		      *sinks = random_floats(o, b, (size_t)n_heads);
		how.sinks = window != 0 && o->sinks ? sinks : NULL;
		assert_int_equal(o->step_begin(b, &c.step), 0);
		assert_int_equal(o->attention(b, q, n_heads, &c.kv, LAYER, &how, out), 0);
		assert_int_equal(o->step_end(b), 0);
		check_guards(out, n);
		check_guards(c.kv.k, c.n);
		check_guards(c.kv.v, c.n);
		if (t == 0) {
			check_attention(&c, o, q, n_heads, &how, out);
			memcpy(first, out, n * sizeof *first);
		}
		assert_memory_equal(out, first, n * sizeof *first);
		/* Alone, without the pages that the row does not see. */
		for (int r = 0; r < n_rows; r++) {
			static int32_t tables[3 * N_SEQS * 64];
			struct kn_step alone = c.step;
			struct kn_kv kv = c.kv;
			give_back(&c, r, &how, tables);
			kv.group = 1;
			alone.n_groups = 3;
			alone.page_table = tables;
			alone.n_rows = 1;
			alone.row_pos += r;
			alone.row_seq += r;
			if (both_ways)
				alone.row_sees += r;
			assert_int_equal(o->step_begin(b, &alone), 0);
			assert_int_equal(o->attention(b, q + (size_t)r * row, n_heads, &kv, LAYER, &how, out), 0);
			assert_int_equal(o->step_end(b), 0);
			assert_memory_equal(out, first + (size_t)r * row, row * sizeof *first);
		}
		drop(o, b, q);
		drop(o, b, out);
		drop(o, b, sinks);
		drop(o, b, c.kv.k);
		drop(o, b, c.kv.v);
		o->close(b);
		if (one_thread(o))
			break;
	}
	free(first);
}

static void test_attention(void **arg)
{
	(void)arg;
	static const int dims[] = {32, 40, 64, 96, 128}, groups[] = {1, 2, 4, 8};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0, type; (type = kn_kv_type_at(i)) >= 0; i++) {
			if (!(*o)->kv_type(type))
				continue;
			/* On matrix units, with other errors: test_cuda_attention.c. */
			if (strncmp((*o)->name, "cuda", 4) == 0 && type != KN_F32)
				continue;
			for (int d = 0; d < N(dims); d++)
				for (int both = 0; both < 2; both++)
					attention_case(*o, type, dims[d], 2, groups[d % 4], 16, 1, 0, 0, both != 0);
			attention_case(*o, type, 42, 2, 2, 16, 1, 1, 0, false);
			attention_case(*o, type, 64, 2, 12, 16, 1, 257, 0, false);
			attention_case(*o, type, 64, 2, 4, 16, 1, -23, 0, false);
			attention_case(*o, type, 32, 2, 2, 16, 1, -256, 0, false);
			for (int g = 0; g < N(groups) && type != KN_BF16; g++)
				attention_case(*o, type, 32, 2, groups[g], 24, g % 2 ? 8 : 1, 100 + 90 * g,
					       g % 2 ? 0 : 3, false);
			/* More key heads than one tile of a table of this processor has: 16 and 2. */
			if (type == KN_F16 && strncmp((*o)->name, "cuda", 4) != 0)
				attention_case(*o, type, 32, 18, 4, 16, 1, 0, 0, false);
			/* Pages longer than a stretch. */
			if (type != KN_F32 && strncmp((*o)->name, "cuda", 4) != 0)
				attention_case(*o, type, 40, 2, 4, 136, 1, 0, 0, false);
		}
}

/* The same bytes; in bfloat16, of which a device has a NaN of its own, any NaN for a NaN. */
static void expect_written(const struct cache *c, const float *wrote, float *want)
{
	const uint16_t *w = (const void *)wrote;
	uint16_t *x = (void *)want;
	for (size_t i = 0; c->kv.type == KN_BF16 && i < c->n * 2; i++)
		if (x[i] != 0xFFFF && (w[i] & 0x7FFF) > 0x7F80 && (x[i] & 0x7FFF) > 0x7F80)
			x[i] = w[i];
	assert_memory_equal(wrote, want, c->n * sizeof *want);
}

static void rope_case(const struct kn_ops *o, int type, int head_dim, int n_rot, bool halves, float magnitude,
		      float grow)
{
	enum { KV_HEADS = 2, HEADS = 6 };
	struct kn_backend *b = open_table(o, 2);
	struct cache c;
	make_cache(&c, o, b, type, 16, KV_HEADS, head_dim);
	double inv_freq[64];
	for (int i = 0; i < n_rot / 2; i++)
		inv_freq[i] = pow(10000, -2.0 * i / n_rot);
	struct kn_rope rope = {.n_rot = n_rot,
			       .halves = halves,
			       .magnitude = magnitude,
			       .inv_freq = inv_freq,
			       .grow = grow,
			       .grow_every = 100,
			       .grow_from = 3};
	size_t n = (size_t)(N(row_pos) * HEADS * head_dim), n_kv = (size_t)(N(row_pos) * KV_HEADS * head_dim);
	float *both[] = {random_floats(o, b, n), random_floats(o, b, n_kv)}, *v = random_floats(o, b, n_kv);
	float *was[] = {malloc(n * sizeof(float)), malloc(n_kv * sizeof(float))};
	/* Numbers that no type holds as they are, one of each in a head of its own, and a head of zeros. */
	static const float odd[] = {1e6f, -1e6f, 3.3e38f, 1e-9f, -0.0f, INFINITY, -INFINITY, NAN};
	for (int i = 0; i < N(odd); i++)
		v[i * head_dim + i] = odd[i];
	memset(v + N(odd) * head_dim, 0, (size_t)head_dim * sizeof *v);
	memcpy(was[0], both[0], n * sizeof(float));
	memcpy(was[1], both[1], n_kv * sizeof(float));
	assert_int_equal(o->step_begin(b, &c.step), 0);
	assert_int_equal(o->rope_kv_write(b, &rope, both[0], HEADS, both[1], v, &c.kv, LAYER), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int which = 0; which < 2; which++) {
		int heads = which ? KV_HEADS : HEADS;
		for (int i = 0; i < N(row_pos) * heads; i++) {
			const float *x = was[which] + i * head_dim, *y = both[which] + i * head_dim;
			/* Of queries alone; as a float, and once more in the product: 2U of the result. */
			double grown =
			    which == 0 ? 1 + (double)grow * log(floor((row_pos[i / heads] + 3) / 100.0) + 1) : 1;
			for (int p = 0; p < n_rot / 2; p++) {
				int d = halves ? p : 2 * p, d2 = halves ? p + n_rot / 2 : d + 1;
				long double angle = (long double)row_pos[i / heads] * (long double)inv_freq[p];
				double cs = (double)(cosl(angle) * (long double)magnitude);
				double sn = (double)(sinl(angle) * (long double)magnitude);
				double a = (double)x[d], e = (double)x[d2];
				/* Sine and cosine rounded, a product, a sum: 3U of the magnitudes. The angle
				 * itself, in double, is off by some 2^-51 of it: below U/2^10 up to 2^17. */
				double bound = (grown != 1 ? 5.01 : 3.01) * U * grown;
				expect_near("rope", o, (double)y[d], grown * (a * cs - e * sn),
					    bound * (fabs(a * cs) + fabs(e * sn)) + U / 1024 * grown);
				expect_near("rope", o, (double)y[d2], grown * (a * sn + e * cs),
					    bound * (fabs(a * sn) + fabs(e * cs)) + U / 1024 * grown);
			}
			if (grown == 1)
				assert_memory_equal(y + n_rot, x + n_rot, (size_t)(head_dim - n_rot) * sizeof *x);
			for (int d = n_rot; d < head_dim; d++)
				expect_near("rope", o, (double)y[d], grown * (double)x[d],
					    2.01 * U * grown * fabs((double)x[d]));
		}
	}
	/* Every row's k and v stand in their page, and nothing else was written. */
	float *wrote[] = {c.kv.k, c.kv.v}, *from[] = {both[1], v};
	for (int side = 0; side < 2; side++) {
		float *want = malloc(c.n * sizeof *want);
		memset(want, 0xFF, c.n * sizeof *want);
		*(side ? &c.kv.v : &c.kv.k) = want;
		for (int i = 0; i < N(row_pos) * KV_HEADS; i++)
			kv_put(&c, side == 0, row_seq[i / KV_HEADS], row_pos[i / KV_HEADS], i % KV_HEADS,
			       from[side] + i * head_dim);
		expect_written(&c, wrote[side], want);
		free(want);
	}
	c.kv.k = wrote[0];
	c.kv.v = wrote[1];
	check_guards(both[0], n);
	check_guards(both[1], n_kv);
	check_guards(c.kv.k, c.n);
	check_guards(c.kv.v, c.n);
	float *memory[] = {both[0], both[1], v, c.kv.k, c.kv.v};
	for (int i = 0; i < N(memory); i++)
		drop(o, b, memory[i]);
	free(was[0]);
	free(was[1]);
	o->close(b);
}

static void test_rope(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0, type; (type = kn_kv_type_at(i)) >= 0; i++) {
			if (!(*o)->kv_type(type))
				continue;
			rope_case(*o, type, 32, 32, false, 1, 0);
			rope_case(*o, type, 40, 24, false, 1.25f, 0);
			rope_case(*o, type, 42, 24, false, 1, 0);
			rope_case(*o, type, 128, 128, true, 1, 0);
			rope_case(*o, type, 64, 48, true, 0.75f, 0);
			rope_case(*o, type, 40, 24, false, 1, 0.5f);
			rope_case(*o, type, 64, 64, true, 1.25f, 0.1f);
		}
}

/* Far on, an angle is thousands of turns. */
static void far_case(const struct kn_ops *o)
{
	enum { HEAD = 64, ROWS = 3, PAGE = 16, MAX_PAGES = 1 << 16 };
	static const int32_t pos[ROWS] = {131071, 1000000, 1048562}, seq[ROWS];
	static int32_t table[MAX_PAGES];
	static double freq[HEAD / 2];
	struct kn_backend *b = open_table(o, 1);
	struct kn_kv kv = {
	    .type = KN_F32, .n_pages = 1, .page_tokens = PAGE, .n_layers = 1, .n_kv_heads = 1, .head_dim = HEAD};
	struct kn_step s = {
	    .n_rows = ROWS, .row_pos = pos, .row_seq = seq, .n_seqs = 1, .page_table = table, .max_pages = MAX_PAGES};
	for (int i = 0; i < HEAD / 2; i++)
		freq[i] = pow(500000, -2.0 * i / HEAD);
	const struct kn_rope rope = {.n_rot = HEAD, .halves = true, .magnitude = 1, .inv_freq = freq};
	float *q = random_floats(o, b, ROWS * HEAD), *k = random_floats(o, b, ROWS * HEAD), was[ROWS * HEAD];
	kv.k = guarded(o, b, PAGE * HEAD);
	kv.v = guarded(o, b, PAGE * HEAD);
	memcpy(was, q, sizeof was);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->rope_kv_write(b, &rope, q, 1, k, k, &kv, 0), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < HEAD / 2; i++) {
			const float *x = was + r * HEAD + i, *y = q + r * HEAD + i;
			double angle = (double)pos[r] * freq[i], cs = cos(angle), sn = sin(angle);
			double a = (double)x[0], e = (double)x[HEAD / 2];
			/* As above, of the same angle. */
			expect_near("far rope", o, (double)y[0], a * cs - e * sn,
				    3.01 * U * (fabs(a * cs) + fabs(e * sn)) + U / 1024);
			expect_near("far rope", o, (double)y[HEAD / 2], a * sn + e * cs,
				    3.01 * U * (fabs(a * sn) + fabs(e * cs)) + U / 1024);
		}
	float *memory[] = {q, k, kv.k, kv.v};
	for (int i = 0; i < N(memory); i++)
		drop(o, b, memory[i]);
	o->close(b);
}

static void test_far(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		far_case(*o);
}

static void copy_case(const struct kn_ops *o, int type)
{
	struct kn_backend *b = open_table(o, 1);
	struct cache c;
	make_cache(&c, o, b, type, 16, 2, 40);
	void *sides[] = {c.kv.k, c.kv.v};
	size_t page = kn_kv_page_bytes(&c.kv), bytes = c.n * sizeof(float);
	for (int i = 0; i < 2; i++) {
		uint8_t *was = malloc(bytes), *now = sides[i];
		for (size_t j = 0; j < bytes; j++)
			now[j] = (uint8_t)next_bits();
		memcpy(was, now, bytes);
		const struct kn_step none = {.n_rows = 1};
		assert_int_equal(o->page_copy(b, &c.kv, 82, 5), 0);
		assert_int_equal(o->step_begin(b, &none), 0); /* whose end comes after it */
		assert_int_equal(o->step_end(b), 0);
		memcpy(was + 5 * page, was + 82 * page, page);
		assert_memory_equal(now, was, bytes);
		check_guards(sides[i], c.n);
		free(was);
	}
	drop(o, b, c.kv.k);
	drop(o, b, c.kv.v);
	o->close(b);
}

static void test_page_copy(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; kn_kv_type_at(i) >= 0; i++)
			if ((*o)->kv_type(kn_kv_type_at(i)))
				copy_case(*o, kn_kv_type_at(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attention),
	    cmocka_unit_test(test_rope),
	    cmocka_unit_test(test_far),
	    cmocka_unit_test(test_page_copy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
