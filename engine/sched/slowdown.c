/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/slowdown.h"

#include "base/clock.h"
#include "base/proto/proto.h"

/* Shares of time in which a task waited for a processor: from the first it is slowed, below the second it is not. */
static const double much = 0.5, little = 0.25;
static const double weight = 0.4; /* of the latest reading */

static bool is_one_of_three(uint8_t last) { return (last & 7) != 0; }
static bool are_two_of_three(uint8_t last) { return __builtin_popcount(last & 7u) >= 2; }

/* It becomes slowed. True: more often than a steady source does. */
static bool turn(struct slowdown_source *s, uint64_t now_ns)
{
	uint8_t at = s->n_turns % SLOWDOWN_TURNS;
	uint64_t first_ns = s->turns_ns[at];
	s->turns_ns[at] = now_ns;
	s->n_turns = (uint8_t)(s->n_turns + 1 < 2 * SLOWDOWN_TURNS ? s->n_turns + 1 : SLOWDOWN_TURNS);
	return first_ns != 0 && now_ns - first_ns < SLOWDOWN_TURNS_S * (uint64_t)NS_PER_S;
}

static bool is_calm(const struct slowdown_source *s, uint64_t now_ns)
{
	if (s->n_calm < SLOWDOWN_QUIET)
		return false;
	return !s->unsteady || now_ns >= s->told_ns + SLOWDOWN_TURNS_S * (uint64_t)NS_PER_S;
}

static void take(struct slowdown *all, int i, bool tells, uint64_t now_ns, struct slowdown_news *news)
{
	struct slowdown_source *s = &all->of[i];
	s->last = (uint8_t)(s->last << 1 | tells);
	if (tells)
		s->told_ns = now_ns;
	if (!s->slowed && tells && are_two_of_three(s->last)) {
		s->slowed = true;
		s->n_calm = 0;
		news->slowed |= 1u << i;
		if (turn(s, now_ns) && !s->unsteady) {
			s->unsteady = true;
			news->unsteady |= 1u << i;
		}
	} else if (s->slowed) {
		s->n_calm =
		    is_one_of_three(s->last) ? 0 : (uint8_t)(s->n_calm < SLOWDOWN_QUIET ? s->n_calm + 1 : s->n_calm);
		if (is_calm(s, now_ns)) {
			s->slowed = s->unsteady = false;
			news->calm |= 1u << i;
		}
	}
}

/* The kernel's counter grows at most as fast as time; one that does not is no reading. */
static bool is_stalled(struct slowdown *s, const struct slowdown_reading *r)
{
	const bool was = s->of[SLOWDOWN_CPU].slowed;
	const uint64_t us = r->now_ns > s->at_ns ? (r->now_ns - s->at_ns) / 1000 : 0,
		       stalled = r->cpu_stalled_us - s->stalled_us;
	const bool first = s->at_ns == 0,
		   sound = us > 0 && r->cpu_stalled_us >= s->stalled_us && stalled <= us + us / 8;
	s->at_ns = r->now_ns;
	s->stalled_us = r->cpu_stalled_us;
	if (first || !sound)
		return false;
	s->stalled += weight * ((double)stalled / (double)us - s->stalled);
	return s->stalled >= (was ? little : much);
}

struct slowdown_news slowdown_take(struct slowdown *s, const struct slowdown_reading *r)
{
	const uint32_t counts = PROTO_SLOWED_POWER | PROTO_SLOWED_THERMAL | PROTO_SLOWED_HARDWARE;
	struct slowdown_news news = {0};
	take(s, SLOWDOWN_DEVICE, r->has_device && (r->device_slowed & counts) != 0, r->now_ns, &news);
	take(s, SLOWDOWN_CPU, r->has_cpu && is_stalled(s, r), r->now_ns, &news);
	return news;
}

bool slowdown_is(const struct slowdown *s)
{
	for (int i = 0; i < SLOWDOWN_N; i++)
		if (s->of[i].slowed)
			return true;
	return false;
}
