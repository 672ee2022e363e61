/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/arch_conf.h"
#include "kernels/kernels.h"

void conf_fault(struct conf *r, int code, const char *key, const char *what)
{
	if (r->rc == 0)
		r->rc = sl_errf(r->err, code, "%s/config.json: %s %s", r->path, key, what);
}

const json_t *conf_get(struct conf *r, const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	if (v != NULL)
		key_see(&r->seen, object, key);
	return json_is_null(v) ? NULL : v;
}

bool conf_has(const struct conf *r, const char *key) { return json_object_get(r->config, key) != NULL; }

int conf_int(struct conf *r, const char *key, int lo, int hi, int fallback)
{
	const json_t *v = conf_get(r, r->config, key);
	if (v == NULL) {
		if (fallback < lo || fallback > hi)
			conf_fault(r, SL_EINVAL, key,
				   fallback < lo ? "is missing" : "is missing, and its usual value is too large");
		return fallback;
	}
	if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi) {
		conf_fault(r, SL_EINVAL, key, "is not a whole number in its range");
		return lo;
	}
	return (int)json_integer_value(v);
}

const char *conf_text(struct conf *r, const json_t *object, const char *key)
{
	const json_t *v = conf_get(r, object, key);
	if (v != NULL && !json_is_string(v))
		conf_fault(r, SL_EINVAL, key, "is not a string");
	return json_string_value(v);
}

const json_t *conf_object(struct conf *r, const json_t *object, const char *key)
{
	const json_t *v = conf_get(r, object, key);
	if (v != NULL && !json_is_object(v))
		conf_fault(r, SL_EINVAL, key, "is not an object");
	return json_is_object(v) ? v : NULL;
}

double conf_number(struct conf *r, const json_t *object, const char *key, double lo, double hi, double fallback)
{
	const json_t *v = conf_get(r, object, key);
	if (v == NULL)
		return fallback;
	double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= lo && x <= hi)) {
		conf_fault(r, SL_EINVAL, key, "is not a number in its range");
		return fallback;
	}
	return x;
}

bool conf_bool(struct conf *r, const char *key, bool fallback)
{
	const json_t *v = conf_get(r, r->config, key);
	if (v != NULL && !json_is_boolean(v))
		conf_fault(r, SL_EINVAL, key, "is not true or false");
	return v == NULL ? fallback : json_is_true(v);
}

void conf_experts(struct conf *r, const char *key, int n, int n_used, struct arch_experts *x)
{
	x->n = conf_int(r, key, 1, KN_MAX_EXPERTS, n);
	int most = x->n < KN_MAX_EXPERTS_USED ? x->n : KN_MAX_EXPERTS_USED;
	x->n_used = conf_int(r, "num_experts_per_tok", 1, most, n_used);
}
