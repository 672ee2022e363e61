/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the emulated device: all of this process have one between them, of a size that tests set. And what there is
 * of devices and graphs just now. Private to the emulation; any thread.
 */
#ifndef KERNELS_CUDA_EMU_MEMORY_H
#define KERNELS_CUDA_EMU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "tests/emulation/emu_alive.h"

/* KN_ALIGN-aligned, zeroed; NULL: it has no more. */
void *emu_memory_alloc(size_t bytes);
/* The same, full of NaNs instead, and in that list while it lives. */
struct emu_piece;
void *emu_junk_alloc(struct emu_piece **list, size_t bytes);
/* All in the list are full of junk again: of a number or of NaN. */
void emu_junk_fill(struct emu_piece *list, bool number);
void emu_memory_free(void *p);
/* False: it has no size. */
bool emu_memory_tell(uint64_t *free_bytes, uint64_t *total);
/* One more, or one fewer. */
void emu_count_device(int n);
void emu_count_graph(int n);

/* Its size from now on; 0: as much as the host gives. */
extern "C" void sluice_emulation_memory(uint64_t bytes);
/* The n-th allocation from now on finds no memory; 0: none. */
extern "C" void sluice_emulation_no_memory(int n);
extern "C" void sluice_emulation_alive(struct emu_alive *out);

#endif
