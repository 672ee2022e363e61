/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits beyond one connection: per address and for the process's memory. Nothing here depends on the protocol.
 *
 * A client over a limit gets an error response while that is cheap. A connection slightly over its address's limit
 * is accepted, its first request is answered 429, and then it ends. More than a quarter over the limit, connections
 * are closed without a response. Counts drop when connections and streams end; there is no penalty period.
 *
 * Per-address limits do not apply to trusted proxies, exempt addresses and unix sockets, which carry many clients.
 * The clients that a trusted proxy names are counted.
 *
 * Under memory pressure idle connections end first, the longest idle first, and requests with a body get 503: bodies
 * are what makes memory grow. Requests without a body (health, metrics, resumed streams) continue. Far above the
 * limit no connection is accepted and bodies in progress are refused.
 *
 * Thread: the transport's; the counts are per process.
 */
#include "gateway/transport/client_limits.h"

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/transport/addr_count.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/forwarded.h"
#include "gateway/transport/http_stream.h"
#include "gateway/transport/pressure.h"

enum {
	ANSWERED_LEAST = 4, /* connections over the limit that get a 429 */
	IDLE_ENDS_A_TICK = 64,
};

#define REJECTED(var, why)                                                                          \
	METRIC(var, METRIC_COUNTER, "sluice_http_connections_rejected_total", "reason=\"" why "\"", \
	       "Connections closed before their first byte was read.")
REJECTED(rejected_full, "limit");
REJECTED(rejected_address, "address");
REJECTED(rejected_memory, "memory");

#define LIMITED(var, what)                                                             \
	METRIC(var, METRIC_COUNTER, "sluice_http_limited_total", "limit=\"" what "\"", \
	       "Requests refused and connections ended, by the limit.")
LIMITED(limited_conns, "connections_per_address");
LIMITED(limited_streams, "streams_per_address");
LIMITED(limited_memory, "memory");
LIMITED(limited_idle, "memory_idle");
LIMITED(limited_forwarded, "forwarded");

static const struct gw_config *config(const struct gw_transport *tr) { return tr->t->cfg; }

static bool is_exempt(const struct gw_transport *tr, const struct net_addr *a)
{
	return !net_addr_known(a) || net_blocks_hold(&tr->exempt, a) || net_blocks_hold(&tr->trusted, a);
}

/* ---- connections ---- */

bool admit_socket(struct gw_transport *tr)
{
	if (tr->n_conns >= config(tr)->limits.connections) {
		metric_add(&rejected_full, 1);
		return false;
	}
	if (pressure_now() == PRESSURE_FULL) {
		metric_add(&rejected_memory, 1);
		return false;
	}
	return true;
}

int admit_conn(struct conn *c)
{
	const struct gw_config *cfg = config(c->tr);
	int64_t most = cfg->limits.connections_per_address;
	if (most == 0 || is_exempt(c->tr, &c->addr))
		return 0;
	int64_t n = addr_take(&c->addr, ADDR_CONNECTIONS, &c->counted);
	int64_t answered = most / 4 > ANSWERED_LEAST ? most / 4 : ANSWERED_LEAST;
	if (n == 0 || n > most + answered) {
		admit_conn_end(c);
		metric_add(&rejected_address, 1);
		return SL_ELIMIT;
	}
	c->over = n > most;
	return 0;
}

void admit_conn_end(struct conn *c)
{
	addr_give(c->counted, ADDR_CONNECTIONS);
	c->counted = NULL;
}

bool admit_proxy(const struct conn *c)
{
	/* The permissions of a unix socket decide which processes can connect. */
	return !net_addr_known(&c->addr) || net_blocks_hold(&c->tr->trusted, &c->addr);
}

/* ---- requests ---- */

/* *client: the request's client, from the fields of trusted proxies. 0, or the status of the refusal. */
static int find_client(struct http_stream *s, struct net_addr *client)
{
	const struct conn *c = s->conn;
	const struct gw_config *cfg = config(c->tr);
	*client = c->addr;
	if (cfg->forwarded == FORWARDED_OFF || c->tr->trusted.n == 0)
		return 0;
	if (net_addr_known(&c->addr) && !net_blocks_hold(&c->tr->trusted, &c->addr))
		return 0;
	if (forwarded_client((enum forwarded_kind)cfg->forwarded, s->req.fields, s->req.n_fields, &c->tr->trusted,
			     &c->addr, client) != 0) {
		metric_add(&limited_forwarded, 1);
		return 400;
	}
	if (net_addr_equal(client, &c->addr))
		return 0;
	s->peer = sl_alloc(NET_ADDR_TEXT);
	if (s->peer == NULL)
		return 503;
	net_addr_print(client, s->peer);
	s->req.peer = s->peer;
	return 0;
}

int admit_stream(struct http_stream *s)
{
	struct conn *c = s->conn;
	const struct gw_config *cfg = config(c->tr);
	struct net_addr client;
	int status = find_client(s, &client);
	if (status != 0)
		return status;
	if (c->over) {
		metric_add(&limited_conns, 1);
		c->proto->drain(c);
		return 429;
	}
	/* Bodies fill memory fast, so pressure is measured now, not at the next tick. */
	if (s->req.has_body && pressure_look(cfg->limits.memory, gw_now(c->tr->t)) != PRESSURE_NONE) {
		metric_add(&limited_memory, 1);
		return 503;
	}
	int64_t most = cfg->limits.streams_per_address;
	if (most == 0 || is_exempt(c->tr, &client))
		return 0;
	int64_t n = addr_take(&client, ADDR_STREAMS, &s->counted);
	if (n > 0 && n <= most)
		return 0;
	admit_stream_end(s);
	metric_add(&limited_streams, 1);
	return n == 0 ? 503 : 429;
}

bool admit_body(void)
{
	if (pressure_now() != PRESSURE_FULL)
		return true;
	metric_add(&limited_memory, 1);
	return false;
}

void admit_stream_end(struct http_stream *s)
{
	addr_give(s->counted, ADDR_STREAMS);
	s->counted = NULL;
}

const char *admit_reason(int status)
{
	switch (status) {
	case 400: return "The Forwarded header field is malformed.";
	case 429: return "Too many connections or requests from this address.";
	default: return "The server is short of memory; try again soon.";
	}
}

/* ---- memory ---- */

void limits_on_tick(struct gw_transport *tr, uint64_t now_ns)
{
	if (pressure_look(config(tr)->limits.memory, now_ns) == PRESSURE_NONE)
		return;
	int n = 0;
	list_each_safe(it, tmp, &tr->idle.head) {
		if (n++ == IDLE_ENDS_A_TICK)
			return;
		struct conn *c = list_entry(list_entry(it, struct deadline, node), struct conn, deadline);
		metric_add(&limited_idle, 1);
		conn_drain(c);
	}
}
