/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench_folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_PLACE = 60, OPEN_AT_ONCE = 8 };

int bench_folder_make(char *dir, size_t size, struct sl_err *err)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(dir, size, "%s/sluice-bench-XXXXXX", tmp != NULL && strlen(tmp) < LONGEST_PLACE ? tmp : "/tmp");
	if (mkdtemp(dir) != NULL)
		return 0;
	dir[0] = '\0';
	return sl_errf(err, SL_EIO, "no folder for the measurement");
}

static int forget(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about, (void)kind, (void)at;
	return remove(path);
}

void bench_folder_remove(const char *dir)
{
	if (dir[0] != '\0' && nftw(dir, forget, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS) != 0)
		fprintf(stderr, "sluice bench: %s is left\n", dir);
}
