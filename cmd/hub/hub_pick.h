/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files of a repository make the model: a GGUF file (with all parts of a split one), or the weights,
 * configuration and tokenizer of a Hugging Face folder. Names decide, from lists of what the loader reads, so pickles
 * and code are never fetched. Pure.
 */
#ifndef CMD_HUB_PICK_H
#define CMD_HUB_PICK_H

#include "cmd/hub/hub_tree.h"

/* tag: in capitals. A GGUF file's name contains it as a word: Q4_K_M, not the Q4_K in it. "": the first of a list
 * that begins with Q4_K_M, or the only one. SAFETENSORS: the folder. The caller disposes of out, after a failure too.
 * SL_ENOTFOUND: nothing fits; err lists the tags that there are. SL_EPROTO: a part is missing. */
int hub_pick(const struct hub_files *all, const char *tag, struct hub_files *out, struct sl_err *err);

/* Where a picked file lies in the model's folder: a GGUF file directly in it. Borrows from file. */
const char *hub_pick_local(const struct hub_file *file);

#endif
