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

/* The first time, when its prompt has been counted. */
void queue_status_report(struct step *st, struct eng_seq *s);
/* From the step thread's loop, as often as it likes. */
void queue_status_tick(struct step *st, uint64_t now_ns);

#endif
