/* SPDX-License-Identifier: Apache-2.0
 *
 * A draw as a backend's sample operation takes it (kernels.h). What that can't do is left to sampler_draw:
 * the typical filter, and penalties over texts with very many different tokens.
 *
 * Both draw the same token from the same logits but for about one draw in 10^8 (kernels/cuda/sample.cu says why).
 * Who draws depends on the request alone, except that the rows of a draft are drawn from on the host.
 */
#ifndef ENGINE_SAMPLER_DEVICE_H
#define ENGINE_SAMPLER_DEVICE_H

#include "engine/sample/sampler.h"
#include "kernels/kernels.h"

/* Adjustments of one step's draws. Init to zero. */
struct sampler_adjusts {
	struct kn_adjust *at; /* [room] */
	size_t n, room;
};

enum { SAMPLER_MAX_ADJUSTS = 4096 }; /* of one draw */

void sampler_adjusts_dispose(struct sampler_adjusts *a);
/* Whether the device can draw so. */
bool sampler_on_device(const struct sampler_params *p, const struct sampler_state *state, int n_vocab);
/* The draw of the token with this index, as sampler_draw's, from this row; its adjustments are put behind those in a,
 * and out->adjust is set by sampler_adjusts_point. said: kn_draw's, for a token that state does not know yet; 0: it
 * knows all. 0 or SL_ENOMEM. */
int sampler_device_draw(const struct sampler_params *p, const struct sampler_state *state, uint64_t index, int32_t row,
			int32_t said, struct sampler_adjusts *a, struct kn_draw *out);
/* Once all draws are made: a no longer moves. They must be in the order in which they were made. */
void sampler_adjusts_point(const struct sampler_adjusts *a, struct kn_draw *draws, int n);
/* What came out, as sampler_draw would say it. */
void sampler_device_choice(const struct kn_drawn *drawn, struct sampler_choice *out);

#endif
