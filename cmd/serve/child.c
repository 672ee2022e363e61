/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes: fork and exec, the pipe and the socket back to the supervisor, backoff.
 *
 * - A restart is immediate the first time; then the wait doubles from backoff_min to backoff_max,
 *   with jitter, so that a crash loop costs little and two boxes do not restart in step.
 * - Children have process groups of their own: a Ctrl-C in the terminal reaches the supervisor
 *   alone. If the supervisor is killed, the kernel kills them (PDEATHSIG).
 * - A replaceable child starts with SIGHUP and SIGUSR2 blocked, every child of ours with SIGUSR1: early ones stay
 * pending
 *   instead of ending it.
 * - Sockets are sent before the fork, so they are there when the child first reads.
 */
#include "cmd/serve/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

enum { OWN_ARGS = 8, ANSWERS_PER_TURN = 16 };

void child_init(struct child *c, const struct supervise_child *what, enum child_state state)
{
	*c = (struct child){.what = what, .state = state, .lines = {-1, -1, -1}, .exe_fd = -1};
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_all(int fds[N_LINES])
{
	for (int i = 0; i < N_LINES; i++)
		close_fd(&fds[i]);
}

/* Closes what belongs to one process; the child's other state outlives it. */
static void close_lines(struct child *c)
{
	close_all(c->lines);
	fd_pass_in_dispose(&c->coming);
}

void child_dispose(struct child *c)
{
	BUG_IF(c->pid != 0, "supervise: %s is dropped with its process", c->what->name);
	close_lines(c);
	close_fd(&c->exe_fd);
	fd_pass_set_dispose(&c->sockets);
}

void child_set_state(struct child *c, enum child_state to)
{
	enum { LEAVES = 1 << CHILD_WAITING | 1 << CHILD_RETIRED | 1 << CHILD_ENDING | 1 << CHILD_GONE };
	static const uint8_t allowed[] = {
	    [CHILD_WAITING] = 1 << CHILD_RUNNING | 1 << CHILD_WAITING | 1 << CHILD_GONE,
	    [CHILD_RUNNING] = LEAVES | 1 << CHILD_READY,
	    [CHILD_READY] = LEAVES | 1 << CHILD_RUNNING,
	    [CHILD_RETIRED] = 1 << CHILD_ENDING | 1 << CHILD_GONE,
	    [CHILD_ENDING] = 1 << CHILD_GONE,
	    [CHILD_GONE] = 1 << CHILD_RUNNING,
	};
	BUG_IF(!(allowed[c->state] & 1 << to), "supervise: %s: state %d → %d", c->what->name, (int)c->state, (int)to);
	c->state = to;
	c->since_ns = clock_now_ns();
	if (to == CHILD_READY)
		c->was_ready = true;
}

/* ---- starting ---- */

struct start {
	const struct supervise_config *cfg;
	const char *name, *const *argv, *foreign_exe;
	int exe_fd;
	const int *lines; /* the child's ends */
	bool takeover, replaceable;
	int kept_fd;
	pid_t parent;
};

/* In the forked child: only calls that are safe after fork. */
static _Noreturn void child_exec(const struct start *s)
{
	const char *argv[SUPERVISE_MAX_ARGS + OWN_ARGS];
	const char *exe = s->foreign_exe != NULL ? s->foreign_exe : s->cfg->exe;
	static const char *const options[N_LINES] = {"--beat-fd", "--broker-fd", "--handover-fd"};
	char numbers[N_LINES][16], path[32];
	size_t n = 0;
	while (s->argv[n] != NULL && n < SUPERVISE_MAX_ARGS) {
		argv[n] = s->argv[n];
		n++;
	}
	for (int i = 0; i < N_LINES; i++) {
		if (s->lines[i] < 0 || s->foreign_exe != NULL)
			continue;
		snprintf(numbers[i], sizeof numbers[i], "%d", s->lines[i]);
		argv[n++] = options[i];
		argv[n++] = numbers[i];
		fcntl(s->lines[i], F_SETFD, 0);
	}
	if (s->takeover)
		argv[n++] = "--takeover";
	argv[n] = NULL;
	if (s->exe_fd >= 0) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", s->exe_fd);
		exe = path;
	}

	sigset_t blocked;
	sigemptyset(&blocked);
	if (s->foreign_exe == NULL)
		sigaddset(&blocked, SIGUSR1);
	if (s->replaceable) {
		sigaddset(&blocked, SIGHUP);
		sigaddset(&blocked, SIGUSR2);
	}
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	signal(SIGPIPE, SIG_DFL);
	setpgid(0, 0);
	if (s->foreign_exe != NULL && s->cfg->before_foreign != NULL && s->cfg->before_foreign(s->cfg->ctx) != 0) {
		log_error("%s: can't confine it: %s", s->name, strerror(errno));
		_exit(SUPERVISE_STATUS_CONFIG);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* after before_foreign: a change of the user resets it */
	if (getppid() != s->parent)       /* the parent died before prctl */
		_exit(1);
	if (s->foreign_exe != NULL)
		dup2(STDERR_FILENO, STDOUT_FILENO); /* programs parse our standard output */
	if (s->foreign_exe == NULL && s->cfg->kept_fd > 0)
		fcntl(s->cfg->kept_fd, F_SETFD, 0);
	if (s->kept_fd > 0)
		fcntl(s->kept_fd, F_SETFD, 0);
	execv(exe, (char *const *)argv);
	log_error("%s: can't execute it: %s", s->name, strerror(errno));
	_exit(SUPERVISE_STATUS_CONFIG);
}

/* Opens the child's lines: our ends and its ends. False with errno; what is open then stays. */
static bool open_lines(const struct supervise_config *cfg, const struct child *c, const struct fd_pass_set *given,
		       int ours[N_LINES], int its[N_LINES])
{
	bool wanted[N_LINES] = {[LINE_BROKER] = cfg->on_asked != NULL && c->what->foreign_exe == NULL,
				[LINE_HANDOVER] = c->what->replaceable};
	int pair[2];
	for (int i = 0; i < N_LINES; i++) {
		if (i != LINE_BEAT && !wanted[i])
			continue;
		if ((i == LINE_BEAT ? pipe2(pair, O_CLOEXEC) : fd_pass_pair(pair)) != 0)
			return false;
		ours[i] = pair[0];
		its[i] = pair[1];
	}
	if (wanted[LINE_HANDOVER] && given != NULL && given->n > 0 &&
	    fd_pass_send(ours[LINE_HANDOVER], given->fds, given->n) != 0)
		log_warn("%s: can't hand over the listening sockets", c->what->name);
	return fcntl(ours[LINE_BEAT], F_SETFL, O_NONBLOCK) == 0;
}

bool child_start(const struct supervise_config *cfg, struct child *c, const char *const *argv, bool takeover,
		 const struct fd_pass_set *given)
{
	int ours[N_LINES] = {-1, -1, -1}, its[N_LINES] = {-1, -1, -1};
	struct start s = {.cfg = cfg,
			  .name = c->what->name,
			  .argv = argv,
			  .foreign_exe = c->what->foreign_exe,
			  .kept_fd = c->what->kept_fd,
			  .exe_fd = c->exe_fd,
			  .lines = its,
			  .takeover = takeover,
			  .replaceable = c->what->replaceable,
			  .parent = getpid()};
	pid_t pid = open_lines(cfg, c, given, ours, its) ? fork() : -1;
	if (pid == 0)
		child_exec(&s);
	int e = errno;
	close_all(its);
	if (pid < 0) {
		log_error("%s: can't start it: %s", c->what->name, strerror(e));
		close_all(ours);
		return false;
	}
	setpgid(pid, pid); /* both sides, so that neither order loses */
	close_lines(c);
	c->pid = pid;
	memcpy(c->lines, ours, sizeof ours);
	c->has_beaten = c->hung = c->dumps = false;
	child_set_state(c, CHILD_RUNNING);
	c->beat_ns = c->since_ns;
	c->due_ns = UINT64_MAX;
	log_debug("%s (process %d) started", c->what->name, (int)pid);
	if (c->what->foreign_exe != NULL)
		child_set_state(c, CHILD_READY);
	return true;
}

static uint64_t random_below(uint64_t n)
{
	uint64_t r = 0;
	if (n == 0 || getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r)
		return 0;
	return r % n;
}

/* The wait before the next start: none, then min, 2 min, 4 min … max, each between half and all. */
static uint64_t backoff_ns(const struct supervise_config *cfg, unsigned failures)
{
	if (failures <= 1)
		return 0;
	uint64_t ms = cfg->backoff_min_ms;
	for (unsigned i = 2; i < failures && ms < cfg->backoff_max_ms; i++)
		ms *= 2;
	if (ms > cfg->backoff_max_ms)
		ms = cfg->backoff_max_ms;
	uint64_t ns = ms * NS_PER_MS;
	return ns - random_below(ns / 2 + 1);
}

void child_wait(const struct supervise_config *cfg, struct child *c)
{
	uint64_t wait_ns = backoff_ns(cfg, c->failures);
	child_set_state(c, CHILD_WAITING);
	c->due_ns = c->since_ns + wait_ns;
	if (wait_ns > 0)
		log_info("%s restarts in %llu ms", c->what->name, (unsigned long long)(wait_ns / NS_PER_MS));
}

/* ---- messages ---- */

void child_read_sockets(struct child *c)
{
	struct fd_pass_set set;
	while (c->lines[LINE_HANDOVER] >= 0) {
		int rc = fd_pass_receive(c->lines[LINE_HANDOVER], &c->coming, &set);
		if (rc == 0)
			return;
		if (rc < 0) {
			close_fd(&c->lines[LINE_HANDOVER]);
			return;
		}
		fd_pass_set_dispose(&c->sockets);
		c->sockets = set;
	}
}

void child_answer(const struct supervise_config *cfg, struct child *c)
{
	for (int i = 0; c->lines[LINE_BROKER] >= 0 && i < ANSWERS_PER_TURN; i++) {
		int rc = cfg->on_asked(cfg->ctx, c->what, c->lines[LINE_BROKER]);
		if (rc == 0)
			return;
		if (rc < 0)
			close_fd(&c->lines[LINE_BROKER]);
	}
}

void child_excuse(struct child *c, uint64_t ns)
{
	c->beat_ns += ns;
	if (c->state == CHILD_RUNNING && c->due_ns != UINT64_MAX)
		c->due_ns += ns;
}

void child_read_beats(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx)
{
	uint8_t bytes[256];
	ssize_t n;
	while (c->lines[LINE_BEAT] >= 0 && (n = read(c->lines[LINE_BEAT], bytes, sizeof bytes)) != -1) {
		if (n == 0) { /* closed: it is ending; otherwise the silence is noticed */
			close_fd(&c->lines[LINE_BEAT]);
			break;
		}
		c->has_beaten = true;
		c->dumps = false;
		c->beat_ns = clock_now_ns();
		for (ssize_t i = 0; i < n; i++)
			on_byte(ctx, c, bytes[i]);
	}
}

uint64_t child_deadline(const struct supervise_config *cfg, const struct child *c)
{
	if (c->state == CHILD_GONE || (c->hung && c->state != CHILD_WAITING))
		return UINT64_MAX;
	if (c->state == CHILD_WAITING || c->state == CHILD_ENDING)
		return c->due_ns;
	if (c->what->foreign_exe != NULL)
		return UINT64_MAX;
	uint64_t patience = (c->has_beaten ? cfg->hang_ms : cfg->first_beat_ms) + (c->dumps ? CHILD_DUMP_MS : 0);
	uint64_t silent = c->beat_ns + patience * NS_PER_MS;
	return silent < c->due_ns ? silent : c->due_ns;
}

/* ---- ending ---- */

bool child_alive(const struct child *c) { return c->pid > 0 && !c->hung; }

void child_kill(struct child *c)
{
	c->hung = true;
	kill(c->pid, SIGKILL);
}

void child_end(struct child *c, uint64_t within_ms)
{
	child_set_state(c, CHILD_ENDING);
	c->due_ns = c->since_ns + within_ms * NS_PER_MS;
	if (!c->hung)
		kill(c->pid, SIGTERM);
}

void child_reaped(struct child *c, void (*on_byte)(void *ctx, struct child *c, uint8_t byte), void *ctx)
{
	child_read_sockets(c);
	child_read_beats(c, on_byte, ctx);
	close_lines(c);
	c->pid = 0;
}

void child_log_exit(const struct child *c, const char *noun, pid_t pid, int status)
{
	if (WIFSIGNALED(status))
		log_error("%s%s (process %d) was ended by signal %d (%s)", noun, c->what->name, (int)pid,
			  WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_error("%s%s (process %d) exited with status %d", noun, c->what->name, (int)pid,
			  WEXITSTATUS(status));
}
