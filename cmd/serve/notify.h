/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports to a service manager, as in sd_notify(3): datagrams of VARIABLE=VALUE lines to the socket that NOTIFY_SOCKET
 * names, and the watchdog of sd_watchdog_enabled(3). Without a manager nothing is sent. Thread: the supervisor's.
 */
#ifndef CMD_NOTIFY_H
#define CMD_NOTIFY_H

#include <stdint.h>
#include <sys/un.h>

#include "base/err.h"

struct notify {
	int fd; /* -1: no manager */
	struct sockaddr_un to;
	unsigned to_len;
	uint64_t watchdog_ns; /* the manager ends a service that was silent for so long; 0: never */
	uint64_t every_ns;    /* interval of the supervisor's reports */
	char status[160];     /* the last one sent */
};

/* Reads the environment and removes these variables, so that children do not report. 0, or SL_EINVAL: NOTIFY_SOCKET or
 * WATCHDOG_USEC is malformed. */
int notify_open(struct notify *n, struct sl_err *err);
void notify_close(struct notify *n);
/* One datagram; never blocks, and a failure is ignored: the manager notices silence. */
void notify_send(const struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* STATUS=text, unless it is the last one. */
void notify_status(struct notify *n, const char *text);
/* RELOADING=1 with the time that the protocol wants. */
void notify_reloading(const struct notify *n);

#endif
