/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates, reloads, drains and destroys the state that a thread's connections share. Destroying asserts that no
 * connection and no stream is left.
 */
#include "gateway/transport/transport.h"

#include <time.h>

#include "base/alloc.h"
#include "gateway/transport/client_limits.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/handover.h"
#include "gateway/transport/http_stream.h"
#include "gateway/transport/listener.h"
#include "gateway/transport/tls_context.h"

enum {
	/* Never reached: conn.c asks for much less output per connection and iteration. */
	SHARED_BUF_MAX = 4 << 20,
	LINGER_MS = 2000,
};

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct gw_transport *tr = arg;
	uint64_t now = gw_read_clock(tr->t);
	deadline_list_run(&tr->handshake, now);
	deadline_list_run(&tr->header, now);
	deadline_list_run(&tr->body, now);
	deadline_list_run(&tr->idle, now);
	deadline_list_run(&tr->stall, now);
	deadline_list_run(&tr->response, now);
	deadline_list_run(&tr->linger, now);
	limits_on_tick(tr, now);
	listeners_tick(tr, now);
}

const char *transport_date(struct gw_transport *tr)
{
	int64_t now = clock_unix_s();
	if (now != tr->date_s) {
		struct tm tm;
		time_t at = (time_t)now;
		gmtime_r(&at, &tm);
		strftime(tr->date, sizeof tr->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
		tr->date_s = now;
	}
	return tr->date;
}

static int create_parts(struct gw_transport *tr, struct sl_err *err)
{
	const struct gw_config *cfg = tr->t->cfg;
	static const struct timeval tick = {.tv_usec = TRANSPORT_TICK_MS * 1000};
	tr->read_buf = sl_alloc(TRANSPORT_READ_BYTES);
	tr->text_buf = sl_alloc(TRANSPORT_TEXT_BYTES);
	if (tr->read_buf == NULL || tr->text_buf == NULL || h2_env_create(cfg, &tr->h2) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory for the transport");
	tr->tick = event_new(tr->t->base, -1, EV_PERSIST, on_tick, tr);
	if (tr->tick == NULL || event_add(tr->tick, &tick) != 0)
		return sl_errf(err, SL_EIO, "the event loop refuses a timer");
	tr->shake_turn = event_new(tr->t->base, -1, 0, conn_shake_turn, tr);
	if (tr->shake_turn == NULL)
		return sl_errf(err, SL_EIO, "the event loop refuses a timer");
	const struct gw_listener_config *more = cfg->listeners.items;
	int rc = gateway_serves_tls(cfg) ? tls_context_create(cfg, &tr->tls, err) : 0;
	if (rc == 0)
		rc = listeners_open(tr, &cfg->https,
				    &(struct listener_options){.tls = true, .client_certs = cfg->client_certs}, err);
	if (rc == 0)
		rc = listeners_open(tr, &cfg->http, &(struct listener_options){0}, err);
	for (size_t i = 0; rc == 0 && i < cfg->listeners.n; i++)
		rc = listeners_open_config(tr, &more[i], err);
	if (rc == 0 && !cfg->takeover && !handover_given() && transport_accept(tr) != 0)
		rc = sl_errf(err, SL_EIO, "the event loop refuses a listening socket");
	return rc;
}

static void read_blocks(struct gw_transport *tr)
{
	net_blocks_read(&tr->t->cfg->limits.exempt_addresses, &tr->exempt);
	net_blocks_read(&tr->t->cfg->trusted_proxies, &tr->trusted);
}

int transport_create(struct gw_thread *t, const struct http_app *app, void *app_ctx, struct gw_transport **out,
		     struct sl_err *err)
{
	struct gw_transport *tr = sl_zalloc(sizeof *tr);
	if (tr == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the transport");
	const struct gw_limits *lim = &t->cfg->limits;
	tr->t = t;
	tr->app = app;
	tr->app_ctx = app_ctx;
	tr->reserve_fd = -1;
	list_init(&tr->listeners);
	list_init(&tr->conns);
	list_init(&tr->closed);
	gw_defer_init(&tr->free_closed, stream_free_closed);
	list_init(&tr->shaking);
	tr->shakes_left = lim->handshakes_per_turn;
	deadline_list_init(&tr->handshake, lim->handshake_ms);
	deadline_list_init(&tr->header, lim->header_ms);
	deadline_list_init(&tr->body, lim->body_ms);
	deadline_list_init(&tr->idle, lim->idle_ms);
	deadline_list_init(&tr->stall, lim->stall_ms);
	deadline_list_init(&tr->response, lim->response_ms);
	read_blocks(tr);
	deadline_list_init(&tr->linger, LINGER_MS);
	buf_init(&tr->plain, SHARED_BUF_MAX);
	buf_init(&tr->wire, SHARED_BUF_MAX);
	int rc = create_parts(tr, err);
	if (rc != 0) {
		transport_destroy(tr);
		return rc;
	}
	*out = tr;
	return 0;
}

void transport_set_tls(struct gw_transport *tr, struct tls_context *ctx)
{
	if (tr->tls == NULL) {
		tls_context_unref(ctx);
		return;
	}
	tls_context_unref(tr->tls);
	tr->tls = ctx;
}

void transport_reload(struct gw_transport *tr)
{
	const struct gw_limits *lim = &tr->t->cfg->limits;
	deadline_list_set(&tr->handshake, lim->handshake_ms);
	deadline_list_set(&tr->header, lim->header_ms);
	deadline_list_set(&tr->body, lim->body_ms);
	deadline_list_set(&tr->idle, lim->idle_ms);
	deadline_list_set(&tr->stall, lim->stall_ms);
	deadline_list_set(&tr->response, lim->response_ms);
	read_blocks(tr);
}

void transport_drain(struct gw_transport *tr, bool replaced)
{
	tr->draining = true;
	tr->replaced = replaced;
	if (replaced)
		listeners_close(tr);
	list_each_safe(it, tmp, &tr->conns)
		conn_drain(list_entry(it, struct conn, node));
}

bool transport_empty(const struct gw_transport *tr) { return list_empty(&tr->conns); }

bool transport_drained(const struct gw_transport *tr)
{
	if (tr->replaced)
		return list_empty(&tr->conns);
	/* Connections without a protocol yet do not delay the drain: new ones always arrive. */
	list_each(it, &tr->conns) {
		if (list_entry(it, struct conn, node)->state >= CONN_OPEN)
			return false;
	}
	return true;
}

void transport_destroy(struct gw_transport *tr)
{
	listeners_close(tr);
	while (!list_empty(&tr->conns))
		conn_close(list_entry(tr->conns.next, struct conn, node), HTTP_CLOSE_SHUTDOWN);
	BUG_IF(tr->n_conns != 0, "%lld connections left", (long long)tr->n_conns);
	BUG_IF(tr->n_streams != 0, "%lld streams left", (long long)tr->n_streams);
	gw_defer_cancel(&tr->free_closed);
	stream_free_closed(&tr->free_closed);
	if (tr->tick != NULL)
		event_free(tr->tick);
	if (tr->shake_turn != NULL)
		event_free(tr->shake_turn);
	tls_context_unref(tr->tls);
	h2_env_destroy(tr->h2);
	buf_dispose(&tr->plain);
	buf_dispose(&tr->wire);
	sl_free(tr->read_buf);
	sl_free(tr->text_buf);
	sl_free(tr);
}
