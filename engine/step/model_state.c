/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's state as other threads see it: written by the step thread under info_lock, read by any thread.
 */
#include <string.h>

#include "base/log.h"
#include "engine/step/internal.h"

static uint8_t residence_of(const struct eng_model *m)
{
	switch (atomic_load(&m->residence)) {
	case RESIDENCY_HERE:
	case RESIDENCY_LEAVING: return PROTO_RESIDENCE_HERE;
	case RESIDENCY_COMING: return PROTO_RESIDENCE_COMING;
	default: return PROTO_RESIDENCE_ABSENT;
	}
}

/* Of what comes: an absent model has nothing of it yet. */
static uint8_t percent_of(const struct eng_model *m)
{
	bool absent = atomic_load(&m->state) == PROTO_MODEL_READY && residence_of(m) == PROTO_RESIDENCE_ABSENT;
	return absent ? 0 : (uint8_t)atomic_load(&m->percent);
}

/* Its base's, but for what an adapter has of its own. It may have failed alone. */
static void adapter_info(struct engine *e, const struct eng_adapter *a, struct proto_model *out)
{
	engine_model_info(e, a->model, out);
	out->role = PROTO_ROLE_NONE;
	out->parent = (uint16_t)(a->model + 1);
	out->name = (struct proto_str){.at = a->name, .n = strlen(a->name)};
	if (out->state != PROTO_MODEL_READY || a->slot >= 0)
		return;
	out->state = PROTO_MODEL_FAILED;
	out->reason = (struct proto_str){.at = a->load_err.text, .n = strlen(a->load_err.text)};
}

void engine_model_info(struct engine *e, int index, struct proto_model *out)
{
	static _Thread_local char reason[PROTO_MAX_MESSAGE + 1];
	BUG_IF(index < 0 || index >= e->n_models + e->n_adapters, "engine_model_info: model %d", index);
	if (index >= e->n_models) {
		adapter_info(e, &e->adapters[index - e->n_models], out);
		out->index = (uint16_t)index;
		return;
	}
	struct eng_model *m = &e->models[index];
	pthread_mutex_lock(&e->info_lock);
	*out = (struct proto_model){.index = (uint16_t)index,
				    .state = (uint8_t)atomic_load(&m->state),
				    .role = (uint8_t)m->role,
				    .residence = residence_of(m),
				    .percent = percent_of(m),
				    .n_ctx = m->shown.n_ctx,
				    .n_vocab = m->shown.n_vocab,
				    .n_embd = m->shown.n_embd,
				    .does = m->shown.does,
				    .n_lengths = m->shown.n_lengths,
				    .n_params = m->shown.n_params,
				    .tokenizer = m->shown.tokenizer,
				    .name = {.at = m->name, .n = strlen(m->name)}};
	memcpy(out->lengths, m->shown.lengths, sizeof out->lengths);
	/* Constant since it was loaded. */
	if (out->state == PROTO_MODEL_READY) {
		out->format = (uint8_t)m->parts.format;
		out->reasoning = (uint8_t)m->parts.reasoning;
		out->n_markers = (uint8_t)m->n_markers;
		memcpy(out->markers, m->markers, sizeof out->markers);
	}
	memcpy(reason, m->shown.reason, sizeof reason);
	pthread_mutex_unlock(&e->info_lock);
	out->reason = (struct proto_str){.at = reason, .n = strlen(reason)};
}

void model_state_set(struct engine *e, struct eng_model *m, enum proto_model_state state, const char *reason)
{
	uint64_t tokenizer = state == PROTO_MODEL_READY ? tokenizer_digest(model_tokenizer(m->model)) : 0;
	pthread_mutex_lock(&e->info_lock);
	if (state == PROTO_MODEL_READY) {
		m->shown.tokenizer = tokenizer;
		m->shown.n_ctx = m->n_ctx;
		m->shown.n_vocab = (uint32_t)m->info.arch.n_vocab;
		m->shown.n_params = m->info.n_params;
		m->shown.n_embd = (uint32_t)m->info.arch.n_embd;
		m->shown.does = (uint8_t)model_does(&m->info.arch);
		m->shown.n_lengths = (uint8_t)m->info.arch.n_lengths;
		for (int i = 0; i < m->info.arch.n_lengths; i++)
			m->shown.lengths[i] = (uint32_t)m->info.arch.lengths[i];
	}
	size_t n = strnlen(reason, sizeof m->shown.reason - 1);
	memcpy(m->shown.reason, reason, n);
	m->shown.reason[n] = '\0';
	atomic_store(&m->state, (int)state);
	pthread_mutex_unlock(&e->info_lock);
	if (state == PROTO_MODEL_FAILED)
		log_error("model %s failed: %s", m->name, reason);
	else
		log_info("model %s is ready, %u of %d tokens of context", m->name, m->n_ctx, m->info.arch.n_ctx);
	model_state_report(e, m);
}

void model_state_report(struct engine *e, const struct eng_model *m)
{
	struct eng_event ev = {.kind = ENG_MODEL};
	engine_model_info(e, m->index, &ev.u.model);
	e->on_event(e->on_event_ctx, &ev);
	for (int i = 0; i < e->n_adapters; i++)
		if (e->adapters[i].model == m->index) {
			engine_model_info(e, e->n_models + i, &ev.u.model);
			e->on_event(e->on_event_ctx, &ev);
		}
}
