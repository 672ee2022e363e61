/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. What a copy reads from the host is read when it runs, pageable memory too: a device that reaches
 * the host's memory by itself need not stage it before the call returns. A source that has changed by then is a
 * finding, and what a copy to the host will write is junk until it has run.
 */
#include "tests/standin/standin.h"

enum { JUNK = 0x5A, MOST_JUNK = 1 << 20 };

static uint64_t hash_of(const uint8_t *p, size_t n)
{
	uint64_t h = n, w;
	for (; n >= sizeof w; n -= sizeof w, p += sizeof w) {
		memcpy(&w, p, sizeof w);
		h = (h ^ w) * 0x9E3779B97F4A7C15ull;
		h ^= h >> 32;
	}
	for (; n > 0; n--)
		h = (h ^ *p++) * 0x9E3779B97F4A7C15ull;
	return h;
}

static bool device_side(const void *p)
{
	return in_arena(p) && arena_kind[((const uint8_t *)p - arena) / ARENA_PAGE] != MEMORY_PINNED;
}

/* All of a copy's range is there. */
static bool there(const void *p, size_t n)
{
	return !in_arena(p) ||
	       (arena_kind[((const uint8_t *)p - arena) / ARENA_PAGE] != MEMORY_FREED && piece_of(p, n) != NULL);
}

static enum standin_event_kind direction(const struct op *o)
{
	bool in = !device_side(o->from), out = !device_side(o->to);
	return in && !out ? STANDIN_COPY_IN : out && !in ? STANDIN_COPY_OUT : STANDIN_COPY_WITHIN;
}

static void count(const struct op *o, enum standin_event_kind kind)
{
	struct standin_counts *c = &standin_counts;
	c->copies_in += kind == STANDIN_COPY_IN;
	c->copies_out += kind == STANDIN_COPY_OUT;
	c->copies_within += kind == STANDIN_COPY_WITHIN;
	c->bytes_in += kind == STANDIN_COPY_IN ? o->bytes : 0;
	c->bytes_out += kind == STANDIN_COPY_OUT ? o->bytes : 0;
	c->pageable_in += kind == STANDIN_COPY_IN && !in_arena(o->from);
	c->pageable_out += kind == STANDIN_COPY_OUT && !in_arena(o->to);
}

/* What changes on its way would be seen, unless an operation that has not run changes it. */
static void prepare(struct op *o, enum standin_event_kind kind)
{
	bool reads = false, writes = false;
	const char *name;
	const void *host = kind == STANDIN_COPY_IN ? (const void *)o->from : (const void *)o->to;
	if (in_arena(host))
		piece_uses(piece_of(host, 1), &reads, &writes, &name);
	if (kind == STANDIN_COPY_IN && !writes) {
		o->hashed = true;
		o->hash = hash_of(o->from, o->bytes);
	}
	if (kind == STANDIN_COPY_OUT && !reads && !writes && o->bytes <= MOST_JUNK)
		memset(o->to, JUNK, o->bytes);
}

static cudaError_t give(struct CUstream_st *s, struct op *o, const char *call)
{
	enum standin_event_kind kind = o->kind == OP_FILL ? STANDIN_FILL : direction(o);
	bool pageable =
	    (kind == STANDIN_COPY_IN && !in_arena(o->from)) || (kind == STANDIN_COPY_OUT && !in_arena(o->to));
	standin_log(kind, s, o);
	if (kind == STANDIN_FILL)
		standin_counts.fills++;
	else
		count(o, kind);
	if (s->capture != NULL && pageable) {
		capture_invalidate(s->capture);
		op_free(o);
		return standin_refuse(cudaErrorStreamCaptureUnsupported, "%s of pageable memory in a capture", call);
	}
	if (s->capture == NULL && standin_broken == cudaSuccess && o->bytes > 0 &&
	    (kind == STANDIN_COPY_IN || kind == STANDIN_COPY_OUT))
		prepare(o, kind);
	return op_give(s, o);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind, cudaStream_t s)
{
	struct held h;
	cudaError_t e;
	if (!stream_is(s))
		return standin_refuse(cudaErrorInvalidResourceHandle, "%s in a stream that is not there", __func__);
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (!there(to, bytes) || !there(from, bytes))
		return standin_refuse(cudaErrorInvalidValue, "%s of %zu bytes from %s to %s, which has fewer or none",
				      __func__, bytes, memory_name(from), memory_name(to));
	struct op *o = op_new(OP_COPY);
	o->to = (uint8_t *)to;
	o->from = (const uint8_t *)from;
	o->bytes = bytes;
	return give(s, o, __func__);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
	struct held h;
	cudaError_t e;
	if (!stream_is(s))
		return standin_refuse(cudaErrorInvalidResourceHandle, "%s in a stream that is not there", __func__);
	if (standin_struck(__func__, &e) || (e = standin_broken) != cudaSuccess)
		return standin_error(e);
	if (!in_arena(to) || !there(to, bytes))
		return standin_refuse(cudaErrorInvalidValue, "%s of %zu bytes at %s", __func__, bytes, memory_name(to));
	struct op *o = op_new(OP_FILL);
	o->to = (uint8_t *)to;
	o->value = value;
	o->bytes = bytes;
	return give(s, o, __func__);
}

void copy_run(const struct op *o)
{
	if (o->bytes == 0)
		return;
	if (!there(o->to, o->bytes) || (o->from != NULL && !there(o->from, o->bytes))) {
		standin_break(cudaErrorIllegalAddress, "a copy", "to or from memory that was freed");
		return;
	}
	if (o->hashed && hash_of(o->from, o->bytes) != o->hash)
		standin_finding("the source of a copy, %zu bytes of %s, changed before the copy was made", o->bytes,
				memory_name(o->from));
	if (o->from != NULL)
		access_range(o, o->from, o->bytes, false);
	access_range(o, o->to, o->bytes, true);
	if (o->kind == OP_COPY)
		memmove(o->to, o->from, o->bytes);
	else
		memset(o->to, o->value, o->bytes);
}
