/* SPDX-License-Identifier: Apache-2.0
 *
 * A record's line: each member, and only those that are known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "gateway/observe/record.h"
#include "gateway/observe/trace.h"

#define MS *NS_PER_MS

static void is(const struct observed *o, enum observed_verdict v, const char *want)
{
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(record_print(&b, o, v, 0x1234, 1700000000123), 0);
	assert_string_equal(buf_cstr(&b), want);
	buf_dispose(&b);
}

static void a_whole_record(void **unused)
{
	(void)unused;
	struct trace t = {.hex = "4bf92f3577b34da6a3ce929d0e0e4736"};
	struct observed o = {.request_id = "my \"id\"",
			     .model = "m",
			     .tier = "paid",
			     .ended_by = "client",
			     .cascade = "small/easy",
			     .trace = &t,
			     .status = 200,
			     .has_answer = true,
			     .left = true,
			     .shared = true,
			     .has_engine = true,
			     .started_ns = 1000 MS,
			     .submitted_ns = 1001 MS,
			     .first_ns = 1200 MS,
			     .ended_ns = 2000 MS + 1500,
			     .queue_us = 2500,
			     .prefill_us = 150000,
			     .decode_us = 700000,
			     .gaps = {.sum_ns = 700 MS, .max_ns = 300 MS, .slow_ns = 300 MS, .n = 4, .n_tokens = 7},
			     .n_prompt = 20,
			     .n_cached = 16,
			     .n_answer = 8,
			     .n_drafted = 6,
			     .n_accepted = 5};
	is(&o, OBSERVED_GOOD,
	   "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"my \\\"id\\\"\","
	   "\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"model\":\"m\",\"tier\":\"paid\","
	   "\"tenant\":\"0000000000001234\",\"status\":200,\"ended_by\":\"client\",\"good\":true,"
	   "\"queue_ms\":3.500,\"prefill_ms\":150.000,\"ttft_ms\":200.000,\"itl_ms\":100.000,\"itl_max_ms\":300.000,"
	   "\"slow_ms\":300.000,\"decode_ms\":700.000,\"e2e_ms\":1000.001,\"tokens_in\":20,\"tokens_cached\":16,"
	   "\"tokens_out\":8,\"drafted\":6,\"accepted\":5,\"cascade\":\"small/easy\",\"stopped_at\":8,"
	   "\"shared\":true}\n");
}

static void where_it_was_computed(void **unused)
{
	(void)unused;
	struct observed o = {.request_id = "r", .model = "m", .ended_by = "stop", .status = 200};
	o.route = (struct observed_route){
	    .engine = "d", .policy = "cost", .n_engines = 1, .prefill = "short", .n_missing = 40};
	is(&o, OBSERVED_NOT_JUDGED,
	   "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"r\",\"model\":\"m\",\"status\":200,"
	   "\"ended_by\":\"stop\",\"good\":null,\"e2e_ms\":0.000,\"engine\":\"d\",\"routing\":{\"policy\":\"cost\","
	   "\"of\":1,\"cost\":0,\"occupancy\":0,\"active\":0,\"cache\":0,\"queue\":0,\"recent\":0,\"affinity\":0,"
	   "\"cached\":0},"
	   "\"prefill\":{\"where\":\"short\",\"missing\":40}}\n");
	o.route.prefill = "apart";
	o.route.prefill_engine = "p";
	o.route.handed = "late";
	o.route.n_pages = 3;
	o.route.waited_us = 1500;
	is(&o, OBSERVED_NOT_JUDGED,
	   "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"r\",\"model\":\"m\",\"status\":200,"
	   "\"ended_by\":\"stop\",\"good\":null,\"e2e_ms\":0.000,\"engine\":\"d\",\"routing\":{\"policy\":\"cost\","
	   "\"of\":1,\"cost\":0,\"occupancy\":0,\"active\":0,\"cache\":0,\"queue\":0,\"recent\":0,\"affinity\":0,"
	   "\"cached\":0},"
	   "\"prefill\":{\"where\":\"apart\",\"missing\":40,\"engine\":\"p\",\"end\":\"late\",\"pages\":3,"
	   "\"wait_ms\":1.5}}\n");
}

static void what_is_unknown_is_absent(void **unused)
{
	(void)unused;
	struct observed o = {
	    .request_id = "r", .model = "", .ended_by = "refused", .status = 401, .started_ns = 5, .ended_ns = 5};
	is(&o, OBSERVED_NOT_JUDGED,
	   "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"r\",\"status\":401,\"ended_by\":\"refused\","
	   "\"good\":null,\"e2e_ms\":0.000}\n");
	o.tier = "t";
	o.continued = true;
	is(&o, OBSERVED_BAD,
	   "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"r\",\"tier\":\"t\",\"tenant\":\"0000000000001234\","
	   "\"status\":401,\"ended_by\":\"refused\",\"good\":false,\"e2e_ms\":0.000,\"continued\":true}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_record), cmocka_unit_test(where_it_was_computed),
					   cmocka_unit_test(what_is_unknown_is_absent)};
	return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
