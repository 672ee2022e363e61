/* SPDX-License-Identifier: Apache-2.0
 *
 * Socket activation: listening sockets that the service manager opened, as in sd_listen_fds(3). They become the first
 * set of sockets that the gateway inherits (gateway/transport/handover.h), and the configuration follows their
 * addresses. Thread: main, before any other starts.
 */
#ifndef CMD_ACTIVATION_H
#define CMD_ACTIVATION_H

#include "base/fd_pass.h"
#include "cmd/config/cmd.h"

enum { ACTIVATION_MAX = 64, ACTIVATION_NAME = 256 };

struct activation {
	struct fd_pass_set sockets;
	char names[ACTIVATION_MAX][ACTIVATION_NAME];
	char sets[ACTIVATION_MAX][256]; /* overrides, which the options borrow */
	size_t n_sets;
};

/* Takes the descriptors of LISTEN_FDS, if LISTEN_PID is this process, and removes the variables. 0 with any number of
 * sockets; SL_EINVAL, SL_ELIMIT: a variable is malformed, or a descriptor is no listening stream socket. */
int activation_take(struct activation *a, struct sl_err *err);
/* Assigns each socket to a listener of cfg: `http`, `https` or the name of one of gateway.listeners; any other name:
 * the listener whose address it has. A listener whose sockets have another address gets an override in o. 0; SL_EINVAL:
 * a socket belongs to no listener, or the sockets of one contradict each other; SL_ELIMIT: too many overrides. */
int activation_assign(struct activation *a, const struct sluice_config *cfg, struct cmd_options *o, struct sl_err *err);
/* Reads the configuration; once more if the sockets' addresses are not the configured ones. 0 with *cfg on the heap, or
 * an exit status, with the reason printed; *cfg may be set then, too. */
int activation_config(struct activation *a, struct cmd_options *o, struct sluice_config **cfg);
/* Closes the sockets. */
void activation_dispose(struct activation *a);

#endif
