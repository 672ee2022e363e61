/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/state/state.h"

enum { DEEPEST = 8 };

/* ---- the folder ---- */

/* STATE/models. */
static int open_in_state(const struct sluice_config *cfg, struct hub_folder *f, struct sl_err *err)
{
	int state = state_open(cfg->state, &f->user, err);
	if (state < 0)
		return state;
	privileges_as_user(&f->user);
	f->fd = mkdirat(state, "models", 0755) == 0 || errno == EEXIST
		    ? openat(state, "models", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
		    : -1;
	int e = errno;
	privileges_as_before(&f->user);
	close(state);
	return f->fd >= 0 ? 0 : sl_errf(err, SL_EIO, "%s: %s", f->path, strerror(e));
}

/* hub.folder: of whoever made it; one that is made here goes to the engine's user. */
static int open_own(struct hub_folder *f, struct sl_err *err)
{
	bool made = mkdir(f->path, 0755) == 0;
	if (!made && errno != EEXIST)
		return sl_errf(err, SL_EIO, "can't create %s: %s", f->path, strerror(errno));
	f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->fd >= 0 && made && f->user.change && fchown(f->fd, f->user.uid, f->user.gid) != 0) {
		close(f->fd);
		f->fd = -1;
	}
	return f->fd >= 0 ? 0 : sl_errf(err, SL_EIO, "%s: %s", f->path, strerror(errno));
}

/* A folder of root's can't be written by another user: before anything is fetched. */
static int check_rights(struct hub_folder *f, struct sl_err *err)
{
	privileges_as_user(&f->user);
	int rc = faccessat(f->fd, ".", R_OK | W_OK | X_OK, AT_EACCESS), e = errno;
	privileges_as_before(&f->user);
	if (rc == 0)
		return 0;
	hub_folder_close(f);
	return sl_errf(err, SL_EIO, "%s: uid %u may not write to this folder (%s); --folder DIR names another one",
		       f->path, (unsigned)f->user.uid, strerror(e));
}

int hub_folder_open(const struct sluice_config *cfg, struct hub_folder *out, struct sl_err *err)
{
	*out = (struct hub_folder){.fd = -1};
	int rc = privileges_user(cfg->supervisor.user, &out->user, err);
	if (rc != 0)
		return rc;
	snprintf(out->path, sizeof out->path, "%s", cfg->models_folder);
	rc = cfg->hub.folder[0] == '\0' ? open_in_state(cfg, out, err) : open_own(out, err);
	return rc == 0 ? check_rights(out, err) : rc;
}

void hub_folder_close(struct hub_folder *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

void hub_staging_name(const char *name, char *out, size_t size) { snprintf(out, size, ".%s.pull", name); }

/* ---- entries ---- */

int hub_open_below(int dir, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
			       .mode = flags & O_CREAT ? 0644 : 0,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
	/* Before Linux 5.6, or in a container that hides it. Callers have checked the path. */
	if (fd < 0 && errno == ENOSYS)
		fd = openat(dir, path, flags | O_CLOEXEC | O_NOFOLLOW, 0644);
	return fd >= 0 ? fd : -errno;
}

int hub_make_parents(int dir, const char *path)
{
	char part[PATH_MAX];
	for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
		if (mkdirat(dir, part, 0755) != 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static DIR *open_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (d == NULL && fd >= 0)
		close(fd);
	return d;
}

static bool is_entry(const struct dirent *e) { return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0; }

static int remove_at(int dir, const char *name, int depth)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth == DEEPEST)
		return -ELOOP; /* no folder of ours is so deep */
	DIR *d = open_folder(dir, name);
	int rc = d == NULL ? -errno : 0;
	for (const struct dirent *e; d != NULL && rc == 0 && (e = readdir(d)) != NULL;)
		if (is_entry(e))
			rc = remove_at(dirfd(d), e->d_name, depth + 1);
	if (d != NULL)
		closedir(d);
	return rc != 0 ? rc : unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
}

int hub_remove(int dir, const char *name) { return remove_at(dir, name, 0); }

static uint64_t bytes_at(int dir, const char *name, int depth)
{
	struct stat st;
	uint64_t sum = 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	DIR *d = depth < DEEPEST ? open_folder(dir, name) : NULL;
	for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
		sum += is_entry(e) ? bytes_at(dirfd(d), e->d_name, depth + 1) : 0;
	if (d != NULL)
		closedir(d);
	return sum;
}

uint64_t hub_bytes_in(int dir, const char *name) { return bytes_at(dir, name, 0); }
