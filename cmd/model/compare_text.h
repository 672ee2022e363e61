/* SPDX-License-Identifier: Apache-2.0
 *
 * Two models that read one text: at each position, what both give the token that follows, and how far their
 * distributions are apart.
 */
#ifndef CMD_COMPARE_TEXT_H
#define CMD_COMPARE_TEXT_H

#include "cmd/model/compare_stats.h"
#include "cmd/model/scorer.h"
#include "cmd/model/text_pieces.h"

struct text_comparison {
	size_t n_positions, n_clusters;
	bool by_document;                  /* clusters are documents, not pieces */
	struct estimate loss_a, loss_b;    /* mean -ln p of the token that follows */
	struct estimate difference;        /* of B less A, paired */
	struct estimate agreement;         /* share of positions with the same likeliest token */
	struct estimate kl;                /* mean of KL(A‖B) in nats */
	double kl_median, kl_p99, kl_most; /* over positions */
	struct stats_verdict verdict;      /* on the loss */
};

/* Both models have one vocabulary. SL_EINVAL: a logit is not finite. */
int compare_text(struct scorer *a, struct scorer *b, const struct text_pieces *pieces,
		 void (*report)(void *ctx, uint64_t done, uint64_t total), void *ctx, struct text_comparison *out,
		 struct sl_err *err);
/* SL_EINVAL with the first difference unless tokens of both mean the same. */
int compare_vocabularies(const struct tokenizer *a, const struct tokenizer *b, struct sl_err *err);

#endif
