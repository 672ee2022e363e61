/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of a model's modules in quantization configurations: names, "re:" patterns that match from the beginning of a
 * name (compressed-tensors), names with "*" (ModelOpt), classes ("Linear").
 */
#ifndef ENGINE_HF_TARGETS_H
#define ENGINE_HF_TARGETS_H

#include <jansson.h>

#include "base/err.h"

struct hf_targets;

/* The more exactly a target names a module, the more it counts. */
enum hf_match { HF_NO_MATCH, HF_BY_CLASS, HF_BY_PATTERN, HF_BY_NAME };

/* list: an array of strings, borrowed until hf_targets_free; NULL or null: empty. `what` names it in messages: the file
 * and the key. SL_EINVAL: another value, a malformed pattern; SL_ELIMIT: too many names, too many or too long patterns;
 * SL_ENOMEM. */
int hf_targets_read(const json_t *list, const char *what, struct hf_targets **out, struct sl_err *err);
void hf_targets_free(struct hf_targets *t);

/* SL_ELIMIT: a pattern takes too long. */
int hf_targets_match(const struct hf_targets *t, const char *module, enum hf_match *out, struct sl_err *err);

#endif
