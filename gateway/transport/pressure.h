/* SPDX-License-Identifier: Apache-2.0
 *
 * Is the process's memory short? Looked at a few times a second, known by all threads.
 */
#ifndef GATEWAY_PRESSURE_H
#define GATEWAY_PRESSURE_H

#include <stdint.h>

enum pressure {
	PRESSURE_NONE,
	PRESSURE_SHED, /* over limits.memory: idle connections go, requests with bodies are refused */
	PRESSURE_FULL, /* an eighth over it: no connection is taken any more */
};

/* From the tick of any thread; measures when the last time is long enough ago. limit: bytes; 0: none. */
enum pressure pressure_look(uint64_t limit, uint64_t now_ns);
/* As it was found last. Any thread, cheap. */
enum pressure pressure_now(void);

#endif
