/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws as arguments of a backend's sample operation (kernels.h). sampler_draw does what that can't: the typical
 * filter, and penalties over texts with very many different tokens.
 *
 * Both draw the same token from the same logits but for about one draw in 10^8 (kernels/cuda/sample.cu explains why).
 * Only the request decides which of the two draws, except that rows of a draft are drawn on the host.
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
/* Whether the device can do this draw. */
bool sampler_on_device(const struct sampler_params *p, const struct sampler_state *state, int n_vocab);
/* The draw of the token with this index from this row, as sampler_draw's. Its adjustments are appended to a;
 * sampler_adjusts_point sets out->adjust. said: as kn_draw has it, for a token that is not in state yet; 0: none. 0 or
 * SL_ENOMEM. */
int sampler_device_draw(const struct sampler_params *p, const struct sampler_state *state, uint64_t index, int32_t row,
			int32_t said, struct sampler_adjusts *a, struct kn_draw *out);
/* After the last sampler_device_draw, because a may move before. draws are in the order of their creation. */
void sampler_adjusts_point(const struct sampler_adjusts *a, struct kn_draw *draws, int n);
/* The result in sampler_draw's form. */
void sampler_device_choice(const struct kn_drawn *drawn, struct sampler_choice *out);

#endif
