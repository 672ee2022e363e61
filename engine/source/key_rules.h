/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of a model's description that no reader has read. An ignored key may change every answer, so each is one of:
 *
 *   harmless   a rule: it changes no answer (initializer_range, torch_dtype)
 *   neutral    a rule lists the values that change no answer (attention.causal true); any other is refused by name
 *   telling    no rule, but its name implies arithmetic (…rope…, …softcap…): refused, unless it is off
 *   unknown    the model loads; the log and `sluice model inspect` name the key
 *
 * Keys that a reader has read are not checked. So a key of one family is refused in other families' files, and no list
 * of supported keys is needed. The rules: arch_keys_hf.c, arch_keys_gguf.c.
 */
#ifndef ENGINE_KEY_RULES_H
#define ENGINE_KEY_RULES_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/source/arch.h"

struct key_rule {
	const char *keys;    /* separated by blanks; a final "*" matches any continuation */
	const char *neutral; /* values as key_check takes them, separated by |; NULL: any value is harmless */
	const char *family;  /* for this family only; NULL: for all. The first matching rule counts. */
};

struct key_check {
	const char *where;  /* the file, for messages */
	const char *prefix; /* of the key in messages: "rope_scaling." */
	const char *family;
	const struct key_rule *rules; /* end: no key */
	bool strict;                  /* unknown keys are refused */
	struct model_arch *arch;      /* collects the unknown keys */
	struct sl_err *err;
};

/* A key and its value: "null", "true", "-1.5", a string unchanged, "[]" and "{}" if empty, otherwise a description. 0,
 * or SL_EUNSUPPORTED. Either may contain any byte except 0. */
int key_check(const struct key_check *c, const char *key, const char *value);

/* The keys that were read, until the check. */
enum { KEY_SEEN_MOST = 192 };
struct key_seen {
	struct {
		const void *object; /* the object with the key; NULL if there is only one */
		const char *key;    /* lives as long as this struct */
	} at[KEY_SEEN_MOST];
	int n;
};
void key_see(struct key_seen *s, const void *object, const char *key);
bool key_was_seen(const struct key_seen *s, const void *object, const char *key);

#endif
