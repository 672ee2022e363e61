/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/confine/sandbox.h"
#include "cmd/hub/hub_work.h"
#include "engine/file/map_file.h"

enum { FILES = 64 };

/* What libcurl, the resolver and OpenSSL read. */
static const char *const readable[] = {"/etc/ssl",
				       "/etc/pki",
				       "/etc/ca-certificates",
				       "/usr/share/ca-certificates",
				       "/usr/local/share/ca-certificates",
				       "/etc/resolv.conf",
				       "/etc/hosts",
				       "/etc/host.conf",
				       "/etc/nsswitch.conf",
				       "/etc/gai.conf",
				       "/etc/services",
				       "/etc/ld.so.cache",
				       "/etc/localtime",
				       "/usr/share/zoneinfo",
				       "/usr/lib",
				       "/lib",
				       "/lib64",
				       "/run/systemd/resolve",
				       "/run/NetworkManager",
				       "/run/resolvconf",
				       "/dev/urandom",
				       "/dev/random",
				       "/dev/null"};

static void limit(int resource, rlim_t most)
{
	const struct rlimit r = {.rlim_cur = most, .rlim_max = most};
	(void)setrlimit((__rlimit_resource_t)resource, &r);
}

static void set_limits(void)
{
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, FILES);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	limit(RLIMIT_DATA, (rlim_t)1 << 30);
	prctl(PR_SET_DUMPABLE, 0);
#endif
}

/* Closes all but the standard streams, the folder and the pipe: they become 3 and 4. */
static int keep_two(int *folder, int *notes)
{
	int a = fcntl(*folder, F_DUPFD_CLOEXEC, 10), b = fcntl(*notes, F_DUPFD_CLOEXEC, 10);
	if (a < 0 || b < 0 || dup3(a, 3, O_CLOEXEC) < 0 || dup3(b, 4, O_CLOEXEC) < 0)
		return -errno;
	*folder = 3;
	*notes = 4;
	return syscall(SYS_close_range, 5U, ~0U, 0U) == 0 || errno == ENOSYS ? 0 : -errno;
}

static int limit_files(int folder)
{
	char path[32];
	struct sandbox_path all[sizeof readable / sizeof *readable + 1];
	size_t n = 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
	all[n++] = (struct sandbox_path){path, SANDBOX_WRITE};
	for (size_t i = 0; i < sizeof readable / sizeof *readable; i++)
		all[n++] = (struct sandbox_path){readable[i], SANDBOX_READ};
	int rc = sandbox_files(all, n);
	return rc < 0 ? rc : 0;
}

static int confine_child(const struct sluice_config *cfg, const struct hub_folder *folder, int fd, pid_t parent)
{
	int rc = privileges_drop(&folder->user);
	/* After the change of the user, which resets it. */
	if (rc == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
		rc = -ESRCH;
	if (rc == 0 && cfg->supervisor.sandbox)
		rc = limit_files(fd);
	if (rc == 0 && cfg->supervisor.sandbox && (rc = sandbox_calls(SANDBOX_DOWNLOAD)) > 0)
		rc = 0;
	return rc;
}

/* The library is opened first, while all files can still be read. */
static int run(const struct sluice_config *cfg, const struct hub_folder *folder, const struct hub_order *order,
	       const struct sl_buf *ca, int notes, pid_t parent)
{
	struct sl_err err = {0};
	struct hub_work w = {.cfg = cfg, .order = order, .folder = folder->fd, .notes = notes, .staging = -1};
	int rc = hub_net_open(&w.net, cfg, order->token, ca, &err);
	if (rc == 0) {
		set_limits();
		rc = keep_two(&w.folder, &w.notes);
		if (rc == 0)
			rc = confine_child(cfg, folder, w.folder, parent);
		if (rc != 0)
			sl_errf(&err, SL_EIO, "the downloading process can't give up its rights: %s", strerror(-rc));
	}
	if (rc == 0) {
		map_file_guard();
		return hub_work_run(&w);
	}
	struct hub_note n = {.kind = HUB_NOTE_FAILED, .code = err.code};
	snprintf(n.text, sizeof n.text, "%.470s", err.text);
	ssize_t wrote = write(w.notes, &n, sizeof n);
	return wrote < 0 ? 2 : 1;
}

pid_t hub_child_start(const struct sluice_config *cfg, const struct hub_folder *folder, const struct hub_order *order,
		      const struct sl_buf *ca, int *notes, struct sl_err *err)
{
	int ends[2];
	pid_t parent = getpid(), pid = -1;
	if (pipe2(ends, O_CLOEXEC) == 0 && (pid = hub_fork()) < 0) {
		close(ends[0]);
		close(ends[1]);
	}
	if (pid < 0)
		return sl_errf(err, SL_EIO, "can't start a process: %s", strerror(errno));
	if (pid == 0)
		_exit(run(cfg, folder, order, ca, ends[1], parent));
	close(ends[1]);
	*notes = ends[0];
	return pid;
}
