/* SPDX-License-Identifier: Apache-2.0
 *
 * The state folder: made, checked, and given to the user that its processes run as.
 */
#ifndef CMD_STATE_H
#define CMD_STATE_H

#include "base/err.h"
#include "cmd/state/privileges.h"

/* Makes path and path/run (0700) unless they are there. Refused: a folder (or run, or what leads to them) that others
 * could change. With u->change what is in it becomes that user's: what root has left, and only under names that Sluice
 * uses. A descriptor of the folder, or SL_EINVAL, SL_EIO. */
int state_open(const char *path, const struct run_user *u, struct sl_err *err);

#endif
