/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: what a process may use of it. Limits of control groups (version 2) apply to a group and all above it.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cmd/confine/sandbox.h"
#include "cmd/doctor/doctor.h"
#include "engine/core/backend_choice.h"

enum {
	SPARE_FILES = 64, /* descriptors beside connections: store, engine, log, listeners */
	PATH_ROOM = 1024,
};

#define GIB (1024.0 * 1024 * 1024)

/* A small file's text, terminated; "": unreadable. */
static void read_text(const char *path, char *out, size_t room)
{
	FILE *f = fopen(path, "re");
	size_t n = f != NULL ? fread(out, 1, room - 1, f) : 0;
	out[n] = '\0';
	if (f != NULL)
		fclose(f);
}

static uint64_t meminfo(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at != NULL ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* Calls see(folder) for this process's group and each above it. */
static void each_group(void (*see)(void *ctx, const char *folder), void *ctx)
{
	char text[PATH_ROOM], folder[2 * PATH_ROOM];
	read_text("/proc/self/cgroup", text, sizeof text);
	const char *at = strstr(text, "0::/");
	if (at == NULL)
		return;
	snprintf(folder, sizeof folder, "/sys/fs/cgroup%.*s", (int)strcspn(at + 3, "\n"), at + 3);
	for (;;) {
		see(ctx, folder);
		char *slash = strrchr(folder, '/');
		if (slash == NULL || strcmp(folder, "/sys/fs/cgroup") == 0 || strlen(folder) < sizeof "/sys/fs/cgroup")
			return;
		*slash = '\0';
	}
}

static void see_memory(void *ctx, const char *folder)
{
	uint64_t *least = ctx;
	char path[3 * PATH_ROOM], text[64];
	snprintf(path, sizeof path, "%s/memory.max", folder);
	read_text(path, text, sizeof text);
	uint64_t bytes = strtoull(text, NULL, 10);
	if (bytes > 0 && bytes < *least)
		*least = bytes;
}

static void see_cpu(void *ctx, const char *folder)
{
	double *least = ctx, quota, period;
	char path[3 * PATH_ROOM], text[64], *end;
	snprintf(path, sizeof path, "%s/cpu.max", folder);
	read_text(path, text, sizeof text);
	quota = strtod(text, &end); /* "max" is no number */
	period = end != text ? strtod(end, NULL) : 0;
	if (period > 0 && quota / period < *least)
		*least = quota / period;
}

uint64_t machine_memory(uint64_t *available)
{
	char text[8192];
	read_text("/proc/meminfo", text, sizeof text);
	uint64_t all = meminfo(text, "MemTotal:"), limit = UINT64_MAX;
	*available = meminfo(text, "MemAvailable:");
	each_group(see_memory, &limit);
	all = limit < all ? limit : all;
	*available = *available < all ? *available : all;
	return all;
}

static void check_memory(struct report *r)
{
	uint64_t available, all = machine_memory(&available);
	cpu_set_t set;
	CPU_ZERO(&set);
	int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	double quota = n;
	each_group(see_cpu, &quota);
	if (quota < n)
		report_add(
		    r, REPORT_WARN, "machine",
		    "%d processors, limited to the time of %.1f by its control group; %.1f GiB of memory, %.1f GiB "
		    "available",
		    n, quota, (double)all / GIB, (double)available / GIB);
	else
		report_add(r, REPORT_OK, "machine", "%d processors, %.1f GiB of memory, %.1f GiB available", n,
			   (double)all / GIB, (double)available / GIB);
	if (quota < n)
		report_change(r, "engine.threads: %d", quota < 1 ? 1 : (int)quota);
}

static void check_files(struct report *r, const struct sluice_config *cfg)
{
	struct rlimit limit;
	const struct gw_config *g = &cfg->gateway;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	uint64_t threads = g->threads > 0 ? (uint64_t)g->threads : 1;
	uint64_t need = threads * (uint64_t)g->limits.connections + SPARE_FILES;
	if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < need) {
		report_add(r, REPORT_WARN, "files",
			   "%" PRIu64 " open files are allowed, gateway.limits.connections needs %" PRIu64,
			   (uint64_t)limit.rlim_cur, need);
		report_change(r, "LimitNOFILE=%" PRIu64 " in the service's unit, or ulimit -n %" PRIu64, need, need);
	} else {
		report_add(r, REPORT_OK, "files", "enough open files are allowed for %" PRIu64 " connections",
			   threads * (uint64_t)g->limits.connections);
	}
}

void check_machine(struct report *r, const struct sluice_config *cfg)
{
	char what[160];
	check_memory(r);
	if (cfg != NULL)
		check_files(r, cfg);
	sandbox_describe(what, sizeof what);
	report_add(r, strstr(what, "no ") != NULL ? REPORT_WARN : REPORT_OK, "confinement", "%s", what);
	if (strstr(what, "no ") != NULL)
		report_change(r, "a kernel with CONFIG_SECURITY_LANDLOCK and CONFIG_SECCOMP_FILTER");
}

void check_kernels(struct report *r, const struct sluice_config *cfg)
{
	struct eng_model_config models[PROTO_MAX_MODELS];
	struct eng_config engine;
	struct sl_err err = {0};
	sluice_engine_config(cfg, models, &engine);
	struct sl_err why;
	const struct kn_ops *ops = backend_choose(&engine, backend_device_plausible(), &why, &err);
	if (ops == NULL) {
		report_add(r, REPORT_FAIL, "kernels", "engine.backend %s: %s", engine.backend, err.text);
		report_change(r, "engine.backend: auto");
		return;
	}
	report_add(r, REPORT_OK, "kernels", "engine.backend %s: %s", engine.backend, ops->name);
	if (why.text[0] != '\0')
		report_add(r, REPORT_WARN, "kernels", "engine.backend auto does not use the CUDA device: %s", why.text);
}
