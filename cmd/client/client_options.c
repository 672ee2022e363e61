/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cmd/client/client.h"
#include "cmd/config/cmd.h"

volatile int client_stopped;

static void on_stop(int number)
{
	if (client_stopped) {
		signal(number, SIG_DFL);
		raise(number);
	}
	client_stopped = 1;
}

void client_stop_on_signals(void)
{
	const struct sigaction stop = {.sa_handler = on_stop};
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int complain(const char *command, const char *name, const char *what)
{
	fprintf(stderr, "sluice %s: %s%s%s\n", command, name, name[0] != '\0' ? ": " : "", what);
	return CMD_EXIT_USAGE;
}

/* One line of printable ASCII, with or without its line end. */
static int read_key(struct client_options *o, const char *command, const char *path)
{
	struct sl_buf text;
	struct sl_err why;
	if (file_read(path, CLIENT_KEY_MAX + 1, &text, &why) != 0) {
		buf_dispose(&text);
		return complain(command, path, why.text);
	}
	size_t n = text.len;
	const char *at = (const char *)buf_data(&text);
	while (n > 0 && (at[n - 1] == '\n' || at[n - 1] == '\r'))
		n--;
	bool is_key = n > 0 && n <= CLIENT_KEY_MAX;
	for (size_t i = 0; is_key && i < n; i++)
		is_key = at[i] > ' ' && at[i] <= '~';
	if (is_key)
		snprintf(o->key, sizeof o->key, "%.*s", (int)n, at);
	buf_dispose(&text);
	return is_key ? 0 : complain(command, path, "does not hold one API key");
}

static bool take(const struct client_option *own, const char *value)
{
	char *end;
	double x;
	if (own->kind == CLIENT_TEXT) {
		*(const char **)own->to = value;
		return true;
	}
	errno = 0;
	x = strtod(value, &end);
	if (errno != 0 || end == value || *end != '\0' || !(x >= own->lo && x <= own->hi))
		return false;
	if (own->kind == CLIENT_REAL) {
		*(double *)own->to = x;
		return true;
	}
	*(uint32_t *)own->to = (uint32_t)x;
	return x == (double)(uint32_t)x;
}

static int take_option(const struct client_option *options, size_t n, int argc, char **argv, int *at)
{
	const char *name = argv[*at];
	for (size_t i = 0; i < n; i++) {
		if (strcmp(options[i].name, name) != 0)
			continue;
		if (options[i].kind == CLIENT_FLAG) {
			*(bool *)options[i].to = true;
			return 0;
		}
		if (*at + 1 == argc)
			return complain(argv[0], name, "needs a value");
		if (!take(&options[i], argv[++*at]))
			return complain(argv[0], name, "invalid value");
		return 0;
	}
	return complain(argv[0], name, "unknown option");
}

int client_options_read(struct client_options *o, const struct client_option *own, size_t n_own, int argc, char **argv,
			const char *usage, const char **word)
{
	const char *url = getenv("SLUICE_URL"), *key = getenv("SLUICE_KEY"), *key_file = NULL;
	const char *ca_file = NULL;
	bool insecure = false;
	const struct client_option shared[] = {
	    {"--url", CLIENT_TEXT, &url, 0, 0},
	    {"--key-file", CLIENT_TEXT, &key_file, 0, 0},
	    {"--cacert", CLIENT_TEXT, &ca_file, 0, 0},
	    {"--insecure", CLIENT_FLAG, &insecure, 0, 0},
	};
	enum { N_SHARED = sizeof shared / sizeof *shared };
	for (int i = 1; i < argc; i++) {
		size_t k = 0;
		int rc;
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			exit(0);
		}
		if (argv[i][0] != '-' || argv[i][1] == '\0') {
			if (word == NULL || *word != NULL)
				return complain(argv[0], argv[i], "unexpected argument");
			*word = argv[i];
			continue;
		}
		while (k < N_SHARED && strcmp(shared[k].name, argv[i]) != 0)
			k++;
		rc = k < N_SHARED ? take_option(shared, N_SHARED, argc, argv, &i)
				  : take_option(own, n_own, argc, argv, &i);
		if (rc != 0)
			return rc;
	}
	if (url == NULL || url[0] == '\0')
		url = "http://localhost:8080";
	if ((size_t)snprintf(o->url, sizeof o->url, "%s", url) >= sizeof o->url)
		return complain(argv[0], "--url", "too long");
	if (o->url[0] != '\0' && o->url[strlen(o->url) - 1] == '/')
		o->url[strlen(o->url) - 1] = '\0';
	o->key[0] = '\0';
	if (key_file != NULL) {
		int rc = read_key(o, argv[0], key_file);
		if (rc != 0)
			return rc;
	} else if (key != NULL && (size_t)snprintf(o->key, sizeof o->key, "%s", key) >= sizeof o->key) {
		return complain(argv[0], "SLUICE_KEY", "too long");
	}
	o->server = (struct http_server){
	    .url = o->url, .key = o->key[0] != '\0' ? o->key : NULL, .ca_file = ca_file, .insecure = insecure};
	return 0;
}
