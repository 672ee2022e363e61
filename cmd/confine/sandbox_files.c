/* SPDX-License-Identifier: Apache-2.0
 *
 * landlock(7), by its three system calls; there is no library. Naming a right that the kernel does not know is an
 * error, so the rights follow from the version that it reports.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/confine/sandbox.h"

/* Newer than some systems' headers. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#define FS_REFER (1ULL << 13)     /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define SCOPES 3ULL               /* ABI 6: abstract unix sockets, signals */

/* struct landlock_ruleset_attr as of ABI 6; older kernels take a prefix of it. */
struct ruleset {
	uint64_t fs, net, scoped;
};

static const uint64_t reads = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t writes = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
			       LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
			       LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | FS_REFER | FS_TRUNCATE;
static const uint64_t of_files =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;

/* All rights of this version: accesses without a rule are refused. */
static uint64_t known_rights(int abi)
{
	uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1; /* ABI 1 ends there */
	return all | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0);
}

static int add(int set, const struct sandbox_path *p, uint64_t known)
{
	struct stat st;
	struct landlock_path_beneath_attr rule = {.parent_fd = open(p->path, O_PATH | O_CLOEXEC)};
	if (rule.parent_fd < 0)
		return 0;
	uint64_t want = (p->access & SANDBOX_READ ? reads : 0) | (p->access & SANDBOX_WRITE ? reads | writes : 0) |
			(p->access & SANDBOX_DEVICE ? reads | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV : 0);
	if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
		want &= of_files;
	rule.allowed_access = want & known;
	long rc = syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	int e = errno;
	close(rule.parent_fd);
	return rc == 0 ? 0 : -e;
}

/* 0: not built in (ENOSYS), or switched off (EOPNOTSUPP). */
static int landlock_version(void)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	return abi > 0 ? abi : 0;
}

void sandbox_describe(char *out, size_t size)
{
	char landlock[64] = "no Landlock: this kernel has none";
	int abi = landlock_version();
	if (abi > 0)
		snprintf(landlock, sizeof landlock, "Landlock (ABI %d)", abi);
	snprintf(out, size, "%s, %s",
		 prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 ? "seccomp" : "no seccomp: this kernel has none", landlock);
}

const char *sandbox_threads(void)
{
	static const char *const path = "/proc/self/task";
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) >= 0 ? path : NULL;
}

int sandbox_files(const struct sandbox_path *paths, size_t n)
{
	int abi = landlock_version();
	if (abi == 0)
		return 0;
	struct ruleset all = {.fs = known_rights(abi), .scoped = SCOPES};
	size_t size = abi >= 6 ? sizeof all : sizeof all.fs;
	int set = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0), rc = set < 0 ? -errno : 0;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add(set, &paths[i], all.fs);
	if (rc == 0 &&
	    (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_landlock_restrict_self, set, 0) != 0))
		rc = -errno;
	if (set >= 0)
		close(set);
	return rc == 0 ? abi : rc;
}
