/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device has on CUDA and in the emulation alike: device_base.cu answers for both from it. The first member of
 * every struct dev, which is a standard-layout type. Private to the device layer.
 */
#ifndef KERNELS_CUDA_DEVICE_BASE_H
#define KERNELS_CUDA_DEVICE_BASE_H

#include "kernels/cuda/device.h"

struct dev_base {
	const struct kn_plugin_host *host;
	uint64_t serial; /* of dev_serial */
	uint64_t busy_ns;
	struct kn_list *recording; /* NULL: none */
	char fault[192];           /* the first error; "": none */
};

#endif
