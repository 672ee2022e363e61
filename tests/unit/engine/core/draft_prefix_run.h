/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers that another model began, in tests: what must come of given tokens follows from the answer that
 * the same request has undisturbed.
 */
#ifndef TESTS_GIVEN_RUN_H
#define TESTS_GIVEN_RUN_H

#include "engine_run.h"

enum { GIVEN_MOST = 256 };

struct draft_prefix_case {
	uint32_t ids[GIVEN_MOST];
	uint16_t n, keep;
};

/* The first n tokens of an answer; at `wrong`, if that is below n, another one than it has there. */
static inline struct draft_prefix_case draft_prefix_of(const struct answer *a, uint32_t n, uint32_t wrong,
						       uint32_t keep)
{
	struct draft_prefix_case c = {.n = (uint16_t)n, .keep = (uint16_t)keep};
	BUG_IF(n > GIVEN_MOST || n > a->n_tokens, "a test gives %u of %u tokens", n, a->n_tokens);
	for (uint32_t i = 0; i < n; i++)
		c.ids[i] = (uint32_t)a->ids[i];
	if (wrong < n)
		c.ids[wrong] = c.ids[wrong] == 'q' ? 'z' : 'q';
	return c;
}

/* The request goes on behind what is given, to the same length at most as a whole answer of it. */
static inline struct proto_submit draft_prefix_request(const struct proto_submit *req,
						       const struct draft_prefix_case *c, uint32_t n_used)
{
	struct proto_submit s = *req;
	s.given = c->ids;
	s.n_given = c->n;
	s.n_keep = c->keep;
	s.max_tokens = req->max_tokens - n_used;
	return s;
}

static inline void draft_prefix_expect(const struct answer *got, uint32_t n_agreed, uint32_t n_used)
{
	assert_true(got->verified);
	assert_int_equal(got->verified_as.n_agreed, n_agreed);
	assert_int_equal(got->verified_as.n_used, n_used);
}

/* got goes on behind the first n_used tokens of whole, in every respect. */
static inline void draft_prefix_assert_rest(const struct answer *got, const struct answer *whole, uint32_t n_used)
{
	uint32_t text = n_used > 0 ? whole->text_end[n_used - 1] : 0;
	assert_int_equal(got->end.finish, whole->end.finish);
	assert_int_equal(got->end.length_why, whole->end.length_why);
	assert_int_equal(got->end.n_prompt, whole->end.n_prompt);
	assert_int_equal(got->end.n_completion, whole->end.n_completion - n_used);
	assert_int_equal(got->n_tokens, whole->n_tokens - n_used);
	assert_memory_equal(got->ids, whole->ids + n_used, got->n_tokens * sizeof *got->ids);
	assert_memory_equal(got->logprobs, whole->logprobs + n_used, got->n_tokens * sizeof *got->logprobs);
	assert_memory_equal(got->tops, whole->tops + n_used, got->n_tokens * sizeof *got->tops);
	assert_int_equal(got->n_text, whole->n_text - text);
	assert_memory_equal(got->text, whole->text + text, got->n_text);
}

#endif
