/* SPDX-License-Identifier: Apache-2.0
 *
 * libevent's memory.
 */
#ifndef GATEWAY_EVENT_MEMORY_H
#define GATEWAY_EVENT_MEMORY_H

#include <stddef.h>

/* For the whole process, before libevent has allocated anything. */
void event_memory_install(void);
/* Bytes of the place for small pieces that were ever used. */
size_t event_memory_small(void);

#endif
