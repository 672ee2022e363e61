/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the device layer that needs no device: the permanent fault, counters, recording.
 */
#include "kernels/cuda/device/device_base.h"

#include <stdio.h>

static struct dev_base *base(struct dev *d) { return (struct dev_base *)(void *)d; }

static const struct dev_base *base(const struct dev *d) { return (const struct dev_base *)(const void *)d; }

const struct kn_plugin_host *dev_host(const struct dev *d) { return base(d)->host; }

const char *dev_fault(const struct dev *d) { return base(d)->fault; }

int dev_fail(struct dev *d, const char *what, const char *why)
{
	struct dev_base *b = base(d);
	if (b->fault[0] == '\0')
		snprintf(b->fault, sizeof b->fault, "%s: %s", what, why);
	return SL_EIO;
}

uint64_t dev_busy_ns(const struct dev *d) { return base(d)->busy_ns; }

uint64_t dev_serial(const struct dev *d) { return base(d)->serial; }

void dev_count(struct dev *d) { base(d)->serial++; }

struct dev_figures *dev_counts(struct dev *d) { return &base(d)->counts; }

void dev_record(struct dev *d, struct kn_list *l) { base(d)->recording = l; }

struct kn_list *dev_recording(struct dev *d) { return base(d)->recording; }
