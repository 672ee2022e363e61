/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams: queues of operations that run when the policy has them run (standin.h).
 */
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct standin_counts standin_counts;
struct clock standin_host;
static enum standin_policy { STANDIN_LATE, STANDIN_EARLY, STANDIN_RANDOM } policy_now;
uint64_t standin_now_ns;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct CUstream_st *all;
static uint32_t done_at[MAX_STREAMS], last_pos[MAX_STREAMS];
static int next_slot;
static uint64_t random_state = 1;
static bool early_copies;

held::held() { pthread_mutex_lock(&lock); }

held::~held() { pthread_mutex_unlock(&lock); }

uint32_t standin_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static void set_policy(enum standin_policy policy, uint32_t seed)
{
	policy_now = policy;
	random_state = seed * 2654435761u + 1;
	sluice_emulation_order(policy == STANDIN_RANDOM ? (int)(seed % 2) : EMU_FORWARD, seed);
}

__attribute__((constructor)) static void policy_of_environment(void)
{
	const char *s = getenv("SLUICE_STANDIN");
	if (s == NULL)
		return;
	if (strncmp(s, "random:", 7) == 0)
		set_policy(STANDIN_RANDOM, (uint32_t)strtoul(s + 7, NULL, 10));
	else
		set_policy(strcmp(s, "early") == 0 ? STANDIN_EARLY : STANDIN_LATE, 0);
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_eager(bool at_once)
{
	struct held h;
	if (policy_now != STANDIN_RANDOM)
		policy_now = at_once ? STANDIN_EARLY : STANDIN_LATE;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_early_copies(int early)
{
	early_copies = early != 0;
}

extern "C" __attribute__((visibility("default"))) void sluice_standin_counts(struct standin_counts *out)
{
	struct held h;
	*out = standin_counts;
}

/* ---- the log of calls ---- */

enum { LOG = 65536 };
static struct standin_event log_of_calls[LOG];
static uint64_t n_logged, log_from;

int streams_pending(void)
{
	int n = 0;
	for (const struct CUstream_st *s = all; s != NULL; s = s->next)
		n += (int)(s->pos - done_at[s->slot]);
	return n;
}

void standin_log(enum standin_event_kind kind, const struct CUstream_st *s, const struct op *o)
{
	struct standin_event *e = &log_of_calls[n_logged++ % LOG];
	*e = {};
	e->kind = kind;
	e->stream = s != NULL ? s->slot : -1;
	e->pending = streams_pending();
	if (o == NULL)
		return;
	e->to = o->to;
	e->from = o->from;
	e->bytes = o->bytes;
	e->name = o->name;
	e->pinned = kind == STANDIN_COPY_IN ? in_arena(o->from) : kind == STANDIN_COPY_OUT && in_arena(o->to);
}

extern "C" __attribute__((visibility("default"))) size_t sluice_standin_log(size_t skip, struct standin_event *out,
									    size_t max)
{
	struct held h;
	uint64_t first = n_logged - log_from > LOG ? n_logged - LOG : log_from;
	size_t n = 0;
	for (uint64_t i = first + skip; i < n_logged && n < max; i++)
		out[n++] = log_of_calls[i % LOG];
	return n;
}

extern "C" __attribute__((visibility("default"))) void sluice_standin_log_clear(void)
{
	struct held h;
	log_from = n_logged;
}

/* ---- clocks ---- */

bool op_before(int slot, uint32_t pos, const struct clock *c) { return c->at[slot] >= pos; }

bool op_done(int slot, uint32_t pos) { return done_at[slot] >= pos; }

void clock_join(struct clock *to, const struct clock *from)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		to->at[i] = from->at[i] > to->at[i] ? from->at[i] : to->at[i];
}

/* ---- operations ---- */

struct op *op_new(enum op_kind kind)
{
	struct op *o = (struct op *)calloc(1, sizeof *o);
	if (o == NULL)
		abort();
	o->kind = kind;
	return o;
}

void op_free(struct op *o)
{
	if (o->exec != NULL)
		exec_unref(o->exec);
	else
		free(o->command);
	free(o);
}

static void product_run(const struct op *o)
{
	const struct standin_product *p = &o->product;
	const size_t each = p->numbers == 2 ? 1 : 2;
	if (kernel_struck()) {
		standin_break(cudaErrorLaunchFailure, "a product", "as a test wants it");
		return;
	}
	access_range(o, p->w, (size_t)p->n_out * (size_t)p->n_in * each, false);
	access_range(o, p->x, (size_t)p->n_rows * (size_t)p->n_in * each, false);
	access_range(o, p->y, (size_t)p->n_rows * (size_t)p->n_out * sizeof(float), true);
	if (p->w_scale != NULL) {
		access_range(o, p->w_scale, (size_t)p->n_out * sizeof(float), false);
		access_range(o, p->x_scale, (size_t)p->n_rows * sizeof(float), false);
	}
	if (p->workspace_bytes > 0)
		access_range(o, p->workspace, sizeof(float), true);
	if (standin_broken == cudaSuccess)
		p->run(p);
	standin_now_ns += p->way == 0 ? 1000 : 5000000;
}

static void op_run(struct op *o)
{
	if (o->kind == OP_KERNEL) {
		standin_now_ns += kernel_ns(o->command);
		const char *wrong = kernel_run(o);
		if (wrong != NULL)
			standin_break(cudaErrorLaunchFailure, o->name, wrong);
	} else if (o->kind == OP_COPY || o->kind == OP_FILL) {
		standin_now_ns += 1000;
		copy_run(o);
	} else if (o->kind == OP_PRODUCT) {
		product_run(o);
	} else if (o->kind == OP_RECORD && o->event != NULL && o->event->pos == o->pos && o->event->slot == o->slot) {
		o->event->at_ns = standin_now_ns;
	}
}

static bool ready(const struct CUstream_st *s)
{
	const struct op *o = s->first;
	return o != NULL && (o->kind != OP_WAIT || op_done(o->wait_slot, o->wait_pos));
}

static void run_first(struct CUstream_st *s)
{
	struct op *o = s->first;
	s->first = o->next;
	if (s->first == NULL)
		s->last = &s->first;
	report_ran(o);
	if (standin_broken == cudaSuccess)
		op_run(o);
	done_at[o->slot] = o->pos > done_at[o->slot] ? o->pos : done_at[o->slot];
	op_free(o);
}

/* Some stream whose next operation may run; NULL: none has one. */
static struct CUstream_st *any_ready(void)
{
	struct CUstream_st *found = NULL;
	uint32_t n = 0;
	for (struct CUstream_st *s = all; s != NULL; s = s->next)
		if (ready(s) && standin_random(++n) == 0)
			found = s;
	return found;
}

struct CUstream_st *stream_of(int slot)
{
	for (struct CUstream_st *s = all; s != NULL; s = s->next)
		if (s->slot == slot)
			return s;
	return NULL;
}

void streams_run_to(int slot, uint32_t pos)
{
	while (done_at[slot] < pos) {
		struct CUstream_st *s = policy_now == STANDIN_RANDOM ? any_ready() : stream_of(slot);
		if (s == NULL || s->first == NULL)
			abort();
		if (!ready(s))
			streams_run_to(s->first->wait_slot, s->first->wait_pos);
		run_first(s);
	}
}

/* What a device may have done meanwhile. */
void streams_stir(void)
{
	if (policy_now != STANDIN_RANDOM)
		return;
	for (uint32_t n = standin_random(3) == 0 ? standin_random(12) : standin_random(2); n > 0; n--) {
		struct CUstream_st *s = any_ready();
		if (s == NULL)
			return;
		run_first(s);
	}
}

static void run_stream(struct CUstream_st *s) { streams_run_to(s->slot, s->pos); }

void streams_run_all(void)
{
	for (struct CUstream_st *s = all; s != NULL; s = s->next)
		run_stream(s);
	for (struct CUstream_st *s = all; s != NULL; s = s->next)
		clock_join(&standin_host, &s->clock);
}

void streams_drop_all(void)
{
	for (struct CUstream_st *s = all; s != NULL; s = s->next) {
		for (struct op *o; (o = s->first) != NULL;) {
			s->first = o->next;
			op_free(o);
		}
		s->last = &s->first;
		done_at[s->slot] = s->pos;
		clock_join(&standin_host, &s->clock);
	}
}

void streams_each_pending(void (*f)(const struct op *o, void *ctx), void *ctx)
{
	for (const struct CUstream_st *s = all; s != NULL; s = s->next)
		for (const struct op *o = s->first; o != NULL; o = o->next)
			f(o, ctx);
}

int streams_alive(void)
{
	int n = 0;
	for (const struct CUstream_st *s = all; s != NULL; s = s->next)
		n++;
	return n;
}

bool stream_is(const struct CUstream_st *s)
{
	const struct CUstream_st *at = all;
	while (at != NULL && at != s)
		at = at->next;
	return at != NULL;
}

static void give(struct CUstream_st *s, struct op *o)
{
	clock_join(&s->clock, &standin_host);
	o->slot = s->slot;
	o->pos = ++s->pos;
	last_pos[s->slot] = s->pos;
	if (s->pos >> POS_BITS != 0)
		abort();
	s->clock.at[s->slot] = s->pos;
	o->clock = s->clock;
	*s->last = o;
	s->last = &o->next;
}

cudaError_t op_give(struct CUstream_st *s, struct op *o)
{
	if (standin_broken != cudaSuccess) {
		op_free(o);
		return standin_broken;
	}
	if (s->capture != NULL)
		return capture_add(s, o);
	s->has_kernels |= o->kind == OP_KERNEL;
	give(s, o);
	if (policy_now == STANDIN_EARLY || (early_copies && !s->has_kernels))
		run_stream(s);
	streams_stir();
	return standin_error(standin_broken);
}

/* ---- calls ---- */

static int product_give(void *stream, const struct standin_product *p)
{
	struct held h;
	struct op *o = op_new(OP_PRODUCT);
	o->product = *p;
	o->name = "a product of the library";
	standin_counts.products++;
	standin_counts.products_e4m3 += p->numbers == 2;
	standin_log(STANDIN_PRODUCT, (struct CUstream_st *)stream, o);
	return op_give((struct CUstream_st *)stream, o);
}

static void library_finding(const char *text)
{
	struct held h;
	standin_finding("%s", text);
}

static const struct standin_calls calls = {product_give, library_finding, standin_capability};

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int)
{
	struct held h;
	cudaError_t e;
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	struct CUstream_st *s = (struct CUstream_st *)calloc(1, sizeof *s);
	for (int i = 0; i < MAX_STREAMS && stream_of(next_slot) != NULL; i++)
		next_slot = (next_slot + 1) % MAX_STREAMS;
	if (s == NULL || stream_of(next_slot) != NULL)
		abort();
	s->calls = &calls;
	s->slot = next_slot;
	next_slot = (next_slot + 1) % MAX_STREAMS;
	s->pos = last_pos[s->slot];
	s->clock = standin_host;
	s->clock.at[s->slot] = s->pos;
	s->last = &s->first;
	s->next = all;
	all = s;
	*out = s;
	return cudaSuccess;
}

/* Its work ends first: a device lets the call return at once. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	struct held h;
	STREAM(s);
	if (s->capture != NULL)
		capture_invalidate(s->capture);
	run_stream(s);
	struct CUstream_st **at = &all;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
	cudaError_t e = standin_broken;
	standin_heal();
	return e;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	struct held h;
	cudaError_t e;
	STREAM(s);
	standin_counts.waits++;
	standin_log(STANDIN_WAIT, s, NULL);
	if (standin_struck(__func__, &e) || (e = capture_forbids(__func__)) != cudaSuccess)
		return standin_error(e);
	if (s->capture != NULL) {
		capture_invalidate(s->capture);
		return standin_refuse(cudaErrorStreamCaptureUnsupported,
				      "cudaStreamSynchronize of a stream in capture");
	}
	run_stream(s);
	clock_join(&standin_host, &s->clock);
	return standin_error(standin_broken);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return standin_broken;
}

extern "C" void nvtxNameCudaStreamA(cudaStream_t s, const char *name) { snprintf(s->name, sizeof s->name, "%s", name); }

static thread_local int ranges;

extern "C" int nvtxRangePushA(const char *) { return ranges++; }

extern "C" int nvtxRangePop(void)
{
	if (ranges == 0)
		standin_finding("nvtxRangePop of no range");
	return --ranges;
}
