/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifiers: a gateway chooses its own per link, the engine needs one for all links, so each request has a struct
 * link_seq in two tables. It lives from SUBMIT (or COUNT) to its last event, even after its link has closed: then
 * `link` is NULL, the sequence is cancelled and its remaining events are dropped.
 *
 * Engine threads encode each event once, into a mail that holds the whole frame. The I/O thread writes the link's
 * identifier into the head and appends the frame. The mailbox keeps the order of each sequence.
 *
 * Out of memory: the mail for a sequence's last event (DONE, COUNTED) is reserved with the request. Losing any other
 * event would leave a gap in an answer, so the hub closes all links; every gateway then starts its sequences again.
 */
#include "engine/core/link.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

struct link_seq {
	struct idmap_node in_hub, in_link;
	struct eng_link *link; /* NULL: closed */
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
	MODEL_EVENT_BYTES = PROTO_HEAD_BYTES + 64 + PROTO_MAX_NAME + PROTO_MAX_MESSAGE + 4 * PROTO_MAX_MARKERS,
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

/* The most bytes that the pieces of n_tokens take, with their flag. */
static size_t pieces_bytes(const struct proto_pieces *p, size_t n_tokens)
{
	return 1 + (p->of != NULL ? n_tokens * (1 + PROTO_MAX_PIECE) : 0);
}

/* The most bytes that the event's frame takes. */
static size_t frame_bytes(const struct eng_event *ev)
{
	const struct proto_tokens *t = &ev->u.tokens;
	const struct proto_prompt_logprobs *p = &ev->u.prompt_logprobs;
	size_t n;
	switch (ev->kind) {
	case ENG_QUEUED: return PROTO_HEAD_BYTES + PROTO_QUEUED_BYTES;
	case ENG_CHOICE: return PROTO_HEAD_BYTES + 16;
	case ENG_VERIFIED: return PROTO_HEAD_BYTES + 8;
	case ENG_HANDED: return PROTO_HEAD_BYTES + 32;
	case ENG_EMBEDDING: return PROTO_HEAD_BYTES + 2 + ev->u.embedding.n * sizeof(float);
	case ENG_PROMPT_LOGPROBS:
		n = (1u + p->n_top) * (size_t)p->n;
		return PROTO_HEAD_BYTES + 7 + 8 * n + pieces_bytes(&p->pieces, n);
	case ENG_TOKENS:
		n = (1u + t->n_top) * (size_t)t->n;
		return (size_t)PROTO_HEAD_BYTES + 8 + 4u * t->n + 8 * n + t->text.n + pieces_bytes(&t->pieces, n);
	case ENG_COUNTED: return LAST_EVENT_BYTES + ev->u.counted.ids.n + ev->u.counted.text.n;
	case ENG_MODEL:
	case ENG_DONE: break;
	}
	return MODEL_EVENT_BYTES;
}

static int encode(struct sl_buf *out, const struct eng_event *ev)
{
	switch (ev->kind) {
	case ENG_MODEL: return proto_put_model(out, &ev->u.model);
	case ENG_QUEUED: return proto_put_queued(out, ev->id, &ev->u.queued);
	case ENG_PROMPT_LOGPROBS: return proto_put_prompt_logprobs(out, ev->id, &ev->u.prompt_logprobs);
	case ENG_VERIFIED: return proto_put_verified(out, ev->id, &ev->u.verified);
	case ENG_TOKENS: return proto_put_tokens(out, ev->id, &ev->u.tokens);
	case ENG_EMBEDDING: return proto_put_embedding(out, ev->id, &ev->u.embedding);
	case ENG_HANDED: return proto_put_handed(out, ev->id, &ev->u.handed);
	case ENG_CHOICE: return proto_put_choice(out, ev->id, &ev->u.choice);
	case ENG_DONE: return proto_put_done(out, ev->id, &ev->u.done);
	case ENG_COUNTED: return proto_put_counted(out, ev->id, &ev->u.counted);
	}
	return SL_EINVAL;
}

static bool is_last(enum eng_event_kind kind) { return kind == ENG_DONE || kind == ENG_COUNTED; }

/* A COUNTED with ids or text is larger than what was reserved for it. Without memory it becomes a refusal in that. */
static struct event_mail *listed_mail(struct event_mail *reserved, const struct eng_event **ev, struct eng_event *less)
{
	static const char why[] = "The engine is out of memory.";
	struct event_mail *m = mail_new(frame_bytes(*ev));
	if (m != NULL) {
		sl_free(reserved);
		return m;
	}
	*less = (struct eng_event){.kind = ENG_COUNTED,
				   .id = (*ev)->id,
				   .u.counted = {.error = PROTO_ERR_OVERLOADED, .message = {why, sizeof why - 1}}};
	*ev = less;
	return reserved;
}

/* NULL: it is lost, and so are the links. */
static struct event_mail *written(struct link_hub *hub, const struct eng_event *ev)
{
	struct eng_event less;
	struct event_mail *m = is_last(ev->kind) ? spare_take(hub) : mail_new(frame_bytes(ev));
	if (ev->kind == ENG_COUNTED && ev->u.counted.ids.n + ev->u.counted.text.n > 0)
		m = listed_mail(m, &ev, &less);
	if (m == NULL) {
		atomic_store(&hub->lost, true);
		mailbox_nudge(&hub->box);
		return NULL;
	}
	int rc = encode(&m->frame, ev);
	BUG_IF(rc != 0, "an event of kind %d can't be encoded: %s", (int)ev->kind, sl_code_name(rc));
	m->kind = ev->kind;
	m->id = ev->id;
	if (ev->kind == ENG_MODEL) {
		m->model = ev->u.model.index;
		m->ready = ev->u.model.state == PROTO_MODEL_READY;
	}
	return m;
}

void hub_post(void *ctx, const struct eng_event *ev)
{
	struct link_hub *hub = ctx;
	struct event_mail *m = written(hub, ev);
	if (m != NULL)
		mailbox_send(&hub->box, &m->mail);
}

void hub_post_here(struct link_hub *hub, const struct eng_event *ev)
{
	struct event_mail *m = written(hub, ev);
	if (m != NULL)
		mailbox_keep(&hub->box, &m->mail);
	hub->posted_here = true;
}

/* ---- output ---- */

/* rc: of an encoder or an append. A link that can't store its output closes. */
static void out_result(struct eng_link *l, int rc)
{
	BUG_IF(rc == SL_EINVAL, "a frame with a field out of bounds");
	if (rc != 0 && !l->overflow) {
		if (rc == SL_ELIMIT)
			log_warn("gateway link closed: %u bytes are unread", l->out.len);
		else
			log_warn("gateway link closed: out of memory");
		l->overflow = l->finished = true;
	}
}

struct link_seq *hub_seq(const struct link_hub *hub, uint64_t id)
{
	struct idmap_node *node = idmap_find(&hub->seqs, id);
	return node != NULL ? idmap_entry(node, struct link_seq, in_hub) : NULL;
}

void hub_post_tokens_here(struct link_hub *hub, const struct link_seq *s, const struct proto_tokens *m)
{
	if (hub->posted_here) { /* what was kept comes first */
		const struct eng_event ev = {.kind = ENG_TOKENS, .id = s->in_hub.key, .u.tokens = *m};
		hub_post_here(hub, &ev);
		return;
	}
	hub->changed = hub->changed || !hub->calm;
	if (s->link != NULL && !s->link->finished)
		out_result(s->link, proto_put_tokens(&s->link->out, s->in_link.key, m));
}

static void link_bye(struct eng_link *l, const char *reason)
{
	if (l->finished)
		return;
	struct proto_bye bye = {.reason = {.at = reason, .n = strlen(reason)}};
	out_result(l, proto_put_bye(&l->out, &bye));
	l->finished = true;
}

static bool is_open(const struct eng_link *l) { return l->greeted && !l->finished; }

static void refuse(struct eng_link *l, uint64_t id, bool counting, uint8_t error, const char *why)
{
	struct proto_str message = {.at = why, .n = strlen(why)};
	struct proto_counted counted = {.error = error, .message = message};
	struct proto_done done = {.finish = PROTO_FINISH_ERROR, .error = error, .message = message};
	out_result(l, counting ? proto_put_counted(&l->out, id, &counted) : proto_put_done(&l->out, id, &done));
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

/* A SUBMIT, a COUNT, or an ADAPTER, whose end is that of a COUNT. */
static int on_request(struct eng_link *l, uint64_t id, const struct proto_submit *submit,
		      const struct proto_count *count, const struct proto_adapter *adapter, struct sl_err *err)
{
	struct link_hub *hub = l->hub;
	bool counting = submit == NULL;
	if (seq_find(l, id) != NULL)
		return sl_errf(err, SL_EPROTO, "%s with an identifier in use",
			       submit != NULL  ? "SUBMIT"
			       : count != NULL ? "COUNT"
					       : "ADAPTER");
	hub->changed = hub->changed || !counting;
	if (hub->closing) {
		refuse(l, id, counting, PROTO_ERR_NOT_READY, "The engine is shutting down.");
		return 0;
	}
	struct link_seq *s = seq_add(l, id, counting);
	int rc = s == NULL         ? SL_ENOMEM
		 : adapter != NULL ? hub->backend->adapter(hub->be, s->in_hub.key, adapter)
		 : counting        ? hub->backend->count(hub->be, s->in_hub.key, count)
				   : hub->backend->submit(hub->be, s->in_hub.key, submit);
	if (rc == 0)
		return 0;
	if (s != NULL) { /* no event follows, so the reserved mail is freed too */
		sl_free(spare_take(hub));
		seq_remove(hub, s);
	}
	refuse(l, id, counting, PROTO_ERR_OVERLOADED,
	       rc == SL_ELIMIT ? "The engine's queue is full." : "The engine is out of memory.");
	return 0;
}

static int on_hello(struct eng_link *l, const struct proto_hello *hello, struct sl_err *err)
{
	static const char name[] = "sluice engine";
	struct link_hub *hub = l->hub;
	if (l->greeted)
		return sl_errf(err, SL_EPROTO, "a second HELLO");
	if (hello->version != PROTO_VERSION)
		return sl_errf(err, SL_EPROTO, "protocol version %u instead of %d", (unsigned)hello->version,
			       PROTO_VERSION);
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
	out_result(l, proto_put_stats(&l->out, &stats));
	if (hub->leaving)
		out_result(l, proto_put_leave(&l->out));
	return 0;
}

/* ---- input ---- */

static int on_adapter(struct eng_link *l, uint64_t id, const struct proto_adapter *ask, struct sl_err *err)
{
	if (l->hub->backend->adapter != NULL)
		return on_request(l, id, NULL, NULL, ask, err);
	refuse(l, id, true, ask->load ? PROTO_ERR_NO_FOLDER : PROTO_ERR_NO_MODEL, "This engine has no adapters.");
	return 0;
}

static void set_levels(const struct proto_levels *m)
{
	struct log_levels all;
	log_get_levels(&all);
	for (int i = 0; i < LOG_N_SUBSYSTEMS && i < m->n; i++)
		all.least[i] = m->least[i];
	log_set_levels(&all);
}

static int on_frame(struct eng_link *l, const struct proto_head *h, const uint8_t *p, struct sl_err *err)
{
	struct link_hub *hub = l->hub;
	union {
		struct proto_hello hello;
		struct proto_submit submit;
		struct proto_credit credit;
		struct proto_count count;
		struct proto_keep keep;
		struct proto_levels levels;
		struct proto_erase erase;
		struct proto_adapter adapter;
		struct proto_hand hand;
	} m;
	struct link_seq *s = seq_find(l, h->id);
	int rc;

	if (!l->greeted && h->type != PROTO_HELLO)
		return sl_errf(err, SL_EPROTO, "%s before HELLO", proto_type_name(h->type));
	if ((h->type == PROTO_CANCEL || h->type == PROTO_PING) && h->length != 0)
		return sl_errf(err, SL_EPROTO, "%s frame with a payload", proto_type_name(h->type));
	if (s != NULL && s->counting)
		s = NULL; /* a COUNT takes neither CREDIT nor CANCEL */
	switch (h->type) {
	case PROTO_HELLO:
		rc = proto_get_hello(p, h->length, &m.hello, err);
		return rc != 0 ? rc : on_hello(l, &m.hello, err);
	case PROTO_SUBMIT:
		rc = proto_get_submit(p, h->length, &m.submit, err);
		return rc != 0 ? rc : on_request(l, h->id, &m.submit, NULL, NULL, err);
	case PROTO_COUNT:
		rc = proto_get_count(p, h->length, &m.count, err);
		return rc != 0 ? rc : on_request(l, h->id, NULL, &m.count, NULL, err);
	case PROTO_CREDIT:
		rc = proto_get_credit(p, h->length, &m.credit, err);
		if (rc != 0)
			return rc;
		if (s != NULL)
			hub->backend->credit(hub->be, s->in_hub.key, m.credit.n_tokens);
		return 0;
	case PROTO_CANCEL:
		if (s != NULL)
			hub->backend->cancel(hub->be, s->in_hub.key);
		return 0;
	case PROTO_ADAPTER:
		rc = proto_get_adapter(p, h->length, &m.adapter, err);
		return rc != 0 ? rc : on_adapter(l, h->id, &m.adapter, err);
	case PROTO_HAND:
		rc = proto_get_hand(p, h->length, &m.hand, err);
		if (rc == 0 && s != NULL && hub->backend->hand != NULL)
			hub->backend->hand(hub->be, s->in_hub.key, &m.hand);
		return rc;
	case PROTO_KEEP:
		rc = proto_get_keep(p, h->length, &m.keep, err);
		if (rc == 0 && hub->backend->keep != NULL)
			hub->backend->keep(hub->be, &m.keep);
		return rc;
	case PROTO_LEVELS:
		rc = proto_get_levels(p, h->length, &m.levels, err);
		if (rc == 0)
			set_levels(&m.levels);
		return rc;
	case PROTO_ERASE:
		rc = proto_get_erase(p, h->length, &m.erase, err);
		if (rc == 0 && hub->backend->erase != NULL)
			hub->backend->erase(hub->be, &m.erase);
		return rc;
	case PROTO_PING: out_result(l, proto_put_pong(&l->out, h->id)); return 0;
	default: return sl_errf(err, SL_EPROTO, "only the engine sends %s", proto_type_name(h->type));
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
			log_warn("gateway link closed: %s", err.text);
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
	hub->n_ready += m->ready - hub->ready[m->model];
	hub->ready[m->model] = m->ready;
	list_each(it, &hub->links) {
		struct eng_link *l = list_entry(it, struct eng_link, in_hub);
		if (is_open(l))
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
	if (is_last(m->kind))
		seq_remove(hub, s);
}

void hub_deliver(struct link_hub *hub)
{
	struct mail *next, *it = mailbox_take_all(&hub->box);
	hub->posted_here = false;
	for (; it != NULL; it = next) {
		next = it->next;
		struct event_mail *m = (struct event_mail *)(void *)it;
		hub->changed = hub->changed || m->kind != ENG_TOKENS || !hub->calm;
		deliver(hub, m);
		sl_free(m);
	}
	if (atomic_exchange(&hub->lost, false)) {
		log_error("out of memory: events were lost, so all links close");
		hub_bye(hub, "out of memory");
	}
}

/* What is not sent for lack of memory comes with the next ones. */
static void send_prefixes(struct link_hub *hub, struct eng_link *l)
{
	uint64_t *changes;
	size_t n, at = 0;
	struct proto_prefixes m;
	if (hub->backend->prefixes == NULL ||
	    hub->backend->prefixes(hub->be, &l->prefixes_read, &m.anew, &changes, &n) != 0 || changes == NULL)
		return;
	do {
		m.changes = changes + at;
		m.n = (uint16_t)(n - at < PROTO_MAX_PREFIXES ? n - at : PROTO_MAX_PREFIXES);
		out_result(l, proto_put_prefixes(&l->out, &m));
		m.anew = false;
		at += m.n;
	} while (at < n && is_open(l));
	sl_free(changes);
}

void hub_send_stats(struct link_hub *hub)
{
	struct proto_stats stats;
	struct proto_load loads[PROTO_MAX_MODELS];
	int n_loads = 0;
	hub->backend->stats(hub->be, &stats);
	for (int i = 0; i < hub->backend->n_models(hub->be); i++)
		n_loads += hub->backend->load(hub->be, i, &loads[n_loads]);
	list_each(it, &hub->links) {
		struct eng_link *l = list_entry(it, struct eng_link, in_hub);
		if (is_open(l))
			out_result(l, proto_put_stats(&l->out, &stats));
		for (int i = 0; i < n_loads && is_open(l); i++)
			out_result(l, proto_put_load(&l->out, &loads[i]));
		if (is_open(l))
			send_prefixes(hub, l);
	}
	hub->changed = false;
}

static void cancel_all(struct link_hub *hub, struct eng_link *only)
{
	for (size_t i = 0; i < hub->seqs.n_slots; i++) {
		struct idmap_node *node = hub->seqs.slots[i];
		for (; node != NULL; node = node->next) {
			struct link_seq *s = idmap_entry(node, struct link_seq, in_hub);
			if (!s->counting && (only == NULL || s->link == only))
				hub->backend->cancel(hub->be, s->in_hub.key);
		}
	}
}

void hub_close(struct link_hub *hub)
{
	hub->closing = true;
	cancel_all(hub, NULL);
}

void hub_leave(struct link_hub *hub)
{
	hub->leaving = true;
	list_each(it, &hub->links) {
		struct eng_link *l = list_entry(it, struct eng_link, in_hub);
		if (is_open(l))
			out_result(l, proto_put_leave(&l->out));
	}
}

void hub_bye(struct link_hub *hub, const char *reason)
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
	/* One whole frame, and what one read may append to it. */
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
