/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a device that CUDA and the emulation share; device_base.cu implements both from it. It is the first
 * member of every struct dev, a standard-layout type. Private to the device layer.
 */
#ifndef KERNELS_CUDA_DEVICE_BASE_H
#define KERNELS_CUDA_DEVICE_BASE_H

#include "kernels/cuda/device/device.h"

struct dev_base {
	const struct kn_plugin_host *host;
	uint64_t serial; /* dev_serial returns it */
	uint64_t busy_ns;
	struct dev_figures counts;
	struct kn_list *recording; /* NULL: none */
	char fault[192];           /* the first error; "": none */
};

#endif
