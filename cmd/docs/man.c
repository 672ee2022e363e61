/* SPDX-License-Identifier: Apache-2.0
 *
 * sluice(1).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/docs/docs.h"

/* A backslash, and a dot or an apostrophe that begins a line, are roff's. A minus stays one that can be copied. */
void docs_roff(FILE *to, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool begins = i == 0 || text[i - 1] == '\n';
		if (begins && (text[i] == '.' || text[i] == '\''))
			fputs("\\&", to);
		if (text[i] == '\\')
			fputs("\\e", to);
		else if (text[i] == '-')
			fputs("\\-", to);
		else if (text[i] == '\'')
			fputs("\\(aq", to);
		else if (text[i] == '^')
			fputs("\\(ha", to);
		else if (text[i] == '~')
			fputs("\\(ti", to);
		else if (text[i] == '`')
			fputs("\\(ga", to);
		else
			fputc(text[i], to);
	}
}

void docs_title(FILE *to, const char *name, const char *section)
{
	const char *epoch = getenv("SOURCE_DATE_EPOCH");
	time_t when = epoch != NULL ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
	struct tm tm;
	char date[32] = "";
	if (gmtime_r(&when, &tm) != NULL)
		strftime(date, sizeof date, "%Y-%m-%d", &tm);
	fprintf(to, ".TH %s \"%s\" \"Sluice\" \"%s\"\n", name, date, section);
}

static void put(FILE *to, const char *text) { docs_roff(to, text, strlen(text)); }

static void put_verbatim(FILE *to, const char *text)
{
	size_t n = strlen(text);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	fputs(".nf\n", to);
	/* mandoc complains about blank lines, which .sp replaces. */
	for (const char *at = text; at < text + n;) {
		size_t len = strcspn(at, "\n");
		if (len == 0) {
			fputs(".sp", to);
		} else {
			docs_roff(to, at, len);
		}
		fputc('\n', to);
		at += len + 1;
	}
	fputs(".fi\n", to);
}

static void put_commands(FILE *to, const struct docs_command *commands, size_t n)
{
	fputs(".SH COMMANDS\n", to);
	for (size_t i = 0; i < n; i++) {
		fprintf(to, ".TP\n.B %s\n", commands[i].name);
		put(to, commands[i].what);
		fputs(".\n", to);
	}
}

static int put_helps(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err)
{
	fputs(".SH OPTIONS\nEach command prints this with\n.BR \\-\\-help .\n", to);
	for (size_t i = 0; i < n; i++) {
		struct docs_help h;
		int rc = docs_help_read(commands[i].name, &h, err);
		if (rc == 0) {
			fprintf(to, ".SS sluice %s\n", commands[i].name);
			put_verbatim(to, (const char *)buf_data(&h.text));
		}
		docs_help_free(&h);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static const char signals[] =
    ".SH SIGNALS\n"
    "To\n.BR \"sluice serve\" :\n"
    ".TP\n.B SIGHUP\nReloads the configuration and the certificates: completely or not at all.\n"
    "If a key of the engines or a model\\(aqs file has changed, new engines take over from the running ones.\n"
    ".TP\n.B SIGUSR2\nReplaces the gateway by a new process from the executable\\(aqs path.\n"
    ".TP\n.BR SIGTERM \", \" SIGINT\nDrains, then exits; a second one kills.\n";

static const char environment[] = ".SH ENVIRONMENT\n"
				  ".TP\n.BR LISTEN_FDS \", \" LISTEN_PID \", \" LISTEN_FDNAMES\n"
				  "Listening sockets for\n.BR \"sluice serve\" ,\n"
				  "as in\n.BR sd_listen_fds (3).\nA socket\\(aqs name is\n.BR http ,\n.B https\nor a "
				  "name of\n.BR gateway.listeners ;\n"
				  "a socket of another name serves the listener that has its address.\n"
				  ".TP\n.BR NOTIFY_SOCKET \", \" WATCHDOG_USEC \", \" WATCHDOG_PID\n"
				  "A service manager that\n.B sluice serve\nreports to, as in\n.BR sd_notify (3).\n"
				  "The watchdog is fed only while the engine and the gateway answer.\n";

static const char rest[] = ".SH EXIT STATUS\n"
			   ".TP\n.B 0\nSuccess.\n"
			   ".TP\n.B 1\nFailure.\n"
			   ".TP\n.B 64\nWrong usage.\n"
			   ".TP\n.B 69\nA program or a service that is needed is missing.\n"
			   ".TP\n.B 78\nThe configuration cannot work; a restart does not help.\n"
			   ".SH FILES\n"
			   ".TP\n.I /etc/sluice/sluice.yaml\nThe configuration; see\n.BR sluice.yaml (5).\n"
			   ".TP\n.I /var/lib/sluice\nThe state folder of an installed service; models in\n"
			   ".I /var/lib/sluice/models\nand\n.IR /usr/share/sluice/models .\n"
			   ".SH SEE ALSO\n.BR sluice.yaml (5)\n";

int docs_man(FILE *to, const struct docs_command *commands, size_t n, struct sl_err *err)
{
	docs_title(to, "SLUICE 1", "User Commands");
	fputs(".SH NAME\nsluice \\- gateway for large language models and their engine\n"
	      ".SH SYNOPSIS\n.B sluice\n.I COMMAND\n.RI [ options ]\n.br\n.B sluice\n.I COMMAND\n.B \\-\\-help\n.br\n"
	      ".B sluice \\-\\-version\n"
	      ".SH DESCRIPTION\n",
	      to);
	put(to, "Sluice serves language models from one machine: a gateway that streams answers over HTTP/2 and "
		"HTTP/1.1, and the inference engine behind it.\n");
	put_commands(to, commands, n);
	int rc = put_helps(to, commands, n, err);
	fputs(signals, to);
	fputs(environment, to);
	fputs(rest, to);
	return rc;
}
