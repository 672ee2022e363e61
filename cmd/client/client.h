/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the commands that are clients of a running server. `chat` talks in a terminal, `batch` sends a file of
 * requests, `doctor` examines a machine and the way to a server. This header has what they share: which server, which
 * key, and how they stop.
 *
 * Thread: main.
 */
#ifndef CMD_CLIENT_H
#define CMD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cmd/http/http_client.h"

int cmd_chat(int argc, char **argv);
int cmd_batch(int argc, char **argv);

/* The lines of --help that these options have in common. */
#define CLIENT_USAGE                                                                 \
	"  --url URL         the server ($SLUICE_URL, else http://localhost:8080)\n" \
	"  --key-file FILE   a file that holds the API key ($SLUICE_KEY)\n"          \
	"  --cacert FILE     authorities to trust for https\n"                       \
	"  --insecure        accept any certificate\n"

enum { CLIENT_KEY_MAX = 512 };

struct client_options {
	struct http_server server;
	char url[HTTP_URL_MAX + 1];
	char key[CLIENT_KEY_MAX + 1];
};

enum client_option_kind { CLIENT_TEXT, CLIENT_UINT, CLIENT_REAL, CLIENT_FLAG };

/* An option of one command. */
struct client_option {
	const char *name; /* "--model" */
	enum client_option_kind kind;
	void *to; /* const char **, uint32_t *, double *, bool * */
	double lo, hi;
};

/* Reads the shared options, those of the command, and at most one other argument into *word. Prints one line and
 * returns an exit status on failure; 0 to go on; --help prints usage and ends the process. */
int client_options_read(struct client_options *o, const struct client_option *own, size_t n_own, int argc, char **argv,
			const char *usage, const char **word);

/* 1 after SIGINT, SIGTERM or SIGHUP, once client_stop_on_signals was called; a second one ends the process. */
extern volatile int client_stopped;
void client_stop_on_signals(void);

#endif
