/* SPDX-License-Identifier: Apache-2.0
 *
 * An upstream for a proxy that is compared with the gateway: chat completions over HTTP/1.1 whose events have the
 * same form and size as the gateway's and come in common steps.
 */
#ifndef CMD_BENCH_MOCK_H
#define CMD_BENCH_MOCK_H

#include <stdint.h>

struct bench_mock {
	int listen_fd; /* non-blocking */
	unsigned step_ms;
};

/* Serves until the process ends. */
void bench_mock_run(void *mock);

#endif
