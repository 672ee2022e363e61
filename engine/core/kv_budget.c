/* SPDX-License-Identifier: Apache-2.0
 *
 * Needs are estimated before anything is loaded, on the high side: weights as large as their file, whether mapped or
 * rearranged; for work the activations of the widest step, logits, and what a vocabulary takes.
 */
#include "engine/core/kv_budget.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/core/device_memory.h"
#include "engine/core/host_memory.h"
#include "engine/handover/hand_area.h"
#include "engine/kv/kv_memory.h"
#include "engine/kv/kv_plan.h"
#include "engine/kv/kv_states.h"
#include "engine/step/kv_rebalance.h"
#include "engine/step/spec_step.h"

enum {
	MOST_SNAPSHOTS = 4096,    /* of states */
	TOKEN_BYTES = 512,        /* of a tokenizer, for each of its tokens */
	PROCESS_BYTES = 64 << 20, /* of a process without models */
	SLAB_PART = 64,           /* a slab is at most this part (1/64) of all memory */
	HEAD_PART = 4,   /* of the memory for keys and values at most this part (1/4) is for layers that draft */
	BORDER_PART = 8, /* of a slab at most this part (1/8) is lost to borders between pages */
};

static const uint64_t least_beside = 64ull << 20;  /* pages of an engine that starts beside another one */
static const uint64_t unplanned_kv = 256ull << 20; /* on a device that does not report its memory */

static uint64_t context_pages(const struct eng_model *m)
{
	uint64_t n_ctx = (uint64_t)m->info.arch.n_ctx;
	/* An encoder computes a text in one step. */
	if (m->info.arch.encoder && n_ctx > (uint64_t)m->step_tokens)
		n_ctx = (uint64_t)m->step_tokens;
	return model_context_pages(m, n_ctx);
}

/* What all models want; draft pools cost a part of a page more. */
static void wants_of(const struct engine *e, struct kv_want *wants)
{
	for (int i = 0; i < e->n_models; i++) {
		const struct eng_model *m = &e->models[i];
		wants[i] = (struct kv_want){0};
		if (!m->inspected)
			continue;
		uint64_t bytes = model_page_bytes(m), useful = model_useful_pages(m);
		wants[i].page_bytes = bytes + (spec_may_draft(e, m) ? bytes / ENGINE_DRAFT_PART + 1 : 0);
		wants[i].context = context_pages(m);
		wants[i].useful = useful > wants[i].context ? useful : wants[i].context;
	}
}

static uint64_t cost_of(const struct kv_want *wants, int n, bool useful)
{
	uint64_t all = 0;
	for (int i = 0; i < n; i++) {
		uint64_t one;
		if (__builtin_mul_overflow(wants[i].page_bytes, useful ? wants[i].useful : wants[i].context, &one) ||
		    __builtin_add_overflow(all, one, &all))
			return UINT64_MAX;
	}
	return all;
}

/* Pools that share memory lose some to the borders of slabs: contexts are whole if so many pages more are planned. */
static void allow_for_borders(struct kv_want *wants, int n)
{
	uint64_t all = cost_of(wants, n, false);
	int n_pools = 0;
	for (int i = 0; i < n; i++)
		n_pools += wants[i].page_bytes > 0;
	if (n_pools < 2 || all == UINT64_MAX)
		return;
	for (int i = 0; i < n; i++) {
		struct kv_want *w = &wants[i];
		if (w->page_bytes == 0)
			continue;
		w->context += w->context / BORDER_PART + all / SLAB_PART / w->page_bytes + 2;
		w->useful = w->useful > w->context ? w->useful : w->context;
	}
}

/* ---- states ---- */

static uint64_t state_bytes(const struct eng_model *m)
{
	return m->inspected ? arch_state(&m->info.arch) * sizeof(float) : 0;
}

/* States for drafts: of all sequences, and of each a copy to go back to. */
static uint64_t draft_states(const struct engine *e, const struct eng_model *m)
{
	return spec_may_draft(e, m) ? 2 * (uint64_t)e->cfg.max_sequences : 0;
}

/* Bytes of every model's states for all sequences, and as many snapshots. */
static uint64_t least_states(const struct engine *e)
{
	uint64_t all = 0;
	for (int i = 0; i < e->n_models; i++)
		all +=
		    (2 * (uint64_t)e->cfg.max_sequences + draft_states(e, &e->models[i])) * state_bytes(&e->models[i]);
	return all;
}

/* Of the budget, as a part of all models' that have states: a quarter for snapshots, or one for each sequence if that
 * is more; with the sequences' own at most half, as long as there are snapshots at all. Returns the bytes of all
 * states. */
static uint64_t plan_states(struct engine *e, uint64_t budget)
{
	uint64_t n_sequences = (uint64_t)e->cfg.max_sequences, n = 0, all = 0;
	for (int i = 0; i < e->n_models; i++)
		n += state_bytes(&e->models[i]) > 0;
	for (int i = 0; i < e->n_models && n > 0; i++) {
		struct eng_model *m = &e->models[i];
		uint64_t bytes = state_bytes(m);
		if (bytes == 0)
			continue;
		uint64_t rows = n_sequences + draft_states(e, m);
		uint64_t half = kv_states_plan(bytes, budget / 2 / n, MOST_SNAPSHOTS + rows);
		m->n_snapshots = kv_states_plan(bytes, budget / 4 / n, MOST_SNAPSHOTS);
		m->n_snapshots = m->n_snapshots > n_sequences ? m->n_snapshots : n_sequences;
		if (rows + m->n_snapshots > half)
			m->n_snapshots = half > rows ? half - rows : 0;
		all += (rows + m->n_snapshots) * bytes;
	}
	return all;
}

/* ---- layers that draft ---- */

/* Bytes of all models' drafts by layers of their own. A model whose drafts would take more than its part of the memory
 * drafts otherwise. */
static uint64_t plan_heads(struct engine *e)
{
	uint64_t all = 0;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		uint64_t bytes = head_drafts_bytes(m);
		if (bytes > e->cfg.kv_bytes / HEAD_PART / (uint64_t)e->n_models) {
			log_warn(
			    "model %s: its layer that drafts is not used: it needs %llu MiB of %llu MiB for keys and "
			    "values; engine.max_sequences: fewer, or engine.kv_memory: more",
			    m->name, (unsigned long long)(bytes >> 20), (unsigned long long)(e->cfg.kv_bytes >> 20));
			m->no_head = true;
			bytes = 0;
		}
		all += bytes;
	}
	return all;
}

static uint64_t head_bytes(const struct engine *e)
{
	uint64_t all = 0;
	for (int i = 0; i < e->n_models; i++)
		all += head_drafts_bytes(&e->models[i]);
	return all;
}

/* ---- the host's memory ---- */

static uint64_t work_of(const struct eng_model *m)
{
	const struct model_arch *a = &m->info.arch;
	uint64_t rows = (uint64_t)m->step_tokens + (uint64_t)m->e->cfg.max_sequences;
	uint64_t embd = (uint64_t)a->n_embd * (head_drafts_wanted(m) ? 7 : 3); /* model/draft_head.c: two pairs */
	uint64_t widths = embd + arch_attn_floats(a) + arch_ff_floats(a) + arch_recurrent_floats(a);
	uint64_t drawn = (uint64_t)m->e->cfg.max_sequences + 32; /* rows of logits that the step thread keeps */
	uint64_t logits = a->encoder ? 0 : rows < 2 * drawn ? rows : 2 * drawn; /* the model's (model_how.max_want) */
	const struct arch_latent *d = &a->latent; /* keys' matrices that are transposed on load (model/latent.c) */
	uint64_t turned = d->joined ? (uint64_t)a->n_layers * (uint64_t)a->n_heads * (uint64_t)d->n : 0;
	return (turned * (uint64_t)d->plain + rows * widths) * sizeof(float) +
	       (drawn + logits) * (uint64_t)a->n_vocab * sizeof(float) + (uint64_t)a->n_vocab * TOKEN_BYTES;
}

/* Of models on demand: of all, and of what must be in memory together: the largest one, or the pair of a cascade. */
struct on_demand {
	uint64_t all, largest;
};

static void needs_of(const struct engine *e, const struct kv_want *wants, struct host_needs *needs,
		     struct on_demand *some)
{
	*needs = (struct host_needs){.bound = e->cfg.memory_bytes,
				     .work = PROCESS_BYTES,
				     .shared = e->cfg.hand_area != NULL ? e->cfg.hand_area->bytes : 0,
				     .contexts = cost_of(wants, e->n_models, false),
				     .useful = cost_of(wants, e->n_models, true)};
	uint64_t states = least_states(e), heads = head_bytes(e);
	if (__builtin_add_overflow(needs->contexts, heads, &needs->contexts) ||
	    __builtin_add_overflow(needs->useful, heads, &needs->useful))
		needs->contexts = needs->useful = UINT64_MAX;
	if (__builtin_add_overflow(needs->contexts, states, &needs->contexts))
		needs->contexts = UINT64_MAX;
	if (__builtin_add_overflow(needs->useful, 2 * states, &needs->useful))
		needs->useful = UINT64_MAX;
	uint64_t pair = 0;
	*some = (struct on_demand){0};
	for (int i = 0; i < e->n_models; i++) {
		const struct eng_model *m = &e->models[i];
		uint64_t bytes = m->inspected ? m->info.file_bytes + m->adapter_bytes : 0;
		needs->weights += m->on_demand ? 0 : bytes;
		needs->work += m->inspected ? work_of(m) : 0;
		some->all += m->on_demand ? bytes : 0;
		some->largest = m->on_demand && bytes > some->largest ? bytes : some->largest;
		pair += m->on_demand && m->role != PROTO_ROLE_NONE ? bytes : 0;
	}
	some->largest = pair > some->largest ? pair : some->largest;
}

/* Weights on demand take what half of what is left allows, but at least the largest of them, and what pages leave. */
static void plan_weights(struct engine *e, const struct machine_memory *now, struct host_needs *needs,
			 const struct on_demand *some, struct host_plan *plan)
{
	uint64_t most = plan->left / 2 > some->largest ? plan->left / 2 : some->largest;
	uint64_t set_aside = some->all < most ? some->all : most;
	if (e->cfg.weights_bytes > 0)
		set_aside = e->cfg.weights_bytes;
	needs->weights += set_aside;
	host_memory_plan(now, needs, plan);
	uint64_t kv = e->kv_auto ? plan->kv : e->cfg.kv_bytes;
	e->residency.cfg.bound = set_aside + (plan->left > kv ? plan->left - kv : 0);
	if (e->cfg.weights_bytes > 0)
		e->residency.cfg.bound = e->cfg.weights_bytes;
	log_info("memory: weights of models on demand take %llu MiB at most",
		 (unsigned long long)(e->residency.cfg.bound >> 20));
}

static void plan_host(struct engine *e, const struct kv_want *wants)
{
	struct host_needs needs;
	struct on_demand some;
	struct machine_memory now;
	struct host_plan plan;
	char line[320];
	needs_of(e, wants, &needs, &some);
	if (machine_memory_read(e->cfg.memory_root != NULL ? e->cfg.memory_root : "", NULL, &now) != 0) {
		e->cfg.kv_bytes = e->kv_auto ? unplanned_kv : e->cfg.kv_bytes;
		e->residency.cfg.bound = e->cfg.weights_bytes > 0 ? e->cfg.weights_bytes : UINT64_MAX;
		log_warn("this machine does not say how much memory it has: %llu MiB for keys and values",
			 (unsigned long long)(e->cfg.kv_bytes >> 20));
		return;
	}
	host_memory_plan(&now, &needs, &plan);
	if (e->residency.cfg.turn_ns > 0)
		plan_weights(e, &now, &needs, &some, &plan);
	if (!e->kv_auto)
		return;
	e->cfg.kv_bytes = plan.kv;
	e->memory_reserve = plan.reserve;
	log_info("%s", host_memory_line(&now, &needs, &plan, line, sizeof line));
}

bool kv_budget_fits_beside(const struct engine *e, char *line, size_t n)
{
	struct kv_want wants[PROTO_MAX_MODELS];
	struct host_needs needs;
	struct on_demand some;
	struct machine_memory now;
	wants_of(e, wants);
	needs_of(e, wants, &needs, &some);
	if (e->ops->memory != NULL ||
	    machine_memory_read(e->cfg.memory_root != NULL ? e->cfg.memory_root : "", NULL, &now) != 0)
		return true;
	uint64_t reserve = host_memory_reserve(now.total), need = needs.weights + some.largest + needs.work;
	uint64_t usable = now.available > reserve ? now.available - reserve : 0;
	uint64_t kv = e->cfg.kv_bytes > 0             ? e->cfg.kv_bytes
		      : needs.contexts < least_beside ? needs.contexts
						      : least_beside;
	if (__builtin_add_overflow(need, kv, &need) || need > usable) {
		snprintf(
		    line, n,
		    "beside the running engine it needs %llu MiB, and %llu MiB are left (by %s, %llu MiB in reserve): "
		    "a restart replaces that engine",
		    (unsigned long long)(need >> 20), (unsigned long long)(usable >> 20), now.limited_by,
		    (unsigned long long)(reserve >> 20));
		return false;
	}
	return true;
}

/* ---- a device's ---- */

bool kv_budget_is_of_device(const struct engine *e)
{
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 64};
	struct kn_backend *b;
	struct kn_memory now;
	struct sl_err err;
	if (e->cfg.device_memory <= 0 || e->ops->memory == NULL || e->ops->open(&kc, &b, &err) != 0)
		return false;
	bool reports = e->ops->memory(b, &now);
	e->ops->close(b);
	return reports;
}

/* Adapters of all models, which share engine.adapter_memory, and what steps keep of their rows between the two halves
 * of an adapter. */
static uint64_t device_adapters(const struct engine *e)
{
	uint64_t all = 0, rows = 0, most = e->cfg.adapter_memory;
	for (int i = 0; i < e->n_models; i++) {
		const struct eng_model *m = &e->models[i];
		all += m->adapter_bytes;
		rows += m->adapter_bytes > 0 ? (uint64_t)m->step_tokens + (uint64_t)e->cfg.max_sequences : 0;
	}
	all = most > 0 && all > most ? most : all;
	return all + rows * KN_LORA_PARTS * KN_LORA_RANK * sizeof(float);
}

static void plan_device(struct engine *e)
{
	struct kn_memory now = {0}, one;
	struct device_plan plan;
	uint64_t later = 0;
	char line[256];
	for (int i = 0; i < e->n_models; i++) {
		const struct eng_model *m = &e->models[i];
		if (m->backend == NULL || !m->ops->memory(m->backend, &one))
			continue;
		now = one;
		later += one.later;
	}
	if (now.total == 0)
		return; /* no model was loaded */
	device_memory_plan(&now, later, device_adapters(e), e->cfg.device_memory, &plan);
	e->cfg.kv_bytes = plan.kv;
	log_info("%s", device_memory_line(&plan, line, sizeof line));
}

/* ---- shares ---- */

void kv_budget_plan(struct engine *e, bool of_device)
{
	struct kv_want wants[PROTO_MAX_MODELS];
	uint64_t pages[PROTO_MAX_MODELS];
	bool on_host = e->ops->memory == NULL;
	wants_of(e, wants);
	e->kv_auto = !of_device && e->cfg.kv_bytes == 0;
	if (e->kv_auto || of_device)
		allow_for_borders(wants, e->n_models);
	if (of_device)
		plan_device(e);
	else if (on_host && (e->kv_auto || e->residency.cfg.turn_ns > 0))
		plan_host(e, wants);
	else if (e->kv_auto)
		e->cfg.kv_bytes = unplanned_kv;
	uint64_t states = plan_states(e, e->cfg.kv_bytes) + plan_heads(e);
	kv_plan(wants, e->n_models, e->cfg.kv_bytes > states ? e->cfg.kv_bytes - states : 0, pages);
	for (int i = 0; i < e->n_models; i++) {
		uint64_t useful = model_useful_pages(&e->models[i]);
		e->models[i].kv_pages = pages[i] < useful ? pages[i] : useful;
	}
	kv_rebalance_create_memory(e);
	for (int slab = 0; e->memory != NULL && slab < kv_memory_n_slabs(e->memory); slab++)
		atomic_fetch_add(&e->kv_bytes, kv_memory_bytes_of(e->memory, slab));
}

const char *kv_budget_short(const struct eng_model *m, char *line, size_t n)
{
	const struct engine *e = m->e;
	uint64_t page = model_page_bytes(m), has = (uint64_t)kv_pool_n_pages(m->pool);
	snprintf(
	    line, n, "context %u of %d tokens: %.0f MiB of keys and values would be needed, %.0f MiB are left; %s",
	    m->n_ctx, m->info.arch.n_ctx, (double)(context_pages(m) * page) / 0x1p20, (double)(has * page) / 0x1p20,
	    e->planned   ? "engine.kv_type: fp8 takes half, engine.cuda.memory may allow more"
	    : e->kv_auto ? "engine.kv_type: q8 takes half; free memory, serve fewer models, or set engine.kv_memory"
			 : "set engine.kv_memory to more, or to auto");
	return line;
}
