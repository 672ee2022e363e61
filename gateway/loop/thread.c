/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a gateway thread. libevent 2.1 has no hook at the end of an iteration, so the outer loop is here:
 * event_base_loop(EVLOOP_ONCE) handles all ready events, then the deferred functions run. They may defer again: a flush
 * pulls a body, which gives the engine credit, which queues the link's flush. A few passes run at once. The rest waits
 * for the next turn, which does not block, so sockets never starve.
 *
 * Thread: everything except gw_post belongs to the thread that runs the loop.
 */
#include "gateway/loop/thread.h"

#include "base/err.h"

enum { DEFERRED_PASSES = 4 };

void gw_defer_init(struct gw_deferred *d, void (*run)(struct gw_deferred *d))
{
	list_init(&d->node);
	d->run = run;
}

void gw_defer(struct gw_thread *t, struct gw_deferred *d)
{
	if (list_empty(&d->node))
		list_push_back(&t->deferred, &d->node);
}

void gw_defer_output(struct gw_thread *t, struct gw_deferred *d)
{
	if (list_empty(&d->node))
		list_push_back(&t->output, &d->node);
}

void gw_defer_cancel(struct gw_deferred *d) { list_remove(&d->node); }

/* Runs the functions queued now. Those queued meanwhile wait for the next call. */
static void run_queued(struct list *queue)
{
	struct list batch;
	list_init(&batch);
	list_move_all(queue, &batch);
	while (!list_empty(&batch)) {
		struct gw_deferred *d = list_entry(batch.next, struct gw_deferred, node);
		list_remove(&d->node);
		d->run(d);
	}
}

void gw_run_output(struct gw_thread *t) { run_queued(&t->output); }

static bool anything_due(const struct gw_thread *t) { return !list_empty(&t->deferred) || !list_empty(&t->output); }

/* Output last: the deferred functions may add to it. */
static void run_one_pass(struct gw_thread *t)
{
	run_queued(&t->deferred);
	run_queued(&t->output);
}

static void on_inbox(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct gw_thread *t = arg;
	struct mail *m = mailbox_take_all(&t->inbox);
	while (m != NULL) {
		struct mail *next = m->next;
		struct gw_message *msg = list_entry(m, struct gw_message, mail);
		msg->run(t, msg);
		m = next;
	}
}

void gw_post(struct gw_thread *to, struct gw_message *m) { mailbox_send(&to->inbox, &m->mail); }

int gw_thread_init(struct gw_thread *t, int index, const struct gw_config *cfg, struct sl_err *err)
{
	*t = (struct gw_thread){.index = index, .cfg = cfg, .now_ns = clock_now_ns()};
	list_init(&t->deferred);
	list_init(&t->output);
	if (mailbox_init(&t->inbox) != 0)
		return sl_errf(err, SL_EIO, "can't open a thread's inbox");
	t->base = event_base_new();
	if (t->base != NULL)
		t->inbox_event = event_new(t->base, t->inbox.wake_fd, EV_READ | EV_PERSIST, on_inbox, t);
	if (t->inbox_event == NULL || event_add(t->inbox_event, NULL) != 0 ||
	    gw_timers_init(&t->timers, t->base) != 0) {
		if (t->inbox_event != NULL)
			event_free(t->inbox_event);
		if (t->base != NULL)
			event_base_free(t->base);
		mailbox_dispose(&t->inbox);
		return sl_errf(err, SL_EIO, "can't create the event loop");
	}
	return 0;
}

void gw_thread_dispose(struct gw_thread *t)
{
	on_inbox(-1, 0, t);
	while (anything_due(t))
		run_one_pass(t);
	gw_timers_dispose(&t->timers);
	event_free(t->inbox_event);
	event_base_free(t->base);
	mailbox_dispose(&t->inbox);
	t->base = NULL;
}

int gw_thread_turn(struct gw_thread *t)
{
	int flags = EVLOOP_ONCE | (anything_due(t) ? EVLOOP_NONBLOCK : 0);
	t->turn++;
	if (event_base_loop(t->base, flags) < 0)
		return SL_EIO;
	gw_read_clock(t);
	for (int i = 0; i < DEFERRED_PASSES && anything_due(t); i++)
		run_one_pass(t);
	return 0;
}
