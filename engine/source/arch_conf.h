/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a config.json key by key. The first error is kept; then the getters do nothing. Keys that were read are
 * noted, so that arch_check_hf (arch_read.h) judges the others only.
 */
#ifndef ENGINE_ARCH_CONF_H
#define ENGINE_ARCH_CONF_H

#include <jansson.h>

#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"

struct conf {
	const struct model_file *file;
	const struct arch_family *family;
	const json_t *config;
	const char *path;
	struct key_seen seen;
	struct sl_err *err;
	int rc; /* the first error; then the getters do nothing */
};

void conf_fault(struct conf *r, int code, const char *key, const char *what);
/* NULL if absent or null. */
const json_t *conf_get(struct conf *r, const json_t *object, const char *key);
/* Whether the key exists, even as null: then the class's default does not apply. */
bool conf_has(const struct conf *r, const char *key);
/* Likewise; SL_EINVAL: it has another type. */
const char *conf_text(struct conf *r, const json_t *object, const char *key);
const json_t *conf_object(struct conf *r, const json_t *object, const char *key);
/* fallback: if the key is absent or null; out of the range: it is required. */
int conf_int(struct conf *r, const char *key, int lo, int hi, int fallback);
double conf_number(struct conf *r, const json_t *object, const char *key, double lo, double hi, double fallback);
bool conf_bool(struct conf *r, const char *key, bool fallback);
/* How many experts there are, by that key, and how many a row uses. n, n_used: fallbacks; below 1: required. */
void conf_experts(struct conf *r, const char *key, int n, int n_used, struct arch_experts *x);

/* ---- arch_hf_latent.c ---- */

/* Widths of latent attention, before conf_rope, and what follows from the rope, after it. */
void conf_latent(struct conf *r, struct model_arch *a);
void conf_latent_rope(struct conf *r, struct model_arch *a);
/* DeepSeek's mixtures; type is config.json's model_type. */
void conf_latent_experts(struct conf *r, const char *type, struct model_arch *a);

/* ---- arch_hf_rope.c ---- */

/* Rotary embedding. windowed_base: of windowed layers where they turn differently; 0: they don't. */
void conf_rope(struct conf *r, struct model_arch *a, double base, double windowed_base);
/* Windows, and which layers have them; type is config.json's model_type. */
void conf_window(struct conf *r, struct model_arch *a, const char *type);

#endif
