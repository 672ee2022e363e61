/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_work.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum {
	NOTE_INTERVAL_NS = 100000000,
	WAIT_MOST_MS = 60000,
	RETRY_AFTER_MOST_S = 600,
	PROGRESS_LEAST = 1 << 20, /* fewer bytes between two faults are no progress */
};

void hub_note_send(struct hub_work *w, enum hub_note_kind kind, uint64_t done, uint64_t total, const char *text)
{
	uint64_t now = clock_now_ns();
	struct hub_note n = {.kind = kind, .done = done, .total = total};
	bool often = kind == HUB_NOTE_PROGRESS || kind == HUB_NOTE_CHECKING;
	if (often && done < total && now - w->noted_ns < NOTE_INTERVAL_NS)
		return;
	w->noted_ns = now;
	snprintf(n.text, sizeof n.text, "%s", text);
	/* Whoever started it may be gone: then a signal ends this process, too. */
	ssize_t wrote = write(w->notes, &n, sizeof n);
	(void)wrote;
}

static void sleep_ms(uint64_t ms)
{
	struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

uint64_t hub_wait_ms(uint64_t first_ms, int64_t failures, uint64_t retry_after_s)
{
	uint64_t ms = first_ms, wish = retry_after_s * 1000;
	for (int64_t i = 1; i < failures && ms < WAIT_MOST_MS; i++)
		ms *= 2;
	ms = ms < WAIT_MOST_MS ? ms : WAIT_MOST_MS;
	return wish > ms ? wish : ms;
}

int hub_try(struct hub_work *w, int (*once)(void *ctx, struct hub_reply *r, struct sl_err *err), void *ctx,
	    const uint64_t *moved, struct sl_err *err)
{
	uint64_t before = *moved;
	for (int64_t failures = 0;;) {
		int rc = once(ctx, &w->reply, err);
		if (rc != SL_EAGAIN)
			return rc;
		failures = *moved - before >= PROGRESS_LEAST ? 1 : failures + 1;
		before = failures == 1 ? *moved : before;
		if (failures > w->cfg->hub.retries || w->reply.retry_after_s > RETRY_AFTER_MOST_S)
			return SL_EAGAIN;
		uint64_t ms = hub_wait_ms(w->cfg->hub.retry_ms, failures, w->reply.retry_after_s);
		hub_note_send(w, HUB_NOTE_WAITING, 0, ms, err->text);
		sleep_ms(ms);
	}
}

/* No file becomes longer than the longest of the plan, whatever is received. */
static void limit_files(const struct hub_plan *p)
{
	uint64_t most = 64 << 20; /* for the journal */
	for (size_t i = 0; i < p->n; i++)
		most = p->items[i].file.size > most ? p->items[i].file.size : most;
	const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
	signal(SIGXFSZ, SIG_IGN);
	(void)setrlimit(RLIMIT_FSIZE, &limit);
}

static int fetch_all(struct hub_work *w, struct sl_err *err)
{
	int rc = hub_stage_prepare(w, err);
	limit_files(&w->plan);
	for (size_t i = 0; rc == 0 && i < w->plan.n; i++)
		rc = hub_fetch(w, &w->plan.items[i], err);
	if (rc == 0)
		rc = hub_stage_validate(w, err);
	return rc == 0 ? hub_stage_publish(w, err) : rc;
}

/* What another attempt may complete stays. */
static bool is_worth_keeping(int rc) { return rc == SL_EAGAIN || rc == SL_ELIMIT || rc == SL_EIO; }

static int pull(struct hub_work *w, struct sl_err *err)
{
	bool same = false;
	int rc = hub_stage_open(w, err);
	if (rc != 0)
		return rc;
	rc = hub_list(w, err);
	if (rc == 0)
		rc = hub_stage_compare(w, &same, err);
	if (rc == 0 && !same)
		rc = fetch_all(w, err);
	if (same || (rc != 0 && (!is_worth_keeping(rc) || w->done == 0)))
		hub_stage_remove(w);
	return rc;
}

int hub_work_run(struct hub_work *w)
{
	struct sl_err err = {0}, line;
	struct hub_note n = {.kind = HUB_NOTE_DONE};
	w->staging = -1;
	hub_source_put(&w->order->source, w->label, sizeof w->label);
	hub_staging_name(w->order->name, w->staging_name, sizeof w->staging_name);
	int rc = pull(w, &err);
	if (rc != 0) {
		bool kept = w->staging >= 0;
		sl_errf(&line, rc, "%.120s: %.280s%s", w->label, err.text,
			rc == SL_EAGAIN && kept ? "; the same command continues" : "");
		text_one_line(line.text, ' ');
		n.kind = HUB_NOTE_FAILED;
		n.code = rc;
		snprintf(n.text, sizeof n.text, "%.470s", line.text);
	}
	n.total = w->plan.bytes;
	n.done = w->fetched;
	ssize_t wrote = write(w->notes, &n, sizeof n);
	hub_plan_dispose(&w->plan);
	hub_net_close(&w->net);
	return rc == 0 && wrote == (ssize_t)sizeof n ? 0 : 1;
}
