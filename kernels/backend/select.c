/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects a backend by its name (kernels.h); "auto" is the fastest that this processor can run. The Makefile leaves out
 * other architectures' files by name pattern, and this file leaves out their tables by the same condition.
 */
#include <stdbool.h>
#include <pthread.h>
#include <string.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ref.h"
#include "kernels/kernels.h"
#include "kernels/plugin.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct kn_ops *available[8];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void)
{
	int n = 0;
	available[n++] = &kn_ref_ops;
#if defined(__x86_64__)
	__builtin_cpu_init();
	/* f16c by hand: clang 14 has no name for it. */
	unsigned a, b, c = 0, d;
	bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
	if (avx2) {
		available[n++] = &kn_avx2_ops;
		available[n++] = &kn_avx2_int8_ops;
	}
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	if (avx512)
		available[n++] = &kn_avx512_ops;
	/* The tiles by hand too, for the same reason: leaf 7, EDX 24 and 25 (int8). */
	bool amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & 1u << 24) != 0 && (d & 1u << 25) != 0;
	bool tiles = avx512 && amx && kn_amx_usable(), vnni = avx512 && __builtin_cpu_supports("avx512vnni");
	if (tiles)
		available[n++] = &kn_amx_ops;
	if (vnni)
		available[n++] = &kn_vnni_ops;
	if (vnni && tiles)
		available[n++] = &kn_amx_int8_ops;
#endif
}

const struct kn_ops *const *kn_available(void)
{
	pthread_once(&once, look);
	return available;
}

const struct kn_ops *kn_select(const char *name, struct sl_err *err)
{
	const struct kn_ops *const *all = kn_available(), *best = NULL;
	for (int i = 0; all[i] != NULL; i++) {
		if (strcmp(name, all[i]->name) == 0)
			return all[i];
		best = all[i];
	}
	if (strcmp(name, "auto") == 0)
		return best;
	bool is_plugin;
	const struct kn_ops *plugin = kn_plugin_select(name, &is_plugin, err);
	if (is_plugin)
		return plugin;
	sl_errf(err, SL_EINVAL, "backend \"%s\" is unknown or not for this processor", name);
	return NULL;
}
