/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend must have for a model, beyond the operations that every backend has.
 */
#ifndef ENGINE_MODEL_LACKS_H
#define ENGINE_MODEL_LACKS_H

#include "engine/source/arch.h"
#include "kernels/kernels.h"

/* What the model has and the backend has no operation for, as words ("mixtures of experts"); NULL: nothing. Static. */
const char *model_backend_lacks(const struct model_arch *a, const struct kn_ops *ops);

#endif
