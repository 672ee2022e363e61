/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/api/www.h"

#include <string.h>

const struct www_file *www_find(const char *name)
{
	for (const struct www_file *f = www_files; f->name != NULL; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}
