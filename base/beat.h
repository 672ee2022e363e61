/* SPDX-License-Identifier: Apache-2.0
 *
 * A child process reports to the supervisor over a pipe whose write end it inherits (--beat-fd N). Each message is one
 * byte and never blocks: BEAT_ALIVE at least every beat_interval_ms while every loop of the child turns; BEAT_READY
 * when it serves; BEAT_NOT_READY when it no longer does. The supervisor kills a child that stays silent too long. A
 * replaceable child may also ask for what the supervisor does on a signal (beat_ask).
 *
 * A child with several loops gives each a slot. One slot not touched for stale_ms stops the beats, so one hung thread
 * counts as a hang.
 */
#ifndef BASE_BEAT_H
#define BASE_BEAT_H

#include <stdbool.h>

enum beat_message { BEAT_ALIVE = 'a', BEAT_READY = 'r', BEAT_NOT_READY = 'n' };
enum beat_ask { BEAT_ASK_RELOAD = 'h', BEAT_ASK_END = 'e', BEAT_ASK_FLIGHT = 'f' };
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
/* Asks the supervisor: reload (SIGHUP), drain and end (SIGTERM), dump the flight recorders (SIGUSR1). False: there is
 * no supervisor, or the line is full. Any thread. */
bool beat_ask(enum beat_ask what);
void beat_stop(void);

#endif
