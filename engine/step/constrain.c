/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/constrain.h"

int constrain_init(struct seq_constraint *c, struct grammar *g)
{
	*c = (struct seq_constraint){.grammar = g};
	return g != NULL ? grammar_state_init(&c->now, g) : 0;
}

int constrain_follow(struct seq_constraint *c, const struct seq_constraint *lead)
{
	return constrain_init(c, lead->grammar != NULL ? grammar_ref(lead->grammar) : NULL);
}

void constrain_dispose(struct seq_constraint *c)
{
	if (c->grammar == NULL)
		return;
	grammar_state_dispose(&c->now);
	grammar_state_dispose(&c->ahead);
	grammar_unref(c->grammar);
	*c = (struct seq_constraint){0};
}

static void permit(uint32_t *mask, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		mask[ids[i] / 32] |= 1u << (ids[i] % 32);
}

int constrain_draw(const struct seq_constraint *c, struct grammar_state *state, uint32_t *mask,
		   struct sampler_params *p)
{
	if (c->grammar == NULL)
		return 0;
	int rc = grammar_mask(state, mask);
	if (rc != 0)
		return rc;
	if (grammar_may_end(state))
		permit(mask, p->end_ids, p->n_end_ids);
	/* What is complete ends, whatever its length. */
	if (grammar_must_end(state))
		p->min_tokens = 0;
	p->mask = mask;
	return 0;
}

int constrain_take(struct seq_constraint *c, int32_t id)
{
	return c->grammar != NULL ? grammar_accept(&c->now, id) : 0;
}

bool constrain_complete(struct seq_constraint *c) { return c->grammar != NULL && grammar_must_end(&c->now); }

bool constrain_is_partial(struct seq_constraint *c) { return c->grammar != NULL && !grammar_may_end(&c->now); }

int32_t constrain_forced(struct seq_constraint *c)
{
	int32_t id;
	return c->grammar != NULL && grammar_forced(&c->now, &id, 1) == 1 ? id : -1;
}

void constrain_ahead(struct seq_constraint *c)
{
	if (c->grammar == NULL)
		return;
	grammar_state_dispose(&c->ahead);
	grammar_state_copy(&c->ahead, &c->now);
}

uint32_t constrain_cut(struct seq_constraint *c, const int32_t *draft, uint32_t n)
{
	if (c->grammar == NULL)
		return n;
	constrain_ahead(c);
	for (uint32_t i = 0; i < n; i++)
		if (grammar_accept(&c->ahead, draft[i]) != 0)
			return i;
	return n;
}
