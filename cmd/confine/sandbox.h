/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process gives up for itself, whatever user it runs as: files (Landlock) and system calls (seccomp). Both need
 * no_new_privs and no rights; neither can be taken back. Call them while the process has one thread.
 */
#ifndef CMD_SANDBOX_H
#define CMD_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

enum sandbox_kind { SANDBOX_GATEWAY, SANDBOX_ENGINE };

enum sandbox_access {
	SANDBOX_READ = 1,   /* files and folders below */
	SANDBOX_WRITE = 2,  /* also make, change, rename and remove them */
	SANDBOX_DEVICE = 4, /* read, write, ioctl */
};

struct sandbox_path {
	const char *path; /* one that is not there is left out */
	unsigned access;
};

/* Only these paths can be opened from now on; what is open stays usable. The version of Landlock's ABI; 0: this kernel
 * has none; -errno. */
int sandbox_files(const struct sandbox_path *paths, size_t n);
/* Only the system calls that such a process makes: others fail with ENOSYS, as with an older kernel, or with EPERM;
 * those
 * that only an intruder makes (exec, ptrace, mount, …) end the process. 1; 0: this kernel has no filters; -errno. A build with sanitizers, which trace, allows what they do. */
int sandbox_calls(enum sandbox_kind kind);
/* What of both this kernel has, in words for the log. */
void sandbox_describe(char *out, size_t size);

#endif
