/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue status: reports position and predicted wait to waiting requests (QUEUED), and to gateways the wait that a new
 * request of each priority would meet (LOAD). Step thread.
 */
#ifndef ENGINE_QUEUE_STATUS_H
#define ENGINE_QUEUE_STATUS_H

#include <stdint.h>

#include "base/proto/proto.h"

struct eng_model;
struct eng_seq;
struct step;

/* The first report of s, once its prompt is tokenized. */
void queue_status_report(struct step *st, struct eng_seq *s);
/* Call it in every iteration of the step thread's loop. */
void queue_status_tick(struct step *st, uint64_t now_ns);

#endif
