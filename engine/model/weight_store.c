/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that was changed a moment ago is stamped SETTLED_MS after the change: a file system's times are as coarse as
 * a tick of its clock, so a change right after the stamp was taken could leave the stamp as it is. Without a file of
 * its weights, a model on demand could never leave memory.
 */
#include "engine/model/weight_store.h"

#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/source/model_stamp.h"
#include "engine/model/weight_write.h"

enum { SETTLED_MS = 100 };

struct weight_store {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	const struct model_file *file;
	const struct weight_cache_config *cfg; /* NULL: nothing is kept */
	struct convert_progress *progress;
	struct weight_cache_key key;
	struct weight_cache cache; /* mapped: weights are taken from it */
	uint64_t next;             /* entry of it */
	bool writes;
	struct weight_piece *pieces; /* to be written */
	size_t n, cap;
	struct weight_writer *writer;
	struct residence where;
};

/* Waits until the change is SETTLED_MS old. False: it lies in the future, by this machine's clock. */
static bool settle(const struct model_stamp *stamp)
{
	const uint64_t settled = SETTLED_MS * (uint64_t)NS_PER_MS;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t ns = (uint64_t)now.tv_sec * (uint64_t)NS_PER_S + (uint64_t)now.tv_nsec;
	if (ns < stamp->changed_ns)
		return false;
	uint64_t age = ns - stamp->changed_ns;
	if (age <= settled)
		nanosleep(&(struct timespec){.tv_nsec = (long)(settled - age + NS_PER_MS)}, NULL);
	return true;
}

static bool make_key(struct weight_store *s, struct model_stamp *stamp)
{
	const char *path = model_file_path(s->file), *layout = s->ops->made_layout;
	if (model_file_is_random(s->file) || layout == NULL || s->ops->weight_made == NULL ||
	    s->ops->weight_adopt == NULL || !model_stamp_of(s->file, stamp))
		return false;
	uint64_t of_layout = XXH3_64bits(layout, strlen(layout));
	XXH128_hash_t h = XXH3_128bits_withSeed(stamp->digest, sizeof stamp->digest, of_layout);
	s->key = (struct weight_cache_key){.source = XXH3_64bits_withSeed(path, strlen(path), of_layout),
					   .digest = {h.high64, h.low64}};
	return true;
}

int weight_store_open(const struct kn_ops *ops, struct kn_backend *b, const struct model_file *f,
		      const struct weight_cache_config *cache, struct convert_progress *progress,
		      struct weight_store **out, struct sl_err *err)
{
	struct model_stamp stamp;
	struct sl_err why = {0};
	struct weight_store *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(f));
	*s = (struct weight_store){.ops = ops, .backend = b, .file = f, .progress = progress};
	*out = s;
	if (cache == NULL || !make_key(s, &stamp))
		return 0;
	s->cfg = cache;
	int rc = weight_cache_open(cache, &s->key, progress, &s->cache, &why);
	if (rc != 0 && rc != SL_ENOTFOUND)
		log_warn("%s: its kept weights can't be used: %s", model_file_path(f), why.text);
	s->writes = rc != 0 && settle(&stamp) && make_key(s, &stamp);
	return 0;
}

/* The next matrix in the file if it is the one that is asked for. */
static const struct weight_cache_entry *next_kept(struct weight_store *s, const struct weight_cache_entry *want)
{
	if (s->cache.head == NULL || s->next >= s->cache.head->n_entries)
		return NULL;
	const struct weight_cache_entry *e = &s->cache.entries[s->next];
	bool same = e->name == want->name && e->type == want->type && e->first_row == want->first_row &&
		    e->n_out == want->n_out && e->n_in == want->n_in;
	return same ? e : NULL;
}

/* Notes w for the file that is to be written. Without memory there will be none. */
static void note(struct weight_store *s, const struct kn_weight *w, const struct weight_cache_entry *what)
{
	size_t bytes = 0;
	const void *at = s->ops->weight_made(s->backend, w, &bytes);
	if (at == NULL)
		return;
	if (s->n == s->cap) {
		size_t cap = s->cap == 0 ? 256 : 2 * s->cap;
		struct weight_piece *grown =
		    cap <= WEIGHT_CACHE_MAX_ENTRIES ? sl_realloc_n(s->pieces, cap, sizeof *grown) : NULL;
		s->writes = grown != NULL;
		if (grown == NULL)
			return;
		s->pieces = grown;
		s->cap = cap;
	}
	s->pieces[s->n] = (struct weight_piece){.entry = *what, .at = at};
	s->pieces[s->n++].entry.bytes = bytes;
}

/* Matrices that are in no file: rows of the one from first_row on, or all of several. Rows from another one on are
 * other numbers than those a file would have, which measurements don't mind. */
static int make(struct weight_store *s, const struct model_tensor *const *t, int first_row, const int *n_outs, int n,
		int n_in, struct kn_weight *out, struct sl_err *err)
{
	struct kn_noise noise[WEIGHT_STORE_JOINED] = {0};
	if (s->ops->weight_random == NULL)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: the backend %s makes no weights at random; `sluice model random` writes "
			       "a file of them",
			       model_file_path(s->file), s->ops->name);
	for (int i = 0; i < n; i++)
		noise[i] = t[i]->noise;
	noise[0].seed += (uint64_t)first_row * 0x9E3779B97F4A7C15u;
	return s->ops->weight_random(s->backend, noise, n_outs, n, t[0]->type, n_in, out, err);
}

int weight_store_load(struct weight_store *s, const struct model_tensor *t, int first_row, int n_out, int n_in,
		      struct kn_weight *out, struct sl_err *err)
{
	if (t->noise.spread > 0)
		return make(s, &t, first_row, &n_out, 1, n_in, out, err);
	size_t row = kn_row_bytes(t->type, (size_t)n_in);
	const struct weight_cache_entry want = {.name = XXH3_64bits(t->name, strlen(t->name)),
						.type = t->type,
						.first_row = first_row,
						.n_out = n_out,
						.n_in = n_in};
	const struct weight_cache_entry *e = next_kept(s, &want);
	if (e != NULL) {
		s->next++;
		int rc =
		    s->ops->weight_adopt(s->backend, s->cache.data + e->at, e->bytes, t->type, n_out, n_in, out, err);
		if (rc == 0)
			residence_add(&s->where, s->cache.data + e->at, e->bytes, true);
		if (rc != SL_EINVAL && rc != SL_EUNSUPPORTED)
			return rc;
	}
	const uint8_t *host = (const uint8_t *)t->data + (size_t)first_row * row;
	int rc = s->ops->weight_load(s->backend, host, t->type, n_out, n_in, out, err);
	if (rc == 0)
		residence_add(&s->where, host, (size_t)n_out * row, out->data == host);
	convert_advance(s->progress, (size_t)n_out * row);
	if (rc == 0 && s->writes)
		note(s, out, &want);
	return rc;
}

int weight_store_load_joined(struct weight_store *s, const struct model_tensor *const *t, int n, struct kn_weight *out,
			     struct sl_err *err)
{
	const void *host[WEIGHT_STORE_JOINED] = {0};
	int n_outs[WEIGHT_STORE_JOINED] = {0}, n_in = (int)t[0]->dims[0];
	BUG_IF(n < 1 || n > WEIGHT_STORE_JOINED || s->ops->weight_made != NULL, "%d matrices joined", n);
	for (int i = 0; i < n; i++) {
		host[i] = t[i]->data;
		n_outs[i] = (int)t[i]->dims[1];
	}
	int rc = t[0]->noise.spread > 0
		     ? make(s, t, 0, n_outs, n, n_in, out, err)
		     : s->ops->weight_load_joined(s->backend, host, n_outs, n, t[0]->type, n_in, out, err);
	for (int i = 0; i < n && rc == 0; i++)
		convert_advance(s->progress, t[i]->bytes);
	return rc;
}

int weight_store_load_all(struct weight_store *s, const struct model_tensor *t, int n, int n_out, int n_in,
			  struct kn_weight *out, struct sl_err *err)
{
	const bool random = t->noise.spread > 0;
	BUG_IF(s->ops->weight_made != NULL, "%d matrices at once", n);
	int rc = s->ops->weights_load(s->backend, random ? NULL : t->data, random ? &t->noise : NULL, n, t->type, n_out,
				      n_in, out, err);
	if (rc == 0)
		convert_advance(s->progress, t->bytes);
	return rc;
}

void weight_store_loaded(struct weight_store *s)
{
	s->progress = NULL;
	if (!s->writes || s->n == 0)
		return;
	struct weight_piece *pieces = s->pieces;
	s->pieces = NULL;
	s->writes = false;
	if (weight_write_start(s->cfg, &s->key, pieces, s->n, model_file_path(s->file), &s->writer) != 0)
		log_warn("%s: no thread to keep its weights", model_file_path(s->file));
}

const struct residence *weight_store_residence(const struct weight_store *s) { return &s->where; }

bool weight_store_finish(struct weight_store *s)
{
	bool there = s->writer != NULL && weight_write_end(s->writer, false);
	s->writer = NULL;
	return there;
}

bool weight_store_was_kept(const struct weight_store *s) { return s->next > 0; }

void weight_store_close(struct weight_store *s)
{
	if (s == NULL)
		return;
	if (s->writer != NULL)
		weight_write_end(s->writer, true);
	weight_cache_close(&s->cache);
	residence_dispose(&s->where);
	sl_free(s->pieces);
	sl_free(s);
}
