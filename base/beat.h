/* SPDX-License-Identifier: Apache-2.0
 *
 * A child process reports to the supervisor over a pipe whose write end it inherits (--beat-fd N). Each message is one
 * byte and never blocks: BEAT_ALIVE at least every beat_interval_ms while every loop of the child turns; BEAT_READY
 * when it serves; BEAT_NOT_READY when it no longer does. The supervisor kills a child that stays silent too long.
 *
 * A child with several loops gives each a slot. One slot not touched for stale_ms stops the beats, so one hung thread
 * counts as a hang.
 */
#ifndef BASE_BEAT_H
#define BASE_BEAT_H

#include <stdbool.h>

enum beat_message { BEAT_ALIVE = 'a', BEAT_READY = 'r', BEAT_NOT_READY = 'n' };
enum { BEAT_MAX_SLOTS = 64 };

/* Starts a thread that sends BEAT_ALIVE every interval_ms while all slots are fresh. fd < 0 (a process started by
 * hand): sends nothing. 0 or SL_EIO. */
int beat_start(int fd, unsigned interval_ms, unsigned stale_ms);
/* Registers a loop; -1: too many. */
int beat_slot(const char *name);
/* Any thread, each turn of the loop and at least every interval_ms: this slot is alive. */
void beat_touch(int slot);
/* Frees the slot of a loop that ends. */
void beat_slot_close(int slot);
void beat_ready(bool ready);
void beat_stop(void);

#endif
