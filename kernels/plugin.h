/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends in shared objects, opened at run time: the program starts without a CUDA library and reports why it runs
 * without one.
 *
 * A plugin exports one C function, KN_PLUGIN_ENTRY. It calls the program only through the table below, does not link
 * to it, and is never closed (a device runtime does not survive that).
 */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/kernels.h"

/* Incremented when the meaning of this file or kernels.h changes; changes of size are detected anyway. */
enum { KN_PLUGIN_ABI = 13 };

struct kn_plugin_host {
	int abi;
	size_t ops_size, kv_size, step_size; /* of the structs of kernels.h */
	void *(*zalloc)(size_t bytes);       /* with fault points, as base/alloc.h's */
	void (*free)(void *p);
	int (*errf)(struct sl_err *err, int code, const char *fmt, ...);
	int (*type_block)(int type);
	size_t (*row_bytes)(int type, size_t n);
	const char *(*type_name)(int type);
	bool (*device_fault)(void);           /* the emulation's: whether this launch fails (base/fault.h) */
	void (*debugf)(const char *fmt, ...); /* a line of the log at the level debug */
};

/* host lives as long as the process. NULL and *err: no device, or no driver, or another version. */
typedef const struct kn_ops *kn_plugin_entry(const struct kn_plugin_host *host, struct sl_err *err);
#define KN_PLUGIN_ENTRY "sluice_backend"

/* Opens the shared object at path. NULL: failed, with the reason in *err. Any thread. */
const struct kn_ops *kn_plugin_open(const char *path, struct sl_err *err);
/* Looks for the shared object of that name while its file can be reached and, if wanted, opens it without initializing
 * it: kn_plugin_select does that later, when the file may be unreachable. Asks no driver. */
void kn_plugin_load(const char *name, bool wanted);
/* The plugin "cuda" or "cuda-emulated": libsluice-NAME.so beside the executable or in ../lib/sluice. Searched once;
 * the result is kept. *is_plugin: whether name is one of these. */
const struct kn_ops *kn_plugin_select(const char *name, bool *is_plugin, struct sl_err *err);
/* One line for the log: whether there is a CUDA backend, and once it was selected, whether it has a device. Asks no
 * driver. Valid until this thread's next call. */
const char *kn_plugin_line(void);

#endif
