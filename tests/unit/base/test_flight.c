/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: what a ring keeps, dumps beside a writer, the files that signals and faults leave, and dumps
 * that are damaged. Each process with a recorder is a child: handlers and rings belong to a process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/flight.h"

static char folder[64];

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/flight-test-XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
	char command[100];
	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return system(command);
}

/* Runs it in a child with a recorder; its status. */
static int in_child(void (*run)(void))
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		char inner[80];
		struct sl_err err;
		snprintf(inner, sizeof inner, "%s/flight", folder);
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO);
		/* The test library has handlers of its own. */
		for (int i = 1; i < 32; i++)
			signal(i, SIG_DFL);
		if (flight_start("child", inner, &err) != 0)
			_exit(99);
		run();
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

struct seen {
	struct flight_event all[1 << 15];
	size_t n;
	char thread[FLIGHT_NAME + 1];
	struct flight_dump_head head;
};
static struct seen seen;

static void on_event(void *ctx, const char *thread, const struct flight_event *e)
{
	struct seen *s = ctx;
	assert_true(s->n < sizeof s->all / sizeof *s->all);
	snprintf(s->thread, sizeof s->thread, "%s", thread);
	s->all[s->n++] = *e;
}

static int read_dump(int number, struct sl_buf *bytes)
{
	char path[100];
	struct sl_err err;
	snprintf(path, sizeof path, "%s/flight/child-%d.flight", folder, number);
	seen.n = 0;
	assert_int_equal(file_read(path, 64 << 20, bytes, &err), 0);
	return flight_read(buf_data(bytes), bytes->len, &seen.head, on_event, &seen, &err);
}

static int n_files(void)
{
	char path[80];
	int n = 0;
	snprintf(path, sizeof path, "%s/flight", folder);
	DIR *d = opendir(path);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void note_100(void)
{
	flight_note(FLIGHT_STEP, 1, 2, 3, 4, 5); /* no ring yet */
	flight_open("writer", 60);
	for (uint64_t i = 1; i <= 100; i++)
		flight_note(FLIGHT_STEP, i, 2 * i, 0, 0, ~i);
	raise(SIGUSR1);
}

static void the_last_events_are_dumped(void **state)
{
	struct sl_buf bytes;
	struct stat st;
	char path[100];
	(void)state;
	assert_int_equal(in_child(note_100), 0);
	assert_int_equal(read_dump(0, &bytes), 0);
	/* 64 slots, of which the one to be written next may be unfinished. */
	assert_int_equal(seen.n, 63);
	assert_int_equal(seen.head.reason, SIGUSR1);
	assert_string_equal(seen.head.process, "child");
	assert_string_equal(seen.thread, "writer");
	for (size_t i = 0; i < seen.n; i++) {
		const struct flight_event *e = &seen.all[i];
		assert_int_equal(e->kind, FLIGHT_STEP);
		assert_int_equal(e->values[0], 38 + i);
		assert_int_equal(e->values[1], 2 * (38 + i));
		assert_true(e->values[4] == ~(uint64_t)(38 + i));
		assert_true(i == 0 || e->now_ns >= seen.all[i - 1].now_ns);
	}
	snprintf(path, sizeof path, "%s/flight/child-0.flight", folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	buf_dispose(&bytes);
}

static void dump_20(void)
{
	flight_open("writer", 4);
	for (uint64_t i = 1; i <= 20; i++) {
		flight_note(FLIGHT_CONTROL, i, 0, 0, 0, 0);
		raise(SIGUSR1);
		usleep(11000); /* the clock of files' times has ticks of up to 10 ms */
	}
}

static void files_are_bounded_and_the_oldest_goes(void **state)
{
	bool there[21] = {false};
	(void)state;
	assert_int_equal(in_child(dump_20), 0);
	assert_int_equal(n_files(), FLIGHT_FILES);
	for (int i = 0; i < FLIGHT_FILES; i++) {
		struct sl_buf bytes;
		assert_int_equal(read_dump(i, &bytes), 0);
		there[seen.all[seen.n - 1].values[0]] = true;
		buf_dispose(&bytes);
	}
	for (int i = 1; i <= 20; i++)
		assert_int_equal(there[i], i > 20 - FLIGHT_FILES);
}

static void fault(void)
{
	flight_open("writer", 16);
	flight_note(FLIGHT_PREEMPT, 7, 0, 0, 0, 0);
	raise(SIGABRT);
}

static void fault_sent(void)
{
	flight_open("writer", 16);
	flight_note(FLIGHT_PREEMPT, 7, 0, 0, 0, 0);
	kill(getpid(), SIGFPE);
}

/* A read that fails. */
static void fault_real(void)
{
	int fd = open(folder, O_RDWR | O_TMPFILE, 0600);
	flight_open("writer", 16);
	flight_note(FLIGHT_PREEMPT, 7, 0, 0, 0, 0);
	volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	_exit(*map); /* behind the file's end: SIGBUS */
}

static void faults_leave_a_dump_and_keep_their_effect(void **state)
{
	static const struct {
		void (*run)(void);
		int signal;
	} cases[] = {{fault, SIGABRT}, {fault_sent, SIGFPE}, {fault_real, SIGBUS}};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct sl_buf bytes;
		int status = in_child(cases[i].run);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), cases[i].signal);
		assert_int_equal(n_files(), i + 1);
		assert_int_equal(read_dump(i, &bytes), 0);
		assert_int_equal(seen.head.reason, cases[i].signal);
		assert_int_equal(seen.n, 1);
		assert_int_equal(seen.all[0].values[0], 7);
		buf_dispose(&bytes);
	}
}

static atomic_bool stop, started;

static void *write_on(void *unused)
{
	(void)unused;
	flight_open("busy", 64);
	for (uint64_t i = 1; !atomic_load(&stop); i++) {
		flight_note(FLIGHT_LANDED, i, i * 3, i * 5, i * 7, ~i);
		atomic_store(&started, true);
	}
	flight_close();
	return NULL;
}

static void dump_beside_a_writer(void)
{
	pthread_t id;
	pthread_create(&id, NULL, write_on, NULL);
	while (!atomic_load(&started))
		usleep(100);
	for (int i = 0; i < FLIGHT_FILES; i++)
		kill(getpid(), SIGUSR1);
	atomic_store(&stop, true);
	pthread_join(id, NULL);
}

static void events_beside_a_writer_are_whole(void **state)
{
	(void)state;
	assert_int_equal(in_child(dump_beside_a_writer), 0);
	for (int i = 0; i < n_files(); i++) {
		struct sl_buf bytes;
		assert_int_equal(read_dump(i, &bytes), 0);
		for (size_t k = 0; k < seen.n; k++) {
			const uint64_t *v = seen.all[k].values;
			assert_true(v[1] == v[0] * 3 && v[2] == v[0] * 5 && v[3] == v[0] * 7 && v[4] == ~v[0]);
		}
		buf_dispose(&bytes);
	}
}

static void *short_life(void *unused)
{
	(void)unused;
	flight_open("short", 16);
	flight_note(FLIGHT_STORE, 1, 0, 0, 0, 0);
	flight_close();
	return NULL;
}

static void many_threads(void)
{
	for (int i = 0; i < 3 * FLIGHT_RINGS; i++) {
		pthread_t id;
		pthread_create(&id, NULL, short_life, NULL);
		pthread_join(id, NULL);
	}
	flight_open("last", 16);
	flight_note(FLIGHT_STORE, 2, 0, 0, 0, 0);
	raise(SIGUSR1);
}

static void rings_are_used_again(void **state)
{
	struct sl_buf bytes;
	(void)state;
	assert_int_equal(in_child(many_threads), 0);
	assert_int_equal(read_dump(0, &bytes), 0);
	assert_int_equal(seen.head.n_rings, 1);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.thread, "last");
	buf_dispose(&bytes);
}

static void ignore(void *ctx, const char *thread, const struct flight_event *e)
{
	assert_true(strlen(thread) <= FLIGHT_NAME && e->kind < FLIGHT_N_KINDS);
	++*(size_t *)ctx;
}

/* Every cut, and every byte changed, is read without harm; what is reported is bounded by the file. */
static void damaged_dumps_are_refused(void **state)
{
	struct sl_buf bytes;
	struct flight_dump_head head;
	struct sl_err err;
	(void)state;
	assert_int_equal(in_child(note_100), 0);
	assert_int_equal(read_dump(0, &bytes), 0);
	uint8_t *copy = malloc(bytes.len);
	assert_non_null(copy);
	for (size_t n = 0; n < bytes.len; n += n < 256 ? 1 : 37) {
		size_t reported = 0;
		uint8_t *cut = malloc(n > 0 ? n : 1);
		assert_non_null(cut);
		memcpy(cut, buf_data(&bytes), n);
		assert_int_equal(flight_read(cut, n, &head, ignore, &reported, &err), SL_EPROTO);
		free(cut);
	}
	for (size_t at = 0; at < bytes.len; at++) {
		size_t reported = 0;
		memcpy(copy, buf_data(&bytes), bytes.len);
		copy[at] ^= 0xff;
		(void)flight_read(copy, bytes.len, &head, ignore, &reported, &err);
		assert_true(reported <= bytes.len / 64);
	}
	free(copy);
	buf_dispose(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(the_last_events_are_dumped),
	    T(files_are_bounded_and_the_oldest_goes),
	    T(faults_leave_a_dump_and_keep_their_effect),
	    T(events_beside_a_writer_are_whole),
	    T(rings_are_used_again),
	    T(damaged_dumps_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
