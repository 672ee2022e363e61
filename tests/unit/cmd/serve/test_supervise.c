/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor with real processes: small shell scripts as children. Each test runs supervise()
 * in a process of its own and looks at what the children wrote and how it ended.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cmd/serve/supervise.h"

/* What every test's children can use: `say WORD` writes a line to the test. The supervisor appends
 * `--beat-fd N`, so the script sees $1 = --beat-fd, $2 = N. A child that is to live on beats
 * itself. */
#define PRELUDE                                  \
	"fd=$2; say() { echo \"$1\" >&9; }; "    \
	"beat() { eval \"printf a >&$fd\"; }; "  \
	"ready() { eval \"printf r >&$fd\"; }; " \
	"live() { while :; do beat; read -t 0.02 -u 8 x; done; }; "

struct run {
	pid_t pid;
	int words;       /* what children and on_ready said */
	char rest[4096]; /* read but not yet taken */
	size_t n;
};

static void said_ready(void *ctx)
{
	ssize_t n = write(*(int *)ctx, "ALL\n", 4);
	(void)n;
}

/* Of the runs that are started next. */
static uint64_t backoff_max_ms = 100;
static bool (*starved)(void *ctx);

/* a is foreign when said so. */
static struct run start_three(bool foreign, const char *a, const char *b, uint64_t hang_ms, uint64_t drain_ms)
{
	int words[2], never[2], nine = 9;
	struct run r = {.n = 0};
	assert_int_equal(pipe2(words, O_CLOEXEC), 0);
	r.pid = fork();
	assert_true(r.pid >= 0);
	if (r.pid == 0) {
		/* 9: to the test. 8: something that is never readable, to wait on. */
		if (pipe(never) != 0 || dup2(words[1], 9) < 0 || fcntl(9, F_SETFD, 0) != 0 || dup2(never[0], 8) < 0)
			_exit(99);
		log_init("test", LOG_ERROR + 1);
		const char *argv_a[] = {"bash", "-c", a, "a", NULL};
		const char *argv_b[] = {"bash", "-c", b, "b", NULL};
		const struct supervise_child children[] = {
		    {.name = "a", .argv = argv_a, .foreign_exe = foreign ? "/bin/bash" : NULL},
		    {.name = "b", .argv = argv_b}};
		const struct supervise_config cfg = {.exe = "/bin/bash",
						     .children = children,
						     .n_children = b ? 2 : 1,
						     .hang_ms = hang_ms,
						     .first_beat_ms = 5000,
						     .backoff_min_ms = 40,
						     .backoff_max_ms = backoff_max_ms,
						     .healthy_ms = 10000,
						     .drain_ms = drain_ms,
						     .on_ready = said_ready,
						     .starved = starved,
						     .ctx = &nine};
		_exit(supervise(&cfg));
	}
	close(words[1]);
	r.words = words[0];
	return r;
}

static struct run start_with(const char *a, const char *b, uint64_t hang_ms, uint64_t drain_ms)
{
	return start_three(false, a, b, hang_ms, drain_ms);
}

static struct run start(const char *a, const char *b) { return start_with(a, b, 5000, 5000); }

/* The next line, or "" when none comes within a minute or all writers have gone. */
static const char *word(struct run *r)
{
	static char line[256];
	uint64_t deadline = clock_now_ns() + 60 * NS_PER_S;
	for (;;) {
		char *end = memchr(r->rest, '\n', r->n);
		if (end != NULL) {
			size_t n = (size_t)(end - r->rest);
			memcpy(line, r->rest, n);
			line[n] = '\0';
			r->n -= n + 1;
			memmove(r->rest, end + 1, r->n);
			return line;
		}
		struct pollfd p = {.fd = r->words, .events = POLLIN};
		if (clock_now_ns() >= deadline || poll(&p, 1, 60000) != 1)
			return "";
		ssize_t n = read(r->words, r->rest + r->n, sizeof r->rest - r->n);
		if (n <= 0)
			return "";
		r->n += (size_t)n;
	}
}

static int wait_for_end(struct run *r)
{
	int status;
	assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	close(r->words);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void ready_then_ends_in_order(void **unused)
{
	(void)unused;
	struct run r = start(PRELUDE "trap 'say a-end; exit 0' TERM; say up; ready; live",
			     PRELUDE "trap 'read -t 0.2 -u 8 x; say b-end; exit 0' TERM; say up; ready; live");
	assert_string_equal(word(&r), "up");
	assert_string_equal(word(&r), "up");
	assert_string_equal(word(&r), "ALL");
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_string_equal(word(&r), "b-end"); /* the last started ends first, wholly */
	assert_string_equal(word(&r), "a-end");
	assert_string_equal(word(&r), ""); /* nobody is left who could write */
	assert_int_equal(wait_for_end(&r), 0);
}

static void restarts_at_once_then_waits(void **unused)
{
	(void)unused;
	double at[5];
	/* Each says when it runs: however late that is read, the wait lies between it and the next. */
	struct run r = start(PRELUDE "say \"$EPOCHREALTIME\"; exit 3", NULL);
	for (int i = 0; i < 5; i++) {
		at[i] = strtod(word(&r), NULL);
		assert_true(at[i] > 0);
	}
	/* Waits before starts 3, 4, 5: at least half of 40, 80, 100 ms. */
	assert_true(at[2] - at[1] >= 0.019);
	assert_true(at[3] - at[2] >= 0.039);
	assert_true(at[4] - at[3] >= 0.049);
	assert_int_equal(kill(r.pid, SIGINT), 0);
	assert_int_equal(wait_for_end(&r), 0);
}

static bool no_room(void *ctx)
{
	(void)ctx;
	return true;
}

/* What fails for a full disk is tried again soon, however often it has failed: there may be room at any moment. */
static void a_full_disk_makes_no_wait_long(void **unused)
{
	(void)unused;
	backoff_max_ms = 3600000;
	starved = no_room;
	struct run r = start(PRELUDE "say try; exit 1", NULL);
	backoff_max_ms = 100;
	starved = NULL;
	for (int i = 0; i < 14; i++)
		assert_string_equal(word(&r), "try");
	kill(r.pid, SIGTERM);
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_killed_child_comes_back(void **unused)
{
	(void)unused;
	struct run r = start(PRELUDE "say $$; ready; live", NULL);
	pid_t first = atoi(word(&r));
	assert_true(first > 0);
	assert_string_equal(word(&r), "ALL");
	assert_int_equal(kill(first, SIGKILL), 0);
	pid_t second = atoi(word(&r));
	assert_true(second > 0 && second != first);
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_string_equal(word(&r), ""); /* "ALL" is said once */
	assert_int_equal(wait_for_end(&r), 0);
}

static void silent_for(uint64_t hang_ms)
{
	uint64_t t0 = clock_now_ns(); /* on a busy machine its first word is read late */
	struct run r = start_with(PRELUDE "say up; ready; beat; trap '' TERM; while :; do read -t 100 -u 8 x; done",
				  NULL, hang_ms, 5000);
	assert_string_equal(word(&r), "up");
	assert_string_equal(word(&r), "ALL");
	assert_string_equal(word(&r), "up");
	uint64_t took = clock_now_ns() - t0;
	assert_true(took >= hang_ms * NS_PER_MS * 3 / 4);
	assert_int_equal(kill(r.pid, SIGKILL), 0);
	const char *last;
	do
		last = word(&r);
	while (strcmp(last, "up") == 0); /* as often as it was killed before this process went on */
	assert_string_equal(last, "");   /* the kernel took the child with the supervisor */
	assert_int_equal(wait_for_end(&r), 1000 + SIGKILL);
}

static void a_silent_child_is_killed(void **unused)
{
	(void)unused;
	silent_for(200);
	/* Often: the deadline may pass just before or just after the supervisor looks. */
	for (int i = 0; i < 30; i++)
		silent_for(20);
}

/* All of it is stopped for longer than a child may be silent, as when a container or a machine is paused, and goes on.
 */
static void a_pause_of_everybody_is_nobodys_silence(void **unused)
{
	(void)unused;
	struct run r = start_with(PRELUDE "trap 'exit 0' TERM; say $$; ready; live", NULL, 1000, 5000);
	pid_t child = atoi(word(&r));
	assert_true(child > 0);
	assert_string_equal(word(&r), "ALL");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kill(r.pid, SIGSTOP), 0);
		assert_int_equal(kill(child, SIGSTOP), 0);
		nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 200 * NS_PER_MS}, NULL);
		assert_int_equal(kill(r.pid, SIGCONT), 0);
		nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL); /* it looks first */
		assert_int_equal(kill(child, SIGCONT), 0);
		nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
	}
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_string_equal(word(&r), ""); /* it was never started again */
	assert_int_equal(wait_for_end(&r), 0);
}

static void one_that_does_not_end_is_killed(void **unused)
{
	(void)unused;
	struct run r = start_with(PRELUDE "trap '' TERM; say up; ready; live", NULL, 5000, 150);
	assert_string_equal(word(&r), "up");
	assert_string_equal(word(&r), "ALL");
	uint64_t t0 = clock_now_ns();
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_string_equal(word(&r), "");
	assert_int_equal(wait_for_end(&r), 0);
	assert_true(clock_now_ns() - t0 >= 150 * NS_PER_MS);
}

static void a_second_signal_kills_at_once(void **unused)
{
	(void)unused;
	struct run r = start_with(PRELUDE "trap 'say got' TERM; say up; ready; live", NULL, 5000, 60000);
	assert_string_equal(word(&r), "up");
	assert_string_equal(word(&r), "ALL");
	assert_int_equal(kill(r.pid, SIGINT), 0);
	assert_string_equal(word(&r), "got");
	assert_int_equal(kill(r.pid, SIGINT), 0);
	assert_string_equal(word(&r), "");
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_wrong_configuration_ends_everything(void **unused)
{
	(void)unused;
	struct run r = start(PRELUDE "say other; live", PRELUDE "say wrong; exit 78");
	word(&r);
	assert_int_equal(wait_for_end(&r), 78);
}

static void status_78_after_ready_is_a_crash(void **unused)
{
	(void)unused;
	struct run r = start(PRELUDE "say up; ready; exit 78", NULL);
	for (int ups = 0; ups < 3;)
		ups += strcmp(word(&r), "up") == 0;
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_foreign_child_is_watched_by_its_exits_only(void **unused)
{
	(void)unused;
	/* It says how many arguments it got, and never beats; the other one is silent for too long only later
	 * than that one would have been killed. */
	struct run r = start_three(true,
				   "trap 'echo f-end >&9; exit 0' TERM; echo args=$# $$ >&9;"
				   "while :; do read -t 0.02 -u 8 x; done",
				   PRELUDE "trap 'say b-end; exit 0' TERM;"
					   "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do beat; read -t 0.2 -u 8 x; done;"
					   "say waited; ready; live",
				   2000, 5000);
	const char *first = word(&r);
	assert_int_equal(strncmp(first, "args=0 ", 7), 0);
	pid_t pid = atoi(first + 7);
	assert_string_equal(word(&r), "waited"); /* nobody has killed it, or "args" had come again */
	assert_string_equal(word(&r), "ALL");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(strncmp(word(&r), "args=0 ", 7), 0); /* comes back */
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_string_equal(word(&r), "b-end");
	assert_string_equal(word(&r), "f-end"); /* outlives who needs it */
	assert_int_equal(wait_for_end(&r), 0);
}

static void nobody_waits_for_a_foreign_child(void **unused)
{
	(void)unused;
	struct run r = start_three(true, "exit 1", PRELUDE "ready; live", 5000, 5000);
	assert_string_equal(word(&r), "ALL");
	assert_int_equal(kill(r.pid, SIGTERM), 0);
	assert_int_equal(wait_for_end(&r), 0);
}

/* ---- reloads and upgrades: one replaceable child, this program itself ---- */

/* `test child NAME HOW --beat-fd N --handover-fd N [--takeover]` says NAME-up (or NAME-takeover), then
 * NAME-hup, NAME-usr1, NAME-usr2 and NAME-term for signals; ends on the last one. HOW, letters: r it gets ready; s a
 * while later; u ends on SIGUSR2; x exits with 78 at once; k is killed at once; t does not mind SIGTERM; q falls
 * silent; h, f, e ask for a reload, the flight recorders, the end. */
static int child_main(int argc, char **argv)
{
	const char *name = argv[2], *how = argv[3];
	int beat = atoi(argv[5]);
	char line[64];
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	dprintf(9, "%s-%s\n", name, strcmp(argv[argc - 1], "--takeover") == 0 ? "takeover" : "up");
	if (strchr(how, 'x') != NULL)
		return 78;
	if (strchr(how, 'k') != NULL)
		raise(SIGKILL);
	if (strchr(how, 'r') != NULL && write(beat, "r", 1) != 1)
		return 1;
	for (const char *ask = "hfe"; *ask != '\0'; ask++) /* BEAT_ASK_… */
		if (strchr(how, *ask) != NULL && write(beat, ask, 1) != 1)
			return 1;
	for (int i = 0;; i++) {
		const struct timespec turn = {.tv_nsec = 20000000};
		if (i == 5 && strchr(how, 's') != NULL && write(beat, "r", 1) != 1)
			return 1;
		int number = sigtimedwait(&set, NULL, &turn);
		if ((strchr(how, 'q') == NULL || i == 0) && write(beat, "a", 1) != 1)
			return 1;
		if (number < 0)
			continue;
		snprintf(line, sizeof line, "%s-%s\n", name,
			 number == SIGHUP    ? "hup"
			 : number == SIGUSR1 ? "usr1"
			 : number == SIGUSR2 ? "usr2"
					     : "term");
		dprintf(9, "%s", line);
		if ((number == SIGTERM && strchr(how, 't') == NULL) || (number == SIGUSR2 && strchr(how, 'u') != NULL))
			return 0;
	}
}

struct plan {
	const char *second; /* how the one behaves that an upgrade starts; NULL: it is refused */
	const char *argv[5];
	bool right;    /* every second reload is */
	unsigned asks; /* instead: for successors of these */
};

static int try_reload(void *ctx, struct sl_err *err)
{
	struct plan *p = ctx;
	if (p->asks != 0) {
		dprintf(9, "ASKS\n");
		return (int)p->asks;
	}
	p->right = !p->right;
	dprintf(9, p->right ? "RIGHT\n" : "WRONG\n");
	return p->right ? 0 : sl_errf(err, SL_EINVAL, "wrong");
}

static int give_second(void *ctx, const char **exe, const char *const **argv, struct sl_err *err)
{
	struct plan *p = ctx;
	if (p->second == NULL) {
		dprintf(9, "REFUSED\n");
		return sl_errf(err, SL_EINVAL, "wrong");
	}
	p->argv[0] = "test_supervise", p->argv[1] = "child", p->argv[2] = "new", p->argv[3] = p->second;
	*exe = strcmp(p->second, "absent") == 0 ? "/nonexistent/x" : "/proc/self/exe";
	*argv = p->argv;
	return 0;
}

static void say_upgraded(void *ctx, bool done)
{
	(void)ctx;
	dprintf(9, done ? "DONE\n" : "NOT-DONE\n");
}

static void say_succeeded(void *ctx, bool done)
{
	(void)ctx;
	dprintf(9, done ? "SUCCEEDED\n" : "KEPT\n");
}

static void say_all(void *ctx)
{
	(void)ctx;
	dprintf(9, "ALL\n");
}

/* How long one that is replaced may take to end. */
static uint64_t retired_ms = 30000;
/* How the child behaves that is not replaceable. */
static const char *how_of_a = "r";
static uint64_t silence_ms = 5000;
/* How the successors of a and c behave that reloads ask for; NULL: they ask for none, and there is no c. */
static const char *after_a, *after_c;

static struct run start_replaceable(const char *first, const char *second)
{
	int words[2];
	struct run r = {.n = 0};
	assert_int_equal(pipe2(words, O_CLOEXEC), 0);
	r.pid = fork();
	assert_true(r.pid >= 0);
	if (r.pid == 0) {
		if (dup2(words[1], 9) < 0 || fcntl(9, F_SETFD, 0) != 0)
			_exit(99);
		setsid();                         /* no terminal: SIGHUP is a reload */
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a failed test */
		log_init("test", LOG_ERROR + 1);
		struct plan plan = {.second = second, .asks = after_a != NULL ? 3 : 0};
		bool gets_ready = second != NULL && strpbrk(second, "rs") != NULL;
		const char *argv_a[] = {"test_supervise", "child", "a", how_of_a, NULL};
		const char *argv_b[] = {"test_supervise", "child", "old", first, NULL};
		const char *argv_c[] = {"test_supervise", "child", "c", how_of_a, NULL};
		const char *next_a[] = {"test_supervise", "child", "a2", after_a, NULL};
		const char *next_c[] = {"test_supervise", "child", "c2", after_c, NULL};
		const struct supervise_child children[] = {{.name = "a", .argv = argv_a, .next_argv = next_a},
							   {.name = "c", .argv = argv_c, .next_argv = next_c},
							   {.name = "b", .argv = argv_b, .replaceable = true}};
		const struct supervise_child two[] = {children[0], children[2]};
		const struct supervise_config cfg = {
		    .exe = "/proc/self/exe",
		    .children = after_a != NULL ? children : two,
		    .n_children = after_a != NULL ? 3 : 2,
		    .hang_ms = silence_ms,
		    .first_beat_ms = 5000,
		    .backoff_min_ms = 40,
		    .backoff_max_ms = 100,
		    .healthy_ms = 10000,
		    .drain_ms = 5000,
		    .takeover_ms = gets_ready ? 30000 : 6000, /* the others end by it, but say something first */
		    .retired_ms = retired_ms,
		    .on_ready = say_all,
		    .on_reload = try_reload,
		    .on_upgrade = give_second,
		    .on_upgraded = say_upgraded,
		    .on_succeeded = say_succeeded,
		    .ctx = &plan};
		_exit(supervise(&cfg));
	}
	close(words[1]);
	r.words = words[0];
	return r;
}

/* The next words are these, in any order. */
static void expect(struct run *r, int n, const char *const *want)
{
	bool seen[8] = {false};
	for (int i = 0; i < n; i++) {
		const char *w = word(r);
		int k = 0;
		while (k < n && (seen[k] || strcmp(w, want[k]) != 0))
			k++;
		if (k == n)
			fail_msg("\"%s\" was said", w);
		seen[k] = true;
	}
}
#define EXPECT(r, ...) expect(r, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static void a_reload_is_told_unless_refused(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("r", NULL);
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "RIGHT", "old-hup"); /* and a hears nothing */
	kill(r.pid, SIGHUP);
	EXPECT(&r, "WRONG");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "REFUSED");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

static void flight_recorders_are_asked_of_all(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("r", NULL);
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR1);
	EXPECT(&r, "a-usr1", "old-usr1");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

/* What an administrator asks the gateway for. Not everything that a child asks is done. */
static void a_child_may_ask(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("rhf", NULL);
	EXPECT(&r, "a-up", "old-up", "ALL", "RIGHT", "old-hup", "a-usr1", "old-usr1");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
	r = start_replaceable("re", NULL);
	/* It may ask before the other one has begun, which then has nothing to say. */
	bool old_ended = false;
	for (const char *w = word(&r); *w != '\0'; w = word(&r))
		old_ended = old_ended || strcmp(w, "old-term") == 0;
	assert_true(old_ended);
	assert_int_equal(wait_for_end(&r), 0);
	/* One that is not replaceable may not. */
	how_of_a = "rhfe";
	r = start_replaceable("r", NULL);
	how_of_a = "r";
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_silent_one_may_say_what_it_did(void **unused)
{
	(void)unused;
	silence_ms = 200;
	struct run r = start_replaceable("rq", NULL);
	silence_ms = 5000;
	for (int i = 0; i < 2; i++) { /* it is killed afterwards: another one starts */
		const char *w = word(&r);
		while (strcmp(w, "old-usr1") != 0) {
			assert_string_not_equal(w, "");
			w = word(&r);
		}
	}
	kill(r.pid, SIGTERM);
	while (*word(&r) != '\0')
		continue;
	assert_int_equal(wait_for_end(&r), 0);
}

static void the_new_one_takes_the_place(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("r", "r");
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "new-takeover", "DONE", "old-usr2");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "RIGHT", "new-hup");
	/* Both are told to end, before what was started earlier. */
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term", "new-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

/* Children of a process that have not been waited for. */
static int n_children(pid_t of)
{
	DIR *d = opendir("/proc");
	int n = 0;
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		char path[280], stat[512];
		int parent;
		snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
		FILE *f = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		const char *name_end = fgets(stat, sizeof stat, f) != NULL ? strrchr(stat, ')') : NULL;
		n += name_end != NULL && sscanf(name_end + 1, " %*c %d", &parent) == 1 && parent == of;
		fclose(f);
	}
	closedir(d);
	return n;
}

static void a_replaced_one_has_so_long(void **unused)
{
	(void)unused;
	retired_ms = 1500;
	struct run r = start_replaceable("r", "ru");
	retired_ms = 30000;
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "new-takeover", "DONE", "old-usr2");
	/* Others are replaced meanwhile, as long as there is room; at the end of its time the first is
	 * killed, and there is room again. */
	for (int i = 0; i < 2; i++) {
		kill(r.pid, SIGUSR2);
		EXPECT(&r, "new-takeover", "DONE", "new-usr2");
	}
	for (int i = 0; i < 6000 && n_children(r.pid) > 2; i++)
		nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
	kill(r.pid, SIGTERM);
	EXPECT(&r, "new-term"); /* nothing of the old one */
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_new_one_that_fails_is_forgotten(void **unused)
{
	(void)unused;
	static const char *const failing[] = {"x", "k", "", "t"};
	for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
		struct run r = start_replaceable("r", failing[i]);
		EXPECT(&r, "a-up", "old-up", "ALL");
		for (int k = 0; k < 2; k++) {
			kill(r.pid, SIGUSR2);
			EXPECT(&r, "new-takeover");
			EXPECT(&r, "NOT-DONE");
		}
		kill(r.pid, SIGTERM);
		EXPECT(&r, "old-term"); /* it was never told that it is replaced */
		EXPECT(&r, "a-term");
		assert_int_equal(wait_for_end(&r), 0);
	}
	struct run r = start_replaceable("r", "absent");
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "NOT-DONE");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

static void a_reload_in_an_upgrade_comes_behind_it(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("r", "s");
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "new-takeover");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "DONE", "old-usr2", "RIGHT", "new-hup");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term", "new-term");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
	/* One that is given up: the old one reloads. And only once. */
	r = start_replaceable("r", "");
	EXPECT(&r, "a-up", "old-up", "ALL");
	for (int k = 0; k < 2; k++) {
		kill(r.pid, SIGUSR2);
		EXPECT(&r, "new-takeover");
		if (k == 0)
			kill(r.pid, SIGHUP);
		EXPECT(&r, "NOT-DONE");
		if (k == 0)
			EXPECT(&r, "RIGHT", "old-hup");
	}
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "new-takeover");
	kill(r.pid, SIGHUP);
	kill(r.pid, SIGTERM); /* nothing is read any more */
	EXPECT(&r, "old-term", "new-term", "NOT-DONE");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

static void an_end_in_an_upgrade_ends_both(void **unused)
{
	(void)unused;
	struct run r = start_replaceable("r", "");
	EXPECT(&r, "a-up", "old-up", "ALL");
	kill(r.pid, SIGUSR2);
	EXPECT(&r, "new-takeover");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term", "new-term", "NOT-DONE");
	EXPECT(&r, "a-term");
	assert_int_equal(wait_for_end(&r), 0);
}

/* One after the other; the former ones end when their work has, before what was started earlier. */
/* The reload that waited begins, refused as often as the former a has not ended yet. */
static void expect_next_succession(struct run *r)
{
	enum { ASKS = 3, ALL = 5 };
	static const char *const want[ALL] = {"c-usr2", "SUCCEEDED", "old-hup", "ASKS", "a2-takeover"};
	bool seen[ALL] = {false};
	for (int n = 0; n < ALL;) {
		const char *w = word(r);
		int k = 0;
		if (seen[ASKS] && strcmp(w, "KEPT") == 0) {
			kill(r->pid, SIGHUP);
			seen[ASKS] = false;
			n--;
			continue;
		}
		while (k < ALL && (seen[k] || strcmp(w, want[k]) != 0))
			k++;
		if (k == ALL)
			fail_msg("\"%s\" was said", w);
		seen[k] = true;
		n++;
	}
}

static void successors_take_over_in_a_reload(void **unused)
{
	(void)unused;
	how_of_a = "ru", after_a = "su", after_c = "r";
	struct run r = start_replaceable("r", NULL);
	how_of_a = "r", after_a = after_c = NULL;
	EXPECT(&r, "a-up", "c-up", "old-up", "ALL");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "ASKS");
	EXPECT(&r, "a2-takeover");
	kill(r.pid, SIGHUP);  /* waits */
	kill(r.pid, SIGUSR2); /* is refused */
	EXPECT(&r, "a-usr2", "c2-takeover");
	expect_next_succession(&r);
	kill(r.pid, SIGTERM);
	EXPECT(&r, "old-term", "a2-term", "KEPT");
	EXPECT(&r, "c2-term");
	EXPECT(&r, "a2-term");
	assert_int_equal(wait_for_end(&r), 0);
}

/* The second is not ready: the first is replaced again, by one of the old configuration. */
static void successors_are_taken_back(void **unused)
{
	(void)unused;
	static const char *const failing[] = {"x", "k"};
	for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
		how_of_a = "ru", after_a = "ru", after_c = failing[i];
		struct run r = start_replaceable("r", NULL);
		how_of_a = "r", after_a = after_c = NULL;
		EXPECT(&r, "a-up", "c-up", "old-up", "ALL");
		kill(r.pid, SIGHUP);
		EXPECT(&r, "ASKS");
		EXPECT(&r, "a2-takeover");
		EXPECT(&r, "a-usr2", "c2-takeover", "KEPT", "a-takeover", "a2-usr2");
		kill(r.pid, SIGTERM);
		EXPECT(&r, "old-term"); /* it was not reloaded */
		EXPECT(&r, "c-term");
		EXPECT(&r, "a-term");
		assert_int_equal(wait_for_end(&r), 0);
	}
}

/* One whose former process still works is not replaced again. */
static void a_former_one_that_works_keeps_the_next_away(void **unused)
{
	(void)unused;
	how_of_a = "r", after_a = "r", after_c = "r";
	struct run r = start_replaceable("r", NULL);
	after_a = after_c = NULL;
	EXPECT(&r, "a-up", "c-up", "old-up", "ALL");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "ASKS", "a2-takeover", "a-usr2", "c2-takeover", "c-usr2", "SUCCEEDED", "old-hup");
	kill(r.pid, SIGHUP);
	EXPECT(&r, "ASKS");
	EXPECT(&r, "KEPT");
	kill(r.pid, SIGTERM);
	EXPECT(&r, "a-term", "c-term", "old-term");
	EXPECT(&r, "c2-term");
	EXPECT(&r, "a2-term");
	assert_int_equal(wait_for_end(&r), 0);
}

int main(int argc, char **argv)
{
	if (argc > 4 && strcmp(argv[1], "child") == 0)
		return child_main(argc, argv);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ready_then_ends_in_order),
	    cmocka_unit_test(restarts_at_once_then_waits),
	    cmocka_unit_test(a_full_disk_makes_no_wait_long),
	    cmocka_unit_test(a_killed_child_comes_back),
	    cmocka_unit_test(a_silent_child_is_killed),
	    cmocka_unit_test(a_pause_of_everybody_is_nobodys_silence),
	    cmocka_unit_test(one_that_does_not_end_is_killed),
	    cmocka_unit_test(a_second_signal_kills_at_once),
	    cmocka_unit_test(a_wrong_configuration_ends_everything),
	    cmocka_unit_test(status_78_after_ready_is_a_crash),
	    cmocka_unit_test(a_reload_is_told_unless_refused),
	    cmocka_unit_test(flight_recorders_are_asked_of_all),
	    cmocka_unit_test(a_child_may_ask),
	    cmocka_unit_test(a_silent_one_may_say_what_it_did),
	    cmocka_unit_test(the_new_one_takes_the_place),
	    cmocka_unit_test(a_replaced_one_has_so_long),
	    cmocka_unit_test(a_new_one_that_fails_is_forgotten),
	    cmocka_unit_test(a_reload_in_an_upgrade_comes_behind_it),
	    cmocka_unit_test(an_end_in_an_upgrade_ends_both),
	    cmocka_unit_test(successors_take_over_in_a_reload),
	    cmocka_unit_test(successors_are_taken_back),
	    cmocka_unit_test(a_former_one_that_works_keeps_the_next_away),
	    cmocka_unit_test(a_foreign_child_is_watched_by_its_exits_only),
	    cmocka_unit_test(nobody_waits_for_a_foreign_child),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
