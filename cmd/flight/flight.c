/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is `sluice flight`: it prints a dump of the flight recorder (base/flight.h), one line an event, in the order
 * of time. It needs neither a configuration nor a server. Thread: main, which calls cmd_flight.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/flight.h"
#include "cmd/config/cmd.h"

enum { FILE_MOST = 256 << 20 };

static const char usage[] =
    "usage: sluice flight [--last SECONDS] FILE\n"
    "\n"
    "Prints a dump of the flight recorder, STATE/flight/PROCESS-N.flight, which a process writes on SIGUSR1\n"
    "(`sluice serve` forwards it to its processes) and when it fails. One line an event, oldest first: seconds before\n"
    "the dump, thread, kind, values.\n"
    "  --last SECONDS  only events of that time before the dump\n";

struct line {
	struct flight_event e;
	char thread[FLIGHT_NAME + 1];
};

struct lines {
	struct line *all;
	size_t n, room;
	bool no_memory;
};

static void on_event(void *ctx, const char *thread, const struct flight_event *e)
{
	struct lines *l = ctx;
	if (l->n == l->room) {
		size_t room = l->room > 0 ? 2 * l->room : 4096;
		struct line *more = sl_realloc_n(l->all, room, sizeof *more);
		l->no_memory = l->no_memory || more == NULL;
		if (more == NULL)
			return;
		l->all = more;
		l->room = room;
	}
	struct line *it = &l->all[l->n++];
	it->e = *e;
	snprintf(it->thread, sizeof it->thread, "%s", thread);
}

static int by_time(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	return (x->e.now_ns > y->e.now_ns) - (x->e.now_ns < y->e.now_ns);
}

/* A thread's name comes from the file. */
static void print_name(const char *name)
{
	for (; *name != '\0'; name++)
		putchar(*name > ' ' && *name < 0x7f ? *name : '?');
}

static void print_line(const struct flight_dump_head *h, const struct line *l)
{
	const struct flight_kind_info *k = &flight_kinds[l->e.kind];
	double at = (double)(int64_t)(l->e.now_ns - h->now_ns) / 1e9;
	printf("%12.6f  ", at);
	print_name(l->thread);
	printf("  %s", k->name);
	for (int i = 0; i < FLIGHT_VALUES && k->values[i] != NULL; i++)
		printf(" %s=%" PRIu64, k->values[i], l->e.values[i]);
	putchar('\n');
}

static void print_head(const struct flight_dump_head *h)
{
	char when[40] = "?";
	time_t s = (time_t)(h->unix_ns / 1000000000u);
	struct tm tm;
	if (gmtime_r(&s, &tm) != NULL)
		strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
	printf("# ");
	print_name(h->process);
	printf(", process %u, %s, %s (signal %u), %u threads\n", h->pid, when,
	       h->reason < 65 ? strsignal((int)h->reason) : "?", h->reason, h->n_rings);
}

static void print_lines(const struct flight_dump_head *h, struct lines *l, double last_s)
{
	if (l->n > 0)
		qsort(l->all, l->n, sizeof *l->all, by_time);
	for (size_t i = 0; i < l->n; i++)
		if (last_s <= 0 || (double)(int64_t)(h->now_ns - l->all[i].e.now_ns) / 1e9 <= last_s)
			print_line(h, &l->all[i]);
}

static int print_file(const char *path, double last_s)
{
	struct sl_buf bytes;
	struct sl_err err = {0};
	struct flight_dump_head head;
	struct lines l = {.n = 0};
	int rc = file_read(path, FILE_MOST, &bytes, &err);
	if (rc == 0) {
		rc = flight_read(buf_data(&bytes), bytes.len, &head, on_event, &l, &err);
		if (rc == 0 || l.n > 0) {
			print_head(&head);
			print_lines(&head, &l, last_s);
		}
		if (rc == 0 && l.no_memory)
			rc = sl_errf(&err, SL_ENOMEM, "no memory for all of its events");
	}
	buf_dispose(&bytes);
	sl_free(l.all);
	return rc == 0 ? 0 : cmd_complain("sluice flight", 1, "%s: %s", path, err.text);
}

int cmd_flight(int argc, char **argv)
{
	double last_s = 0;
	const char *path = NULL;
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		char *end = NULL;
		if (strcmp(argv[i], "--last") == 0 && i + 1 < argc) {
			last_s = strtod(argv[++i], &end);
			if (end == argv[i] || *end != '\0' || !(last_s > 0))
				return cmd_complain("sluice flight", CMD_EXIT_USAGE,
						    "--last wants seconds above 0, not '%s'", argv[i]);
		} else if (argv[i][0] == '-' || path != NULL) {
			path = NULL;
			break;
		} else {
			path = argv[i];
		}
	}
	if (path == NULL) {
		fputs(usage, stderr);
		return CMD_EXIT_USAGE;
	}
	return print_file(path, last_s);
}
