/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency from a step of the echo engine to a reader on the engine's socket, without a gateway: the baseline for the
 * gateway's latency.
 */
#ifndef CMD_BENCH_DIRECT_H
#define CMD_BENCH_DIRECT_H

#include "base/err.h"
#include "cmd/load/histogram.h"

/* Runs n sequences for that many seconds. The engine must stamp its tokens. */
int bench_direct(const char *socket_path, uint32_t n, double seconds, struct histogram *out, struct sl_err *err);

#endif
