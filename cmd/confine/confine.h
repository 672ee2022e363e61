/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine and the gateway confine themselves, before they have threads and before they read anything from outside
 * but their configuration. What the supervisor hands down for it comes by the command line (cmd.h).
 */
#ifndef CMD_CONFINE_H
#define CMD_CONFINE_H

#include "cmd/config/cmd.h"
#include "cmd/confine/sandbox.h"

/* The state folder is made and checked; then rights, files and system calls go. Started by hand, one line in the log
 * says what is in force. 0, or the exit status to end with (logged). */
int confine(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind);

#endif
