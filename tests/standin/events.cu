/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: positions in streams with the clock of what is before them. What a stream or the host waits for is the
 * position at the time of the call, as a device has it.
 */
#include "tests/standin/standin.h"

#include <stdlib.h>

static uint64_t waits_for_copies;

extern "C" __attribute__((visibility("default"))) uint64_t sluice_emulation_waits_for_copies(void)
{
	return waits_for_copies;
}

static struct CUevent_st *events;

static bool event_is(const struct CUevent_st *e)
{
	const struct CUevent_st *at = events;
	while (at != NULL && at != e)
		at = at->next;
	return at != NULL;
}

#define EVENT(e)          \
	if (!event_is(e)) \
	return standin_refuse(cudaErrorInvalidResourceHandle, "%s of an event that is not there", __func__)

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	struct held h;
	cudaError_t rc;
	if (standin_struck(__func__, &rc) || (rc = standin_broken) != cudaSuccess)
		return standin_error(rc);
	struct CUevent_st *e = (struct CUevent_st *)calloc(1, sizeof *e);
	if (e == NULL)
		abort();
	e->timing = (flags & cudaEventDisableTiming) == 0;
	e->next = events;
	events = e;
	*out = e;
	return cudaSuccess;
}

static void forget_event(const struct op *o, void *event)
{
	if (o->event == event)
		const_cast<struct op *>(o)->event = NULL;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	struct held h;
	EVENT(e);
	struct CUevent_st **at = &events;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	streams_each_pending(forget_event, e);
	free(e);
	return standin_broken;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	struct held h;
	cudaError_t rc;
	EVENT(e);
	STREAM(s);
	standin_counts.records++;
	standin_log(STANDIN_RECORD, s, NULL);
	if (standin_struck(__func__, &rc) || (rc = standin_broken) != cudaSuccess)
		return standin_error(rc);
	e->captured = s->capture;
	e->was_captured = s->capture != NULL;
	e->recorded = s->capture == NULL;
	if (s->capture != NULL)
		return cudaSuccess;
	struct op *o = op_new(OP_RECORD);
	o->event = e;
	e->slot = s->slot;
	e->pos = s->pos + 1;
	e->asked = false;
	e->clock = s->clock;
	clock_join(&e->clock, &standin_host);
	e->clock.at[e->slot] = e->pos;
	return op_give(s, o);
}

/* What a query or a wait of the event may not be. */
static cudaError_t event_usable(const struct CUevent_st *e, const char *call)
{
	cudaError_t rc = capture_forbids(call);
	if (rc != cudaSuccess)
		return rc;
	if (e->was_captured) {
		if (e->captured != NULL)
			capture_invalidate(e->captured);
		return standin_refuse(cudaErrorCapturedEvent, "%s of an event that a capture recorded", call);
	}
	return standin_broken;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	struct held h;
	EVENT(e);
	standin_counts.queries++;
	cudaError_t rc = event_usable(e, __func__);
	if (rc != cudaSuccess || !e->recorded)
		return standin_error(rc);
	streams_stir();
	if (!op_done(e->slot, e->pos) && e->asked)
		streams_run_to(e->slot, e->pos);
	if (!op_done(e->slot, e->pos)) {
		e->asked = true;
		return standin_error(cudaErrorNotReady);
	}
	clock_join(&standin_host, &e->clock);
	return standin_error(standin_broken);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	struct held h;
	EVENT(e);
	standin_counts.waits++;
	standin_log(STANDIN_WAIT, NULL, NULL);
	cudaError_t rc = event_usable(e, __func__);
	if (rc != cudaSuccess || !e->recorded || standin_struck(__func__, &rc))
		return standin_error(rc);
	streams_run_to(e->slot, e->pos);
	clock_join(&standin_host, &e->clock);
	return standin_error(standin_broken);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t first, cudaEvent_t last)
{
	struct held h;
	EVENT(first);
	EVENT(last);
	if (standin_broken != cudaSuccess)
		return standin_error(standin_broken);
	if (!first->timing || !last->timing)
		return standin_refuse(cudaErrorInvalidResourceHandle, "elapsed time of an event without timing");
	if (!first->recorded || !last->recorded)
		return standin_refuse(cudaErrorInvalidResourceHandle,
				      "elapsed time of an event that was never recorded");
	if (!op_done(first->slot, first->pos) || !op_done(last->slot, last->pos))
		return standin_refuse(cudaErrorNotReady, "elapsed time of an event that has not come");
	*ms = (float)((double)last->at_ns - (double)first->at_ns) / 1e6f;
	if (*ms < 0)
		standin_finding("elapsed time from a later event to an earlier one");
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	struct held h;
	cudaError_t rc;
	STREAM(s);
	if (standin_struck(__func__, &rc) || (rc = standin_broken) != cudaSuccess)
		return standin_error(rc);
	if (s->capture != NULL && e->captured == s->capture)
		return cudaSuccess; /* of the same stream, which is in order */
	if (s->capture != NULL || e->was_captured) {
		if (s->capture != NULL)
			capture_invalidate(s->capture);
		return standin_refuse(cudaErrorStreamCaptureIsolation,
				      "cudaStreamWaitEvent across the border of a capture");
	}
	standin_counts.stream_waits++;
	standin_log(STANDIN_STREAM_WAIT, s, NULL);
	struct CUstream_st *other = e->recorded ? stream_of(e->slot) : NULL;
	waits_for_copies += other != NULL && !other->has_kernels;
	if (!e->recorded)
		return cudaSuccess;
	clock_join(&s->clock, &e->clock);
	struct op *o = op_new(OP_WAIT);
	o->wait_slot = e->slot;
	o->wait_pos = e->pos;
	return op_give(s, o);
}

void events_forget_capture(const struct capture *c)
{
	for (struct CUevent_st *e = events; e != NULL; e = e->next)
		if (e->captured == c)
			e->captured = NULL;
}

int events_alive(void)
{
	int n = 0;
	for (const struct CUevent_st *e = events; e != NULL; e = e->next)
		n++;
	return n;
}
