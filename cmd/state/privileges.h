/* SPDX-License-Identifier: Apache-2.0
 *
 * Users and capabilities. Started as root, the supervisor keeps the few capabilities it uses; every process that it
 * starts becomes one user without any. See ARCHITECTURE.md, Privileges.
 */
#ifndef CMD_PRIVILEGES_H
#define CMD_PRIVILEGES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* The user of the children; a change needs root. */
struct run_user {
	bool change; /* false: they keep their user */
	uid_t uid;
	gid_t gid;
};

/* configured: a name, UID or UID:GID; "": the account `sluice`, or uid 65532, which no system assigns. root
 * stays root, with a warning. SL_EINVAL: there is no such user; SL_EIO: this process may not become it (with "": a
 * warning). */
int privileges_user(const char *configured, struct run_user *out, struct sl_err *err);
/* "65532:65532", for a child's command line, and back. */
void privileges_user_put(const struct run_user *u, char *out, size_t size);
int privileges_user_parse(const char *text, struct run_user *out);

/* The supervisor: no supplementary groups, only the capabilities it uses, and no others by exec. */
void privileges_keep_few(void);
/* Between these two calls files are created, opened and removed with the user's rights, so links in the user's folders
 * reach nothing that the user could not. */
void privileges_as_user(const struct run_user *u);
void privileges_as_before(const struct run_user *u);

/* Drops for good: groups, user, capabilities, bounding set; sets no_new_privs. Makes only system calls that are safe
 * after fork. 0 or -errno; after a failure the process must end. */
int privileges_drop(const struct run_user *u);

#endif
