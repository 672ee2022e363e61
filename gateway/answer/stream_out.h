/* SPDX-License-Identifier: Apache-2.0
 *
 * A replay log read out as an exchange's answer: an event stream with heartbeats, from any event on.
 * The log continues without its readers.
 */
#ifndef GATEWAY_STREAM_OUT_H
#define GATEWAY_STREAM_OUT_H

#include "gateway/exchange/exchange.h"
#include "gateway/replay/replay.h"

/* Answers x with the log's events from number `from` on; takes over x->state and x->on_close. ids:
 * with id lines, and the stream's name in x-sluice-stream-id. SL_ERANGE: that event is not there (any
 * more); SL_ENOMEM; then x is not answered. */
int stream_out_start(struct exchange *x, struct replay_log *log, uint64_t from, bool ids);

#endif
