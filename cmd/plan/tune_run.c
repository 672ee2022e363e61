/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's threads report events; this thread sends at the requests' times and waits. One lock.
 */
#include "cmd/plan/tune_run.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"

enum { LOAD_S = 600, MAX_WAITING = 65536 };

struct run {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct plan_request *all;
	size_t n, n_done;
	uint64_t began_ns;
	bool ready, failed;
	uint32_t n_vocab;
	char reason[200];
};

/* ---- events, on the engine's threads ---- */

static void on_model(struct run *r, const struct proto_model *m)
{
	r->ready = r->ready || m->state == PROTO_MODEL_READY;
	r->n_vocab = m->n_vocab;
	if (m->state != PROTO_MODEL_FAILED)
		return;
	r->failed = true;
	snprintf(r->reason, sizeof r->reason, "%.*s", (int)m->reason.n, m->reason.at);
}

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct run *r = ctx;
	pthread_mutex_lock(&r->lock);
	if (ev->kind == ENG_MODEL) {
		on_model(r, &ev->u.model);
	} else if (ev->id >= 1 && ev->id <= r->n) {
		struct plan_request *q = &r->all[ev->id - 1];
		if (ev->kind == ENG_TOKENS) {
			q->last_ns = clock_now_ns() - r->began_ns;
			q->first_ns = q->first_ns == 0 ? q->last_ns : q->first_ns;
			q->n_made += ev->u.tokens.n;
		}
		if (ev->kind == ENG_DONE && ev->u.done.error != PROTO_ERR_NONE)
			q->first_ns = q->last_ns = 0; /* not answered */
		r->n_done += ev->kind == ENG_DONE;
	}
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

/* ---- this thread ---- */

/* With the lock: until there is news or the time has come. False: it has. */
static bool wait_until(struct run *r, uint64_t ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
	return pthread_cond_timedwait(&r->changed, &r->lock, &ts) == 0;
}

/* Token k of a request: of its beginning, which others share, or its own. */
static uint32_t id_of(const struct run *r, const struct plan_request *q, uint32_t k)
{
	uint64_t x = (k < q->work.n_shared ? q->work.prefix : (uint64_t)(q - r->all) + 77777) * 1000003 + k;
	x = (x ^ x >> 29) * 0x9E3779B97F4A7C15u;
	return r->n_vocab / 4 + (uint32_t)((x >> 32) % (r->n_vocab / 2 + 1));
}

static int submit(struct engine *e, struct run *r, size_t i)
{
	struct plan_request *q = &r->all[i];
	const uint32_t n = q->work.n_prompt;
	uint8_t *bytes = sl_zalloc_n(n, 4);
	if (bytes == NULL)
		return SL_ENOMEM;
	for (uint32_t k = 0; k < n; k++) {
		const uint32_t id = id_of(r, q, k);
		for (unsigned b = 0; b < 4; b++)
			bytes[4 * (size_t)k + b] = (uint8_t)(id >> 8 * b);
	}
	const struct proto_submit req = {PROTO_SUBMIT_OFF,
					 .tenant = 1,
					 .prompt_kind = PROTO_PROMPT_TOKENS,
					 .prompt = {(const char *)bytes, 4 * (size_t)n},
					 .max_tokens = q->work.n_answer,
					 .flags = PROTO_SUBMIT_IGNORE_EOS,
					 .top_p = 1};
	q->first_ns = q->last_ns = q->n_made = 0;
	int rc = engine_submit(e, i + 1, &req);
	sl_free(bytes);
	if (rc == 0)
		engine_credit(e, i + 1, q->work.n_answer);
	return rc;
}

static int await_model(struct run *r, struct sl_err *err)
{
	const uint64_t end = clock_now_ns() + LOAD_S * (uint64_t)NS_PER_S;
	pthread_mutex_lock(&r->lock);
	while (!r->ready && !r->failed && wait_until(r, end))
		;
	const bool ready = r->ready;
	pthread_mutex_unlock(&r->lock);
	return ready ? 0 : sl_errf(err, SL_EIO, "%s", r->failed ? r->reason : "the model did not load in time");
}

static int send_all(struct engine *e, struct run *r, struct sl_err *err)
{
	r->began_ns = clock_now_ns();
	for (size_t i = 0; i < r->n; i++) {
		const uint64_t at = r->began_ns + r->all[i].came_ns;
		pthread_mutex_lock(&r->lock);
		while (clock_now_ns() < at)
			(void)wait_until(r, at);
		pthread_mutex_unlock(&r->lock);
		int rc = submit(e, r, i);
		if (rc != 0)
			return sl_errf(err, rc, "request %zu could not be sent: %s", i + 1, sl_code_name(rc));
	}
	return 0;
}

static void await_answers(struct engine *e, struct run *r, double most_s)
{
	const uint64_t end = clock_now_ns() + (uint64_t)(most_s * 1e9);
	pthread_mutex_lock(&r->lock);
	while (r->n_done < r->n && wait_until(r, end))
		;
	const bool late = r->n_done < r->n;
	pthread_mutex_unlock(&r->lock);
	for (size_t i = 0; late && i < r->n; i++)
		engine_cancel(e, i + 1);
}

static struct eng_config config_of(const struct tune_setting *how, const struct eng_model_config *model)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .backend = "auto",
				   .n_threads = how->n_threads,
				   .n_text_workers = 1,
				   .page_tokens = PLAN_PAGE,
				   .kv_bytes = how->kv_bytes,
				   .kv_type = how->kv,
				   .max_sequences = (int)how->max_sequences,
				   .max_waiting = MAX_WAITING,
				   .step_tokens = (int)how->step_tokens,
				   .max_prompt_bytes = 4 * WORKLOAD_MAX_TOKENS,
				   .itl_target_ms = (int)(how->itl_target_ns / NS_PER_MS),
				   .spec_mode = how->max_draft > 0 ? ENG_SPEC_NGRAM : ENG_SPEC_OFF,
				   .spec_max_draft = how->max_draft > 0 ? (int)how->max_draft : 1};
}

int tune_run(const struct tune_setting *how, struct plan_request *all, size_t n, double most_s, struct sl_err *err)
{
	struct run r = {.all = all, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
	const struct eng_model_config model = {.name = "tuned", .path = how->model};
	const struct eng_config cfg = config_of(how, &model);
	struct engine *e = NULL;
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r.changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int rc = engine_create(&cfg, on_event, &r, &e, err);
	if (rc == 0) {
		rc = await_model(&r, err);
		if (rc == 0)
			rc = send_all(e, &r, err);
		if (rc == 0)
			await_answers(e, &r, most_s);
		engine_destroy(e);
	}
	for (size_t i = 0; i < n; i++)
		if (all[i].n_made < all[i].work.n_answer)
			all[i].first_ns = all[i].last_ns = 0;
	pthread_cond_destroy(&r.changed);
	return rc;
}
