/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine whose calls of the device come in the same order in every run, for soaks of the stand-in for CUDA's runtime
 * in random orders of its streams (tests/soak/standin.sh): a seed that finds something finds it again. Time stands
 * still; requests wait without credit until the engine knows all of them; every later credit and cancel comes from the
 * step thread itself, when it has reported a certain token.
 *
 * With SLUICE_ORDERS set, a program runs these cases alone. SLUICE_ORDERS_ANSWERS has the digests of all kinds, joined
 * by commas, that the answers must have; without it a case prints its own.
 *
 * Thread: what the step thread calls here changes struct orders while the test's own thread waits for requests to end.
 */
#ifndef TESTS_KERNELS_ORDERS_H
#define TESTS_KERNELS_ORDERS_H

#include "tests/unit/engine/core/engine_run.h"

#include <unistd.h>

#include "engine/step/internal.h"
#include "tests/emulation/emu_alive.h"
#include "tests/kernels/soak.h"
#include "tests/kernels/tables.h"
#include "tests/support/tiny_gguf.h"

/* ---- the device and its model ---- */

static inline struct emu_alive orders_alive(void)
{
	struct emu_alive a;
	void (*tell)(struct emu_alive *);
	void *symbol = cuda_function("sluice_emulation_alive");
	memcpy(&tell, &symbol, sizeof tell);
	tell(&a);
	return a;
}

static inline void assert_nothing_left(void)
{
	struct emu_alive a = orders_alive();
	assert_int_equal(a.bytes, 0);
	assert_int_equal(a.devices, 0);
	assert_int_equal(a.graphs, 0);
}

static char tiny_path[64];

static inline int make_tiny_model(void **state)
{
	(void)state;
	snprintf(tiny_path, sizeof tiny_path, "/tmp/sluice-tiny-%d.gguf", (int)getpid());
	return tiny_gguf_write(tiny_path, 1) ? 0 : -1;
}

static inline int drop_tiny_model(void **state)
{
	(void)state;
	return unlink(tiny_path);
}

/* ---- requests ---- */

struct orders {
	struct run r;
	uint64_t first; /* the requests' identifiers: first to first + n - 1 */
	int n;
	uint32_t each;   /* tokens that every request gets before one gets more */
	uint64_t cancel; /* that request is cancelled at its cancel_at-th token; 0: none is */
	uint32_t cancel_at;
	uint64_t fault; /* launches from the first request's second token on until one fails; 0: none does */
	bool begun;
	int n_there;
	/* Tokens that were reported while the model's next step was on the device, and while another model's was. */
	uint64_t n_ahead, n_beside;
};

static inline void orders_count(struct orders *o, const struct eng_event *ev)
{
	for (int i = 0; i < o->r.e->n_models; i++) {
		int n = o->r.e->models[i].n_in_flight;
		o->n_ahead += n > 1 ? ev->u.tokens.n : 0;
		o->n_beside += n > 0 && o->r.e->n_models > 1 && i != (int)(ev->id - o->first) % o->r.e->n_models
				   ? ev->u.tokens.n
				   : 0;
	}
}

/* One more request has had its first tokens. */
static inline void orders_there(struct orders *o)
{
	if (++o->n_there < o->n)
		return;
	for (uint64_t i = 0; i < (uint64_t)o->n; i++)
		run_credit(&o->r, o->first + i, 1000);
}

static inline void orders_on_event(void *ctx, const struct eng_event *ev)
{
	struct orders *o = ctx;
	run_on_event(&o->r, ev);
	if (ev->id < o->first || ev->id >= o->first + (uint64_t)o->n)
		return;
	uint32_t n = o->r.answers[ev->id].n_tokens, was = n - (ev->kind == ENG_TOKENS ? ev->u.tokens.n : 0);
	if (ev->kind == ENG_DONE && n < o->each)
		orders_there(o);
	if (ev->kind != ENG_TOKENS)
		return;
	orders_count(o, ev);
	for (uint64_t i = 0; i < (uint64_t)o->n && !o->begun; i++)
		run_credit(&o->r, o->first + i, o->each - (i == 0));
	o->begun = true;
	if (was < o->each && n >= o->each)
		orders_there(o);
	if (ev->id == o->cancel && was < o->cancel_at && n >= o->cancel_at)
		engine_cancel(o->r.e, ev->id);
	if (o->fault > 0 && ev->id == o->first && was < 2 && n >= 2)
		fault_arm(FAULT_DEVICE, (long)o->fault, 1);
}

static inline void orders_start(struct orders *o, const struct eng_config *cfg)
{
	*o = (struct orders){0};
	run_clock_hold();
	assert_int_equal(run_start_rc_with(&o->r, cfg, orders_on_event, o), 0);
	for (int i = 0; i < cfg->n_models; i++) {
		RUN_UNTIL(&o->r, o->r.states[i] > PROTO_MODEL_LOADING);
		assert_int_equal(o->r.states[i], PROTO_MODEL_READY);
	}
}

/* Serves requests together, each with `each` tokens before one has more. Cleared are what o->cancel and o->fault ask
 * for. */
static inline void orders_serve(struct orders *o, uint64_t first, const struct proto_submit *reqs, int n, uint32_t each)
{
	o->first = first;
	o->n = n;
	o->each = each;
	o->begun = false;
	o->n_there = 0;
	for (uint64_t i = 0; i < (uint64_t)n; i++)
		run_submit(&o->r, first + i, &reqs[i]);
	for (uint64_t i = 0; i < (uint64_t)n; i++)
		RUN_UNTIL(&o->r, o->r.answers[first + i].queued);
	run_credit(&o->r, first, 1);
	for (uint64_t i = 0; i < (uint64_t)n; i++)
		run_until_done(&o->r, first + i);
	fault_disarm_all();
	run_until_idle(&o->r);
	o->cancel = o->fault = 0;
}

/* ---- what came of it ---- */

static inline uint64_t orders_mix(uint64_t h, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001B3ull;
	return h;
}

static inline uint64_t orders_digest(const struct answer *a, int n)
{
	uint64_t h = 0xCBF29CE484222325ull;
	for (int i = 0; i < n; i++) {
		h = orders_mix(h, &a[i].end.finish, sizeof a[i].end.finish);
		h = orders_mix(h, a[i].ids, a[i].n_tokens * sizeof *a[i].ids);
		h = orders_mix(h, a[i].logprobs, a[i].n_tokens * sizeof *a[i].logprobs);
		h = orders_mix(h, a[i].text, a[i].n_text);
	}
	return h;
}

/* Compares the answers of a kind with those that are expected. */
static inline void orders_judge(int kind, uint64_t digest)
{
	const char *at = getenv("SLUICE_ORDERS_ANSWERS");
	for (int i = 0; i < kind && at != NULL; i++)
		at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL;
	if (at == NULL) {
		printf("answers %016llx\n", (unsigned long long)digest);
		return;
	}
	uint64_t want = strtoull(at, NULL, 16);
	if (want != digest)
		fail_msg("kind %d: other answers than at once: %016llx, not %016llx", kind, (unsigned long long)digest,
			 (unsigned long long)want);
}

#endif
