/* SPDX-License-Identifier: Apache-2.0
 *
 * One case of `sluice bench grammar`: a schema and instances that it permits or refuses.
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
	struct proto_str schema; /* in the file's text */
	struct grammar_instance *instances;
	size_t n;
};

/* Reads {"schema": …, "tests": [{"valid": …, "data": …}]}. false: it is not of that form. */
bool grammar_case_read(const char *text, size_t n, struct grammar_case *out);
void grammar_case_dispose(struct grammar_case *c);

enum { GRAMMAR_CASE_REASON = 256 };

/* What became of a case. Times are of the thread's processor, in nanoseconds. */
struct grammar_outcome {
	int rc;                              /* of the translation */
	uint32_t wrong_accept, wrong_refuse; /* instances */
	uint32_t n_instances, n_masks;
	int32_t first_wrong;    /* the first such instance, -1: none */
	uint32_t refused_at;    /* bytes of it that were accepted */
	uint64_t first_mask_ns; /* translation, compilation and the first mask */
	char reason[GRAMMAR_CASE_REASON];
};

/* Runs a case. mask_ns: room for a time of each mask; n_mask_ns of them are written. */
void grammar_case_run(const struct grammar_case *c, struct grammar_vocab *v, const struct tokenizer *t,
		      struct grammar_outcome *out, uint32_t *mask_ns, size_t room);

#endif
