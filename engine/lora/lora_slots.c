/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in memory. The step thread alone changes it, between steps.
 */
#include "engine/lora/lora_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

bool lora_may_run(const struct lora_version *v, bool begun)
{
	return v->state == RESIDENCY_HERE || (v->state == RESIDENCY_LEAVING && begun);
}

void lora_see(struct lora *l, struct lora_version *v, bool begun, uint64_t tenant, uint64_t since_ns, uint64_t now_ns)
{
	struct residency_model *m = &v->look;
	m->begun = m->begun || begun;
	m->busy = m->busy || begun || v->state == RESIDENCY_HERE;
	v->used_ns = now_ns;
	if (v->state != RESIDENCY_ABSENT || v->broken)
		return;
	if (m->wished && residency_rank(&l->residency, m->tenant, m->since_ns, now_ns) <=
			     residency_rank(&l->residency, tenant, since_ns, now_ns))
		return;
	m->wished = true;
	m->tenant = tenant;
	m->since_ns = since_ns;
}

bool lora_is_broken(struct lora *l, const struct lora_version *v, struct lora_version **to)
{
	if (!v->broken)
		return false;
	*to = lora_take(l, v->entry);
	if (*to != NULL && ((*to)->epoch != v->epoch || (*to)->broken)) {
		lora_leave(*to);
		*to = NULL;
	}
	return true;
}

/* ---- one version ---- */

static void take_out(struct lora *l, struct lora_version *v)
{
	model_remove_adapter(l->models[v->model], v->slot);
	v->slot = -1;
	v->state = RESIDENCY_ABSENT;
	l->counts.drops++;
}

/* It can't be read: those that wait for it are told, and new ones are refused until it is loaded again. */
static void break_it(struct lora *l, struct lora_version *v)
{
	bool current;
	v->broken = true;
	v->state = RESIDENCY_ABSENT;
	pthread_mutex_lock(&l->lock);
	struct lora_entry *e = &l->entries[v->entry];
	current = e->current == v;
	if (current) {
		lora_set_current(l, v->entry, NULL);
		e->state = LORA_FAILED;
		e->print = 0; /* a watched folder's is looked at again */
		memcpy(e->reason, v->err.text, strnlen(v->err.text, sizeof e->reason - 1) + 1);
		e->reason[sizeof e->reason - 1] = '\0';
	}
	pthread_mutex_unlock(&l->lock);
	if (current)
		l->cfg.changed(l->cfg.ctx, v->entry);
}

/* What comes may be there. */
static void arrived(struct lora *l, uint64_t now)
{
	struct lora_version *v = l->coming;
	if (v == NULL)
		return;
	int job = atomic_load(&v->job), rc = job == LORA_JOB_DONE ? 0 : SL_EIO;
	if (job != LORA_JOB_DONE && job != LORA_JOB_FAILED)
		return;
	l->coming = NULL;
	atomic_store(&v->job, LORA_JOB_NONE);
	if (rc == 0)
		rc = model_put_adapter(l->models[v->model], v->packed, &v->slot, &v->err);
	if (rc != 0) {
		break_it(l, v);
		return;
	}
	v->packed = NULL;
	v->state = RESIDENCY_HERE;
	v->here_ns = v->used_ns = now;
	l->counts.loads++;
	log_debug("adapter %s: in slot %d after %llu us", v->path, v->slot,
		  (unsigned long long)(now - v->asked_ns) / 1000);
}

/* ---- all of them ---- */

static bool make_room(struct lora *l, size_t n)
{
	if (n <= l->room)
		return true;
	size_t room = n + 16;
	struct residency_model *looks = sl_realloc_n(l->looks, room, sizeof *looks);
	if (looks != NULL)
		l->looks = looks;
	struct lora_version **of = looks != NULL ? sl_realloc_n(l->of_looks, room, sizeof(void *)) : NULL;
	if (of == NULL)
		return false;
	l->of_looks = of;
	l->room = room;
	return true;
}

/* With the lock held: what nobody refers to any more goes. */
static void collect(struct lora *l)
{
	list_each_safe(it, tmp, &l->versions) {
		struct lora_version *v = list_entry(it, struct lora_version, in_all);
		if (v->current || atomic_load(&v->refs) > 0 || atomic_load(&v->job) != LORA_JOB_NONE)
			continue;
		if (v->slot >= 0)
			take_out(l, v);
		list_remove(it);
		lora_version_free(l, v);
	}
}

static size_t look_at_all(struct lora *l)
{
	size_t n = 0;
	l->counts.here = l->counts.versions = 0;
	l->counts.bytes = 0;
	list_each(it, &l->versions) {
		struct lora_version *v = list_entry(it, struct lora_version, in_all);
		bool in_memory = v->state != RESIDENCY_ABSENT;
		l->counts.versions++;
		l->counts.here += in_memory;
		l->counts.bytes += in_memory ? v->bytes : 0;
		if ((!in_memory && !v->look.wished) || !make_room(l, n + 1)) {
			v->look = (struct residency_model){0};
			continue;
		}
		struct residency_model *m = &l->looks[n];
		*m = v->look;
		m->on_demand = true;
		m->state = v->state;
		m->bytes = v->bytes;
		m->expires_ns = UINT64_MAX;
		m->here_ns = v->here_ns;
		m->used_ns = v->used_ns;
		l->of_looks[n++] = v;
		v->look = (struct residency_model){0};
	}
	return n;
}

static void carry_out(struct lora *l, struct residency_move move, uint64_t now)
{
	if (move.act == RESIDENCY_NOTHING)
		return;
	struct lora_version *v = l->of_looks[move.model];
	switch (move.act) {
	case RESIDENCY_BRING:
		residency_charge(&l->residency, l->looks[move.model].tenant, now);
		v->state = RESIDENCY_COMING;
		v->asked_ns = now;
		l->coming = v;
		lora_bring(l, v);
		break;
	case RESIDENCY_DROP: take_out(l, v); break;
	case RESIDENCY_LEAVE: v->state = RESIDENCY_LEAVING; break;
	case RESIDENCY_STAY: v->state = RESIDENCY_HERE; break;
	case RESIDENCY_NOTHING: break;
	}
}

void lora_tick(struct lora *l, uint64_t now_ns)
{
	pthread_mutex_lock(&l->lock);
	collect(l);
	pthread_mutex_unlock(&l->lock);
	arrived(l, now_ns);
	pthread_mutex_lock(&l->lock);
	size_t n = look_at_all(l);
	pthread_mutex_unlock(&l->lock);
	struct residency_move move = residency_next(&l->residency, l->looks, (int)n, now_ns);
	carry_out(l, move, now_ns);
	if (move.act == RESIDENCY_DROP) { /* what it makes room for comes at once */
		l->looks[move.model].state = RESIDENCY_ABSENT;
		l->looks[move.model].wished = false;
		move = residency_next(&l->residency, l->looks, (int)n, now_ns);
		if (move.act == RESIDENCY_BRING)
			carry_out(l, move, now_ns);
	}
}

void lora_count(struct lora *l, struct lora_counts *out) { *out = l->counts; }
