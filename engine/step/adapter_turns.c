/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences and the adapters in memory (engine/lora): a sequence takes rows of steps only while its adapter is there,
 * as if it had no credit otherwise. One that waits for longer than engine.adapter_wait ends with PROTO_ERR_OVERLOADED.
 * If its adapter can't be read any more, it gets what replaced it, or ends with PROTO_ERR_NOT_READY; one that has begun
 * never changes.
 */
#include "base/clock.h"
#include "engine/step/step.h"

enum { LOOK_MS = 5 };

static bool has_begun(const struct eng_seq *s) { return s->sched.started_index != 0 || s->first_ns != 0; }

static bool works(const struct eng_seq *s)
{
	return s->model != NULL && s->credit > 0 &&
	       (s->state == SEQ_WAITING || s->state == SEQ_PREFILL || s->state == SEQ_DECODE);
}

bool adapter_is_here(const struct eng_seq *s) { return s->lora == NULL || lora_may_run(s->lora, has_begun(s)); }

static void see_all(struct step *st, uint64_t now)
{
	list_each(it, &st->all) {
		struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		bool begun = has_begun(s) && s->state != SEQ_ENDED;
		if (s->lora != NULL && s->model != NULL && (works(s) || begun))
			lora_see(st->e->lora, s->lora, begun, s->tenant_digest, s->sched.served_ns, now);
	}
}

/* False: it ended s, which is then invalid, and perhaps others. */
static bool serve_broken(struct step *st, struct eng_seq *s)
{
	struct lora_version *now = NULL;
	if (!lora_is_broken(st->e->lora, s->lora, &now))
		return true;
	if (now != NULL && !has_begun(s) && s->choices == NULL) {
		eng_seq_set_lora(s, now);
		return true;
	}
	if (now != NULL)
		lora_leave(now);
	step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_NOT_READY, "The adapter's files can't be read.");
	return false;
}

static bool is_late(const struct step *st, const struct eng_seq *s, uint64_t now)
{
	uint64_t most = st->e->cfg.adapter_wait_ms * (uint64_t)NS_PER_MS;
	return most > 0 && works(s) && !adapter_is_here(s) && now > most && s->sched.served_ns <= now - most;
}

/* False: sequences ended. *waits: it waits for its adapter. */
static bool serve(struct step *st, struct eng_seq *s, uint64_t now, bool *waits)
{
	if (!serve_broken(st, s))
		return false;
	if (is_late(st, s, now)) {
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED,
			    "The adapter is not in memory, and those that are there are in use: it did not come in "
			    "time.");
		return false;
	}
	bool credit = works(s) && adapter_is_here(s);
	*waits = *waits || (works(s) && !credit);
	if (s->state == SEQ_WAITING && credit != s->sched.credit) {
		s->sched.credit = credit;
		sched_update(s->model->sched, &s->sched, now);
	}
	return true;
}

/* The end of one may end others, so the list is gone through anew. */
static bool serve_all(struct step *st, uint64_t now, bool *waits)
{
	*waits = false;
	list_each(it, &st->all) {
		struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (s->lora != NULL && s->model != NULL && s->state != SEQ_ENDED && !serve(st, s, now, waits))
			return false;
	}
	return true;
}

uint64_t adapter_turns_tick(struct step *st, uint64_t now_ns)
{
	struct engine *e = st->e;
	struct lora_counts n;
	bool waits;
	if (!atomic_exchange(&e->lora_news, false) && now_ns < e->lora_look_ns)
		return e->lora_look_ns;
	e->lora_look_ns = now_ns + LOOK_MS * (uint64_t)NS_PER_MS;
	see_all(st, now_ns);
	lora_tick(e->lora, now_ns);
	while (!serve_all(st, now_ns, &waits))
		continue;
	lora_count(e->lora, &n);
	atomic_store(&e->adapters_here, n.here);
	atomic_store(&e->adapter_bytes, n.bytes);
	atomic_store(&e->adapter_loads, n.loads);
	atomic_store(&e->adapter_drops, n.drops);
	return waits ? e->lora_look_ns : UINT64_MAX;
}
