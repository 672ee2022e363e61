/* SPDX-License-Identifier: Apache-2.0
 *
 * In a container the path of /proc/self/cgroup may not exist below the mounted hierarchy, whose root is the container's
 * own group then: groups that are missing are skipped on the way up, and the root is read too.
 */
#include "engine/core/machine_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

enum { MAX_TEXT = 16 << 10, MAX_PATH = 4096, MAX_DEPTH = 64 };
enum { STATM_SIZE = 0, STATM_DATA = 5 }; /* places in /proc/self/statm, in pages */

/* ---- files ---- */

static bool read_text(const char *root, const char *path, char text[MAX_TEXT])
{
	return file_read_text(root, path, text, MAX_TEXT) > 0;
}

/* The number behind name at the beginning of a line. */
static bool number_of(const char *text, const char *name, uint64_t *out)
{
	size_t n = strlen(name);
	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, n) != 0)
			continue;
		const char *at = line + n + strspn(line + n, ": \t");
		if (at == line + n || *at < '0' || *at > '9')
			continue;
		*out = strtoull(at, NULL, 10);
		return true;
	}
	return false;
}

/* A file of one number; "max" is none. */
static bool read_number(const char *root, const char *folder, const char *name, uint64_t *out)
{
	char path[MAX_PATH], text[MAX_TEXT];
	if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path || !read_text(root, path, text) ||
	    text[0] < '0' || text[0] > '9')
		return false;
	*out = strtoull(text, NULL, 10);
	return true;
}

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void limit(struct machine_memory *m, uint64_t available, const char *by)
{
	if (available >= m->available)
		return;
	m->available = available;
	m->limited_by = by;
}

/* ---- control groups ---- */

static const struct group_files {
	const char *mount;
	const char *limits[2], *used, *events, *cached[2];
} versions[] = {
    {.mount = "/sys/fs/cgroup/memory",
     .limits = {"memory.limit_in_bytes", NULL},
     .used = "memory.usage_in_bytes",
     .cached = {"total_inactive_file", "total_active_file"}},
    {.mount = "/sys/fs/cgroup",
     .limits = {"memory.max", "memory.high"},
     .used = "memory.current",
     .events = "memory.events",
     .cached = {"inactive_file", "active_file"}},
};

/* Memory of files that a group's limit counts, although it can be taken back at any time. */
static uint64_t cached_in(const char *root, const char *folder, const struct group_files *f)
{
	char path[MAX_PATH], text[MAX_TEXT];
	uint64_t all = 0, one;
	if ((size_t)snprintf(path, sizeof path, "%s/memory.stat", folder) >= sizeof path ||
	    !read_text(root, path, text))
		return 0;
	for (int i = 0; i < 2; i++)
		if (number_of(text, f->cached[i], &one))
			all += one;
	return all;
}

static void read_events(const char *root, const char *folder, const char *name, struct machine_memory *m)
{
	static const char *const counted[] = {"high", "max", "oom"};
	char path[MAX_PATH], text[MAX_TEXT];
	uint64_t one;
	if (name == NULL || (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path ||
	    !read_text(root, path, text))
		return;
	for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
		if (number_of(text, counted[i], &one))
			m->events += one;
}

static void read_group(const char *root, const char *folder, const struct group_files *f, struct machine_memory *m)
{
	uint64_t used, most = UINT64_MAX, one;
	for (int i = 0; i < 2; i++)
		if (f->limits[i] != NULL && read_number(root, folder, f->limits[i], &one) && one < most)
			most = one;
	read_events(root, folder, f->events, m);
	if (most >= m->total || !read_number(root, folder, f->used, &used))
		return; /* version 1 writes "no limit" as a very large number */
	m->total = most;
	uint64_t room = minus(most, minus(used, cached_in(root, folder, f)));
	limit(m, room, "its control group");
}

static void read_groups_up(const char *root, char *path, const struct group_files *f, struct machine_memory *m)
{
	char folder[MAX_PATH];
	for (int i = 0; i < MAX_DEPTH; i++) {
		if ((size_t)snprintf(folder, sizeof folder, "%s%s", f->mount, path) < sizeof folder)
			read_group(root, folder, f, m);
		char *end = strrchr(path, '/');
		if (end == NULL)
			return;
		*end = '\0';
	}
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
		if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
			return true;
	return false;
}

/* Lines of /proc/self/cgroup: "number:controllers:path", version 2 without controllers. */
static void read_groups(const char *root, struct machine_memory *m)
{
	char text[MAX_TEXT], *rest = text, *line;
	if (!read_text(root, "/proc/self/cgroup", text))
		return;
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *controllers = strchr(line, ':'),
		     *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
		if (path == NULL || path[1] != '/' || strstr(path, "/..") != NULL)
			continue;
		*path++ = '\0';
		if (path[1] == '\0')
			path[0] = '\0'; /* the root */
		if (controllers[1] == '\0' || has_word(controllers + 1, "memory"))
			read_groups_up(root, path, &versions[controllers[1] == '\0'], m);
	}
}

/* ---- the machine and the process ---- */

static int read_machine(const char *root, struct machine_memory *m)
{
	char text[MAX_TEXT], mode[MAX_TEXT];
	uint64_t total, available, free_kib, cached, most, committed;
	if (!read_text(root, "/proc/meminfo", text) || !number_of(text, "MemTotal", &total))
		return SL_EIO;
	if (!number_of(text, "MemAvailable", &available)) { /* kernels before 3.14 */
		if (!number_of(text, "MemFree", &free_kib) || !number_of(text, "Cached", &cached))
			return SL_EIO;
		available = free_kib + cached;
	}
	m->total = total << 10;
	m->available = available << 10;
	m->limited_by = "the machine";
	if (read_text(root, "/proc/sys/vm/overcommit_memory", mode) && mode[0] == '2' &&
	    number_of(text, "CommitLimit", &most) && number_of(text, "Committed_AS", &committed))
		limit(m, minus(most, committed) << 10, "the commit limit");
	return 0;
}

/* The n-th of the numbers in a line, from 0. */
static bool nth_number(const char *text, int n, uint64_t *out)
{
	for (; n > 0; n--) {
		text += strcspn(text, " \n");
		text += strspn(text, " ");
	}
	*out = strtoull(text, NULL, 10);
	return *text >= '0' && *text <= '9';
}

static uint64_t soft_limit(int resource)
{
	struct rlimit r;
	return getrlimit((__rlimit_resource_t)resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? r.rlim_cur
												: UINT64_MAX;
}

static void read_limits(const char *root, const struct machine_limits *limits, struct machine_memory *m)
{
	struct machine_limits own;
	char text[MAX_TEXT];
	uint64_t size, data, page = (uint64_t)sysconf(_SC_PAGESIZE);
	if (limits == NULL) {
		own = (struct machine_limits){.address_space = soft_limit(RLIMIT_AS), .data = soft_limit(RLIMIT_DATA)};
		limits = &own;
	}
	if ((limits->address_space == UINT64_MAX && limits->data == UINT64_MAX) ||
	    !read_text(root, "/proc/self/statm", text) || !nth_number(text, STATM_SIZE, &size) ||
	    !nth_number(text, STATM_DATA, &data))
		return;
	limit(m, minus(limits->address_space, size * page), "its limit of address space");
	limit(m, minus(limits->data, data * page), "its limit of data");
}

static void read_stalls(const char *root, struct machine_memory *m)
{
	static const char name[] = "some avg10=";
	char text[MAX_TEXT];
	if (!read_text(root, "/proc/pressure/memory", text) || strncmp(text, name, sizeof name - 1) != 0)
		return;
	double percent = strtod(text + sizeof name - 1, NULL);
	m->stalled = percent > 0 && percent <= 100 ? (uint32_t)(percent * 10) : 0;
}

int machine_memory_read(const char *root, const struct machine_limits *limits, struct machine_memory *out)
{
	*out = (struct machine_memory){0};
	int rc = read_machine(root, out);
	if (rc != 0)
		return rc;
	read_groups(root, out);
	read_limits(root, limits, out);
	read_stalls(root, out);
	return 0;
}
