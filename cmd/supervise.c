/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's loop: one thread, one poll() over a signalfd and one pipe a child, with the next
 * deadline as its timeout. It wakes when something happens and at no other time.
 *
 * A child's states, moved only by child_set_state:
 *
 *   WAITING ──(due)──→ RUNNING ──(ready beat)──→ READY
 *      ↑                  │  ↑────(not ready)──────┘│
 *      └──(exit: backoff)─┴────────────────────────┘
 *   a foreign child is READY as soon as it runs
 *   on shutdown: WAITING → GONE; RUNNING, READY ──(SIGTERM)──→ ENDING ──(exit)──→ GONE
 *
 * - A restart is immediate the first time; then the wait doubles from backoff_min to backoff_max,
 *   with jitter, so that a crash loop costs little and two boxes do not restart in step. A child
 *   that was ready for healthy_ms starts afresh.
 * - A child silent for hang_ms is killed; its exit then takes the ordinary way. Pipes are read
 *   before silence is judged, so that a supervisor that was itself stopped blames nobody.
 * - Children have process groups of their own: a Ctrl-C in the terminal reaches the supervisor
 *   alone, and the order of ending (the last started first) holds. A second signal ends everything
 *   at once. Should the supervisor die by force, the kernel kills the children (PDEATHSIG).
 * - A child that exits with 78 before it was ever ready ends everything, quickly and in silence:
 *   the line it has printed is to stay the last one.
 */
#include "cmd/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

enum { EXIT_STATUS_CONFIG = 78 };

enum child_state { CHILD_WAITING, CHILD_RUNNING, CHILD_READY, CHILD_ENDING, CHILD_GONE };

struct child {
	const struct supervise_child *what;
	enum child_state state;
	pid_t pid;    /* 0: no process */
	int beat_fd;  /* the pipe's read end; -1 */
	bool was_ready; /* ever, over all restarts */
	bool has_beaten; /* since the last start */
	bool hung;    /* killed by us for silence */
	unsigned failures;  /* in a row */
	uint64_t since_ns;  /* of the current state */
	uint64_t beat_ns;   /* last sign of life */
	uint64_t due_ns;    /* WAITING: start then. ENDING: kill then */
};

struct supervisor {
	const struct supervise_config *cfg;
	struct child children[SUPERVISE_MAX_CHILDREN];
	int signal_fd;
	bool announced;
	bool ending;
	int status;
};

static void child_set_state(struct child *c, enum child_state to)
{
	static const uint8_t allowed[] = {
	    [CHILD_WAITING] = 1 << CHILD_RUNNING | 1 << CHILD_WAITING | 1 << CHILD_GONE,
	    [CHILD_RUNNING] = 1 << CHILD_READY | 1 << CHILD_WAITING | 1 << CHILD_ENDING | 1 << CHILD_GONE,
	    [CHILD_READY] = 1 << CHILD_RUNNING | 1 << CHILD_WAITING | 1 << CHILD_ENDING | 1 << CHILD_GONE,
	    [CHILD_ENDING] = 1 << CHILD_GONE,
	    [CHILD_GONE] = 0,
	};
	BUG_IF(!(allowed[c->state] & 1 << to), "supervise: %s: state %d → %d", c->what->name,
	       (int)c->state, (int)to);
	c->state = to;
	c->since_ns = clock_now_ns();
	if (to == CHILD_READY)
		c->was_ready = true;
}

/* ---- starting ---- */

/* In the forked child. Only calls that are safe there. */
static _Noreturn void child_exec(const struct supervise_config *cfg,
				 const struct supervise_child *what, int beat_fd, pid_t parent)
{
	const char *argv[SUPERVISE_MAX_ARGS + 3];
	char fd_text[16];
	size_t n = 0;
	while (what->argv[n] != NULL && n < SUPERVISE_MAX_ARGS) {
		argv[n] = what->argv[n];
		n++;
	}
	snprintf(fd_text, sizeof fd_text, "%d", beat_fd);
	if (what->foreign_exe == NULL) {
		argv[n++] = "--beat-fd";
		argv[n++] = fd_text;
	}
	argv[n] = NULL;

	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before prctl */
		_exit(1);
	if (what->foreign_exe == NULL)
		fcntl(beat_fd, F_SETFD, 0);
	else
		dup2(STDERR_FILENO, STDOUT_FILENO); /* what we print there is read by programs */
	execv(what->foreign_exe != NULL ? what->foreign_exe : cfg->exe, (char *const *)argv);
	log_error("%s: can't be executed: %s", what->name, strerror(errno));
	_exit(EXIT_STATUS_CONFIG);
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

static void child_wait(const struct supervise_config *cfg, struct child *c)
{
	uint64_t wait_ns = backoff_ns(cfg, c->failures);
	child_set_state(c, CHILD_WAITING);
	c->due_ns = c->since_ns + wait_ns;
	if (wait_ns > 0)
		log_info("%s is started again in %llu ms", c->what->name,
			 (unsigned long long)(wait_ns / NS_PER_MS));
}

static void child_start(const struct supervise_config *cfg, struct child *c)
{
	int fds[2] = {-1, -1};
	pid_t parent = getpid(), pid = -1;
	if (pipe2(fds, O_CLOEXEC) == 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0)
		pid = fork();
	if (pid == 0)
		child_exec(cfg, c->what, fds[1], parent);
	if (fds[1] >= 0)
		close(fds[1]);
	if (pid < 0) {
		log_error("%s: can't be started: %s", c->what->name, strerror(errno));
		if (fds[0] >= 0)
			close(fds[0]);
		c->failures++;
		child_wait(cfg, c);
		return;
	}
	setpgid(pid, pid); /* both sides, so that neither order loses */
	c->pid = pid;
	c->beat_fd = fds[0];
	c->has_beaten = c->hung = false;
	child_set_state(c, CHILD_RUNNING);
	c->beat_ns = c->since_ns;
	log_debug("%s (process %d) started", c->what->name, (int)pid);
	if (c->what->foreign_exe != NULL)
		child_set_state(c, CHILD_READY);
}

/* ---- watching ---- */

static void announce_when_ready(struct supervisor *s)
{
	for (int i = 0; i < s->cfg->n_children; i++) {
		const struct child *c = &s->children[i];
		/* What a foreign one is for must work without it, so nobody waits for it. */
		if (c->state != CHILD_READY && c->what->foreign_exe == NULL)
			return;
	}
	if (s->announced || s->ending)
		return;
	s->announced = true;
	if (s->cfg->on_ready != NULL)
		s->cfg->on_ready(s->cfg->ctx);
}

static void child_on_byte(struct supervisor *s, struct child *c, uint8_t byte)
{
	if (byte == BEAT_READY && c->state == CHILD_RUNNING) {
		log_info("%s is ready", c->what->name);
		child_set_state(c, CHILD_READY);
		announce_when_ready(s);
	} else if (byte == BEAT_NOT_READY && c->state == CHILD_READY) {
		log_warn("%s is no longer ready", c->what->name);
		child_set_state(c, CHILD_RUNNING);
	}
}

static void child_read_beats(struct supervisor *s, struct child *c)
{
	uint8_t bytes[256];
	ssize_t n;
	while (c->beat_fd >= 0 && (n = read(c->beat_fd, bytes, sizeof bytes)) != -1) {
		if (n == 0) { /* closed: it ends, or forgot itself and will be found silent */
			close(c->beat_fd);
			c->beat_fd = -1;
			break;
		}
		c->has_beaten = true;
		c->beat_ns = clock_now_ns();
		for (ssize_t i = 0; i < n; i++)
			child_on_byte(s, c, bytes[i]);
	}
}

static uint64_t child_silence_deadline(const struct supervise_config *cfg, const struct child *c)
{
	uint64_t patience = c->has_beaten ? cfg->hang_ms : cfg->first_beat_ms;
	return c->beat_ns + patience * NS_PER_MS;
}

/* When something must be done about c though nothing happens. */
static uint64_t child_deadline(const struct supervise_config *cfg, const struct child *c)
{
	switch (c->state) {
	case CHILD_WAITING: return c->due_ns;
	case CHILD_RUNNING:
	case CHILD_READY:
		return c->hung || c->what->foreign_exe != NULL ? UINT64_MAX : child_silence_deadline(cfg, c);
	case CHILD_ENDING: return c->hung ? UINT64_MAX : c->due_ns;
	case CHILD_GONE: break;
	}
	return UINT64_MAX;
}

static void child_kill(struct child *c)
{
	c->hung = true;
	kill(c->pid, SIGKILL);
}

static void child_on_deadline(struct supervisor *s, struct child *c)
{
	if (c->state == CHILD_WAITING) {
		child_start(s->cfg, c);
		return;
	}
	if (c->state == CHILD_ENDING)
		log_warn("%s (process %d) does not end: killed", c->what->name, (int)c->pid);
	else
		log_error("%s (process %d) has been silent for %llu ms: killed", c->what->name,
			  (int)c->pid,
			  (unsigned long long)((clock_now_ns() - c->beat_ns) / NS_PER_MS));
	child_kill(c);
}

/* ---- ending ---- */

static void kill_all(struct supervisor *s)
{
	for (int i = 0; i < s->cfg->n_children; i++) {
		if (s->children[i].pid > 0)
			child_kill(&s->children[i]);
	}
}

/* Ends the last child that is still there; called again whenever one has gone. */
static void end_next(struct supervisor *s)
{
	for (int i = s->cfg->n_children - 1; i >= 0; i--) {
		struct child *c = &s->children[i];
		if (c->state == CHILD_WAITING)
			child_set_state(c, CHILD_GONE);
		if (c->state == CHILD_GONE)
			continue;
		if (c->state != CHILD_ENDING) {
			child_set_state(c, CHILD_ENDING);
			c->due_ns = c->since_ns + s->cfg->drain_ms * NS_PER_MS;
			if (!c->hung)
				kill(c->pid, SIGTERM);
		}
		return;
	}
}

static void on_end_signal(struct supervisor *s, int number)
{
	if (s->ending) {
		log_warn("%s again: everything is killed", strsignal(number));
		kill_all(s);
		return;
	}
	s->ending = true;
	log_info("%s: ending", strsignal(number));
	end_next(s);
}

static void log_exit(const struct child *c, int status)
{
	if (WIFSIGNALED(status))
		log_error("%s (process %d) was ended by signal %d (%s)", c->what->name, (int)c->pid,
			  WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_error("%s (process %d) exited with status %d", c->what->name, (int)c->pid,
			  WEXITSTATUS(status));
}

static void child_on_exit(struct supervisor *s, struct child *c, int status)
{
	child_read_beats(s, c); /* what it said before it went */
	if (c->beat_fd >= 0)
		close(c->beat_fd);
	c->beat_fd = -1;
	bool healthy = c->state == CHILD_READY &&
		       clock_now_ns() - c->since_ns >= s->cfg->healthy_ms * NS_PER_MS;
	bool bad_config = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_STATUS_CONFIG;
	if (s->ending) {
		if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !c->hung)
			log_exit(c, status);
		c->pid = 0;
		child_set_state(c, CHILD_GONE);
		end_next(s);
		return;
	}
	if (bad_config && !c->was_ready) {
		c->pid = 0;
		child_set_state(c, CHILD_GONE);
		s->ending = true;
		s->status = EXIT_STATUS_CONFIG;
		kill_all(s);
		end_next(s);
		return;
	}
	if (!c->hung)
		log_exit(c, status);
	c->pid = 0;
	c->failures = healthy ? 1 : c->failures + 1;
	child_wait(s->cfg, c);
}

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < s->cfg->n_children; i++) {
			if (s->children[i].pid == pid)
				child_on_exit(s, &s->children[i], status);
		}
	}
}

static void on_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;
	while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		if (info.ssi_signo == SIGCHLD)
			reap(s);
		else
			on_end_signal(s, (int)info.ssi_signo);
	}
}

/* ---- the loop ---- */

static bool all_gone(const struct supervisor *s)
{
	for (int i = 0; i < s->cfg->n_children; i++) {
		if (s->children[i].state != CHILD_GONE)
			return false;
	}
	return true;
}

/* Milliseconds for poll(), rounded up so that it does not wake too early and spin. */
static int poll_timeout(const struct supervisor *s)
{
	uint64_t first = UINT64_MAX, now = clock_now_ns();
	for (int i = 0; i < s->cfg->n_children; i++) {
		uint64_t d = child_deadline(s->cfg, &s->children[i]);
		first = d < first ? d : first;
	}
	if (first == UINT64_MAX)
		return -1;
	if (first <= now)
		return 0;
	uint64_t ms = (first - now + NS_PER_MS - 1) / NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

static void turn(struct supervisor *s)
{
	struct pollfd fds[SUPERVISE_MAX_CHILDREN + 1];
	int n = s->cfg->n_children;
	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = s->children[i].beat_fd, .events = POLLIN};
	fds[n] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
	if (poll(fds, (nfds_t)n + 1, poll_timeout(s)) < 0 && errno != EINTR)
		BUG("supervise: poll: %s", strerror(errno));
	for (int i = 0; i < n; i++)
		child_read_beats(s, &s->children[i]);
	on_signals(s);
	for (int i = 0; i < n; i++) {
		struct child *c = &s->children[i];
		if (child_deadline(s->cfg, c) <= clock_now_ns())
			child_on_deadline(s, c);
	}
}

int supervise(const struct supervise_config *cfg)
{
	struct supervisor s = {.cfg = cfg, .signal_fd = -1};
	BUG_IF(cfg->n_children > SUPERVISE_MAX_CHILDREN, "supervise: %d children",
	       cfg->n_children);
	sigset_t watched, before;
	sigemptyset(&watched);
	sigaddset(&watched, SIGCHLD);
	sigaddset(&watched, SIGTERM);
	sigaddset(&watched, SIGINT);
	sigaddset(&watched, SIGHUP);
	sigprocmask(SIG_BLOCK, &watched, &before);
	s.signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.signal_fd < 0) {
		log_error("signalfd: %s", strerror(errno));
		return 1;
	}
	for (int i = 0; i < cfg->n_children; i++)
		s.children[i] = (struct child){.what = &cfg->children[i], .beat_fd = -1};
	for (int i = 0; i < cfg->n_children; i++)
		child_start(cfg, &s.children[i]);
	while (!all_gone(&s))
		turn(&s);
	close(s.signal_fd);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return s.status;
}
