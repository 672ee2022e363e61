/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's loop: one thread, one poll() over a signalfd and the lines of each child
 * (child.h), with the next deadline as its timeout, a quarter of hang_ms at most.
 *
 * - A child silent for hang_ms is killed and restarted. Pipes are read before silence is judged, and time for which
 *   the supervisor itself was suspended does not count. A child that was ready for healthy_ms has no failures.
 * - Shutdown ends the last started child first. A second signal kills all.
 * - A child that exits with 78 before it was ever ready ends everything without further log lines: the line it
 *   printed stays the last one.
 *
 * An upgrade replaces the process of one child. The newcomer starts beside it with the same sockets and has
 * takeover_ms to be ready. Only then does the old process drain; until then a newcomer that fails is discarded
 * without effect. The executable is opened once and executed through that descriptor: a later crash restarts the
 * tested file, not its replacement on disk. The supervisor and the other children are not replaced.
 *
 * A succession does the same for other children, one after the other, when a reload asks for it (succeed_next).
 */
#include "cmd/serve/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/serve/child.h"

enum {
	NEWCOMER = SUPERVISE_MAX_CHILDREN,
	RETIRED = NEWCOMER + 1,
	SLOTS = RETIRED + SUPERVISE_MAX_RETIRED,
	STARVED_FAILURES = 4,       /* counted at most while the disk is full: 4 backoff_min_ms */
	PAUSE_SHARE = 8,            /* of hang_ms: a shorter delay is not a suspend */
	SUCCESSOR_MS = 1800 * 1000, /* until it is ready: models of 100 GB load from a slow disk */
};

struct supervisor {
	const struct supervise_config *cfg;
	/* [cfg->n_children] and unused ones; the newcomer of an upgrade; replaced processes. Unused: GONE. */
	struct child at[SLOTS];
	int signal_fd;
	bool has_terminal; /* at its start */
	int target;        /* the child that the newcomer replaces */
	/* Children of a succession: those still to be replaced, those that were; whether it is taken back. */
	unsigned due, replaced;
	bool succeeds, reverts;
	bool announced;
	bool ending;
	bool reload_due;              /* requested during an upgrade */
	bool reload_asked, end_asked; /* by a child (on_ask) */
	int status;
	uint64_t looked_ns; /* when poll() last returned */
	uint64_t report_ns; /* when the manager is due a sign of life */
};

static struct child *replaceable(struct supervisor *s)
{
	for (int i = 0; i < s->cfg->n_children; i++) {
		if (s->cfg->children[i].replaceable)
			return &s->at[i];
	}
	return NULL;
}

static bool is_extra(const struct supervisor *s, const struct child *c) { return c >= &s->at[NEWCOMER]; }

static const char *noun(const struct supervisor *s, const struct child *c)
{
	return c == &s->at[NEWCOMER] ? "the new " : is_extra(s, c) ? "the replaced " : "";
}

static void wait_after_failure(struct supervisor *s, struct child *c)
{
	c->failures++;
	if (c->failures > STARVED_FAILURES && s->cfg->starved != NULL && s->cfg->starved(s->cfg->ctx))
		c->failures = STARVED_FAILURES;
	child_wait(s->cfg, c);
}

static void start_or_wait(struct supervisor *s, struct child *c)
{
	if (!child_start(s->cfg, c, c->what->argv, false, &c->sockets))
		wait_after_failure(s, c);
}

/* ---- the service manager ---- */

/* Does every child that beats have a process that was heard in time? */
static bool all_answer(const struct supervisor *s, uint64_t now)
{
	for (int i = 0; i < SLOTS; i++) {
		const struct child *c = &s->at[i];
		if (c->state == CHILD_GONE || c->what->foreign_exe != NULL)
			continue;
		uint64_t patience = c->has_beaten ? s->cfg->hang_ms : s->cfg->first_beat_ms;
		if (!child_alive(c) || now > c->beat_ns + patience * NS_PER_MS)
			return false;
	}
	return true;
}

static void put_status(const struct supervisor *s, char *out, size_t size)
{
	size_t n = 0;
	if (s->at[NEWCOMER].state != CHILD_GONE && !s->ending) {
		snprintf(out, size, "Upgrading: the new %s is process %d", s->at[NEWCOMER].what->name,
			 (int)s->at[NEWCOMER].pid);
		return;
	}
	for (int i = 0; i < SLOTS && n < size; i++) {
		const struct child *c = &s->at[i];
		bool waits = s->ending ? c->state != CHILD_GONE
				       : !is_extra(s, c) && c->state != CHILD_READY && c->state != CHILD_GONE &&
					     c->what->foreign_exe == NULL;
		if (waits)
			n += (size_t)snprintf(out + n, size - n, "%s%s",
					      n > 0       ? ", "
					      : s->ending ? "Stopping: "
							  : "Waiting for ",
					      c->what->name);
	}
	if (n == 0)
		snprintf(out, size, s->ending ? "Stopped" : "Serving");
}

static bool reports(const struct supervisor *s)
{
	const struct notify *n = s->cfg->notify;
	return n != NULL && n->fd >= 0 && (n->watchdog_ns > 0 || !s->announced);
}

/* Once a turn. A start may take as long as its children make progress. */
static void report(struct supervisor *s, uint64_t now)
{
	struct notify *n = s->cfg->notify;
	char text[sizeof n->status];
	if (n == NULL || n->fd < 0)
		return;
	put_status(s, text, sizeof text);
	notify_status(n, text);
	if (!reports(s) || now < s->report_ns)
		return;
	s->report_ns = now + n->every_ns;
	if (!all_answer(s, now))
		return;
	if (n->watchdog_ns > 0)
		notify_send(n, "WATCHDOG=1");
	if (!s->announced && !s->ending)
		notify_send(n, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(3 * n->every_ns / 1000));
}

static void report_end(const struct supervisor *s)
{
	uint64_t longest_ms = s->cfg->drain_ms * (uint64_t)(s->cfg->n_children + 1);
	if (s->cfg->notify != NULL)
		notify_send(s->cfg->notify, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
			    (unsigned long long)longest_ms * 1000);
}

/* ---- successions ---- */

static void reload(struct supervisor *s);

static struct child *free_slot(struct supervisor *s)
{
	for (int i = RETIRED; i < SLOTS; i++) {
		if (s->at[i].state == CHILD_GONE)
			return &s->at[i];
	}
	return NULL;
}

/* A replaced process whose work has not ended. */
static bool drains(const struct supervisor *s, const struct supervise_child *what)
{
	for (int i = RETIRED; i < SLOTS; i++)
		if (s->at[i].state != CHILD_GONE && s->at[i].what == what)
			return true;
	return false;
}

static int start_successor(struct supervisor *s, int i, struct sl_err *err)
{
	struct child *next = &s->at[NEWCOMER];
	const struct supervise_child *what = s->at[i].what;
	if (free_slot(s) == NULL || (!s->reverts && drains(s, what)))
		return sl_errf(err, SL_ELIMIT, "a replaced %s still ends its work", what->name);
	child_init(next, what, CHILD_GONE);
	if (!child_start(s->cfg, next, s->reverts ? what->argv : what->next_argv, true, NULL)) {
		child_dispose(next);
		return sl_errf(err, SL_EIO, "the new %s can't start", what->name);
	}
	s->target = i;
	next->due_ns = next->since_ns + SUCCESSOR_MS * NS_PER_MS;
	log_info("%s %s is process %d, which takes over once it is ready", s->reverts ? "the former" : "the new",
		 what->name, (int)next->pid);
	return 0;
}

static void end_succession(struct supervisor *s, bool done, const char *why)
{
	struct child *c = replaceable(s);
	bool reverted = s->reverts;
	s->succeeds = s->reverts = false;
	s->due = 0;
	if (reverted) {
		if (!done && !s->ending)
			log_error("not every process could be taken back to the old configuration: %s", why);
	} else {
		s->cfg->on_succeeded(s->cfg->ctx, done);
		if (!done && !s->ending)
			log_error("reload refused, the old configuration stays: %s", why);
		if (done && !s->ending && c != NULL && child_alive(c))
			kill(c->pid, SIGHUP);
	}
	if (!reverted && !done && s->replaced != 0 && !s->ending) {
		s->succeeds = s->reverts = true;
		s->due = s->replaced;
		s->replaced = 0;
	} else if (s->reload_due && !s->ending) {
		reload(s);
	}
}

static void succeed_next(struct supervisor *s)
{
	struct sl_err err;
	while (s->succeeds && s->at[NEWCOMER].state == CHILD_GONE && !s->ending) {
		if (s->due == 0)
			end_succession(s, true, "");
		else if (start_successor(s, __builtin_ctz(s->due), &err) != 0)
			end_succession(s, false, err.text);
	}
}

static void begin_succession(struct supervisor *s, unsigned children)
{
	s->due = children;
	s->replaced = 0;
	s->succeeds = true;
	succeed_next(s);
}

/* ---- reloads ---- */

static void reload(struct supervisor *s)
{
	struct sl_err err = {.text = "there is nothing to reload"};
	struct child *c = replaceable(s);
	if (s->at[NEWCOMER].state != CHILD_GONE) {
		/* The newcomer may have read the file before the change. */
		s->reload_due = true;
		log_info("the reload waits for the upgrade in progress");
		return;
	}
	s->reload_due = false;
	bool tells = s->cfg->notify != NULL && s->announced; /* earlier, READY=1 would be untrue */
	if (tells)
		notify_reloading(s->cfg->notify);
	int rc = s->cfg->on_reload != NULL ? s->cfg->on_reload(s->cfg->ctx, &err) : SL_EINVAL;
	if (rc > 0)
		begin_succession(s, (unsigned)rc);
	else if (rc == 0 && c != NULL && child_alive(c))
		kill(c->pid, SIGHUP);
	else if (rc != 0)
		log_error("reload refused, the old configuration stays: %s", err.text);
	if (tells)
		notify_send(s->cfg->notify, "READY=1");
}

/* The upgrade is over, either way. */
static void on_upgraded(struct supervisor *s, bool done)
{
	s->cfg->on_upgraded(s->cfg->ctx, done);
	if (s->reload_due && !s->ending)
		reload(s);
}

/* ---- upgrades ---- */

static int open_executable(const char *path, struct sl_err *err)
{
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	return fd;
}

static int begin_upgrade(struct supervisor *s, struct sl_err *err)
{
	struct child *now = replaceable(s), *next = &s->at[NEWCOMER];
	const char *exe, *const *argv;
	if (now == NULL || s->cfg->on_upgrade == NULL)
		return sl_errf(err, SL_EINVAL, "there is nothing to upgrade");
	if (next->state != CHILD_GONE)
		return sl_errf(err, SL_EINVAL, "another upgrade is in progress");
	if (free_slot(s) == NULL)
		return sl_errf(err, SL_ELIMIT, "%d replaced processes still drain", SUPERVISE_MAX_RETIRED);
	child_read_sockets(now);
	if (now->state != CHILD_READY)
		return sl_errf(err, SL_EINVAL, "%s is not ready", now->what->name);
	int rc = s->cfg->on_upgrade(s->cfg->ctx, &exe, &argv, err);
	if (rc != 0)
		return rc;
	child_init(next, now->what, CHILD_GONE);
	rc = next->exe_fd = open_executable(exe, err);
	if (rc >= 0 && !child_start(s->cfg, next, argv, true, &now->sockets))
		rc = sl_errf(err, SL_EIO, "the new process can't start");
	if (rc < 0) {
		child_dispose(next);
		s->cfg->on_upgraded(s->cfg->ctx, false);
		return rc;
	}
	s->target = (int)(now - s->at);
	next->due_ns = next->since_ns + s->cfg->takeover_ms * NS_PER_MS;
	log_info("upgrade: the new %s is process %d", now->what->name, (int)next->pid);
	return 0;
}

/* The newcomer is ready and replaces the old process, which drains. */
static void finish_upgrade(struct supervisor *s)
{
	struct child *now = &s->at[s->target], *next = &s->at[NEWCOMER], *old = free_slot(s);
	const struct supervise_child *what = now->what;
	*old = *now;
	*now = *next;
	child_init(next, what, CHILD_GONE);
	now->due_ns = UINT64_MAX;
	fd_pass_set_dispose(&old->sockets);
	if (old->pid > 0) {
		child_set_state(old, CHILD_RETIRED);
		old->due_ns = old->since_ns + s->cfg->retired_ms * NS_PER_MS;
		log_info("%s%s is process %d now, %d drains", s->succeeds ? "" : "upgrade: ", what->name, (int)now->pid,
			 (int)old->pid);
		kill(old->pid, SIGUSR2);
	} else { /* the old process had crashed and waited for its restart */
		child_dispose(old);
		child_set_state(old, CHILD_GONE);
	}
	if (!s->succeeds) {
		on_upgraded(s, true);
		return;
	}
	s->due &= ~(1u << s->target);
	s->replaced |= 1u << s->target;
	succeed_next(s);
}

static void on_newcomer_exit(struct supervisor *s, pid_t pid, int status)
{
	struct child *c = &s->at[NEWCOMER];
	bool expected = s->ending && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (!c->hung && !expected)
		child_log_exit(c, noun(s, c), pid, status);
	child_set_state(c, CHILD_GONE);
	child_dispose(c);
	if (!s->ending && !s->succeeds)
		log_error("upgrade failed: the old %s continues", c->what->name);
	if (!s->succeeds) {
		on_upgraded(s, false);
		return;
	}
	char why[96];
	snprintf(why, sizeof why, "the new %.40s did not get ready", s->at[s->target].what->name);
	end_succession(s, false, why);
	succeed_next(s);
}

/* ---- watching ---- */

static void announce_when_ready(struct supervisor *s)
{
	for (int i = 0; i < s->cfg->n_children; i++) {
		const struct child *c = &s->at[i];
		/* The service works without a foreign child (Redis), so readiness does not wait for it. */
		if (c->state != CHILD_READY && c->what->foreign_exe == NULL)
			return;
	}
	if (s->announced || s->ending)
		return;
	s->announced = true;
	if (s->cfg->on_ready != NULL)
		s->cfg->on_ready(s->cfg->ctx);
	if (s->cfg->notify != NULL)
		notify_send(s->cfg->notify, "READY=1");
}

/* The flight recorders of all processes of ours, and of those that drain. */
static void dump_flight(const struct supervisor *s)
{
	for (int i = 0; i < SLOTS; i++)
		if (s->at[i].pid > 0 && s->at[i].what->foreign_exe == NULL)
			kill(s->at[i].pid, SIGUSR1);
}

/* What an administrator has asked the gateway for. */
static void on_ask(struct supervisor *s, const struct child *c, uint8_t what)
{
	if (!c->what->replaceable || s->ending)
		return;
	if (what == BEAT_ASK_FLIGHT)
		dump_flight(s);
	else if (what == BEAT_ASK_RELOAD)
		s->reload_asked = true;
	else
		s->end_asked = true;
}

static void on_byte(void *ctx, struct child *c, uint8_t byte)
{
	struct supervisor *s = ctx;
	if (byte == BEAT_ASK_RELOAD || byte == BEAT_ASK_END || byte == BEAT_ASK_FLIGHT) {
		on_ask(s, c, byte);
		return;
	}
	if (byte == BEAT_READY && c->state == CHILD_RUNNING) {
		log_info("%s%s is ready", noun(s, c), c->what->name);
		child_set_state(c, CHILD_READY);
		if (!is_extra(s, c))
			announce_when_ready(s);
	} else if (byte == BEAT_NOT_READY && c->state == CHILD_READY) {
		log_warn("%s%s is no longer ready", noun(s, c), c->what->name);
		child_set_state(c, CHILD_RUNNING);
	}
}

static void on_deadline(struct supervisor *s, struct child *c)
{
	if (c->state == CHILD_WAITING) {
		start_or_wait(s, c);
		return;
	}
	uint64_t now = clock_now_ns();
	if (c->due_ns > now && !c->dumps) {
		/* A hung thread does not keep the main one from writing what all were doing. */
		c->dumps = true;
		kill(c->pid, SIGUSR1);
		return;
	}
	if (c->due_ns > now)
		log_error("%s%s (process %d) has been silent for %llu ms: killed", noun(s, c), c->what->name,
			  (int)c->pid, (unsigned long long)((now - c->beat_ns) / NS_PER_MS));
	else if (c == &s->at[NEWCOMER] && c->state == CHILD_RUNNING)
		log_error("%sthe new %s (process %d) is not ready after %llu ms: killed",
			  s->succeeds ? "" : "upgrade: ", c->what->name, (int)c->pid,
			  (unsigned long long)((now - c->since_ns) / NS_PER_MS));
	else
		log_warn("%s%s (process %d) does not end: killed", noun(s, c), c->what->name, (int)c->pid);
	child_kill(c);
}

/* ---- ending ---- */

static void kill_all(struct supervisor *s)
{
	for (int i = 0; i < SLOTS; i++) {
		if (s->at[i].pid > 0)
			child_kill(&s->at[i]);
	}
}

/* True once newcomer and replaced processes are gone. */
static bool end_extras(struct supervisor *s)
{
	bool all = true;
	for (int i = NEWCOMER; i < SLOTS; i++) {
		struct child *c = &s->at[i];
		if (c->state == CHILD_GONE)
			continue;
		all = false;
		if (c->state != CHILD_ENDING)
			child_end(c, s->cfg->drain_ms);
	}
	return all;
}

/* Ends the last remaining child; called again after each exit. Replaced processes end together with their
 * replacement, before children that were started earlier. */
static void end_next(struct supervisor *s)
{
	bool no_extras = end_extras(s);
	for (int i = s->cfg->n_children - 1; i >= 0; i--) {
		struct child *c = &s->at[i];
		if (c->state == CHILD_WAITING)
			child_set_state(c, CHILD_GONE);
		if (c->state == CHILD_GONE)
			continue;
		if (c->state != CHILD_ENDING && (no_extras || c->what->replaceable))
			child_end(c, s->cfg->drain_ms);
		return;
	}
}

static void begin_end(struct supervisor *s, const char *why)
{
	if (s->ending) {
		log_warn("%s again: killing everything", why);
		kill_all(s);
		return;
	}
	s->ending = true;
	log_info("%s: ending", why);
	report_end(s);
	end_next(s);
}

static void on_exit_of(struct supervisor *s, struct child *c, int status)
{
	bool healthy = c->state == CHILD_READY && clock_now_ns() - c->since_ns >= s->cfg->healthy_ms * NS_PER_MS;
	bool bad_config = WIFEXITED(status) && WEXITSTATUS(status) == SUPERVISE_STATUS_CONFIG;
	bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	pid_t pid = c->pid;
	child_reaped(c, on_byte, s);
	if (c == &s->at[NEWCOMER]) {
		on_newcomer_exit(s, pid, status);
	} else if (s->ending || is_extra(s, c)) {
		if (!well && !c->hung)
			child_log_exit(c, noun(s, c), pid, status);
		else if (is_extra(s, c))
			log_info("the replaced %s has ended", c->what->name);
		child_set_state(c, CHILD_GONE);
		child_dispose(c);
	} else if (bad_config && !c->was_ready) {
		child_set_state(c, CHILD_GONE);
		child_dispose(c);
		s->ending = true;
		s->status = SUPERVISE_STATUS_CONFIG;
		report_end(s);
		kill_all(s);
	} else {
		if (!c->hung)
			child_log_exit(c, noun(s, c), pid, status);
		c->failures = healthy ? 0 : c->failures;
		wait_after_failure(s, c);
		unsigned bit = 1u << (c - s->at); /* it comes back with its argv */
		if (s->succeeds && (s->replaced & bit) != 0) {
			s->replaced &= ~bit;
			s->due |= bit;
		}
	}
	if (s->ending)
		end_next(s);
}

/* ---- signals ---- */

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < SLOTS; i++) {
			if (s->at[i].pid == pid) {
				on_exit_of(s, &s->at[i], status);
				break;
			}
		}
	}
}

static bool terminal_is_there(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void on_signal(struct supervisor *s, int number)
{
	struct sl_err err = {.text = ""};
	if (number == SIGCHLD)
		reap(s);
	else if (number == SIGTERM || number == SIGINT || (number == SIGHUP && s->has_terminal && !terminal_is_there()))
		begin_end(s, strsignal(number));
	else if (s->ending)
		return;
	else if (number == SIGHUP)
		reload(s);
	else if (number == SIGUSR1)
		dump_flight(s);
	else if (begin_upgrade(s, &err) != 0)
		log_error("upgrade refused: %s", err.text);
}

/* Between two looks at the children, as for signals: both may end or start some. */
static void do_asked(struct supervisor *s)
{
	bool reloads = s->reload_asked && !s->ending, ends = s->end_asked && !s->ending;
	s->reload_asked = s->end_asked = false;
	if (reloads)
		reload(s);
	if (ends)
		begin_end(s, "asked by an administrator");
}

static void on_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;
	while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		on_signal(s, (int)info.ssi_signo);
}

/* ---- the loop ---- */

static bool all_gone(const struct supervisor *s)
{
	for (int i = 0; i < SLOTS; i++) {
		if (s->at[i].state != CHILD_GONE)
			return false;
	}
	return true;
}

/* Milliseconds for poll(), rounded up so that it does not wake too early and spin. */
static int poll_timeout(const struct supervisor *s)
{
	uint64_t first = UINT64_MAX, now = clock_now_ns();
	for (int i = 0; i < SLOTS; i++) {
		uint64_t d = child_deadline(s->cfg, &s->at[i]);
		first = d < first ? d : first;
	}
	if (reports(s) && s->report_ns < first)
		first = s->report_ns;
	if (first == UINT64_MAX)
		return -1;
	if (first <= now)
		return 0;
	/* Bounded, so that a suspend of the supervisor is distinguishable from a child's silence. */
	uint64_t ms = (first - now + NS_PER_MS - 1) / NS_PER_MS, most = s->cfg->hang_ms / 4 + 1;
	return (int)(ms < most ? ms : most < INT_MAX ? most : INT_MAX);
}

/* How long the supervisor was suspended since poll() last returned: apart from waiting, a turn takes hardly any time.
 * Short delays do not count: excusing them would postpone a deadline again and again. */
static uint64_t paused_for(const struct supervisor *s, uint64_t now, int wait_ms)
{
	uint64_t took_ns = now - s->looked_ns, waited_ns = (unsigned)(wait_ms > 0 ? wait_ms : 0) * NS_PER_MS;
	uint64_t late_ns = took_ns > waited_ns ? took_ns - waited_ns : 0;
	return late_ns > s->cfg->hang_ms * NS_PER_MS / PAUSE_SHARE ? late_ns : 0;
}

static void turn(struct supervisor *s)
{
	struct pollfd fds[N_LINES * SLOTS + 1] = {{.fd = s->signal_fd, .events = POLLIN}};
	for (int i = 0; i < N_LINES * SLOTS; i++)
		fds[1 + i] = (struct pollfd){.fd = s->at[i / N_LINES].lines[i % N_LINES], .events = POLLIN};
	int wait_ms = poll_timeout(s);
	if (poll(fds, sizeof fds / sizeof *fds, wait_ms) < 0 && errno != EINTR)
		BUG("supervise: poll: %s", strerror(errno));
	uint64_t now = clock_now_ns(), paused_ns = paused_for(s, now, wait_ms);
	s->looked_ns = now;
	for (int i = 0; i < SLOTS; i++) {
		child_excuse(&s->at[i], paused_ns);
		/* In this order: sockets that were published before READY are received with it. */
		child_read_beats(&s->at[i], on_byte, s);
		child_read_sockets(&s->at[i]);
		child_answer(s->cfg, &s->at[i]);
	}
	if (s->at[NEWCOMER].state == CHILD_READY && child_alive(&s->at[NEWCOMER]) && !s->ending)
		finish_upgrade(s);
	on_signals(s);
	do_asked(s);
	for (int i = 0; i < SLOTS; i++) {
		struct child *c = &s->at[i];
		if (child_deadline(s->cfg, c) <= now)
			on_deadline(s, c);
	}
	report(s, now);
}

/* The first sockets are the child's, as if an earlier process of it had published them. */
static void take_sockets(struct supervisor *s)
{
	struct child *c = replaceable(s);
	if (s->cfg->sockets == NULL || c == NULL)
		return;
	c->sockets = *s->cfg->sockets;
	s->cfg->sockets->n = 0;
}

int supervise(const struct supervise_config *cfg)
{
	static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
	struct supervisor s = {
	    .cfg = cfg, .signal_fd = -1, .has_terminal = terminal_is_there(), .looked_ns = clock_now_ns()};
	BUG_IF(cfg->n_children > SUPERVISE_MAX_CHILDREN, "supervise: %d children", cfg->n_children);
	sigset_t set, before;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
		sigaddset(&set, watched[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	s.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.signal_fd < 0) {
		log_error("signalfd: %s", strerror(errno));
		return 1;
	}
	for (int i = 0; i < SLOTS; i++) {
		bool used = i < cfg->n_children;
		child_init(&s.at[i], used ? &cfg->children[i] : NULL, used ? CHILD_WAITING : CHILD_GONE);
	}
	take_sockets(&s);
	for (int i = 0; i < cfg->n_children; i++)
		start_or_wait(&s, &s.at[i]);
	while (!all_gone(&s))
		turn(&s);
	for (int i = 0; i < SLOTS; i++)
		child_dispose(&s.at[i]);
	close(s.signal_fd);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return s.status;
}
