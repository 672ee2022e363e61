/* SPDX-License-Identifier: Apache-2.0 */
#include "base/beside.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool beside_executable(const char *name, char *out, size_t size)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	int length = snprintf(out, size, "%.*s/%s", (int)(slash - path), path, name);
	return length > 0 && (size_t)length < size;
}
