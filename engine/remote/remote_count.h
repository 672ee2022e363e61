/* SPDX-License-Identifier: Apache-2.0
 *
 * COUNT by the upstream: /tokenize and /detokenize in vLLM's form, beside its API. An upstream without them, or one
 * that does not answer in time, leaves the estimate that QUEUED has too; of ids and texts there is none.
 *
 *   remote_count ── request ──► its response, a failure or the deadline ── COUNTED, freed
 *
 * I/O thread.
 */
#ifndef ENGINE_REMOTE_COUNT_H
#define ENGINE_REMOTE_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

struct remote;

/* Exactly one COUNTED follows, maybe before it returns. 0 or SL_ENOMEM. */
int remote_count(struct remote *r, uint64_t id, const struct proto_count *req);
/* Those that run end without one. */
void remote_count_dispose(struct remote *r);

#endif
