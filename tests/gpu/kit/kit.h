/* SPDX-License-Identifier: Apache-2.0
 *
 * The kit: one static program that runs every test and measurement of a device and ends in one table. It needs nothing
 * of the machine but a driver: no shell, no tools, no library.
 *
 * A part is one process with a limit of its own, and all together have less than ten minutes. What fails, or takes too
 * long, is a row of the table, and the next part runs.
 */
#ifndef TESTS_GPU_KIT_H
#define TESTS_GPU_KIT_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_ARGS = 16 };

/* ---- part.c ---- */

struct part {
	const char *name;
	int limit_s;
	bool test;           /* it reports cmocka's tests in TAP; else figures */
	bool dry;            /* takes part in a dry run, too */
	bool optional;       /* a program of the machine's, which may be missing or fail */
	const char *program; /* of the kit's folder; of an optional one, found by PATH */
	const char *args[MOST_ARGS];
};

struct outcome {
	const struct part *part;
	double seconds;
	int status; /* of wait; -1: not started */
	bool timed_out;
	int passed, failed, skipped; /* of a test */
	char why[120];               /* "" if nothing is wrong */
};

struct kit {
	const char *folder, *backend, *out;
	const char *libraries; /* LD_LIBRARY_PATH of who called; NULL: none */
	int budget_s;
	bool tiny;
};

/* Runs a part: what it says goes to OUT/NAME.txt and OUT/NAME.err, its figures are noted. */
struct outcome part_run(const struct kit *k, const struct part *p, double left_s);
double now_s(void);

/* ---- figures.c ---- */

struct figure {
	char name[64];
	double seconds, bytes, operations;
};

/* A line `NAME SECONDS BYTES OPERATIONS`, or something else, which is ignored. */
void figure_note(const char *line);
/* NULL: there is none of that name. The last one of a name counts. */
const struct figure *figure_of(const char *name);

/* ---- table.c ---- */

/* Prints the table: what fell short first. The number of rows that failed or fell short. */
int table_print(const struct kit *k, const struct outcome *all, size_t n);

#endif
