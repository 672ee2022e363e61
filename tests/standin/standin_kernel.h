/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in for CUDA's runtime learns of a kernel before it is launched by its address: nvcc registers that for
 * the runtime. Included through the emulation's header.
 */
#ifndef TESTS_STANDIN_KERNEL_H
#define TESTS_STANDIN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

struct kn_command;
struct kn_plugin_host;

/* c: a command with the kernel, its thunk, name and number of arguments; bytes: with its arguments; sizes: of each
 * argument, static. */
void standin_kernel(const struct kn_plugin_host *host, const struct kn_command *c, size_t bytes, const uint32_t *sizes);
/* The emulation's: the kernel that runs reads that from memory of the device; its block has that shared memory. */
void standin_reads(const void *p, size_t bytes);
void standin_shared(const void *at, size_t bytes);

#endif
