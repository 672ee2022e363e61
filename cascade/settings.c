/* SPDX-License-Identifier: Apache-2.0
 *
 * The cascade's configuration: the rows of its lists, checks that rows cannot express, and a tier's policy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf/conf_rows.h"
#include "cascade/weights.h"

#define CUE(field) offsetof(struct casc_cue_setting, field)
#define RULE(field) offsetof(struct casc_rule_setting, field)
#define TIER(field) offsetof(struct casc_tier_setting, field)
static const char *const modes[] = {"auto", "small", "large", NULL};
static const char *const thresholds[] = {"fixed", "fitted", NULL};
static const char *const disagreements[] = {"continue", "tell", NULL};

const struct conf_row casc_cue_rows[] = {
    ROW("name", CONF_STRING, CUE(name), NULL, 1, 32),
    ROW("weight", CONF_FLOAT, CUE(weight), NULL, -100, 100),
    ROW_END,
};

const struct conf_row casc_rule_rows[] = {
    ROW("name", CONF_STRING, RULE(name), NULL, 1, 64),
    ROW("contains", CONF_STRINGS, RULE(contains), "", 0, 64),
    ROW("min_bytes", CONF_INT, RULE(min_bytes), "0", 0, 1e9),
    ROW("max_bytes", CONF_INT, RULE(max_bytes), "0", 0, 1e9),
    ROW("model", CONF_STRING, RULE(model), "", 0, 128),
    ROW("weight", CONF_FLOAT, RULE(weight), "0", -100, 100),
    ROW_END,
};

const struct conf_row casc_tier_rows[] = {
    ROW("name", CONF_STRING, TIER(name), NULL, 1, 64),
    ROW_ENUM("mode", TIER(mode), "auto", modes),
    ROW_ENUM("thresholds", TIER(thresholds), "fixed", thresholds),
    ROW("easy", CONF_FLOAT, TIER(easy), "0", 0, 1),
    ROW("race", CONF_FLOAT, TIER(race), "0.6", 0, 1),
    ROW("hard", CONF_FLOAT, TIER(hard), "0.85", 0, 1),
    ROW("sure", CONF_FLOAT, TIER(sure), "0.75", 0, 1),
    ROW("low", CONF_FLOAT, TIER(low), "0.5", 0, 1),
    ROW("drop", CONF_FLOAT, TIER(drop), "0.4", 0, 1),
    ROW("target_ttft", CONF_DURATION, TIER(target_ttft_ms), "0", 0, 3600000.0),
    ROW("tell_degraded", CONF_BOOL, TIER(tell_degraded), "true", 0, 0),
    ROW_ENUM("disagree", TIER(disagree), "continue", disagreements),
    ROW("share", CONF_FLOAT, TIER(share), "0.5", 0, 1),
    ROW_END,
};

#define AT(list, type, i) ((const type *)(list).items + (i))

static int fail(char *key, size_t size, const char *list, const char *item, const char *field, struct sl_err *err,
		const char *what)
{
	snprintf(key, size, "%s.%s.%s", list, item, field);
	return sl_errf(err, SL_EINVAL, "%s", what);
}

static int check_tier(const struct casc_tier_setting *t, char *key, size_t n, struct sl_err *err)
{
	if (t->easy > t->race)
		return fail(key, n, "tiers", t->name, "easy", err, "must not be above race");
	if (t->race > t->hard)
		return fail(key, n, "tiers", t->name, "race", err, "must not be above hard");
	if (t->low > t->sure)
		return fail(key, n, "tiers", t->name, "low", err, "must not be above sure");
	if (t->drop > t->low)
		return fail(key, n, "tiers", t->name, "drop", err, "must not be above low");
	return 0;
}

int casc_settings_check(const struct casc_settings *s, char *key, size_t key_size, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < s->cues.n && rc == 0; i++) {
		const struct casc_cue_setting *c = AT(s->cues, struct casc_cue_setting, i);
		if (strcmp(c->name, "bias") != 0 && casc_feature_find(c->name) < 0)
			rc = fail(key, key_size, "cues", c->name, "name", err, "there is no feature of that name");
	}
	for (size_t i = 0; i < s->rules.n && rc == 0; i++) {
		const struct casc_rule_setting *r = AT(s->rules, struct casc_rule_setting, i);
		if (r->max_bytes > 0 && r->max_bytes < r->min_bytes)
			rc = fail(key, key_size, "rules", r->name, "max_bytes", err, "must not be below min_bytes");
		for (size_t k = 0; k < r->contains.n && rc == 0; k++)
			if (r->contains.items[k][0] == '\0')
				rc = fail(key, key_size, "rules", r->name, "contains", err,
					  "must not have an empty string, which every text contains");
	}
	for (size_t i = 0; i < s->tiers.n && rc == 0; i++)
		rc = check_tier(AT(s->tiers, struct casc_tier_setting, i), key, key_size, err);
	if (rc == 0 && s->hold_min > s->hold_tokens) {
		snprintf(key, key_size, "hold.min_tokens");
		rc = sl_errf(err, SL_EINVAL, "must not be above cascade.hold.tokens");
	}
	if (rc == 0 && s->w_mean + s->w_min <= 0) {
		snprintf(key, key_size, "confidence.mean");
		rc = sl_errf(
		    err, SL_EINVAL,
		    "and cascade.confidence.minimum must not both be 0, because top log-probabilities may be missing");
	}
	return rc;
}

/* The rows' defaults, for tiers that are not listed. */
static struct casc_tier_setting defaults(void)
{
	struct casc_tier_setting t = {0};
	for (const struct conf_row *r = casc_tier_rows; r->key != NULL; r++) {
		char *at = (char *)&t + r->offset;
		if (r->type == CONF_FLOAT)
			*(double *)(void *)at = strtod(r->fallback, NULL);
		else if (r->type == CONF_BOOL)
			*(bool *)(void *)at = strcmp(r->fallback, "true") == 0;
		else
			/* Enumerations begin with their default, the one duration is 0. */
			BUG_IF(r->fallback != NULL && strcmp(r->fallback, "0") != 0 &&
				   (r->choices == NULL || strcmp(r->fallback, r->choices[0]) != 0),
			       "default of tiers.%s", r->key);
	}
	return t;
}

static struct casc_tier_setting setting_of(const struct casc_settings *s, const char *tier)
{
	for (size_t i = 0; i < s->tiers.n; i++)
		if (strcmp(AT(s->tiers, struct casc_tier_setting, i)->name, tier) == 0)
			return *AT(s->tiers, struct casc_tier_setting, i);
	return defaults();
}

void casc_policy_fit(const struct casc_settings *s, const char *tier, const struct casc_reference *ref,
		     struct casc_policy *out)
{
	if (ref == NULL || setting_of(s, tier).thresholds == 0)
		return;
	out->easy = ref->easy;
	out->hard = ref->hard;
	out->race = out->race < out->easy ? out->easy : out->race > out->hard ? out->hard : out->race;
}

void casc_policy_make(const struct casc_settings *s, const char *tier, struct casc_policy *out)
{
	struct casc_tier_setting t = setting_of(s, tier);
	/* Records are compared bytewise, so padding must be zero. */
	memset(out, 0, sizeof *out);
	out->mode = (uint8_t)t.mode;
	out->disagree = (uint8_t)t.disagree;
	out->fallback = s->fallback;
	out->tell_degraded = t.tell_degraded;
	out->easy = (float)t.easy;
	out->race = (float)t.race;
	out->hard = (float)t.hard;
	out->sure = (float)t.sure;
	out->low = (float)t.low;
	out->drop = (float)t.drop;
	out->hold_tokens = (uint16_t)s->hold_tokens;
	out->hold_min = (uint16_t)s->hold_min;
	out->hold_ms = (uint32_t)s->hold_ms;
	out->takeover_ms = (uint32_t)s->takeover_ms;
	out->share = (float)t.share;
	out->floor = (uint32_t)s->floor;
	out->conf = (struct casc_conf_policy){.w_mean = (float)s->w_mean,
					      .w_min = (float)s->w_min,
					      .w_entropy = (float)s->w_entropy,
					      .w_margin = (float)s->w_margin,
					      .smooth = (float)s->smooth,
					      .window = (uint8_t)s->window};
	out->load = (struct casc_load_policy){.target_ms = t.target_ttft_ms,
					      .leave_ratio = (float)s->leave_ratio,
					      .enter_ms = (uint32_t)s->enter_ms,
					      .leave_ms = (uint32_t)s->leave_ms,
					      .recover_ms = (uint32_t)s->recover_ms};
}
