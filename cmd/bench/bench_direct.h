/* SPDX-License-Identifier: Apache-2.0
 *
 * The way from a step of the echo engine to a reader on its own socket, without a gateway: what a
 * gateway's time is compared with.
 */
#ifndef CMD_BENCH_DIRECT_H
#define CMD_BENCH_DIRECT_H

#include "base/err.h"
#include "cmd/load/histogram.h"

/* n sequences for that many seconds; the engine stamps its tokens. */
int bench_direct(const char *socket_path, uint32_t n, double seconds, struct histogram *out, struct sl_err *err);

#endif
