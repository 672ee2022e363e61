/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the process is short of memory: measured at most ten times a second, shared by all threads.
 */
#ifndef GATEWAY_PRESSURE_H
#define GATEWAY_PRESSURE_H

#include <stdint.h>

enum pressure {
	PRESSURE_NONE,
	PRESSURE_SHED, /* over limits.memory: idle connections end, requests with a body are refused */
	PRESSURE_FULL, /* an eighth over it: no connection is accepted, bodies in progress are refused */
};

/* Any thread. Measures again if the last measurement is old enough. limit: bytes; 0: none. */
enum pressure pressure_look(uint64_t limit, uint64_t now_ns);
/* Any thread, cheap. The last result. */
enum pressure pressure_now(void);

#endif
