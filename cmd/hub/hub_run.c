/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice run MODEL`: pulls the model where it is missing, serves it on a free port of this machine with a
 * configuration and a state folder of its own, and chats with it (`sluice chat`). When the chat ends, the server ends
 * and its folder is removed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/config/model_path.h"
#include "cmd/hub/hub.h"
#include "cmd/hub/hub_options.h"
#include "cmd/hub/hub_served.h"

static const char usage[] =
    "usage: sluice run MODEL [--port N] [--token-file FILE] [OPTIONS]\n"
    "\n"
    "Serves a model on this machine only and chats with it in the terminal. MODEL is what `sluice pull` takes\n"
    "(pulled first where it is missing; asks on a terminal), the name of a pulled model, or a path.\n"
    "\n"
    "      --port N           the server's port (default: a free one)\n"
    "      --token-file FILE  as for `sluice pull`\n" HUB_COMMON_USAGE;

/* ---- the model ---- */

/* Yes, or no terminal to ask on. */
static bool may_pull(const char *label)
{
	char answer[16];
	if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1)
		return true;
	fprintf(stderr, "%s is not here. Pull it? [Y/n] ", label);
	if (fgets(answer, sizeof answer, stdin) == NULL)
		return false;
	return answer[0] == '\n' || answer[0] == 'y' || answer[0] == 'Y';
}

/* Of a source: where it lies, pulled first if need be. 0, or the exit status. */
static int find_source(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o, char *path,
		       size_t size)
{
	struct hub_order order = {.has_digest = false};
	struct sl_err err;
	char label[512];
	if (hub_source_parse(o->word, &order.source, &err) != 0 ||
	    hub_token_read(cfg, o->token_file, &order, &err) != 0)
		return hub_complain(CMD_EXIT_USAGE, "%s", err.text);
	if (model_path_find(f->path, order.source.name, path, size))
		return 0;
	hub_source_put(&order.source, label, sizeof label);
	if (!may_pull(label))
		return 1;
	snprintf(order.name, sizeof order.name, "%s", order.source.name);
	int rc = hub_pull(cfg, f, &order);
	explicit_bzero(order.token, sizeof order.token);
	if (rc == 0 && !model_path_find(f->path, order.name, path, size))
		rc = hub_complain(1, "%s/%s: it is not there", f->path, order.name);
	return rc;
}

/* A name in the folder. */
static int find_pulled(struct hub_folder *f, const char *name, char *path, size_t size)
{
	if (model_path_find(f->path, name, path, size))
		return 0;
	return hub_complain(1, "%.100s: neither a path nor a model in %s; `sluice pull hf:OWNER/NAME` gets one", name,
			    f->path);
}

/* path: a char[PATH_MAX]. */
static int find_in_folder(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o,
			  void *path)
{
	return hub_source_like(o->word) ? find_source(cfg, f, o, path, PATH_MAX)
					: find_pulled(f, o->word, path, PATH_MAX);
}

/* A path, a name in the folder, or a source. */
static int find_model(const struct hub_options *o, char path[PATH_MAX])
{
	char found[PATH_MAX];
	int rc = 0;
	if (!hub_source_like(o->word) && access(o->word, F_OK) == 0)
		snprintf(found, sizeof found, "%s", o->word);
	else
		rc = hub_with_folder(o, find_in_folder, found);
	if (rc == 0 && realpath(found, path) == NULL)
		rc = hub_complain(1, "%s: %s", found, strerror(errno));
	return rc;
}

/* ---- chatting ---- */

static volatile sig_atomic_t stopped;

static void on_stop(int sig) { stopped = sig; }
static void on_child(int sig) { (void)sig; } /* the chat or the server ended: only wakes */

/* Blocks all signals, so that one that arrives between a look and sigsuspend(before) is not missed. */
static void begin_waiting(sigset_t *before)
{
	const struct sigaction wake = {.sa_handler = on_child};
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, before);
	sigaction(SIGCHLD, &wake, NULL);
}

/* A signal that stops this process stops the chat. */
static int await(pid_t pid, const sigset_t *before)
{
	int status = 0;
	pid_t ended;
	while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
		if (stopped)
			kill(pid, SIGTERM);
		sigsuspend(before);
	}
	if (ended < 0)
		return hub_complain(1, "can't wait for the chat: %s", strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void become_chat(const struct hub_served *s, pid_t parent, const sigset_t *mask)
{
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(CMD_EXIT_UNAVAILABLE); /* it died before the line above */
	setenv("SLUICE_KEY", s->key, 1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execl("/proc/self/exe", "sluice", "chat", "--url", s->url, (char *)NULL);
	_exit(CMD_EXIT_UNAVAILABLE);
}

/* The terminal is the chat's: it handles Ctrl-C itself. A chat that was killed leaves the terminal as it was before. */
static int chat(const struct hub_served *s)
{
	struct termios modes;
	sigset_t before;
	bool has_modes = tcgetattr(STDIN_FILENO, &modes) == 0;
	pid_t self = getpid();
	void (*on_interrupt)(int) = signal(SIGINT, SIG_IGN);
	begin_waiting(&before);
	pid_t pid = hub_fork();
	if (pid == 0)
		become_chat(s, self, &before);
	int rc = pid > 0 ? await(pid, &before) : hub_complain(1, "can't start a process: %s", strerror(errno));
	signal(SIGINT, on_interrupt);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (has_modes)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
	return rc;
}

/* Without a terminal the model is served until a signal comes. */
static void serve_on(const struct hub_served *s)
{
	sigset_t before;
	begin_waiting(&before);
	printf("%s\nSLUICE_KEY=%s\n", s->url, s->key);
	fflush(stdout);
	while (!stopped && !hub_served_ended(s))
		sigsuspend(&before);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static int serve_and_chat(const char *path, const struct hub_options *o)
{
	struct hub_served s;
	struct sl_err err;
	int rc = 0;
	hub_catch_signals(on_stop);
	if (hub_served_start(&s, path, o->port, &err) != 0)
		return hub_complain(1, "%s", err.text);
	bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
	if (terminal)
		rc = chat(&s);
	if (!terminal || rc == CMD_EXIT_USAGE) {
		serve_on(&s);
		rc = 0;
	}
	hub_served_stop(&s);
	return rc;
}

int cmd_run(int argc, char **argv)
{
	struct hub_options o;
	char path[PATH_MAX];
	int rc = hub_options_parse(&o, argc, argv, usage);
	if (rc == 0 && o.word == NULL) {
		fputs(usage, stderr);
		rc = CMD_EXIT_USAGE;
	}
	if (rc == 0)
		rc = find_model(&o, path);
	return rc == 0 ? serve_and_chat(path, &o) : rc;
}
