/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt's tokens, counted by the engine for a request that generates nothing.
 */
#ifndef GATEWAY_API_COUNT_H
#define GATEWAY_API_COUNT_H

#include <stdint.h>

#include "base/proto/proto.h"

struct exchange;

struct api_count {
	struct exchange *x;
	uint64_t id; /* 0: not under way */
	const char *param;
	/* The engine has it; m is borrowed for the call. Not called where x was answered with an error. */
	void (*done)(struct api_count *c, const struct proto_counted *m);
};

/* model: as answer_choose_model has it. param: what the prompt's field is called, a literal. prompt: borrowed for the
 * call. Answers x if the engine can't count, now or later. */
void api_count_start(struct api_count *c, struct exchange *x, int model, uint8_t kind, uint8_t wants,
		     struct proto_str prompt, const char *param,
		     void (*done)(struct api_count *c, const struct proto_counted *m));
void api_count_cancel(struct api_count *c);

#endif
