/* SPDX-License-Identifier: Apache-2.0
 *
 * One case of `sluice bench grammar`: a schema, and instances that it accepts or refuses.
 */
#ifndef CMD_GRAMMAR_CASE_H
#define CMD_GRAMMAR_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"

struct grammar_vocab;
struct tokenizer;

struct grammar_instance {
	bool valid;
	struct sl_buf text; /* compact JSON */
};

struct grammar_case {
	struct proto_str schema; /* borrows from the file's text */
	struct grammar_instance *instances;
	size_t n;
};

/* Reads {"schema": …, "tests": [{"valid": …, "data": …}]}. False: text has another form. */
bool grammar_case_read(const char *text, size_t n, struct grammar_case *out);
void grammar_case_dispose(struct grammar_case *c);

enum { GRAMMAR_CASE_REASON = 256 };

/* The result of a case. Times are processor time of the thread. */
struct grammar_outcome {
	int rc;                              /* of compiling the schema */
	uint32_t wrong_accept, wrong_refuse; /* numbers of instances */
	uint32_t n_instances, n_masks;
	int32_t first_wrong;    /* the first wrongly judged instance; -1: none */
	uint32_t refused_at;    /* its accepted bytes */
	uint64_t first_mask_ns; /* translation, compilation and the first mask */
	uint64_t slice_ns;      /* the longest slice of a mask (grammar_mask_within) */
	char reason[GRAMMAR_CASE_REASON];
};

/* Runs a case. mask_ns: [room]; receives the time of each mask, out->n_masks in all. */
void grammar_case_run(const struct grammar_case *c, struct grammar_vocab *v, const struct tokenizer *t,
		      struct grammar_outcome *out, uint32_t *mask_ns, size_t room);

#endif
