/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's I/O thread: an event loop around a unix socket, its connections and the hub (engine/core/link.h) that
 * speaks the protocol. It does not know the backend that serves the requests.
 */
#ifndef ENGINE_SERVER_H
#define ENGINE_SERVER_H

#include "base/err.h"
#include "engine/engine.h"
#include "engine/core/link.h"

struct server;
struct event_base;

/* Binds the socket without accepting. Call it while the process has one thread, since it changes the umask. SL_ELIMIT:
 * another engine listens there; SL_EINVAL, SL_EIO, SL_ENOMEM. */
int server_create(const struct eng_server_config *cfg, struct server **out, struct sl_err *err);
/* The context of hub_post, which the backend gets as its event sink before server_run. */
struct link_hub *server_hub(struct server *s);
struct event_base *server_base(struct server *s);
/* SIGTERM and SIGINT stop the server; SIGUSR2 lets it leave once another process has its socket. 0 or SL_EIO. */
int server_catch_signals(struct server *s);
/* Serves until server_stop or a caught signal, then ends every sequence and removes the socket. */
void server_run(struct server *s);
/* Any thread. */
void server_stop(struct server *s);
/* Any thread: stops because the backend failed; server_failed is true afterwards. */
void server_fail(struct server *s);
bool server_failed(struct server *s);
/* The backend must be destroyed. */
void server_destroy(struct server *s);

/* What server_serve serves. */
struct server_backend {
	const char *what; /* for the log */
	/* Makes *be of cfg and attaches it to the server's hub. *err may stay empty. */
	int (*create)(const void *cfg, struct server *s, void **be, struct sl_err *err);
	void (*destroy)(void *be);
};
/* The life of an engine's process. Its exit status: 0, 1, or SERVER_EXIT_CONFIG. */
int server_serve(const struct eng_server_config *srv, const struct server_backend *b, const void *cfg);

/* Exit status: a restart can't help. */
enum { SERVER_EXIT_CONFIG = 78 };

#endif
