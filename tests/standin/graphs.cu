/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures of a stream, and the graphs made of them. A capture's operations become nodes in their order; an executable
 * has copies of its own, with their arguments, and lives until all its launches have run.
 */
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdlib.h>

struct capture {
	pthread_t thread;
	enum cudaStreamCaptureMode mode;
	bool invalid;
	struct op *first, **last;
	struct capture *next;
};

struct CUgraph_st {
	struct op *first;
	struct CUgraph_st *next;
};

struct CUgraphExec_st {
	struct op *first;
	int refs;
	struct CUgraphExec_st *next;
};

static struct capture *captures;
static struct CUgraph_st *graphs;
static int n_graphs;
static void (*on_capture)(void *ctx);
static void *on_capture_ctx;
static struct CUgraphExec_st *execs;
static int n_execs;

int execs_alive(void) { return n_execs; }

int graphs_alive(void) { return n_graphs; }

extern "C" __attribute__((visibility("default"))) void sluice_standin_on_capture(void (*f)(void *ctx), void *ctx)
{
	struct held h;
	on_capture = f;
	on_capture_ctx = ctx;
}

static void *beside_capture(void *)
{
	on_capture(on_capture_ctx);
	return NULL;
}

void capture_invalidate(struct capture *c) { c->invalid = true; }

/* CUDA Runtime API, cudaThreadExchangeStreamCaptureMode: which calls are unsafe, and for whom. */
cudaError_t capture_forbids(const char *call)
{
	for (struct capture *c = captures; c != NULL; c = c->next) {
		bool mine = pthread_equal(c->thread, pthread_self()) != 0;
		if (c->mode == cudaStreamCaptureModeRelaxed || (c->mode == cudaStreamCaptureModeThreadLocal && !mine))
			continue;
		c->invalid = true;
		return standin_refuse(cudaErrorStreamCaptureUnsupported, "%s during a capture", call);
	}
	return cudaSuccess;
}

cudaError_t capture_add(struct CUstream_st *s, struct op *o)
{
	struct capture *c = s->capture;
	if (c->invalid) {
		op_free(o);
		return standin_error(cudaErrorStreamCaptureInvalidated);
	}
	standin_counts.captured++;
	*c->last = o;
	c->last = &o->next;
	return cudaSuccess;
}

static void drop(struct op *o)
{
	while (o != NULL) {
		struct op *next = o->next;
		op_free(o);
		o = next;
	}
}

static cudaError_t begin_capture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	struct held h;
	cudaError_t e;
	standin_counts.captures++;
	if (!stream_is(s))
		return standin_refuse(cudaErrorInvalidResourceHandle,
				      "cudaStreamBeginCapture of a stream that is not there");
	standin_log(STANDIN_CAPTURE, s, NULL);
	if (standin_struck("cudaStreamBeginCapture", &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (s->capture != NULL) {
		capture_invalidate(s->capture);
		return standin_refuse(cudaErrorStreamCaptureUnsupported,
				      "cudaStreamBeginCapture of a stream in capture");
	}
	struct capture *c = (struct capture *)calloc(1, sizeof *c);
	if (c == NULL)
		abort();
	c->thread = pthread_self();
	c->mode = mode;
	c->last = &c->first;
	c->next = captures;
	captures = c;
	s->capture = c;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	cudaError_t e = begin_capture(s, mode);
	pthread_t other;
	if (e == cudaSuccess && on_capture != NULL && pthread_create(&other, NULL, beside_capture, NULL) == 0)
		pthread_join(other, NULL);
	return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
	struct held h;
	cudaError_t e = standin_broken;
	*out = NULL;
	if (!stream_is(s) || s->capture == NULL)
		return standin_refuse(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture without a capture");
	struct capture *c = s->capture, **at = &captures;
	if (c->mode != cudaStreamCaptureModeRelaxed && pthread_equal(c->thread, pthread_self()) == 0)
		return standin_refuse(cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture by another thread");
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	s->capture = NULL;
	struct CUgraph_st *g = (struct CUgraph_st *)calloc(1, sizeof *g);
	if (g == NULL)
		abort();
	g->first = c->first;
	bool invalid = c->invalid;
	events_forget_capture(c);
	free(c);
	if (invalid || e != cudaSuccess || standin_struck(__func__, &e)) {
		drop(g->first);
		free(g);
		return standin_error(invalid ? cudaErrorStreamCaptureInvalidated : e);
	}
	g->next = graphs;
	graphs = g;
	n_graphs++;
	*out = g;
	return cudaSuccess;
}

/* Where the graph stands in the list of all; NULL: it is not there. */
static struct CUgraph_st **find_graph(const struct CUgraph_st *g)
{
	struct CUgraph_st **at = &graphs;
	while (*at != NULL && *at != g)
		at = &(*at)->next;
	return *at != NULL ? at : NULL;
}

static struct op *copy_of(const struct op *o)
{
	struct op *n = op_new(o->kind);
	*n = *o;
	n->next = NULL;
	if (o->command != NULL) {
		void *room = NULL;
		if (posix_memalign(&room, KN_COMMAND_ALIGN, o->command->bytes) != 0)
			abort();
		memcpy(room, (const void *)o->command, o->command->bytes);
		n->command = (struct kn_command *)room;
	}
	return n;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
	struct held h;
	cudaError_t e;
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (find_graph(g) == NULL)
		return standin_refuse(cudaErrorInvalidValue, "cudaGraphInstantiate of a graph that is not there");
	struct CUgraphExec_st *x = (struct CUgraphExec_st *)calloc(1, sizeof *x);
	if (x == NULL)
		abort();
	struct op **last = &x->first;
	for (const struct op *o = g->first; o != NULL; o = o->next) {
		*last = copy_of(o);
		last = &(*last)->next;
	}
	x->refs = 1;
	x->next = execs;
	execs = x;
	n_execs++;
	standin_counts.instantiated++;
	*out = x;
	return cudaSuccess;
}

static bool exec_is(const struct CUgraphExec_st *x)
{
	const struct CUgraphExec_st *at = execs;
	while (at != NULL && at != x)
		at = at->next;
	return at != NULL;
}

/* What is uploaded has its memory on the device: both copies and nodes are the executable's. */
cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s)
{
	struct held h;
	cudaError_t e;
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (!exec_is(x) || !stream_is(s))
		return standin_refuse(cudaErrorInvalidValue,
				      "cudaGraphUpload of a graph or a stream that is not there");
	if (s->capture != NULL) {
		capture_invalidate(s->capture);
		return standin_refuse(cudaErrorStreamCaptureUnsupported, "cudaGraphUpload in a capture");
	}
	return op_give(s, op_new(OP_NOTHING));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	struct held h;
	cudaError_t e = cudaSuccess;
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (!exec_is(x) || !stream_is(s))
		return standin_refuse(cudaErrorInvalidValue,
				      "cudaGraphLaunch of a graph or a stream that is not there");
	if (s->capture != NULL) {
		capture_invalidate(s->capture);
		return standin_refuse(cudaErrorNotSupported, "cudaGraphLaunch in a capture: not in this stand-in");
	}
	standin_counts.graph_launches++;
	standin_log(STANDIN_GRAPH, s, NULL);
	for (const struct op *n = x->first; n != NULL && e == cudaSuccess; n = n->next) {
		struct op *o = op_new(n->kind);
		*o = *n;
		o->next = NULL;
		o->exec = x;
		x->refs++;
		standin_counts.graph_nodes++;
		e = op_give(s, o);
	}
	return e;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	struct held h;
	struct CUgraph_st **at = find_graph(g);
	if (at == NULL)
		return standin_refuse(cudaErrorInvalidValue, "cudaGraphDestroy of a graph that is not there");
	*at = g->next;
	drop(g->first);
	free(g);
	n_graphs--;
	return standin_broken;
}

void exec_unref(struct CUgraphExec_st *x)
{
	if (--x->refs > 0)
		return;
	drop(x->first);
	free(x);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
	struct held h;
	struct CUgraphExec_st **at = &execs;
	if (!exec_is(x))
		return standin_refuse(cudaErrorInvalidValue, "cudaGraphExecDestroy of a graph that is not there");
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	n_execs--;
	exec_unref(x);
	return standin_broken;
}
