/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of where requests went, by engine and policy. Any thread.
 */
#ifndef GATEWAY_ROUTE_COUNTS_H
#define GATEWAY_ROUTE_COUNTS_H

#include <stdbool.h>

/* Once for each engine, again without effect. name: [A-Za-z0-9_-]. */
void route_counts_register(const char *name);
/* cached: it was known there that a part of the prompt is. spilled: the engines that get requests first were
 * saturated. */
void route_count(const char *name, int policy, bool cached, bool spilled);

#endif
