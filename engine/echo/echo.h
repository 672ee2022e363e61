/* SPDX-License-Identifier: Apache-2.0
 *
 * The echo engine: it speaks the engine's protocol without a model, for tests and measurements of the gateway. The room
 * owns its sequences, their timers and the slots they wait for (run_slots.h). Everything runs on the server's I/O
 * thread. Callers: engine_serve_echo and tests.
 */
#ifndef ENGINE_ECHO_H
#define ENGINE_ECHO_H

#include "engine/engine.h"
#include "engine/core/server.h"

struct echo;

/* Attaches itself to the server's hub. 0 or SL_ENOMEM. */
int echo_create(const struct eng_echo_config *cfg, struct server *server, struct echo **out);
/* After server_run, before server_destroy. */
void echo_destroy(struct echo *e);

#endif
