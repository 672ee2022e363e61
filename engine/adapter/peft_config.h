/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_config.json of a PEFT folder (huggingface/peft, LoraConfig): rank and alpha of each module. Keys that would
 * change what an adapter computes are refused by name, unless they are off; so are unknown ones.
 */
#ifndef ENGINE_PEFT_CONFIG_H
#define ENGINE_PEFT_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct peft_config {
	json_t *root; /* owned */
	int rank;
	double alpha;
	bool by_root;     /* use_rslora */
	bool ties;        /* ensure_weight_tying */
	const char *base; /* base_model_name_or_path; "" */
};

int peft_config_read(const char *folder, struct peft_config *out, struct sl_err *err);
/* The same from a text; name is for messages. */
int peft_config_parse(const char *text, size_t n, const char *name, struct peft_config *out, struct sl_err *err);
void peft_config_dispose(struct peft_config *c);

/* Of a module ("model.layers.0.self_attn.q_proj"): its rank and alpha, by pattern or for all. */
void peft_config_of(const struct peft_config *c, const char *module, int *rank, double *alpha);
/* Whether the i-th of the listed target_modules names this module; NULL past the last. */
const char *peft_config_target(const struct peft_config *c, size_t i);
/* Whether a name of such a list, or a key of a pattern, means the module: it is its end, after a dot. */
bool peft_names(const char *key, const char *module);

#endif
