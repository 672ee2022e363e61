/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/adapter/peft_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_depth.h"
#include "base/text.h"
#include "engine/adapter/adapter.h"
#include "engine/file/map_file.h"

enum { MAX_CONFIG = 1 << 20, MAX_DEPTH = 16, MAX_KEY = 255 };

/* What a key may hold. */
enum rule {
	READ,     /* read here */
	HARMLESS, /* about training, or for people */
	OFF,      /* null, false, 0 or empty: else it changes what the adapter computes */
};

static const struct {
	const char *key;
	enum rule rule;
} keys[] = {
    {"peft_type", READ},
    {"r", READ},
    {"lora_alpha", READ},
    {"use_rslora", READ},
    {"rank_pattern", READ},
    {"alpha_pattern", READ},
    {"target_modules", READ},
    {"base_model_name_or_path", READ},
    {"bias", READ},
    {"task_type", READ},
    {"init_lora_weights", READ},
    {"auto_mapping", HARMLESS},
    {"corda_config", HARMLESS},
    {"ensure_weight_tying", READ},
    {"eva_config", HARMLESS},
    {"exclude_modules", HARMLESS},
    {"inference_mode", HARMLESS},
    {"layers_pattern", HARMLESS},
    {"layers_to_transform", HARMLESS},
    {"loftq_config", HARMLESS},
    {"lora_dropout", HARMLESS},
    {"megatron_config", HARMLESS},
    {"megatron_core", HARMLESS},
    {"peft_version", HARMLESS},
    {"qalora_group_size", HARMLESS},
    {"revision", HARMLESS},
    {"runtime_config", HARMLESS},
    {"alora_invocation_tokens", OFF},
    {"arrow_config", OFF},
    {"fan_in_fan_out", OFF},
    {"layer_replication", OFF},
    {"lora_bias", OFF},
    {"modules_to_save", OFF},
    {"target_parameters", OFF},
    {"trainable_token_indices", OFF},
    {"use_dora", OFF},
    {"use_qalora", OFF},
};

static bool is_off(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_NULL:
	case JSON_FALSE: return true;
	case JSON_INTEGER: return json_integer_value(v) == 0;
	case JSON_STRING: return json_string_length(v) == 0;
	case JSON_ARRAY: return json_array_size(v) == 0;
	case JSON_OBJECT: return json_object_size(v) == 0;
	default: return false;
	}
}

static int check_keys(const struct peft_config *c, const char *name, struct sl_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach(c->root, key, v)
	{
		size_t i = 0;
		while (i < sizeof keys / sizeof *keys && strcmp(keys[i].key, key) != 0)
			i++;
		bool known = i < sizeof keys / sizeof *keys;
		if ((!known || keys[i].rule == OFF) && !is_off(v))
			return sl_errf(err, SL_EUNSUPPORTED, "%s: key %.100s is not supported by this version%s", name,
				       text_has_control(key, strlen(key)) ? "(with control characters)" : key,
				       known ? "" : ", which does not know it");
	}
	return 0;
}

static const char *text_of(const json_t *root, const char *key)
{
	const char *s = json_string_value(json_object_get(root, key));
	return s != NULL ? s : "";
}

/* Words that must be one of a few, or absent. */
static int check_words(const struct peft_config *c, const char *name, struct sl_err *err)
{
	const char *kind = text_of(c->root, "peft_type"), *bias = text_of(c->root, "bias");
	const char *task = text_of(c->root, "task_type"), *init = text_of(c->root, "init_lora_weights");
	static const char *const heads[] = {"SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS", "SEQ_2_SEQ_LM"};
	/* Others (pissa, olora, loftq, corda, …) begin with weights of the base that the folder does not have. */
	static const char *const plain[] = {"", "gaussian", "orthogonal", "eva"};
	if (strcmp(kind, "LORA") != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: peft_type is \"%.40s\"; only \"LORA\" is supported", name,
			       text_has_control(kind, strlen(kind)) ? "?" : kind);
	if (bias[0] != '\0' && strcmp(bias, "none") != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: bias is \"%.40s\"; only \"none\" is supported", name,
			       text_has_control(bias, strlen(bias)) ? "?" : bias);
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		if (strcmp(task, heads[i]) == 0)
			return sl_errf(err, SL_EUNSUPPORTED, "%s: task_type %s is not supported", name, heads[i]);
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (strcmp(init, plain[i]) == 0)
			return 0;
	return sl_errf(
	    err, SL_EUNSUPPORTED,
	    "%s: init_lora_weights \"%.40s\" may change the base: not supported unless it was converted when "
	    "it was saved",
	    name, text_has_control(init, strlen(init)) ? "?" : init);
}

/* ---- patterns ---- */

/* Keys of patterns are regular expressions of Python's. Names are what they hold, and dots in them match dots. */
static bool is_plain(const char *key)
{
	size_t n = strlen(key);
	const char *at = key + (key[0] == '^');
	size_t end = n > 0 && key[n - 1] == '$' ? n - 1 : n;
	size_t len = end - (size_t)(at - key);
	return n > 0 && n <= MAX_KEY && end > (size_t)(at - key) &&
	       strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == len;
}

bool peft_names(const char *key, const char *module)
{
	bool whole = key[0] == '^';
	size_t n = strlen(key) - (size_t)whole, k = strlen(module);
	key += whole;
	n -= n > 0 && key[n - 1] == '$';
	if (n == 0 || n > k || memcmp(module + k - n, key, n) != 0)
		return false;
	return n == k || (!whole && module[k - n - 1] == '.');
}

static int check_pattern(const struct peft_config *c, const char *pattern, bool whole, const char *name,
			 struct sl_err *err)
{
	const json_t *of = json_object_get(c->root, pattern);
	const char *key;
	json_t *v;
	if (of == NULL || json_is_null(of))
		return 0;
	if (!json_is_object(of))
		return sl_errf(err, SL_EINVAL, "%s: %s is not an object", name, pattern);
	json_object_foreach((json_t *)(uintptr_t)of, key, v)
	{
		if (!is_plain(key))
			return sl_errf(err, SL_EUNSUPPORTED, "%s: %s: \"%.60s\" is not the name of a module", name,
				       pattern, text_has_control(key, strlen(key)) ? "?" : key);
		double d = json_number_value(v);
		if (whole && (!json_is_integer(v) || d < 1 || d > ADAPTER_MAX_RANK))
			return sl_errf(err, SL_EINVAL, "%s: %s: %s is not a rank of 1 to %d", name, pattern, key,
				       ADAPTER_MAX_RANK);
		if (!json_is_number(v) || !isfinite(d) || d == 0)
			return sl_errf(err, SL_EINVAL, "%s: %s: %s is not a number other than 0", name, pattern, key);
	}
	return 0;
}

/* The first key that means the module. */
static const json_t *by_pattern(const struct peft_config *c, const char *pattern, const char *module)
{
	const json_t *of = json_object_get(c->root, pattern);
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)of, key, v) if (peft_names(key, module)) return v;
	return NULL;
}

void peft_config_of(const struct peft_config *c, const char *module, int *rank, double *alpha)
{
	const json_t *r = by_pattern(c, "rank_pattern", module), *a = by_pattern(c, "alpha_pattern", module);
	*rank = r != NULL ? (int)json_integer_value(r) : c->rank;
	*alpha = a != NULL ? json_number_value(a) : c->alpha;
}

const char *peft_config_target(const struct peft_config *c, size_t i)
{
	return json_string_value(json_array_get(json_object_get(c->root, "target_modules"), i));
}

/* ---- the file ---- */

static int read_numbers(struct peft_config *c, const char *name, struct sl_err *err)
{
	const json_t *r = json_object_get(c->root, "r"), *alpha = json_object_get(c->root, "lora_alpha");
	const json_t *root = json_object_get(c->root, "use_rslora");
	if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > ADAPTER_MAX_RANK)
		return sl_errf(err, SL_EINVAL, "%s: r is not a rank of 1 to %d", name, ADAPTER_MAX_RANK);
	c->alpha = json_number_value(alpha);
	if (!json_is_number(alpha) || !isfinite(c->alpha) || c->alpha == 0)
		return sl_errf(err, SL_EINVAL, "%s: lora_alpha is not a number other than 0", name);
	if (root != NULL && !json_is_boolean(root) && !json_is_null(root))
		return sl_errf(err, SL_EINVAL, "%s: use_rslora is neither true nor false", name);
	c->rank = (int)json_integer_value(r);
	c->by_root = json_is_true(root);
	c->ties = json_is_true(json_object_get(c->root, "ensure_weight_tying"));
	int rc = check_pattern(c, "rank_pattern", true, name, err);
	return rc != 0 ? rc : check_pattern(c, "alpha_pattern", false, name, err);
}

int peft_config_parse(const char *text, size_t n, const char *name, struct peft_config *out, struct sl_err *err)
{
	json_error_t why;
	int rc;
	*out = (struct peft_config){.base = ""};
	if (json_deeper_than(text, n, MAX_DEPTH))
		return sl_errf(err, SL_EINVAL, "%s: nested too deep", name);
	out->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (out->root == NULL)
		return sl_errf(err, SL_EINVAL, "%s: line %d: %.100s", name, why.line, why.text);
	if (!json_is_object(out->root))
		rc = sl_errf(err, SL_EINVAL, "%s: not an object", name);
	else if ((rc = check_words(out, name, err)) == 0 && (rc = check_keys(out, name, err)) == 0)
		rc = read_numbers(out, name, err);
	if (rc != 0) {
		peft_config_dispose(out);
		return rc;
	}
	out->base = text_of(out->root, "base_model_name_or_path");
	return 0;
}

int peft_config_read(const char *folder, struct peft_config *out, struct sl_err *err)
{
	struct map_file map;
	char name[4128];
	snprintf(name, sizeof name, "%.4096s/adapter_config.json", folder);
	int rc = map_file_read(name, MAX_CONFIG, &map, err);
	if (rc != 0)
		return rc;
	rc = peft_config_parse((const char *)map.at, map.bytes, name, out, err);
	map_file_close(&map);
	return rc;
}

void peft_config_dispose(struct peft_config *c)
{
	json_decref(c->root);
	c->root = NULL;
}
