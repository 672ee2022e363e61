/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends that are shared objects of their own, opened at run time: so the program needs no CUDA
 * library to start, and reports why it runs without one.
 *
 * A plugin exports one C function, KN_PLUGIN_ENTRY. It calls back only through the table below and
 * links to nothing of the program, and is never closed again (a device's runtime does not survive it).
 */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/kernels.h"

/* Goes up with any change of this file's or kernels.h's meaning; changes of size are seen anyway. */
enum { KN_PLUGIN_ABI = 9 };

struct kn_plugin_host {
	int abi;
	size_t ops_size, kv_size, step_size; /* of the structs of kernels.h */
	void *(*zalloc)(size_t bytes);       /* with fault points, as base/alloc.h's */
	void (*free)(void *p);
	int (*errf)(struct sl_err *err, int code, const char *fmt, ...);
	int (*type_block)(int type);
	size_t (*row_bytes)(int type, size_t n);
	const char *(*type_name)(int type);
	bool (*device_fault)(void); /* the emulation's: whether this launch fails (base/fault.h) */
};

/* host lives as long as the process. NULL and *err: no device, or no driver, or another version. */
typedef const struct kn_ops *kn_plugin_entry(const struct kn_plugin_host *host, struct sl_err *err);
#define KN_PLUGIN_ENTRY "sluice_backend"

/* The table of the shared object at path; NULL with the reason in *err. Any thread. */
const struct kn_ops *kn_plugin_open(const char *path, struct sl_err *err);
/* Opens the shared object of that name, if there is one, and begins nothing with it: kn_plugin_select does, later, when
 * its file may be out of reach. */
void kn_plugin_load(const char *name);
/* Those by name, "cuda" and "cuda-emulated": libsluice-NAME.so beside the executable or in
 * ../lib/sluice. Looked for once; the answer stays. *is_plugin: whether it is such a name. */
const struct kn_ops *kn_plugin_select(const char *name, bool *is_plugin, struct sl_err *err);
/* One line for the log: what was found of CUDA, or why nothing. */
const char *kn_plugin_line(void);

#endif
