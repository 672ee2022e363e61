/* SPDX-License-Identifier: Apache-2.0
 *
 * hiredis on libevent. Not the adapter that comes with hiredis, because this one
 *  - closes a connection whose unparsed input exceeds the largest possible answer (hiredis itself would buffer a bulk
 * string of any length);
 *  - checks what libevent returns;
 *  - writes all commands of a loop iteration at once, at its end, and polls for writability only after a full socket:
 * two system calls less per command;
 *  - reports the end of the context: hiredis frees it after errors and always calls `cleanup`.
 *
 * hiredis reads at most 16 KiB a call, so one connection can't monopolize the loop.
 */
#include "base/alloc.h"
#include "cache/redis_priv.h"

struct attached {
	redisAsyncContext *ac;
	struct event *reads, *writes;
	size_t max_reply;
	void (*closed)(void *ctx);
	void *ctx;
	bool *writing; /* while hiredis writes: set to true if this struct is freed */
};

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct attached *a = arg;
	redisReader *reader = a->ac->c.reader;
	if (reader->len - reader->pos > a->max_reply)
		redisAsyncFree(a->ac);
	else
		redisAsyncHandleRead(a->ac);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct attached *a = arg;
	bool gone = false;
	a->writing = &gone;
	redisAsyncHandleWrite(a->ac);
	if (!gone)
		a->writing = NULL;
}

static void add_read(void *arg) { event_add(((struct attached *)arg)->reads, NULL); }
static void del_read(void *arg) { event_del(((struct attached *)arg)->reads); }
static void add_write(void *arg)
{
	struct attached *a = arg;
	/* Not before the connection is established, which the first writability shows, and not from a write that found
	 * the socket full. */
	if (a->writing == NULL && (a->ac->c.flags & REDIS_CONNECTED) && !event_pending(a->writes, EV_WRITE, NULL))
		event_active(a->writes, EV_WRITE, 0);
	else
		event_add(a->writes, NULL);
}
static void del_write(void *arg) { event_del(((struct attached *)arg)->writes); }

static void cleanup(void *arg)
{
	struct attached *a = arg;
	/* hiredis before 1.0 may call this twice. */
	a->ac->ev.cleanup = NULL;
	a->ac->ev.addRead = a->ac->ev.delRead = a->ac->ev.addWrite = a->ac->ev.delWrite = NULL;
	void (*closed)(void *) = a->closed;
	void *ctx = a->ctx;
	event_free(a->reads);
	event_free(a->writes);
	if (a->writing != NULL)
		*a->writing = true;
	sl_free(a);
	closed(ctx);
}

int redis_event_attach(redisAsyncContext *ac, struct event_base *base, size_t max_reply, void (*closed)(void *ctx),
		       void *ctx)
{
	struct attached *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return SL_ENOMEM;
	*a = (struct attached){.ac = ac, .max_reply = max_reply, .closed = closed, .ctx = ctx};
	a->reads = event_new(base, ac->c.fd, EV_READ | EV_PERSIST, on_readable, a);
	a->writes = event_new(base, ac->c.fd, EV_WRITE | EV_PERSIST, on_writable, a);
	if (a->reads == NULL || a->writes == NULL || event_add(a->reads, NULL) != 0 ||
	    event_add(a->writes, NULL) != 0) {
		client_event_free(a->reads);
		client_event_free(a->writes);
		sl_free(a);
		return SL_ENOMEM;
	}
	ac->ev.data = a;
	ac->ev.addRead = add_read;
	ac->ev.delRead = del_read;
	ac->ev.addWrite = add_write;
	ac->ev.delWrite = del_write;
	ac->ev.cleanup = cleanup;
	return 0;
}
