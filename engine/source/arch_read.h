/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers of struct model_arch: one for each format of a model on disk. Called by model_file_arch only.
 */
#ifndef ENGINE_ARCH_READ_H
#define ENGINE_ARCH_READ_H

#include "engine/source/hf_folder.h"
#include "engine/source/key_rules.h"
#include "engine/source/model_file.h"

/* Bounds that every reader enforces, so that no product of two of them overflows. */
enum { ARCH_MAX_LAYERS = ARCH_MOST_LAYERS, ARCH_MAX_WIDTH = 1 << 18, ARCH_MAX_VOCAB = 1 << 20, ARCH_MAX_CTX = 1 << 24 };

/* From the keys of a GGUF head. SL_EUNSUPPORTED: names a family that this version cannot run. */
int arch_read_gguf(const struct model_file *f, struct model_arch *out, struct sl_err *err);
/* From config.json; f is the model in that folder. */
int arch_read_hf(const struct model_file *f, const struct hf_folder *folder, struct model_arch *out,
		 struct sl_err *err);

/* Checks the keys that neither reader has read: SL_EUNSUPPORTED names one that changes answers (key_rules.h). */
int arch_check_gguf(const struct key_seen *seen, const struct gguf *g, struct model_arch *a, struct sl_err *err);
int arch_check_hf(const struct key_seen *seen, const struct hf_folder *folder, struct model_arch *a,
		  struct sl_err *err);

/* A file's keys for what can be at fault: which layers keep a state, the convolution's width, the number of value
 * heads, their width. */
struct arch_recurrent_keys {
	const char *layers, *conv, *heads, *dims;
};
/* Of a->recurrent, whose layers are known (arch_recurrent.c). NULL, or why such a model is not possible; then *key is
 * the one of keys that it is about. */
const char *arch_recurrent_fault(const struct model_arch *a, const struct arch_recurrent_keys *keys, const char **key);
void arch_set_recurrent(struct model_arch *a, int layer);
/* All but every `every`-th layer. */
void arch_recurrent_all_but(struct model_arch *a, int every);

/* The scale of q·k for a GGUF file of this family and shape without a key for it. */
float arch_gguf_attn_scale(const struct model_arch *a);

#endif
