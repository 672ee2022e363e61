/* SPDX-License-Identifier: Apache-2.0
 *
 * A model for tests of the engine without weights: it defines everything of engine/model/model.h and
 * engine/token/tokenizer.h, so the real ones are not linked. Its "forward pass" writes each token to its
 * place in the KV pages and makes logits from a hash of what it reads back of the whole past:
 * whoever mixes up pages, positions or sequences gets other tokens. One with "hybrid" in its path has a second layer,
 * whose state is a hash of the tokens so far; it checks that each row comes next. Tokens are bytes.
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

#include "engine/model/adapters.h"
#include "engine/model/draft_head.h"
#include "engine/model/model.h"
#include "engine/model/residence.h"
#include "engine/sample/sampler.h"
#include "kernels/cpu/ref.h"
#include "kernels/kv_type.h"
#include "kernels/race.h"

enum { FAKE_EOS = 256, FAKE_BOS = 257, FAKE_VOCAB = 258, FAKE_CTX = 512, FAKE_WINDOW = 21, FAKE_CONV = 8 };

struct tokenizer {
	int unused;
};

struct model {
	struct model_info info;
	struct tokenizer tok;
	struct chat_template *template;
	int max_rows;
	bool near; /* "near" in its path: it says something else after one text in four */
	struct kn_backend *backend;
	struct model *next; /* of all there are */
	bool failed;
	struct fake_step *steps[KN_STEPS_AHEAD]; /* on their way, the oldest first */
	int n_steps;
	int32_t drawn[1024]; /* by the last step that drew any */
	int n_drawn;
};

/* A copy of what model_issue was given. */
struct fake_step {
	struct kn_step s;
	struct kn_kv kv;
	int32_t *ints; /* all arrays of s, and want */
	const int32_t *want;
	int n_want;
	float *logits, *to; /* where they are made, and wanted */
	struct kn_draw *draws;
	struct kn_adjust *adjusts;
	uint32_t (*masks)[(FAKE_VOCAB + 31) / 32];
	struct kn_drawn *drawn, *out;
	bool *taken;
	int n_draws;
	bool computed;
	int rc;
	/* Pages to copy once it is computed: they came after it. */
	struct fake_copy {
		struct kn_kv kv;
		int src, dst; /* -1: the host's */
		void *host;
	} * copies;
	int n_copies, max_copies;
};

static struct {
	atomic_int fail_next; /* forwards to come before SL_EIO; -1: never */
	atomic_int forwards;
	atomic_int max_rows_seen, max_want_seen;
	atomic_int end_never;    /* no end tokens */
	atomic_int step_us;      /* a step takes so long */
	atomic_int row_us;       /* and each of its rows so long besides */
	uint64_t *_Atomic clock; /* steps take time of this clock, not of the real one */
	atomic_int stamp;        /* of its files */
	atomic_int copy_us;      /* and a page to the host or from there */
	atomic_int draws;        /* tokens are drawn where the logits are, as on a device */
	atomic_int drawn;        /* so many were */
	atomic_int ahead;   /* steps go on by themselves: 1: they are computed when somebody waits for them, 2: at once,
			     * but what they give comes then */
	atomic_int n_ahead; /* so many were issued while another was on its way */
	atomic_int n_beside;       /* so many while another model's was */
	atomic_int n_crowding;     /* so many while both were */
	atomic_int n_on_way;       /* of all models */
	atomic_int n_out, n_in;    /* pages copied to the host, and from there */
	atomic_int n_taken;        /* rows whose token was drawn by the step before */
	pthread_mutex_t gate;      /* held: every step waits */
	pthread_mutex_t text_gate; /* held: every text worker waits */
} fake = {.fail_next = -1, .gate = PTHREAD_MUTEX_INITIALIZER, .text_gate = PTHREAD_MUTEX_INITIALIZER};

static struct model *fake_models;
static pthread_mutex_t fake_models_lock = PTHREAD_MUTEX_INITIALIZER;
static char fake_bytes[FAKE_VOCAB];
static pthread_mutex_t fake_scratch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sampler_scratch fake_scratch;

static __attribute__((constructor)) void fake_init(void)
{
	for (int i = 0; i < FAKE_VOCAB; i++)
		fake_bytes[i] = (char)i;
	BUG_IF(sampler_scratch_reserve(&fake_scratch, FAKE_VOCAB) != 0, "fake: no memory");
}

static const char fake_chat[] = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
				"<assistant>";

int model_inspect(const char *path, struct model_info *out, struct sl_err *err)
{
	if (strstr(path, "missing") != NULL)
		return sl_errf(err, SL_EIO, "%s: no such file", path);
	bool windowed = strstr(path, "windowed") != NULL, hybrid = strstr(path, "hybrid") != NULL;
	int n_layers = windowed                        ? 4
		       : hybrid                        ? 2
		       : strstr(path, "three") != NULL ? 3
		       : strstr(path, "two") != NULL   ? 2
						       : 1;
	*out = (struct model_info){.arch = {.family = "fake",
					    .n_layers = n_layers,
					    .n_embd = 8,
					    .n_heads = 1,
					    .n_kv_heads = 1,
					    .head_dim = 8,
					    .n_ff = 8,
					    .n_vocab = FAKE_VOCAB,
					    .n_ctx = FAKE_CTX,
					    .window = windowed ? FAKE_WINDOW : 0,
					    .window_pattern = 4,
					    .recurrent = {.kind = hybrid ? ARCH_SHORT_CONV : ARCH_ATTENTION,
							  .layers = {1u << 1},
							  .conv = FAKE_CONV}},
				   .file_bytes = 100,
				   .n_params = 1000};
	return 0;
}

int model_inspect_with(const char *path, const char *head, struct model_info *out, struct sl_err *err)
{
	(void)head;
	return model_inspect(path, out, err);
}

/* No layer drafts. */
bool draft_head_is_here(const struct model *m)
{
	(void)m;
	return false;
}

uint64_t draft_head_row_bytes(const struct model_arch *a, int n_slots)
{
	BUG("fake: hidden rows of %d, %d slots", a->n_embd, n_slots);
}

int draft_head_make_rows(struct model *m, int n_slots, struct sl_err *err)
{
	(void)err;
	BUG("fake: hidden rows of %d slots at %d", n_slots, m->max_rows);
}

int draft_head_keep(struct model *m, int row, int n, int slot, uint32_t pos)
{
	BUG("fake: %d hidden rows from %d, at %u of slot %d, at %d", n, row, pos, slot, m->max_rows);
}

int draft_head_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *hidden,
		       bool chained, const int32_t *want, int n_want, float *logits)
{
	(void)m, (void)kv, (void)hidden, (void)chained, (void)want, (void)logits;
	BUG("fake: a draft of %d rows, %d wanted", s->n_rows, n_want);
}

int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows, uint64_t max_bytes,
	       struct model **out, struct sl_err *err)
{
	(void)ops;
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
	m->backend = backend;
	pthread_mutex_lock(&fake_models_lock);
	m->next = fake_models;
	fake_models = m;
	pthread_mutex_unlock(&fake_models_lock);
	*out = m;
	return 0;
}

int model_load_as(const char *path, const struct model_how *how, const struct kn_ops *ops, struct kn_backend *backend,
		  int max_rows, uint64_t max_bytes, struct model **out, struct sl_err *err)
{
	(void)how;
	return model_load(path, ops, backend, max_rows, max_bytes, out, err);
}

void model_free(struct model *m)
{
	if (m == NULL)
		return;
	BUG_IF(m->n_steps > 0, "fake: %d steps are on their way", m->n_steps);
	pthread_mutex_lock(&fake_models_lock);
	struct model **at = &fake_models;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	pthread_mutex_unlock(&fake_models_lock);
	chat_template_free(m->template);
	free(m);
}

const struct residence *model_residence(const struct model *m)
{
	static const struct residence none;
	(void)m;
	return &none;
}

bool model_keep_weights(struct model *m)
{
	(void)m;
	return false;
}

bool model_stamp(const struct model *m, uint64_t digest[2])
{
	(void)m;
	digest[0] = 1;
	digest[1] = (uint64_t)atomic_load(&fake.stamp);
	return true;
}

bool model_was_kept(const struct model *m)
{
	(void)m;
	return false;
}

const struct model_info *model_info(const struct model *m) { return &m->info; }

const struct tokenizer *model_tokenizer(const struct model *m) { return &m->tok; }

const struct chat_template *model_template(const struct model *m) { return m->template; }

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
static void fake_draw(const struct kn_draw *d, const struct kn_step *s, float *row, struct kn_drawn *out)
{
	int32_t said = d->said > 0 ? s->row_token[d->said - 1] : -1;
	bool found = said < 0;
	struct sampler_choice told;
	double l[FAKE_VOCAB], max = -INFINITY, best = INFINITY;
	int32_t id = 0;
	BUG_IF(d->top_k > 0 || d->top_p < 1 || d->min_p > 0, "fake: a filter");
	for (int i = 0; i < FAKE_VOCAB; i++)
		l[i] = (double)row[i];
	for (int i = 0; i < d->n_bias; i++)
		l[d->adjust[i].id] += (double)d->adjust[i].a;
	BUG_IF(d->said > s->n_rows || (d->said > 0 && d->n_penalties == 0), "fake: a draw that counts row %d", d->said);
	for (int i = d->n_bias; i < d->n_bias + d->n_penalties; i++) {
		const struct kn_adjust *a = &d->adjust[i];
		int32_t adjusted = a->id >= 0 ? a->id : found ? -1 : said;
		if (adjusted < 0)
			continue;
		double was = l[adjusted], b = a->id == said ? (double)a->more : (double)a->b;
		found = found || a->id == said;
		l[adjusted] = (was > 0 ? was / (double)a->a : was * (double)a->a) - b;
	}
	for (int i = 0; i < d->n_out; i++)
		l[d->adjust[d->n_bias + d->n_penalties + i].id] = -INFINITY;
	for (int i = 0; i < FAKE_VOCAB && d->mask != NULL; i++)
		l[i] = (d->mask[i / 32] >> (i % 32) & 1) != 0 ? l[i] : -INFINITY;
	for (int i = FAKE_VOCAB - 1; i >= 0; i--) {
		id = l[i] >= max ? i : id;
		max = l[i] >= max ? l[i] : max;
	}
	for (int i = 0; i < FAKE_VOCAB && d->temperature > 0; i++) {
		struct race_arrival first = race_first(d->key, i / RACE_BLOCK);
		double score = race_score(race_time(d->key, &first, i), (float)((l[i] - max) / (double)d->temperature));
		if (score < best) {
			best = score;
			id = i;
		}
	}
	pthread_mutex_lock(&fake_scratch_lock);
	sampler_prompt_logprob(row, FAKE_VOCAB, id, d->n_top, &fake_scratch, &told);
	pthread_mutex_unlock(&fake_scratch_lock);
	*out = (struct kn_drawn){
	    .id = id, .logprob = d->want_logprob ? told.logprob : NAN, .n_top = d->want_logprob ? told.n_top : 0};
	for (int i = 0; i < out->n_top; i++)
		out->top[i] = (struct kn_id_logprob){(int32_t)told.top[i].id, told.top[i].v};
	for (int i = 0; i < FAKE_VOCAB; i++)
		row[i] = NAN;
	atomic_fetch_add(&fake.drawn, 1);
}

int model_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		  float *logits)
{
	return model_forward_draw(m, s, kv, want, n_want, logits, NULL);
}

/* Where a layer keeps a position: in which page, and from where on in it. */
static uint8_t *fake_at(const struct kn_step *s, const struct kn_kv *kv, int32_t seq, int pos, int layer)
{
	struct kn_place place = kv->places != NULL ? kv->places[layer] : (struct kn_place){.layer = (int16_t)layer};
	size_t page_stride = kn_kv_page_bytes(kv), layer_stride = page_stride / (size_t)kv->n_layers;
	size_t token_stride = (size_t)kv->n_kv_heads * (size_t)kv->head_dim * kn_kv_element_bytes(kv->type);
	int32_t page = kn_table_of(s, seq, place.group)[pos / kv->page_tokens];
	BUG_IF(page < 0 || page >= kv->n_pages, "fake: page %d at position %d of layer %d", page, pos, layer);
	/* A token's number lies at the beginning of its elements, whatever their type is. */
	return (uint8_t *)kv->k + (size_t)page * page_stride + (size_t)place.layer * layer_stride +
	       (size_t)(pos % kv->page_tokens) * token_stride;
}

/* Layers that remember what a text says: all, if some of them see a window only. */
static int fake_layers(const struct model *m) { return m->info.arch.window > 0 ? m->info.arch.n_layers : 1; }

/* What the recurrent layer keeps. */
struct fake_state {
	uint64_t h;
	int32_t n; /* tokens */
};

/* The states of a step's rows go on; hashes: what each row has of it. */
static void fake_recur(const struct kn_step *s, uint64_t *hashes)
{
	for (int r = 0; r < s->n_rows; r++) {
		BUG_IF(s->states == NULL || s->state_of == NULL, "fake: no states");
		float *at = s->states + (size_t)s->state_of[s->row_seq[r]] * s->state_floats;
		struct fake_state now = {.h = 7};
		BUG_IF(s->state_floats * sizeof *at < sizeof now, "fake: %zu floats", s->state_floats);
		if (s->row_pos[r] > 0)
			memcpy(&now, at, sizeof now);
		BUG_IF(now.n != s->row_pos[r], "fake: the state of %d tokens at position %d", now.n, s->row_pos[r]);
		hashes[r] = now.h = fake_mix(now.h, (uint64_t)s->row_token[r]);
		now.n++;
		memcpy(at, &now, sizeof now);
	}
}

/* What a step computes, in the order in which steps were issued. row_token may have been changed: by draws. */
static int fake_compute(struct model *m, struct fake_step *f)
{
	const struct kn_step *s = &f->s;
	const struct kn_kv *kv = &f->kv;
	pthread_mutex_lock(&fake.gate);
	pthread_mutex_unlock(&fake.gate);
	int us = atomic_load(&fake.step_us) + atomic_load(&fake.row_us) * s->n_rows;
	uint64_t *clock = atomic_load(&fake.clock);
	if (clock != NULL) {
		__atomic_fetch_add(clock, (uint64_t)us * 1000, __ATOMIC_RELAXED);
	} else if (us > 0) {
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
	if (f->n_want > atomic_load(&fake.max_want_seen))
		atomic_store(&fake.max_want_seen, f->n_want);
	for (int r = 0; r < s->n_rows && s->row_from != NULL; r++) {
		int32_t from = s->row_from[r];
		BUG_IF(from >= m->n_drawn, "fake: a row from draw %d of %d", from, m->n_drawn);
		if (from >= 0)
			((int32_t *)(uintptr_t)s->row_token)[r] = m->drawn[from] >= 0 ? m->drawn[from] : 0;
		atomic_fetch_add(&fake.n_taken, from >= 0);
	}
	for (int r = 0; r < s->n_rows; r++) {
		uint16_t v = (uint16_t)(s->row_token[r] + 1);
		for (int layer = 0; layer < fake_layers(m); layer++)
			memcpy(fake_at(s, kv, s->row_seq[r], s->row_pos[r], layer), &v, sizeof v);
	}
	uint64_t *hashes = calloc((size_t)s->n_rows, sizeof *hashes);
	BUG_IF(hashes == NULL, "fake: no memory");
	if (arch_is_recurrent(&m->info.arch))
		fake_recur(s, hashes);
	for (int w = 0; w < f->n_want; w++) {
		int r = f->want[w];
		uint64_t h = 1 + hashes[r];
		for (int layer = 0; layer < fake_layers(m); layer++) {
			int window = arch_window(&m->info.arch, layer), n = s->row_pos[r] + 1;
			for (int pos = window > 0 && n > window ? n - window : 0; pos < n; pos++) {
				uint16_t v;
				memcpy(&v, fake_at(s, kv, s->row_seq[r], pos, layer), sizeof v);
				h = fake_mix(h, v);
			}
		}
		if (m->near && fake_mix(h, 77) % 4 == 0)
			h = fake_mix(h, 78);
		float *row = f->logits + (size_t)w * FAKE_VOCAB;
		for (int i = 0; i < FAKE_VOCAB; i++) {
			bool letter = (i >= 'a' && i <= 'z') || i == ' ';
			row[i] = letter ? (float)(fake_mix(h, (uint64_t)i) % 1000) / 100.0f : -50.0f;
		}
		if (!atomic_load(&fake.end_never))
			row[FAKE_EOS] = (float)(fake_mix(h, 999) % 1050) / 100.0f;
	}
	free(hashes);
	for (int i = 0; i < f->n_draws; i++) {
		BUG_IF(!f->taken[f->draws[i].row], "fake: a row that is drawn and read");
		fake_draw(&f->draws[i], s, f->logits + (size_t)f->draws[i].row * FAKE_VOCAB, &f->drawn[i]);
		m->drawn[i] = f->drawn[i].id;
	}
	m->n_drawn = f->n_draws > 0 ? f->n_draws : m->n_drawn;
	return 0;
}

static void *fake_copy(const void *from, size_t n)
{
	void *to = malloc(n > 0 ? n : 1);
	BUG_IF(to == NULL, "fake: no memory");
	if (n > 0)
		memcpy(to, from, n);
	return to;
}

static const int32_t *fake_ints(int32_t **at, const int32_t *from, size_t n)
{
	int32_t *here = *at;
	if (from == NULL)
		return NULL;
	memcpy(here, from, n * sizeof *from);
	*at += n;
	return here;
}

static void fake_step_free(struct fake_step *f)
{
	free(f->ints);
	free(f->logits);
	free(f->draws);
	free(f->adjusts);
	free(f->masks);
	free(f->drawn);
	free(f->taken);
	free(f->copies);
	free(f);
}

static struct fake_step *fake_step_of(const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
				      float *logits, const struct model_draws *draws)
{
	struct fake_step *f =
	    fake_copy(&(struct fake_step){.s = *s, .kv = *kv, .n_want = n_want, .to = logits}, sizeof *f);
	f->s.n_groups = kv->n_groups > 0 ? kv->n_groups : 1;
	size_t rows = (size_t)s->n_rows, table = (size_t)(s->n_seqs * f->s.n_groups) * (size_t)s->max_pages;
	int32_t *at = f->ints = malloc((4 * rows + table + (size_t)n_want) * sizeof *at);
	f->logits = calloc((size_t)n_want + 1, FAKE_VOCAB * sizeof *f->logits);
	BUG_IF(f->ints == NULL || f->logits == NULL, "fake: no memory");
	f->s.row_token = fake_ints(&at, s->row_token, rows);
	f->s.row_pos = fake_ints(&at, s->row_pos, rows);
	f->s.row_seq = fake_ints(&at, s->row_seq, rows);
	f->s.row_from = fake_ints(&at, s->row_from, rows);
	f->s.page_table = fake_ints(&at, s->page_table, table);
	f->want = fake_ints(&at, want, (size_t)n_want);
	if (draws == NULL || draws->n == 0)
		return f;
	size_t n = (size_t)draws->n, n_adjusts = 0, k = 0;
	for (size_t i = 0; i < n; i++)
		n_adjusts += (size_t)(draws->draws[i].n_bias + draws->draws[i].n_penalties + draws->draws[i].n_out);
	f->n_draws = draws->n;
	f->out = draws->drawn;
	f->draws = fake_copy(draws->draws, n * sizeof *f->draws);
	f->taken = fake_copy(draws->taken, (size_t)n_want * sizeof *f->taken);
	f->adjusts = malloc((n_adjusts + 1) * sizeof *f->adjusts);
	f->drawn = malloc(n * sizeof *f->drawn);
	f->masks = malloc((n + 1) * sizeof *f->masks);
	BUG_IF(f->adjusts == NULL || f->masks == NULL || f->drawn == NULL, "fake: no memory");
	for (size_t i = 0; i < n; i++) {
		size_t each = (size_t)(f->draws[i].n_bias + f->draws[i].n_penalties + f->draws[i].n_out);
		if (each > 0)
			memcpy(f->adjusts + k, f->draws[i].adjust, each * sizeof *f->adjusts);
		f->draws[i].adjust = f->adjusts + k;
		if (f->draws[i].mask != NULL) {
			memcpy(f->masks[i], f->draws[i].mask, sizeof *f->masks);
			f->draws[i].mask = f->masks[i];
		}
		k += each;
	}
	return f;
}

bool model_ahead(const struct model *m)
{
	(void)m;
	return atomic_load(&fake.ahead) != 0;
}

static void fake_sleep(int us)
{
	struct timespec ts = {.tv_nsec = us * 1000L};
	if (us > 0)
		nanosleep(&ts, NULL);
}

static int fake_copy_now(struct kn_backend *b, const struct fake_copy *c)
{
	size_t half = kn_kv_page_bytes(&c->kv);
	uint8_t *k = c->kv.k, *v = c->kv.v, *host = c->host;
	if (c->src >= 0 && c->dst >= 0)
		return kn_ref_ops.page_copy(b, &c->kv, c->src, c->dst);
	fake_sleep(atomic_load(&fake.copy_us));
	if (c->dst < 0) {
		memcpy(host, k + (size_t)c->src * half, half);
		memcpy(host + half, v + (size_t)c->src * half, half);
	} else {
		memcpy(k + (size_t)c->dst * half, host, half);
		memcpy(v + (size_t)c->dst * half, host + half, half);
	}
	atomic_fetch_add(c->dst < 0 ? &fake.n_out : &fake.n_in, 1);
	return 0;
}

static void fake_compute_once(struct model *m, struct fake_step *f)
{
	if (f->computed)
		return;
	f->rc = m->failed ? SL_EIO : fake_compute(m, f);
	f->computed = true;
	m->failed = f->rc != 0; /* for good, as a device's fault */
	for (int i = 0; i < f->n_copies; i++)
		fake_copy_now(m->backend, &f->copies[i]);
}

static struct model *fake_model_of(const struct kn_backend *b)
{
	pthread_mutex_lock(&fake_models_lock);
	struct model *m = fake_models;
	while (m != NULL && m->backend != b)
		m = m->next;
	pthread_mutex_unlock(&fake_models_lock);
	return m;
}

/* The reference, but for copies of pages, which come after the steps that were issued before. */
static int fake_copy_later(struct kn_backend *b, const struct fake_copy *c)
{
	struct model *m = fake_model_of(b);
	struct fake_step *last = m != NULL && m->n_steps > 0 ? m->steps[m->n_steps - 1] : NULL;
	if (m != NULL && m->failed)
		return SL_EIO;
	if (last == NULL || last->computed)
		return fake_copy_now(b, c);
	if (last->n_copies == last->max_copies) {
		last->max_copies = 2 * last->max_copies + 16;
		last->copies = realloc(last->copies, (size_t)last->max_copies * sizeof *last->copies);
		BUG_IF(last->copies == NULL, "fake: no memory");
	}
	last->copies[last->n_copies++] = *c;
	return 0;
}

static int fake_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	return fake_copy_later(b, &(struct fake_copy){.kv = *kv, .src = src, .dst = dst});
}

static int fake_page_out(struct kn_backend *b, const struct kn_kv *kv, int page, void *host)
{
	return fake_copy_later(b, &(struct fake_copy){.kv = *kv, .src = page, .dst = -1, .host = host});
}

static int fake_page_in(struct kn_backend *b, const struct kn_kv *kv, const void *host, int page)
{
	return fake_copy_later(b,
			       &(struct fake_copy){.kv = *kv, .src = -1, .dst = page, .host = (void *)(uintptr_t)host});
}

static int fake_settle(struct kn_backend *b)
{
	struct model *m = fake_model_of(b);
	for (int i = 0; m != NULL && i < m->n_steps; i++)
		fake_compute_once(m, m->steps[i]);
	return m != NULL && m->failed ? SL_EIO : 0;
}

static int fake_host_alloc(struct kn_backend *b, size_t bytes, void **out)
{
	(void)b;
	*out = calloc(1, bytes);
	return *out != NULL ? 0 : SL_ENOMEM;
}

static void fake_host_free(struct kn_backend *b, void *p)
{
	(void)b;
	free(p);
}

static struct kn_ops fake_ops;
static const struct kn_ops *fake_available[2];

const struct kn_ops *const *kn_available(void) { return fake_available; }

const struct kn_ops *kn_select(const char *name, struct sl_err *err)
{
	(void)name;
	(void)err;
	return &fake_ops;
}

static __attribute__((constructor)) void fake_ops_init(void)
{
	fake_ops = kn_ref_ops;
	fake_ops.page_copy = fake_page_copy;
	fake_ops.page_out = fake_page_out;
	fake_ops.page_in = fake_page_in;
	fake_ops.settle = fake_settle;
	fake_ops.host_alloc = fake_host_alloc;
	fake_ops.host_free = fake_host_free;
	fake_available[0] = &fake_ops;
}

int model_issue(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		float *logits, const struct model_draws *draws, const struct model_pooling *pooling)
{
	(void)pooling;
	BUG_IF(m->n_steps == (model_ahead(m) ? KN_STEPS_AHEAD : 1), "fake: %d steps on their way", m->n_steps);
	struct fake_step *f = fake_step_of(s, kv, want, n_want, logits, draws);
	bool ahead = m->n_steps > 0, beside = atomic_fetch_add(&fake.n_on_way, 1) > m->n_steps;
	atomic_fetch_add(&fake.n_ahead, ahead);
	atomic_fetch_add(&fake.n_beside, beside);
	atomic_fetch_add(&fake.n_crowding, ahead && beside);
	m->steps[m->n_steps++] = f;
	if (atomic_load(&fake.ahead) != 1)
		fake_compute_once(m, f);
	if (model_ahead(m) || f->rc == 0)
		return 0;
	return model_wait(m);
}

int model_wait(struct model *m)
{
	BUG_IF(m->n_steps == 0, "fake: nothing is on its way");
	struct fake_step *f = m->steps[0];
	fake_compute_once(m, f);
	if (f->rc == 0 && f->n_draws > 0)
		memcpy(f->out, f->drawn, (size_t)f->n_draws * sizeof *f->out);
	for (int i = 0; f->rc == 0 && i < f->n_want; i++)
		if (f->taken == NULL || !f->taken[i])
			memcpy(f->to + (size_t)i * FAKE_VOCAB, f->logits + (size_t)i * FAKE_VOCAB,
			       FAKE_VOCAB * sizeof *f->to);
	int rc = f->rc;
	atomic_fetch_sub(&fake.n_on_way, 1);
	m->steps[0] = m->steps[1];
	m->n_steps--;
	fake_step_free(f);
	return rc;
}

bool model_ready(const struct model *m) { return m->n_steps == 0 || m->steps[0]->computed; }

int model_forward_draw(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want,
		       int n_want, float *logits, const struct model_draws *draws)
{
	int rc = model_issue(m, s, kv, want, n_want, logits, draws, NULL);
	return rc != 0 ? rc : model_wait(m);
}

int model_forward_pool(struct model *m, const struct kn_step *s, const struct kn_kv *kv,
		       const struct model_pooling *pooling)
{
	(void)m;
	(void)s;
	(void)kv;
	(void)pooling;
	BUG("fake: a model that pools nothing");
}

int model_forward_part(struct model *m, const struct kn_step *s, const struct kn_kv *kv, int n_layers,
		       const int32_t *want, int n_want, float *logits)
{
	(void)n_layers;
	return model_forward(m, s, kv, want, n_want, logits);
}

/* It generates only. */
unsigned model_does(const struct model_arch *a)
{
	(void)a;
	return PROTO_DOES_GENERATE;
}

int model_kv_type(const struct model_arch *a, const struct kn_ops *ops)
{
	(void)a;
	return kn_kv_type_auto(ops);
}

struct kn_kv model_kv_layout(const struct model_arch *a, int type, int page_tokens, int n_layers)
{
	return (struct kn_kv){.type = type,
			      .page_tokens = page_tokens,
			      .n_layers = n_layers,
			      .n_kv_heads = a->n_kv_heads,
			      .head_dim = a->head_dim};
}

int model_kv_rotated(const struct model_arch *a, int type, enum model_kv_rotation how, const struct kn_ops *ops)
{
	(void)a, (void)type, (void)how, (void)ops;
	return 0;
}

/* It takes no adapters. */
int model_open_adapter(const struct model *m, const char *path, struct adapter **out, struct chat_template **template,
		       uint64_t *digest, struct sl_err *err)
{
	(void)m, (void)out, (void)template, (void)digest;
	return sl_errf(err, SL_EUNSUPPORTED, "%s: a fake model takes no adapters", path);
}

void model_close_adapter(struct adapter *a) { (void)a; }

uint64_t model_adapter_size(const struct model *m, const struct adapter *a, int type)
{
	(void)m, (void)a, (void)type;
	return 0;
}

int model_pack_adapter(struct model *m, const struct adapter *a, int type, struct model_adapter **out,
		       struct sl_err *err)
{
	(void)m, (void)a, (void)type, (void)out;
	return sl_errf(err, SL_EUNSUPPORTED, "a fake model takes no adapters");
}

void model_drop_adapter(struct model *m, struct model_adapter *a) { (void)m, (void)a; }

int model_put_adapter(struct model *m, struct model_adapter *a, int *slot, struct sl_err *err)
{
	(void)m, (void)a, (void)slot;
	return sl_errf(err, SL_EUNSUPPORTED, "a fake model takes no adapters");
}

void model_remove_adapter(struct model *m, int slot) { (void)m, (void)slot; }

int model_pooled_width(const struct model *m)
{
	(void)m;
	return 0;
}

int model_set_pooling(struct model_arch *a, const char *name, struct sl_err *err)
{
	(void)a, (void)name, (void)err;
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const uint8_t *trust, struct tok_ids *out)
{
	(void)t;
	(void)trust;
	pthread_mutex_lock(&fake.text_gate);
	pthread_mutex_unlock(&fake.text_gate);
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

int tokenizer_encode_input(const struct tokenizer *t, const struct proto_str *texts, int n_texts, struct tok_ids *out,
			   size_t *n_first)
{
	int rc = 0;
	for (int i = 0; i < n_texts && rc == 0; i++) {
		rc = tokenizer_encode(t, texts[i].at, texts[i].n, NULL, out);
		*n_first = i == 0 ? out->n : *n_first;
	}
	return rc;
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
