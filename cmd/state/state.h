/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the state folder, the children's user (privileges.h) and the private Redis. This file creates and checks
 * the folder and gives it to that user. Thread: main.
 */
#ifndef CMD_STATE_H
#define CMD_STATE_H

#include "base/err.h"
#include "cmd/state/privileges.h"

/* Creates path and path/run (0700) if they are missing. Refused: a folder (or run, or a folder above) that other users
 * could change. With u->change files of root in it become that user's, only under names that Sluice uses. A descriptor
 * of the folder, or SL_EINVAL, SL_EIO. */
int state_open(const char *path, const struct run_user *u, struct sl_err *err);

#endif
