/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/lora/lora_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

/* ---- versions ---- */

void lora_ref(struct lora_version *v) { atomic_fetch_add(&v->refs, 1); }

void lora_leave(struct lora_version *v)
{
	unsigned before = atomic_fetch_sub(&v->refs, 1);
	BUG_IF(before == 0, "a version of an adapter that nobody refers to");
}

void lora_version_free(struct lora *l, struct lora_version *v)
{
	if (v == NULL)
		return;
	BUG_IF(v->slot >= 0, "a version of an adapter that is in a slot");
	if (v->packed != NULL)
		model_drop_adapter(l->models[v->model], v->packed);
	chat_template_free(v->template);
	sl_free(v->path);
	sl_free(v);
}

/* ---- entries ---- */

struct model *lora_model(struct lora *l, int i)
{
	pthread_mutex_lock(&l->lock);
	struct model *m = l->models[i];
	pthread_mutex_unlock(&l->lock);
	return m;
}

int lora_find(const struct lora *l, const char *name)
{
	for (int i = 0; i < l->n_entries; i++)
		if (strcmp(l->entries[i].name, name) == 0)
			return i;
	return -1;
}

/* The number that has rested longest; -1: none has rested enough. */
static int rested(const struct lora *l, uint64_t now)
{
	int best = -1;
	for (int i = 0; i < l->n_entries; i++) {
		const struct lora_entry *e = &l->entries[i];
		if (e->state == LORA_FREE &&
		    (e->freed_ns == 0 || now - e->freed_ns >= LORA_REST_MS * (uint64_t)NS_PER_MS) &&
		    (best < 0 || e->freed_ns < l->entries[best].freed_ns))
			best = i;
	}
	return best;
}

int lora_entry_for(struct lora *l, const char *name, uint64_t now_ns, int *out)
{
	int i = lora_find(l, name);
	if (i < 0 && l->cfg.first + l->n_entries < LORA_ENTRIES)
		i = l->n_entries++;
	else if (i < 0)
		i = rested(l, now_ns);
	if (i < 0)
		return SL_ELIMIT;
	struct lora_entry *e = &l->entries[i];
	if (strcmp(e->name, name) != 0) {
		sl_free(e->path);
		*e = (struct lora_entry){.folder = -1, .epoch = e->epoch + 1};
		memcpy(e->name, name, strlen(name) + 1);
	}
	*out = i;
	return 0;
}

void lora_set_current(struct lora *l, int entry, struct lora_version *v)
{
	struct lora_entry *e = &l->entries[entry];
	if (e->current != NULL)
		e->current->current = false;
	e->current = v;
	if (v == NULL)
		return;
	v->current = true;
	v->entry = entry;
	v->epoch = e->epoch;
	e->served = true;
	list_push_back(&l->versions, &v->in_all);
}

int lora_n(struct lora *l)
{
	pthread_mutex_lock(&l->lock);
	int n = l->n_entries;
	pthread_mutex_unlock(&l->lock);
	return n;
}

void lora_get(struct lora *l, int entry, struct lora_info *out)
{
	pthread_mutex_lock(&l->lock);
	const struct lora_entry *e = &l->entries[entry];
	const struct lora_version *v = e->current;
	*out = (struct lora_info){
	    .state = entry < l->n_entries ? e->state : LORA_FREE, .model = e->model, .serves = v != NULL};
	if (v != NULL && v->template != NULL) {
		out->own_form = true;
		out->form = v->form;
	}
	memcpy(out->name, e->name, sizeof out->name);
	memcpy(out->reason, e->reason, sizeof out->reason);
	pthread_mutex_unlock(&l->lock);
}

struct lora_version *lora_take(struct lora *l, int entry)
{
	struct lora_version *v = NULL;
	pthread_mutex_lock(&l->lock);
	if (entry < l->n_entries && (v = l->entries[entry].current) != NULL)
		lora_ref(v);
	pthread_mutex_unlock(&l->lock);
	return v;
}

int lora_add(struct lora *l, const char *name, const char *path, int model, struct sl_err *err)
{
	int i;
	if (lora_find(l, name) >= 0)
		return sl_errf(err, SL_EINVAL, "two models are named %s", name);
	if (lora_entry_for(l, name, 0, &i) != 0)
		return sl_errf(err, SL_EINVAL, "an engine has at most %d models and adapters", PROTO_MAX_MODELS);
	struct lora_entry *e = &l->entries[i];
	e->state = LORA_LOADING;
	e->model = model;
	e->path = sl_strdup(path);
	return e->path != NULL ? 0 : SL_ENOMEM;
}

/* ---- life ---- */

static int copy_folders(struct lora *l, const struct lora_config *cfg)
{
	l->folders = sl_zalloc_n((size_t)cfg->n_folders + 1, sizeof *l->folders);
	for (int i = 0; i < cfg->n_folders && l->folders != NULL; i++) {
		const struct lora_folder *f = &cfg->folders[i];
		struct lora_folder_state *to = &l->folders[l->n_folders++];
		*to = (struct lora_folder_state){
		    .path = sl_strdup(f->path), .base = sl_strdup(f->base), .model = f->model, .watched = f->watched};
		if (to->path == NULL || to->base == NULL)
			return SL_ENOMEM;
	}
	return l->folders != NULL ? 0 : SL_ENOMEM;
}

int lora_create(const struct lora_config *cfg, struct lora **out, struct sl_err *err)
{
	if (cfg->slots < 1 || cfg->slots > MODEL_MAX_ADAPTERS)
		return sl_errf(err, SL_EINVAL, "an engine has 1 to %d slots for adapters", MODEL_MAX_ADAPTERS);
	struct lora *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return SL_ENOMEM;
	l->cfg = *cfg;
	l->cfg.folders = NULL;
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->job_lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	list_init(&l->versions);
	l->residency.cfg = (struct residency_config){
	    .bound = cfg->memory, .places = (unsigned)cfg->slots, .turn_ns = cfg->turn_ns > 0 ? cfg->turn_ns : 1};
	if (copy_folders(l, cfg) != 0) {
		lora_destroy(l);
		return SL_ENOMEM;
	}
	*out = l;
	return 0;
}

void lora_destroy(struct lora *l)
{
	if (l == NULL)
		return;
	lora_stop(l);
	list_each_safe(it, tmp, &l->versions) {
		struct lora_version *v = list_entry(it, struct lora_version, in_all);
		BUG_IF(atomic_load(&v->refs) != 0, "a request still has an adapter");
		if (v->slot >= 0)
			model_remove_adapter(l->models[v->model], v->slot);
		v->slot = -1;
		list_remove(it);
		lora_version_free(l, v);
	}
	for (int i = 0; i < l->n_entries; i++)
		sl_free(l->entries[i].path);
	for (int i = 0; i < l->n_folders; i++) {
		sl_free(l->folders[i].path);
		sl_free(l->folders[i].base);
		sl_free(l->folders[i].real);
	}
	sl_free(l->folders);
	sl_free(l->looks);
	sl_free(l->of_looks);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->job_lock);
	pthread_mutex_destroy(&l->lock);
	sl_free(l);
}
