/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the model that a base with an adapter is: W + scale · B · A for each matrix, computed in float32 and then
 * converted to the plan's type, even where the base has four bits. If the base's head is its table of embeddings and
 * the adapter changes either, the model has both.
 */
#ifndef ENGINE_ADAPTER_MERGE_H
#define ENGINE_ADAPTER_MERGE_H

#include "engine/source/quantize_model.h"

/* As quantize_model, of the base with the adapter. how.change is ignored. */
int adapter_merge(const char *base, const char *adapter, const char *out, const struct quantize_how *how,
		  struct convert_progress *p, struct sl_err *err);

#endif
