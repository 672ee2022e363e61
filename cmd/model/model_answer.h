/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model generate`: collects the engine's events for one request and prints the answer. Not thread-safe: the
 * caller locks.
 */
#ifndef CMD_MODEL_ANSWER_H
#define CMD_MODEL_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "engine/engine.h"

struct model_choice {
	struct sl_buf text;
	struct proto_token *tokens; /* n_tokens */
	struct proto_id_f32 *tops;  /* n_tokens × n_top */
	size_t n_tokens, tokens_cap;
	struct proto_choice end; /* finish 0: no ENG_CHOICE event has come; DONE has the end */
};

struct model_answer {
	json_t *id; /* owned; --batch: the line's id */
	struct model_choice choices[PROTO_MAX_CHOICES];
	int n_choices;
	uint8_t n_top;
	struct proto_id_f32 *prompt; /* n_prompt × (1 + n_prompt_top) */
	size_t n_prompt;
	uint8_t n_prompt_top;
	bool lost; /* out of memory while collecting */
	struct proto_done end;
	char message[PROTO_MAX_MESSAGE + 1];
};

void model_answer_init(struct model_answer *a, int n_choices);
void model_answer_dispose(struct model_answer *a);
/* Adds one event of the request. */
void model_answer_take(struct model_answer *a, const struct eng_event *ev);
bool model_answer_failed(const struct model_answer *a);

/* Print to standard output, as one line of JSON or as text with the requested log probabilities. 0 or SL_E*. */
int model_answer_print_json(const struct model_answer *a);
int model_answer_print(const struct model_answer *a, bool logprobs);

#endif
