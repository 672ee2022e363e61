/* SPDX-License-Identifier: Apache-2.0
 *
 * Header fields of the hub's replies. Pure.
 */
#ifndef CMD_HUB_REPLY_H
#define CMD_HUB_REPLY_H

#include <stddef.h>

struct hub_reply;

/* One line of a header, with its end. Unknown fields, and values that are too long or malformed, are ignored. */
void hub_reply_header(struct hub_reply *r, const char *line, size_t n);

#endif
