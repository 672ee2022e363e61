/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock is on the staging folder itself. When it becomes FOLDER/NAME the lock goes with it, so a process that waited
 * for the name must look again whether what it locked still has that name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cmd/hub/hub_work.h"
#include "engine/model/model.h"

enum { TRIES = 8, DEEPEST = 4, MARGIN = 64 << 20 };

/* ---- the lock ---- */

static bool still_has_name(const struct hub_work *w, int fd)
{
	struct stat a, b;
	return fstat(fd, &a) == 0 && fstatat(w->folder, w->staging_name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int hub_stage_open(struct hub_work *w, struct sl_err *err)
{
	for (int i = 0; i < TRIES; i++) {
		if (mkdirat(w->folder, w->staging_name, 0755) != 0 && errno != EEXIST)
			return sl_errf(err, SL_EIO, "can't create %s: %s", w->staging_name, strerror(errno));
		int fd = hub_open_below(w->folder, w->staging_name, O_RDONLY | O_DIRECTORY);
		if (fd < 0 && fd != -ENOENT)
			return sl_errf(err, SL_EIO, "%s: %s", w->staging_name, strerror(-fd));
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
			close(fd);
			return sl_errf(err, SL_EAGAIN, "another process is pulling this model");
		}
		if (fd >= 0 && still_has_name(w, fd)) {
			w->staging = fd;
			return 0;
		}
		if (fd >= 0)
			close(fd);
	}
	return sl_errf(err, SL_EIO, "%s: other processes keep replacing it", w->staging_name);
}

/* ---- what is there ---- */

/* PATH or PATH.part of an entry whose earlier description is the same. */
static bool is_of_use(const struct hub_plan *plan, const struct hub_plan *before, const char *path)
{
	size_t n = strlen(path);
	bool part = n > 5 && strcmp(path + n - 5, ".part") == 0;
	n -= part ? 5 : 0;
	for (size_t i = 0; i < plan->n; i++) {
		const struct hub_entry *e = &plan->items[i];
		if (strlen(e->local) != n || strncmp(e->local, path, n) != 0)
			continue;
		const struct hub_entry *was = hub_plan_find(before, e);
		/* Without a digest only the ETag connects the two. */
		return was != NULL &&
		       (e->file.hash != HUB_NO_HASH || (e->etag[0] != '\0' && strcmp(e->etag, was->etag) == 0));
	}
	return false;
}

static void sweep(int dir, const char *prefix, const struct hub_plan *plan, const struct hub_plan *before, int depth)
{
	char path[PATH_MAX];
	struct stat st;
	int fd = depth < DEEPEST ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		bool journal = depth == 0 && strcmp(e->d_name, HUB_JOURNAL) == 0;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || journal)
			continue;
		snprintf(path, sizeof path, "%s%s", prefix, e->d_name);
		if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue; /* it has gone */
		bool folder = S_ISDIR(st.st_mode);
		if (!folder && !(S_ISREG(st.st_mode) && st.st_nlink == 1 && is_of_use(plan, before, path)))
			(void)hub_remove(dir, e->d_name);
		int inner = folder ? hub_open_below(dir, e->d_name, O_RDONLY | O_DIRECTORY) : -1;
		if (inner < 0)
			continue;
		snprintf(path, sizeof path, "%s%s/", prefix, e->d_name);
		sweep(inner, path, plan, before, depth + 1);
		close(inner);
		unlinkat(dir, e->d_name, AT_REMOVEDIR); /* where it is empty now */
	}
	if (d != NULL)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

/* Bytes of the plan that are here, and the ETags that belong to them. */
static void count(struct hub_work *w, const struct hub_plan *before)
{
	char part[HUB_PATH_BYTES + 8];
	struct stat st;
	w->done = 0;
	for (size_t i = 0; i < w->plan.n; i++) {
		struct hub_entry *e = &w->plan.items[i];
		const struct hub_entry *was = hub_plan_find(before, e);
		if (was != NULL && e->etag[0] == '\0')
			memcpy(e->etag, was->etag, sizeof e->etag);
		snprintf(part, sizeof part, "%s.part", e->local);
		if (fstatat(w->staging, e->local, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
		    fstatat(w->staging, part, &st, AT_SYMLINK_NOFOLLOW) == 0)
			w->done += (uint64_t)st.st_size < e->file.size ? (uint64_t)st.st_size : e->file.size;
	}
}

static int check_room(const struct hub_work *w, struct sl_err *err)
{
	struct statvfs s;
	uint64_t left, want = w->plan.bytes - w->done + MARGIN;
	if (fstatvfs(w->staging, &s) != 0 || s.f_blocks == 0) /* the file system does not report it */
		return 0;
	if (__builtin_mul_overflow((uint64_t)s.f_bavail, (uint64_t)s.f_frsize, &left) || want <= left)
		return 0;
	return sl_errf(err, SL_ELIMIT, "the disk is too full: %" PRIu64 " MiB are needed, %" PRIu64 " MiB are free",
		       want >> 20, left >> 20);
}

int hub_stage_prepare(struct hub_work *w, struct sl_err *err)
{
	struct hub_plan before = {.items = NULL};
	if (hub_plan_read(w->staging, HUB_JOURNAL, &before) != 0)
		before = (struct hub_plan){.items = NULL};
	sweep(w->staging, "", &w->plan, &before, 0);
	count(w, &before);
	hub_plan_dispose(&before);
	int rc = check_room(w, err);
	if (rc != 0)
		return rc;
	rc = hub_plan_write(w->staging, HUB_JOURNAL, &w->plan);
	return rc == 0 ? 0 : sl_errf(err, rc == -ENOSPC ? SL_ELIMIT : SL_EIO, "can't write here: %s", strerror(-rc));
}

int hub_stage_compare(struct hub_work *w, bool *same, struct sl_err *err)
{
	struct hub_plan there;
	struct stat st;
	*same = false;
	if (fstatat(w->folder, w->order->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	int fd = hub_open_below(w->folder, w->order->name, O_RDONLY | O_DIRECTORY);
	int rc = fd >= 0 ? hub_plan_read(fd, HUB_MANIFEST, &there) : SL_EIO;
	if (fd >= 0)
		close(fd);
	if (rc != 0)
		return sl_errf(err, SL_EINVAL, "%s exists and was not pulled: --name chooses another name",
			       w->order->name);
	*same = hub_plan_equal(&w->plan, &there);
	if (strcmp(there.source, w->label) != 0)
		rc = sl_errf(err, SL_EINVAL, "%s is the model of %.300s already: --name chooses another name",
			     w->order->name, there.source);
	hub_plan_dispose(&there);
	return rc;
}

/* ---- the end ---- */

/* What the loader opens: a folder, or the first of the GGUF files. */
static const char *entrance(const struct hub_plan *p)
{
	const char *first = NULL;
	for (size_t i = 0; i < p->n; i++) {
		const char *name = p->items[i].local;
		size_t n = strlen(name);
		bool gguf = n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
		if (gguf && (first == NULL || strcmp(name, first) < 0))
			first = name;
	}
	return first != NULL ? first : ".";
}

int hub_stage_validate(struct hub_work *w, struct sl_err *err)
{
	struct sl_err why = {0};
	if (fchdir(w->staging) != 0)
		return sl_errf(err, SL_EIO, "%s", strerror(errno));
	int rc = model_check(entrance(&w->plan), NULL, 0, &why);
	/* One that this machine has no memory for is a good file. */
	return rc == 0 || rc == SL_ENOMEM || rc == SL_ELIMIT
		   ? 0
		   : sl_errf(err, SL_EUNSUPPORTED, "this build can't run it: %.400s", why.text);
}

static int publish(const struct hub_work *w)
{
	const char *name = w->order->name;
	if (renameat2(w->folder, w->staging_name, w->folder, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EEXIST && renameat2(w->folder, w->staging_name, w->folder, name, RENAME_EXCHANGE) == 0)
		return hub_remove(w->folder, w->staging_name); /* the earlier model */
	/* File systems without these renames: an empty name is the usual case. */
	if ((errno == EINVAL || errno == ENOSYS) && renameat(w->folder, w->staging_name, w->folder, name) == 0)
		return 0;
	return -errno;
}

int hub_stage_publish(struct hub_work *w, struct sl_err *err)
{
	int rc = hub_plan_write(w->staging, HUB_MANIFEST, &w->plan);
	if (rc == 0 && unlinkat(w->staging, HUB_JOURNAL, 0) != 0 && errno != ENOENT)
		rc = -errno;
	if (rc == 0 && fsync(w->staging) != 0 && errno != EINVAL)
		rc = -errno;
	if (rc == 0)
		rc = publish(w);
	if (rc == 0)
		(void)fsync(w->folder);
	return rc == 0 ? 0 : sl_errf(err, rc == -ENOSPC ? SL_ELIMIT : SL_EIO, "can't finish it: %s", strerror(-rc));
}

void hub_stage_remove(struct hub_work *w)
{
	if (w->staging < 0)
		return;
	(void)hub_remove(w->folder, w->staging_name);
	close(w->staging);
	w->staging = -1;
}
