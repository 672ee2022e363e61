/* SPDX-License-Identifier: Apache-2.0
 *
 * The downloading process: forked, then without rights. It is another user if this process is root's; it may write the
 * models folder and read what the resolver and TLS need (Landlock); it may connect and start threads, but start no
 * program (seccomp); it ends with the process that started it.
 */
#ifndef CMD_HUB_CHILD_H
#define CMD_HUB_CHILD_H

#include <sys/types.h>

#include "cmd/hub/hub.h"

/* notes: the pipe that it reports to (hub_note.h); the caller closes it. ca: authorities, or NULL. The process, or
 * SL_EIO. */
pid_t hub_child_start(const struct sluice_config *cfg, const struct hub_folder *folder, const struct hub_order *order,
		      const struct sl_buf *ca, int *notes, struct sl_err *err);

#endif
