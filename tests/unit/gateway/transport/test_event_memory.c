/* SPDX-License-Identifier: Apache-2.0
 *
 * What libevent keeps of each descriptor lies apart from what comes and goes, and is used again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <string.h>
#include <unistd.h>

#include "gateway/transport/event_memory.h"

enum { DESCRIPTORS = 500, PIECE = 32 };

static void on_event(evutil_socket_t fd, short what, void *arg) { (void)fd, (void)what, (void)arg; }

static void watch_and_forget(void)
{
	struct event_base *base = event_base_new();
	struct event *all[DESCRIPTORS];
	int fds[2], copies[DESCRIPTORS];
	assert_non_null(base);
	assert_int_equal(pipe(fds), 0);
	for (int i = 0; i < DESCRIPTORS; i++) {
		copies[i] = dup(fds[0]);
		assert_true(copies[i] >= 0);
		all[i] = event_new(base, copies[i], EV_READ | EV_PERSIST, on_event, NULL);
		assert_int_equal(event_add(all[i], NULL), 0);
	}
	for (int i = 0; i < DESCRIPTORS; i++) {
		event_free(all[i]);
		close(copies[i]);
	}
	close(fds[0]);
	close(fds[1]);
	event_base_free(base);
}

static void entries_lie_apart_and_are_used_again(void **state)
{
	(void)state;
	size_t before = event_memory_small();
	watch_and_forget();
	size_t once = event_memory_small();
	assert_true(once - before >= (size_t)DESCRIPTORS * PIECE);
	assert_true(once - before <= (size_t)(DESCRIPTORS + 100) * PIECE);
	watch_and_forget();
	assert_int_equal(event_memory_small(), once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(entries_lie_apart_and_are_used_again)};
	event_memory_install();
	event_memory_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
