/* SPDX-License-Identifier: Apache-2.0
 *
 * A model whose single steps are timed, without an engine: each sequence has its pages from the start.
 */
#ifndef CMD_PLAN_MODEL_STEPS_H
#define CMD_PLAN_MODEL_STEPS_H

#include "engine/kv/kv.h"
#include "engine/kv/kv_states.h"
#include "engine/model/model.h"

enum { STEPS_PAGE = 16, STEPS_CHUNK = 256 };

struct model_steps {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	struct kv_states *states; /* NULL: no layer keeps one */
	int n_seqs, max_pages;
	int32_t *pages;                    /* [n_seqs][max_pages] */
	int32_t *token, *pos, *seq, *want; /* [at least STEPS_CHUNK, n_seqs]: the rows of the next step */
	float *logits;                     /* [n_seqs][n_vocab] */
	int kv_type;
	double kv_bytes; /* per position */
};

/* kv: a type's name or "auto". context: tokens of each sequence, at most. On failure *err, and what was opened is
 * closed by model_steps_close. */
int model_steps_open(struct model_steps *x, const char *path, const struct model_how *how, const char *kv,
		     int n_threads, int n_seqs, int context, struct sl_err *err);
void model_steps_close(struct model_steps *x); /* zeroed or opened */
/* The rows described in token, pos, seq; logits of those in want. */
int model_steps_run(struct model_steps *x, int n_rows, int n_want);
/* Rows of one sequence from position `from` on; wants: the last one's logits. Nanoseconds; 0: it failed. */
double model_steps_prompt_ns(struct model_steps *x, int from, int n_rows, bool wants);
/* One row at position `past` for each of n sequences. */
double model_steps_answer_ns(struct model_steps *x, int n, int past);

#endif
