/* SPDX-License-Identifier: Apache-2.0
 *
 * Which block of a launch accesses which bytes of device memory. Blocks of a launch run in any order, or at once, so
 * within a launch no block may read or write a byte that another block wrote, nor write one that another block read.
 *
 * It watches kernels compiled with the compiler's instrumentation for races (-fsanitize=thread), whose calls
 * emu_watch.cu implements: libsluice-cuda-watched.so. Others report nothing, and nothing here costs them more than a
 * test. Atomic accesses are not watched, nor is a block from its first kn_fence() on: that is how a kernel says that
 * its blocks hand each other what they wrote before.
 *
 * Private to the emulation. Thread: each watches the blocks that it runs.
 */
#ifndef KERNELS_CUDA_EMU_WATCH_H
#define KERNELS_CUDA_EMU_WATCH_H

#include <stddef.h>
#include <stdint.h>

/* Memory that is watched, page-aligned, zero. NULL: nothing is watched, or there is no more. Any thread. */
void *emu_watch_alloc(size_t bytes);
void emu_watch_free(void *p, size_t bytes);

/* A launch of n blocks begins on this thread; the block that runs from now on; the launch ends. NULL, or what its
 * blocks did to each other (static). */
void emu_watch_begin(uint32_t n);
void emu_watch_block(uint32_t i);
const char *emu_watch_end(void);
/* The block reads these bytes, in a way that the compiler doesn't see. */
void emu_watch_read(const void *at, size_t bytes);

#endif
