/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that reads texts: the logits after each token of a text, without an engine. For comparing models and for
 * calibrating weights. One thread.
 */
#ifndef CMD_SCORER_H
#define CMD_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/model/model.h"

struct scorer;

struct scorer_how {
	const char *path;
	const char *adapter;     /* NULL: none */
	const char *backend;     /* as kn_select */
	const char *quantize;    /* weight type to convert to on load; NULL: none */
	const char *kv_type;     /* NULL, "auto": as the engine chooses */
	const char *kv_rotation; /* NULL, "auto", "on", "off": as engine.kv_rotation */
	int n_threads;           /* 0: all */
	int most_tokens;         /* of a text; at most the model's context */
	bool host_logits;        /* false: none are wanted */
	/* NULL, or what computes instead of the backend's table: borrowed for the scorer's life. Called before the
	 * backend is opened. */
	const struct kn_ops *(*wrap)(void *ctx, const struct kn_ops *ops);
	void *wrap_ctx;
};

/* SL_EUNSUPPORTED: an encoder, or what the backend has not; or as model_load. */
int scorer_open(const struct scorer_how *how, struct scorer **out, struct sl_err *err);
void scorer_close(struct scorer *s); /* NULL is allowed */

const struct model *scorer_model(const struct scorer *s);
/* As of how.most_tokens and the model. */
int scorer_most_tokens(const struct scorer *s);
/* Most rows of a step. */
int scorer_rows(const struct scorer *s);
/* "q8 rotated", "f16" */
const char *scorer_kv_name(const struct scorer *s);

/* Computes ids[at … at + n) of a text, whose tokens before were computed by the calls before (at 0: a new text). The
 * logits after each of its last n_want tokens go to logits [n_want][n_vocab]. n ≤ scorer_rows, at + n ≤ scorer_tokens.
 * SL_EIO after a device fault. */
int scorer_step(struct scorer *s, const int32_t *ids, int at, int n, int n_want, float *logits);

#endif
