/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the engine and the gateway confine themselves (files: Landlock; system calls: seccomp) before they create
 * threads and before they read any input except their configuration. The supervisor passes parameters on the command
 * line (cmd.h). Thread: main; cmd/serve calls it.
 */
#ifndef CMD_CONFINE_H
#define CMD_CONFINE_H

#include "cmd/config/cmd.h"
#include "cmd/confine/sandbox.h"

/* Makes and checks the state folder, then gives up rights, files and system calls. In a process started by hand, one
 * line in the log lists the measures in force. 0, or the exit status (logged). */
int confine(const struct cmd_options *o, const struct sluice_config *cfg, enum sandbox_kind kind);

#endif
