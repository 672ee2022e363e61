/* SPDX-License-Identifier: Apache-2.0
 *
 * Latencies and tokens of chat completions, all threads together.
 */
#ifndef GATEWAY_CHAT_METRICS_H
#define GATEWAY_CHAT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Any number of times, but not from two threads at once: a tier's name is registered when it is new. */
void chat_metrics_register(const char *const *tiers, size_t n_tiers);
/* From the end of the request's body to its first token. */
void chat_metrics_ttft(uint64_t ns);
/* Between two arrivals of tokens of one choice. paced: the engine makes them at its tier's pace. */
void chat_metrics_itl(uint64_t ns, bool paced);
/* At a request's end. */
void chat_metrics_tokens(const char *tier, uint32_t n_prompt, uint32_t n_completion);

#endif
