/* SPDX-License-Identifier: Apache-2.0
 *
 * Latencies of chat answers as the gateway sees them.
 */
#ifndef GATEWAY_CHAT_METRICS_H
#define GATEWAY_CHAT_METRICS_H

#include <stdint.h>

void chat_metrics_register(void);
void chat_metrics_ttft(uint64_t ns); /* request complete to first token */
void chat_metrics_itl(uint64_t ns);  /* between two arrivals of tokens */

#endif
