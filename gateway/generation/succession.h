/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's process replaced by another under traffic. The former one says LEAVE once the other serves its socket:
 *
 *   NONE ──LEAVE──► HEIR      a second connection; the prompts that were asked for most (hot_prompts.h) are computed
 *     ▲                       there, without tokens, while new requests still go to the former process
 *     │              │ they are computed, SUCCESSION_WARM_MS are over, or the former process has gone
 *     │              ▼
 *     └─────────── FORMER     new requests go to the heir; the former connection keeps its sequences and is closed
 *        none is left         after the last one, which ends that process
 *
 * A sequence never moves: its identifier says which of the two connections it is on. Private to engine_link.c; the
 * loop of its thread.
 */
#ifndef GATEWAY_SUCCESSION_H
#define GATEWAY_SUCCESSION_H

#include <stdbool.h>
#include <stdint.h>

struct engine_conn;
struct engine_link;

enum { SUCCESSION_WARM_MS = 10000, SUCCESSION_WARM_PROMPTS = 16 };

enum succession_state { SUCCESSION_NONE, SUCCESSION_HEIR, SUCCESSION_FORMER };

struct succession {
	enum succession_state state;
	struct engine_conn *other; /* the heir's or the former one's; NULL: NONE */
	bool half;                 /* of the identifiers: that of the connection that gets requests */
	bool wanted;               /* LEAVE has come, and nothing followed yet */
	bool warming;
	unsigned n_warming; /* prompts that the heir computes */
	uint64_t until_ns;
};

void succession_init(struct engine_link *l);
/* The connections that get requests are stopped. */
void succession_dispose(struct engine_link *l);
/* LEAVE has come from the process that gets engine k's requests. */
void succession_begin(struct engine_link *l, int k);
/* c has gone down, or one of its models has another state. */
void succession_on_state(struct engine_link *l, const struct engine_conn *c);

#endif
