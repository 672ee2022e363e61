/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face's names of families and tensors, as GGUF has them.
 */
#ifndef ENGINE_HF_NAMES_H
#define ENGINE_HF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* "model.layers.3.self_attn.q_proj.weight" to "blk.3.attn_q.weight", for a family of GGUF's name.
 * False: no tensor of a text model (a vision tower, a stored table of angles). Unknown names are kept, so that loading
 * can refuse them by name. */
bool hf_gguf_name(const char *name, const char *family, char *out, size_t out_bytes);

/* GGUF's family for a model_type; NULL for one that this version can't run. */
const char *hf_family(const char *model_type);

#endif
