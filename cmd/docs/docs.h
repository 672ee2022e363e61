/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: manual pages and completion of shells, made when the program is installed (`sluice docs WHAT`, which the
 * help does not list). Nothing is written twice: commands and options come from the commands' own --help, keys from the
 * schema, the meaning of keys from the comments of etc/sluice.yaml. Thread: main.
 *
 *   command   what main.c lists
 *   action    the second word of a command that has several: `keys create`
 *   option    --name or -n, as the help shows it
 */
#ifndef CMD_DOCS_H
#define CMD_DOCS_H

#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

struct docs_command {
	const char *name, *what;
};

/* argv[1]: man, man-config FILE, bash, zsh or fish; written to standard output. An exit status. */
int cmd_docs(int argc, char **argv, const struct docs_command *commands, size_t n);

/* ---- help.c ---- */

enum { DOCS_MAX_OPTIONS = 128, DOCS_MAX_ACTIONS = 48, DOCS_WORD = 48 };

struct docs_words {
	char all[DOCS_MAX_OPTIONS][DOCS_WORD];
	size_t n;
};

struct docs_help {
	struct sl_buf text; /* ends with 0 */
	struct docs_words options, actions;
};

/* Runs this program's `NAME --help`. 0, SL_EIO, SL_ELIMIT; on failure *err is one line. docs_help_free also then. */
int docs_help_read(const char *name, struct docs_help *out, struct sl_err *err);
void docs_help_free(struct docs_help *h);
/* The same from a text, which may be freed afterwards. */
void docs_help_parse(const char *name, const char *text, struct docs_words *options, struct docs_words *actions);

/* ---- the formats ---- */

/* The page's first line; the date is that of SOURCE_DATE_EPOCH, or today. */
void docs_title(FILE *to, const char *name, const char *section);
/* Writes text so that roff shows its characters as they are. */
void docs_roff(FILE *to, const char *text, size_t n);
int docs_man(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err);
/* path: etc/sluice.yaml. */
int docs_man_config(FILE *to, const char *path, struct sl_err *err);
int docs_bash(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err);
int docs_zsh(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err);
int docs_fish(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err);

#endif
