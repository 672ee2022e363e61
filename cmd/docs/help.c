/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/docs/docs.h"

enum { MOST = 1 << 20, CHUNK = 4096 };

/* ---- parsing ---- */

static void add_word(struct docs_words *w, const char *at, size_t n)
{
	if (n == 0 || n >= DOCS_WORD || w->n == DOCS_MAX_OPTIONS)
		return;
	for (size_t i = 0; i < w->n; i++)
		if (strlen(w->all[i]) == n && memcmp(w->all[i], at, n) == 0)
			return;
	memcpy(w->all[w->n], at, n);
	w->all[w->n++][n] = '\0';
}

/* The length of an option at this place of a text; 0: there is none. */
static size_t option_length(const char *text, const char *at)
{
	char before = at == text ? ' ' : at[-1];
	if (at[0] != '-' || strchr(" [(|`\n", before) == NULL)
		return 0;
	if (at[1] == '-' && islower((unsigned char)at[2]))
		return 2 + strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return islower((unsigned char)at[1]) && !isalnum((unsigned char)at[2]) && at[2] != '-' ? 2 : 0;
}

/* `usage: sluice NAME WORD|WORD …` */
static void parse_actions(const char *name, const char *line, struct docs_words *actions)
{
	static const char usage[] = "usage:";
	size_t n = strlen(name);
	if (strncmp(line, usage, sizeof usage - 1) == 0)
		line += sizeof usage - 1;
	line += strspn(line, " ");
	if (strncmp(line, "sluice ", 7) != 0 || strncmp(line + 7, name, n) != 0 || line[7 + n] != ' ')
		return;
	line += 7 + n + 1;
	size_t all = strcspn(line, " \n");
	if (strspn(line, "abcdefghijklmnopqrstuvwxyz-|") != all || line[0] == '-')
		return;
	for (const char *end = line + all; line < end;) {
		size_t len = strcspn(line, "| \n");
		add_word(actions, line, len);
		line += len + 1;
	}
}

void docs_help_parse(const char *name, const char *text, struct docs_words *options, struct docs_words *actions)
{
	options->n = actions->n = 0;
	for (const char *at = text; *at != '\0';) {
		size_t n = option_length(text, at);
		if (at == text || at[-1] == '\n')
			parse_actions(name, at, actions);
		add_word(options, at, n);
		at += n > 0 ? n : 1;
	}
	add_word(options, "--help", 6);
}

/* ---- running ---- */

static _Noreturn void run_help(const char *name, int out)
{
	static char program[] = "sluice", help[] = "--help";
	char word[DOCS_WORD];
	char *argv[] = {program, word, help, NULL};
	snprintf(word, sizeof word, "%s", name);
	if (dup2(out, STDOUT_FILENO) >= 0)
		execv("/proc/self/exe", argv);
	_exit(127);
}

static int read_all(int fd, struct sl_buf *out)
{
	uint8_t *at;
	for (;;) {
		int rc = buf_reserve(out, CHUNK, &at);
		if (rc != 0)
			return rc;
		ssize_t n = read(fd, at, CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return SL_EIO;
		buf_commit(out, (size_t)n);
		if (n == 0)
			return buf_append(out, "", 1);
	}
}

int docs_help_read(const char *name, struct docs_help *out, struct sl_err *err)
{
	int ends[2], status = -1;
	buf_init(&out->text, MOST);
	if (pipe(ends) != 0)
		return sl_errf(err, SL_EIO, "no pipe: %s", strerror(errno));
	pid_t pid = fork();
	if (pid == 0)
		run_help(name, ends[1]);
	close(ends[1]);
	int rc = pid < 0 ? SL_EIO : read_all(ends[0], &out->text);
	close(ends[0]);
	if (pid > 0 && waitpid(pid, &status, 0) != pid)
		status = -1;
	if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		rc = SL_EIO;
	if (rc != 0)
		return sl_errf(err, rc, "sluice %s --help failed", name);
	docs_help_parse(name, (const char *)buf_data(&out->text), &out->options, &out->actions);
	return 0;
}

void docs_help_free(struct docs_help *h) { buf_dispose(&h->text); }
