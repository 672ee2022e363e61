/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to an engine.
 *
 *   DOWN ──connect──► CONNECTING ──HELLO both ways──► UP ──error, BYE, silence──► DOWN (backoff)
 *
 * Frames are gathered in `out` and written once at the end of the turn; input is cut into frames in
 * place and delivered (engine_conn_in.c). Sequences are found by id in an open hash table; each holds its listener.
 * When the link goes down, the table is emptied first and the listeners are notified after, so that a listener may
 * submit or forget in its callback. Single-threaded: the loop of its gw_thread.
 */
#include "gateway/generation/engine_conn_priv.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/peer.h"
#include "gateway/admission/error_limit.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/submit_frame.h"
#include "gateway/loop/thread.h"

enum {
	OUT_MAX = 16 << 20, /* of frames waiting for the socket; one SUBMIT may have 4 MiB */
	OUT_KEPT = 1 << 20, /* of these prompts leave so much to credit, and as much to each better priority */
	OUT_KEEP = 64 << 10,
	READ_BYTES = 64 << 10,
	BACKOFF_MAX_MS = 500,
	HELLO_MS = 2000, /* connect and HELLO together */
	PING_MS = 1000,  /* silent for that long: ask */
	DEAD_MS = 3000,  /* silent for that long: gone; or supervisor.hang, if that is longer */
	TICK_MS = 250,
	FIRST_SLOTS = 64,
};

/* ---- sequences ---- */

static size_t slot_of(const struct engine_conn *l, uint64_t id)
{
	return (size_t)(id * 0x9E3779B97F4A7C15ull >> 20) & (l->n_slots - 1);
}

struct sequence *link_find(struct engine_conn *l, uint64_t id)
{
	for (size_t i = slot_of(l, id); l->slots[i].id != 0; i = (i + 1) & (l->n_slots - 1))
		if (l->slots[i].id == id)
			return &l->slots[i];
	return NULL;
}

static void seq_insert(struct engine_conn *l, struct sequence s)
{
	size_t i = slot_of(l, s.id);
	while (l->slots[i].id != 0)
		i = (i + 1) & (l->n_slots - 1);
	l->slots[i] = s;
}

/* Room for one more with at most half the slots used. */
static int seq_reserve(struct engine_conn *l)
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

/* Moves up what probing would no longer find. */
void link_remove(struct engine_conn *l, struct sequence *s)
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

/* ---- limits of errors ---- */

struct error_limit_key link_limit_key(const struct engine_conn *l, int model)
{
	const bool known = model >= 0 && model < l->n_models;
	return (struct error_limit_key){.engine = l->number,
					.model = model,
					.engine_name = l->name[0] != '\0' ? l->name : ENGINE_LINK_FIRST,
					.model_name = known ? l->models[model].name : "?"};
}

static void limit(const struct engine_conn *l, struct sequence *s, uint64_t tenant)
{
	const struct error_limit_key key = link_limit_key(l, s->model);
	s->group = error_limit_group(tenant);
	s->limited = true;
	s->sent_ns = gw_now(l->t);
	error_limits_enter(&key, s->sent_ns);
}

void link_unlimit(const struct engine_conn *l, const struct sequence *s, bool finished)
{
	const struct error_limit_key key = link_limit_key(l, s->model);
	const uint64_t now = gw_now(l->t);
	if (s->limited)
		error_limits_leave(&key, finished ? now - s->sent_ns : 0, now);
}

bool engine_conn_admits(const struct engine_conn *l, int model, uint64_t *retry_ms)
{
	const struct error_limit_key key = link_limit_key(l, model);
	return error_limits_admit(&key, gw_now(l->t), retry_ms);
}

/* Without requests a limit ends by time alone. */
static void look_at_limits(const struct engine_conn *l)
{
	uint64_t retry_ms;
	for (int i = 0; error_limits_any() && i < l->n_models; i++)
		(void)engine_conn_admits(l, i, &retry_ms);
}

/* ---- going down ---- */

static void retry_later(struct engine_conn *l)
{
	struct timeval tv = {.tv_sec = l->backoff_ms / 1000, .tv_usec = (int)(l->backoff_ms % 1000) * 1000};
	evtimer_add(l->retry, &tv);
	l->backoff_ms = l->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : l->backoff_ms * 2;
}

static void close_socket(struct engine_conn *l)
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
static void tell_lost(struct engine_conn *l)
{
	for (size_t i = 0; i < l->n_slots;) {
		struct sequence s = l->slots[i];
		if (s.id == 0) {
			i++;
			continue;
		}
		/* What this moves up to the slot is looked at next. */
		link_remove(l, &l->slots[i]);
		link_unlimit(l, &s, false);
		if (s.counted != NULL)
			s.counted(s.ctx, NULL);
		else if (s.listener == NULL)
			s.stopped(s.ctx);
		else
			s.listener->on_lost(s.ctx);
	}
}

void link_notify_state(struct engine_conn *l)
{
	if (l->events.on_state != NULL)
		l->events.on_state(l->events.ctx, l);
}

static void go_down(struct engine_conn *l, const char *why)
{
	if (l->retired)
		log_info("the former engine %s%shas ended: %s", l->name, l->name[0] != '\0' ? " " : "", why);
	else if (l->state == LINK_UP)
		log_warn("the engine %s%shas gone: %s", l->name, l->name[0] != '\0' ? " " : "", why);
	else if (!l->told)
		log_info("waiting for the engine%s%s: %s", l->name[0] != '\0' ? " " : "", l->name, why);
	if (l->state == LINK_UP)
		flight_note(FLIGHT_ENGINE, 0, l->epoch, 0, 0, 0);
	l->told = true;
	l->state = LINK_DOWN;
	close_socket(l);
	l->stats = (struct proto_stats){0};
	memset(l->loads, 0, sizeof l->loads);
	prefix_view_clear(&l->prefixes);
	for (int i = 0; i < l->n_models; i++)
		if (l->models[i].state != PROTO_MODEL_FAILED) {
			l->models[i].state = PROTO_MODEL_LOADING;
			l->models[i].percent = 0;
		}
	link_notify_state(l);
	if (!l->retired) /* on_state may have retired it */
		retry_later(l);
	tell_lost(l);
}

/* ---- input ---- */

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct engine_conn *l = ctx;
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
	if (link_take_frames(l, &err) == 0)
		return;
	/* That it had gone, or was not there yet, is not why it does not come back. */
	if (l->state != LINK_UP && !l->foreign) {
		l->foreign = true;
		l->told = false;
	}
	go_down(l, err.text);
}

/* ---- frames out ---- */

static void write_out(struct engine_conn *l)
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
	struct engine_conn *l = list_entry(d, struct engine_conn, flush);
	if (l->overrun && l->fd >= 0)
		go_down(l, "too much waits to be written");
	else if (l->fd >= 0 && !l->want_write)
		write_out(l);
}

void link_flush_soon(struct engine_conn *l) { gw_defer(l->t, &l->flush); }

/* ---- coming up ---- */

static void on_connected(struct engine_conn *l)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .name = {"gateway", 7}};
	l->heard_ns = clock_now_ns();
	if (proto_put_hello(&l->out, &hello) != 0)
		go_down(l, "no memory");
	else
		link_flush_soon(l);
}

/* The server of the socket gets every prompt: it must be our user's. */
static bool is_served_for_us(const struct engine_conn *l)
{
	uid_t who;
	return peer_is_trusted(l->fd, &who);
}

static void try_connect(struct engine_conn *l)
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

/* Who waits longer before a silent engine is killed would not lose its streams before that either. */
static uint64_t patience_ns(const struct engine_conn *l)
{
	const unsigned ms = l->t->cfg->stale_ms;
	return (ms > DEAD_MS ? ms : DEAD_MS) * NS_PER_MS;
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct engine_conn *l = ctx;
	uint64_t now = clock_now_ns(), patience = patience_ns(l);
	(void)fd;
	(void)what;
	/* This process was itself stopped, and what has come meanwhile is not read yet: no timeout. */
	if (now - l->ticked_ns > patience)
		l->heard_ns = now - PING_MS * NS_PER_MS - 1;
	l->ticked_ns = now;
	look_at_limits(l);
	if (l->state == LINK_CONNECTING && now - l->since_ns > HELLO_MS * NS_PER_MS) {
		go_down(l, "it does not say HELLO");
	} else if (l->state == LINK_UP && now - l->heard_ns > patience) {
		go_down(l, "it is silent");
	} else if (l->state == LINK_UP && now - l->heard_ns > PING_MS * NS_PER_MS) {
		if (proto_put_ping(&l->out, now) == 0)
			link_flush_soon(l);
	}
}

int engine_conn_create(struct gw_thread *t, int number, const char *name, const char *socket_path, uint64_t first_id,
		       const struct conn_events *events, struct engine_conn **out, struct sl_err *err)
{
	struct engine_conn *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the engine link");
	l->t = t;
	l->fd = -1;
	l->backoff_ms = LINK_BACKOFF_MIN_MS;
	l->name = name;
	l->number = number;
	l->next_id = first_id;
	l->events = *events;
	buf_init(&l->in, PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD + READ_BYTES);
	buf_init(&l->out, OUT_MAX);
	gw_defer_init(&l->flush, on_flush);
	l->n_slots = FIRST_SLOTS;
	l->slots = sl_zalloc_n(l->n_slots, sizeof *l->slots);
	l->tick = event_new(t->base, -1, EV_PERSIST, on_tick, l);
	l->retry = evtimer_new(t->base, on_retry, l);
	struct timeval tick = {.tv_usec = TICK_MS * 1000};
	if (strlen(socket_path) >= sizeof l->path) {
		engine_conn_destroy(l);
		return sl_errf(err, SL_EINVAL, "%s: a socket's path has at most %zu bytes", socket_path,
			       sizeof l->path - 1);
	}
	if (l->slots == NULL || l->tick == NULL || l->retry == NULL || event_add(l->tick, &tick) != 0) {
		engine_conn_destroy(l);
		return sl_errf(err, SL_ENOMEM, "no memory for the engine link");
	}
	snprintf(l->path, sizeof l->path, "%s", socket_path);
	*out = l;
	try_connect(l);
	return 0;
}

void engine_conn_retire(struct engine_conn *l) { l->retired = true; }

size_t engine_conn_n_own(const struct engine_conn *l) { return l->n_seqs; }

void engine_conn_stop(struct engine_conn *l) { l->state = LINK_DOWN; }

void engine_conn_destroy(struct engine_conn *l)
{
	if (l == NULL)
		return;
	engine_conn_stop(l);
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
	prefix_view_dispose(&l->prefixes);
	sl_free(l->slots);
	sl_free(l);
}

bool engine_conn_up(const struct engine_conn *l) { return l->state == LINK_UP; }
bool engine_conn_takes(const struct engine_conn *l) { return l->state == LINK_UP && !l->stopping; }
unsigned engine_conn_backoff_ms(const struct engine_conn *l) { return l->backoff_ms; }
uint64_t engine_conn_epoch(const struct engine_conn *l) { return l->epoch; }
int engine_conn_n_models(const struct engine_conn *l) { return l->n_models; }
const struct link_model *engine_conn_model(const struct engine_conn *l, int index) { return &l->models[index]; }
const struct proto_stats *engine_conn_stats(const struct engine_conn *l) { return &l->stats; }

/* An adapter's requests wait as its base's do, which alone has a LOAD. */
static int load_of(const struct engine_conn *l, int model)
{
	int parent = l->models[model].parent;
	return parent > 0 && parent <= l->n_models ? parent - 1 : model;
}

const struct proto_load *engine_conn_load(const struct engine_conn *l, int model)
{
	return &l->loads[load_of(l, model)].told;
}

struct prefix_view *engine_conn_prefixes(struct engine_conn *l) { return &l->prefixes; }

size_t engine_conn_n_active(const struct engine_conn *l)
{
	size_t all = (size_t)l->stats.running + l->stats.waiting + l->stats.upstream.others;
	return l->n_seqs + (all > l->n_then ? all - l->n_then : 0);
}

static uint8_t line_of(uint8_t priority) { return priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1; }

uint64_t engine_conn_wait_ms(const struct engine_conn *l, int model, uint8_t priority)
{
	const struct link_load *load = &l->loads[load_of(l, model)];
	uint64_t unseen = 0;
	for (int i = 0; i <= line_of(priority); i++)
		unseen += load->unseen[i];
	const struct proto_line *line = &load->told.of[line_of(priority)];
	uint64_t behind = unseen > line->places_free ? unseen - line->places_free : 0;
	return (line->wait_us + behind * line->us_per_place) / 1000;
}

bool engine_conn_has_place(const struct engine_conn *l, int model, uint8_t priority)
{
	const struct link_load *load = &l->loads[load_of(l, model)];
	uint64_t unseen = 0;
	for (int i = 0; i <= line_of(priority); i++)
		unseen += load->unseen[i];
	return !load->known || load->told.of[line_of(priority)].places_free > unseen;
}

bool engine_conn_idle(const struct engine_conn *l, int model)
{
	const struct link_load *load = &l->loads[load_of(l, model)];
	uint64_t unseen = 0;
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		unseen += load->unseen[i];
	return load->told.idle && unseen == 0;
}

/* A flood of large prompts neither keeps out a better priority's nor, by its credit, ends the link. */
static bool has_room(const struct engine_conn *l, struct proto_str prompt, uint8_t priority)
{
	return l->out.len + prompt.n <= (size_t)OUT_MAX - (size_t)OUT_KEPT * (1u + (unsigned)line_of(priority));
}

int engine_conn_submit(struct engine_conn *l, const struct proto_submit *req, const struct link_listener *listener,
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
	struct sequence s = {.id = *id, .listener = listener, .ctx = ctx, .model = req->model};
	limit(l, &s, req->tenant);
	seq_insert(l, s);
	l->n_seqs++;
	if (req->model < PROTO_MAX_MODELS)
		l->loads[load_of(l, req->model)].unseen[line_of(req->priority)]++;
	link_flush_soon(l);
	return 0;
}

int engine_conn_count(struct engine_conn *l, const struct proto_count *req,
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
	link_flush_soon(l);
	return 0;
}

int engine_conn_adapter(struct engine_conn *l, const struct proto_adapter *req,
			void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id)
{
	if (l->state != LINK_UP)
		return SL_ECLOSED;
	int rc = has_room(l, req->path, PROTO_PRIORITIES - 1) ? seq_reserve(l) : SL_ELIMIT;
	if (rc == 0)
		rc = proto_put_adapter(&l->out, l->next_id, req);
	if (rc != 0)
		return rc;
	*id = l->next_id++;
	seq_insert(l, (struct sequence){.id = *id, .ctx = ctx, .counted = done});
	l->n_seqs++;
	link_flush_soon(l);
	return 0;
}

void engine_conn_uncount(struct engine_conn *l, uint64_t id)
{
	struct sequence *s = link_find(l, id);
	if (s != NULL && s->counted != NULL)
		link_remove(l, s);
}

/* NULL also when it was abandoned: its id may be unknown then. */
static struct sequence *asked_for(struct engine_conn *l, uint64_t id)
{
	struct sequence *s = link_find(l, id);
	return s != NULL && s->listener != NULL ? s : NULL;
}

void engine_conn_lane(struct engine_conn *l, uint64_t id, uint32_t lane)
{
	struct sequence *s = asked_for(l, id);
	if (s != NULL)
		s->lane = lane;
}

void engine_conn_credit(struct engine_conn *l, uint64_t id, uint32_t n_tokens)
{
	struct proto_credit m = {.n_tokens = n_tokens};
	if (l->state != LINK_UP || asked_for(l, id) == NULL)
		return;
	/* A credit that can't be written would leave the sequence waiting for ever. Going down here
	 * would pull the link from under the frame that may be calling. */
	if (proto_put_credit(&l->out, id, &m) != 0)
		l->overrun = true;
	link_flush_soon(l);
}

void engine_conn_hand(struct engine_conn *l, uint64_t id, const struct proto_hand *m)
{
	if (l->state != LINK_UP || asked_for(l, id) == NULL)
		return;
	/* As with a credit: its sequence would wait for pages in vain. */
	if (proto_put_hand(&l->out, id, m) != 0)
		l->overrun = true;
	link_flush_soon(l);
}

void engine_conn_keep(struct engine_conn *l, const struct proto_keep *k)
{
	/* One without room is lost: the time of before applies. Like prompts, they leave room to credit. */
	if (l->state != LINK_UP || !has_room(l, (struct proto_str){0}, PROTO_PRIORITIES - 1))
		return;
	(void)proto_put_keep(&l->out, k);
	link_flush_soon(l);
}

void engine_conn_levels(struct engine_conn *l)
{
	struct log_levels now;
	struct proto_levels m = {.n = LOG_N_SUBSYSTEMS};
	_Static_assert((int)LOG_N_SUBSYSTEMS <= PROTO_MAX_LEVELS && (int)LOG_ERROR == PROTO_LAST_LEVEL,
		       "the frame has room");
	if (l->state != LINK_UP || !has_room(l, (struct proto_str){0}, PROTO_PRIORITIES - 1))
		return;
	log_get_levels(&now);
	memcpy(m.least, now.least, sizeof now.least);
	(void)proto_put_levels(&l->out, &m);
	link_flush_soon(l);
}

static void cancel(struct engine_conn *l, uint64_t id)
{
	if (l->state != LINK_UP)
		return;
	if (proto_put_cancel(&l->out, id) != 0)
		l->overrun = true;
	link_flush_soon(l);
}

void engine_conn_forget(struct engine_conn *l, uint64_t id)
{
	struct sequence *s = asked_for(l, id);
	if (s == NULL)
		return;
	link_unlimit(l, s, false);
	link_remove(l, s);
	cancel(l, id);
}

void engine_conn_abandon(struct engine_conn *l, uint64_t id, void (*stopped)(void *ctx), void *ctx)
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
