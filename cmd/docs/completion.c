/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion for bash, zsh and fish: commands, actions, options; after --set the keys of the configuration; files
 * otherwise.
 */
#include <string.h>

#include "cmd/config/schema.h"
#include "cmd/docs/docs.h"

/* A text in single quotes. */
static void put_quoted(FILE *to, const char *text)
{
	fputc('\'', to);
	for (const char *c = text; *c != '\0'; c++) {
		if (*c == '\'')
			fputs("'\\''", to);
		else
			fputc(*c, to);
	}
	fputc('\'', to);
}

static void put_words(FILE *to, const struct docs_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		fprintf(to, "%s%s", i > 0 ? " " : "", w->all[i]);
}

static void put_keys(FILE *to)
{
	for (const struct conf_row *r = sluice_config_rows(); r->key != NULL; r++)
		fprintf(to, "%s%s=", r == sluice_config_rows() ? "" : " ", r->key);
}

static void put_names(FILE *to, const struct docs_command *commands, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(to, "%s ", commands[i].name);
}

/* Calls one for each command with its help. */
static int each(FILE *to, const struct docs_command *commands, size_t n,
		void (*one)(FILE *to, const struct docs_command *c, const struct docs_help *h), struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct docs_help h;
		rc = docs_help_read(commands[i].name, &h, err);
		if (rc == 0)
			one(to, &commands[i], &h);
		docs_help_free(&h);
	}
	return rc;
}

/* A command's branch: both variables' words, each between an opening and a closing. */
static void put_case(FILE *to, const struct docs_command *c, const struct docs_help *h, const char *opening,
		     const char *closing)
{
	fprintf(to, "\t%s) options=%s", c->name, opening);
	put_words(to, &h->options);
	fprintf(to, "%s actions=%s", closing, opening);
	put_words(to, &h->actions);
	fprintf(to, "%s ;;\n", closing);
}

static void bash_case(FILE *to, const struct docs_command *c, const struct docs_help *h)
{
	put_case(to, c, h, "'", "'");
}

int docs_bash(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err)
{
	fputs("# bash completion for sluice\n"
	      "_sluice() {\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options= actions=\n"
	      "\tCOMPREPLY=()\n"
	      "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W '",
	      to);
	put_names(to, commands, n);
	fputs("--help --version' -- \"$word\")\n"
	      "\t\treturn\n"
	      "\tfi\n"
	      "\tcase ${COMP_WORDS[1]} in\n",
	      to);
	int rc = each(to, commands, n, bash_case, err);
	fputs("\tesac\n"
	      "\tif [ \"$before\" = --set ]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W '",
	      to);
	put_keys(to);
	fputs("' -- \"$word\")\n"
	      "\t\ttype compopt >/dev/null 2>&1 && compopt -o nospace\n"
	      "\telif [[ $word == -* ]]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
	      "\telif [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$actions\" ]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$actions\" -- \"$word\")\n"
	      "\telse\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
	      "\t\ttype compopt >/dev/null 2>&1 && compopt -o filenames\n"
	      "\tfi\n"
	      "}\n"
	      "complete -F _sluice sluice\n",
	      to);
	return rc;
}

static void zsh_case(FILE *to, const struct docs_command *c, const struct docs_help *h)
{
	put_case(to, c, h, "(", ")");
}

int docs_zsh(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err)
{
	fputs("#compdef sluice\n"
	      "local -a commands options actions keys\n"
	      "commands=(\n",
	      to);
	for (size_t i = 0; i < n; i++) {
		char text[512];
		snprintf(text, sizeof text, "%s:%s", commands[i].name, commands[i].what);
		fputc('\t', to);
		put_quoted(to, text);
		fputc('\n', to);
	}
	fputs(")\n"
	      "if (( CURRENT == 2 )); then\n"
	      "\t_describe command commands\n"
	      "\tcompadd -- --help --version\n"
	      "\treturn\n"
	      "fi\n"
	      "case $words[2] in\n",
	      to);
	int rc = each(to, commands, n, zsh_case, err);
	fputs("esac\n"
	      "if [[ $words[CURRENT-1] == --set ]]; then\n"
	      "\tkeys=(",
	      to);
	put_keys(to);
	fputs(")\n"
	      "\tcompadd -S '' -a keys\n"
	      "elif [[ $PREFIX == -* ]]; then\n"
	      "\tcompadd -a options\n"
	      "elif (( CURRENT == 3 && $#actions > 0 )); then\n"
	      "\tcompadd -a actions\n"
	      "else\n"
	      "\t_files\n"
	      "fi\n",
	      to);
	return rc;
}

static void fish_lines(FILE *to, const struct docs_command *c, const struct docs_help *h)
{
	fprintf(to, "complete -c sluice -n __fish_use_subcommand -a %s -d ", c->name);
	put_quoted(to, c->what);
	fputc('\n', to);
	for (size_t i = 0; i < h->options.n; i++) {
		const char *o = h->options.all[i];
		fprintf(to, "complete -c sluice -n '__fish_seen_subcommand_from %s' %s %s\n", c->name,
			o[1] == '-' ? "-l" : "-s", o + (o[1] == '-' ? 2 : 1));
	}
	if (h->actions.n == 0)
		return;
	fprintf(
	    to,
	    "complete -c sluice -n 'test (count (commandline -opc)) -eq 2; and __fish_seen_subcommand_from %s' -a '",
	    c->name);
	put_words(to, &h->actions);
	fputs("'\n", to);
}

int docs_fish(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err)
{
	fputs("# fish completion for sluice\n"
	      "complete -c sluice -n __fish_use_subcommand -l help\n"
	      "complete -c sluice -n __fish_use_subcommand -l version\n",
	      to);
	int rc = each(to, commands, n, fish_lines, err);
	fputs("complete -c sluice -l set -x -a '", to);
	put_keys(to);
	fputs("'\n", to);
	return rc;
}
