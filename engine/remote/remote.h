/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: an engine process whose models another server runs, the upstream, which speaks OpenAI's API. For the
 * gateway it is an engine like any other: tiers, quotas, pace, sessions, sharing, the cascade and the logs of answers
 * work over it as they are.
 *
 *   remote           the backend: sequences, their queue and ends, prediction
 *   remote_stream    one answer's stream: events, credit, pace, time limits
 *   remote_body      a SUBMIT as a request's body (remote_chat: messages and tools)
 *   remote_event     the stream's events as tokens (remote_chunk: plain ones; remote_answer: the queue until they have credit)
 *   remote_http      libcurl on the event loop (remote_plain: streams without TLS, read without it)
 *   remote_health    the upstream's list of models, probes
 *   remote_load      the upstream's own metrics (remote_gauges: their text)
 *   remote_breaker   whether requests are sent at all
 *   remote_fault     what is said of what went wrong
 *   remote_embed     requests whose result is a vector
 *
 * What differs from an engine with models: prompt tokens are estimated until the upstream's usage corrects them; tokens
 * have no ids of the model's; the upstream's prefix cache is its own. An answer is not resumed by another gateway if
 * the upstream does not repeat itself for equal seeds.
 *
 * Thread: I/O. libcurl resolves names in threads of its own.
 */
#ifndef ENGINE_REMOTE_H
#define ENGINE_REMOTE_H

#include "base/err.h"
#include "engine/core/server.h"
#include "engine/engine.h"

struct remote;

/* Attaches itself to the server's hub and announces its models. SL_EINVAL: the configuration; SL_EUNSUPPORTED: no
 * libcurl; SL_ENOMEM; *err is set. */
int remote_create(const struct eng_remote_config *cfg, struct server *server, struct remote **out, struct sl_err *err);
void remote_destroy(struct remote *r);

#endif
