/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine and the gateway confine themselves, before they have threads and before they read anything from outside
 * but their configuration. What the supervisor hands down for it comes by the command line (cmd.h).
 */
#ifndef CMD_CONFINE_H
#define CMD_CONFINE_H

#include "cmd/config/cmd.h"
#include "cmd/confine/sandbox.h"

/* Makes and checks the state folder, then gives up rights, files and system calls. In a process started by hand, one
 * line in the log lists what is in force. 0, or the exit status to end with (logged). */
int confine(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind);

#endif
