/* SPDX-License-Identifier: Apache-2.0
 *
 * An upstream for proxies that are compared with the gateway: chat completions over HTTP/1.1 whose
 * events look like the gateway's own, byte for byte as long, and come in common steps.
 */
#ifndef CMD_BENCH_MOCK_H
#define CMD_BENCH_MOCK_H

#include <stdint.h>

struct bench_mock {
	int listen_fd; /* not blocking */
	unsigned step_ms;
};

/* Serves until the process ends. */
void bench_mock_run(void *mock);

#endif
