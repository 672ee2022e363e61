/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits that are not of one connection, and nothing of protocols. Two rules run through:
 *
 * Who is over a limit is told, as long as telling is cheap. A connection somewhat over its address's
 * limit is accepted, its first request answered 429, and then it is ended; only beyond a quarter more
 * is a connection closed without a word. What is counted is given back when it ends, so nobody
 * recovers later than his own connections do.
 *
 * Limits of addresses are not for proxies: behind one of those are many clients. Addresses that are
 * trusted to say whose a request is, those the configuration exempts, and unix sockets are not
 * counted; the clients that they name are.
 *
 * Memory is given back where it costs least: first by idle connections, the longest idle first, which
 * may come again; requests with a body are refused with 503 meanwhile, since they are what makes
 * memory grow; those without (health, metrics, reading on in a stream) go on. Far above the limit no
 * connection is accepted, and bodies that are still coming are refused too.
 *
 * Thread: the transport's; the counts are of the process.
 */
#include "gateway/transport/client_limits.h"

#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/transport/addr_count.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/forwarded.h"
#include "gateway/transport/http_stream.h"
#include "gateway/transport/pressure.h"

enum {
	TOLD_AT_LEAST = 4, /* connections over the limit that are told */
	IDLE_ENDS_A_TICK = 64,
};

#define REJECTED(why)                                                                                          \
	{                                                                                                      \
		.kind = METRIC_COUNTER, .name = "sluice_http_connections_rejected_total",                      \
		.help = "Connections closed before their first byte was read.", .labels = "reason=\"" why "\"" \
	}
static struct metric rejected_full = REJECTED("limit");
static struct metric rejected_address = REJECTED("address");
static struct metric rejected_memory = REJECTED("memory");

#define LIMITED(what)                                                                    \
	{                                                                                \
		.kind = METRIC_COUNTER, .name = "sluice_http_limited_total",             \
		.help = "Requests refused and connections ended for a limit, by which.", \
		.labels = "limit=\"" what "\""                                           \
	}
static struct metric limited_conns = LIMITED("connections_per_address");
static struct metric limited_streams = LIMITED("streams_per_address");
static struct metric limited_memory = LIMITED("memory");
static struct metric limited_idle = LIMITED("memory_idle");
static struct metric limited_forwarded = LIMITED("forwarded");

__attribute__((constructor)) static void register_metrics(void)
{
	struct metric *const metrics[] = {&rejected_full,   &rejected_address, &rejected_memory, &limited_conns,
					  &limited_streams, &limited_memory,   &limited_idle,    &limited_forwarded};
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
		metric_register(metrics[i]);
}

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
	int64_t told = most / 4 > TOLD_AT_LEAST ? most / 4 : TOLD_AT_LEAST;
	if (n == 0 || n > most + told) {
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
	/* Who may connect to a unix socket is said by its file's permissions. */
	return !net_addr_known(&c->addr) || net_blocks_hold(&c->tr->trusted, &c->addr);
}

/* ---- requests ---- */

/* Whose request it is, as far as the proxies in between are trusted. 0 or a status. */
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
	/* Bodies are what fills memory fast: sooner than at the next tick. */
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
