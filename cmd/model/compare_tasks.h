/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks with known answers: a JSON object a line, with "prompt" (or "question"), or "messages" and perhaps "tools"; and
 * "answer" (or "answers"), a string or a list of accepted ones. A model answers greedily, through an engine of its own.
 */
#ifndef CMD_COMPARE_TASKS_H
#define CMD_COMPARE_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"

/* An answer, without white space around it, is right if it equals an accepted string, begins with one, or contains one
 * as whole words whatever the case. */
enum task_match { TASK_EXACT, TASK_PREFIX, TASK_WORDS };

struct task {
	char *prompt;    /* owned: a chat's JSON, or text with `raw` */
	json_t *answers; /* owned: a list of strings */
	size_t line;
	bool right[2]; /* of A, B */
};

struct tasks {
	struct task *all;
	size_t n, cap;
	bool raw;
};

/* raw: prompts are text to continue, not messages. SL_EINVAL names the line. */
int tasks_read(const char *path, bool raw, struct tasks *out, struct sl_err *err);
void tasks_dispose(struct tasks *t);
/* -1: unknown name. */
int task_match_from_name(const char *name);
bool task_is_right(const struct task *t, enum task_match match, const char *answer);

struct tasks_how {
	const char *path, *adapter, *backend, *quantize, *kv_type, *kv_rotation; /* as struct scorer_how */
	int n_threads;
	uint32_t most_tokens; /* of an answer */
	enum task_match match;
	void (*report)(void *ctx, uint64_t done, uint64_t total); /* NULL: none; called under a lock */
	void *ctx;
};
/* Fills right[which] of all. */
int tasks_run(struct tasks *t, int which, const struct tasks_how *how, struct sl_err *err);

#endif
