/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to an engine, frames in: decoded and delivered to the listeners of their sequences.
 *
 * Frames of running sequences that come in one read are delivered by lanes, so that the first connection's events leave
 * before the last one's are handled, and memory fetched for rendering is still cached when they are written.
 * Single-threaded: the loop of its gw_thread.
 */
#include "gateway/generation/engine_conn_priv.h"

#include <string.h>

#include "base/flight.h"
#include "base/log.h"
#include "gateway/loop/thread.h"

enum {
	CONTEXT_BYTES = 384, /* of a listener's context, what a token's frame uses */
	SOON = 3,            /* so many frames ahead what a frame needs is fetched */
	SOONER = 6,          /* and the context that describes it */
};

static void copy_str(char *dst, size_t room, struct proto_str s)
{
	size_t n = s.n < room - 1 ? s.n : room - 1;
	memcpy(dst, s.at, n);
	dst[n] = '\0';
}

static int on_model(struct engine_conn *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_model m;
	int rc = proto_get_model(p, n, &m, err);
	if (rc != 0)
		return rc;
	struct link_model *to = &l->models[m.index];
	if (m.state == PROTO_MODEL_GONE) {
		*to = (struct link_model){.state = PROTO_MODEL_FAILED};
		link_notify_state(l);
		return 0;
	}
	copy_str(to->name, sizeof to->name, m.name);
	copy_str(to->reason, sizeof to->reason, m.reason);
	to->state = m.state;
	to->role = m.role;
	to->does = m.does;
	to->percent = m.percent;
	to->residence = m.residence;
	to->parent = m.parent;
	to->n_lengths = m.n_lengths;
	memcpy(to->lengths, m.lengths, sizeof m.lengths);
	to->n_embd = m.n_embd;
	to->n_ctx = m.n_ctx;
	to->n_vocab = m.n_vocab;
	to->n_params = m.n_params;
	to->tokenizer = m.tokenizer;
	to->parts = (struct link_parts){.format = m.format, .reasoning = m.reasoning, .n_markers = m.n_markers};
	memcpy(to->parts.markers, m.markers, sizeof m.markers);
	if (m.index >= l->n_models)
		l->n_models = m.index + 1;
	link_notify_state(l);
	return 0;
}

static int on_hello(struct engine_conn *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_hello m;
	if (l->state == LINK_UP)
		return sl_errf(err, SL_EPROTO, "a second HELLO");
	int rc = proto_get_hello(p, n, &m, err);
	if (rc != 0)
		return rc;
	if (m.version != PROTO_VERSION)
		return sl_errf(err, SL_EPROTO, "the engine speaks protocol version %u, this is %u", m.version,
			       PROTO_VERSION);
	memset(l->models, 0, sizeof l->models);
	l->n_models = m.n_models;
	l->epoch = m.epoch;
	l->state = LINK_UP;
	flight_note(FLIGHT_ENGINE, 1, l->epoch, 0, 0, 0);
	l->stopping = false;
	l->backoff_ms = LINK_BACKOFF_MIN_MS;
	l->told = l->foreign = false;
	link_send_erases(l);
	log_info("connected to the engine%s%s (%u models)", l->name[0] != '\0' ? " " : "", l->name, m.n_models);
	return 0;
}

static void count_begun(const struct engine_conn *l, const struct sequence *s)
{
	const struct error_limit_key key = link_limit_key(l, s->model);
	if (s->limited)
		error_limits_success(&key, s->group, gw_now(l->t));
}

/* The engine's own fault, or that of the server it uses; not the request's, nor a full queue. */
static bool is_fault(const struct proto_done *m)
{
	return m->error == PROTO_ERR_INTERNAL || (m->error == PROTO_ERR_OVERLOADED && m->retry_after_s > 0);
}

static void count_done(const struct engine_conn *l, const struct sequence *s, const struct proto_done *m)
{
	const struct error_limit_key key = link_limit_key(l, s->model);
	const bool finished = m->error == PROTO_ERR_NONE && m->finish != PROTO_FINISH_CANCELLED;
	if (!s->limited)
		return;
	if (s->listener != NULL && is_fault(m))
		error_limits_error(&key, s->group, s->begun, gw_now(l->t));
	else if (finished && !s->begun)
		error_limits_success(&key, s->group, gw_now(l->t));
	link_unlimit(l, s, finished);
}

/* A frame of a sequence. Its listener may forget it in the call. */
static int on_sequence(struct engine_conn *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct sequence *found = link_find(l, h->id);
	struct sequence s = found ? *found : (struct sequence){0};
	int rc;
	if (found != NULL && !s.begun && (h->type == PROTO_TOKENS || h->type == PROTO_EMBEDDING)) {
		found->begun = true;
		count_begun(l, &s);
	}
	if (h->type == PROTO_QUEUED) {
		struct proto_queued m;
		rc = proto_get_queued(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_queued != NULL)
			s.listener->on_queued(s.ctx, &m);
	} else if (h->type == PROTO_TOKENS) {
		struct proto_tokens m;
		rc = proto_get_tokens(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_tokens != NULL)
			s.listener->on_tokens(s.ctx, &m);
	} else if (h->type == PROTO_PROMPT_LOGPROBS) {
		struct proto_prompt_logprobs m;
		rc = proto_get_prompt_logprobs(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_prompt != NULL)
			s.listener->on_prompt(s.ctx, &m);
	} else if (h->type == PROTO_CHOICE) {
		struct proto_choice m;
		rc = proto_get_choice(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_choice != NULL)
			s.listener->on_choice(s.ctx, &m);
	} else if (h->type == PROTO_VERIFIED) {
		struct proto_verified m;
		rc = proto_get_verified(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_verified != NULL)
			s.listener->on_verified(s.ctx, &m);
	} else if (h->type == PROTO_HANDED) {
		struct proto_handed m;
		rc = proto_get_handed(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_handed != NULL)
			s.listener->on_handed(s.ctx, &m);
	} else if (h->type == PROTO_EMBEDDING) {
		struct proto_embedding m;
		rc = proto_get_embedding(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_embedding != NULL)
			s.listener->on_embedding(s.ctx, &m);
	} else {
		struct proto_done m;
		rc = proto_get_done(p, h->length, &m, err);
		if (rc == 0 && found != NULL && s.counted == NULL) {
			link_remove(l, found);
			count_done(l, &s, &m);
			/* Nobody here has cancelled one that still has its listener. */
			l->stopping = l->stopping || (s.listener != NULL && m.finish == PROTO_FINISH_CANCELLED);
			if (s.listener == NULL)
				s.stopped(s.ctx);
			else
				s.listener->on_done(s.ctx, &m);
		}
	}
	return rc;
}

static int on_counted(struct engine_conn *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct sequence *found = link_find(l, h->id);
	struct proto_counted m;
	int rc = proto_get_counted(p, h->length, &m, err);
	if (rc != 0 || found == NULL || found->counted == NULL)
		return rc;
	struct sequence s = *found;
	link_remove(l, found);
	s.counted(s.ctx, &m);
	return 0;
}

static int on_load(struct engine_conn *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_load m;
	int rc = proto_get_load(p, n, &m, err);
	if (rc != 0)
		return rc;
	l->loads[m.model] = (struct link_load){.told = m, .known = true};
	if (l->events.on_load != NULL)
		l->events.on_load(l->events.ctx, l, &m);
	return 0;
}

static int on_prefixes(struct engine_conn *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_prefixes m;
	int rc = proto_get_prefixes(p, n, &m, err);
	if (rc == 0)
		prefix_view_take(&l->prefixes, &m);
	return rc;
}

static int on_frame(struct engine_conn *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	if (l->state == LINK_CONNECTING && h->type != PROTO_HELLO && h->type != PROTO_BYE)
		return sl_errf(err, SL_EPROTO, "%s before HELLO", proto_type_name(h->type));
	switch (h->type) {
	case PROTO_HELLO: return on_hello(l, p, h->length, err);
	case PROTO_MODEL: return on_model(l, p, h->length, err);
	case PROTO_STATS: l->n_then = l->n_seqs; return proto_get_stats(p, h->length, &l->stats, err);
	case PROTO_LOAD: return on_load(l, p, h->length, err);
	case PROTO_QUEUED:
	case PROTO_TOKENS:
	case PROTO_PROMPT_LOGPROBS:
	case PROTO_CHOICE:
	case PROTO_VERIFIED:
	case PROTO_EMBEDDING:
	case PROTO_HANDED:
	case PROTO_DONE: return on_sequence(l, h, p, err);
	case PROTO_COUNTED: return on_counted(l, h, p, err);
	case PROTO_PREFIXES: return on_prefixes(l, p, h->length, err);
	case PROTO_PONG: return 0;
	case PROTO_LEAVE:
		if (l->events.on_leave != NULL)
			l->events.on_leave(l->events.ctx, l);
		return 0;
	case PROTO_BYE: {
		struct proto_bye m;
		int rc = proto_get_bye(p, h->length, &m, err);
		return rc != 0 ? rc : sl_errf(err, SL_ECLOSED, "it said: %.*s", (int)m.reason.n, m.reason.at);
	}
	default: return sl_errf(err, SL_EPROTO, "unexpected %s frame", proto_type_name(h->type));
	}
}

/* Concerns one running sequence, so frames of others may be delivered first. Not QUEUED: a waiting request is
 * judged by the frames before it. */
static bool may_move(uint8_t type)
{
	return type == PROTO_TOKENS || type == PROTO_CHOICE || type == PROTO_VERIFIED || type == PROTO_EMBEDDING ||
	       type == PROTO_DONE;
}

/* Whole frames at the front of l->in that may be delivered by lanes, into l->order; how many bytes they are. */
static size_t gather(struct engine_conn *l)
{
	size_t used = 0;
	frame_order_clear(&l->order);
	while (l->in.len - used >= PROTO_HEAD_BYTES) {
		struct proto_head h;
		if (proto_head_read(buf_data(&l->in) + used, &h, NULL) != 0 || !may_move(h.type) ||
		    l->in.len - used - PROTO_HEAD_BYTES < h.length)
			break;
		const struct sequence *s = link_find(l, h.id);
		uint32_t lane = s != NULL ? s->lane : 0;
		if (!frame_order_add(&l->order, lane, (uint32_t)used, s != NULL ? s->ctx : NULL))
			break;
		used += PROTO_HEAD_BYTES + h.length;
	}
	return used;
}

/* In a step thousands of sequences get a frame each, and their state is not in the processor's cache. Frames further on
 * show what to prefetch, also those of the next lanes: a client with one stream on its connection has a lane of one
 * frame, and the write between two lanes takes longer than the memory. */
struct ahead {
	uint32_t lane, frame; /* FRAME_ORDER_NONE: behind the last one */
};

static void step_on(const struct frame_order *o, struct ahead *a)
{
	if (a->frame != FRAME_ORDER_NONE)
		a->frame = o->frames[a->frame].next;
	if (a->frame == FRAME_ORDER_NONE && a->lane + 1 < o->n_lanes)
		a->frame = o->lanes[++a->lane].first;
}

static void fetch_context(const struct engine_conn *l, struct ahead *a)
{
	const struct frame_order *o = &l->order;
	for (size_t at = 0; a->frame != FRAME_ORDER_NONE && at < CONTEXT_BYTES; at += 64)
		__builtin_prefetch((const void *)((uintptr_t)o->frames[a->frame].ctx + at));
	step_on(o, a);
}

/* The sequence is looked for: a listener's call, or a connection that was closed, may have forgotten it. */
static void announce(struct engine_conn *l, struct ahead *a)
{
	struct proto_head h;
	if (a->frame != FRAME_ORDER_NONE &&
	    proto_head_read(buf_data(&l->in) + l->order.frames[a->frame].at, &h, NULL) == 0) {
		const struct sequence *s = link_find(l, h.id);
		if (s != NULL && s->listener != NULL && s->listener->soon != NULL)
			s->listener->soon(s->ctx);
	}
	step_on(&l->order, a);
}

/* Where prefetching is, ahead of the frame that is delivered. */
struct prefetching {
	struct ahead soon, sooner;
};

static void begin_prefetching(struct engine_conn *l, struct prefetching *f)
{
	const struct ahead first = {0, l->order.lanes[0].first};
	*f = (struct prefetching){first, first};
	for (int i = 0; i < SOONER; i++)
		fetch_context(l, &f->sooner);
	for (int i = 0; i < SOON; i++)
		announce(l, &f->soon);
}

/* The frames of one lane. A listener may forget any sequence, so each is looked for again. */
static int deliver_lane(struct engine_conn *l, uint32_t first, struct prefetching *f, struct sl_err *err)
{
	const struct frame_order *o = &l->order;
	for (uint32_t k = first; k != FRAME_ORDER_NONE; k = o->frames[k].next) {
		const uint8_t *at = buf_data(&l->in) + o->frames[k].at;
		struct proto_head h;
		fetch_context(l, &f->sooner);
		announce(l, &f->soon);
		int rc = proto_head_read(at, &h, err);
		if (rc == 0)
			rc = on_frame(l, &h, at + PROTO_HEAD_BYTES, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* One lane after the other; what a lane's connection has to write goes out before the next lane's frames are delivered.
 */
static int deliver_by_lanes(struct engine_conn *l, struct sl_err *err)
{
	struct prefetching f;
	begin_prefetching(l, &f);
	for (uint32_t i = 0; i < l->order.n_lanes; i++) {
		int rc = deliver_lane(l, l->order.lanes[i].first, &f, err);
		if (rc != 0)
			return rc;
		gw_run_output(l->t);
	}
	return 0;
}

/* Neither a listener's call nor a connection's output closes the link, so the loop may continue. */
int link_take_frames(struct engine_conn *l, struct sl_err *err)
{
	while (l->in.len >= PROTO_HEAD_BYTES) {
		size_t n = gather(l);
		int rc;
		if (n > 0) {
			rc = deliver_by_lanes(l, err);
		} else {
			struct proto_head h;
			rc = proto_head_read(buf_data(&l->in), &h, err);
			if (rc == 0 && l->in.len - PROTO_HEAD_BYTES < h.length)
				return 0;
			n = rc == 0 ? PROTO_HEAD_BYTES + (size_t)h.length : 0;
			rc = rc == 0 ? on_frame(l, &h, buf_data(&l->in) + PROTO_HEAD_BYTES, err) : rc;
		}
		if (rc != 0)
			return rc;
		buf_consume(&l->in, n);
	}
	return 0;
}
