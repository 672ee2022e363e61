/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's entry points for other threads, and its life cycle.
 *
 * The index holds a sequence from submit until just before its DONE is reported. Credit and cancel look it up under a
 * lock held for a few instructions, store their request in its `signals` and wake the step thread. Neither allocates
 * and neither can fail, so a cancellation always arrives. The step thread takes the signals at the start of each
 * iteration.
 *
 * Life: create starts text workers, the step thread and the loader. Destroy stops the step thread first (it reports
 * DONE for every sequence), then the workers and the loader, then frees; every counted resource must be back.
 */
#include "engine/engine.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/core/device_watch.h"
#include "engine/core/backend_choice.h"
#include "engine/core/grammar_cache.h"
#include "engine/core/memory_watch.h"
#include "engine/core/slow_watch.h"
#include "engine/step/internal.h"
#include "engine/step/kv_rebalance.h"
#include "engine/step/model_residency.h"
#include "kernels/kv_type.h"
#include "kernels/plugin.h"

/* Tokens of a step where none are configured. A device reads all weights for a step, 16 GB of them for an 8B model,
 * however few tokens it has: 2048 take it some 100 ms, a processor's 128 several times as long. */
enum { STEP_TOKENS = 128, DEVICE_STEP_TOKENS = 2048 };

/* ---- requests ---- */

/* With the index's lock held. */
static void raise_signal(struct engine *e, struct eng_seq *s)
{
	list_remove(&s->signals.in_signaled);
	list_push_back(&e->signaled, &s->signals.in_signaled);
}

/* With the index's lock held: the requests that make room for a new one. The step thread ends each unless it has begun.
 */
static void displace(struct engine *e, struct list *displaced)
{
	list_each_safe(it, tmp, displaced) {
		struct eng_seq *s = list_entry(it, struct eng_seq, wait_entry.displaced);
		list_remove(it);
		s->signals.displaced = true;
		raise_signal(e, s);
	}
}

/* A copy of the request, and what it asks of the wait limits: room for its whole fan-out. */
static int admit(uint64_t id, const struct proto_submit *req, struct wait_request *ask, struct eng_seq **out)
{
	uint32_t n = req->best_of > req->beam_width ? req->best_of : req->beam_width;
	*ask = (struct wait_request){
	    .tenant = req->tenant, .priority = req->priority, .n = n > 0 ? n : 1, .prompt_bytes = req->prompt.n};
	return eng_seq_create(id, req, out);
}

int engine_submit(struct engine *e, uint64_t id, const struct proto_submit *req)
{
	struct wait_request ask;
	struct list displaced;
	struct eng_seq *s;
	int rc = admit(id, req, &ask, &s);
	if (rc != 0)
		return rc;
	list_init(&displaced);
	adapters_resolve(e, s);
	if (!e->cfg.no_prefix_cache && !s->unshared && !s->embed)
		s->borders = prefix_text_create(req, e->cfg.share_prefixes);
	s->mail.kind = STEP_TEXT;
	s->with_worker = true;
	pthread_mutex_lock(&e->index_lock);
	rc = wait_limits_enter(&e->wait_limits, &s->wait_entry, &ask, &displaced);
	displace(e, &displaced);
	if (rc == 0) {
		atomic_fetch_add(&e->n_live, 1 + s->n_reserved);
		atomic_fetch_add(&e->counters.submitted, 1);
		eng_seq_set_state(&e->counters, s, SEQ_TEXT);
		s->sched.order = e->next_order;
		e->next_order += PROTO_MAX_CHOICES; /* its other choices follow it */
		idmap_insert(&e->index, &s->node);
		s->signals.fresh = true;
		raise_signal(e, s);
	}
	pthread_mutex_unlock(&e->index_lock);
	if (rc != 0) {
		eng_seq_free(s);
	} else if (text_queue_put(&e->text_queue, TEXT_PROMPTS, s) != 0) {
		s->text.error = PROTO_ERR_OVERLOADED;
		sl_errf(&s->text.err, SL_ENOMEM, "The engine is out of memory.");
		mailbox_send(&e->box, &s->mail.mail);
	}
	mailbox_nudge(&e->box);
	return rc;
}

int engine_prefixes(struct engine *e, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n)
{
	return prefix_book_read(e->book, cursor, anew, changes, n);
}

int engine_count(struct engine *e, uint64_t id, const struct proto_count *req)
{
	struct proto_submit like = {.model = req->model,
				    .prompt_kind = req->prompt_kind,
				    .prompt = req->prompt,
				    .tenant = req->tenant,
				    .priority = req->priority};
	struct wait_request ask;
	struct list displaced;
	struct eng_seq *s;
	int rc = admit(id, &like, &ask, &s);
	if (rc != 0)
		return rc;
	list_init(&displaced);
	adapters_resolve(e, s);
	s->text.counting = true;
	s->text.count_wants = req->wants;
	pthread_mutex_lock(&e->index_lock);
	rc = wait_limits_enter(&e->counts, &s->wait_entry, &ask, &displaced);
	list_each_safe(it, tmp, &displaced) {
		struct eng_seq *victim = list_entry(it, struct eng_seq, wait_entry.displaced);
		list_remove(it);
		atomic_store(&victim->text.unwanted, true);
		text_queue_expedite(&e->text_queue, victim);
	}
	/* With the lock held: once s is queued, its worker may free it. */
	if (rc == 0 && (rc = text_queue_put(&e->text_queue, TEXT_PROMPTS, s)) != 0)
		wait_limits_leave(&e->counts, &s->wait_entry);
	atomic_fetch_add(&e->n_counting, rc == 0);
	pthread_mutex_unlock(&e->index_lock);
	if (rc != 0)
		eng_seq_free(s);
	return rc;
}

static void signal_seq(struct engine *e, uint64_t id, uint32_t credit, bool cancel)
{
	pthread_mutex_lock(&e->index_lock);
	struct idmap_node *node = idmap_find(&e->index, id);
	if (node != NULL) {
		struct eng_seq *s = idmap_entry(node, struct eng_seq, node);
		eng_add_credit(&s->signals.credit, credit);
		s->signals.cancel = s->signals.cancel || cancel;
		raise_signal(e, s);
	}
	pthread_mutex_unlock(&e->index_lock);
	if (node != NULL)
		mailbox_nudge(&e->box);
}

void engine_credit(struct engine *e, uint64_t id, uint32_t n_tokens) { signal_seq(e, id, n_tokens, false); }

void engine_cancel(struct engine *e, uint64_t id) { signal_seq(e, id, 0, true); }

void engine_hand(struct engine *e, uint64_t id, const struct proto_hand *m)
{
	pthread_mutex_lock(&e->index_lock);
	struct idmap_node *node = idmap_find(&e->index, id);
	if (node != NULL) {
		struct eng_seq *s = idmap_entry(node, struct eng_seq, node);
		if (m->what == PROTO_HAND_OVER)
			s->signals.hand_over = true;
		else
			s->signals.hand = *m;
		raise_signal(e, s);
	}
	pthread_mutex_unlock(&e->index_lock);
	if (node != NULL)
		mailbox_nudge(&e->box);
}

void engine_keep(struct engine *e, const struct proto_keep *k)
{
	struct lora_info info;
	int model = k->model, adapter = model - e->n_models;
	if (adapter >= lora_n(e->lora))
		return;
	if (adapter >= 0) {
		lora_get(e->lora, adapter, &info);
		model = info.model;
	}
	struct eng_model *m = &e->models[model];
	pthread_mutex_lock(&e->info_lock);
	keep_alive_ask(&m->keep, k->tenant, k->keep_ms * (uint64_t)NS_PER_MS, clock_now_ns());
	pthread_mutex_unlock(&e->info_lock);
}

void engine_erase(struct engine *e, const struct proto_erase *m)
{
	/* Texts that tenants share are no one's alone: they go, too. */
	const uint64_t owners[] = {m->tenant, 0};
	if (e->disk == NULL)
		return;
	pthread_mutex_lock(&e->index_lock);
	struct engine_erases *k = &e->erases;
	for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
		bool known = k->all;
		for (uint32_t j = 0; j < k->n; j++)
			known = known || k->tenants[j] == owners[i];
		if (!known && k->n < ENGINE_ERASES)
			k->tenants[k->n++] = owners[i];
		else if (!known)
			k->all = true;
	}
	pthread_mutex_unlock(&e->index_lock);
	mailbox_nudge(&e->box);
}

/* ---- state ---- */

void engine_stats(struct engine *e, struct proto_stats *out)
{
	*out = (struct proto_stats){
	    .running = atomic_load(&e->counters.in_state[SEQ_PREFILL]) + atomic_load(&e->counters.in_state[SEQ_DECODE]),
	    .waiting = atomic_load(&e->counters.in_state[SEQ_TEXT]) + atomic_load(&e->counters.in_state[SEQ_WAITING]),
	    .submitted = atomic_load(&e->counters.submitted),
	    .finished = atomic_load(&e->counters.finished),
	    .cancelled = atomic_load(&e->counters.cancelled),
	    .failed = atomic_load(&e->counters.failed),
	    .displaced = atomic_load(&e->counters.displaced),
	};
#define REPORT(name) out->name = (__typeof__(out->name))atomic_load(&e->name)
	ENGINE_FIGURES(REPORT);
#undef REPORT
	device_watch_read(atomic_load(&e->watch), &out->device);
	kv_tier_stats(e, out);
}

int engine_n_models(struct engine *e) { return e->n_models + lora_n(e->lora); }

/* ---- life ---- */

static int check_config(const struct eng_config *cfg, struct sl_err *err)
{
	if (cfg->n_models < 1 || cfg->n_models > PROTO_MAX_MODELS)
		return sl_errf(err, SL_EINVAL, "an engine runs 1 to %d models, not %d", PROTO_MAX_MODELS,
			       cfg->n_models);
	if (cfg->n_text_workers < 1 || cfg->page_tokens < 1 || cfg->max_sequences < 1 || cfg->max_waiting < 1 ||
	    cfg->step_tokens < 0)
		return sl_errf(err, SL_EINVAL, "every size of the engine must be at least 1");
	for (int i = 0; i < cfg->n_models; i++) {
		size_t n = strlen(cfg->models[i].name);
		if (n < 1 || n > PROTO_MAX_NAME)
			return sl_errf(err, SL_EINVAL, "a model's name has 1 to %d bytes", PROTO_MAX_NAME);
		for (int j = 0; j < i; j++) {
			if (strcmp(cfg->models[i].name, cfg->models[j].name) == 0)
				return sl_errf(err, SL_EINVAL, "two models are named %s", cfg->models[i].name);
		}
	}
	return 0;
}

/* -1: neither. */
static int on_or_off(const char *name)
{
	if (name == NULL || (strcmp(name, "on") != 0 && strcmp(name, "off") != 0))
		return -1;
	return strcmp(name, "on") == 0;
}

static void set_kv_type(struct eng_model *m, const char *of_model, const char *of_all)
{
	const char *name = of_model != NULL && of_model[0] != '\0' ? of_model : of_all;
	m->kv_auto = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
	m->kv_type = m->kv_auto ? kn_kv_type_auto(m->e->ops) : kn_kv_type_from_name(name);
}

static int make_models(struct engine *e, const struct eng_config *cfg)
{
	e->models = sl_zalloc_n((size_t)cfg->n_models, sizeof *e->models);
	if (e->models == NULL)
		return SL_ENOMEM;
	for (int i = 0; i < cfg->n_models; i++) {
		struct eng_model *m = &e->models[i];
		m->e = e;
		m->index = i;
		m->mail.kind = STEP_MODEL;
		m->weights_mail.kind = STEP_WEIGHTS;
		m->on_demand = cfg->models[i].on_demand;
		uint64_t keep_ms = cfg->models[i].keep_alive_ms;
		keep_alive_init(&m->keep, keep_ms > 0 ? keep_ms * (uint64_t)NS_PER_MS : UINT64_MAX);
		if (m->on_demand)
			e->residency.cfg.turn_ns = (cfg->turn_ms > 0 ? cfg->turn_ms : 1) * (uint64_t)NS_PER_MS;
		m->role = cfg->models[i].role;
		const char *quantize = cfg->models[i].quantize;
		m->quantize = quantize != NULL ? kn_type_from_name(quantize) : -1;
		m->fp8 = quantize != NULL && strcasecmp(quantize, "fp8") == 0;
		set_kv_type(m, cfg->models[i].kv_type, cfg->kv_type);
		m->name = sl_strdup(cfg->models[i].name);
		const char *head = cfg->models[i].head;
		m->path = sl_strdup(cfg->models[i].path);
		m->head_path = head != NULL ? sl_strdup(head) : NULL;
		m->step_tokens = e->cfg.step_tokens;
		const char *pooling = cfg->models[i].pooling;
		m->pooling = pooling != NULL ? sl_strdup(pooling) : NULL;
		m->shortens = on_or_off(cfg->models[i].matryoshka);
		e->n_models++;
		if (m->name == NULL || m->path == NULL || (pooling != NULL && m->pooling == NULL) ||
		    (head != NULL && m->head_path == NULL))
			return SL_ENOMEM;
	}
	return 0;
}

static int set_weight_cache(struct engine *e, const struct eng_config *cfg)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	if (cfg->weight_cache == NULL)
		return 0;
	e->weight_cache.folder = e->weight_cache_folder = sl_strdup(cfg->weight_cache);
	e->weight_cache.max_bytes = cfg->weight_cache_bytes;
	e->weight_cache.n_threads = cfg->n_threads > 0 ? cfg->n_threads : cores > 0 && cores < 64 ? (int)cores : 1;
	return e->weight_cache_folder != NULL ? 0 : SL_ENOMEM;
}

/* Has any tier a target to keep? */
static bool is_eased(struct engine *e)
{
	bool any = false;
	_Static_assert((int)PROTO_PRIORITIES == (int)SCHED_TIERS, "a tier of the scheduler for each priority");
	for (int i = 0; i < SCHED_TIERS; i++) {
		e->ease_itl_ns[i] = e->cfg.ease_itl_ms[i] * NS_PER_MS;
		any = any || e->ease_itl_ns[i] > 0;
	}
	return any;
}

static int start_threads(struct engine *e)
{
	e->step_running = pthread_create(&e->step_thread, NULL, step_main, e) == 0;
	if (!e->step_running)
		return SL_EIO;
	for (; e->n_text_threads < e->cfg.n_text_workers; e->n_text_threads++) {
		if (pthread_create(&e->text_threads[e->n_text_threads], NULL, text_worker_main, e) != 0)
			return SL_EIO;
	}
	e->compiler_running = pthread_create(&e->compiler_thread, NULL, compiler_main, e) == 0;
	if (!e->compiler_running)
		return SL_EIO;
	int rc = lora_start(e->lora);
	if (rc != 0)
		return rc;
	if (is_eased(e))
		e->slow_watch = slow_watch_start(e);
	e->loader_running = pthread_create(&e->loader_thread, NULL, loader_main, e) == 0;
	return e->loader_running ? 0 : SL_EIO;
}

int engine_create(const struct eng_config *cfg, eng_on_event *on_event, void *ctx, struct engine **out,
		  struct sl_err *err)
{
	int rc = check_config(cfg, err);
	if (rc != 0)
		return rc;
	struct sl_err why;
	const struct kn_ops *ops = backend_choose(cfg, backend_device_plausible(), &why, err);
	if (ops == NULL) /* the next start may find memory, or a silent driver well */
		return err->code == SL_ETIMEOUT || err->code == SL_ENOMEM ? err->code : SL_EINVAL;
	log_info("kernels: %s; %s", ops->name, why.text[0] != '\0' ? why.text : kn_plugin_line());
	struct engine *e = sl_zalloc(sizeof *e);
	rc = e != NULL ? idmap_init(&e->index) : SL_ENOMEM;
	if (rc == 0 && (rc = mailbox_init(&e->box)) != 0)
		idmap_dispose(&e->index);
	if (rc != 0) {
		sl_free(e);
		return sl_errf(err, rc, rc == SL_EIO ? "no wake descriptor" : "out of memory");
	}
	e->cfg = *cfg;
	e->cfg.models = NULL;
	e->cfg.adapters = NULL;
	e->cfg.adapter_folders = NULL;
	e->cfg.adapter_type = NULL;
	e->cfg.kv_type = NULL;
	e->cfg.weight_cache = NULL;
	e->cfg.kv_disk = NULL;
	e->step_tokens_auto = cfg->step_tokens == 0;
	if (e->step_tokens_auto)
		e->cfg.step_tokens = ops->ahead ? DEVICE_STEP_TOKENS : STEP_TOKENS;
	e->on_event = on_event;
	e->on_event_ctx = ctx;
	e->ops = ops;
	pthread_mutex_init(&e->info_lock, NULL);
	pthread_mutex_init(&e->report_lock, NULL);
	pthread_mutex_init(&e->index_lock, NULL);
	pthread_mutex_init(&e->weight_jobs.lock, NULL);
	pthread_cond_init(&e->weight_jobs.changed, NULL);
	list_init(&e->signaled);
	wait_limits_init(&e->wait_limits, (uint64_t)cfg->max_waiting, (uint64_t)cfg->max_sequences);
	wait_limits_init(&e->counts, (uint64_t)cfg->max_waiting, 0);
	text_queue_init(&e->text_queue);
	prompt_memo_init(&e->memo);
	e->text_threads = sl_zalloc_n((size_t)cfg->n_text_workers, sizeof *e->text_threads);
	rc = e->text_threads != NULL ? make_models(e, cfg) : SL_ENOMEM;
	if (rc == 0)
		rc = adapters_create(e, cfg, err);
	if (rc == SL_EINVAL) {
		engine_destroy(e);
		return rc;
	}
	if (rc == 0)
		rc = set_weight_cache(e, cfg);
	if (rc == 0 && (e->book = prefix_book_create()) == NULL)
		rc = SL_ENOMEM;
	if (rc == 0)
		kv_tier_open(e, cfg);
	if (rc == 0)
		rc = hand_open(e);
	if (rc == 0)
		rc = grammar_cache_create(&e->grammars);
	if (rc == 0)
		rc = step_create(e, &e->step);
	if (rc == 0)
		rc = start_threads(e);
	if (rc != 0) {
		engine_destroy(e);
		return sl_errf(err, rc, "the engine can't start: %s", sl_code_name(rc));
	}
	*out = e;
	return 0;
}

static void stop_threads(struct engine *e)
{
	atomic_store(&e->stopping, true);
	mailbox_nudge(&e->box);
	if (e->lora != NULL)
		lora_stop(e->lora);
	weight_jobs_close(e);
	if (e->step_running)
		pthread_join(e->step_thread, NULL);
	text_queue_close(&e->text_queue, TEXT_PROMPTS);
	for (int i = 0; i < e->n_text_threads; i++)
		pthread_join(e->text_threads[i], NULL);
	text_queue_close(&e->text_queue, TEXT_CONSTRAINTS); /* which the workers filled */
	if (e->compiler_running)
		pthread_join(e->compiler_thread, NULL);
	if (e->loader_running)
		pthread_join(e->loader_thread, NULL);
	memory_watch_stop(e->memory_watch);
	slow_watch_stop(e->slow_watch);
}

void engine_destroy(struct engine *e)
{
	stop_threads(e);
	device_watch_stop(atomic_load(&e->watch));
	if (e->step != NULL)
		step_destroy(e->step);
	grammar_cache_destroy(e->grammars); /* refers to the models' tokenizers */
	lora_destroy(e->lora);
	e->lora = NULL;
	for (int i = 0; i < e->n_models; i++) {
		model_unload(&e->models[i]);
		sl_free(e->models[i].name);
		sl_free(e->models[i].path);
		sl_free(e->models[i].head_path);
		sl_free(e->models[i].pooling);
		sl_free(e->models[i].places);
	}
	kv_tier_close(e);
	hand_close(e);
	prefix_book_destroy(e->book);
	kv_rebalance_destroy_memory(e);
	for (int i = 0; i < SEQ_N_STATES; i++)
		BUG_IF(atomic_load(&e->counters.in_state[i]) != 0, "engine: sequences are left in state %d", i);
	BUG_IF(atomic_load(&e->n_live) != 0 || atomic_load(&e->n_counting) != 0, "engine: requests are left");
	wait_limits_dispose(&e->wait_limits);
	wait_limits_dispose(&e->counts);
	sl_free(e->models);
	sl_free(e->weight_cache_folder);
	sl_free(e->text_threads);
	text_queue_dispose(&e->text_queue);
	prompt_memo_dispose(&e->memo);
	idmap_dispose(&e->index);
	mailbox_dispose(&e->box);
	pthread_cond_destroy(&e->weight_jobs.changed);
	pthread_mutex_destroy(&e->weight_jobs.lock);
	pthread_mutex_destroy(&e->index_lock);
	pthread_mutex_destroy(&e->info_lock);
	pthread_mutex_destroy(&e->report_lock);
	sl_free(e);
}
