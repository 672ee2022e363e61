/* SPDX-License-Identifier: Apache-2.0
 *
 * What the downloading process reports to the one that started it: one struct per write to a pipe, smaller than
 * PIPE_BUF. The reader trusts nothing in it.
 */
#ifndef CMD_HUB_NOTE_H
#define CMD_HUB_NOTE_H

#include <stdint.h>

#include "base/err.h"

enum hub_note_kind {
	HUB_NOTE_PROGRESS, /* text: the file; done of total bytes */
	HUB_NOTE_CHECKING, /* the same, of bytes that are read again */
	HUB_NOTE_WAITING,  /* text: why; total: milliseconds until the next attempt */
	HUB_NOTE_DONE,     /* total: bytes of the model; done: bytes fetched for it */
	HUB_NOTE_FAILED,   /* text: one line */
};

struct hub_note {
	uint32_t kind;
	int32_t code; /* of HUB_NOTE_FAILED */
	uint64_t done, total;
	char text[480];
};

#endif
