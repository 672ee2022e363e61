/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/admission/error_limit.h"

#include "base/clock.h"

/* A group that sent nothing for so long has no say. */
enum { SEEN_S = 30 };

static const double weight = 1.0 / 8; /* of the latest, in averages */
static const double too_many = 0.2;   /* a share that limits: two errors among five requests, or more */
static const double few = 0.1;        /* below it the limit doubles with each round */
static const double a_round = 3;      /* what a round of requests adds otherwise */
static const double concerned = 0.05; /* a tenant: an error among its last seven requests */

uint8_t error_limit_group(uint64_t tenant)
{
	return (uint8_t)((tenant * 0x9E3779B97F4A7C15u >> 32) % ERROR_LIMIT_TENANTS);
}

static bool is_recent(const struct error_share *s, uint64_t now_ns)
{
	return s->seen_ns != 0 && now_ns - s->seen_ns < SEEN_S * (uint64_t)NS_PER_S;
}

static void add(struct error_share *s, double error, uint64_t now_ns)
{
	if (!is_recent(s, now_ns))
		s->share = 0;
	s->share += (error - s->share) * weight;
	s->seen_ns = now_ns;
}

static void count(struct error_limit *l, uint8_t group, double error, uint64_t now_ns)
{
	add(&l->all, error, now_ns);
	add(&l->of[group], error, now_ns);
}

double error_limit_share(const struct error_limit *l, uint64_t now_ns)
{
	int n = 0, n_concerned = 0;
	for (int i = 0; i < ERROR_LIMIT_TENANTS; i++) {
		bool recent = is_recent(&l->of[i], now_ns);
		n += recent;
		n_concerned += recent && l->of[i].share > concerned;
	}
	return n_concerned > n / 2 ? l->all.share : 0;
}

bool error_limit_admits(const struct error_limit *l) { return !l->limited || l->in_flight + 1 <= l->limit; }

void error_limit_enter(struct error_limit *l, uint64_t now_ns)
{
	if (l->in_flight++ == 0)
		l->left_ns = now_ns;
}

void error_limit_success(struct error_limit *l, uint8_t group, uint64_t now_ns)
{
	count(l, group, 0, now_ns);
	l->proven = true;
	if (l->limited && l->limit < UINT32_MAX)
		l->limit += error_limit_share(l, now_ns) < few || l->limit < a_round ? 1 : a_round / l->limit;
}

static void fall_to(struct error_limit *l, double limit)
{
	l->limit = limit > 1 ? limit : 1;
	l->round = l->in_flight;
}

bool error_limit_error(struct error_limit *l, uint8_t group, bool begun, uint64_t now_ns)
{
	for (int i = begun ? 0 : 1; i < 2; i++)
		count(l, group, 1, now_ns);
	const double share = error_limit_share(l, now_ns);
	bool late = l->failed_ns + ERROR_LIMIT_QUIET_MS * (uint64_t)NS_PER_MS < now_ns;
	l->n_errors = late ? 1 : l->n_errors + 1;
	l->failed_ns = now_ns;
	if (share < (l->limited ? few : too_many) || (!l->limited && l->n_errors < ERROR_LIMIT_LEAST))
		return false; /* of a tenant only, rare, or few */
	l->error_ns = now_ns;
	l->proven = false;
	if (!l->limited) {
		l->limited = true;
		fall_to(l, l->in_flight / 2.0);
		return true;
	}
	if (l->round == 0)
		fall_to(l, l->limit * (begun ? 0.5 : 0.8));
	return false;
}

void error_limit_leave(struct error_limit *l, uint64_t held_ns, uint64_t now_ns)
{
	if (held_ns > 0)
		l->held_ns = l->held_ns > 0 ? l->held_ns + ((double)held_ns - l->held_ns) * weight : (double)held_ns;
	l->in_flight -= l->in_flight > 0;
	l->round -= l->round > 0;
	l->left_ns = now_ns;
}

bool error_limit_look(struct error_limit *l, uint64_t now_ns)
{
	if (!l->limited || (!l->proven && l->in_flight > 0) ||
	    now_ns < l->error_ns + ERROR_LIMIT_QUIET_MS * (uint64_t)NS_PER_MS)
		return false;
	l->limited = false;
	l->all.share = 0;
	for (int i = 0; i < ERROR_LIMIT_TENANTS; i++)
		l->of[i].share = 0;
	return true;
}

/* Requests that were let in together end together, so not even one place is sure before all of those that are there
 * have had their time. */
uint64_t error_limit_retry_ms(const struct error_limit *l, uint64_t now_ns)
{
	const double most = ERROR_LIMIT_QUIET_MS, held_ms = l->held_ns / 1e6;
	/* Requests that take longer than those before them say more than their average. */
	double silent_ms = now_ns > l->left_ns ? (double)(now_ns - l->left_ns) / 1e6 : 0;
	double ms = held_ms > silent_ms ? held_ms : silent_ms;
	return ms < 1 ? 1 : ms < most ? (uint64_t)ms + 1 : (uint64_t)most;
}
