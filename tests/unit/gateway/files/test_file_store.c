/* SPDX-License-Identifier: Apache-2.0
 *
 * Files in the store: what each operation means, over memory and a real redis-server; bounds, and files whose time is
 * over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "gateway/files/file_store.h"
#include "gateway/server/gateway_procs.h"
#include "tests/support/cache_rig.h"
#include "tests/support/redis_server.h"

enum { KEEP_MS = 3600000 };

static struct redis_server server;
static const struct gw_files limits = {.per_tenant = 3, .tenant_bytes = 100};

struct world {
	struct rig g;
	struct answer a;
	char text[4096]; /* of the last operation */
};

static void open_world(struct world *w, bool redis)
{
	memset(w, 0, sizeof *w);
	rig_init(&w->g);
	if (redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w->g, gateway_procs, GATEWAY_PROCS);
	if (redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
}

static void close_world(struct world *w)
{
	answer_reset(&w->a);
	rig_close(&w->g);
}

static struct file_ref ref_of(struct world *w, uint64_t tenant, const char *id)
{
	answer_reset(&w->a);
	return (struct file_ref){w->g.cl, tenant, id};
}

static int outcome(struct world *w)
{
	const char *text;
	size_t n;
	int what = file_outcome_of(rig_wait(&w->g, &w->a), &text, &n);
	snprintf(w->text, sizeof w->text, "%.*s", (int)n, text);
	return what;
}

static int put_for(struct world *w, uint64_t tenant, const char *id, const char *text, uint64_t keep_ms)
{
	const struct file_ref f = ref_of(w, tenant, id);
	json_t *object = json_pack("{s:s, s:s}", "id", id, "filename", "a \n\"b\".txt");
	const struct file_new n = {object, text, strlen(text), keep_ms};
	assert_int_equal(file_store_put(&f, &limits, &w->a.op, &n, on_answer), 0);
	json_decref(object);
	return outcome(w);
}

static int put(struct world *w, const char *id, const char *text) { return put_for(w, 7, id, text, KEEP_MS); }

/* 0 with its text, or a code. */
static int get(struct world *w, uint64_t tenant, const char *id)
{
	const struct file_ref f = ref_of(w, tenant, id);
	file_store_get(&f, &w->a.op, on_answer);
	const struct cache_result *r = rig_wait(&w->g, &w->a);
	if (r->code != 0)
		return r->code;
	const char *text;
	size_t n;
	json_t *object = file_record_read(r->bytes, r->n, &text, &n);
	assert_string_equal(json_string_value(json_object_get(object, "id")), id);
	assert_string_equal(json_string_value(json_object_get(object, "filename")), "a \n\"b\".txt");
	snprintf(w->text, sizeof w->text, "%.*s", (int)n, text);
	json_decref(object);
	return 0;
}

static int forget(struct world *w, uint64_t tenant, const char *id)
{
	const struct file_ref f = ref_of(w, tenant, id);
	file_store_delete(&f, &w->a.op, on_answer);
	return outcome(w);
}

/* How many are listed. */
static int count(struct world *w, uint64_t tenant)
{
	int n = 0;
	(void)ref_of(w, tenant, "");
	file_store_list(w->g.cl, &w->a.op, tenant, on_answer);
	assert_int_equal(outcome(w), FILE_OK);
	for (const char *p = w->text; (p = strchr(p, '\n')) != NULL; p++)
		n++;
	return n;
}

static void each_means(struct world *w)
{
	assert_int_equal(get(w, 7, "a"), SL_ENOTFOUND);
	assert_int_equal(put(w, "a", "one\ntwo\x01"), FILE_OK);
	assert_int_equal(get(w, 7, "a"), 0);
	assert_string_equal(w->text, "one\ntwo\x01");
	/* Another tenant has none of it. */
	assert_int_equal(get(w, 8, "a"), SL_ENOTFOUND);
	assert_int_equal(forget(w, 8, "a"), FILE_GONE);
	assert_int_equal(count(w, 8), 0);
	assert_int_equal(put(w, "b", "x"), FILE_OK);
	assert_int_equal(count(w, 7), 2);
	assert_int_equal(forget(w, 7, "a"), FILE_OK);
	assert_int_equal(forget(w, 7, "a"), FILE_GONE);
	assert_int_equal(get(w, 7, "a"), SL_ENOTFOUND);
	assert_int_equal(count(w, 7), 1);
	/* Bounds: of number, of bytes; each tenant has its own. */
	assert_int_equal(put(w, "c", "x"), FILE_OK);
	assert_int_equal(put(w, "d", "x"), FILE_OK);
	assert_int_equal(put(w, "e", "x"), FILE_TOO_MANY);
	assert_int_equal(put(w, "d", "x"), FILE_OK); /* repeated, since its answer was lost */
	assert_int_equal(put_for(w, 8, "e", "x", KEEP_MS), FILE_OK);
	assert_int_equal(forget(w, 7, "d"), FILE_OK);
	char text[100];
	memset(text, 'x', sizeof text);
	text[99] = '\0';
	assert_int_equal(put(w, "f", text), FILE_TOO_LARGE);
	assert_int_equal(get(w, 7, "f"), SL_ENOTFOUND);
	text[98] = '\0';
	assert_int_equal(put(w, "f", text), FILE_OK);
	/* Their time is over: nothing is listed, counted or read. */
	w->g.now_us += (KEEP_MS + 1) * UINT64_C(1000);
	assert_int_equal(count(w, 7), 0);
	assert_int_equal(put(w, "g", text), FILE_OK);
	assert_int_equal(count(w, 7), 1);
}

static void in_memory(void **state)
{
	struct world w;
	(void)state;
	open_world(&w, false);
	each_means(&w);
	assert_int_equal(get(&w, 7, "f"), SL_ENOTFOUND);
	assert_int_equal(forget(&w, 7, "f"), FILE_GONE);
	assert_int_equal(get(&w, 7, "g"), 0);
	close_world(&w);
}

static void in_redis(void **state)
{
	struct world w;
	(void)state;
	if (server.pid == 0)
		skip();
	open_world(&w, true);
	each_means(&w);
	/* Redis' own clock ends a value. */
	assert_int_equal(put_for(&w, 9, "h", "x", 1), FILE_OK);
	while (get(&w, 9, "h") == 0)
		continue;
	assert_int_equal(forget(&w, 9, "h"), FILE_GONE);
	/* A deleted file leaves its directory only. */
	assert_int_equal(put_for(&w, 10, "i", "canary", KEEP_MS), FILE_OK);
	long before = redis_server_number(&server, "DBSIZE");
	assert_int_equal(forget(&w, 10, "i"), FILE_OK);
	assert_true(redis_server_number(&server, "DBSIZE") <= before - 1);
	close_world(&w);
}

static void nonsense_is_no_record(void **state)
{
	static const char *const texts[] = {"",    "x", "\n", "{}\nx", "{\"filename\":1}\nx", "{\"filename\":\"a\"",
					    "[]\n"};
	const char *text;
	size_t n;
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_null(file_record_read((const uint8_t *)texts[i], strlen(texts[i]), &text, &n));
}

static int start(void **state)
{
	(void)state;
	if (redis_server_installed())
		redis_server_start(&server, NULL);
	if (server.pid != 0)
		snprintf(server.address, sizeof server.address, "unix:%s", server.socket);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_memory),
	    cmocka_unit_test(in_redis),
	    cmocka_unit_test(nonsense_is_no_record),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, start, stop);
}
