/* SPDX-License-Identifier: Apache-2.0
 *
 * The line from a child process to the supervisor: a pipe whose write end the child inherits
 * (--beat-fd N). One byte a message, never blocking: BEAT_ALIVE at least every beat_interval_ms
 * while every loop of the child turns; BEAT_READY when it serves; BEAT_NOT_READY when it no longer
 * does. The supervisor kills a child that has been silent for too long.
 *
 * A child with several loops gives each a slot: a slot that has not been touched within the
 * supervisor's patience keeps beat_send from sending, so one hung thread counts as a hang.
 */
#ifndef BASE_BEAT_H
#define BASE_BEAT_H

#include <stdbool.h>

enum beat_message { BEAT_ALIVE = 'a', BEAT_READY = 'r', BEAT_NOT_READY = 'n' };
enum { BEAT_MAX_SLOTS = 64 };

/* Starts a thread that sends BEAT_ALIVE every interval_ms while all slots are fresh.
 * fd < 0: nothing is ever sent (a process started by hand). 0 or SL_EIO. */
int beat_start(int fd, unsigned interval_ms, unsigned stale_ms);
/* A loop registers itself; -1 when there are too many. */
int beat_slot(const char *name);
/* Any thread, each turn of the loop and at least every interval_ms: this slot is alive. */
void beat_touch(int slot);
/* A loop that ends takes its slot out. */
void beat_slot_close(int slot);
void beat_ready(bool ready);
void beat_stop(void);

#endif
