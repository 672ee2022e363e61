/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/client/chat_input.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char QUOTES[] = "\"\"\"";

/* libedit's editline/readline.h */
static char *(*edit_line)(const char *prompt);
static int (*remember_line)(const char *line);

void chat_input_init(void)
{
	void *lib =
	    isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL) : NULL;
	setlocale(LC_CTYPE, "");
	if (lib == NULL)
		return;
	*(void **)&edit_line = dlsym(lib, "readline");
	*(void **)&remember_line = dlsym(lib, "add_history");
	if (edit_line == NULL || remember_line == NULL)
		edit_line = NULL;
}

/* A line without its end, to be freed; NULL: the input has ended. */
static char *read_line(const char *prompt)
{
	char *line = NULL;
	size_t room = 0;
	if (edit_line != NULL) {
		line = edit_line(prompt);
		if (line != NULL && line[0] != '\0')
			remember_line(line);
		return line;
	}
	if (isatty(STDIN_FILENO)) {
		fputs(prompt, stdout);
		fflush(stdout);
	}
	ssize_t n = getline(&line, &room, stdin);
	if (n < 0) {
		free(line);
		return NULL;
	}
	if (n > 0 && line[n - 1] == '\n')
		line[n - 1] = '\0';
	return line;
}

bool chat_input_read(const char *prompt, struct sl_buf *out)
{
	char *line = read_line(prompt);
	buf_clear(out, SIZE_MAX);
	if (line == NULL)
		return false;
	if (strncmp(line, QUOTES, 3) != 0) {
		int rc = buf_append_str(out, line);
		free(line);
		return rc == 0;
	}
	const char *from = line + 3;
	for (;;) {
		const char *end = strstr(from, QUOTES);
		int rc = buf_append(out, from, end != NULL ? (size_t)(end - from) : strlen(from));
		if (rc == 0 && end == NULL)
			rc = buf_append(out, "\n", 1);
		free(line);
		if (rc != 0 || end != NULL)
			return rc == 0;
		line = read_line("... ");
		if (line == NULL)
			return true;
		from = line;
	}
}
