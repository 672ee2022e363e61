/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVIDIA's management library reports of a device (NVML API reference): how busy, warm and throttled it is. The
 * library is the driver's and is opened at run time; no header of it is needed.
 *
 * Calls can take milliseconds, or hang with the driver: never call them on a latency-critical thread.
 */
#ifndef KERNELS_NVML_H
#define KERNELS_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Why clocks are lower than they could be; one bit each in kn_device_state.slowed. */
enum kn_slowed {
	KN_SLOWED_POWER = 1 << 0,    /* the power limit, of software or of the board */
	KN_SLOWED_THERMAL = 1 << 1,  /* too warm */
	KN_SLOWED_HARDWARE = 1 << 2, /* what else the board demands */
	KN_SLOWED_OTHER = 1 << 3,    /* any other reason but idleness */
};

/* 0: the device does not report it, or what it reports cannot be; of counts the last value that was read. */
struct kn_device_state {
	uint32_t busy_percent;        /* of the last moments in which a kernel ran */
	uint32_t memory_busy_percent; /* in which memory was read or written */
	uint64_t memory_bytes, memory_used_bytes;
	uint32_t celsius;
	uint32_t milliwatts, limit_milliwatts;
	uint32_t sm_mhz, memory_mhz;
	uint32_t slowed;          /* bits of kn_slowed */
	uint64_t ecc_uncorrected; /* errors since the driver was loaded */
	uint32_t nvlinks;         /* links that are up */
	/* Since the driver was loaded, of all links together: packets sent again; checksums that were wrong, of control
	 * and of data. */
	uint64_t nvlink_replays, nvlink_crc;
	uint64_t pcie_replays;
	uint64_t pcie_sent, pcie_received; /* bytes a second, over 20 ms */
	uint64_t xids;                     /* critical errors that the driver has reported since kn_nvml_open */
	uint32_t last_xid;                 /* the number of the last one (NVIDIA, "Xid Errors") */
	const char *absurd;                /* NULL, or a figure that cannot be and is left 0 */
};

struct kn_nvml;

/* library: NULL, or another file than the driver's, for tests. pci: the device by its bus ("0000:1b:00.0").
 * SL_ENOTFOUND and *err: no library, or no such device. */
int kn_nvml_open(const char *library, const char *pci, struct kn_nvml **out, struct sl_err *err);
void kn_nvml_close(struct kn_nvml *n);
/* SL_EIO: the device does not answer, temporarily or permanently. */
int kn_nvml_read(struct kn_nvml *n, struct kn_device_state *out);

#endif
