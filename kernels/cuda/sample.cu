/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws tokens on the device, as engine/sample/sampler.h defines, from rows of logits that stay on the device.
 *
 * A row is in chunks of RACE_BLOCK ids. First every chunk is surveyed, by many blocks a row: its largest logit and,
 * where they are needed, sums of its weights. One block a row then works on the chunks that matter: most have no logit
 * near the largest.
 *
 * The filters top-k, top-p and min-p each keep the start of the row in rank order (a value's bits made monotonic,
 * then the lower id), so together they are one rank threshold.
 *  - top-k: k chunks have a logit of at least the k-th largest of the chunks' largest, so what is below is left out.
 *  - top-p: a histogram over (max - l) / temperature has the masses of the weights. Only logits within a bound take
 *    part: all others together have less than the mass that top-p leaves out (n · e^-bound).
 * If few elements remain, they are collected, sorted and filtered. Otherwise the bin in which a filter ends is
 * subdivided by the bits of ranks until few elements remain. That costs one read of the row per ten bits and occurs
 * only with flat rows and ties.
 *
 * The draw is an exponential race, like the host's (kernels/race.h), among the collected elements or over chunks of
 * the row, those first whose bound is lowest.
 *
 * Kernels: survey_rows, sample, and if the step has a row that is not greedy, race_rows.
 *
 * Masses are integers: weights in units of 2^-44 of the largest. So sums do not depend on the order of threads, and a
 * draw does not depend on other work. Weights, adjusted logits and the race have the reference's bits, so a draw
 * differs from the reference's only if a filter ends within 10^-8 of a boundary between two elements. (The mass that is
 * beyond the bound is a sum of floats, in a fixed order, off by at most 10^-6 of itself.)
 *
 * VERSIONS
 *  4  measured on an H200: version 3 takes 18.5 us for a greedy row of 128K logits, 67 us for 256 of them, and some
 *     860 us for 256 flat rows with top-p: each row was read four times, by one block, and each logit cost a weight (27
 *     instructions) and three atomics. Now the first read is by blocks of 8192 logits, and finds all that greedy rows
 *     and rows without filters take. The histogram weighs what is within the bound: 30 % of flat rows over 20 with
 *     top-p 0.95, few per cent of a model's, in few chunks. top-k reads the k best chunks. Races read the chunks with
 *     the lowest bounds, some 25 of 501, instead of all; they are a kernel of their own, since with them `sample` would
 *     not fit into the 64 registers that two blocks a multiprocessor leave. On an H100, in turns: 256 flat rows with
 *     top-p 885 -> 560 us (150 asked); a step of one greedy row, 6.08 ms, up to 0.02 ms longer, of 64 the same.
 *  3  atomics of 32 bits: of 64 bits, shared memory has only loops that compare and swap (histograms: a loop a logit;
 *     the largest and its sum: 512 threads at one address, now 16 warps' lanes, one each). Sums before each bin by
 *     exchanges in a warp, two bins a thread, in 2 × 15 of them; before, one warp went through 32 bins a lane at strides
 *     of 256 bytes, all lanes in the same bank: 32 turns for each of 64 loads and 64 stores. Rows are read by 16 bytes a
 *     thread: 32 KiB on their way, not 8. Counted; still one block a row, so one row alone is read by one
 *     multiprocessor, some 11 µs for 128K logits.
 *  2  the draw is a race: without filters the same two reads, and two logarithms in double for 256 logits in place of
 *     an exponential and an addition in shared memory for each. Counted, not measured.
 *  1  the element at u of the cumulated mass. Counted, not measured: 256 rows of 128K logits are 134 MB, 31 µs a read
 *     at 4.3 TB/s. A greedy row is read once, one without filters twice (largest; masses of chunks, which then stay in
 *     the caches), with top-k or top-p three times (largest, histogram, candidates), log probabilities of unbiased
 *     rows cost no more reads (their tops two); so 31 to 93 µs, and 124 with log probabilities of biased rows.
 *     The histogram's two atomics a logit in shared memory are 67 million for 256 rows: 0.5 million a multiprocessor, some
 *     10 to 40 µs by how they collide, hidden behind the read only in part: to be looked at first on a device.
 *     Shared memory of 28 KiB a block lets two or three stand on a multiprocessor: 256 rows are one wave.
 */
#include "kernels/cuda/sample_draw.h"

/* ---- a row ---- */

/* Counts one more occurrence of token id in the n penalties, the last of which is free. */
__device__ static void say_once_more(struct sample_shared *s, struct kn_adjust *a, int n, int32_t id, int t)
{
	kn_barrier();
	if (t == 0)
		s->found = (uint32_t)n;
	kn_barrier();
	for (int i = t; i + 1 < n; i += THREADS)
		if (a[i].id == id) {
			a[i].b = a[i].more;
			s->found = (uint32_t)i;
		}
	kn_barrier();
	if (t == 0 && s->found == (uint32_t)n)
		a[n - 1].id = id;
	kn_barrier();
}

/* Saves the logit to be adjusted in `more`. */
__device__ static inline float keep(struct sample_shared *s, const float *l, struct kn_adjust *a)
{
	a->more = l[a->id];
	if (a->more == INFINITY)
		kn_add_shared(&s->bad, 1);
	return a->more;
}

/* Applies biases, penalties and exclusions, in this order, and saves the original logits in `more`. */
__device__ static void adjust(struct sample_shared *s, float *l, struct kn_adjust *a, const struct sample_job &job,
			      int t)
{
	int n = job.n_bias;
	for (int i = t; i < n; i += THREADS) {
		bool first = true;
		for (int j = 0; j < i && first; j++)
			first = a[j].id != a[i].id;
		if (!first)
			continue; /* the first entry of an id adds all of them */
		float v = keep(s, l, &a[i]);
		for (int j = i; j < n; j++)
			if (a[j].id == a[i].id)
				v += a[j].a;
		l[a[i].id] = v;
	}
	kn_barrier();
	a += n;
	for (int i = t; i < job.n_penalties; i += THREADS) {
		if (a[i].id < 0)
			continue; /* free */
		float v = keep(s, l, &a[i]);
		l[a[i].id] = (v > 0 ? v / a[i].a : v * a[i].a) - a[i].b;
	}
	kn_barrier();
	a += job.n_penalties;
	for (int i = t; i < job.n_out; i += THREADS)
		keep(s, l, &a[i]);
	kn_barrier(); /* an id may occur twice */
	for (int i = t; i < job.n_out; i += THREADS)
		kn_store_same(&l[a[i].id], -INFINITY);
	kn_barrier();
}

/* Excludes tokens that the mask does not contain. */
__device__ static void exclude_unmasked(float *l, int n, const uint32_t *mask, int t)
{
	for (int i = t; i < n; i += THREADS)
		if ((mask[i / 32] >> (i % 32) & 1) == 0)
			l[i] = -INFINITY;
	kn_barrier();
}

/* The original logit of id. */
__device__ static float said(const float *l, const struct kn_adjust *a, int n, int32_t id)
{
	for (int i = 0; i < n; i++)
		if (a[i].id == id)
			return a[i].more;
	return l[id];
}

/* The likeliest tokens by the model's unadjusted logits; the list has them if it has the best elements. */
__device__ static void tops(struct sample_shared *s, const struct sample_row &row, const struct sample_scale &c,
			    uint32_t n_top, bool has_best, int t)
{
	if (!has_best) {
		uint32_t listed;
		u64 least = threshold(s, row, c, n_top, 1, &listed, t);
		(void)collect(
		    s, row, t, [&](int i) { return least == 0 || row.most[i] >= rank_value(least); },
		    [&](float v, int i) { return rank_of(v, i) >= least; });
	}
	uint32_t k = n_top < s->n ? n_top : s->n;
	for (uint32_t i = (uint32_t)t; i < k; i += THREADS) {
		s->top[i].id = rank_id(s->list[i]);
		s->top[i].logprob = rank_value(s->list[i]) - c.max - s->verdict.log_z;
	}
	if (t == 0)
		s->n_top = (int32_t)k;
	kn_barrier();
}

__device__ static inline int n_adjusts(const struct sample_job &job)
{
	return job.n_bias + job.n_penalties + job.n_out;
}

/* Whether the logits change before the draw. */
__device__ static inline bool changes(const struct sample_job &job) { return n_adjusts(job) > 0 || job.mask >= 0; }

__device__ static inline struct sample_row row_of(float *logits, int n, float *marks, const struct sample_job &job,
						  int number)
{
	int n_chunks = chunks_of(n);
	float *l = logits + (int64_t)job.row * n, *at = marks + (int64_t)number * N_MARKS * n_chunks;
	return {l, n, n_chunks, n % 4 == 0 && (uintptr_t)l % 16 == 0, NULL, {at, at + n_chunks, at + 2 * n_chunks}};
}

/* A block for a part of a row: rows that do not change. */
__global__ void __launch_bounds__(SURVEY_THREADS)
    survey_rows(float *logits, int n, const struct sample_job *jobs, float *marks)
{
	kn_begin();
	const struct sample_job job = jobs[blockIdx.y];
	int t = (int)threadIdx.x, first = (int)blockIdx.x * PART, end = first + PART;
	if (job.row < 0 || changes(job))
		return;
	const struct sample_row row = row_of(logits, n, marks, job, (int)blockIdx.y);
	survey<SURVEY_TOGETHER>(row, job, first + t / KN_WARP, end < row.n_chunks ? end : row.n_chunks,
				SURVEY_THREADS / KN_WARP, t % KN_WARP);
}

/* Adjusts the row's logits. */
__device__ static void change(struct sample_shared *s, float *l, int n, const struct sample_job &job,
			      struct kn_adjust *adjusts, const int32_t *token, int t)
{
	struct kn_adjust *a = adjusts + job.first;
	kn_barrier();
	if (job.said > 0)
		say_once_more(s, a + job.n_bias, job.n_penalties, token[job.said - 1], t);
	adjust(s, l, a, job, t);
	if (job.mask >= 0)
		exclude_unmasked(l, n, (const uint32_t *)(const void *)adjusts + job.mask, t);
}

/* What a log probability takes. */
__device__ static void measure(struct sample_shared *s, const struct sample_row &row, float max, int t)
{
	float log_z = log_sum(s, row, max, t);
	if (t == 0) {
		s->verdict.max = max;
		s->verdict.log_z = log_z;
	}
	kn_barrier();
}

/* The row as it is, where log probabilities are wanted, then as it is drawn from. */
__device__ static void work(struct sample_shared *s, const struct sample_row &row, const struct sample_job &job,
			    struct kn_adjust *adjusts, const int32_t *token, int t)
{
#pragma unroll 1
	for (int drawing = !job.want_logprob; drawing < 2; drawing++) {
		if (drawing && changes(job))
			change(s, row.l, row.n, job, adjusts, token, t);
		if (changes(job))
			survey_row(row, job, t);
		u64 best = largest(s, row, t);
		const struct sample_scale c = {rank_value(best), drawing ? job.inv_t : 1};
		uint32_t k = drawing ? (uint32_t)job.top_k : (uint32_t)job.n_top;
		if (best == 0 || !(c.max < INFINITY) || s->bad != 0)
			return; /* every thread of the block */
		if (!drawing)
			measure(s, row, c.max, t);
		if (drawing && job.inv_t == 0) {
			if (t == 0)
				s->id = rank_id(best);
			return;
		}
		if (!drawing && k == 0)
			continue;
		bool has_best = k > 0 && k <= CAP && list_best(s, row, c.max, k, t);
		if (drawing)
			draw(s, row, c, job, has_best, t);
		else
			tops(s, row, c, k, has_best, t);
	}
}

/* By one thread. */
__device__ static inline void tell(const struct sample_shared *s, const struct kn_adjust *adjusts, struct kn_drawn *out)
{
	const struct sample_job &job = s->job;
	out->id = s->id;
	out->logprob = NAN;
	if (s->id >= 0 && job.want_logprob)
		out->logprob =
		    said(s->row.l, adjusts + job.first, n_adjusts(job), s->id) - s->verdict.max - s->verdict.log_z;
}

/* Blocks of `sample` that stand on a multiprocessor: 256 rows are one wave. For compute capability 8 it would spill. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SAMPLE_BLOCKS 1
#else
#define SAMPLE_BLOCKS 2
#endif

/* A block for a row. */
__global__ void __launch_bounds__(THREADS, SAMPLE_BLOCKS)
    sample(float *logits, int n, const struct sample_job *jobs, struct kn_adjust *adjusts, const int32_t *token,
	   float *marks, struct sample_verdict *verdicts, struct kn_drawn *out)
{
	kn_begin();
	struct sample_shared *s = (struct sample_shared *)kn_shared();
	int t = (int)threadIdx.x;
	if (jobs[blockIdx.x].row < 0)
		return; /* every thread of the block */
	out += blockIdx.x;
	if (t == 0) {
		s->job = jobs[blockIdx.x];
		s->row = row_of(logits, n, marks, s->job, (int)blockIdx.x);
		s->row.most = (float *)(s + 1);
		s->id = -1;
		s->bad = 0;
		s->n_top = 0;
		s->verdict = {0, {0, 0}, 0, 0, false};
	}
	kn_barrier();
	work(s, s->row, s->job, adjusts, token, t);
	kn_barrier();
	bool drawn = s->id >= 0 || s->verdict.open;
	if (t == 0) {
		verdicts[blockIdx.x] = s->verdict;
		tell(s, adjusts, out);
		out->n_top = drawn ? s->n_top : 0;
	}
	for (int i = t; i < s->n_top; i += THREADS)
		out->top[i] = s->top[i];
}

/* The races over rows that `sample` left. */
__global__ void __launch_bounds__(THREADS)
    race_rows(float *logits, int n, const struct sample_job *jobs, const struct kn_adjust *adjusts, float *marks,
	      const struct sample_verdict *verdicts, struct kn_drawn *out)
{
	kn_begin();
	struct sample_shared *s = (struct sample_shared *)kn_shared();
	int t = (int)threadIdx.x;
	if (jobs[blockIdx.x].row < 0 || !verdicts[blockIdx.x].open)
		return; /* every thread of the block */
	if (t == 0) {
		s->job = jobs[blockIdx.x];
		s->row = row_of(logits, n, marks, s->job, (int)blockIdx.x);
		s->row.most = s->row.marks.most;
		s->verdict = verdicts[blockIdx.x];
	}
	kn_barrier();
	draw_from_row(s, t);
	if (t == 0)
		tell(s, adjusts, out + blockIdx.x);
}

/* ---- the operation ---- */

static void fill_job(struct sample_job *job, const struct kn_draw *d, int n_vocab, int32_t first)
{
	job->key = d->key;
	/* At a temperature whose inverse would overflow, only the largest logits have weight. */
	job->inv_t = d->temperature == 0 ? 0 : d->temperature > 1e-30f ? 1 / d->temperature : 1e30f;
	job->top_p = d->top_p;
	job->min_p = d->min_p;
	job->row = d->row;
	job->top_k = d->top_k < (uint32_t)n_vocab ? (int32_t)d->top_k : 0;
	job->first = first;
	job->n_bias = d->n_bias;
	job->n_penalties = d->n_penalties;
	job->n_out = d->n_out;
	job->want_logprob = d->want_logprob;
	job->n_top = d->want_logprob ? d->n_top : 0;
	job->said = d->said;
}

static size_t marks_bytes(int n, int n_vocab)
{
	size_t bytes = (size_t)n * N_MARKS * (size_t)chunks_of(n_vocab) * sizeof(float);
	return (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
}

/* The kernels, for n jobs at `draws` of the device, with the adjustments `head` bytes after them. */
static int launch(struct kn_backend *b, float *logits, int n_vocab, int n, uint8_t *draws, size_t head, bool races)
{
	const struct sample_job *jobs = (const struct sample_job *)(const void *)draws;
	struct kn_adjust *adjusts = (struct kn_adjust *)(void *)(draws + head);
	struct kn_drawn *out = (struct kn_drawn *)b->drawn.at;
	float *marks = (float *)b->scratch.at;
	struct sample_verdict *verdicts =
	    (struct sample_verdict *)(void *)((uint8_t *)b->scratch.at + marks_bytes(n, n_vocab));
	int n_chunks = chunks_of(n_vocab);
	dim3 parts((unsigned)((n_chunks + PART - 1) / PART), (unsigned)n);
	size_t shared = sizeof(struct sample_shared);
	int rc = KN_LAUNCH(b->dev, survey_rows, parts, SURVEY_THREADS, 0, logits, n_vocab, jobs, marks);
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, sample, (unsigned)n, THREADS, shared + (size_t)n_chunks * sizeof(float), logits,
			       n_vocab, jobs, adjusts, b->token, marks, verdicts, out);
	if (rc == 0 && races)
		rc = KN_LAUNCH(b->dev, race_rows, (unsigned)n, THREADS, shared, logits, n_vocab, jobs, adjusts, marks,
			       verdicts, out);
	return rc;
}

int kn_cuda_sample(struct kn_backend *b, float *logits, int n_vocab, const struct kn_draw *draws, int n,
		   struct kn_drawn *out)
{
	int most = kn_cuda_rows(b, n);
	bool races = false;
	size_t n_adjust = 0, n_masks = 0, words = ((size_t)n_vocab + 31) / 32;
	dev_range(b->dev, "sampling");
	if (b->step == NULL || n < 1 || n_vocab < 1 || n_vocab > KN_MAX_SAMPLED_VOCAB)
		return SL_EUNSUPPORTED;
	for (int i = 0; i < n; i++) {
		if (draws[i].said > b->n_real || (draws[i].said > 0 && draws[i].n_penalties < 1))
			return SL_EUNSUPPORTED;
		n_adjust += (size_t)(draws[i].n_bias + draws[i].n_penalties + draws[i].n_out);
		n_masks += draws[i].mask != NULL;
		races = races || draws[i].temperature > 0;
	}
	size_t head = ((size_t)most * sizeof(struct sample_job) + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
	size_t bytes = head + n_adjust * sizeof(struct kn_adjust) + n_masks * words * sizeof(uint32_t);
	size_t scratch = marks_bytes(most, n_vocab) + (size_t)most * sizeof(struct sample_verdict);
	if (kn_cuda_room(b, &b->drawn, (size_t)most * sizeof *out) != 0 || kn_cuda_room(b, &b->scratch, scratch) != 0)
		return SL_EIO;
	b->n_drawn = n;
	uint8_t *device, *host = kn_cuda_stage_draws(b, bytes, &device);
	if (host == NULL)
		return SL_EIO;
	struct sample_job *jobs = (struct sample_job *)(void *)host;
	struct kn_adjust *adjusts = (struct kn_adjust *)(void *)(host + head);
	int32_t first = 0, mask = (int32_t)(n_adjust * sizeof *adjusts / sizeof(uint32_t));
	for (int i = 0; i < most; i++) {
		memset(&jobs[i], 0, sizeof jobs[i]);
		jobs[i].row = jobs[i].mask = -1;
		if (i >= n)
			continue;
		int32_t each = draws[i].n_bias + draws[i].n_penalties + draws[i].n_out;
		fill_job(&jobs[i], &draws[i], n_vocab, first);
		if (each > 0)
			memcpy(adjusts + first, draws[i].adjust, (size_t)each * sizeof *adjusts);
		first += each;
		if (draws[i].mask == NULL)
			continue;
		memcpy((uint32_t *)(void *)adjusts + mask, draws[i].mask, words * sizeof(uint32_t));
		jobs[i].mask = mask;
		mask += (int32_t)words;
	}
	int rc = launch(b, logits, n_vocab, most, device, head, races);
	return rc != 0 ? rc : kn_cuda_read_bytes(b, b->drawn.at, (size_t)n * sizeof *out, out);
}
