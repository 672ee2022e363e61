/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of the CUDA backend, in its emulation: that a step run by a graph has the bits of the same step
 * launched plainly, whatever changes from step to step, also after buffers have grown, in steps filled up to a
 * class of rows, when no graph can be had, and when memory or the device fails.
 *
 * The steps are those of a model of one layer; two rigs run them, and only one of them makes graphs or fills
 * up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fault.h"
#include "tests/kernels/tables.h"

#include "tests/kernels/battery.h"
#include "tests/kernels/soak.h"

enum {
	VOCAB = 37,
	EMBD = 24,
	HEADS = 4,
	KV = 2,
	DIM = 6,
	N_PAGES_ALL = 240,
	TOKENS = 16,
	TABLE = 64,
	N_SEQ = 70,
	MOST = 72,
};

static void no_graphs(bool none) { assert_true(call_backend(cuda_path(), "sluice_device_no_graphs", none)); }

struct small {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct kn_weight embed, q, k, v, out, head;
	struct kn_kv kv;
	float *x, *normed, *qs, *ks, *vs, *attn, *gain, *logits;
	float *host; /* [MOST][VOCAB] */
};

static double inv_freq[] = {1, 0.1, 0.01};
static const struct kn_rope rope = {.n_rot = 6, .halves = true, .magnitude = 1, .inv_freq = inv_freq};
static const struct kn_attn plain_attn = {.scale = 0.4f};
static int32_t table[N_SEQ * TABLE];

static float *some(struct small *m, size_t n)
{
	void *p;
	assert_int_equal(m->o->mem_alloc(m->b, n * sizeof(float), &p), 0);
	return p;
}

static struct kn_weight weight(struct small *m, int n_out, int n_in)
{
	float values[64 * 64];
	struct kn_weight w;
	struct sl_err err;
	for (int i = 0; i < n_out * n_in; i++)
		values[i] = next_float();
	assert_int_equal(m->o->weight_load(m->b, values, KN_F32, n_out, n_in, &w, &err), 0);
	return w;
}

static void open_small(struct small *m, bool pad)
{
	struct kn_config cfg = {.max_rows = MOST, .max_width = 64, .pad_rows = pad};
	struct sl_err err;
	size_t pool = (size_t)N_PAGES_ALL * KV * TOKENS * DIM;
	*m = (struct small){.o = open_cuda()};
	assert_int_equal(m->o->open(&cfg, &m->b, &err), 0);
	state = 7;
	m->embed = weight(m, VOCAB, EMBD);
	m->q = weight(m, HEADS * DIM, EMBD);
	m->k = weight(m, KV * DIM, EMBD);
	m->v = weight(m, KV * DIM, EMBD);
	m->out = weight(m, EMBD, HEADS * DIM);
	m->head = weight(m, VOCAB, EMBD);
	m->kv = (struct kn_kv){.type = KN_F32,
			       .n_pages = N_PAGES_ALL,
			       .page_tokens = TOKENS,
			       .n_layers = 1,
			       .n_kv_heads = KV,
			       .head_dim = DIM,
			       .k = some(m, pool),
			       .v = some(m, pool)};
	m->x = some(m, MOST * EMBD);
	m->normed = some(m, MOST * EMBD);
	m->qs = some(m, MOST * HEADS * DIM);
	m->ks = some(m, MOST * KV * DIM);
	m->vs = some(m, MOST * KV * DIM);
	m->attn = some(m, MOST * HEADS * DIM);
	m->logits = some(m, MOST * VOCAB);
	m->gain = some(m, EMBD);
	for (int i = 0; i < EMBD; i++)
		m->gain[i] = 1 + next_float() / 4;
	m->host = calloc(MOST * VOCAB, sizeof *m->host);
	assert_non_null(m->host);
	for (int i = 0; i < N_SEQ * TABLE; i++)
		table[i] = (i / TABLE * 3 + i % TABLE * 7) % N_PAGES_ALL; /* some shared: both rigs do the same */
}

static void close_small(struct small *m)
{
	struct kn_weight *weights[] = {&m->embed, &m->q, &m->k, &m->v, &m->out, &m->head};
	float *memory[] = {m->x, m->normed, m->qs, m->ks, m->vs, m->attn, m->gain, m->logits, m->kv.k, m->kv.v};
	for (int i = 0; i < N(weights); i++)
		m->o->weight_free(m->b, weights[i]);
	for (int i = 0; i < N(memory); i++)
		m->o->mem_free(m->b, memory[i]);
	free(m->host);
	m->o->close(m->b);
}

/* Logits of the wanted rows of a step that has begun. */
static int compute(struct small *m, int n, const int32_t *want, int n_want)
{
	const struct kn_ops *o = m->o;
	struct kn_backend *b = m->b;
	int rc;
	if ((rc = o->embed(b, &m->embed, m->x)) == 0 &&
	    (rc = o->rmsnorm(b, m->x, m->gain, 1e-5f, n, EMBD, m->normed)) == 0 &&
	    (rc = o->matmul(b, &m->q, m->normed, n, m->qs)) == 0 &&
	    (rc = o->matmul(b, &m->k, m->normed, n, m->ks)) == 0 &&
	    (rc = o->matmul(b, &m->v, m->normed, n, m->vs)) == 0 &&
	    (rc = o->rmsnorm(b, m->qs, m->gain, 1e-5f, n * HEADS, DIM, m->qs)) == 0 &&
	    (rc = o->rope_kv_write(b, &rope, m->qs, HEADS, m->ks, m->vs, &m->kv, 0)) == 0 &&
	    (rc = o->attention(b, m->qs, HEADS, &m->kv, 0, &plain_attn, m->attn)) == 0 &&
	    (rc = o->matmul(b, &m->out, m->attn, n, m->normed)) == 0 &&
	    (rc = o->add(b, m->x, m->normed, n, EMBD)) == 0 &&
	    (rc = o->gather(b, m->x, want, n_want, EMBD, m->normed)) == 0)
		rc = o->matmul(b, &m->head, m->normed, n_want, m->logits);
	return rc;
}

/* One step; want[n_want] of its rows give logits. What the first operation that failed said, or the end. */
static int forward(struct small *m, const struct kn_step *s, const int32_t *want, int n_want)
{
	const struct kn_ops *o = m->o;
	struct kn_backend *b = m->b;
	int rc = o->step_begin(b, s);
	if (rc != 0)
		return rc;
	if ((rc = compute(m, s->n_rows, want, n_want)) == 0)
		rc = o->read_back(b, m->logits, (size_t)n_want * VOCAB, m->host);
	int end = o->step_end(b);
	return rc != 0 ? rc : end;
}

/* Decodes of n sequences from the first on, each at a position of its own. */
struct rows {
	int32_t token[MOST], pos[MOST], seq[MOST], want[MOST];
	struct kn_step step;
};

static const struct kn_step *decodes(struct rows *r, int n, int first, int past)
{
	for (int i = 0; i < n; i++) {
		r->token[i] = (int32_t)(next_bits() % VOCAB);
		r->pos[i] = past + i % 5;
		r->seq[i] = (first + i) % N_SEQ;
		r->want[i] = n - 1 - i;
	}
	r->step = (struct kn_step){.n_rows = n,
				   .row_token = r->token,
				   .row_pos = r->pos,
				   .row_seq = r->seq,
				   .n_seqs = N_SEQ,
				   .page_table = table,
				   .max_pages = TABLE,
				   .page_tokens = TOKENS};
	return &r->step;
}

/* A chunk of one prompt. */
static const struct kn_step *prompt(struct rows *r, int n, int seq, int past)
{
	decodes(r, n, 0, 0);
	for (int i = 0; i < n; i++) {
		r->pos[i] = past + i;
		r->seq[i] = seq;
	}
	return &r->step;
}

static void both(struct small *a, struct small *b, const struct rows *r, int n_want)
{
	size_t bytes = (size_t)n_want * VOCAB * sizeof(float);
	no_graphs(true);
	assert_int_equal(forward(a, &r->step, r->want, n_want), 0);
	no_graphs(false);
	assert_int_equal(forward(b, &r->step, r->want, n_want), 0);
	assert_memory_equal(a->host, b->host, bytes);
}

static void same_pages(const struct small *a, const struct small *b)
{
	size_t bytes = (size_t)N_PAGES_ALL * KV * TOKENS * DIM * sizeof(float);
	assert_memory_equal(a->kv.k, b->kv.k, bytes);
	assert_memory_equal(a->kv.v, b->kv.v, bytes);
}

static struct kn_stats stats_of(const struct small *m)
{
	struct kn_stats s;
	m->o->stats(m->b, &s);
	return s;
}

/* A shape is launched plainly, then captured, then met again; everything in it may change. */
static void test_replay(void **arg)
{
	(void)arg;
	struct small plain, graphs;
	struct rows r;
	open_small(&plain, false);
	open_small(&graphs, false);
	for (int i = 0; i < 12; i++) {
		decodes(&r, 5, 11 * i, 20 * i);
		both(&plain, &graphs, &r, 5);
		prompt(&r, 9, i, 3);
		both(&plain, &graphs, &r, 1);
	}
	same_pages(&plain, &graphs);
	struct kn_stats s = stats_of(&graphs), none = stats_of(&plain);
	print_message("24 steps: %d graphs, %d hits, %d misses\n", (int)s.graphs, (int)s.graph_hits,
		      (int)s.graph_misses);
	assert_int_equal(s.steps, 24);
	assert_true(s.graph_hits + s.graph_misses >= 20); /* some made buffers grow */
	assert_true(s.graph_hits >= 10 && s.graphs >= 2);
	assert_int_equal(none.graph_hits + none.graph_captures, 0);
	assert_true(none.graph_refusals > 0);
	close_small(&plain);
	close_small(&graphs);
}

/* Steps of 5 to 8 rows are one shape; what the rows in front say and write is what they do unpadded. */
static void test_padding(void **arg)
{
	(void)arg;
	struct small plain, padded;
	struct rows r;
	open_small(&plain, false);
	open_small(&padded, true);
	for (int i = 0; i < 8; i++)
		for (int n = 5; n <= 8; n++) {
			decodes(&r, n, 3 * i + n, 40);
			both(&plain, &padded, &r, n);
		}
	struct kn_stats s = stats_of(&padded);
	assert_int_equal(s.graphs, 1);
	assert_true(s.graph_hits >= 26);
	/* Other numbers, with fewer rows wanted than there are, a prompt, and more than the largest class has room for.
	 */
	static const int sizes[] = {1, 2, 3, 17, 33, 64, 65, 70};
	for (int i = 0; i < N(sizes); i++) {
		if (!in_share(i, N(sizes)))
			continue;
		decodes(&r, sizes[i], i, 100 + i);
		both(&plain, &padded, &r, (sizes[i] + 1) / 2);
		prompt(&r, sizes[i], i, 60);
		both(&plain, &padded, &r, sizes[i] > 1 ? 2 : 1);
	}
	same_pages(&plain, &padded);
	close_small(&plain);
	close_small(&padded);
}

/* Buffers that grow drop the graphs; small steps after it have their bits, and graphs again. */
static void test_growth(void **arg)
{
	(void)arg;
	struct small plain, graphs;
	struct rows r;
	open_small(&plain, true);
	open_small(&graphs, true);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 4; i++) {
			decodes(&r, 2, i, 5);
			both(&plain, &graphs, &r, 2);
		}
	struct kn_stats s = stats_of(&graphs);
	assert_int_equal(s.graphs, 1);
	decodes(&r, 70, 0, 900); /* tables, scratch for splits, results: all are too small */
	both(&plain, &graphs, &r, 70);
	assert_int_equal(stats_of(&graphs).graphs, 0);
	for (int i = 0; i < 4; i++) {
		decodes(&r, 2, i, 9);
		both(&plain, &graphs, &r, 2);
	}
	assert_true(stats_of(&graphs).graph_hits > s.graph_hits);
	assert_true(stats_of(&graphs).graph_captures > s.graph_captures);
	same_pages(&plain, &graphs);
	close_small(&plain);
	close_small(&graphs);
}

/* As many shapes as there are: a bounded number of graphs, and those that come again are kept. */
static void test_bounded(void **arg)
{
	(void)arg;
	static const float factors[] = {2, 0.5f};
	struct small m;
	struct kn_step s = {.n_rows = 1};
	open_small(&m, false);
	m.x[0] = 1;
	for (int shape = 1; shape <= 100 && in_share(1, 3); shape++)
		for (int i = 0; i < 4; i++) {
			assert_int_equal(m.o->step_begin(m.b, &s), 0);
			for (int k = 0; k < N(factors); k++)
				assert_int_equal(m.o->scale(m.b, m.x, factors[k], 1, shape % 20 + 1), 0);
			assert_int_equal(m.o->scale(m.b, m.x + 1, (float)shape, 1, 1), 0);
			assert_int_equal(m.o->step_end(m.b), 0);
			assert_true(m.x[0] == 1);
		}
	struct kn_stats now = stats_of(&m);
	assert_true(!in_share(1, 3) || (now.graphs == 64 && now.graph_captures >= 95));
	assert_true(!in_share(1, 3) || now.graph_hits >= 190);
	close_small(&m);
}

/* What a model does not do, but the table allows: several gathers and many results in one step. */
static void test_many_results(void **arg)
{
	(void)arg;
	enum { READS = 20 };
	struct small m;
	struct rows r;
	float host[READS][3 * EMBD];
	open_small(&m, false);
	for (int round = 0; round < 3; round++) {
		const struct kn_step *s = decodes(&r, 3, 0, 0);
		assert_int_equal(m.o->step_begin(m.b, s), 0);
		assert_int_equal(m.o->embed(m.b, &m.embed, m.x), 0);
		for (int i = 0; i < READS; i++) {
			int32_t rows[3] = {i % 3, (i + round) % 3, 1};
			assert_int_equal(m.o->gather(m.b, m.x, rows, 3, EMBD, m.normed), 0);
			rows[0] = rows[1] = rows[2] = 0; /* taken already */
			assert_int_equal(m.o->read_back(m.b, m.normed, 3 * EMBD, host[i]), 0);
		}
		assert_int_equal(m.o->step_end(m.b), 0);
		for (int i = 0; i < READS; i++) {
			assert_memory_equal(host[i], m.x + i % 3 * EMBD, EMBD * sizeof(float));
			assert_memory_equal(host[i] + EMBD, m.x + (i + round) % 3 * EMBD, EMBD * sizeof(float));
			assert_memory_equal(host[i] + 2 * EMBD, m.x + EMBD, EMBD * sizeof(float));
		}
	}
	close_small(&m);
}

/* A launch inside a graph fails: the step says so, and so does everything after it. */
static void test_fault_in_graph(void **arg)
{
	(void)arg;
	struct small m;
	struct rows r;
	if (on_device())
		skip(); /* nothing makes one fail */
	open_small(&m, true);
	for (int i = 0; i < 6; i++)
		assert_int_equal(forward(&m, decodes(&r, 4, i, 8), r.want, 4), 0);
	assert_true(stats_of(&m).graph_hits > 0);
	fault_arm(FAULT_DEVICE, 5, 1);
	assert_int_equal(forward(&m, decodes(&r, 4, 9, 8), r.want, 4), SL_EIO);
	fault_disarm_all();
	assert_int_equal(forward(&m, decodes(&r, 4, 9, 8), r.want, 4), SL_EIO);
	assert_non_null(strstr(m.o->describe(m.b), on_standin() ? "launch failure" : "a fault point"));
	close_small(&m);
}

/* Each allocation that steps make fails in turn: right, or failed for good, and nothing is left. */
static void test_no_memory(void **arg)
{
	(void)arg;
	enum { STEPS = 4, ROWS = 3 };
	static float expect[STEPS][ROWS * VOCAB];
	struct small m;
	struct rows r[STEPS];
	int failed = 0, refused = 0;
	if (on_device())
		skip(); /* whose allocations have no fault points */
	open_small(&m, false);
	for (int i = 0; i < STEPS; i++) {
		decodes(&r[i], ROWS, i, 8);
		assert_int_equal(forward(&m, &r[i].step, r[i].want, ROWS), 0);
		memcpy(expect[i], m.host, sizeof expect[i]);
	}
	close_small(&m);
	bool reached = true;
	for (long nth = 1; reached; nth++) {
		int rc = 0;
		if (!in_share((int)nth, 3))
			continue;
		open_small(&m, true);
		long passed = -fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, nth, 1);
		for (int i = 0; i < STEPS && rc == 0; i++) {
			rc = forward(&m, &r[i].step, r[i].want, ROWS);
			if (rc == 0)
				assert_memory_equal(m.host, expect[i], sizeof expect[i]);
			else
				assert_int_equal(rc, SL_EIO);
		}
		fault_disarm_all();
		reached = passed + fault_passes(FAULT_ALLOC) >= nth;
		failed += rc != 0;
		refused += stats_of(&m).graph_refusals > 0;
		close_small(&m);
	}
	print_message("%d failed, %d did without a graph\n", failed, refused);
	assert_true(orders_only() ||
		    (failed >= 2 && refused >= (on_standin() ? 1 : 2))); /* whose graphs are not the host's memory */
}

/* ---- a step issued while another is on its way ---- */

/* Rows, draws and what they gave, of steps in which each of n sequences makes a token. */
struct made {
	struct rows r;
	int32_t from[MOST];
	struct kn_draw draws[MOST];
	struct kn_drawn drawn[MOST];
};

/* Step i: row k is sequence (k + i) % n, so that no row takes the token of its own number. Every fifth row
 * begins anew with a token of the host's. */
static const struct kn_step *step_of(struct made *s, const struct made *before, int n, int i, bool on_device)
{
	state = 1000 + (uint32_t)i;
	decodes(&s->r, n, 0, 0);
	for (int k = 0; k < n; k++) {
		int seq = (k + i) % n,
		    was = (seq - (i - 1) % n + n) % n; /* its row before, whose draw stands at the end's distance */
		bool anew = before == NULL || (k + i) % 5 == 4;
		s->r.seq[k] = seq;
		s->r.pos[k] = 3 + i;
		s->r.want[k] = n - 1 - k;
		s->from[k] = anew ? -1 : n - 1 - was;
		if (!anew)
			s->r.token[k] = on_device ? VOCAB - 1 : before->drawn[n - 1 - was].id;
		s->draws[k] = (struct kn_draw){.row = k, .temperature = 1, .top_p = 1, .key = (uint64_t)i};
	}
	s->r.step.row_from = on_device ? s->from : NULL;
	return &s->r.step;
}

static int issue(struct small *m, struct made *s, const struct kn_step *step)
{
	int rc = m->o->step_begin(m->b, step);
	if (rc != 0)
		return rc;
	rc = compute(m, step->n_rows, s->r.want, step->n_rows);
	if (rc == 0)
		rc = m->o->sample(m->b, m->logits, VOCAB, s->draws, step->n_rows, s->drawn);
	int end = m->o->step_issue(m->b);
	/* Nothing that was given is read any more. */
	memset(s->draws, 0xEE, sizeof s->draws);
	memset(s->r.token, 0xEE, sizeof s->r.token);
	memset(s->r.pos, 0xEE, sizeof s->r.pos);
	memset(s->r.seq, 0xEE, sizeof s->r.seq);
	memset(s->from, 0xEE, sizeof s->from);
	return rc != 0 ? rc : end;
}

enum { AHEAD_STEPS = 14 };

static void same_ahead(int n, bool eager)
{
	static struct made one_by_one[AHEAD_STEPS], ahead[AHEAD_STEPS];
	struct small plain, device;
	open_small(&plain, true);
	open_small(&device, true);
	for (int i = 0; i < AHEAD_STEPS; i++) {
		struct made *s = &one_by_one[i];
		assert_int_equal(issue(&plain, s, step_of(s, i > 0 ? s - 1 : NULL, n, i, false)), 0);
		assert_int_equal(plain.o->step_wait(plain.b), 0);
	}
	bool emulated = call_backend(cuda_path(), "sluice_emulation_eager", eager);
	for (int i = 0; i < AHEAD_STEPS; i++) {
		struct made *s = &ahead[i];
		memset(s->drawn, 0, sizeof s->drawn);
		assert_int_equal(issue(&device, s, step_of(s, i > 0 ? s - 1 : NULL, n, i, true)), 0);
		assert_int_equal(s->drawn[0].n_top + s->drawn[0].id, 0); /* not before it is waited for */
		if (i == 0)
			continue;
		if (emulated && device_is_late())
			assert_int_equal(device.o->step_ready(device.b), eager);
		assert_int_equal(device.o->step_wait(device.b), 0);
		for (int k = 0; k < n; k++)
			assert_int_equal(s[-1].drawn[k].id, one_by_one[i - 1].drawn[k].id);
	}
	assert_int_equal(device.o->step_wait(device.b), 0);
	(void)call_backend(cuda_path(), "sluice_emulation_eager", false);
	for (int k = 0; k < n; k++)
		assert_int_equal(ahead[AHEAD_STEPS - 1].drawn[k].id, one_by_one[AHEAD_STEPS - 1].drawn[k].id);
	same_pages(&plain, &device);
	if (n <= 8)
		assert_true(stats_of(&device).graph_hits >= 6);
	close_small(&plain);
	close_small(&device);
}

/* Tokens that only the device knows give the steps that the host would have made of them, with graphs and without. */
static void test_ahead(void **arg)
{
	(void)arg;
	static const int sizes[] = {1, 5, 8, 20};
	for (int i = 0; i < N(sizes); i++)
		if (in_share(i, N(sizes)))
			same_ahead(sizes[i], false);
	if (in_share(0, N(sizes)))
		same_ahead(5, true);
}

/* Buffers grow while a step is on its way: its results are its own. */
static void test_growth_ahead(void **arg)
{
	(void)arg;
	static struct made few, many;
	static struct kn_drawn expect[2][MOST];
	for (int ahead = 0; ahead < 2 && in_share(0, 3); ahead++) {
		struct small m;
		open_small(&m, true);
		assert_int_equal(issue(&m, &few, step_of(&few, NULL, 3, 0, false)), 0);
		if (ahead == 0)
			assert_int_equal(m.o->step_wait(m.b), 0);
		assert_int_equal(issue(&m, &many, step_of(&many, NULL, 66, 1, false)), 0);
		for (int i = 0; i <= ahead; i++)
			assert_int_equal(m.o->step_wait(m.b), 0);
		for (int k = 0; k < 66 + 3; k++) {
			const struct kn_drawn *d = k < 66 ? &many.drawn[k] : &few.drawn[k - 66];
			expect[ahead][k] = *d;
			assert_int_equal(expect[ahead][k].id, expect[0][k].id);
		}
		close_small(&m);
	}
}

/* What can't be is refused and changes nothing; of two steps on their way the one that fails says so. */
static void test_faults_ahead(void **arg)
{
	(void)arg;
	static struct made s[4];
	struct small m;
	open_small(&m, true);
	assert_int_equal(m.o->step_wait(m.b), SL_EIO); /* nothing is on its way */
	assert_true(m.o->step_ready(m.b));
	step_of(&s[0], NULL, 4, 0, true);
	s[0].from[2] = 0; /* nobody has drawn yet */
	assert_int_equal(m.o->step_begin(m.b, &s[0].r.step), SL_EUNSUPPORTED);
	assert_int_equal(issue(&m, &s[0], step_of(&s[0], NULL, 4, 0, true)), 0);
	step_of(&s[1], &s[0], 4, 1, true);
	s[1].from[0] = 4; /* there were four draws */
	assert_int_equal(m.o->step_begin(m.b, &s[1].r.step), SL_EUNSUPPORTED);
	assert_int_equal(issue(&m, &s[1], step_of(&s[1], &s[0], 4, 1, true)), 0);
	assert_int_equal(m.o->step_begin(m.b, step_of(&s[2], NULL, 4, 2, true)), SL_EUNSUPPORTED); /* a third one */
	assert_int_equal(m.o->step_wait(m.b), 0);
	/* The one after this fails: it had been issued. */
	assert_int_equal(issue(&m, &s[2], step_of(&s[2], &s[1], 4, 2, true)), 0);
	assert_int_equal(m.o->step_wait(m.b), 0);
	if (device_is_late()) {
		fault_arm(FAULT_DEVICE, 5, 1);
		assert_int_equal(m.o->step_wait(m.b), SL_EIO);
		fault_disarm_all();
		assert_int_equal(m.o->step_begin(m.b, step_of(&s[3], NULL, 4, 3, true)), SL_EIO);
		assert_int_equal(m.o->step_wait(m.b), SL_EIO);
		assert_true(m.o->step_ready(m.b));
	}
	close_small(&m);
	/* A backend is closed with steps on their way. */
	open_small(&m, true);
	assert_int_equal(issue(&m, &s[0], step_of(&s[0], NULL, 4, 0, true)), 0);
	assert_int_equal(issue(&m, &s[1], step_of(&s[1], &s[0], 4, 1, true)), 0);
	close_small(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_replay),       cmocka_unit_test(test_padding),
	    cmocka_unit_test(test_growth),       cmocka_unit_test(test_bounded),
	    cmocka_unit_test(test_many_results), cmocka_unit_test(test_fault_in_graph),
	    cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_ahead),
	    cmocka_unit_test(test_growth_ahead), cmocka_unit_test(test_faults_ahead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
