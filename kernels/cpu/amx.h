/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with AMX's integer tiles: the memory layout shared by two files. amx_avx512.c packs 20-bit activations and
 * multiplies; amx_unpack_avx512.c unpacks weights into panels.
 *
 * A block is BK weights along K that share a scale: 32, or 16 for Q6_K. A panel block holds one block of AMX_OUT
 * neighbouring outputs: q int8 [BK / 4][AMX_OUT][4], then scale float [AMX_OUT], then offset the same; a weight is
 * scale · q + offset.
 */
#ifndef KERNELS_CPU_AMX_H
#define KERNELS_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa.h"

enum { AMX_OUT = 16, AMX_CHUNK = 256 /* weights along K that are unpacked at a time */ };

/* Unpacks n weights of AMX_OUT outputs, whose rows start at rows[0], rows[1], …. n is a multiple of the type's block,
 * at most AMX_CHUNK, and exactly AMX_CHUNK for types with blocks of 256. */
typedef void kn_amx_unpack(const uint8_t *const *rows, int n, uint8_t *out);

struct kn_amx_type {
	kn_amx_unpack *unpack; /* NULL: unsupported type */
	int block;
	bool has_offset;
};

static inline size_t kn_amx_panel_block(int block) { return (size_t)(AMX_OUT * block) + 2 * AMX_OUT * sizeof(float); }

struct kn_amx_type kn_amx_type_of(int type);

/* The members of struct kn_isa. */
bool kn_amx_packs(int type);
size_t kn_amx_packed_bytes(int n_rows, int n_in);
kn_pack_fn kn_amx_pack;
kn_matmul_packed_fn kn_amx_matmul_packed;

/* ---- shared with int8_amx_vnni.c ---- */

/* gcc 12's tile loads do not declare which memory they read. */
#define MEMORY_IS_READ() __asm__ volatile("" ::: "memory")
#define TILES __attribute__((target("amx-tile,amx-int8")))

struct tile_config { /* of palette 1, as the processor reads it */
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

/* Whether the processor has tiles and the system permits their use. Checked once. */
bool kn_amx_usable(void);

#endif
