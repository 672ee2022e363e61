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

static void put_form(const struct text_form *form, struct proto_model *out)
{
	out->format = (uint8_t)form->parts.format;
	out->reasoning = (uint8_t)form->parts.reasoning;
	out->n_markers = (uint8_t)form->n_markers;
	memcpy(out->markers, form->markers, sizeof out->markers);
}

/* Its base's, but for what an adapter has of its own. It may have failed alone. */
static void adapter_info(struct engine *e, int entry, struct proto_model *out)
{
	static _Thread_local struct lora_info info;
	lora_get(e->lora, entry, &info);
	uint16_t index = (uint16_t)(e->n_models + entry);
	if (info.state == LORA_FREE) {
		*out = (struct proto_model){.index = index, .state = PROTO_MODEL_GONE};
		out->name = out->reason = (struct proto_str){"", 0};
		return;
	}
	engine_model_info(e, info.model, out);
	out->index = index;
	out->role = PROTO_ROLE_NONE;
	out->parent = (uint16_t)(info.model + 1);
	out->name = (struct proto_str){.at = info.name, .n = strlen(info.name)};
	if (out->state != PROTO_MODEL_READY)
		return;
	if (info.state != LORA_READY)
		out->state = info.state == LORA_FAILED ? PROTO_MODEL_FAILED : PROTO_MODEL_LOADING;
	out->reason = (struct proto_str){.at = info.reason, .n = strlen(info.reason)};
	if (info.own_form)
		put_form(&info.form, out);
}

void engine_model_info(struct engine *e, int index, struct proto_model *out)
{
	static _Thread_local char reason[PROTO_MAX_MESSAGE + 1];
	BUG_IF(index < 0 || index >= e->n_models + lora_n(e->lora), "engine_model_info: model %d", index);
	if (index >= e->n_models) {
		adapter_info(e, index - e->n_models, out);
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
	if (out->state == PROTO_MODEL_READY)
		put_form(&m->form, out);
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
		m->shown.does = (uint8_t)(model_does(&m->info.arch) | (m->hand != NULL ? PROTO_DOES_HAND_OVER : 0));
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
	pthread_mutex_lock(&e->report_lock);
	engine_model_info(e, m->index, &ev.u.model);
	e->on_event(e->on_event_ctx, &ev);
	for (int i = 0, n = lora_n(e->lora); i < n; i++) {
		engine_model_info(e, e->n_models + i, &ev.u.model);
		if (ev.u.model.parent == m->index + 1)
			e->on_event(e->on_event_ctx, &ev);
	}
	pthread_mutex_unlock(&e->report_lock);
}
