/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/ebnf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { NEW, BEING_SEEN, REGULAR, RECURSIVE };
enum { MAX_TIMES = 1000000 };

void ebnf_fail(struct ebnf *g, int code, size_t at, const char *fmt, ...)
{
	char what[256];
	size_t line = 1, column = 1;
	va_list args;
	va_start(args, fmt);
	vsnprintf(what, sizeof what, fmt, args);
	va_end(args);
	for (size_t i = 0; i < at && i < g->n; i++) {
		line += g->text[i] == '\n';
		column = g->text[i] == '\n' ? 1 : column + 1;
	}
	con_fail(g->c, code, "%zu:%zu: %s", line, column, what);
}

/* ---- building ---- */

struct ebnf_node *ebnf_node(struct ebnf *g, enum ebnf_kind kind)
{
	struct ebnf_node *n = con_alloc(g->c, 1, sizeof *n);
	if (n != NULL)
		n->kind = kind;
	return n;
}

struct ebnf_node *ebnf_rx(struct ebnf *g, rx of)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_RX);
	if (n != NULL)
		n->of = of;
	return n;
}

void ebnf_add(struct ebnf *g, struct ebnf_node *to, struct ebnf_node *kid)
{
	if (to == NULL || kid == NULL)
		return;
	struct ebnf_node **grown = con_grow(g->c, to->kids, to->n, &to->cap, sizeof *grown);
	if (grown == NULL)
		return;
	to->kids = grown;
	to->kids[to->n++] = kid;
}

struct ebnf_node *ebnf_repeat(struct ebnf *g, struct ebnf_node *kid, uint32_t least, uint32_t most)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_REPEAT);
	if (n == NULL)
		return NULL;
	n->least = least;
	n->most = most;
	ebnf_add(g, n, kid);
	return n;
}

static bool same_name(struct proto_str a, struct proto_str b) { return a.n == b.n && memcmp(a.at, b.at, a.n) == 0; }

static uint32_t *slot_of(struct ebnf *g, struct proto_str name)
{
	for (size_t i = XXH3_64bits(name.at, name.n);; i++) {
		uint32_t *slot = &g->index[i & (g->n_index - 1)];
		if (*slot == 0 || same_name(g->rules[*slot - 1].name, name))
			return slot;
	}
}

static bool more_slots(struct ebnf *g)
{
	size_t n = g->n_index == 0 ? 256 : g->n_index * 2;
	uint32_t *index = con_alloc(g->c, n, sizeof *index);
	if (index == NULL)
		return false;
	g->index = index;
	g->n_index = n;
	for (uint32_t i = 0; i < g->n_rules; i++)
		*slot_of(g, g->rules[i].name) = i + 1;
	return true;
}

uint32_t ebnf_rule(struct ebnf *g, struct proto_str name, size_t at)
{
	struct ebnf_rule *grown = con_grow(g->c, g->rules, g->n_rules, &g->cap_rules, sizeof *grown);
	if (grown == NULL || ((size_t)g->n_rules * 2 >= g->n_index && !more_slots(g)))
		return 0;
	g->rules = grown;
	uint32_t *slot = slot_of(g, name);
	if (*slot == 0) {
		g->rules[g->n_rules] = (struct ebnf_rule){.name = name, .at = at};
		*slot = ++g->n_rules;
	}
	return *slot - 1;
}

static int hex(char ch)
{
	return ch >= '0' && ch <= '9'                     ? ch - '0'
	       : (ch | 0x20) >= 'a' && (ch | 0x20) <= 'f' ? (ch | 0x20) - 'a' + 10
							  : -1;
}

uint32_t ebnf_hex(struct ebnf *g, size_t n)
{
	uint32_t v = 0;
	for (size_t i = 0; i < n; i++, g->at++) {
		int d = g->at < g->n ? hex(g->text[g->at]) : -1;
		if (d < 0) {
			ebnf_fail(g, SL_EINVAL, g->at, "a malformed escape");
			return 0;
		}
		v = v * 16 + (uint32_t)d;
	}
	if (v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		ebnf_fail(g, SL_EINVAL, g->at, "an escape that is not a character");
	return v;
}

bool ebnf_number(struct ebnf *g, uint32_t *out)
{
	size_t begin = g->at;
	uint32_t v = 0;
	for (; g->at < g->n && g->text[g->at] >= '0' && g->text[g->at] <= '9'; g->at++)
		v = v > MAX_TIMES ? v : v * 10 + (uint32_t)(g->text[g->at] - '0');
	if (v > MAX_TIMES)
		ebnf_fail(g, SL_ELIMIT, begin, "more than %d repetitions", MAX_TIMES);
	*out = v;
	return g->at > begin && v <= MAX_TIMES;
}

/* ---- which rules are regular ---- */

static bool see_rule(struct ebnf *g, struct ebnf_rule *rule);

static bool see(struct ebnf *g, const struct ebnf_node *n)
{
	bool regular = true;
	if (n == NULL || !con_step(g->c, 1))
		return false;
	if (n->kind == EBNF_REF)
		return see_rule(g, &g->rules[n->rule]);
	for (size_t i = 0; i < n->n; i++)
		regular = see(g, n->kids[i]) && regular;
	return regular;
}

static bool see_rule(struct ebnf *g, struct ebnf_rule *rule)
{
	if (rule->state == BEING_SEEN)
		return false;
	if (rule->state != NEW)
		return rule->state == REGULAR;
	if (rule->body == NULL) {
		ebnf_fail(g, SL_EINVAL, rule->at, "%.*s is not defined", (int)(rule->name.n < 80 ? rule->name.n : 80),
			  rule->name.at);
		return false;
	}
	if (++g->depth > g->c->max_depth * 8)
		ebnf_fail(g, SL_ELIMIT, rule->at, "rules are nested too deep");
	rule->state = BEING_SEEN;
	rule->state = see(g, rule->body) ? REGULAR : RECURSIVE;
	g->depth--;
	if (rule->state == RECURSIVE && rule->terminal)
		ebnf_fail(g, SL_EINVAL, rule->at, "the terminal %.*s refers to itself",
			  (int)(rule->name.n < 80 ? rule->name.n : 80), rule->name.at);
	return rule->state == REGULAR;
}

/* ---- writing ---- */

/* inside: in a terminal, where nothing is ignored. */
static rx lang_of(struct ebnf *g, const struct ebnf_node *n, bool inside);

static rx lang_of_rule(struct ebnf *g, struct ebnf_rule *rule, bool inside)
{
	rx lang = rule->lang;
	if (lang == RX_NONE) {
		lang = lang_of(g, rule->body, rule->terminal);
		rule->lang = lang;
	}
	if (rule->terminal && !inside && g->ignored != RX_NONE)
		lang = rx_cat(g->c->pool, lang, g->ignored);
	return lang;
}

static rx lang_of(struct ebnf *g, const struct ebnf_node *n, bool inside)
{
	struct rx_pool *p = g->c->pool;
	rx out = n->kind == EBNF_ALT ? RX_NONE : RX_EPS;
	if (!con_step(g->c, 1))
		return RX_NONE;
	switch (n->kind) {
	case EBNF_RX: return inside || g->ignored == RX_NONE ? n->of : rx_cat(p, n->of, g->ignored);
	case EBNF_REF: return lang_of_rule(g, &g->rules[n->rule], inside);
	case EBNF_REPEAT: return rx_repeat(p, lang_of(g, n->kids[0], inside), n->least, n->most);
	case EBNF_SEQ:
		for (size_t i = n->n; i-- > 0;)
			out = rx_cat(p, lang_of(g, n->kids[i], inside), out);
		return out;
	case EBNF_ALT:
		for (size_t i = 0; i < n->n; i++)
			out = rx_or(p, out, lang_of(g, n->kids[i], inside));
		return out;
	}
	return out;
}

rx ebnf_terminal(struct ebnf *g, const struct ebnf_node *n)
{
	if (!see(g, n)) {
		ebnf_fail(g, SL_EINVAL, 0, "ignored text refers to itself");
		return RX_NONE;
	}
	return lang_of(g, n, true);
}

static struct rules_sym symbol_of(struct ebnf *g, const struct ebnf_node *n);

static void add_sequence(struct ebnf *g, struct rules_sym to, const struct ebnf_node *n)
{
	struct rules_sym *of = con_alloc(g->c, n->n + 1, sizeof *of);
	if (n->kind != EBNF_SEQ) {
		struct rules_sym one = symbol_of(g, n);
		rules_add(g->c->rules, to, &one, 1);
		return;
	}
	for (size_t i = 0; of != NULL && i < n->n; i++)
		of[i] = symbol_of(g, n->kids[i]);
	if (of != NULL)
		rules_add(g->c->rules, to, of, n->n);
}

static void add_alternatives(struct ebnf *g, struct rules_sym to, const struct ebnf_node *n)
{
	if (n->kind != EBNF_ALT) {
		add_sequence(g, to, n);
		return;
	}
	for (size_t i = 0; i < n->n; i++)
		add_sequence(g, to, n->kids[i]);
}

static struct rules_sym symbol_of_rule(struct ebnf *g, struct ebnf_rule *rule)
{
	if (rule->has_sym)
		return rule->sym;
	if (rule->state == REGULAR)
		rule->sym = rules_terminal(g->c->rules, lang_of_rule(g, rule, false));
	else
		rule->sym = rules_new(g->c->rules);
	rule->has_sym = true;
	return rule->sym;
}

static struct rules_sym symbol_of(struct ebnf *g, const struct ebnf_node *n)
{
	struct rules *r = g->c->rules;
	if (n->kind == EBNF_REF)
		return symbol_of_rule(g, &g->rules[n->rule]);
	if (see(g, n))
		return rules_terminal(r, lang_of(g, n, false));
	if (n->kind == EBNF_REPEAT)
		return rules_repeat(r, symbol_of(g, n->kids[0]), NULL, 0, n->least, n->most);
	struct rules_sym s = rules_new(r);
	add_alternatives(g, s, n);
	return s;
}

void ebnf_write(struct ebnf *g, const char *start)
{
	struct proto_str name = {start, strlen(start)};
	if (g->c->rc != 0)
		return;
	uint32_t first = ebnf_rule(g, name, 0);
	if (g->c->rc == 0 && g->rules[first].body == NULL) {
		ebnf_fail(g, SL_EINVAL, 0, "the rule %s is missing", start);
		return;
	}
	for (uint32_t i = 0; i < g->n_rules && g->c->rc == 0; i++)
		see_rule(g, &g->rules[i]);
	for (uint32_t i = 0; i < g->n_rules && g->c->rc == 0; i++)
		if (g->rules[i].state == RECURSIVE)
			add_alternatives(g, symbol_of_rule(g, &g->rules[i]), g->rules[i].body);
	if (g->c->rc != 0)
		return;
	struct rules_sym all[] = {rules_terminal(g->c->rules, g->ignored == RX_NONE ? RX_EPS : g->ignored),
				  symbol_of_rule(g, &g->rules[first])};
	rules_start(g->c->rules, con_sequence(g->c, all, 2));
}
