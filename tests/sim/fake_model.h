/* SPDX-License-Identifier: Apache-2.0
 *
 * A model for tests of the engine without weights: it defines everything of engine/model.h and
 * engine/tokenizer.h, so the real ones are not linked. Its "forward pass" writes each token to its
 * place in the KV pages and makes logits from a hash of what it reads back of the whole past:
 * whoever mixes up pages, positions or sequences gets other tokens. Tokens are bytes.
 *
 * Included by one test file each.
 */
#ifndef TESTS_FAKE_MODEL_H
#define TESTS_FAKE_MODEL_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/model.h"
#include "engine/sampler.h"
#include "kernels/kv_type.h"

enum { FAKE_EOS = 256, FAKE_BOS = 257, FAKE_VOCAB = 258, FAKE_CTX = 512 };

struct tokenizer {
	int unused;
};

struct model {
	struct model_info info;
	struct tokenizer tok;
	struct chat_template *template;
	int max_rows;
	bool near; /* "near" in its path: it says something else after one text in four */
};

static struct {
	atomic_int fail_next;   /* forwards to come before SL_EIO; -1: never */
	atomic_int forwards;
	atomic_int max_rows_seen, max_want_seen;
	atomic_int end_never;   /* no end tokens */
	atomic_int step_us;     /* a step takes so long */
	atomic_int draws;       /* tokens are drawn where the logits are, as on a device */
	atomic_int drawn;       /* so many were */
	pthread_mutex_t gate;   /* held: every step waits */
} fake = {.fail_next = -1, .gate = PTHREAD_MUTEX_INITIALIZER};

static char fake_bytes[FAKE_VOCAB];

static __attribute__((constructor)) void fake_init(void)
{
	for (int i = 0; i < FAKE_VOCAB; i++)
		fake_bytes[i] = (char)i;
}

static const char fake_chat[] = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
				"<assistant>";

int model_inspect(const char *path, struct model_info *out, struct sl_err *err)
{
	if (strstr(path, "missing") != NULL)
		return sl_errf(err, SL_EIO, "%s: no such file", path);
	int n_layers = strstr(path, "three") != NULL ? 3 : strstr(path, "two") != NULL ? 2 : 1;
	*out = (struct model_info){
	    .arch = {.family = "fake", .n_layers = n_layers, .n_embd = 8, .n_heads = 1, .n_kv_heads = 1,
		     .head_dim = 8, .n_ff = 8, .n_vocab = FAKE_VOCAB, .n_ctx = FAKE_CTX},
	    .file_bytes = 100,
	    .n_params = 1000};
	return 0;
}

int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows,
	       uint64_t max_bytes, struct model **out, struct sl_err *err)
{
	(void)ops;
	(void)backend;
	(void)max_bytes;
	if (strstr(path, "bad") != NULL)
		return sl_errf(err, SL_EINVAL, "%s: these are no weights", path);
	struct model *m = calloc(1, sizeof *m);
	model_inspect(path, &m->info, err);
	m->max_rows = max_rows;
	m->near = strstr(path, "near") != NULL;
	int rc = chat_template_compile(fake_chat, sizeof fake_chat - 1, &m->template, err);
	if (rc != 0) {
		free(m);
		return rc;
	}
	*out = m;
	return 0;
}

int model_load_as(const char *path, const struct model_quantize *q, const struct kn_ops *ops,
		  struct kn_backend *backend, int max_rows, uint64_t max_bytes, struct model **out,
		  struct sl_err *err)
{
	(void)q;
	return model_load(path, ops, backend, max_rows, max_bytes, out, err);
}

void model_free(struct model *m)
{
	chat_template_free(m->template);
	free(m);
}

const struct model_info *model_info(const struct model *m)
{
	return &m->info;
}

const struct tokenizer *model_tokenizer(const struct model *m)
{
	return &m->tok;
}

const struct chat_template *model_template(const struct model *m)
{
	return m->template;
}

static uint64_t fake_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 32;
}

bool model_can_draw(const struct model *m)
{
	(void)m;
	return atomic_load(&fake.draws) != 0;
}

/* What a device does, in double and without filters; the row is no number afterwards, so that whoever
 * reads it shows. */
static void fake_draw(const struct kn_draw *d, float *row, struct kn_drawn *out)
{
	static _Thread_local struct sampler_scratch scratch;
	struct sampler_choice told;
	double l[FAKE_VOCAB], max = -INFINITY, mass = 0, at;
	int32_t id = 0;
	BUG_IF(d->n_penalties > 0 || d->top_k > 0 || d->top_p < 1 || d->min_p > 0, "fake: a filter");
	for (int i = 0; i < FAKE_VOCAB; i++)
		l[i] = (double)row[i];
	for (int i = 0; i < d->n_bias; i++)
		l[d->adjust[i].id] += (double)d->adjust[i].a;
	for (int i = 0; i < d->n_out; i++)
		l[d->adjust[d->n_bias + i].id] = -INFINITY;
	for (int i = FAKE_VOCAB - 1; i >= 0; i--) {
		id = l[i] >= max ? i : id;
		max = l[i] >= max ? l[i] : max;
	}
	for (int i = 0; i < FAKE_VOCAB && d->temperature > 0; i++)
		mass += exp((l[i] - max) / (double)d->temperature);
	at = d->u * mass;
	for (int i = 0; i < FAKE_VOCAB && d->temperature > 0; i++) {
		double w = exp((l[i] - max) / (double)d->temperature);
		if (at >= 0 && at < w)
			id = i;
		at -= w;
	}
	BUG_IF(sampler_scratch_reserve(&scratch, FAKE_VOCAB) != 0, "fake: no memory");
	sampler_prompt_logprob(row, FAKE_VOCAB, id, d->n_top, &scratch, &told);
	sampler_scratch_dispose(&scratch);
	*out = (struct kn_drawn){.id = id, .logprob = d->want_logprob ? told.logprob : NAN,
				 .n_top = d->want_logprob ? told.n_top : 0};
	for (int i = 0; i < out->n_top; i++)
		out->top[i] = (struct kn_id_logprob){(int32_t)told.top[i].id, told.top[i].v};
	for (int i = 0; i < FAKE_VOCAB; i++)
		row[i] = NAN;
	atomic_fetch_add(&fake.drawn, 1);
}

int model_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv,
		  const int32_t *want, int n_want, float *logits)
{
	return model_forward_draw(m, s, kv, want, n_want, logits, NULL);
}

int model_forward_draw(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		       float *logits, const struct model_draws *draws)
{
	/* A token's number lies at the beginning of its elements, whatever their type is. */
	uint8_t *k = kv->k;
	size_t page_stride = kn_kv_page_bytes(kv);
	size_t token_stride = (size_t)kv->n_kv_heads * (size_t)kv->head_dim * kn_kv_element_bytes(kv->type);
	pthread_mutex_lock(&fake.gate);
	pthread_mutex_unlock(&fake.gate);
	int us = atomic_load(&fake.step_us);
	if (us > 0) {
		struct timespec ts = {.tv_nsec = us * 1000};
		nanosleep(&ts, NULL);
	}
	BUG_IF(s->n_rows > m->max_rows || s->n_rows < 1, "fake: %d rows", s->n_rows);
	int left = atomic_load(&fake.fail_next);
	if (left >= 0) {
		atomic_store(&fake.fail_next, left - 1);
		if (left == 0)
			return SL_EIO;
	}
	atomic_fetch_add(&fake.forwards, 1);
	if (s->n_rows > atomic_load(&fake.max_rows_seen))
		atomic_store(&fake.max_rows_seen, s->n_rows);
	if (n_want > atomic_load(&fake.max_want_seen))
		atomic_store(&fake.max_want_seen, n_want);
	for (int r = 0; r < s->n_rows; r++) {
		const int32_t *table = s->page_table + (size_t)s->row_seq[r] * (size_t)s->max_pages;
		size_t page = (size_t)table[s->row_pos[r] / kv->page_tokens];
		uint16_t v = (uint16_t)(s->row_token[r] + 1);
		memcpy(k + page * page_stride + (size_t)(s->row_pos[r] % kv->page_tokens) * token_stride, &v, sizeof v);
	}
	for (int w = 0; w < n_want; w++) {
		int r = want[w];
		const int32_t *table = s->page_table + (size_t)s->row_seq[r] * (size_t)s->max_pages;
		uint64_t h = 1;
		for (int pos = 0; pos <= s->row_pos[r]; pos++) {
			size_t page = (size_t)table[pos / kv->page_tokens];
			uint16_t v;
			memcpy(&v, k + page * page_stride + (size_t)(pos % kv->page_tokens) * token_stride, sizeof v);
			h = fake_mix(h, v);
		}
		if (m->near && fake_mix(h, 77) % 4 == 0)
			h = fake_mix(h, 78);
		float *row = logits + (size_t)w * FAKE_VOCAB;
		for (int i = 0; i < FAKE_VOCAB; i++) {
			bool letter = (i >= 'a' && i <= 'z') || i == ' ';
			row[i] = letter ? (float)(fake_mix(h, (uint64_t)i) % 1000) / 100.0f : -50.0f;
		}
		if (!atomic_load(&fake.end_never))
			row[FAKE_EOS] = (float)(fake_mix(h, 999) % 1050) / 100.0f;
	}
	for (int i = 0; draws != NULL && i < draws->n; i++) {
		BUG_IF(!draws->taken[draws->draws[i].row], "fake: a row that is drawn and read");
		fake_draw(&draws->draws[i], logits + (size_t)draws->draws[i].row * FAKE_VOCAB, &draws->drawn[i]);
	}
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const uint8_t *trust,
		     struct tok_ids *out)
{
	(void)t;
	(void)trust;
	int32_t *ids = realloc(out->ids, (out->n + n + 1) * sizeof *ids);
	out->ids = ids;
	out->cap = out->n + n + 1;
	for (size_t i = 0; i < n; i++)
		ids[out->n++] = (uint8_t)text[i];
	return 0;
}

void tok_ids_dispose(struct tok_ids *l)
{
	free(l->ids);
	*l = (struct tok_ids){0};
}

int tokenizer_add_bos(const struct tokenizer *t, struct tok_ids *out)
{
	(void)t;
	(void)out;
	return 0;
}

int tokenizer_n_vocab(const struct tokenizer *t)
{
	(void)t;
	return FAKE_VOCAB;
}

uint64_t tokenizer_digest(const struct tokenizer *t)
{
	(void)t;
	return FAKE_VOCAB;
}

struct proto_str tokenizer_bytes(const struct tokenizer *t, int32_t id)
{
	(void)t;
	return (struct proto_str){.at = &fake_bytes[id], .n = 1};
}

enum tok_attr tokenizer_attr(const struct tokenizer *t, int32_t id)
{
	(void)t;
	return id >= FAKE_EOS ? TOK_CONTROL : TOK_NORMAL;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
	(void)t;
	return id == FAKE_EOS;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
	(void)t;
	return -1;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
	(void)t;
	return FAKE_EOS;
}

#endif
