/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory, and the operations of kn_ops that only copy it, shared by the reference and every instruction set.
 */
#ifndef KERNELS_CPU_HOST_H
#define KERNELS_CPU_HOST_H

#include "kernels/kernels.h"

/* Zeroed, KN_ALIGN-aligned, resident only once it is written to if it is large. SL_ENOMEM. */
int kn_memory_take(size_t bytes, void **out);
void kn_memory_give(void *memory); /* NULL: nothing */

/* kn_host_NAME; none of them reads the backend. gather is here too, for backends that add to it. */
#define KN_HOST_OPS(X) \
	X(mem_alloc)   \
	X(mem_free) X(upload) X(read_back) X(page_copy) X(pool_rows) X(state_copy) X(step_wait) X(step_ready)
#define KN_HOST_ENTRY(op) .op = kn_host_##op,
#define KN_HOST_DECLARE(op) __typeof__(*((struct kn_ops *)NULL)->op) kn_host_##op;
KN_HOST_OPS(KN_HOST_DECLARE)
KN_HOST_DECLARE(gather)

#endif
