/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CORE_REHEARSAL_H
#define ENGINE_CORE_REHEARSAL_H

#include "engine/step/internal.h"

/* On a device, runs steps of every kind that m may serve, with made-up tokens in pages of m's pool, before m is READY.
 * 0 or SL_ENOMEM, SL_EIO. Once the engine stops, no further step runs. Loader thread. */
int rehearse(struct eng_model *m);

#endif
