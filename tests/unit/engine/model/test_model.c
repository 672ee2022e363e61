/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading refuses what the forward pass could not use, by name; the forward pass gives each row the
 * same bits in any company. Run from the repository's root (it reads etc/models).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "tests/support/part.h"
#include "tests/support/short_spins.h"
#include "tests/support/tiny_gguf.h"

#define SMALL "etc/models/demo-small.gguf"
#define LARGE "etc/models/demo-large.gguf"

enum { PAGE_TOKENS = 16, SEQ_PAGES = 6, N_SEQS = 3, LENGTH = PART_OF(70), MAX_ROWS = 80 };

/* ---- refusals ---- */

static uint8_t *image; /* a good small file */
static size_t image_n;
static char path[64];
static int fd;

static int make_image(void **arg)
{
	(void)arg;
	fd = memfd_create("model", MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || !tiny_gguf_write(path, 1))
		return -1;
	image_n = (size_t)lseek(fd, 0, SEEK_END);
	image = malloc(image_n);
	return image != NULL && pread(fd, image, image_n, 0) == (ssize_t)image_n ? 0 : -1;
}

static int drop_image(void **arg)
{
	(void)arg;
	free(image);
	return close(fd);
}

/* Where the bytes behind a string with its length stand in the file. */
static off_t after(const char *s)
{
	uint8_t needle[128];
	uint64_t n = strlen(s);
	memcpy(needle, &n, 8);
	memcpy(needle + 8, s, n);
	uint8_t *at = memmem(image, image_n, needle, 8 + n);
	assert_non_null(at);
	return at + 8 + n - image;
}

static void restore(void) { assert_int_equal(pwrite(fd, image, image_n, 0), image_n); }

static void patch(off_t at, const void *p, size_t n) { assert_int_equal(pwrite(fd, p, n, at), n); }

static void patch_u32(off_t at, uint32_t v) { patch(at, &v, 4); }

static int load(const char *file, uint64_t max_bytes, struct sl_err *err)
{
	const struct kn_ops *o = kn_available()[0];
	struct kn_config cfg = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	*err = (struct sl_err){0};
	assert_int_equal(o->open(&cfg, &b, err), 0);
	int rc = model_load(file, o, b, 4, max_bytes, &m, err);
	assert_true((rc == 0) == (m != NULL));
	model_free(m);
	o->close(b);
	return rc;
}

/* The patched file is refused with both words; the next case begins with the good one. */
static void refused(int code, const char *one, const char *two)
{
	struct sl_err err;
	int rc = load(path, 0, &err);
	if (rc != code || strstr(err.text, one) == NULL || strstr(err.text, two) == NULL)
		fail_msg("code %d, \"%s\"; not code %d with \"%s\" and \"%s\"", rc, err.text, code, one, two);
	restore();
}

static void test_good(void **arg)
{
	(void)arg;
	struct sl_err err;
	restore();
	if (load(path, 0, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(model_check(path, NULL, 0, &err), 0);
	struct model_info info;
	assert_int_equal(model_inspect(path, &info, &err), 0);
	assert_int_equal(info.arch.n_layers, TINY_LAYERS);
	assert_int_equal(info.arch.head_dim, TINY_HEAD);
	assert_int_equal(info.arch.n_kv_heads, TINY_KV_HEADS);
	assert_int_equal(info.arch.n_vocab, TINY_VOCAB);
	assert_false(info.arch.tied_embeddings);
	assert_int_equal(info.file_bytes, image_n);
	assert_string_equal(info.name, "tiny");
}

static void test_refused(void **arg)
{
	(void)arg;
	static const char *const tensors[] = {"token_embd.weight",    "output_norm.weight",  "blk.0.attn_norm.weight",
					      "blk.1.attn_q.weight",  "blk.0.attn_k.weight", "blk.1.ffn_down.weight",
					      "blk.1.ffn_norm.weight"};
	for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
		off_t at = after(tensors[i]);
		patch(at - 1, "X", 1); /* …weighX: no such tensor */
		refused(SL_EINVAL, tensors[i], "");
	}
	uint64_t turned[] = {TINY_KV_HEADS * TINY_HEAD, TINY_EMBD}, fewer[] = {TINY_EMBD, TINY_VOCAB - 1};
	patch(after("blk.1.attn_k.weight") + 4, turned, sizeof turned);
	refused(SL_EINVAL, "blk.1.attn_k.weight", "16 × 32, not 32 × 16");
	patch(after("token_embd.weight") + 4, fewer, sizeof fewer);
	refused(SL_EINVAL, "258 tokens", "257 rows");
	patch_u32(after("blk.0.ffn_up.weight") + 20, 16);
	refused(SL_EUNSUPPORTED, "blk.0.ffn_up.weight", "IQ2_XXS");
	patch_u32(after("blk.0.ffn_up.weight") + 20, 1000);
	refused(SL_EUNSUPPORTED, "blk.0.ffn_up.weight", "unknown");
	patch_u32(after("output_norm.weight") + 12, 8); /* Q8_0: norms are floats */
	refused(SL_EINVAL, "output_norm.weight", "floats");
	patch(after("general.architecture") + 12, "mamba", 5);
	refused(SL_EUNSUPPORTED, "\"mamba\"", "supported: llama");
	patch(after("tokenizer.ggml.pre") + 12, "gpt-9", 5);
	refused(SL_EUNSUPPORTED, "gpt-9", "");

	static const struct {
		const char *key;
		uint32_t value;
		int code;
	} keys[] = {
	    {"llama.block_count", 0, SL_EINVAL},
	    {"llama.block_count", 3, SL_EINVAL},
	    {"llama.block_count", UINT32_MAX, SL_EINVAL},
	    {"llama.embedding_length", 0, SL_EINVAL},
	    {"llama.embedding_length", 1u << 31, SL_EINVAL},
	    {"llama.attention.head_count", 0, SL_EINVAL},
	    {"llama.attention.head_count", 33, SL_EINVAL},
	    {"llama.attention.head_count_kv", 0, SL_EINVAL},
	    {"llama.attention.head_count_kv", 3, SL_EUNSUPPORTED},
	    {"llama.attention.head_count_kv", 5, SL_EINVAL},
	    {"llama.feed_forward_length", 0, SL_EINVAL},
	    {"llama.context_length", 0, SL_EINVAL},
	    {"llama.attention.layer_norm_rms_epsilon", 0x7FC00000, SL_EINVAL},
	    {"llama.attention.layer_norm_rms_epsilon", 0, SL_EINVAL},
	};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		patch_u32(after(keys[i].key) + 4, keys[i].value);
		refused(keys[i].code, path, "");
	}
}

static void test_too_big(void **arg)
{
	(void)arg;
	struct sl_err err;
	assert_int_equal(load(LARGE, 1 << 20, &err), SL_ELIMIT);
	assert_non_null(strstr(err.text, "has 3 MiB"));
	assert_non_null(strstr(err.text, "allows 1 MiB"));
	assert_int_equal(model_check(LARGE, NULL, 1 << 20, &err), SL_ELIMIT);
	assert_int_equal(load(LARGE, 64 << 20, &err), 0);
}

/* ---- batch invariance ---- */

struct rig {
	struct model *m;
	struct kv_pool *pool;
	int32_t tables[N_SEQS * SEQ_PAGES], ids[N_SEQS][LENGTH];
	size_t n_vocab;
	float *alone;  /* [N_SEQS][LENGTH][n_vocab], each row computed by itself */
	float *logits; /* [MAX_ROWS][n_vocab] */
	uint64_t random;
};

static uint32_t pick(struct rig *r, uint32_t n)
{
	r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(r->random >> 33) % n;
}

/* take[s] further rows of each sequence from done[s] on, interleaved; keep: these are the rows alone. */
static void step(struct rig *r, int done[N_SEQS], const int take[N_SEQS], bool keep)
{
	int32_t token[MAX_ROWS], pos[MAX_ROWS], seq[MAX_ROWS], want[MAX_ROWS];
	int n = 0, left[N_SEQS];
	memcpy(left, take, sizeof left);
	for (int s = 0; left[0] + left[1] + left[2] > 0; s = (s + 1) % N_SEQS)
		for (int run = 1 + (int)pick(r, 4); run > 0 && left[s] > 0; run--, left[s]--) {
			seq[n] = s;
			pos[n] = done[s];
			token[n] = r->ids[s][done[s]++];
			want[n] = n;
			n++;
		}
	if (n == 0)
		return;
	/* Any subset and order of rows may be wanted: here backwards. */
	for (int i = 0; i < n; i++)
		want[i] = n - 1 - i;
	struct kn_step k = {.n_rows = n,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = N_SEQS,
			    .page_table = r->tables,
			    .max_pages = SEQ_PAGES};
	int n_want = keep ? n : 1 + (int)pick(r, (uint32_t)n);
	assert_int_equal(model_forward(r->m, &k, kv_pool_layout(r->pool), want, n_want, r->logits), 0);
	for (int i = 0; i < n_want; i++) {
		float *alone = r->alone + (size_t)(seq[want[i]] * LENGTH + pos[want[i]]) * r->n_vocab;
		const float *got = r->logits + (size_t)i * r->n_vocab;
		if (keep)
			memcpy(alone, got, r->n_vocab * sizeof *got);
		else
			assert_memory_equal(got, alone, r->n_vocab * sizeof *got);
	}
}

static void test_batches(struct rig *r)
{
	for (int s = 0; s < N_SEQS; s++)
		for (int i = 0, done[N_SEQS] = {LENGTH, LENGTH, LENGTH}; i < LENGTH; i++) {
			int take[N_SEQS] = {0};
			done[s] = i;
			take[s] = 1;
			step(r, done, take, true);
		}
	static const int chunks[] = {2, 3, 5, 7, 16, 17, 33, 64, LENGTH};
	for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
		int done[N_SEQS] = {0};
		while (done[0] < LENGTH) {
			int take[N_SEQS] = {LENGTH - done[0] < chunks[c] ? LENGTH - done[0] : chunks[c]};
			step(r, done, take, false);
		}
	}
	/* Prefill beside decoding rows, in random shares. */
	for (int round = 0; round < 3; round++)
		for (int done[N_SEQS] = {0}; done[0] + done[1] + done[2] < N_SEQS * LENGTH;) {
			int take[N_SEQS];
			for (int s = 0; s < N_SEQS; s++) {
				take[s] = pick(r, 3) ? (int)pick(r, 26) : 1;
				take[s] = take[s] < LENGTH - done[s] ? take[s] : LENGTH - done[s];
			}
			step(r, done, take, false);
		}
}

static void test_batch_invariance(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		struct rig r = {.random = 7};
		struct kn_config cfg = {.n_threads = 2, .max_rows = MAX_ROWS, .max_width = 1 << 16};
		struct kn_backend *b;
		struct sl_err err;
		short_spins();
		assert_int_equal((*o)->open(&cfg, &b, &err), 0);
		if (model_load(SMALL, *o, b, MAX_ROWS, 0, &r.m, &err) != 0)
			fail_msg("%s", err.text);
		const struct model_arch *a = &model_info(r.m)->arch;
		r.n_vocab = (size_t)a->n_vocab;
		assert_int_equal(kv_pool_create(*o, b, KN_F32, N_SEQS * SEQ_PAGES, PAGE_TOKENS, a->n_layers,
						a->n_kv_heads, a->head_dim, &r.pool, &err),
				 0);
		for (int i = 0; i < N_SEQS * SEQ_PAGES; i++) /* sequences take pages in turn */
			assert_int_equal(kv_page_alloc(r.pool, &r.tables[i % N_SEQS * SEQ_PAGES + i / N_SEQS]), 0);
		for (int i = 0; i < N_SEQS * LENGTH; i++)
			r.ids[i / LENGTH][i % LENGTH] = (int32_t)pick(&r, (uint32_t)a->n_vocab);
		r.alone = calloc(N_SEQS * LENGTH * r.n_vocab, sizeof *r.alone);
		r.logits = calloc(MAX_ROWS * r.n_vocab, sizeof *r.logits);
		test_batches(&r);
		free(r.alone);
		free(r.logits);
		for (int i = 0; i < N_SEQS * SEQ_PAGES; i++)
			kv_page_unref(r.pool, r.tables[i]);
		kv_pool_destroy(r.pool);
		model_free(r.m);
		(*o)->close(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_good),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_too_big),
	    cmocka_unit_test(test_batch_invariance),
	};
	return cmocka_run_group_tests(tests, make_image, drop_image);
}
