/* SPDX-License-Identifier: Apache-2.0
 *
 * Write access to the state folder gives access to the development keys, the engine's socket and the store. So the
 * folder and its run/ must belong to us, to root or to the children's user, and no other user may write to them, or
 * rename a folder above them: a parent that all users may write to must be sticky, like /tmp. Wrong permissions are not
 * repaired, because another user may already have put something into the folder.
 *
 * Owners are changed by descriptor, never through a link. Only files of root change owner, and only those without
 * another hard link, so a former owner of the folder cannot make us give away other files.
 */
#include "cmd/state/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 8 };

/* The contents of a state folder. */
static const char *const names[] = {"run",           "redis",         "tls",    "weights", "cuda-products",
				    "dev-keys.yaml", "token-secrets", "models", "flight"};

static bool is_ours(const struct stat *st, const struct run_user *u)
{
	return st->st_uid == geteuid() || st->st_uid == 0 || st->st_uid == u->uid;
}

static int check_folder(const char *path, const struct stat *st, const struct run_user *u, struct sl_err *err)
{
	if (!S_ISDIR(st->st_mode))
		return sl_errf(err, SL_EINVAL, "%s: exists and is not a folder", path);
	if (!is_ours(st, u))
		return sl_errf(err, SL_EINVAL, "%s: belongs to another user (uid %u): the state folder must be our own",
			       path, (unsigned)st->st_uid);
	if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return sl_errf(err, SL_EINVAL,
			       "%s: other users may write to it (mode %04o): use chmod go-w, or another folder "
			       "(--state DIR)",
			       path, (unsigned)st->st_mode & 07777);
	return 0;
}

/* Checks every folder above path, which is absolute. The supervisor has checked those that can't be read here. */
static int check_parents(const char *path, struct sl_err *err)
{
	char part[PATH_MAX];
	struct stat st;
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = strrchr(part, '/'); slash != NULL; slash = strrchr(part, '/')) {
		slash[slash == part] = '\0';
		if (stat(part, &st) == 0 && (st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0)
			return sl_errf(err, SL_EINVAL,
				       "%s: any user may write to this folder (mode %04o) and replace the state folder "
				       "in it",
				       part, (unsigned)st.st_mode & 07777);
		if (slash == part)
			break;
	}
	return 0;
}

/* Checks both paths to it: the given one, and the one with links resolved. */
static int check_way(const char *path, struct sl_err *err)
{
	char given[PATH_MAX], real[PATH_MAX], here[PATH_MAX];
	if (path[0] == '/')
		snprintf(given, sizeof given, "%s", path);
	else if (getcwd(here, sizeof here) == NULL ||
		 (size_t)snprintf(given, sizeof given, "%s/%s", here, path) >= sizeof given)
		return 0; /* a working directory without a name has no parents to check */
	int rc = check_parents(given, err);
	return rc == 0 && realpath(path, real) != NULL ? check_parents(real, err) : rc;
}

/* ---- owners ---- */

static void give(int folder, const char *name, const struct run_user *u, int depth);

static void give_all_in(int fd, const struct run_user *u, int depth)
{
	DIR *d = fdopendir(fd);
	if (d == NULL) {
		close(fd);
		return;
	}
	for (const struct dirent *e; (e = readdir(d)) != NULL;)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			give(dirfd(d), e->d_name, u, depth + 1);
	closedir(d);
}

static void give(int folder, const char *name, const struct run_user *u, int depth)
{
	struct stat st, at;
	int fd = depth < DEEPEST ? openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	bool here = fstat(fd, &st) == 0 && fstat(folder, &at) == 0 && st.st_dev == at.st_dev;
	bool may = here && (S_ISDIR(st.st_mode) || (st.st_nlink == 1 && (S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode))));
	if (may && st.st_uid == 0)
		(void)fchownat(fd, "", u->uid, u->gid, AT_EMPTY_PATH);
	int inner = may && S_ISDIR(st.st_mode) ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (inner >= 0)
		give_all_in(inner, u, depth);
	close(fd);
}

/* Refuses a folder named by mistake, such as /var/lib: a state folder is closed to others, or holds only our names. */
static int check_contents(int fd, const char *path, struct sl_err *err)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	if (d == NULL)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	for (const struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
		size_t i = 0;
		while (i < sizeof names / sizeof *names && strcmp(e->d_name, names[i]) != 0)
			i++;
		if (i == sizeof names / sizeof *names && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = sl_errf(err, SL_EINVAL,
				     "%s: holds %.60s, which Sluice did not create: the state folder must hold nothing "
				     "else (if it does not, chmod 700 it; or use another folder: --state DIR)",
				     path, e->d_name);
	}
	closedir(d);
	return rc;
}

static int give_folder(int fd, const char *path, const struct stat *st, const struct run_user *u, struct sl_err *err)
{
	if (st->st_uid == 0) {
		int rc = (st->st_mode & 077) != 0 ? check_contents(fd, path, err) : 0;
		if (rc != 0)
			return rc;
		if (fchown(fd, u->uid, u->gid) != 0)
			return sl_errf(err, SL_EIO, "%s: can't change its owner to uid %u: %s", path, (unsigned)u->uid,
				       strerror(errno));
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		give(fd, names[i], u, 0);
	return 0;
}

/* ---- opening ---- */

static int make_run(int fd, const char *path, const struct run_user *u, struct sl_err *err)
{
	struct stat st;
	char run[PATH_MAX];
	snprintf(run, sizeof run, "%s/run", path);
	privileges_as_user(u);
	bool made = mkdirat(fd, "run", 0700) == 0 || errno == EEXIST;
	int e = errno;
	privileges_as_before(u);
	if (!made)
		return sl_errf(err, SL_EIO, "can't create %s: %s", run, strerror(e));
	if (fstatat(fd, "run", &st, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_errf(err, SL_EIO, "%s: %s", run, strerror(errno));
	return check_folder(run, &st, u, err);
}

int state_open(const char *path, const struct run_user *u, struct sl_err *err)
{
	struct stat st = {0};
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EIO, "can't create %s: %s", path, strerror(errno));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	if (fd < 0 || fstat(fd, &st) != 0)
		rc = sl_errf(err, SL_EIO, errno == ENOTDIR ? "%s: exists and is not a folder" : "%s: %s", path,
			     strerror(errno));
	if (rc == 0)
		rc = check_folder(path, &st, u, err);
	if (rc == 0)
		rc = check_way(path, err);
	if (rc == 0 && u->change)
		rc = give_folder(fd, path, &st, u, err);
	if (rc == 0)
		rc = make_run(fd, path, u, err);
	if (rc == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return rc;
}
