/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench_folder.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_TMPDIR = 60, OPEN_AT_ONCE = 8 };

int bench_folder_make(char *dir, size_t size, struct sl_err *err)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(dir, size, "%s/sluice-bench-XXXXXX", tmp != NULL && strlen(tmp) < LONGEST_TMPDIR ? tmp : "/tmp");
	if (mkdtemp(dir) != NULL)
		return 0;
	dir[0] = '\0';
	return sl_errf(err, SL_EIO, "can't create a folder for the measurement");
}

int bench_folder_write(const char *path, const char *text, struct sl_err *err)
{
	FILE *f = fopen(path, "w");
	bool bad = f == NULL || fputs(text, f) < 0;
	if (f != NULL)
		bad |= fclose(f) != 0;
	return bad ? sl_errf(err, SL_EIO, "%s: can't be written", path) : 0;
}

static int forget(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about, (void)kind, (void)at;
	return remove(path);
}

void bench_folder_remove(const char *dir)
{
	if (dir[0] != '\0' && nftw(dir, forget, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS) != 0)
		fprintf(stderr, "sluice bench: can't remove %s\n", dir);
}
