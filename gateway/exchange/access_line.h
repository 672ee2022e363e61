/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATEWAY_ACCESS_LINE_H
#define GATEWAY_ACCESS_LINE_H

struct exchange;

/* Logs x at its end, with the members that etc/sluice.yaml lists at log.format. ended: why its stream was closed; "":
 * its answer was complete. Requests for the state of the server and for files of the page are logged at debug, unless
 * they failed. */
void access_line(const struct exchange *x, const char *ended);

#endif
