/* SPDX-License-Identifier: Apache-2.0 */
#include "base/out_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"

enum { TRIES = 16 }; /* names to try: an earlier process with this id may have left one */

/* The file that signals remove. Written only while `dropped` is false. */
static char dropped_path[PATH_MAX];
static atomic_bool dropped;

/* ---- conflicts ---- */

int out_file_check(const char *path, bool replace, struct sl_err *err)
{
	struct stat st;
	if (strlen(path) + 32 >= PATH_MAX)
		return sl_errf(err, SL_EINVAL, "%.100s…: the name is too long", path);
	if (lstat(path, &st) != 0)
		return errno == ENOENT ? 0 : sl_errf(err, SL_EIO, "%s: %m", path);
	if (S_ISDIR(st.st_mode))
		return sl_errf(err, SL_EINVAL, "%s is a folder, not a file to write", path);
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return sl_errf(err, SL_EINVAL, "%s is not a regular file and can't be replaced", path);
	if (!replace)
		return sl_errf(err, SL_EINVAL, "%s already exists (--force replaces it)", path);
	return 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int out_file_is_not(const char *path, const char *source, struct sl_err *err)
{
	struct stat out, in;
	if (stat(path, &out) != 0 || stat(source, &in) != 0 || !same(&out, &in))
		return 0;
	return sl_errf(err, SL_EINVAL, "%s is the same file as %s, which is read: write to another one", path, source);
}

int out_file_is_not_in(const char *path, const char *folder, const char *except, struct sl_err *err)
{
	struct stat out, in;
	struct dirent *entry;
	int rc = out_file_is_not(path, folder, err);
	DIR *d = rc == 0 && stat(path, &out) == 0 ? opendir(folder) : NULL;
	while (d != NULL && rc == 0 && (entry = readdir(d)) != NULL)
		if (!text_ends(entry->d_name, except) && fstatat(dirfd(d), entry->d_name, &in, 0) == 0 &&
		    same(&out, &in))
			rc =
			    sl_errf(err, SL_EINVAL, "%s is the same file as %s/%s, which is read: write to another one",
				    path, folder, entry->d_name);
	if (d != NULL)
		closedir(d);
	return rc;
}

/* ---- writing ---- */

static void forget(struct out_file *o)
{
	if (atomic_load(&dropped) && o->partial != NULL && strcmp(dropped_path, o->partial) == 0)
		atomic_store(&dropped, false);
	if (o->fd >= 0)
		close(o->fd);
	sl_free(o->path);
	sl_free(o->partial);
	*o = (struct out_file){.fd = -1};
}

/* Registers the name before the file exists, so that no signal comes between the two. */
static bool open_partial(struct out_file *o)
{
	bool ours = !atomic_load(&dropped);
	if (ours) {
		snprintf(dropped_path, sizeof dropped_path, "%s", o->partial);
		atomic_store(&dropped, true);
	}
	o->fd = open(o->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (o->fd < 0 && ours)
		atomic_store(&dropped, false);
	return o->fd >= 0;
}

int out_file_open(const char *path, bool replace, struct out_file *o, struct sl_err *err)
{
	size_t n = strlen(path) + 32;
	int rc = out_file_check(path, replace, err);
	*o = (struct out_file){.fd = -1, .replace = replace};
	if (rc != 0)
		return rc;
	o->path = sl_strdup(path);
	o->partial = sl_alloc(n);
	if (o->path == NULL || o->partial == NULL) {
		forget(o);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	for (int i = 0; i < TRIES && (i == 0 || errno == EEXIST); i++) {
		snprintf(o->partial, n, i > 0 ? "%s.partial-%ld-%d" : "%s.partial-%ld", path, (long)getpid(), i);
		if (open_partial(o))
			return 0;
	}
	rc = sl_errf(err, SL_EIO, "%s: %m", o->partial);
	forget(o);
	return rc;
}

int out_file_room(const struct out_file *o, uint64_t bytes, struct sl_err *err)
{
	struct statvfs s;
	uint64_t most;
	if (fstatvfs(o->fd, &s) != 0 || s.f_blocks == 0) /* the file system does not report it */
		return 0;
	uint64_t blocks = geteuid() == 0 ? s.f_bfree : s.f_bavail;
	if (__builtin_mul_overflow(blocks, (uint64_t)s.f_frsize, &most) || bytes <= most)
		return 0;
	return sl_errf(err, SL_ELIMIT, "%s needs %llu MiB, its disk has %llu MiB left", o->path,
		       (unsigned long long)(bytes >> 20), (unsigned long long)(most >> 20));
}

/* Atomically, so that a file created meanwhile is not replaced. File systems without this rename take a hard link,
 * which fails the same way. */
static int give_name(const struct out_file *o)
{
	if (o->replace)
		return rename(o->partial, o->path);
	if (renameat2(AT_FDCWD, o->partial, AT_FDCWD, o->path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (link(o->partial, o->path) != 0)
		return -1;
	unlink(o->partial);
	return 0;
}

/* The folder holds the name and needs its own fsync. Not every file system supports that, so errors are ignored. */
static void sync_folder(const char *path)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t n = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
	snprintf(folder, sizeof folder, "%.*s", n > 0 ? (int)n : 1, n > 0 ? path : ".");
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

int out_file_finish(struct out_file *o, struct sl_err *err)
{
	int rc = out_file_check(o->path, o->replace, err);
	if (rc == 0 && (fsync(o->fd) != 0 || give_name(o) != 0))
		rc = sl_errf(err, SL_EIO, "%s: %m", o->path);
	if (rc != 0) {
		out_file_abort(o);
		return rc;
	}
	sync_folder(o->path);
	forget(o);
	return 0;
}

void out_file_abort(struct out_file *o)
{
	if (o->partial == NULL)
		return;
	unlink(o->partial);
	forget(o);
}

/* ---- ending early ---- */

void out_file_drop(void)
{
	if (atomic_load(&dropped))
		unlink(dropped_path);
}

/* SA_RESETHAND has restored the default action, so raising the signal again ends the process. */
static void on_signal(int sig)
{
	out_file_drop();
	raise(sig);
}

void out_file_on_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		struct sigaction before;
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(signals[i], &ours, NULL);
	}
}
