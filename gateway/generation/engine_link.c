/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the engine.
 *
 *   DOWN ──connect──► CONNECTING ──HELLO both ways──► UP ──error, BYE, silence──► DOWN (backoff)
 *
 * Frames are gathered in `out` and written once at the end of the turn; input is cut into frames in
 * place. Frames of running sequences that come in one read are delivered by lanes, so that the first connection's
 * events leave before the last one's are handled, and memory fetched for rendering is still cached when
 * they are written. Sequences are found by id in an open hash table; each holds its listener. When
 * the link goes down, the table is emptied first and the listeners are notified after, so that a listener
 * may submit or forget in its callback. Single-threaded: the loop of its gw_thread.
 */
#include "gateway/generation/engine_link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/peer.h"
#include "gateway/generation/frame_order.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/loop/thread.h"

enum {
	OUT_MAX = 16 << 20, /* of frames waiting for the socket; one SUBMIT may have 4 MiB */
	OUT_KEPT = 1 << 20, /* of these prompts leave so much to credit, and as much to each better priority */
	OUT_KEEP = 64 << 10,
	READ_BYTES = 64 << 10,
	BACKOFF_MIN_MS = 20,
	BACKOFF_MAX_MS = 500,
	HELLO_MS = 2000, /* connect and HELLO together */
	PING_MS = 1000,  /* silent for that long: ask */
	DEAD_MS = 3000,  /* silent for that long: gone */
	TICK_MS = 250,
	FIRST_SLOTS = 64,
	CONTEXT_BYTES = 320, /* of a listener's context, what a token's frame uses */
	SOON = 3,            /* so many frames ahead what a frame needs is fetched */
	SOONER = 6,          /* and the context that describes it */
};

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_UP };

struct sequence {
	uint64_t id;                          /* 0: empty slot */
	const struct link_listener *listener; /* NULL: abandoned */
	void (*stopped)(void *ctx);           /* of an abandoned one */
	void *ctx;
	void (*counted)(void *ctx, const struct proto_counted *m); /* of a count, which is no more than that */
	uint32_t lane;
};

struct engine_link {
	struct gw_thread *t;
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	enum link_state state;
	int fd;
	struct event *readable, *writable, *tick, *retry;
	struct gw_deferred flush;
	struct sl_buf in, out;
	unsigned backoff_ms;
	uint64_t ticked_ns;          /* last tick */
	uint64_t heard_ns, since_ns; /* last byte from the engine; start of CONNECTING */
	bool want_write;
	bool overrun; /* a frame found no room: the link goes down at the end of the turn */
	bool told;    /* the reason why the link is down is logged */
	uint64_t next_id;
	struct sequence *slots; /* n_slots, a power of two */
	size_t n_slots, n_seqs;
	struct link_model models[PROTO_MAX_MODELS];
	int n_models;
	struct proto_stats stats;
	uint64_t epoch; /* of the last HELLO */
	struct link_load {
		struct proto_load told;
		uint32_t unseen[PROTO_PRIORITIES]; /* submitted since */
	} loads[PROTO_MAX_MODELS];
	void (*on_load)(void *ctx, const struct proto_load *m); /* NULL: no listener */
	void *on_load_ctx;
	void (*on_state)(void *ctx); /* NULL: no listener */
	void *on_state_ctx;
	struct frame_order order; /* of the frames being delivered */
};

/* ---- sequences ---- */

static size_t slot_of(const struct engine_link *l, uint64_t id)
{
	return (size_t)(id * 0x9E3779B97F4A7C15ull >> 20) & (l->n_slots - 1);
}

static struct sequence *seq_find(struct engine_link *l, uint64_t id)
{
	for (size_t i = slot_of(l, id); l->slots[i].id != 0; i = (i + 1) & (l->n_slots - 1))
		if (l->slots[i].id == id)
			return &l->slots[i];
	return NULL;
}

static void seq_insert(struct engine_link *l, struct sequence s)
{
	size_t i = slot_of(l, s.id);
	while (l->slots[i].id != 0)
		i = (i + 1) & (l->n_slots - 1);
	l->slots[i] = s;
}

/* Room for one more with at most half the slots used. */
static int seq_reserve(struct engine_link *l)
{
	if ((l->n_seqs + 1) * 2 <= l->n_slots)
		return 0;
	size_t n = l->n_slots * 2, old_n = l->n_slots;
	struct sequence *slots = sl_zalloc_n(n, sizeof *slots), *old = l->slots;
	if (slots == NULL)
		return SL_ENOMEM;
	l->slots = slots;
	l->n_slots = n;
	for (size_t i = 0; i < old_n; i++)
		if (old[i].id != 0)
			seq_insert(l, old[i]);
	sl_free(old);
	return 0;
}

/* Removes a slot and moves up what probing would no longer find. */
static void seq_remove(struct engine_link *l, struct sequence *s)
{
	size_t hole = (size_t)(s - l->slots), mask = l->n_slots - 1;
	for (size_t i = (hole + 1) & mask; l->slots[i].id != 0; i = (i + 1) & mask) {
		size_t home = slot_of(l, l->slots[i].id);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			l->slots[hole] = l->slots[i];
			hole = i;
		}
	}
	l->slots[hole] = (struct sequence){0};
	l->n_seqs--;
}

/* ---- going down ---- */

static void retry_later(struct engine_link *l)
{
	struct timeval tv = {.tv_sec = l->backoff_ms / 1000, .tv_usec = (int)(l->backoff_ms % 1000) * 1000};
	evtimer_add(l->retry, &tv);
	l->backoff_ms = l->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : l->backoff_ms * 2;
}

static void close_socket(struct engine_link *l)
{
	if (l->readable != NULL)
		event_free(l->readable);
	if (l->writable != NULL)
		event_free(l->writable);
	l->readable = l->writable = NULL;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	buf_clear(&l->in, 0);
	buf_clear(&l->out, 0);
	l->want_write = l->overrun = false;
	gw_defer_cancel(&l->flush);
}

/* One by one and in place: a listener may forget another, which is then not called. The link is DOWN,
 * so none can submit meanwhile. */
static void tell_lost(struct engine_link *l)
{
	for (size_t i = 0; i < l->n_slots;) {
		struct sequence s = l->slots[i];
		if (s.id == 0) {
			i++;
			continue;
		}
		/* What this moves up to the slot is looked at next. */
		seq_remove(l, &l->slots[i]);
		if (s.counted != NULL)
			s.counted(s.ctx, NULL);
		else if (s.listener == NULL)
			s.stopped(s.ctx);
		else
			s.listener->on_lost(s.ctx);
	}
}

static void tell_state(const struct engine_link *l)
{
	if (l->on_state != NULL)
		l->on_state(l->on_state_ctx);
}

static void go_down(struct engine_link *l, const char *why)
{
	if (l->state == LINK_UP)
		log_warn("the engine has gone: %s", why);
	else if (!l->told)
		log_info("waiting for the engine: %s", why);
	l->told = true;
	l->state = LINK_DOWN;
	close_socket(l);
	l->stats = (struct proto_stats){0};
	memset(l->loads, 0, sizeof l->loads);
	for (int i = 0; i < l->n_models; i++)
		if (l->models[i].state == PROTO_MODEL_READY)
			l->models[i].state = PROTO_MODEL_LOADING;
	tell_state(l);
	retry_later(l);
	tell_lost(l);
}

/* ---- frames in ---- */

static void copy_str(char *dst, size_t room, struct proto_str s)
{
	size_t n = s.n < room - 1 ? s.n : room - 1;
	memcpy(dst, s.at, n);
	dst[n] = '\0';
}

static int on_model(struct engine_link *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_model m;
	int rc = proto_get_model(p, n, &m, err);
	if (rc != 0)
		return rc;
	struct link_model *to = &l->models[m.index];
	copy_str(to->name, sizeof to->name, m.name);
	copy_str(to->reason, sizeof to->reason, m.reason);
	to->state = m.state;
	to->role = m.role;
	to->does = m.does;
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
	tell_state(l);
	return 0;
}

static int on_hello(struct engine_link *l, const uint8_t *p, size_t n, struct sl_err *err)
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
	l->backoff_ms = BACKOFF_MIN_MS;
	l->told = false;
	log_info("connected to the engine (%u models)", m.n_models);
	return 0;
}

/* A frame of a sequence. Its listener may forget it in the call. */
static int on_sequence(struct engine_link *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct sequence *found = seq_find(l, h->id);
	struct sequence s = found ? *found : (struct sequence){0};
	int rc;
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
	} else if (h->type == PROTO_EMBEDDING) {
		struct proto_embedding m;
		rc = proto_get_embedding(p, h->length, &m, err);
		if (rc == 0 && s.listener != NULL && s.listener->on_embedding != NULL)
			s.listener->on_embedding(s.ctx, &m);
	} else {
		struct proto_done m;
		rc = proto_get_done(p, h->length, &m, err);
		if (rc == 0 && found != NULL && s.counted == NULL) {
			seq_remove(l, found);
			if (s.listener == NULL)
				s.stopped(s.ctx);
			else
				s.listener->on_done(s.ctx, &m);
		}
	}
	return rc;
}

static int on_counted(struct engine_link *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct sequence *found = seq_find(l, h->id);
	struct proto_counted m;
	int rc = proto_get_counted(p, h->length, &m, err);
	if (rc != 0 || found == NULL || found->counted == NULL)
		return rc;
	struct sequence s = *found;
	seq_remove(l, found);
	s.counted(s.ctx, &m);
	return 0;
}

static int on_load(struct engine_link *l, const uint8_t *p, size_t n, struct sl_err *err)
{
	struct proto_load m;
	int rc = proto_get_load(p, n, &m, err);
	if (rc != 0)
		return rc;
	l->loads[m.model] = (struct link_load){.told = m};
	if (l->on_load != NULL)
		l->on_load(l->on_load_ctx, &m);
	return 0;
}

static int on_frame(struct engine_link *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	if (l->state == LINK_CONNECTING && h->type != PROTO_HELLO && h->type != PROTO_BYE)
		return sl_errf(err, SL_EPROTO, "%s before HELLO", proto_type_name(h->type));
	switch (h->type) {
	case PROTO_HELLO: return on_hello(l, p, h->length, err);
	case PROTO_MODEL: return on_model(l, p, h->length, err);
	case PROTO_STATS: return proto_get_stats(p, h->length, &l->stats, err);
	case PROTO_LOAD: return on_load(l, p, h->length, err);
	case PROTO_QUEUED:
	case PROTO_TOKENS:
	case PROTO_PROMPT_LOGPROBS:
	case PROTO_CHOICE:
	case PROTO_VERIFIED:
	case PROTO_EMBEDDING:
	case PROTO_DONE: return on_sequence(l, h, p, err);
	case PROTO_COUNTED: return on_counted(l, h, p, err);
	case PROTO_PONG: return 0;
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
static size_t gather(struct engine_link *l)
{
	size_t used = 0;
	frame_order_clear(&l->order);
	while (l->in.len - used >= PROTO_HEAD_BYTES) {
		struct proto_head h;
		if (proto_head_read(buf_data(&l->in) + used, &h, NULL) != 0 || !may_move(h.type) ||
		    l->in.len - used - PROTO_HEAD_BYTES < h.length)
			break;
		const struct sequence *s = seq_find(l, h.id);
		uint32_t lane = s != NULL ? s->lane : 0;
		bool tell = s != NULL && s->listener != NULL;
		if (!frame_order_add(&l->order, lane, (uint32_t)used, tell ? s->listener->soon : NULL,
				     tell ? s->ctx : NULL))
			break;
		used += PROTO_HEAD_BYTES + h.length;
	}
	return used;
}

/* In a step thousands of sequences get a frame each, and their state is not in the processor's cache. Frames further on
 * in the same lane show what to prefetch. */
static uint32_t behind(const struct frame_order *o, uint32_t frame)
{
	return frame != FRAME_ORDER_NONE ? o->frames[frame].next : FRAME_ORDER_NONE;
}

static void fetch_context(const struct frame_order *o, uint32_t frame)
{
	for (size_t at = 0; frame != FRAME_ORDER_NONE && at < CONTEXT_BYTES; at += 64)
		__builtin_prefetch((const char *)o->frames[frame].ctx + at);
}

static void tell_soon(const struct frame_order *o, uint32_t frame)
{
	if (frame != FRAME_ORDER_NONE && o->frames[frame].soon != NULL)
		o->frames[frame].soon(o->frames[frame].ctx);
}

/* The frames of one lane. A listener may forget any sequence, so each is looked for again. */
static int tell_lane(struct engine_link *l, uint32_t first, struct sl_err *err)
{
	const struct frame_order *o = &l->order;
	uint32_t soon = first, sooner = first;
	for (int i = 0; i < SOONER; i++, sooner = behind(o, sooner))
		fetch_context(o, sooner);
	for (int i = 0; i < SOON; i++, soon = behind(o, soon))
		tell_soon(o, soon);
	for (uint32_t k = first; k != FRAME_ORDER_NONE; k = o->frames[k].next) {
		const uint8_t *at = buf_data(&l->in) + o->frames[k].at;
		struct proto_head h;
		fetch_context(o, sooner);
		tell_soon(o, soon);
		sooner = behind(o, sooner);
		soon = behind(o, soon);
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
static int tell_by_lanes(struct engine_link *l, struct sl_err *err)
{
	for (uint32_t i = 0; i < l->order.n_lanes; i++) {
		int rc = tell_lane(l, l->order.lanes[i].first, err);
		if (rc != 0)
			return rc;
		gw_run_output(l->t);
	}
	return 0;
}

/* Every whole frame in l->in. Neither a listener's call nor a connection's output closes the link, so the loop may
 * continue. */
static int take_frames(struct engine_link *l, struct sl_err *err)
{
	while (l->in.len >= PROTO_HEAD_BYTES) {
		size_t n = gather(l);
		int rc;
		if (n > 0) {
			rc = tell_by_lanes(l, err);
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

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct engine_link *l = ctx;
	struct sl_err err = {0};
	uint8_t *at;
	(void)what;
	if (buf_reserve(&l->in, READ_BYTES, &at) != 0) {
		go_down(l, "no memory for its frames");
		return;
	}
	ssize_t n = read(fd, at, READ_BYTES);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		go_down(l, n == 0 ? "the connection was closed" : strerror(errno));
		return;
	}
	buf_commit(&l->in, (size_t)n);
	l->heard_ns = gw_read_clock(l->t);
	if (take_frames(l, &err) != 0)
		go_down(l, err.text);
}

/* ---- frames out ---- */

static void write_out(struct engine_link *l)
{
	while (l->out.len > 0) {
		ssize_t n = send(l->fd, buf_data(&l->out), l->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!l->want_write)
				event_add(l->writable, NULL);
			l->want_write = true;
			return;
		}
		if (n < 0) {
			go_down(l, strerror(errno));
			return;
		}
		buf_consume(&l->out, (size_t)n);
	}
	buf_clear(&l->out, OUT_KEEP);
	if (l->want_write)
		event_del(l->writable);
	l->want_write = false;
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	write_out(ctx);
}

static void on_flush(struct gw_deferred *d)
{
	struct engine_link *l = list_entry(d, struct engine_link, flush);
	if (l->overrun && l->fd >= 0)
		go_down(l, "too much waits to be written");
	else if (l->fd >= 0 && !l->want_write)
		write_out(l);
}

static void flush_soon(struct engine_link *l) { gw_defer(l->t, &l->flush); }

/* ---- coming up ---- */

static void on_connected(struct engine_link *l)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .name = {"gateway", 7}};
	l->heard_ns = clock_now_ns();
	if (proto_put_hello(&l->out, &hello) != 0)
		go_down(l, "no memory");
	else
		flush_soon(l);
}

/* The server of the socket gets every prompt: it must be our user's. */
static bool is_served_for_us(const struct engine_link *l)
{
	uid_t who;
	return peer_is_trusted(l->fd, &who);
}

static void try_connect(struct engine_link *l)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	memcpy(addr.sun_path, l->path, sizeof addr.sun_path);
	l->state = LINK_CONNECTING;
	l->since_ns = clock_now_ns();
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd >= 0) {
		l->readable = event_new(l->t->base, l->fd, EV_READ | EV_PERSIST, on_readable, l);
		l->writable = event_new(l->t->base, l->fd, EV_WRITE | EV_PERSIST, on_writable, l);
	}
	/* A unix socket connects at once or not at all; EAGAIN is a full backlog. */
	if (l->fd < 0 || l->readable == NULL || l->writable == NULL)
		go_down(l, "no socket");
	else if (connect(l->fd, (struct sockaddr *)&addr, sizeof addr) != 0)
		go_down(l, strerror(errno));
	else if (!is_served_for_us(l))
		go_down(l, "a process of another user serves its socket");
	else if (event_add(l->readable, NULL) != 0)
		go_down(l, "no memory");
	else
		on_connected(l);
}

static void on_retry(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	try_connect(ctx);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct engine_link *l = ctx;
	uint64_t now = clock_now_ns();
	(void)fd;
	(void)what;
	/* This process was itself stopped, and what has come meanwhile is not read yet: no timeout. */
	if (now - l->ticked_ns > DEAD_MS * NS_PER_MS)
		l->heard_ns = now - PING_MS * NS_PER_MS - 1;
	l->ticked_ns = now;
	if (l->state == LINK_CONNECTING && now - l->since_ns > HELLO_MS * NS_PER_MS) {
		go_down(l, "it does not say HELLO");
	} else if (l->state == LINK_UP && now - l->heard_ns > DEAD_MS * NS_PER_MS) {
		go_down(l, "it is silent");
	} else if (l->state == LINK_UP && now - l->heard_ns > PING_MS * NS_PER_MS) {
		if (proto_put_ping(&l->out, now) == 0)
			flush_soon(l);
	}
}

int engine_link_create(struct gw_thread *t, const char *socket_path, struct engine_link **out, struct sl_err *err)
{
	struct engine_link *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the engine link");
	l->t = t;
	l->fd = -1;
	l->backoff_ms = BACKOFF_MIN_MS;
	l->next_id = 1;
	buf_init(&l->in, PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD + READ_BYTES);
	buf_init(&l->out, OUT_MAX);
	gw_defer_init(&l->flush, on_flush);
	l->n_slots = FIRST_SLOTS;
	l->slots = sl_zalloc_n(l->n_slots, sizeof *l->slots);
	l->tick = event_new(t->base, -1, EV_PERSIST, on_tick, l);
	l->retry = evtimer_new(t->base, on_retry, l);
	struct timeval tick = {.tv_usec = TICK_MS * 1000};
	if (strlen(socket_path) >= sizeof l->path) {
		engine_link_destroy(l);
		return sl_errf(err, SL_EINVAL, "%s: a socket's path has at most %zu bytes", socket_path,
			       sizeof l->path - 1);
	}
	if (l->slots == NULL || l->tick == NULL || l->retry == NULL || event_add(l->tick, &tick) != 0) {
		engine_link_destroy(l);
		return sl_errf(err, SL_ENOMEM, "no memory for the engine link");
	}
	snprintf(l->path, sizeof l->path, "%s", socket_path);
	*out = l;
	try_connect(l);
	return 0;
}

void engine_link_destroy(struct engine_link *l)
{
	if (l == NULL)
		return;
	/* No listener may submit again when it is called. */
	l->state = LINK_DOWN;
	if (l->slots != NULL && l->n_seqs > 0)
		tell_lost(l);
	BUG_IF(l->n_seqs != 0, "engine link destroyed with %zu sequences", l->n_seqs);
	close_socket(l);
	if (l->tick != NULL)
		event_free(l->tick);
	if (l->retry != NULL)
		event_free(l->retry);
	buf_dispose(&l->in);
	buf_dispose(&l->out);
	sl_free(l->slots);
	sl_free(l);
}

bool engine_link_up(const struct engine_link *l) { return l->state == LINK_UP; }
unsigned engine_link_backoff_ms(const struct engine_link *l) { return l->backoff_ms; }
uint64_t engine_link_epoch(const struct engine_link *l) { return l->epoch; }
int engine_link_n_models(const struct engine_link *l) { return l->n_models; }
const struct link_model *engine_link_model(const struct engine_link *l, int index) { return &l->models[index]; }
const struct proto_stats *engine_link_stats(const struct engine_link *l) { return &l->stats; }

static uint8_t line_of(uint8_t priority) { return priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1; }

uint64_t engine_link_wait_ms(const struct engine_link *l, int model, uint8_t priority)
{
	const struct link_load *load = &l->loads[model];
	uint64_t unseen = 0;
	for (int i = 0; i <= line_of(priority); i++)
		unseen += load->unseen[i];
	const struct proto_line *line = &load->told.of[line_of(priority)];
	uint64_t behind = unseen > line->places_free ? unseen - line->places_free : 0;
	return (line->wait_us + behind * line->us_per_place) / 1000;
}

bool engine_link_idle(const struct engine_link *l, int model)
{
	const struct link_load *load = &l->loads[model];
	uint64_t unseen = 0;
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		unseen += load->unseen[i];
	return load->told.idle && unseen == 0;
}

uint64_t engine_link_place_us(const struct engine_link *l, int model, uint8_t priority)
{
	return l->loads[model].told.of[line_of(priority)].us_per_place;
}

void engine_link_on_load(struct engine_link *l, void (*fn)(void *ctx, const struct proto_load *m), void *ctx)
{
	l->on_load = fn;
	l->on_load_ctx = ctx;
}

void engine_link_on_state(struct engine_link *l, void (*fn)(void *ctx), void *ctx)
{
	l->on_state = fn;
	l->on_state_ctx = ctx;
}

int engine_link_find_model(const struct engine_link *l, const char *name)
{
	for (int i = 0; i < l->n_models; i++)
		if (l->models[i].name[0] != '\0' && strcmp(l->models[i].name, name) == 0)
			return i;
	return -1;
}

/* A flood of large prompts neither keeps out a better priority's nor, by its credit, ends the link. */
static bool has_room(const struct engine_link *l, struct proto_str prompt, uint8_t priority)
{
	return l->out.len + prompt.n <= (size_t)OUT_MAX - (size_t)OUT_KEPT * (1u + (unsigned)line_of(priority));
}

int engine_link_submit(struct engine_link *l, const struct proto_submit *req, const struct link_listener *listener,
		       void *ctx, uint64_t *id)
{
	if (l->state != LINK_UP)
		return SL_ECLOSED;
	if (!has_room(l, req->prompt, req->priority))
		return SL_ELIMIT;
	int rc = seq_reserve(l);
	if (rc != 0)
		return rc;
	rc = proto_put_submit(&l->out, l->next_id, req);
	if (rc != 0)
		return rc;
	if (req->frame.n == 0)
		submit_frame_count();
	*id = l->next_id++;
	seq_insert(l, (struct sequence){.id = *id, .listener = listener, .ctx = ctx});
	l->n_seqs++;
	if (req->model < PROTO_MAX_MODELS)
		l->loads[req->model].unseen[line_of(req->priority)]++;
	flush_soon(l);
	return 0;
}

int engine_link_count(struct engine_link *l, const struct proto_count *req,
		      void (*counted)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id)
{
	if (l->state != LINK_UP)
		return SL_ECLOSED;
	int rc = has_room(l, req->prompt, req->priority) ? seq_reserve(l) : SL_ELIMIT;
	if (rc == 0)
		rc = proto_put_count(&l->out, l->next_id, req);
	if (rc != 0)
		return rc;
	*id = l->next_id++;
	seq_insert(l, (struct sequence){.id = *id, .ctx = ctx, .counted = counted});
	l->n_seqs++;
	flush_soon(l);
	return 0;
}

void engine_link_uncount(struct engine_link *l, uint64_t id)
{
	struct sequence *s = seq_find(l, id);
	if (s != NULL && s->counted != NULL)
		seq_remove(l, s);
}

/* NULL also when it was abandoned: its id may be unknown then. */
static struct sequence *asked_for(struct engine_link *l, uint64_t id)
{
	struct sequence *s = seq_find(l, id);
	return s != NULL && s->listener != NULL ? s : NULL;
}

void engine_link_lane(struct engine_link *l, uint64_t id, uint32_t lane)
{
	struct sequence *s = asked_for(l, id);
	if (s != NULL)
		s->lane = lane;
}

void engine_link_credit(struct engine_link *l, uint64_t id, uint32_t n_tokens)
{
	struct proto_credit m = {.n_tokens = n_tokens};
	if (l->state != LINK_UP || asked_for(l, id) == NULL)
		return;
	/* A credit that can't be written would leave the sequence waiting for ever. Going down here
	 * would pull the link from under the frame that may be calling. */
	if (proto_put_credit(&l->out, id, &m) != 0)
		l->overrun = true;
	flush_soon(l);
}

static void cancel(struct engine_link *l, uint64_t id)
{
	if (l->state != LINK_UP)
		return;
	if (proto_put_cancel(&l->out, id) != 0)
		l->overrun = true;
	flush_soon(l);
}

void engine_link_forget(struct engine_link *l, uint64_t id)
{
	struct sequence *s = asked_for(l, id);
	if (s == NULL)
		return;
	seq_remove(l, s);
	cancel(l, id);
}

void engine_link_abandon(struct engine_link *l, uint64_t id, void (*stopped)(void *ctx), void *ctx)
{
	struct sequence *s = asked_for(l, id);
	if (s == NULL) {
		stopped(ctx);
		return;
	}
	s->listener = NULL;
	s->stopped = stopped;
	s->ctx = ctx;
	cancel(l, id);
}
