/* SPDX-License-Identifier: Apache-2.0
 *
 * The line on the terminal: what is fetched, how much of it, how fast, how long it will take. Nothing at all where
 * standard error is no terminal.
 */
#ifndef CMD_HUB_PROGRESS_H
#define CMD_HUB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/hub/hub_note.h"

enum { HUB_RATE_POINTS = 64 };

struct hub_progress {
	bool shows; /* standard error is a terminal */
	bool open;  /* a line is there, without its end */
	/* A ring of the last readings, for the rate over several seconds. */
	struct {
		uint64_t ns, bytes;
	} points[HUB_RATE_POINTS];
	size_t n;
};

void hub_progress_init(struct hub_progress *p);
void hub_progress_show(struct hub_progress *p, const struct hub_note *n, uint64_t now_ns);
/* Removes the line. */
void hub_progress_clear(struct hub_progress *p);

/* The line's text; pure but for p's readings. */
void hub_progress_line(struct hub_progress *p, const struct hub_note *n, uint64_t now_ns, char *out, size_t size);
/* "604 MB": decimal units, as the hub shows them. */
void hub_size_text(uint64_t bytes, char *out, size_t size);

#endif
