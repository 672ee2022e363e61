/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc: see proc(5). The supervisor's children are found through its thread's `children` file; a process is named by
 * its subcommand (sluice engine) or, a redis-server, by its program. Where a file is missing the metric keeps the value
 * 0.
 */
#include "gateway/observe/process_gauges.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "version.h"

enum { FILE_BYTES = 4096, PROCESSES = 4, MOST_CHILDREN = 64 };

#define SCALED(kind_, name_, labels_, help_, scale_)                                            \
	{                                                                                       \
		.kind = kind_, .name = name_, .labels = labels_, .help = help_, .scale = scale_ \
	}

static struct metric build = {.kind = METRIC_GAUGE,
			      .name = "sluice_build_info",
			      .labels = "version=\"" SLUICE_VERSION "\"",
			      .help = "1; the label names the version",
			      .value = 1};
METRICS(build);

/* As Prometheus' own client libraries name them. */
static struct metric cpu = SCALED(METRIC_COUNTER, "process_cpu_seconds_total", NULL,
				  "Processor time of the gateway, user and system", 1e-6),
		     started = SCALED(METRIC_GAUGE, "process_start_time_seconds", NULL,
				      "When the gateway started, since 1970", 1e-3);
GAUGE(resident, "process_resident_memory_bytes", "Resident memory of the gateway");
GAUGE(virtual, "process_virtual_memory_bytes", "Virtual memory of the gateway");
GAUGE(open_fds, "process_open_fds", "Open file descriptors of the gateway");
GAUGE(max_fds, "process_max_fds", "The limit of open file descriptors of the gateway");
METRICS(cpu);
METRICS(started);

static const char *const names[PROCESSES] = {"supervisor", "engine", "gateway", "redis"};
#define OF(name) "process=\"" name "\""
#define EACH(kind, name, help, scale)                                                                             \
	{                                                                                                         \
		SCALED(kind, name, OF("supervisor"), help, scale), SCALED(kind, name, OF("engine"), help, scale), \
		    SCALED(kind, name, OF("gateway"), help, scale), SCALED(kind, name, OF("redis"), help, scale)  \
	}
static struct metric all_cpu[PROCESSES] = EACH(METRIC_COUNTER, "sluice_process_cpu_seconds_total",
					       "Processor time of each process of the server, user and system", 1e-6),
		     all_resident[PROCESSES] = EACH(METRIC_GAUGE, "sluice_process_resident_memory_bytes",
						    "Resident memory of each process of the server", 1),
		     all_threads[PROCESSES] =
			 EACH(METRIC_GAUGE, "sluice_process_threads", "Threads of each process of the server", 1);
METRICS(all_cpu);
METRICS(all_resident);
METRICS(all_threads);

#define STALLED(resource, kind)                                                                                   \
	SCALED(METRIC_COUNTER, "sluice_pressure_seconds_total", "resource=\"" resource "\",stalled=\"" kind "\"", \
	       "Time in which some, or all, of the host's tasks waited for a resource (PSI)", 1e-6)
static struct metric pressure[] = {STALLED("cpu", "some"),   STALLED("cpu", "all"), STALLED("memory", "some"),
				   STALLED("memory", "all"), STALLED("io", "some"), STALLED("io", "all")};
METRICS(pressure);

/* ---- files of /proc ---- */

/* As text; false: it can't be read. */
static bool read_file(const char *path, char text[FILE_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, FILE_BYTES - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* A command line has zeros between its arguments. */
	for (ssize_t i = 0; i + 1 < n; i++)
		if (text[i] == '\0')
			text[i] = ' ';
	return n > 0;
}

struct process {
	uint64_t cpu_us, resident, virtual, threads, start_ticks;
};

/* Fields of /proc/PID/stat, numbered as in proc(5); the second may contain anything, even parentheses. */
static bool read_process(long pid, struct process *out)
{
	char path[64], text[FILE_BYTES];
	unsigned long long v[25] = {0};
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	if (!read_file(path, text))
		return false;
	char *p = strrchr(text, ')');
	if (p == NULL || p[1] != ' ')
		return false;
	p += 3; /* the third field is a letter */
	for (int field = 4; field < 25 && p != NULL; field++)
		v[field] = strtoull(p, &p, 10);
	uint64_t us = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	*out = (struct process){.cpu_us = (v[14] + v[15]) * us,
				.threads = v[20],
				.start_ticks = v[22],
				.virtual = v[23],
				.resident = v[24] * (uint64_t)sysconf(_SC_PAGESIZE)};
	return true;
}

static int64_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int64_t n = -3; /* `.`, `..` and its own */
	if (d == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void set_start(const struct process *p)
{
	char text[FILE_BYTES];
	const char *at = read_file("/proc/stat", text) ? strstr(text, "\nbtime ") : NULL;
	/* The line may be far down on a machine with many interrupts; uptime has what is needed, too. */
	if (at != NULL)
		metric_set(&started, (int64_t)(strtoull(at + 7, NULL, 10) * 1000 +
					       p->start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK)));
	else if (read_file("/proc/uptime", text))
		metric_set(&started, (clock_unix_s() - (int64_t)strtoull(text, NULL, 10)) * 1000 +
					 (int64_t)(p->start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK)));
}

static void set_own(void)
{
	struct process p;
	struct rlimit fds;
	if (!read_process((long)getpid(), &p))
		return;
	metric_set(&cpu, (int64_t)p.cpu_us);
	metric_set(&resident, (int64_t)p.resident);
	metric_set(&virtual, (int64_t)p.virtual);
	metric_set(&open_fds, count_fds());
	if (getrlimit(RLIMIT_NOFILE, &fds) == 0)
		metric_set(&max_fds, fds.rlim_cur == RLIM_INFINITY ? 0 : (int64_t)fds.rlim_cur);
	if (metric_get(&started) == 0)
		set_start(&p);
}

/* ---- the other processes ---- */

/* Of `names`; -1: another program. */
static int name_of(long pid)
{
	char path[64], text[FILE_BYTES];
	snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
	if (!read_file(path, text))
		return -1;
	if (strncmp(text, "redis-server", 12) == 0 || strstr(text, "/redis-server") != NULL)
		return 3;
	const char *second = strchr(text, ' ');
	for (int i = 1; second != NULL && i < 3; i++) {
		size_t n = strlen(names[i]);
		if (strncmp(second + 1, names[i], n) == 0 && (second[1 + n] == ' ' || second[1 + n] == '\0'))
			return i;
	}
	return -1;
}

/* Of two gateways, during an upgrade, the figures are added up. */
static void set_all(void)
{
	char path[64], text[FILE_BYTES];
	struct process sum[PROCESSES] = {0}, p;
	long parent = (long)getppid();
	if (read_process(parent, &p))
		sum[0] = p;
	snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", parent, parent);
	char *at = read_file(path, text) ? text : NULL, *end;
	for (int i = 0; at != NULL && i < MOST_CHILDREN; i++, at = end) {
		long pid = strtol(at, &end, 10);
		int k = pid > 0 ? name_of(pid) : -1;
		if (pid <= 0)
			break;
		if (k < 0 || !read_process(pid, &p))
			continue;
		sum[k].cpu_us += p.cpu_us;
		sum[k].resident += p.resident;
		sum[k].threads += p.threads;
	}
	for (int k = 0; k < PROCESSES; k++) {
		metric_set(&all_cpu[k], (int64_t)sum[k].cpu_us);
		metric_set(&all_resident[k], (int64_t)sum[k].resident);
		metric_set(&all_threads[k], (int64_t)sum[k].threads);
	}
}

/* `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, µs. */
static void set_pressure(void)
{
	static const char *const paths[] = {"/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"};
	static const char *const kinds[] = {"some ", "full "};
	char text[FILE_BYTES];
	for (int i = 0; i < 3; i++) {
		if (!read_file(paths[i], text))
			continue;
		for (int k = 0; k < 2; k++) {
			const char *line = strstr(text, kinds[k]), *total = line ? strstr(line, "total=") : NULL;
			if (total != NULL)
				metric_set(&pressure[2 * i + k], (int64_t)strtoull(total + 6, NULL, 10));
		}
	}
}

void process_gauges_set(void)
{
	set_own();
	set_all();
	set_pressure();
}
