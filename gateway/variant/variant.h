/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: variants of a model, behind one name of it (gateway.variants). A user always gets the same one, each has
 * its metrics, and one that is worse than the first, the base, gets no more requests. The decisions are
 * gateway/trial's.
 *
 *   variants   all of a configuration, owned by its snapshot; immutable
 *   group      those of one name. Its first variant is the base
 *   state      what becomes of one variant: the evidence, a rollback, an administrator's weight. It belongs to the
 *              process and outlives reloads, as long as the variant and its base stay what they are (variant_state.h).
 *              The store adds up the evidence of all gateways and keeps what was decided (variant_sync.h)
 *   past       how many answers of a base failed lately (variant_past.h)
 *
 * Any thread.
 */
#ifndef GATEWAY_VARIANT_H
#define GATEWAY_VARIANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "gateway/config/gw_config.h"
#include "gateway/trial/trial.h"

struct variant_counts;
struct variant_group;
struct variant_past;
struct variant_state;
struct variants;

struct variant {
	const struct gw_variant_config *cfg; /* its snapshot's */
	const struct variant_group *group;
	struct variant_state *state;   /* counted; NULL: the base, or there is no trial of it (rollback: false) */
	struct variant_counts *counts; /* NULL: no room for them */
	uint64_t digest;               /* of its name */
};

struct variant_group {
	const char *of; /* the name that clients ask for */
	uint64_t digest;
	struct variant_past *past; /* of its base; counted */
	size_t n;
	struct variant all[TRIAL_MAX_VARIANTS];
};

/* *out NULL: the configuration has none. Borrows cfg, which must outlive it. */
int variants_create(const struct gw_config *cfg, struct variants **out, struct sl_err *err);
void variants_destroy(void *v); /* NULL allowed */
size_t variants_n_groups(const struct variants *v);
const struct variant_group *variants_group(const struct variants *v, size_t i);
/* NULL: that name has no variants. v NULL: none has. */
const struct variant_group *variants_find(const struct variants *v, const char *of);

/* Sets the gauges of all. v NULL: nothing. */
void variants_show(const struct variants *v);

/* Whom a request counts for: its tenant's user, else its conversation, else its tenant. NULL or "": not known. */
uint64_t variant_user(uint64_t tenant, const char *user, const char *conversation);
/* Whether a model can serve now. */
typedef bool variant_serves(const void *ctx, const char *model);
/* The variant for this user among those that can serve; the base, whether it can or not, if none else. */
const struct variant *variant_choose(const struct variant_group *g, uint64_t user, variant_serves *serves,
				     const void *ctx);
/* The weight that counts at the moment: 0 once it was rolled back. */
double variant_weight(const struct variant *v);
/* The model that most users of a name get now, if `model` is one of that name's variants; otherwise model itself. */
const char *variants_successor(const struct variants *v, const char *model);
/* A digest that changes when another variant of a name becomes the one of most users. 0: there are no variants. */
uint64_t variants_heaviest(const struct variants *v);
/* Puts its settings in place of what the client did not set. */
struct variant_submit {
	struct proto_submit *submit;
	bool *has_max_tokens;
	uint32_t *max_tokens;
	unsigned given; /* what the client has set: bits of enum request_sampling */
};
void variant_apply(const struct variant *v, const struct variant_submit *to);

/* An answer at its end. */
struct variant_answer {
	struct trial_answer trial;
	enum variant_end { VARIANT_STOP, VARIANT_LENGTH, VARIANT_LEFT, VARIANT_FAILED, VARIANT_ENDS } end;
};
/* Counts it, and rolls its variant back if it is shown to be worse. */
void variant_note(const struct variant *v, const struct variant_answer *a);

#endif
