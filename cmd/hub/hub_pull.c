/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that the user started: reads secrets, starts the downloading process, and shows what it reports.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cmd/hub/hub_child.h"
#include "cmd/hub/hub_note.h"
#include "cmd/hub/hub_progress.h"

enum { CA_MOST = 4 << 20, TOKEN_MOST = 4096 };

static volatile sig_atomic_t interrupted;

/* ---- secrets ---- */

int hub_token_read(const struct sluice_config *cfg, const char *path, struct hub_order *o, struct sl_err *err)
{
	struct sl_buf text;
	struct sl_err why;
	o->token[0] = '\0';
	if (path == NULL)
		path = cfg->hub.token_file[0] != '\0' ? cfg->hub.token_file : getenv("HF_TOKEN_FILE");
	if (path == NULL || path[0] == '\0')
		return 0;
	int fd = file_open_private(path, &why), rc = fd < 0 ? fd : 0;
	buf_init(&text, 2 * TOKEN_MOST);
	if (fd >= 0) {
		rc = file_read_fd(fd, TOKEN_MOST, &text, &why);
		close(fd);
	}
	if (rc == 0) {
		const char *at = buf_cstr(&text);
		size_t n = at != NULL ? strcspn(at, "\r\n") : 0;
		if (n == 0 || n >= sizeof o->token || text_has_control(at, n) || memchr(at, ' ', n) != NULL)
			rc = sl_errf(&why, SL_EINVAL, "its first line is not a token");
		else
			snprintf(o->token, sizeof o->token, "%.*s", (int)n, at);
	}
	if (text.mem != NULL)
		explicit_bzero(text.mem, text.cap);
	buf_dispose(&text);
	return rc == 0 ? 0 : sl_errf(err, rc, "%.300s: %.150s", path, why.text);
}

static int read_authorities(const struct sluice_config *cfg, struct sl_buf *out, struct sl_err *err)
{
	struct sl_err why;
	buf_init(out, CA_MOST);
	if (cfg->hub.ca_file[0] == '\0')
		return 0;
	int rc = file_read(cfg->hub.ca_file, CA_MOST, out, &why);
	return rc == 0 ? 0 : sl_errf(err, rc, "hub.ca_file: %.300s: %.150s", cfg->hub.ca_file, why.text);
}

/* ---- watching ---- */

static void on_signal(int sig) { interrupted = sig; }

void hub_catch_signals(void (*handler)(int))
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction ours = {.sa_handler = handler};
	struct sigaction before;
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(signals[i], &ours, NULL);
}

pid_t hub_fork(void)
{
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t pid = fork();
	if (pid == 0)
		hub_catch_signals(SIG_DFL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

bool hub_wait_input(int fd, const volatile sig_atomic_t *stop)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	sigset_t all, before;
	int n = -1;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	while (!*stop && n < 0) {
		n = ppoll(&in, 1, NULL, &before);
		if (n < 0 && errno != EINTR)
			break;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return n > 0;
}

/* One whole note; false: there are no more. */
static bool read_note(int fd, struct hub_note *n)
{
	for (size_t at = 0; at < sizeof *n;) {
		if (!hub_wait_input(fd, &interrupted))
			return false;
		ssize_t got = read(fd, (char *)n + at, sizeof *n - at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += (size_t)got;
	}
	n->text[sizeof n->text - 1] = '\0';
	text_one_line(n->text, ' ');
	return true;
}

static int await(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int watch(int fd, struct hub_note *last)
{
	struct hub_progress progress;
	hub_progress_init(&progress);
	bool over = false;
	while (!over && read_note(fd, last)) {
		over = last->kind == HUB_NOTE_DONE || last->kind == HUB_NOTE_FAILED;
		if (!over)
			hub_progress_show(&progress, last, clock_now_ns());
	}
	hub_progress_clear(&progress);
	return over;
}

static int report(const struct hub_order *o, bool over, const struct hub_note *last, int status)
{
	char label[512];
	hub_source_put(&o->source, label, sizeof label);
	if (over && last->kind == HUB_NOTE_FAILED)
		return hub_complain(1, "%s", last->text);
	if (over)
		return 0;
	if (interrupted)
		return hub_complain(128 + interrupted, "%s: interrupted; the same command continues", label);
	if (WIFSIGNALED(status))
		return hub_complain(1, "%s: the downloading process was ended by signal %d", label, WTERMSIG(status));
	return hub_complain(1, "%s: the downloading process ended early", label);
}

int hub_pull(const struct sluice_config *cfg, struct hub_folder *folder, const struct hub_order *order)
{
	struct hub_note last = {.kind = HUB_NOTE_FAILED};
	struct sl_buf ca;
	struct sl_err err;
	int fd = -1, rc = read_authorities(cfg, &ca, &err);
	pid_t pid = -1;
	if (rc == 0) {
		hub_catch_signals(on_signal);
		pid = hub_child_start(cfg, folder, order, ca.len > 0 ? &ca : NULL, &fd, &err);
	}
	buf_dispose(&ca);
	if (pid < 0)
		return hub_complain(1, "%s", err.text);
	bool over = watch(fd, &last);
	if (!over)
		kill(pid, SIGTERM);
	close(fd);
	return report(order, over, &last, await(pid));
}
