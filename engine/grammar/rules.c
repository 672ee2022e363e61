/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/rules_priv.h"

#include <string.h>

#include "base/alloc.h"

enum { DEFAULT_NODES = 1 << 20, DEFAULT_RULES = 1 << 18, DEFAULT_SYMBOLS = 1 << 21, MOST = 1 << 28 };

static uint32_t limit(size_t asked, uint32_t otherwise)
{
	return asked == 0 ? otherwise : asked > MOST ? MOST : (uint32_t)asked;
}

int rules_create(const struct rules_limits *limits, struct rules **out)
{
	struct rules_limits l = limits != NULL ? *limits : (struct rules_limits){0};
	struct rules *r = sl_zalloc(sizeof(*r));
	if (r == NULL)
		return SL_ENOMEM;
	r->max_rules = limit(l.max_rules, DEFAULT_RULES);
	r->max_syms = limit(l.max_symbols, DEFAULT_SYMBOLS);
	r->start = RULES_END;
	int rc = rx_pool_create(limit(l.max_rx_nodes, DEFAULT_NODES), &r->pool);
	if (rc != 0) {
		sl_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void rules_destroy(struct rules *r)
{
	if (r == NULL)
		return;
	rx_pool_destroy(r->pool);
	sl_free(r->rules);
	sl_free(r->alts);
	sl_free(r->syms);
	sl_free(r);
}

struct rx_pool *rules_pool(struct rules *r) { return r->pool; }

int rules_fault(const struct rules *r) { return r->fault != 0 ? r->fault : rx_pool_fault(r->pool); }

static void fail(struct rules *r, int code)
{
	if (r->fault == 0)
		r->fault = code;
}

/* Makes room for n more elements. False, with a fault: more than max, or out of memory. */
static bool room(struct rules *r, void **at, uint32_t have, uint32_t *cap, uint32_t n, uint32_t max, size_t each)
{
	if (r->fault != 0)
		return false;
	if (n > max || have > max - n) {
		fail(r, SL_ELIMIT);
		return false;
	}
	if (have + n <= *cap)
		return true;
	uint32_t more_cap = 2 * (have + n) + 16;
	void *more = sl_realloc_n(*at, more_cap, each);
	if (more == NULL) {
		fail(r, SL_ENOMEM);
		return false;
	}
	*at = more;
	*cap = more_cap;
	return true;
}

static struct rules_sym add_rule(struct rules *r, struct rules_rule rule)
{
	if (!room(r, (void **)&r->rules, r->n_rules, &r->cap_rules, 1, r->max_rules, sizeof(*r->rules)))
		return (struct rules_sym){.is_rule = 0, .of = RX_NONE};
	r->rules[r->n_rules] = rule;
	return (struct rules_sym){.is_rule = 1, .of = r->n_rules++ & 0x7FFFFFFF};
}

struct rules_sym rules_new(struct rules *r)
{
	return add_rule(r, (struct rules_rule){.first = RULES_END, .last = RULES_END});
}

struct rules_sym rules_terminal(struct rules *r, rx terminal)
{
	(void)r;
	return (struct rules_sym){.is_rule = 0, .of = terminal & 0x7FFFFFFF};
}

static uint32_t add_syms(struct rules *r, const struct rules_sym *of, size_t n)
{
	uint32_t want = n > MOST ? MOST : (uint32_t)n;
	if (!room(r, (void **)&r->syms, r->n_syms, &r->cap_syms, want, r->max_syms, sizeof(*r->syms)))
		return RULES_END;
	uint32_t from = r->n_syms;
	if (n > 0)
		memcpy(r->syms + from, of, n * sizeof(*of));
	r->n_syms += want;
	return from;
}

void rules_add(struct rules *r, struct rules_sym rule, const struct rules_sym *of, size_t n)
{
	if (r->fault != 0)
		return;
	BUG_IF(!rule.is_rule || rule.of >= r->n_rules || r->rules[rule.of].is_repeat,
	       "grammar: an alternative without a rule");
	uint32_t from = add_syms(r, of, n);
	/* An empty alternative counts as a symbol. */
	if (from == RULES_END || !room(r, (void **)&r->alts, r->n_alts, &r->cap_alts, 1, r->max_syms, sizeof(*r->alts)))
		return;
	struct rules_rule *to = &r->rules[rule.of];
	r->alts[r->n_alts] = (struct rules_alt){from, (uint32_t)n, RULES_END};
	if (to->first == RULES_END)
		to->first = r->n_alts;
	else
		r->alts[to->last].next = r->n_alts;
	to->last = r->n_alts++;
}

struct rules_sym rules_repeat(struct rules *r, struct rules_sym s, const struct rules_sym *between, size_t n_between,
			      uint32_t least, uint32_t most)
{
	uint32_t from = add_syms(r, &s, 1);
	if (from == RULES_END || add_syms(r, between, n_between) == RULES_END)
		return (struct rules_sym){.is_rule = 0, .of = RX_NONE};
	return add_rule(r, (struct rules_rule){.first = RULES_END,
					       .last = RULES_END,
					       .from = from,
					       .n_between = (uint32_t)n_between,
					       .least = least,
					       .most = most,
					       .is_repeat = true});
}

void rules_start(struct rules *r, struct rules_sym rule)
{
	if (r->fault != 0)
		return;
	BUG_IF(!rule.is_rule || rule.of >= r->n_rules, "grammar: the start is not a rule");
	r->start = rule.of;
}
