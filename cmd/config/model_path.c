/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/config/model_path.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { NAME_MOST = 100 };

bool model_name_valid(const char *name)
{
	size_t n = strlen(name);
	return n > 0 && n <= NAME_MOST && name[0] != '.' && name[0] != '-' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool is_kind(const char *path, mode_t kind)
{
	struct stat st;
	return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

static bool is_gguf(const char *name)
{
	size_t n = strlen(name);
	return name[0] != '.' && n > 5 && strcasecmp(name + n - 5, ".gguf") == 0 &&
	       strcasestr(name, "mmproj") == NULL; /* an encoder of images beside its model */
}

/* The first GGUF file of a folder, alphabetically. */
static bool first_gguf(const char *folder, char first[NAME_MAX + 1])
{
	DIR *d = opendir(folder);
	first[0] = '\0';
	for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
		if (is_gguf(e->d_name) && (first[0] == '\0' || strcmp(e->d_name, first) < 0))
			snprintf(first, NAME_MAX + 1, "%s", e->d_name);
	if (d != NULL)
		closedir(d);
	return first[0] != '\0';
}

bool model_path_find(const char *folder, const char *name, char *out, size_t size)
{
	char path[PATH_MAX], inner[PATH_MAX + 16], file[NAME_MAX + 1];
	int n = -1;
	if (!model_name_valid(name) || (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
		return false;
	snprintf(inner, sizeof inner, "%s/config.json", path);
	if (is_kind(inner, S_IFREG) || is_kind(path, S_IFREG))
		n = snprintf(out, size, "%s", path);
	else if (first_gguf(path, file))
		n = snprintf(out, size, "%s/%s", path, file);
	else if (snprintf(inner, sizeof inner, "%s.gguf", path) > 0 && is_kind(inner, S_IFREG))
		n = snprintf(out, size, "%s", inner);
	return n > 0 && (size_t)n < size;
}
