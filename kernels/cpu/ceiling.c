/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that run one operation at the processor's peak rate: loads from a buffer larger than the caches, and
 * independent chains of products in registers. Each function has its instruction set as an attribute, and the processor
 * is checked at run time, so this file builds and runs anywhere.
 */
#include "kernels/ceiling.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/percentile.h"
#include "kernels/cpu/pool.h"

enum { BUFFER = 128 << 20, CHAINS = 12, FEW = 8, TURNS = 4096, MAX_THREADS = 256, HUGE = 2 << 20 };

struct work {
	double (*pass)(const char *buffer); /* does one pass, returns its amount of work */
	uint64_t ns;
	pthread_barrier_t *begin;
	double per_second;
	bool failed;
};

static volatile int sink; /* keeps the results used */

__attribute__((target("avx512f"))) static double read_512(const char *buffer)
{
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
	for (size_t i = 0; i < BUFFER; i += 256) {
		a = _mm512_xor_si512(a, _mm512_loadu_si512(buffer + i));
		b = _mm512_xor_si512(b, _mm512_loadu_si512(buffer + i + 64));
		c = _mm512_xor_si512(c, _mm512_loadu_si512(buffer + i + 128));
		d = _mm512_xor_si512(d, _mm512_loadu_si512(buffer + i + 192));
	}
	sink = _mm512_reduce_add_epi32(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
	return BUFFER;
}

/* Prefetches explicitly: the hardware prefetcher stops at every page. */
__attribute__((target("avx2"))) static double read_256(const char *buffer)
{
	__m256i a = _mm256_setzero_si256(), b = a;
	int out[8];
	for (size_t i = 0; i < BUFFER; i += 128) {
		_mm_prefetch(buffer + i + 2048, _MM_HINT_T0);
		_mm_prefetch(buffer + i + 2048 + 64, _MM_HINT_T0);
		a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)(const void *)(buffer + i)));
		b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(const void *)(buffer + i + 32)));
		a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)(const void *)(buffer + i + 64)));
		b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(const void *)(buffer + i + 96)));
	}
	_mm256_storeu_si256((__m256i *)(void *)out, _mm256_xor_si256(a, b));
	sink = out[0];
	return BUFFER;
}

static double read_plain(const char *buffer)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;
	for (size_t i = 0; i < BUFFER; i += 32) {
		uint64_t x[4];
		memcpy(x, buffer + i, sizeof x);
		a ^= x[0];
		b ^= x[1];
		c ^= x[2];
		d ^= x[3];
	}
	sink = (int)(a ^ b ^ c ^ d);
	return BUFFER;
}

/* A pass of CHAINS independent chains. A chain c starts as `first` and becomes `next` in each iteration. */
#define PASS(name, isa, vector, factor, x_is, y_is, first, next, operations)      \
	__attribute__((target(isa))) static double name(const char *buffer)       \
	{                                                                         \
		const factor x = x_is, y = y_is;                                  \
		vector chain[CHAINS];                                             \
		(void)buffer;                                                     \
		for (int i = 0; i < CHAINS; i++)                                  \
			chain[i] = first;                                         \
		for (int t = 0; t < TURNS; t++)                                   \
			_Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) \
			{                                                         \
				vector c = chain[i];                              \
				chain[i] = next;                                  \
			}                                                         \
		for (int i = 1; i < CHAINS; i++)                                  \
			chain[0] += chain[i];                                     \
		__asm__ volatile("" : : "v"(chain[0])); /* every lane is used */  \
		return (double)(operations)*CHAINS * TURNS;                       \
	}

PASS(fp32_512, "avx512f", __m512, __m512, _mm512_set1_ps(0.999f), _mm512_set1_ps(1e-9f), y, _mm512_fmadd_ps(c, x, y),
     32)
PASS(fp32_256, "avx2,fma", __m256, __m256, _mm256_set1_ps(0.999f), _mm256_set1_ps(1e-9f), y, _mm256_fmadd_ps(c, x, y),
     16)
PASS(int8_512, "avx512f,avx512vnni", __m512i, __m512i, _mm512_set1_epi8(3), _mm512_set1_epi8(-2), _mm512_set1_epi32(i),
     _mm512_dpbusd_epi32(c, x, y), 128)
PASS(bf16_512, "avx512f,avx512bf16", __m512, __m512bh, _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f)),
     x, _mm512_setzero_ps(), _mm512_dpbf16_ps(c, x, y), 64)

/* vpmaddubsw and vpmaddwd for every 32 products, as exact 8-bit by 8-bit products need. With smaller weights several
 * vpmaddubsw may share a vpmaddwd, so their products may exceed this rate. The sums are named variables: between the
 * additions, the compiler would keep an array in memory, behind the barrier that stops it from hoisting the product. */
__attribute__((target("avx2"))) static double int8_256(const char *buffer)
{
	__m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
	__m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
	int out[8];
	(void)buffer;
/* Marks x as changed, so that the compiler cannot hoist its product; keeps the sum in its own register. */
#define ADD_PRODUCT(sum)                                                                      \
	__asm__ volatile("" : "+x"(x));                                                       \
	(sum) = _mm256_add_epi32((sum), _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones)); \
	__asm__ volatile("" : "+x"(sum))
	for (int t = 0; t < TURNS; t++) {
		ADD_PRODUCT(a);
		ADD_PRODUCT(b);
		ADD_PRODUCT(c);
		ADD_PRODUCT(d);
		ADD_PRODUCT(e);
		ADD_PRODUCT(f);
		ADD_PRODUCT(g);
		ADD_PRODUCT(h);
	}
#undef ADD_PRODUCT
	a = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
	e = _mm256_add_epi32(_mm256_add_epi32(e, f), _mm256_add_epi32(g, h));
	_mm256_storeu_si256((__m256i *)(void *)out, _mm256_add_epi32(a, e));
	sink = out[0];
	return 64.0 * FEW * TURNS;
}

static void *work_main(void *ctx)
{
	struct work *w = ctx;
	/* Its own buffer, written once so that its pages exist. */
	char *buffer = aligned_alloc(HUGE, BUFFER);
	w->failed = buffer == NULL;
	if (buffer != NULL) {
		(void)madvise(buffer, BUFFER, MADV_HUGEPAGE);
		memset(buffer, 1, BUFFER);
	}
	pthread_barrier_wait(w->begin);
	double done = 0;
	uint64_t begin = clock_now_ns(), now = begin;
	while (buffer != NULL && now - begin < w->ns) {
		done += w->pass(buffer);
		now = clock_now_ns();
	}
	w->per_second = now > begin ? done / ((double)(now - begin) / 1e9) : 0;
	free(buffer);
	return NULL;
}

static int measure(double (*pass)(const char *), int n_threads, double seconds, double *out)
{
	struct work w[MAX_THREADS];
	pthread_t threads[MAX_THREADS];
	pthread_barrier_t begin;
	int made = 0, rc = 0;
	*out = 0;
	if (pass == NULL)
		return 0;
	pthread_barrier_init(&begin, NULL, (unsigned)n_threads);
	for (; made < n_threads; made++) {
		w[made] = (struct work){.pass = pass, .ns = (uint64_t)(seconds * 1e9), .begin = &begin};
		if (made > 0 && pthread_create(&threads[made], NULL, work_main, &w[made]) != 0)
			BUG("ceilings: thread %d can't start", made);
	}
	work_main(&w[0]);
	for (int i = 1; i < made; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < made; i++) {
		*out += w[i].per_second;
		if (w[i].failed)
			rc = SL_ENOMEM;
	}
	pthread_barrier_destroy(&begin);
	return rc;
}

static void no_work(void *ctx, int i)
{
	(void)ctx;
	(void)i;
}

int kn_measure_fork_join(int n_threads, double *ns, struct sl_err *err)
{
	enum { TIMES = 4001 };
	static double took[TIMES];
	struct kn_pool *pool;
	*ns = 0;
	if (n_threads == 1)
		return 0;
	int rc = kn_pool_create(n_threads, &pool, err);
	if (rc != 0)
		return rc;
	kn_pool_wake(pool);
	for (int i = 0; i < TIMES; i++) {
		uint64_t begin = clock_now_ns();
		kn_pool_run(pool, 2 * n_threads, no_work, NULL);
		took[i] = (double)(clock_now_ns() - begin);
	}
	kn_pool_rest(pool);
	kn_pool_destroy(pool);
	*ns = percentile(took, TIMES, 50);
	return 0;
}

int kn_measure_reading(int n_threads, double seconds, double *bytes)
{
	bool wide = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
	if (n_threads < 1 || n_threads > MAX_THREADS)
		return SL_EINVAL;
	return measure(wide ? read_512 : avx2 ? read_256 : read_plain, n_threads, seconds, bytes);
}

int kn_measure_ceilings(int n_threads, double seconds, struct kn_ceilings *out)
{
	bool wide = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
	bool fma = avx2 && __builtin_cpu_supports("fma");
	if (n_threads < 1 || n_threads > MAX_THREADS)
		return SL_EINVAL;
	int rc = kn_measure_reading(n_threads, seconds, &out->read_bytes);
	if (rc == 0)
		rc = measure(__builtin_cpu_supports("avx512vnni") ? int8_512
			     : avx2                               ? int8_256
								  : NULL,
			     n_threads, seconds, &out->int8_ops);
	if (rc == 0)
		rc =
		    measure(__builtin_cpu_supports("avx512bf16") ? bf16_512 : NULL, n_threads, seconds, &out->bf16_ops);
	if (rc == 0)
		rc = measure(wide ? fp32_512 : fma ? fp32_256 : NULL, n_threads, seconds, &out->fp32_ops);
	return rc;
}
