/* SPDX-License-Identifier: Apache-2.0
 *
 * probe FILE: whether the backend in that shared object has a device here. One line: what device, or why none; exit
 * status 0, or 77 where there is none.
 */
#include <stdio.h>

#include "kernels/plugin.h"

enum { NO_DEVICE = 77 };

int main(int argc, char **argv)
{
	struct kn_config cfg = {.max_rows = 1, .max_width = 64};
	struct kn_backend *b;
	struct sl_err err = {0};
	if (argc != 2)
		return 2;
	const struct kn_ops *o = kn_plugin_open(argv[1], &err);
	if (o == NULL || o->open(&cfg, &b, &err) != 0) {
		printf("no device: %s\n", err.text);
		return NO_DEVICE;
	}
	printf("%s\n", o->describe(b));
	o->close(b);
	return 0;
}
