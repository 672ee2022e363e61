/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/key_rules.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

void key_see(struct key_seen *s, const void *object, const char *key)
{
	if (key_was_seen(s, object, key))
		return;
	BUG_IF(s->n == KEY_SEEN_MOST, "more keys than %d are read", KEY_SEEN_MOST);
	s->at[s->n].object = object;
	s->at[s->n++].key = key;
}

bool key_was_seen(const struct key_seen *s, const void *object, const char *key)
{
	for (int i = 0; i < s->n; i++)
		if (s->at[i].object == object && strcmp(s->at[i].key, key) == 0)
			return true;
	return false;
}

/* Words that reveal a key's subject. */
static bool is_telling(const char *key)
{
	static const char *const words[] = {"rope",          "rotary",     "attn",    "attention", "softcap",
					    "soft_cap",      "multiplier", "scaling", "alibi",     "causal",
					    "bidirectional", "window",     "logit",   "expert",    "layer_types"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(key, words[i]) != NULL)
			return true;
	return false;
}

/* Whether value is in the list, whose words are separated by sep. wild: a word may end with "*", a prefix match. */
static bool is_one_of(const char *words, char sep, bool wild, const char *value)
{
	const char between[] = {sep, '\0'};
	size_t n = strlen(value), len;
	for (; *words != '\0'; words += len + (words[len] == sep)) {
		len = strcspn(words, between);
		bool star = wild && words[len - 1] == '*';
		if (star ? strncmp(words, value, len - 1) == 0 : len == n && memcmp(words, value, n) == 0)
			return true;
	}
	return false;
}

static bool fits(const struct key_rule *r, const char *key, const char *family)
{
	return is_one_of(r->keys, ' ', true, key) && (r->family == NULL || strcmp(r->family, family) == 0);
}

static void note_unknown(struct model_arch *a, const char *prefix, const char *key)
{
	size_t at = strlen(a->unknown_keys);
	a->n_unknown_keys++;
	int n =
	    snprintf(a->unknown_keys + at, sizeof a->unknown_keys - at, "%s%s%.79s", at > 0 ? ", " : "", prefix, key);
	text_one_line(a->unknown_keys + at, ' ');
	if (n < 0 || (size_t)n >= sizeof a->unknown_keys - at)
		a->unknown_keys[at] = '\0'; /* the count shows that there are more */
}

static int refuse(const struct key_check *c, const char *key, const char *value, const char *but)
{
	return sl_errf(c->err, SL_EUNSUPPORTED, "%s: %s%.79s is %.63s, which is not supported%s%s%s", c->where,
		       c->prefix, key, value, but != NULL ? " (supported: " : "", but != NULL ? but : "",
		       but != NULL ? ")" : "");
}

int key_check(const struct key_check *c, const char *key, const char *value)
{
	for (const struct key_rule *r = c->rules; r->keys != NULL; r++)
		if (fits(r, key, c->family))
			return r->neutral == NULL || strcmp(value, "null") == 0 ||
				       is_one_of(r->neutral, '|', false, value)
				   ? 0
				   : refuse(c, key, value, r->neutral[0] != '\0' ? r->neutral : NULL);
	if (c->strict || is_telling(key))
		return is_one_of("null|false|[]|{}", '|', false, value) ? 0 : refuse(c, key, value, NULL);
	note_unknown(c->arch, c->prefix, key);
	return 0;
}
