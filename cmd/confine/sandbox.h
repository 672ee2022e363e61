/* SPDX-License-Identifier: Apache-2.0
 *
 * A process gives up access to files (Landlock) and system calls (seccomp), whatever user it runs as. Both need only
 * no_new_privs, and neither can be undone. Call them while the process has one thread.
 */
#ifndef CMD_SANDBOX_H
#define CMD_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

/* DRIVER: an engine that may compute on a device, whose driver makes calls of its own. REMOTE: an engine whose models
 * another server runs: it connects, and has no device and no weights. DOWNLOAD: the process that fetches models
 * (cmd/hub). It connects, and does not listen. */
enum sandbox_kind { SANDBOX_GATEWAY, SANDBOX_ENGINE, SANDBOX_DRIVER, SANDBOX_REMOTE, SANDBOX_DOWNLOAD };

enum sandbox_access {
	SANDBOX_READ = 1,   /* files and folders below */
	SANDBOX_WRITE = 2,  /* also make, change, rename and remove them */
	SANDBOX_DEVICE = 4, /* read, write, ioctl */
};

struct sandbox_path {
	const char *path; /* skipped if it does not exist */
	unsigned access;
};

/* The folder of this process's threads, for SANDBOX_WRITE: a device's driver names its own there. NULL: there is none.
 * A rule is for a folder's inode, which the kernel may forget and make anew; a descriptor that stays open keeps this
 * one. */
const char *sandbox_threads(void);
/* From now on only these paths can be opened; open descriptors stay usable. The version of Landlock's ABI; 0: this
 * kernel has none; -errno. */
int sandbox_files(const struct sandbox_path *paths, size_t n);
/* Allows only the system calls that such a process makes. Others fail with ENOSYS, as with an older kernel, or with
 * EPERM; calls that only an intruder makes (exec, ptrace, mount, …) end the process. 1; 0: this kernel has no filters;
 * -errno. A build with sanitizers also allows their calls. */
int sandbox_calls(enum sandbox_kind kind);
/* Describes what this kernel supports of both, for the log. */
void sandbox_describe(char *out, size_t size);

#endif
