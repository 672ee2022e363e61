/* SPDX-License-Identifier: Apache-2.0
 *
 * One question to one sentinel: AUTH, SENTINEL GET-MASTER-ADDR-BY-NAME. Its answer is an address or, with
 * announce-hostnames, a name, which a thread looks up, since getaddrinfo blocks. The link's timer bounds all of it by
 * freeing the question; a thread that still waits then frees the lookup. How long it waits the resolver decides, so the
 * number of these threads is bounded.
 *
 * Callbacks of hiredis only note what came; `told` goes on from the loop, where the connection may be freed.
 */
#define LOG_SUBSYSTEM LOG_STORE

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/util.h>

#include "base/alloc.h"
#include "cache/redis_priv.h"

enum { LARGEST_ANSWER = 64 << 10 };

/* Of the question and of its thread: the last one frees it. */
struct lookup {
	atomic_int owners;
	int done; /* an eventfd */
	int port, rc;
	char name[SENTINEL_HOST_MOST], host[64];
	struct sl_err err;
};

/* Threads of this process that look up a name. */
static atomic_int n_lookups;

struct sentinel_ask {
	const struct sentinel_place *at;
	redisAsyncContext *ac; /* NULL: none */
	struct redis_guard guard;
	struct event_base *base;
	struct event *told, *looked_up;
	struct lookup *lookup;
	sentinel_answer *done;
	void *ctx;
	int port; /* 0: no answer yet */
	char host[SENTINEL_HOST_MOST], why[160];
};

static void note(struct sentinel_ask *a)
{
	if (a->told != NULL)
		event_active(a->told, EV_TIMEOUT, 0);
}

/* The context ends: after an answer nothing is missed. */
static void closed(void *ctx)
{
	struct sentinel_ask *a = ctx;
	if (a->port == 0 && a->why[0] == '\0')
		snprintf(a->why, sizeof a->why, "%s",
			 a->ac->errstr == NULL || a->ac->errstr[0] == '\0' ? "the connection was closed"
									   : a->ac->errstr);
	a->ac = NULL;
	note(a);
}

static void take(struct sentinel_ask *a, const redisReply *r)
{
	const char *why = NULL, *host = sentinel_named(r, &a->port, &why);
	if (host != NULL)
		snprintf(a->host, sizeof a->host, "%s", host);
	else
		snprintf(a->why, sizeof a->why, "%.120s", why);
}

static void on_address(redisAsyncContext *ac, void *reply, void *ctx)
{
	struct sentinel_ask *a = ctx;
	(void)ac;
	if (reply == NULL)
		return; /* `closed` tells */
	if (a->why[0] == '\0')
		take(a, reply);
	note(a);
}

static void on_auth(redisAsyncContext *ac, void *reply, void *ctx)
{
	struct sentinel_ask *a = ctx;
	const redisReply *r = reply;
	(void)ac;
	if (r != NULL && r->type == REDIS_REPLY_ERROR)
		snprintf(a->why, sizeof a->why, "%.120s", r->str);
}

static void hang_up(struct sentinel_ask *a)
{
	if (a->ac != NULL)
		redisAsyncFree(a->ac); /* calls every callback, then `closed` */
}

static void answer(struct sentinel_ask *a, const char *host)
{
	char why[256];
	snprintf(why, sizeof why, "the sentinel at %s, port %d: %s", a->at->host, a->at->port, a->why);
	a->done(a->ctx, host, a->port, host == NULL ? why : NULL); /* frees a */
}

static bool is_numeric(const char *host)
{
	struct evutil_addrinfo hints = {.ai_flags = EVUTIL_AI_NUMERICHOST}, *found = NULL;
	int rc = evutil_getaddrinfo(host, NULL, &hints, &found);
	if (found != NULL)
		evutil_freeaddrinfo(found);
	return rc == 0;
}

static void leave(struct lookup *l)
{
	if (atomic_fetch_sub(&l->owners, 1) != 1)
		return;
	close(l->done);
	sl_free(l);
}

static void *look_up_name(void *arg)
{
	struct lookup *l = arg;
	l->rc = redis_find_host(l->name, l->port, l->host, &l->err);
	eventfd_write(l->done, 1);
	leave(l);
	atomic_fetch_sub(&n_lookups, 1);
	return NULL;
}

static void on_looked_up(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what;
	struct sentinel_ask *a = ctx;
	struct lookup *l = a->lookup;
	eventfd_t one;
	if (eventfd_read(l->done, &one) != 0)
		return;
	a->lookup = NULL;
	bool found = l->rc == 0;
	snprintf(found ? a->host : a->why, found ? sizeof a->host : sizeof a->why, "%.150s",
		 found ? l->host : l->err.text);
	a->port = found ? a->port : 0;
	leave(l);
	answer(a, found ? a->host : NULL);
}

static struct lookup *lookup_of(const struct sentinel_ask *a)
{
	struct lookup *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return NULL;
	*l = (struct lookup){.owners = 2, .done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .port = a->port};
	snprintf(l->name, sizeof l->name, "%s", a->host);
	if (l->done >= 0)
		return l;
	sl_free(l);
	return NULL;
}

static bool start_thread(struct lookup *l)
{
	pthread_attr_t detached;
	pthread_t thread;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	bool runs = atomic_fetch_add(&n_lookups, 1) < SENTINEL_MOST_LOOKUPS &&
		    pthread_create(&thread, &detached, look_up_name, l) == 0;
	if (!runs)
		atomic_fetch_sub(&n_lookups, 1);
	pthread_attr_destroy(&detached);
	return runs;
}

/* 0, or SL_ELIMIT. */
static int look_up(struct sentinel_ask *a)
{
	struct lookup *l = lookup_of(a);
	if (l == NULL)
		return SL_ELIMIT;
	a->looked_up = event_new(a->base, l->done, EV_READ, on_looked_up, a);
	if (a->looked_up != NULL && event_add(a->looked_up, NULL) == 0 && start_thread(l)) {
		a->lookup = l;
		return 0;
	}
	client_event_free(a->looked_up);
	a->looked_up = NULL;
	close(l->done);
	sl_free(l);
	return SL_ELIMIT;
}

static void told(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd, (void)what;
	struct sentinel_ask *a = ctx;
	if (a->ac != NULL) {
		hang_up(a); /* `closed` comes back here */
		return;
	}
	if (a->port <= 0)
		answer(a, NULL);
	else if (is_numeric(a->host))
		answer(a, a->host);
	else if (look_up(a) != 0) {
		snprintf(a->why, sizeof a->why, "no memory or thread to look up %.80s", a->host);
		answer(a, NULL);
	}
}

static int send_question(struct sentinel_ask *a, const struct cache *c)
{
	const char *auth[] = {"AUTH", c->sentinel_password};
	const char *question[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", c->sentinels.name};
	int rc = c->sentinel_password == NULL ? REDIS_OK : redisAsyncCommandArgv(a->ac, on_auth, a, 2, auth, NULL);
	return rc == REDIS_OK ? redisAsyncCommandArgv(a->ac, on_address, a, 3, question, NULL) : rc;
}

int sentinel_ask(const struct cache *c, struct event_base *base, unsigned turn, sentinel_answer *done, void *ctx,
		 struct sentinel_ask **out)
{
	struct sentinel_ask *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return SL_ENOMEM;
	*a = (struct sentinel_ask){
	    .at = &c->sentinels.of[turn % c->sentinels.n], .base = base, .done = done, .ctx = ctx};
	*out = a;
	a->told = event_new(base, -1, 0, told, a);
	if (a->told == NULL)
		return SL_ENOMEM;
	redisAsyncContext *ac = redisAsyncConnect(a->at->host, a->at->port);
	if (ac == NULL)
		return SL_ENOMEM;
	if (ac->err != 0) {
		snprintf(a->why, sizeof a->why, "%s", ac->errstr);
		redisAsyncFree(ac);
		note(a);
		return 0;
	}
	redis_reply_attach(ac, &a->guard);
	if (redis_event_attach(ac, base, LARGEST_ANSWER, closed, a) != 0) {
		redisAsyncFree(ac);
		return SL_ENOMEM;
	}
	a->ac = ac;
	return send_question(a, c) == REDIS_OK ? 0 : SL_ENOMEM;
}

void sentinel_ask_free(struct sentinel_ask *a)
{
	if (a == NULL)
		return;
	client_event_free(a->looked_up);
	client_event_free(a->told);
	a->told = NULL;
	hang_up(a);
	if (a->lookup != NULL)
		leave(a->lookup);
	sl_free(a);
}
