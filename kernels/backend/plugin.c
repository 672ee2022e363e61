/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening backends that are shared objects (plugin.h). Each is opened at most once per process, under a lock. The
 * reason of a failure is kept, so the start's log line and the configuration error agree.
 *
 * Only two folders are searched, both relative to the executable, so that no library path or working directory decides
 * which code runs.
 */
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/beside.h"
#include "base/fault.h"
#include "base/log.h"

static bool device_fault(void) { return fault_hit(FAULT_DEVICE); }

__attribute__((format(printf, 1, 2))) static void debugf(const char *fmt, ...)
{
	char line[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(line, sizeof line, fmt, args);
	va_end(args);
	log_debug("%s", line);
}

static const struct kn_plugin_host host = {
    .abi = KN_PLUGIN_ABI,
    .ops_size = sizeof(struct kn_ops),
    .kv_size = sizeof(struct kn_kv),
    .step_size = sizeof(struct kn_step),
    .zalloc = sl_zalloc,
    .free = sl_free,
    .errf = sl_errf,
    .type_block = kn_type_block,
    .row_bytes = kn_row_bytes,
    .type_name = kn_type_name,
    .device_fault = device_fault,
    .debugf = debugf,
};

static struct found {
	const char *name;
	bool looked;
	bool there; /* kn_plugin_load found the file */
	void *so;   /* kn_plugin_load's; NULL: none yet */
	const struct kn_ops *ops;
	struct sl_err err;
} plugins[] = {{.name = "cuda"}, {.name = "cuda-emulated"}};

enum { N_PLUGINS = sizeof plugins / sizeof plugins[0] };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Takes so. */
static const struct kn_ops *enter(void *so, const char *path, struct sl_err *err)
{
	kn_plugin_entry *entry;
	void *symbol = dlsym(so, KN_PLUGIN_ENTRY);
	if (symbol == NULL) {
		dlclose(so);
		sl_errf(err, SL_EINVAL, "%s is no backend: it has no %s", path, KN_PLUGIN_ENTRY);
		return NULL;
	}
	memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
	return entry(&host, err);
}

const struct kn_ops *kn_plugin_open(const char *path, struct sl_err *err)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (so != NULL)
		return enter(so, path, err);
	sl_errf(err, SL_EIO, "%s", dlerror());
	return NULL;
}

/* The path of a file beside the executable or in ../lib/sluice; false: in neither. */
static bool find(const char *name, char *path, size_t size)
{
	static const char *const places[] = {"", "../lib/sluice/"};
	char file[NAME_MAX];
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		snprintf(file, sizeof file, "%slibsluice-%s.so", places[i], name);
		if (beside_executable(file, path, size) && access(path, R_OK) == 0)
			return true;
	}
	return false;
}

/* With the lock held. */
static void look(struct found *f)
{
	char path[PATH_MAX];
	if (f->looked)
		return;
	f->looked = true;
	if (f->so != NULL)
		f->ops = enter(f->so, f->name, &f->err);
	else if (find(f->name, path, sizeof path))
		f->ops = kn_plugin_open(path, &f->err);
	else
		sl_errf(&f->err, SL_ENOTFOUND, "libsluice-%s.so was not built or installed", f->name);
}

static struct found *plugin_of(const char *name)
{
	for (int i = 0; i < N_PLUGINS; i++)
		if (strcmp(name, plugins[i].name) == 0)
			return &plugins[i];
	return NULL;
}

void kn_plugin_load(const char *name, bool wanted)
{
	char path[PATH_MAX];
	struct found *f = plugin_of(name);
	if (f == NULL)
		return;
	pthread_mutex_lock(&lock);
	f->there = f->there || find(name, path, sizeof path);
	/* A failure recurs, and is reported, when the backend is selected. */
	if (wanted && !f->looked && f->so == NULL && find(name, path, sizeof path))
		f->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	pthread_mutex_unlock(&lock);
}

const struct kn_ops *kn_plugin_select(const char *name, bool *is_plugin, struct sl_err *err)
{
	struct found *f = plugin_of(name);
	*is_plugin = f != NULL;
	if (f == NULL)
		return NULL;
	pthread_mutex_lock(&lock);
	look(f);
	pthread_mutex_unlock(&lock);
	if (f->ops == NULL)
		sl_errf(err, f->err.code, "backend \"%s\": %s", name, f->err.text);
	return f->ops;
}

/* With the lock held. */
static void describe(const struct found *f, char *line, size_t size)
{
	char path[PATH_MAX];
	if (f->ops != NULL)
		snprintf(line, size, "CUDA: a device was found");
	else if (f->looked)
		snprintf(line, size, "no CUDA: %s", f->err.text);
	else if (f->there || find(f->name, path, sizeof path))
		snprintf(line, size, "CUDA: built; engine.backend: cuda asks for a device");
	else
		snprintf(line, size, "no CUDA: libsluice-%s.so was not built or installed", f->name);
}

const char *kn_plugin_line(void)
{
	static _Thread_local char line[sizeof plugins[0].err.text + 64];
	pthread_mutex_lock(&lock);
	describe(&plugins[0], line, sizeof line);
	pthread_mutex_unlock(&lock);
	return line;
}
