/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

/* The next byte of the pipe within ms; 0 when none comes, -1 at its end. */
static int next_byte(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;
	if (poll(&p, 1, ms) != 1)
		return 0;
	return read(fd, &c, 1) == 1 ? c : -1;
}

static void drain(int fd)
{
	while (next_byte(fd, 0) > 0) {
	}
}

static void beats_and_readiness(void **unused)
{
	(void)unused;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(beat_start(fds[1], 10, 60000), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(next_byte(fds[0], 5000), BEAT_ALIVE);
	beat_ready(true);
	int c;
	while ((c = next_byte(fds[0], 5000)) == BEAT_ALIVE) {
	}
	assert_int_equal(c, BEAT_READY);
	beat_ready(true); /* said once */
	beat_ready(false);
	while ((c = next_byte(fds[0], 5000)) == BEAT_ALIVE) {
	}
	assert_int_equal(c, BEAT_NOT_READY);
	beat_stop();
	drain(fds[0]);
	assert_int_equal(next_byte(fds[0], 0), -1); /* the write end is closed */
	close(fds[0]);
}

static void a_stale_slot_silences(void **unused)
{
	(void)unused;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	int quick = beat_slot("quick"), slow = beat_slot("slow");
	assert_true(quick >= 0 && slow >= 0 && quick != slow);
	assert_int_equal(beat_start(fds[1], 5, 50), 0);
	/* Both are touched: it beats. Then one is not: it falls silent. */
	uint64_t until = clock_now_ns() + 10 * NS_PER_S;
	int beats = 0;
	while (beats < 4 && clock_now_ns() < until) {
		beat_touch(quick);
		beat_touch(slow);
		beats += next_byte(fds[0], 5) == BEAT_ALIVE;
	}
	assert_int_equal(beats, 4);
	until = clock_now_ns() + 10 * NS_PER_S;
	int silent = 0;
	while (silent < 10 && clock_now_ns() < until) {
		beat_touch(quick);
		silent = next_byte(fds[0], 20) == 0 ? silent + 1 : 0;
	}
	assert_int_equal(silent, 10);
	/* Its loop turns again, or ends: it beats again. */
	beat_slot_close(slow);
	until = clock_now_ns() + 10 * NS_PER_S;
	int again = 0;
	while (again == 0 && clock_now_ns() < until) {
		beat_touch(quick);
		again = next_byte(fds[0], 20);
	}
	assert_int_equal(again, BEAT_ALIVE);
	beat_slot_close(quick);
	beat_stop();
	close(fds[0]);
}

static void slots_are_bounded(void **unused)
{
	(void)unused;
	int slots[BEAT_MAX_SLOTS];
	for (int i = 0; i < BEAT_MAX_SLOTS; i++)
		assert_true((slots[i] = beat_slot("loop")) >= 0);
	assert_int_equal(beat_slot("one more"), -1);
	beat_touch(-1);
	beat_slot_close(-1);
	for (int i = 0; i < BEAT_MAX_SLOTS; i++)
		beat_slot_close(slots[i]);
}

/* A supervisor that reads nothing fills the pipe, one that died closes it: neither stops or kills
 * the process. */
static void a_full_or_closed_pipe(void **unused)
{
	(void)unused;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fcntl(fds[1], F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
	char junk[4096] = {0};
	while (write(fds[1], junk, sizeof junk) > 0) {
	}
	assert_int_equal(beat_start(fds[1], 1, 60000), 0);
	beat_ready(true);
	/* What filled it was zeros; then come beats, and the readiness that had to wait. */
	uint64_t until = clock_now_ns() + 10 * NS_PER_S;
	int c = 0;
	while (c != BEAT_READY && clock_now_ns() < until)
		c = next_byte(fds[0], 1000);
	assert_int_equal(c, BEAT_READY);
	close(fds[0]);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* some beats into nowhere */
	beat_stop();
}

static void no_descriptor_no_thread(void **unused)
{
	(void)unused;
	assert_int_equal(beat_start(-1, 10, 10), 0);
	beat_ready(true);
	beat_stop();
	assert_int_equal(beat_start(9999, 10, 10), SL_EIO);
}

static void faults_hit_the_nth(void **unused)
{
	(void)unused;
	assert_false(fault_hit(FAULT_READ));
	fault_arm(FAULT_READ, 3, 2);
	bool want[] = {false, false, true, true, false};
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(fault_hit(FAULT_READ), want[i]);
	assert_false(fault_hit(FAULT_WRITE));
	fault_disarm_all();
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_null(sl_alloc(1));
	char *p = sl_strndup("abc", 2);
	assert_string_equal(p, "ab");
	fault_disarm_all();
	assert_null(sl_realloc_n(NULL, SIZE_MAX, 2));
	assert_null(sl_zalloc_n(SIZE_MAX / 2, 4));
	sl_free(p);
}

static void errors_say_one_line(void **unused)
{
	(void)unused;
	struct sl_err err;
	assert_int_equal(sl_errf(&err, SL_EIO, "%s: %d", "x", 5), SL_EIO);
	assert_int_equal(err.code, SL_EIO);
	assert_string_equal(err.text, "x: 5");
	assert_int_equal(sl_errf(NULL, SL_ENOMEM, "x"), SL_ENOMEM);
	char big[2000];
	memset(big, 'y', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	sl_errf(&err, SL_EINVAL, "%s", big);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	for (int code = 0; code > -12; code--)
		assert_string_not_equal(sl_code_name(code), "unknown error");
	assert_string_equal(sl_code_name(-99), "unknown error");
	uint64_t now = 5;
	clock_fake(&now);
	assert_int_equal(clock_now_ns(), 5);
	clock_fake(NULL);
	assert_true(clock_now_ns() > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(beats_and_readiness),     cmocka_unit_test(a_stale_slot_silences),
	    cmocka_unit_test(slots_are_bounded),       cmocka_unit_test(a_full_or_closed_pipe),
	    cmocka_unit_test(no_descriptor_no_thread), cmocka_unit_test(faults_hit_the_nth),
	    cmocka_unit_test(errors_say_one_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
