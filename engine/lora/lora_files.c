/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's thread: one ask after the other, a version that is to come into memory before them, and between them a
 * look at the watched folders.
 */
#include "engine/lora/lora_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cond.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

/* ---- versions from files ---- */

static int check_size(const struct lora *l, const struct lora_version *v, struct sl_err *err)
{
	if (v->bytes <= l->cfg.memory)
		return 0;
	return sl_errf(err, SL_ELIMIT, "%s: it takes %llu bytes, more than the %llu of engine.adapter_memory", v->path,
		       (unsigned long long)v->bytes, (unsigned long long)l->cfg.memory);
}

int lora_inspect(struct lora *l, int model, const char *path, struct lora_version **out, struct sl_err *err)
{
	struct model *m = lora_model(l, model);
	struct adapter *a;
	struct lora_version *v = sl_zalloc(sizeof *v);
	if (v == NULL || (v->path = sl_strdup(path)) == NULL) {
		sl_free(v);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	list_init(&v->in_all);
	v->entry = v->slot = -1;
	v->model = model;
	v->type = l->cfg.type;
	v->state = RESIDENCY_ABSENT;
	int rc = model_open_adapter(m, path, &a, &v->template, &v->digest, err);
	if (rc == 0) {
		v->bytes = model_adapter_size(m, a, v->type);
		model_close_adapter(a);
		rc = check_size(l, v, err);
	}
	if (rc == 0 && v->template != NULL)
		text_form_make(model_tokenizer(m), v->template, &v->form);
	if (rc != 0)
		lora_version_free(l, v);
	else
		*out = v;
	return rc;
}

/* Reads v's files again, into memory. */
static int pack(struct lora *l, struct lora_version *v)
{
	struct model *m = lora_model(l, v->model);
	struct adapter *a;
	struct chat_template *template;
	uint64_t digest;
	int rc = model_open_adapter(m, v->path, &a, &template, &digest, &v->err);
	if (rc != 0)
		return rc;
	chat_template_free(template);
	if (digest != v->digest)
		rc = sl_errf(&v->err, SL_EINVAL, "%s: it has changed since it was loaded: load it again", v->path);
	else
		rc = model_pack_adapter(m, a, v->type, &v->packed, &v->err);
	model_close_adapter(a);
	return rc;
}

/* ---- entries ---- */

static bool same_version(const struct lora_entry *e, const struct lora_version *v)
{
	return e->current != NULL && e->current->digest == v->digest && e->current->model == v->model;
}

/* A name that is not served gets the reason. */
static void set_failed(struct lora_entry *e, const struct sl_err *err)
{
	if (e->current != NULL)
		return;
	e->state = LORA_FAILED;
	snprintf(e->reason, sizeof e->reason, "%s", err->text);
}

int lora_renew(struct lora *l, int entry, const char *path, struct sl_err *err)
{
	struct lora_entry *e = &l->entries[entry];
	struct lora_version *v = NULL;
	uint64_t begin = clock_now_ns();
	char *kept = sl_strdup(path);
	int rc =
	    kept != NULL ? lora_inspect(l, e->model, path, &v, err) : sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	unsigned long long kib = rc == 0 ? (unsigned long long)v->bytes >> 10 : 0;
	pthread_mutex_lock(&l->lock);
	bool again = rc == 0 && same_version(e, v) && strcmp(e->current->path, path) == 0;
	if (rc != 0) {
		set_failed(e, err);
	} else {
		char *before = e->path;
		e->path = kept;
		kept = before;
		e->state = LORA_READY;
		e->reason[0] = '\0';
		if (!again)
			lora_set_current(l, entry, v);
	}
	pthread_mutex_unlock(&l->lock);
	sl_free(kept);
	if (rc != 0)
		log_error("adapter %s failed: %s", e->name, err->text);
	else
		log_info("adapter %s: %s in %llu ms, %llu KiB", e->name, again ? "unchanged" : "loaded",
			 (unsigned long long)((clock_now_ns() - begin) / NS_PER_MS), kib);
	if (again)
		lora_version_free(l, v);
	l->cfg.changed(l->cfg.ctx, entry);
	return rc;
}

void lora_drop(struct lora *l, int entry)
{
	struct lora_entry *e = &l->entries[entry];
	pthread_mutex_lock(&l->lock);
	lora_set_current(l, entry, NULL);
	e->state = LORA_FREE;
	e->folder = -1;
	e->freed_ns = e->served ? clock_now_ns() : 0;
	e->served = false;
	pthread_mutex_unlock(&l->lock);
	log_info("adapter %s: unloaded", e->name);
	l->cfg.changed(l->cfg.ctx, entry);
}

static void forget_model(struct lora *l, int model)
{
	pthread_mutex_lock(&l->lock);
	for (int i = 0; i < l->n_entries; i++)
		if (l->entries[i].model == model && l->entries[i].current != NULL)
			lora_set_current(l, i, NULL);
	list_each_safe(it, tmp, &l->versions) {
		struct lora_version *v = list_entry(it, struct lora_version, in_all);
		if (v->model != model)
			continue;
		BUG_IF(v->slot >= 0 || atomic_load(&v->refs) != 0, "a model without READY had an adapter in use");
		list_remove(it);
		lora_version_free(l, v);
	}
	pthread_mutex_unlock(&l->lock);
}

void lora_set_model(struct lora *l, int i, struct model *m)
{
	struct sl_err err;
	if (m == NULL && lora_model(l, i) != NULL)
		forget_model(l, i);
	pthread_mutex_lock(&l->lock);
	l->models[i] = m;
	int n = m != NULL ? l->n_entries : 0;
	pthread_mutex_unlock(&l->lock);
	for (int k = 0; k < n; k++)
		if (l->entries[k].state == LORA_LOADING && l->entries[k].model == i && l->entries[k].path != NULL)
			(void)lora_renew(l, k, l->entries[k].path, &err);
}

/* ---- asks ---- */

static uint8_t refuse(struct sl_err *err, uint8_t error, const char *format, const char *what)
{
	sl_errf(err, SL_EINVAL, format, what);
	return error;
}

/* BASE:NAME, of a name that may say BASE itself. */
static bool full_name(const struct lora_folder_state *f, const char *name, char out[PROTO_MAX_NAME + 1])
{
	size_t n = strlen(f->base);
	if (strncmp(name, f->base, n) == 0 && name[n] == ':')
		name += n + 1;
	int all = snprintf(out, PROTO_MAX_NAME + 1, "%s:%s", f->base, name);
	return lora_name_ok(name) && all > 0 && all <= PROTO_MAX_NAME;
}

static uint8_t load(struct lora *l, const struct lora_ask *ask, struct sl_err *err)
{
	char path[PROTO_MAX_PATH + 1], name[PROTO_MAX_NAME + 1];
	int folder, entry;
	int rc = lora_path(l, ask->path, &folder, path, sizeof path, err);
	if (rc != 0)
		return rc == SL_ENOTFOUND      ? PROTO_ERR_NO_MODEL
		       : rc == SL_EUNSUPPORTED ? PROTO_ERR_NO_FOLDER
					       : PROTO_ERR_BAD_REQUEST;
	const struct lora_folder_state *f = &l->folders[folder];
	if (!full_name(f, ask->name, name))
		return refuse(
		    err, PROTO_ERR_BAD_ADAPTER_NAME,
		    "lora_name has letters, digits and . _ / -, and with its model's name%s at most 128 bytes", "");
	if (lora_model(l, f->model) == NULL)
		return refuse(err, PROTO_ERR_NOT_READY, "The model %s is not loaded.", f->base);
	pthread_mutex_lock(&l->lock);
	rc = lora_entry_for(l, name, clock_now_ns(), &entry);
	bool fresh = rc == 0 && l->entries[entry].state == LORA_FREE;
	if (fresh) {
		l->entries[entry].model = f->model;
		l->entries[entry].folder = -1;
	}
	bool loading = rc == 0 && l->entries[entry].state == LORA_LOADING;
	pthread_mutex_unlock(&l->lock);
	if (loading)
		return refuse(err, PROTO_ERR_NOT_READY, "%s is being loaded.", name);
	if (rc != 0)
		return refuse(err, PROTO_ERR_OVERLOADED,
			      "There are as many adapters as an engine has names for, or were in the last hour%s.", "");
	if (l->entries[entry].model != f->model)
		return refuse(err, PROTO_ERR_BAD_REQUEST, "%s is an adapter of another model.", name);
	rc = lora_check_inside(l, folder, path, err);
	if (rc == 0)
		rc = lora_renew(l, entry, path, err);
	if (rc != 0 && fresh)
		lora_drop(l, entry); /* a name that never served is not listed */
	return rc == 0 ? 0 : rc == SL_ENOMEM ? PROTO_ERR_OVERLOADED : PROTO_ERR_BAD_REQUEST;
}

/* By its whole name, or by NAME if no other adapter has it. *loading: it is being loaded. */
static int find_served(struct lora *l, const char *name, bool *loading)
{
	int found = -1, n = 0;
	pthread_mutex_lock(&l->lock);
	for (int i = 0; i < l->n_entries; i++) {
		const struct lora_entry *e = &l->entries[i];
		const char *own = strrchr(e->name, ':');
		if (e->state == LORA_FREE)
			continue;
		if (strcmp(e->name, name) == 0) {
			found = i;
			n = 1;
			break;
		}
		if (own != NULL && strcmp(own + 1, name) == 0) {
			found = i;
			n++;
		}
	}
	*loading = n == 1 && l->entries[found].state == LORA_LOADING;
	pthread_mutex_unlock(&l->lock);
	return n == 1 ? found : -1;
}

static uint8_t unload(struct lora *l, const struct lora_ask *ask, struct sl_err *err)
{
	bool loading;
	int entry = find_served(l, ask->name, &loading);
	if (entry < 0)
		return refuse(err, PROTO_ERR_NO_MODEL, "There is no adapter '%s'.", ask->name);
	if (loading)
		return refuse(err, PROTO_ERR_NOT_READY, "%s is being loaded.", ask->name);
	lora_drop(l, entry);
	return 0;
}

int lora_ask(struct lora *l, uint64_t id, const struct proto_adapter *ask)
{
	int rc = SL_ELIMIT;
	pthread_mutex_lock(&l->job_lock);
	if (l->n_asks < LORA_ASKS && !l->closed) {
		struct lora_ask *a = &l->asks[(l->first_ask + l->n_asks++) % LORA_ASKS];
		*a = (struct lora_ask){.id = id, .load = ask->load};
		memcpy(a->name, ask->name.at, ask->name.n);
		memcpy(a->path, ask->path.at, ask->path.n);
		pthread_cond_broadcast(&l->changed);
		rc = 0;
	}
	pthread_mutex_unlock(&l->job_lock);
	return rc;
}

static void answer(struct lora *l, const struct lora_ask *ask)
{
	struct sl_err err = {0};
	uint8_t error = ask->load ? load(l, ask, &err) : unload(l, ask, &err);
	l->cfg.answered(l->cfg.ctx, ask->id, error, error != 0 ? err.text : "");
}

/* ---- the thread ---- */

void lora_bring(struct lora *l, struct lora_version *v)
{
	atomic_store(&v->job, LORA_JOB_ASKED);
	pthread_mutex_lock(&l->job_lock);
	BUG_IF(l->bring != NULL, "a second adapter comes into memory");
	l->bring = v;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->job_lock);
}

static void bring(struct lora *l, struct lora_version *v)
{
	int rc = pack(l, v);
	if (rc != 0)
		log_error("adapter %s: %s", l->entries[v->entry].name, v->err.text);
	atomic_store(&v->job, rc == 0 ? LORA_JOB_DONE : LORA_JOB_FAILED);
	l->cfg.wake(l->cfg.ctx);
}

/* With job_lock held: until something is to do, or a look at folders is due. */
static void wait_for_work(struct lora *l, bool watches)
{
	struct timespec at;
	if (!watches) {
		cond_wait(&l->changed, &l->job_lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &at);
	uint64_t ns = (uint64_t)at.tv_nsec + l->cfg.watch_ms * (uint64_t)NS_PER_MS;
	at.tv_sec += (time_t)(ns / NS_PER_S);
	at.tv_nsec = (long)(ns % NS_PER_S);
	(void)pthread_cond_timedwait(&l->changed, &l->job_lock, &at);
}

static bool watches(const struct lora *l)
{
	for (int i = 0; i < l->n_folders; i++)
		if (l->folders[i].watched)
			return true;
	return false;
}

/* With job_lock held, which is given up while it works. False: there was nothing to do. */
static bool work(struct lora *l)
{
	struct lora_version *v = l->bring;
	struct lora_ask ask;
	if (v == NULL && l->n_asks == 0)
		return false;
	l->bring = NULL;
	if (v == NULL) {
		ask = l->asks[l->first_ask];
		l->first_ask = (l->first_ask + 1) % LORA_ASKS;
		l->n_asks--;
	}
	pthread_mutex_unlock(&l->job_lock);
	if (v != NULL)
		bring(l, v);
	else
		answer(l, &ask);
	pthread_mutex_lock(&l->job_lock);
	return true;
}

static void *run(void *ctx)
{
	struct lora *l = ctx;
	bool looks = watches(l);
	uint64_t looked = 0;
	pthread_mutex_lock(&l->job_lock);
	while (!l->closed) {
		uint64_t now = clock_now_ns();
		if (looks && now - looked >= l->cfg.watch_ms * (uint64_t)NS_PER_MS) {
			looked = now;
			pthread_mutex_unlock(&l->job_lock);
			lora_watch(l);
			pthread_mutex_lock(&l->job_lock);
		}
		if (!l->closed && !work(l) && !l->closed)
			wait_for_work(l, looks);
	}
	/* Each ask has its answer. */
	for (; l->n_asks > 0; l->n_asks--, l->first_ask = (l->first_ask + 1) % LORA_ASKS)
		l->cfg.answered(l->cfg.ctx, l->asks[l->first_ask].id, PROTO_ERR_NOT_READY,
				"The engine is shutting down.");
	pthread_mutex_unlock(&l->job_lock);
	return NULL;
}

int lora_start(struct lora *l)
{
	l->running = pthread_create(&l->thread, NULL, run, l) == 0;
	return l->running ? 0 : SL_EIO;
}

void lora_stop(struct lora *l)
{
	pthread_mutex_lock(&l->job_lock);
	l->closed = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->job_lock);
	if (l->running)
		pthread_join(l->thread, NULL);
	l->running = false;
}
