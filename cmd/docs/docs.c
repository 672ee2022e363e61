/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/docs/docs.h"

#include <errno.h>
#include <string.h>

#include "cmd/config/cmd.h"

static const struct {
	const char *name;
	int (*write)(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err);
} formats[] = {{"man", docs_man}, {"bash", docs_bash}, {"zsh", docs_zsh}, {"fish", docs_fish}};

static int finish(int rc, struct sl_err *err)
{
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = sl_errf(err, SL_EIO, "standard output: %s", strerror(errno));
	if (rc != 0)
		fprintf(stderr, "sluice docs: %s\n", err->text);
	return rc == 0 ? 0 : 1;
}

int cmd_docs(int argc, char **argv, const struct docs_command *commands, size_t n)
{
	struct sl_err err = {0};
	if (argc == 3 && strcmp(argv[1], "man-config") == 0)
		return finish(docs_man_config(stdout, argv[2], &err), &err);
	for (size_t i = 0; argc == 2 && i < sizeof formats / sizeof *formats; i++)
		if (strcmp(argv[1], formats[i].name) == 0)
			return finish(formats[i].write(stdout, commands, n, &err), &err);
	fprintf(stderr, "usage: sluice docs man|bash|zsh|fish\n       sluice docs man-config FILE\n");
	return CMD_EXIT_USAGE;
}
