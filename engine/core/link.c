/* SPDX-License-Identifier: Apache-2.0
 *
 * Links and the hub between them and the engine.
 *
 * Identifiers: a gateway chooses its own per link, the engine needs one for all, so each request
 * has a struct link_seq in two tables. It lives from SUBMIT (or COUNT) to the last event for it,
 * also when the link has gone: then `link` is NULL, the sequence has been cancelled and the events
 * still on their way are dropped.
 *
 * Events come on the engine's threads. They are encoded there, once, into a mail that holds the
 * whole frame; the I/O thread only writes the link's identifier into the head and appends. Order
 * per sequence is the mailbox's order.
 *
 * Memory runs out: the last event of a sequence (DONE, COUNTED) has its mail set aside from the
 * beginning. Any other event that can't be stored would leave a hole in an answer; then all links
 * are closed, which tells every gateway that its sequences are gone, and they begin again.
 */
#include "engine/core/link.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

struct link_seq {
	struct idmap_node in_hub, in_link;
	struct eng_link *link; /* NULL: gone */
	bool counting;         /* a COUNT, not a sequence */
};

struct event_mail {
	struct mail mail;
	struct event_mail *next_spare;
	enum eng_event_kind kind;
	uint64_t id;
	uint16_t model;
	bool ready;
	struct sl_buf frame; /* in bytes[]: never grows */
	uint8_t bytes[];
};

enum {
	LAST_EVENT_BYTES = PROTO_HEAD_BYTES + 64 + PROTO_MAX_MESSAGE,
	MODEL_EVENT_BYTES = PROTO_HEAD_BYTES + 64 + PROTO_MAX_NAME + PROTO_MAX_MESSAGE,
};

/* ---- mail ---- */

static struct event_mail *mail_new(size_t frame_bytes)
{
	struct event_mail *m = sl_alloc(sizeof *m + frame_bytes);
	if (m == NULL)
		return NULL;
	*m = (struct event_mail){0};
	m->frame = (struct sl_buf){.mem = m->bytes, .cap = (uint32_t)frame_bytes, .max = (uint32_t)frame_bytes};
	return m;
}

static int spare_add(struct link_hub *hub)
{
	struct event_mail *m = mail_new(LAST_EVENT_BYTES);
	if (m == NULL)
		return SL_ENOMEM;
	pthread_mutex_lock(&hub->spare_lock);
	m->next_spare = hub->spare;
	hub->spare = m;
	pthread_mutex_unlock(&hub->spare_lock);
	return 0;
}

static struct event_mail *spare_take(struct link_hub *hub)
{
	pthread_mutex_lock(&hub->spare_lock);
	struct event_mail *m = hub->spare;
	BUG_IF(m == NULL, "more last events than requests");
	hub->spare = m->next_spare;
	pthread_mutex_unlock(&hub->spare_lock);
	return m;
}

/* The most that the pieces of so many tokens may take, with their flag. */
static size_t pieces_bytes(const struct proto_pieces *p, size_t n_tokens)
{
	return 1 + (p->of != NULL ? n_tokens * (1 + PROTO_MAX_PIECE) : 0);
}

void hub_post(void *ctx, const struct eng_event *ev)
{
	struct link_hub *hub = ctx;
	struct event_mail *m = NULL;
	size_t n;
	int rc = 0;
	switch (ev->kind) {
	case ENG_MODEL:
		m = mail_new(MODEL_EVENT_BYTES);
		if (m != NULL) {
			m->model = ev->u.model.index;
			m->ready = ev->u.model.state == PROTO_MODEL_READY;
			rc = proto_put_model(&m->frame, &ev->u.model);
		}
		break;
	case ENG_QUEUED:
		m = mail_new(PROTO_HEAD_BYTES + PROTO_QUEUED_BYTES);
		if (m != NULL)
			rc = proto_put_queued(&m->frame, ev->id, &ev->u.queued);
		break;
	case ENG_PROMPT_LOGPROBS:
		n = (1u + ev->u.prompt_logprobs.n_top) * (size_t)ev->u.prompt_logprobs.n;
		m = mail_new(PROTO_HEAD_BYTES + 7 + 8 * n + pieces_bytes(&ev->u.prompt_logprobs.pieces, n));
		if (m != NULL)
			rc = proto_put_prompt_logprobs(&m->frame, ev->id, &ev->u.prompt_logprobs);
		break;
	case ENG_CHOICE:
		m = mail_new(PROTO_HEAD_BYTES + 11);
		if (m != NULL)
			rc = proto_put_choice(&m->frame, ev->id, &ev->u.choice);
		break;
	case ENG_VERIFIED:
		m = mail_new(PROTO_HEAD_BYTES + 8);
		if (m != NULL)
			rc = proto_put_verified(&m->frame, ev->id, &ev->u.verified);
		break;
	case ENG_TOKENS:
		m = mail_new((size_t)PROTO_HEAD_BYTES + 8 + (12u + 8u * ev->u.tokens.n_top) * ev->u.tokens.n +
			     ev->u.tokens.text.n +
			     pieces_bytes(&ev->u.tokens.pieces, (1u + ev->u.tokens.n_top) * (size_t)ev->u.tokens.n));
		if (m != NULL)
			rc = proto_put_tokens(&m->frame, ev->id, &ev->u.tokens);
		break;
	case ENG_DONE:
		m = spare_take(hub);
		rc = proto_put_done(&m->frame, ev->id, &ev->u.done);
		break;
	case ENG_COUNTED:
		m = spare_take(hub);
		rc = proto_put_counted(&m->frame, ev->id, &ev->u.counted);
		break;
	}
	BUG_IF(rc != 0, "an event of kind %d can't be encoded: %s", (int)ev->kind, sl_code_name(rc));
	if (m == NULL) {
		atomic_store(&hub->lost, true);
		mailbox_nudge(&hub->box);
		return;
	}
	m->kind = ev->kind;
	m->id = ev->id;
	mailbox_send(&hub->box, &m->mail);
}

/* ---- output ---- */

/* What an encoder or an append returned. Output that can't be kept ends the link. */
static void out_result(struct eng_link *l, int rc)
{
	BUG_IF(rc == SL_EINVAL, "a frame with a field out of bounds");
	if (rc != 0 && !l->overflow) {
		if (rc == SL_ELIMIT)
			log_warn("a gateway does not read: its link is closed with %u bytes "
				 "unread",
				 l->out.len);
		else
			log_warn("a gateway's link is closed: out of memory");
		l->overflow = l->finished = true;
	}
}

static void link_bye(struct eng_link *l, const char *reason)
{
	if (l->finished)
		return;
	struct proto_bye bye = {.reason = {.at = reason, .n = strlen(reason)}};
	out_result(l, proto_put_bye(&l->out, &bye));
	l->finished = true;
}

static void put_refusal(struct eng_link *l, uint64_t id, uint8_t error, const char *why)
{
	struct proto_done done = {
	    .finish = PROTO_FINISH_ERROR, .error = error, .message = {.at = why, .n = strlen(why)}};
	out_result(l, proto_put_done(&l->out, id, &done));
}

static void put_count_refusal(struct eng_link *l, uint64_t id, uint8_t error, const char *why)
{
	struct proto_counted counted = {.error = error, .message = {.at = why, .n = strlen(why)}};
	out_result(l, proto_put_counted(&l->out, id, &counted));
}

static void put_stats(struct eng_link *l, const struct proto_stats *stats)
{
	if (l->greeted && !l->finished)
		out_result(l, proto_put_stats(&l->out, stats));
}

static void put_load(struct eng_link *l, const struct proto_load *load)
{
	if (l->greeted && !l->finished)
		out_result(l, proto_put_load(&l->out, load));
}

/* ---- requests ---- */

static struct link_seq *seq_find(const struct eng_link *l, uint64_t id)
{
	struct idmap_node *node = idmap_find(&l->seqs, id);
	return node != NULL ? idmap_entry(node, struct link_seq, in_link) : NULL;
}

static struct link_seq *seq_add(struct eng_link *l, uint64_t id, bool counting)
{
	struct link_seq *s = sl_zalloc(sizeof *s);
	if (s == NULL || spare_add(l->hub) != 0) {
		sl_free(s);
		return NULL;
	}
	s->link = l;
	s->counting = counting;
	s->in_hub.key = l->hub->next_id++;
	s->in_link.key = id;
	idmap_insert(&l->hub->seqs, &s->in_hub);
	idmap_insert(&l->seqs, &s->in_link);
	return s;
}

static void seq_remove(struct link_hub *hub, struct link_seq *s)
{
	idmap_remove(&hub->seqs, &s->in_hub);
	if (s->link != NULL)
		idmap_remove(&s->link->seqs, &s->in_link);
	sl_free(s);
}

/* The backend refused: no event will come, so the mail set aside goes too. */
static void seq_take_back(struct link_hub *hub, struct link_seq *s)
{
	sl_free(spare_take(hub));
	seq_remove(hub, s);
}

static const char *refusal(int rc)
{
	return rc == SL_ELIMIT ? "The engine's queue is full." : "The engine is out of memory.";
}

static void on_submit(struct eng_link *l, uint64_t id, const struct proto_submit *req)
{
	struct link_hub *hub = l->hub;
	hub->changed = true;
	if (hub->closing) {
		put_refusal(l, id, PROTO_ERR_NOT_READY, "The engine is shutting down.");
		return;
	}
	struct link_seq *s = seq_add(l, id, false);
	int rc = s != NULL ? hub->backend->submit(hub->be, s->in_hub.key, req) : SL_ENOMEM;
	if (rc == 0)
		return;
	if (s != NULL)
		seq_take_back(hub, s);
	put_refusal(l, id, PROTO_ERR_OVERLOADED, refusal(rc));
}

static void on_count(struct eng_link *l, uint64_t id, const struct proto_count *req)
{
	struct link_hub *hub = l->hub;
	if (hub->closing) {
		put_count_refusal(l, id, PROTO_ERR_NOT_READY, "The engine is shutting down.");
		return;
	}
	struct link_seq *s = seq_add(l, id, true);
	int rc = s != NULL ? hub->backend->count(hub->be, s->in_hub.key, req) : SL_ENOMEM;
	if (rc == 0)
		return;
	if (s != NULL)
		seq_take_back(hub, s);
	put_count_refusal(l, id, PROTO_ERR_OVERLOADED, refusal(rc));
}

static int on_hello(struct eng_link *l, const struct proto_hello *hello, struct sl_err *err)
{
	static const char name[] = "sluice engine";
	struct link_hub *hub = l->hub;
	if (l->greeted)
		return sl_errf(err, SL_EPROTO, "a second HELLO");
	if (hello->version != PROTO_VERSION)
		return sl_errf(err, SL_EPROTO, "protocol version %u, but this engine speaks %d",
			       (unsigned)hello->version, PROTO_VERSION);
	l->greeted = true;
	int n_models = hub->backend->n_models(hub->be);
	struct proto_hello mine = {.version = PROTO_VERSION,
				   .epoch = hub->epoch,
				   .n_models = (uint16_t)n_models,
				   .name = {.at = name, .n = sizeof name - 1}};
	out_result(l, proto_put_hello(&l->out, &mine));
	for (int i = 0; i < n_models; i++) {
		struct proto_model m;
		hub->backend->model_info(hub->be, i, &m);
		out_result(l, proto_put_model(&l->out, &m));
	}
	struct proto_stats stats;
	hub->backend->stats(hub->be, &stats);
	put_stats(l, &stats);
	return 0;
}

/* ---- input ---- */

static int on_frame(struct eng_link *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct link_hub *hub = l->hub;
	union {
		struct proto_hello hello;
		struct proto_submit submit;
		struct proto_credit credit;
		struct proto_count count;
	} m;
	struct link_seq *s;
	int rc;

	if (!l->greeted && h->type != PROTO_HELLO)
		return sl_errf(err, SL_EPROTO, "%s before HELLO", proto_type_name(h->type));
	switch (h->type) {
	case PROTO_HELLO:
		rc = proto_get_hello(p, h->length, &m.hello, err);
		return rc != 0 ? rc : on_hello(l, &m.hello, err);
	case PROTO_SUBMIT:
		rc = proto_get_submit(p, h->length, &m.submit, err);
		if (rc != 0)
			return rc;
		if (seq_find(l, h->id) != NULL)
			return sl_errf(err, SL_EPROTO, "SUBMIT with an identifier in use");
		on_submit(l, h->id, &m.submit);
		return 0;
	case PROTO_COUNT:
		rc = proto_get_count(p, h->length, &m.count, err);
		if (rc != 0)
			return rc;
		if (seq_find(l, h->id) != NULL)
			return sl_errf(err, SL_EPROTO, "COUNT with an identifier in use");
		on_count(l, h->id, &m.count);
		return 0;
	case PROTO_CREDIT:
		rc = proto_get_credit(p, h->length, &m.credit, err);
		if (rc != 0)
			return rc;
		s = seq_find(l, h->id);
		if (s != NULL && !s->counting)
			hub->backend->credit(hub->be, s->in_hub.key, m.credit.n_tokens);
		return 0;
	case PROTO_CANCEL:
		if (h->length != 0)
			return sl_errf(err, SL_EPROTO, "CANCEL frame with a payload");
		s = seq_find(l, h->id);
		if (s != NULL && !s->counting)
			hub->backend->cancel(hub->be, s->in_hub.key);
		return 0;
	case PROTO_PING:
		if (h->length != 0)
			return sl_errf(err, SL_EPROTO, "PING frame with a payload");
		out_result(l, proto_put_pong(&l->out, h->id));
		return 0;
	default: return sl_errf(err, SL_EPROTO, "%s is the engine's to send", proto_type_name(h->type));
	}
}

void link_feed(struct eng_link *l, const uint8_t *bytes, size_t n)
{
	struct sl_err err = {0};
	int rc = l->finished ? 0 : buf_append(&l->in, bytes, n);
	if (rc != 0) {
		link_bye(l, "out of memory");
		return;
	}
	while (!l->finished && l->in.len >= PROTO_HEAD_BYTES) {
		struct proto_head h;
		rc = proto_head_read(buf_data(&l->in), &h, &err);
		if (rc == 0 && l->in.len - PROTO_HEAD_BYTES < h.length)
			break;
		if (rc == 0)
			rc = on_frame(l, &h, buf_data(&l->in) + PROTO_HEAD_BYTES, &err);
		if (rc != 0) {
			log_warn("a gateway's link is closed: %s", err.text);
			link_bye(l, err.text);
			return;
		}
		buf_consume(&l->in, PROTO_HEAD_BYTES + h.length);
	}
	if (l->in.len == 0)
		buf_clear(&l->in, LINK_KEEP);
}

/* ---- events ---- */

static void deliver_model(struct link_hub *hub, const struct event_mail *m)
{
	uint64_t bit = 1ull << m->model;
	hub->ready_models = m->ready ? hub->ready_models | bit : hub->ready_models & ~bit;
	list_each(it, &hub->links) {
		struct eng_link *l = list_entry(it, struct eng_link, in_hub);
		if (l->greeted && !l->finished)
			out_result(l, buf_append(&l->out, buf_data(&m->frame), m->frame.len));
	}
}

static void deliver(struct link_hub *hub, struct event_mail *m)
{
	if (m->kind == ENG_MODEL) {
		deliver_model(hub, m);
		return;
	}
	struct idmap_node *node = idmap_find(&hub->seqs, m->id);
	BUG_IF(node == NULL, "an event after the last one of its sequence");
	struct link_seq *s = idmap_entry(node, struct link_seq, in_hub);
	struct eng_link *l = s->link;
	if (l != NULL && !l->finished) {
		uint8_t *id = buf_data(&m->frame) + 8;
		for (int i = 0; i < 8; i++)
			id[i] = (uint8_t)(s->in_link.key >> (8 * i));
		out_result(l, buf_append(&l->out, buf_data(&m->frame), m->frame.len));
	}
	if (m->kind == ENG_DONE || m->kind == ENG_COUNTED)
		seq_remove(hub, s);
}

void hub_deliver(struct link_hub *hub)
{
	struct mail *next, *it = mailbox_take_all(&hub->box);
	hub->changed = hub->changed || it != NULL;
	for (; it != NULL; it = next) {
		next = it->next;
		struct event_mail *m = (struct event_mail *)(void *)it;
		deliver(hub, m);
		sl_free(m);
	}
	if (atomic_exchange(&hub->lost, false)) {
		log_error("out of memory: events were lost, so every link is closed");
		hub_say_bye(hub, "out of memory");
	}
}

void hub_send_stats(struct link_hub *hub)
{
	struct proto_stats stats;
	struct proto_load load;
	hub->backend->stats(hub->be, &stats);
	list_each(it, &hub->links)
		put_stats(list_entry(it, struct eng_link, in_hub), &stats);
	for (int i = 0; i < hub->backend->n_models(hub->be); i++) {
		if (!hub->backend->load(hub->be, i, &load))
			continue;
		list_each(it, &hub->links)
			put_load(list_entry(it, struct eng_link, in_hub), &load);
	}
	hub->changed = false;
}

static void cancel_all(struct link_hub *hub, struct eng_link *only)
{
	for (size_t i = 0; i < hub->seqs.n_slots; i++) {
		struct idmap_node *node = hub->seqs.slots[i];
		for (; node != NULL; node = node->next) {
			struct link_seq *s = idmap_entry(node, struct link_seq, in_hub);
			if (only != NULL && s->link != only)
				continue;
			if (!s->counting)
				hub->backend->cancel(hub->be, s->in_hub.key);
		}
	}
}

void hub_close(struct link_hub *hub)
{
	hub->closing = true;
	cancel_all(hub, NULL);
}

void hub_say_bye(struct link_hub *hub, const char *reason)
{
	list_each(it, &hub->links)
		link_bye(list_entry(it, struct eng_link, in_hub), reason);
}

size_t hub_n_live(const struct link_hub *hub) { return hub->seqs.n; }

/* ---- life ---- */

int hub_init(struct link_hub *hub, uint64_t epoch)
{
	*hub = (struct link_hub){.epoch = epoch, .next_id = 1};
	list_init(&hub->links);
	int rc = idmap_init(&hub->seqs);
	if (rc != 0)
		return rc;
	rc = mailbox_init(&hub->box);
	if (rc != 0) {
		idmap_dispose(&hub->seqs);
		return rc;
	}
	pthread_mutex_init(&hub->spare_lock, NULL);
	return 0;
}

void hub_attach(struct link_hub *hub, const struct eng_backend *backend, void *be)
{
	hub->backend = backend;
	hub->be = be;
}

void hub_dispose(struct link_hub *hub)
{
	BUG_IF(!list_empty(&hub->links), "the hub is destroyed before its links");
	struct mail *next, *it = mailbox_take_all(&hub->box);
	for (; it != NULL; it = next) {
		next = it->next;
		sl_free(it);
	}
	struct idmap_node *node;
	while ((node = idmap_any(&hub->seqs)) != NULL)
		seq_remove(hub, idmap_entry(node, struct link_seq, in_hub));
	idmap_dispose(&hub->seqs);
	while (hub->spare != NULL)
		sl_free(spare_take(hub));
	mailbox_dispose(&hub->box);
	pthread_mutex_destroy(&hub->spare_lock);
}

int link_create(struct link_hub *hub, struct eng_link **out)
{
	struct eng_link *l = sl_zalloc(sizeof *l);
	if (l == NULL || idmap_init(&l->seqs) != 0) {
		sl_free(l);
		return SL_ENOMEM;
	}
	l->hub = hub;
	/* One whole frame and what one read may bring after it. */
	buf_init(&l->in, (size_t)PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD + LINK_KEEP);
	buf_init(&l->out, LINK_MAX_OUT);
	list_push_back(&hub->links, &l->in_hub);
	*out = l;
	return 0;
}

void link_destroy(struct eng_link *l)
{
	struct idmap_node *node;
	cancel_all(l->hub, l);
	while ((node = idmap_any(&l->seqs)) != NULL) {
		idmap_remove(&l->seqs, node);
		idmap_entry(node, struct link_seq, in_link)->link = NULL;
	}
	idmap_dispose(&l->seqs);
	list_remove(&l->in_hub);
	l->hub->changed = true;
	buf_dispose(&l->in);
	buf_dispose(&l->out);
	sl_free(l);
}
