/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of an engine that a test can bear: one thread, one text worker, few sequences. What a test is about it
 * sets itself.
 */
#ifndef TESTS_SUPPORT_SMALL_ENGINE_H
#define TESTS_SUPPORT_SMALL_ENGINE_H

#include "engine/engine.h"

/* Borrows all that it is given. */
static inline struct eng_config small_engine(const char *backend, const struct eng_model_config *models, int n_models)
{
	return (struct eng_config){.models = models,
				   .n_models = n_models,
				   .backend = backend,
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .max_sequences = 4,
				   .max_waiting = 16,
				   .step_tokens = 32,
				   .max_prompt_bytes = 1 << 20};
}

#endif
