/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/constrain.h"

#include <string.h>

#include "engine/token/tokenizer.h"

/* ---- reasoning ---- */

/* Harmony has channels: everything before the final channel is reasoning. */
static const char harmony_final[] = "<|channel|>final<|message|>";
static const char harmony_closing[] = "<|end|><|start|>assistant<|channel|>final<|message|>";
/* The grammar forces what follows; a longer text could end in the middle of a canonical token. */
static const char harmony_calling[] = "<|end|><|start|>assistant<|channel|>commentary to";

static const char *close_of(enum parts_reasoning r)
{
	return r == PARTS_REASONING_HARMONY ? harmony_final : parts_reasoning_desc(r)->close;
}

static bool ends_in(const char *text, size_t n, const char *literal)
{
	size_t len = strlen(literal);
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	return n >= len && memcmp(text + n - len, literal, len) == 0;
}

enum constrain_phase constrain_prompt(enum parts_reasoning r, const char *end, size_t n)
{
	const char *close = close_of(r);
	if (close == NULL || ends_in(end, n, close))
		return CONSTRAIN_BODY;
	if (r == PARTS_REASONING_HARMONY || parts_prompt_opens(r, end, n))
		return CONSTRAIN_THINKING;
	return CONSTRAIN_MAYBE;
}

/* The control or added token with this text; -1: none. */
static int32_t token_of(const struct tokenizer *t, const char *text)
{
	struct tok_ids ids = {.max = CONSTRAIN_CLOSING};
	uint8_t trust[CONSTRAIN_LITERAL];
	size_t n = text != NULL ? strlen(text) : 0;
	memset(trust, 1, sizeof trust);
	bool one = n > 0 && n <= sizeof trust && tokenizer_encode(t, text, n, trust, &ids) == 0 && ids.n == 1;
	int32_t id = one ? ids.ids[0] : -1;
	tok_ids_dispose(&ids);
	return id;
}

static int encode(const struct seq_constraint *c, const char *text, struct tok_ids *ids)
{
	uint8_t trust[2 * CONSTRAIN_LITERAL];
	memset(trust, 1, sizeof trust);
	return tokenizer_encode(c->how.tok, text, strlen(text), trust, ids);
}

/* May the answer be a final message, by the grammar at its beginning? Without memory for the attempt: no. */
static bool may_be_final(const struct seq_constraint *c)
{
	struct tok_ids ids = {.max = CONSTRAIN_CLOSING};
	struct grammar_state s;
	bool may = encode(c, harmony_final, &ids) == 0;
	grammar_state_copy(&s, &c->now.grammar);
	for (size_t i = 0; may && i < ids.n; i++)
		may = grammar_accept(&s, ids.ids[i]) == 0;
	grammar_state_dispose(&s);
	tok_ids_dispose(&ids);
	return may;
}

static int read_closing(struct seq_constraint *c)
{
	const char *text = c->close;
	if (c->how.reasoning == PARTS_REASONING_HARMONY)
		text = c->how.channels && !may_be_final(c) ? harmony_calling : harmony_closing;
	struct tok_ids ids = {.max = CONSTRAIN_CLOSING};
	int rc = encode(c, text, &ids);
	if (rc == 0) {
		memcpy(c->closing, ids.ids, ids.n * sizeof *ids.ids);
		c->n_closing = (uint8_t)ids.n;
	}
	tok_ids_dispose(&ids);
	return rc;
}

/* Adds a token's bytes to the tail. True: the literal is complete. */
static bool closes(struct constrain_at *at, const char *close, struct proto_str s)
{
	size_t len = strlen(close);
	for (size_t i = 0; i < s.n; i++) {
		if (at->n_tail == sizeof at->tail)
			memmove(at->tail, at->tail + 1, --at->n_tail);
		at->tail[at->n_tail++] = s.at[i];
		if (at->n_tail >= len && memcmp(at->tail + at->n_tail - len, close, len) == 0)
			return true;
	}
	return false;
}

/* The next closing token; -1: none is due. */
static int32_t closing_token(const struct seq_constraint *c, struct constrain_at *at)
{
	bool spent = c->n_closing > 0 && at->n_thought >= c->how.budget;
	if (!spent || at->n_closing == c->n_closing)
		return -1;
	int32_t id = c->closing[at->n_closing];
	if (at->phase == CONSTRAIN_THINKING)
		return id;
	return c->how.channels && grammar_permits(&at->grammar, id) ? id : -1;
}

/* ---- lifetime ---- */

int constrain_init(struct seq_constraint *c, const struct constrain_how *how)
{
	*c = (struct seq_constraint){.how = *how, .close = close_of(how->reasoning), .open_id = -1};
	c->now.phase = how->phase;
	if (how->grammar == NULL && how->budget == 0)
		return 0;
	int rc = how->grammar != NULL ? grammar_state_init(&c->now.grammar, how->grammar) : 0;
	if (rc == 0 && how->phase != CONSTRAIN_BODY)
		c->open_id = token_of(how->tok, parts_reasoning_desc(how->reasoning)->open);
	if (rc == 0 && (how->phase != CONSTRAIN_BODY || how->channels) && how->budget > 0)
		rc = read_closing(c);
	if (how->phase == CONSTRAIN_MAYBE && c->open_id < 0)
		c->now.phase = CONSTRAIN_BODY;
	return rc;
}

int constrain_follow(struct seq_constraint *c, const struct seq_constraint *lead)
{
	if (lead->how.grammar != NULL)
		grammar_ref(lead->how.grammar);
	return constrain_init(c, &lead->how);
}

void constrain_copy(struct constrain_at *to, const struct constrain_at *from)
{
	*to = *from;
	to->grammar = (struct grammar_state){0};
	if (from->grammar.g != NULL)
		grammar_state_copy(&to->grammar, &from->grammar);
}

void constrain_at_dispose(struct constrain_at *at)
{
	if (at->grammar.g != NULL)
		grammar_state_dispose(&at->grammar);
	*at = (struct constrain_at){0};
}

void constrain_dispose(struct seq_constraint *c)
{
	constrain_at_dispose(&c->now);
	constrain_at_dispose(&c->ahead);
	if (c->how.grammar != NULL)
		grammar_unref(c->how.grammar);
	*c = (struct seq_constraint){0};
}

/* ---- draws ---- */

static void permit(uint32_t *mask, int32_t id) { mask[id / 32] |= 1u << (id % 32); }

static void fill(const struct seq_constraint *c, uint32_t *mask, uint8_t byte)
{
	memset(mask, byte, ((size_t)tokenizer_n_vocab(c->how.tok) + 31) / 32 * sizeof *mask);
}

/* Reasoning continues or closes. End tokens are masked, because the grammar has not begun. */
static void mask_thinking(const struct seq_constraint *c, struct constrain_at *at, uint32_t *mask,
			  struct sampler_params *p)
{
	int32_t closing = closing_token(c, at);
	if (closing < 0 && at->grammar.g == NULL)
		return;
	fill(c, mask, closing < 0 ? 0xFF : 0);
	if (closing >= 0)
		permit(mask, closing);
	for (uint32_t i = 0; i < p->n_end_ids && closing < 0; i++)
		mask[p->end_ids[i] / 32] &= ~(1u << (p->end_ids[i] % 32));
	p->mask = mask;
}

static int mask_body(const struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, struct sampler_params *p)
{
	int32_t closing = closing_token(c, at);
	if (c->fault != 0)
		return c->fault;
	if (closing >= 0) {
		fill(c, mask, 0);
		permit(mask, closing);
		p->mask = mask;
		return 0;
	}
	int rc = grammar_mask(&at->grammar, mask);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < p->n_end_ids && grammar_may_end(&at->grammar); i++)
		permit(mask, p->end_ids[i]);
	/* A complete answer may end below min_tokens. */
	if (grammar_must_end(&at->grammar))
		p->min_tokens = 0;
	if (at->phase == CONSTRAIN_MAYBE)
		permit(mask, c->open_id);
	p->mask = mask;
	return 0;
}

bool constrain_ready(struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, uint32_t work)
{
	bool needed = at->grammar.g != NULL && at->phase != CONSTRAIN_THINKING && closing_token(c, at) < 0;
	if (!needed || c->fault != 0)
		return true;
	int rc = grammar_mask_within(&at->grammar, mask, work);
	if (at == &c->now)
		c->waiting = rc == SL_EAGAIN;
	if (rc == SL_EAGAIN && (c->n_work += work) <= CONSTRAIN_MOST_WORK)
		return false;
	if (rc == SL_EAGAIN)
		c->fault = SL_ELIMIT;
	else if (at == &c->now)
		c->fault = rc;
	return true;
}

int constrain_draw(const struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, struct sampler_params *p)
{
	if (at->phase != CONSTRAIN_THINKING)
		return at->grammar.g != NULL ? mask_body(c, at, mask, p) : 0;
	mask_thinking(c, at, mask, p);
	return 0;
}

static int take_body(const struct seq_constraint *c, struct constrain_at *at, int32_t id, uint64_t work)
{
	int32_t closing = closing_token(c, at);
	if (closing >= 0 && closing != id)
		return SL_EINVAL;
	int rc = grammar_accept_within(&at->grammar, id, work);
	at->n_closing = (uint8_t)(at->n_closing + (rc == 0 && closing >= 0));
	at->n_thought += at->n_thought < UINT32_MAX;
	return rc;
}

static int take_within(const struct seq_constraint *c, struct constrain_at *at, int32_t id, uint64_t work)
{
	if (!constrain_is_on(c))
		return 0;
	if (at->phase == CONSTRAIN_MAYBE && id == c->open_id) {
		at->phase = CONSTRAIN_THINKING;
		return 0;
	}
	if (at->phase == CONSTRAIN_THINKING) {
		at->n_closing = (uint8_t)(at->n_closing + (closing_token(c, at) >= 0));
		at->n_thought += at->n_thought < UINT32_MAX;
		if (closes(at, c->close, tokenizer_bytes(c->how.tok, id)))
			at->phase = CONSTRAIN_BODY;
		return 0;
	}
	at->phase = CONSTRAIN_BODY;
	return at->grammar.g != NULL ? take_body(c, at, id, work) : 0;
}

int constrain_take(const struct seq_constraint *c, struct constrain_at *at, int32_t id)
{
	return take_within(c, at, id, UINT64_MAX);
}

bool constrain_complete(struct constrain_at *at)
{
	return at->grammar.g != NULL && at->phase == CONSTRAIN_BODY && grammar_must_end(&at->grammar);
}

bool constrain_is_partial(struct constrain_at *at)
{
	return at->grammar.g != NULL && (at->phase == CONSTRAIN_THINKING || !grammar_may_end(&at->grammar));
}

int32_t constrain_forced(const struct seq_constraint *c, struct constrain_at *at, uint64_t work)
{
	int32_t id;
	if ((id = closing_token(c, at)) >= 0 || at->phase != CONSTRAIN_BODY)
		return id;
	return at->grammar.g != NULL && grammar_forced_within(&at->grammar, &id, 1, work) == 1 ? id : -1;
}

/* ---- drafts ---- */

void constrain_ahead(struct seq_constraint *c)
{
	constrain_at_dispose(&c->ahead);
	constrain_copy(&c->ahead, &c->now);
}

uint32_t constrain_cut(struct seq_constraint *c, const int32_t *draft, uint32_t n, uint64_t work)
{
	if (!constrain_is_on(c))
		return n;
	constrain_ahead(c);
	for (uint32_t i = 0; i < n; i++)
		if (take_within(c, &c->ahead, draft[i], work) != 0)
			return i;
	return n;
}
