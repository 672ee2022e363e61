/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocator for libevent's small blocks.
 */
#ifndef GATEWAY_EVENT_MEMORY_H
#define GATEWAY_EVENT_MEMORY_H

#include <stddef.h>

/* Called once, before libevent allocates anything; applies to the whole process. */
void event_memory_install(void);
/* Bytes of the region for small blocks that were ever used. */
size_t event_memory_small(void);

#endif
