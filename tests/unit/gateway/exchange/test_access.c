/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is let in, on the whole way from the socket: keys of a real Redis, browser tokens, nobody at all;
 * with the body coming before it is known, with clients that leave, and with every allocation failing.
 */
#include <openssl/sha.h>

#include "base/log.h"
#include "gateway/auth/browser_token.h"
#include "gateway/auth/identities.h"
#include "gateway/request/json_mem.h"
#include "gateway/auth/snapshot.h"
#include "tests/support/chat_rig.h"
#include "tests/support/redis_server.h"

enum { MOST_PASSES = 2000 };

static struct redis_server server;
static bool installed;

static int set_up(void **state)
{
	if (!installed) {
		*state = NULL;
		return 0;
	}
	redis_server_number(&server, "FLUSHALL");
	chat_store_address = server.address;
	int rc = chat_set_up(state);
	CHAT_UNTIL((struct chat_rig *)*state,
		   cache_client_state(((struct chat_rig *)*state)->r.t.cache) == CACHE_IS_UP);
	return rc;
}

static int tear_down(void **state) { return *state == NULL ? 0 : chat_tear_down(state); }

static struct chat_rig *rig_of(void **state)
{
	if (*state == NULL) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	return c;
}

/* As `sluice keys` writes it: {sluice}:keys under the name that the key's digest has. */
static void put_key(const char *key, const char *tier, const char *origins)
{
	struct identity id = {.name = "alice", .tenant = "acme", .start = "sk", .created_s = 1};
	uint8_t digest[SHA256_DIGEST_LENGTH];
	struct cache_key at;
	struct cache_config cfg;
	struct sl_buf b;
	cache_config_init(&cfg);
	snprintf(id.tier, sizeof id.tier, "%s", tier);
	snprintf(id.origins, sizeof id.origins, "%s", origins);
	SHA256((const uint8_t *)key, strlen(key), digest);
	identity_key(&at, digest);
	buf_init(&b, IDENTITY_RECORD_MAX);
	uint8_t version = IDENTITY_VERSION;
	assert_int_equal(buf_append(&b, &version, 1), 0);
	assert_int_equal(identity_print(&b, &id), 0);
	freeReplyObject(redis_server_ask(&server, "SET %s%s %b", cfg.prefix, at.text, buf_data(&b), b.len));
	buf_dispose(&b);
}

static int status_of(const struct chat_rig *c) { return c->n_answer < 12 ? 0 : atoi(c->answer + 9); }

#define CHAT "POST /v1/chat/completions"
static const char body[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

static void a_key_of_the_store_is_found(void **state)
{
	struct chat_rig *c = rig_of(state);
	put_key("sk-stored", "t", "https://a.example");
	c->bearer = "sk-stored";
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	assert_non_null(strstr(c->answer, "\"content\":\"abc\""));
	ask(c, CHAT, "origin: https://a.example\r\n", body);
	assert_int_equal(status_of(c), 200);
	ask(c, CHAT, "origin: https://b.example\r\n", body);
	assert_int_equal(status_of(c), 403);
	c->bearer = "sk-other";
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 401);
	put_key("sk-tierless", "gold", "");
	c->bearer = "sk-tierless";
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 403);
	CHAT_UNTIL(c, at_rest(c));
}

/* What is wrong with it is told also to whom the store had to be asked for. */
static void the_body_is_checked_afterwards(void **state)
{
	struct chat_rig *c = rig_of(state);
	put_key("sk-1", "t", "");
	put_key("sk-2", "t", "");
	c->bearer = "sk-1";
	int fd = send_request(c, CHAT, "content-encoding: gzip\r\n", body);
	take_answer(c, fd);
	assert_int_equal(status_of(c), 415);
	c->bearer = "sk-2";
	ask(c, CHAT, "", "nonsense");
	assert_int_equal(status_of(c), 400);
	CHAT_UNTIL(c, at_rest(c));
}

/* While the store does not answer a client leaves; and one that stays is told so. */
static void a_client_leaves_while_it_is_found_out(void **state)
{
	struct chat_rig *c = rig_of(state);
	put_key("sk-slow", "t", "");
	c->bearer = "sk-slow";
	kill(server.pid, SIGSTOP);
	int fd = send_request(c, CHAT, "", body);
	CHAT_UNTIL(c, c->app->n_exchanges == 1);
	close(fd);
	CHAT_UNTIL(c, c->app->n_exchanges == 0);
	kill(server.pid, SIGCONT);
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	CHAT_UNTIL(c, at_rest(c));
}

static void make_token(struct chat_rig *c, char *out, size_t room)
{
	ask(c, "POST /v1/browser_tokens", "", "{\"subject\":\"u\",\"origins\":[\"https://a.example\"]}");
	assert_int_equal(status_of(c), 200);
	const char *at = strstr(c->answer, "\"token\":\"");
	assert_non_null(at);
	size_t n = strcspn(at + 9, "\"");
	assert_true(n < room);
	memcpy(out, at + 9, n);
	out[n] = '\0';
}

static void tokens_of_both_kinds_of_keys(void **state)
{
	static const char *const keys[] = {"sk-test", "sk-stored"};
	struct chat_rig *c = rig_of(state);
	char token[BROWSER_TOKEN_MAX + 1];
	put_key("sk-stored", "t", "");
	for (int i = 0; i < 2; i++) {
		c->bearer = keys[i];
		make_token(c, token, sizeof token);
		c->bearer = token;
		ask(c, CHAT, "origin: https://a.example\r\n", body);
		assert_int_equal(status_of(c), 200);
		ask(c, CHAT, "origin: https://b.example\r\n", body);
		assert_int_equal(status_of(c), 403);
		ask(c, "POST /v1/browser_tokens", "", "{\"subject\":\"u\"}");
		assert_int_equal(status_of(c), 403);
		token[strlen(token) - 1] ^= 1;
		ask(c, CHAT, "", body);
		assert_int_equal(status_of(c), 401);
	}
	CHAT_UNTIL(c, at_rest(c));
}

/* The key that made a token is gone from the store, and this thread has forgotten it. */
static void a_token_goes_with_its_key(void **state)
{
	struct chat_rig *c = rig_of(state);
	char token[BROWSER_TOKEN_MAX + 1];
	put_key("sk-stored", "t", "");
	c->bearer = "sk-stored";
	make_token(c, token, sizeof token);
	c->bearer = token;
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	freeReplyObject(redis_server_ask(&server, "FLUSHALL"));
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	identities_destroy(c->app->identities);
	c->app->identities = identities_create(c->r.t.cache, NULL);
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 401);
	CHAT_UNTIL(c, at_rest(c));
}

/* Who shows nothing has a tier only where the configuration names one. */
static void nobody_is_somebody_by_address(void **state)
{
	struct chat_rig *c = rig_of(state);
	c->bearer = "";
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 401);
	c->app->now->cfg.anonymous = (char *)"t";
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	ask(c, "GET /metrics", "", "");
	assert_int_equal(status_of(c), 401);
	ask(c, "POST /v1/browser_tokens", "", "{\"subject\":\"u\"}");
	assert_int_equal(status_of(c), 403);
	ask(c, "GET /v1/usage", "", "");
	assert_non_null(strstr(c->answer, "\"kind\":\"anonymous\""));
	c->app->now->cfg.anonymous = (char *)"";
	CHAT_UNTIL(c, at_rest(c));
}

/* A browser sends to loopback addresses what any page wants, and a name of any page may be one. */
static void pages_of_others_need_a_key(void **state)
{
	struct chat_rig *c = rig_of(state);
	static const struct {
		const char *host, *fields;
		int status;
	} cases[] = {
	    {"localhost:8080", "", 200},
	    {"127.0.0.1:8080", "", 200},
	    {"[::1]:8080", "", 200},
	    {"chat.localhost", "", 200},
	    {"localhost:8080", "origin: http://localhost:8080\r\n", 200},
	    {"localhost:8080", "sec-fetch-site: same-origin\r\n", 200},
	    {"localhost:8080", "origin: http://localhost:8081\r\n", 403},
	    {"localhost:8080", "origin: https://evil.example\r\n", 403},
	    {"localhost:8080", "origin: null\r\n", 403},
	    {"localhost:8080", "sec-fetch-site: cross-site\r\n", 403},
	    {"evil.example:8080", "origin: http://evil.example:8080\r\n", 403},
	    {"evil.example:8080", "", 403},
	    {"localhost.evil.example", "", 403},
	    {"127.0.0.1.evil.example", "", 403},
	};
	c->bearer = "";
	c->app->now->cfg.anonymous = (char *)"t";
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		c->host = cases[i].host;
		ask(c, CHAT, cases[i].fields, body);
		assert_int_equal(status_of(c), cases[i].status);
	}
	c->app->now->cfg.anonymous = (char *)"";
	CHAT_UNTIL(c, at_rest(c));
}

/* A prompt of 3 tokens is all that this engine knows. */
static void prompts_are_limited(void **state)
{
	struct chat_rig *c = rig_of(state);
	c->tier.max_prompt = 3;
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 200);
	c->tier.max_prompt = 2;
	ask(c, CHAT, "", body);
	assert_int_equal(status_of(c), 400);
	assert_non_null(strstr(c->answer, "context_length_exceeded"));
	CHAT_UNTIL(c, at_rest(c));
	assert_int_equal(n_running(c), 0);
}

/* A fault may have cost the connection to Redis. */
static bool all_up(const struct chat_rig *c)
{
	return app_ready(c->app) && cache_client_state(c->r.t.cache) == CACHE_IS_UP;
}

static void sweep(struct chat_rig *c, const char *target, const char *with, const char *text, const char *whole)
{
	long n = 0, passes;
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, all_up(c));
		c->bearer = with;
		passes = ask_with_fault(c, FAULT_ALLOC, n, target, "", text);
		int status = status_of(c);
		if (status != 0 && status != 200 && status != 503 && status != 500)
			fail_msg("%s with %.20s, allocation %ld: %s", target, with, n, c->answer);
		CHAT_UNTIL(c, n_generations() == 0);
	} while (passes >= n);
	CHAT_UNTIL(c, all_up(c));
	ask(c, target, "", text);
	if (strstr(c->answer, whole) == NULL)
		fail_msg("%s with %.20s: %s", target, with, c->answer);
	CHAT_UNTIL(c, at_rest(c));
	print_message("%s: %ld\n", target, n - 1);
	assert_true(n > 3);
}

static void every_allocation(void **state)
{
	struct chat_rig *c = rig_of(state);
	char token[BROWSER_TOKEN_MAX + 1];
	json_mem_install();
	put_key("sk-stored", "t", "");
	c->tier.requests_per_minute = 100000;
	sweep(c, CHAT, "sk-stored", body, "\"content\":\"abc\"");
	sweep(c, "POST /v1/browser_tokens", "sk-stored", "{\"subject\":\"u\"}", "\"token\":\"sbt_");
	sweep(c, "GET /v1/usage", "sk-stored", "", "\"requests_per_minute\":{\"limit\"");
	c->bearer = "sk-stored";
	make_token(c, token, sizeof token);
	sweep(c, CHAT, token, body, "\"content\":\"abc\"");
	c->app->now->cfg.anonymous = (char *)"t";
	sweep(c, CHAT, "", body, "\"content\":\"abc\"");
	c->app->now->cfg.anonymous = (char *)"";
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_key_of_the_store_is_found, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_body_is_checked_afterwards, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_client_leaves_while_it_is_found_out, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(tokens_of_both_kinds_of_keys, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_token_goes_with_its_key, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(nobody_is_somebody_by_address, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(pages_of_others_need_a_key, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(prompts_are_limited, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(every_allocation, set_up, tear_down),
	};
	log_init("test", LOG_ERROR);
	installed = redis_server_installed();
	if (installed)
		redis_server_start(&server, NULL);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (installed)
		redis_server_stop(&server);
	return failed;
}
