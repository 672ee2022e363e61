/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/www.h"

#include <string.h>

const struct www_file *www_find(const char *path)
{
	for (size_t i = 0; i < n_www_files; i++) {
		if (strcmp(www_files[i].path, path) == 0)
			return &www_files[i];
	}
	return NULL;
}
