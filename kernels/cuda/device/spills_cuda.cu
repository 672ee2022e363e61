/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device/spills.h"

#include <cuda_runtime.h>

enum { ROOM = sizeof(((struct kn_spills *)NULL)->kernel) / sizeof(void *) };

/* Whether the kernel is new; then it is there. */
static bool enter(struct kn_spills *s, const void *kernel)
{
	size_t i = (size_t)((uintptr_t)kernel * 0x9E3779B97F4A7C15ull >> 40) % ROOM;
	for (; s->kernel[i] != NULL; i = (i + 1) % ROOM)
		if (s->kernel[i] == kernel)
			return false;
	if (s->n + 1 == ROOM) /* one stays free, at which a search ends */
		return false;
	s->kernel[i] = kernel;
	s->n++;
	return true;
}

void kn_spills_look(struct kn_spills *s, const struct kn_plugin_host *host, const struct kn_command *c)
{
	cudaFuncAttributes a;
	const char *name = NULL;
	if (!enter(s, c->kernel))
		return;
	if (cudaFuncGetAttributes(&a, c->kernel) != cudaSuccess) {
		(void)cudaGetLastError(); /* its launch fails for the same reason */
		return;
	}
	if (a.localSizeBytes == 0)
		return;
	/* The source names a template; the runtime knows of what it is. */
	if (cudaFuncGetName(&name, c->kernel) != cudaSuccess || name == NULL) {
		(void)cudaGetLastError();
		name = c->name;
	}
	host->debugf("CUDA kernel %s needs %zu bytes of local memory a thread on this device, beside %d registers",
		     name, a.localSizeBytes, a.numRegs);
}
