/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mailbox.h"

enum { SENDERS = 4, EACH = 20000 };

struct note {
	struct mail mail;
	int from, number;
};

struct sender {
	struct mailbox *box;
	int index;
	struct note *notes;
};

static void *send_all(void *arg)
{
	struct sender *s = arg;
	for (int i = 0; i < EACH; i++) {
		s->notes[i].from = s->index;
		s->notes[i].number = i;
		mailbox_send(s->box, &s->notes[i].mail);
	}
	return NULL;
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

/* Nothing lost, nothing twice, in order per sender; by blocking and by descriptor. */
static void many_senders(bool by_descriptor)
{
	struct mailbox box;
	pthread_t threads[SENDERS];
	struct sender senders[SENDERS];
	int next[SENDERS] = {0}, n = 0;
	assert_int_equal(mailbox_init(&box), 0);
	for (int i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){&box, i, calloc(EACH, sizeof(struct note))};
		assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
	}
	while (n < SENDERS * EACH) {
		struct mail *m;
		if (by_descriptor) {
			struct pollfd p = {.fd = box.wake_fd, .events = POLLIN};
			assert_int_equal(poll(&p, 1, 10000), 1); /* a lost wake would hang here */
			m = mailbox_take_all(&box);
		} else {
			m = mailbox_wait(&box, clock_now_ns() + 10 * NS_PER_S);
			assert_non_null(m);
		}
		for (; m != NULL; m = m->next, n++) {
			struct note *note = (struct note *)m;
			assert_int_equal(note->number, next[note->from]++);
		}
	}
	for (int i = 0; i < SENDERS; i++) {
		pthread_join(threads[i], NULL);
		free(senders[i].notes);
	}
	assert_false(readable(box.wake_fd));
	mailbox_dispose(&box);
}

static void threads_blocking(void **unused)
{
	(void)unused;
	many_senders(false);
}

static void threads_by_descriptor(void **unused)
{
	(void)unused;
	many_senders(true);
}

static void nudge_and_deadline(void **unused)
{
	(void)unused;
	struct mailbox box;
	assert_int_equal(mailbox_init(&box), 0);
	mailbox_nudge(&box);
	assert_true(readable(box.wake_fd));
	assert_null(mailbox_wait(&box, UINT64_MAX)); /* a nudge before the wait is not lost */
	assert_false(readable(box.wake_fd));
	uint64_t t0 = clock_now_ns();
	assert_null(mailbox_wait(&box, t0 + 20 * NS_PER_MS));
	assert_true(clock_now_ns() - t0 >= 20 * NS_PER_MS);
	mailbox_dispose(&box);
}

/* What a receiver sends itself does not wake it, and keeps its place among what others send. */
static void kept_mail(void **unused)
{
	(void)unused;
	struct mailbox box;
	struct note notes[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
	assert_int_equal(mailbox_init(&box), 0);
	mailbox_keep(&box, &notes[0].mail);
	assert_false(readable(box.wake_fd));
	mailbox_send(&box, &notes[1].mail);
	mailbox_keep(&box, &notes[2].mail);
	int n = 0;
	for (const struct mail *m = mailbox_take_all(&box); m != NULL; m = m->next)
		assert_int_equal(((const struct note *)(const void *)m)->number, n++);
	assert_int_equal(n, 3);
	mailbox_send(&box, &notes[3].mail); /* it is empty: this wakes */
	assert_true(readable(box.wake_fd));
	assert_non_null(mailbox_take_all(&box));
	assert_false(readable(box.wake_fd));
	mailbox_dispose(&box);
}

static void list_keeps_order(void **unused)
{
	(void)unused;
	struct item {
		int n;
		struct list node;
	} items[5];
	struct list head;
	list_init(&head);
	assert_true(list_empty(&head));
	for (int i = 0; i < 5; i++) {
		items[i].n = i;
		list_init(&items[i].node);
		list_remove(&items[i].node); /* in no list: safe */
		list_push_back(&head, &items[i].node);
	}
	list_remove(&items[2].node);
	list_push_front(&head, &items[2].node);
	static const int want[] = {2, 0, 1, 3, 4};
	int k = 0;
	list_each_safe(it, tmp, &head) {
		assert_int_equal(list_entry(it, struct item, node)->n, want[k++]);
		list_remove(it);
	}
	assert_int_equal(k, 5);
	assert_true(list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads_blocking),   cmocka_unit_test(threads_by_descriptor),
	    cmocka_unit_test(nudge_and_deadline), cmocka_unit_test(kept_mail),
	    cmocka_unit_test(list_keeps_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
