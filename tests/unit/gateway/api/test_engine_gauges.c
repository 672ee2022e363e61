/* SPDX-License-Identifier: Apache-2.0
 *
 * The device among the metrics: nothing while there is none, its figures in their units, and what is left when it falls
 * silent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/metrics.h"
#include "gateway/api/engine_gauges.h"

static char text[1 << 16];

static const char *printed(void)
{
	struct sl_buf b;
	buf_init(&b, sizeof text - 1);
	assert_int_equal(metrics_print(&b), 0);
	if (b.len > 0)
		memcpy(text, buf_data(&b), b.len);
	text[b.len] = '\0';
	buf_dispose(&b);
	return text;
}

static void has(const char *line)
{
	if (strstr(printed(), line) == NULL)
		fail_msg("no %s in\n%s", line, text);
}

static void test_gauges(void **arg)
{
	(void)arg;
	struct proto_device d = {0};
	device_gauges_set(&d);
	assert_null(strstr(printed(), "sluice_device"));
	d = (struct proto_device){.known = 1,
				  .busy_percent = 87,
				  .memory_busy_percent = 41,
				  .celsius = 64,
				  .milliwatts = 512345,
				  .limit_milliwatts = 700000,
				  .sm_mhz = 1755,
				  .memory_mhz = 3201,
				  .slowed = PROTO_SLOWED_THERMAL,
				  .nvlinks = 5,
				  .memory_bytes = 150000000000,
				  .memory_used_bytes = 90000000000,
				  .ecc_uncorrected = 3,
				  .nvlink_replays = 11,
				  .nvlink_crc = 12,
				  .pcie_replays = 13,
				  .pcie_sent = 14000,
				  .pcie_received = 15000,
				  .xids = 2,
				  .last_xid = 79};
	device_gauges_set(&d);
	has("\nsluice_device_up 1\n");
	has("\nsluice_device_busy_ratio 0.87\n");
	has("\nsluice_device_memory_busy_ratio 0.41\n");
	has("\nsluice_device_memory_bytes 150000000000\n");
	has("\nsluice_device_memory_used_bytes 90000000000\n");
	has("\nsluice_device_temperature_celsius 64\n");
	has("\nsluice_device_power_watts 512.345\n");
	has("\nsluice_device_power_limit_watts 700\n");
	has("\nsluice_device_sm_clock_hertz 1755000000\n");
	has("\nsluice_device_nvlinks_up 5\n");
	has("\nsluice_device_ecc_errors_total 3\n");
	has("\nsluice_device_nvlink_replays_total 11\n");
	has("\nsluice_device_nvlink_crc_errors_total 12\n");
	has("\nsluice_device_pcie_replays_total 13\n");
	has("\nsluice_device_pcie_sent_bytes_per_second 14000\n");
	has("\nsluice_device_pcie_received_bytes_per_second 15000\n");
	has("\nsluice_device_xid_errors_total 2\n");
	has("\nsluice_device_last_xid 79\n");
	has("\nsluice_device_slowed{reason=\"thermal\"} 1\n");
	has("\nsluice_device_slowed{reason=\"power\"} 0\n");
	d = (struct proto_device){0};
	device_gauges_set(&d);
	has("\nsluice_device_up 0\n");
	has("\nsluice_device_power_watts 0\n");
	has("\nsluice_device_ecc_errors_total 3\n"); /* a device that is silent has not lost its counts */
	has("\nsluice_device_xid_errors_total 2\n");
	has("\nsluice_device_slowed{reason=\"thermal\"} 0\n");
}

/* vLLM's names, for each model, whatever its index is. */
static void models_have_figures_of_their_own(void **arg)
{
	(void)arg;
	struct proto_figures f = {.running = 3,
				  .waiting = 4,
				  .pages_total = 200,
				  .pages_free = 150,
				  .prefill_tokens = 5,
				  .decode_tokens = 6,
				  .prefix_queries = 7,
				  .prefix_hits = 8,
				  .preemptions = 9,
				  .spec_drafts = 10,
				  .spec_drafted = 11,
				  .spec_accepted = 12};
	engine_gauges_model("small", &f);
	engine_gauges_model("large", &(struct proto_figures){.running = 1, .pages_total = 10, .pages_free = 20});
	has("\nvllm:num_requests_running{model_name=\"small\"} 3\n");
	has("\nvllm:num_requests_running{model_name=\"large\"} 1\n");
	has("\nvllm:num_requests_waiting{model_name=\"small\"} 4\n");
	has("\nvllm:prompt_tokens_total{model_name=\"small\"} 5\n");
	has("\nvllm:generation_tokens_total{model_name=\"small\"} 6\n");
	has("\nvllm:prefix_cache_queries_total{model_name=\"small\"} 7\n");
	has("\nvllm:prefix_cache_hits_total{model_name=\"small\"} 8\n");
	has("\nvllm:num_preemptions_total{model_name=\"small\"} 9\n");
	has("\nvllm:spec_decode_num_drafts_total{model_name=\"small\"} 10\n");
	has("\nvllm:spec_decode_num_draft_tokens_total{model_name=\"small\"} 11\n");
	has("\nvllm:spec_decode_num_accepted_tokens_total{model_name=\"small\"} 12\n");
	has("\nvllm:kv_cache_usage_perc{model_name=\"small\"} 0.25\n");
	has("\nvllm:kv_cache_usage_perc{model_name=\"large\"} 0\n");
	f.running = 0;
	engine_gauges_model("small", &f);
	has("\nvllm:num_requests_running{model_name=\"small\"} 0\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gauges),
					   cmocka_unit_test(models_have_figures_of_their_own)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
