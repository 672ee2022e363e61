/* SPDX-License-Identifier: Apache-2.0
 *
 * The downloading process: everything that one pull does after the process has given up its rights (hub_child.h).
 *
 *   hub_list.c    asks the hub for the plan
 *   hub_stage.c   the staging folder: its lock, what of it is still of use, room on the disk, the rename at the end
 *   hub_fetch.c   one file: fetched from where it stopped, verified, flushed
 *   hub_work.c    these in order
 */
#ifndef CMD_HUB_WORK_H
#define CMD_HUB_WORK_H

#include "cmd/hub/hub.h"
#include "cmd/hub/hub_net.h"
#include "cmd/hub/hub_note.h"
#include "cmd/hub/hub_plan.h"

struct hub_work {
	const struct sluice_config *cfg;
	const struct hub_order *order;
	struct hub_net net;
	int notes;   /* where notes go */
	int folder;  /* of all models */
	int staging; /* -1: not open */
	char label[HUB_LABEL_BYTES], staging_name[HUB_NAME_BYTES + 16];
	struct hub_plan plan;
	uint64_t done, fetched; /* bytes of the plan that are here; bytes that this process received */
	uint64_t noted_ns;
	struct hub_reply reply; /* of the last request that hub_try made */
};

/* Runs the pull and reports DONE or FAILED. The net is open. The process's exit status. */
int hub_work_run(struct hub_work *w);

/* Fills w->plan from the hub. */
int hub_list(struct hub_work *w, struct sl_err *err);

/* Opens and locks the staging folder. SL_EAGAIN: another process pulls this model. */
int hub_stage_open(struct hub_work *w, struct sl_err *err);
/* Keeps what belongs to the plan, removes the rest, writes the journal; SL_ELIMIT: the disk has too little room. */
int hub_stage_prepare(struct hub_work *w, struct sl_err *err);
/* Is FOLDER/NAME this plan's model already? SL_EINVAL: it is another source's. */
int hub_stage_compare(struct hub_work *w, bool *same, struct sl_err *err);
/* Checks that the loader takes the model. */
int hub_stage_validate(struct hub_work *w, struct sl_err *err);
/* Makes it FOLDER/NAME. */
int hub_stage_publish(struct hub_work *w, struct sl_err *err);
/* Removes the staging folder: after faults that another attempt would meet again. */
void hub_stage_remove(struct hub_work *w);

/* Fetches what is missing of one file and verifies it. SL_EAGAIN: what was received is kept. */
int hub_fetch(struct hub_work *w, struct hub_entry *e, struct sl_err *err);

/* The URL of a file of the plan. */
int hub_file_url(const struct hub_work *w, const struct hub_entry *e, char *out, size_t size);
/* hub_net_get, again and again after faults that may pass, with waits. a->begin and a->take must start over; moved
 * counts progress: attempts are counted anew when it has grown. */
int hub_try(struct hub_work *w, int (*once)(void *ctx, struct hub_reply *r, struct sl_err *err), void *ctx,
	    const uint64_t *moved, struct sl_err *err);
/* The wait after so many failures in a row (at least 1): doubled with each, at most a minute; the server's own wish
 * counts where it is longer. */
uint64_t hub_wait_ms(uint64_t first_ms, int64_t failures, uint64_t retry_after_s);
/* Sends a note; PROGRESS and CHECKING at most ten times a second. */
void hub_note_send(struct hub_work *w, enum hub_note_kind kind, uint64_t done, uint64_t total, const char *text);

#endif
