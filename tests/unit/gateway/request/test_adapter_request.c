/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of POST /v1/load_lora_adapter and /v1/unload_lora_adapter: each wrong field is named.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/adapter_request.h"

static const struct request_limits limits = {.json_depth = 8};

static bool is(struct proto_str s, const char *text) { return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0; }

static void accepted(void **arg)
{
	(void)arg;
	struct adapter_request r;
	struct request_error e;
	static const char load[] = "{\"lora_name\":\"x\",\"lora_path\":\"a/b\",\"other\":[1]}",
			  unload[] = "{\"lora_name\":\"m:x\"}";
	assert_int_equal(adapter_load_request_parse(load, sizeof load - 1, &limits, &r, &e), 0);
	assert_true(r.adapter.load && is(r.adapter.name, "x") && is(r.adapter.path, "a/b"));
	adapter_request_dispose(&r);
	assert_int_equal(adapter_unload_request_parse(unload, sizeof unload - 1, &limits, &r, &e), 0);
	assert_true(!r.adapter.load && is(r.adapter.name, "m:x") && r.adapter.path.n == 0);
	adapter_request_dispose(&r);
}

static void refused(void **arg)
{
	(void)arg;
	static const struct {
		const char *body, *param;
	} cases[] = {
	    {"{\"lora_path\":\"a\"}", "lora_name"},
	    {"{\"lora_name\":\"x\"}", "lora_path"},
	    {"{\"lora_name\":7,\"lora_path\":\"a\"}", "lora_name"},
	    {"{\"lora_name\":\"x\",\"lora_path\":[\"a\"]}", "lora_path"},
	    {"{\"lora_name\":\"\",\"lora_path\":\"a\"}", "lora_name"},
	    {"{\"lora_name\":\"x\",\"lora_path\":\"\"}", "lora_path"},
	    {"{\"lora_name\":\"x\\u0000y\",\"lora_path\":\"a\"}", "lora_name"},
	    {"{\"lora_name\":\"x\",\"lora_path\":\"a\\n\"}", "lora_path"},
	    {"{\"lora_name\":\"x\",\"lora_path\":\"a\\u0000\"}", "lora_path"},
	};
	struct adapter_request r;
	struct request_error e;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int rc = adapter_load_request_parse(cases[i].body, strlen(cases[i].body), &limits, &r, &e);
		if (rc != SL_EINVAL || strcmp(e.param, cases[i].param) != 0)
			fail_msg("%s: %d, %s", cases[i].body, rc, e.param);
	}
	char body[2 * PROTO_MAX_PATH];
	for (int n = PROTO_MAX_NAME; n <= PROTO_MAX_NAME + 1; n++) {
		snprintf(body, sizeof body, "{\"lora_name\":\"%0*d\",\"lora_path\":\"a\"}", n, 0);
		assert_int_equal(adapter_load_request_parse(body, strlen(body), &limits, &r, &e),
				 n > PROTO_MAX_NAME ? SL_EINVAL : 0);
		adapter_request_dispose(&r);
	}
	snprintf(body, sizeof body, "{\"lora_name\":\"x\",\"lora_path\":\"%0*d\"}", PROTO_MAX_PATH + 1, 0);
	assert_int_equal(adapter_load_request_parse(body, strlen(body), &limits, &r, &e), SL_EINVAL);
	assert_string_equal(e.param, "lora_path");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(accepted), cmocka_unit_test(refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
