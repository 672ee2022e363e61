/* SPDX-License-Identifier: Apache-2.0
 *
 * Gauges of the engine's device (device_gauges.h). They are registered when there is something to tell for the first
 * time; when the device falls silent, sluice_device_up says so and the others are 0.
 */
#include "gateway/api/device_gauges.h"

#include "base/metrics.h"

#define DEVICE_GAUGE(field, name_, text, factor) \
	static struct metric field = {.kind = METRIC_GAUGE, .name = name_, .help = text, .scale = factor}

DEVICE_GAUGE(up, "sluice_device_up", "1 while the driver tells how the engine's device is", 0);
DEVICE_GAUGE(busy, "sluice_device_busy_ratio", "Share of the last moments in which a kernel ran on the engine's device",
	     0.01);
DEVICE_GAUGE(memory_busy, "sluice_device_memory_busy_ratio", "Share of them in which its memory was read or written",
	     0.01);
DEVICE_GAUGE(memory, "sluice_device_memory_bytes", "Memory of the device", 0);
DEVICE_GAUGE(memory_used, "sluice_device_memory_used_bytes", "Memory of the device that is in use, by anybody", 0);
DEVICE_GAUGE(celsius, "sluice_device_temperature_celsius", "Temperature of the device", 0);
DEVICE_GAUGE(watts, "sluice_device_power_watts", "Power that the device draws", 1e-3);
DEVICE_GAUGE(limit, "sluice_device_power_limit_watts", "Power that the device may draw", 1e-3);
DEVICE_GAUGE(sm, "sluice_device_sm_clock_hertz", "Clock of the device's multiprocessors", 1e6);
DEVICE_GAUGE(memory_clock, "sluice_device_memory_clock_hertz", "Clock of the device's memory", 1e6);
DEVICE_GAUGE(nvlinks, "sluice_device_nvlinks_up", "Links to other devices that are up", 0);

static struct metric ecc = {.kind = METRIC_COUNTER,
			    .name = "sluice_device_ecc_errors_total",
			    .help =
				"Errors of the device's memory that were not corrected, since the driver was loaded"};

static struct {
	uint32_t bit;
	struct metric gauge;
} slowed[] = {
#define SLOWED(b, why)                                                                                        \
	{                                                                                                     \
		b,                                                                                            \
		{                                                                                             \
			.kind = METRIC_GAUGE, .name = "sluice_device_slowed", .labels = "reason=\"" why "\"", \
			.help = "1 while the device's clocks are held down for this reason"                   \
		}                                                                                             \
	}
    SLOWED(PROTO_SLOWED_POWER, "power"),
    SLOWED(PROTO_SLOWED_THERMAL, "thermal"),
    SLOWED(PROTO_SLOWED_HARDWARE, "hardware"),
    SLOWED(PROTO_SLOWED_OTHER, "other"),
#undef SLOWED
};

enum { N_SLOWED = sizeof slowed / sizeof slowed[0] };

static void register_all(void)
{
	struct metric *all[] = {&up,    &busy,  &memory_busy, &memory,       &memory_used, &celsius,
				&watts, &limit, &sm,          &memory_clock, &nvlinks,     &ecc};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		metric_register(all[i]);
	for (int i = 0; i < N_SLOWED; i++)
		metric_register(&slowed[i].gauge);
}

void device_gauges_set(const struct proto_device *d)
{
	static bool registered;
	if (!registered && !d->known)
		return;
	if (!registered)
		register_all();
	registered = true;
	metric_set(&up, d->known != 0);
	metric_set(&busy, d->busy_percent);
	metric_set(&memory_busy, d->memory_busy_percent);
	metric_set(&memory, (int64_t)d->memory_bytes);
	metric_set(&memory_used, (int64_t)d->memory_used_bytes);
	metric_set(&celsius, d->celsius);
	metric_set(&watts, d->milliwatts);
	metric_set(&limit, d->limit_milliwatts);
	metric_set(&sm, d->sm_mhz);
	metric_set(&memory_clock, d->memory_mhz);
	metric_set(&nvlinks, d->nvlinks);
	metric_set(&ecc, (int64_t)d->ecc_uncorrected);
	for (int i = 0; i < N_SLOWED; i++)
		metric_set(&slowed[i].gauge, (d->slowed & slowed[i].bit) != 0);
}
