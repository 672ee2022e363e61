/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of the echo engine: so many answers of a model go on at once, the others wait in lines, one a
 * priority. So it is overloaded as a real engine is, and its predictions are as good as they can be: what
 * everybody still needs is known, but not what comes later.
 *
 * I/O thread.
 */
#ifndef ENGINE_ECHO_PLACES_H
#define ENGINE_ECHO_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/proto/proto.h"

enum { ECHO_MAX_PLACES = 4096 };

enum echo_place_state { ECHO_NO_CREDIT, ECHO_IN_LINE, ECHO_PLACED, ECHO_GONE };

/* One answer's; embedded in it. */
struct echo_place {
	struct list node; /* in a line, or among the placed */
	enum echo_place_state state;
	uint8_t priority;
	uint64_t placed_ns;
	double each_ns; /* that it needs a place for */
};

/* Those of one model. most 0: as many as come. */
struct echo_places {
	uint32_t most, n_placed;
	struct list lines[PROTO_PRIORITIES];
	uint32_t n_waiting[PROTO_PRIORITIES]; /* in line, or about to be */
	struct list placed;
	double need_ns; /* of all that are here, together */
};

void echo_places_init(struct echo_places *p, uint32_t most);
/* A request has come, which will need a place for so long; it has no credit. */
void echo_place_enter(struct echo_places *p, struct echo_place *w, uint8_t priority, double each_ns);
/* Credit has come: true: it has a place; false: it stands in line. */
bool echo_place_take(struct echo_places *p, struct echo_place *w, uint64_t now_ns);
/* It ends. The one that got its place, or NULL. */
struct echo_place *echo_place_leave(struct echo_places *p, struct echo_place *w, uint64_t now_ns);

/* In how long one with `ahead` others before it gets a place. */
uint64_t echo_places_wait_ns(const struct echo_places *p, uint32_t ahead, uint64_t now_ns);
/* Those before a newcomer of this priority. */
uint32_t echo_places_ahead(const struct echo_places *p, uint8_t priority);
void echo_places_load(const struct echo_places *p, uint64_t first_ns, uint64_t now_ns, struct proto_load *out);

#endif
