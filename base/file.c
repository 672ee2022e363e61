/* SPDX-License-Identifier: Apache-2.0
 *
 * O_NONBLOCK makes open() return at once for a FIFO or a device; fstat() on the descriptor then identifies what was
 * opened, so renames in between have no effect. Reads of regular files ignore the flag.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/fault.h"

enum { PIECE = 16384 };

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode)    ? "it is a folder"
	       : S_ISFIFO(mode) ? "it is a FIFO"
	       : S_ISSOCK(mode) ? "it is a socket"
	       : S_ISLNK(mode)  ? "it is a symbolic link"
				: "it is a device";
}

static int refuse_open(const char *path, struct sl_err *why)
{
	struct stat st;
	int e = errno;
	/* A socket can't be opened at all, a link only where links are followed. */
	if ((e == ENXIO || e == ELOOP) && lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return sl_errf(why, SL_EINVAL, "%s", kind_of(st.st_mode));
	return sl_errf(why, e == ENOENT ? SL_ENOTFOUND : SL_EIO, "%s", strerror(e));
}

/* The supervisor may be configured to open what this process may not. */
static int open_granted(const char *path, struct sl_err *why)
{
	struct broker_file f;
	int fd = broker_open(path);
	if (fd == -EINVAL && broker_look(path, &f) == 0 && !S_ISREG(f.mode))
		return sl_errf(why, SL_EINVAL, "%s", kind_of(f.mode));
	errno = fd == -EPERM ? EACCES : fd < 0 ? -fd : 0;
	return fd < 0 ? refuse_open(path, why) : fd;
}

static int open_regular(const char *path, int flags, struct stat *st, struct sl_err *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags), rc = 0;
	if (fd < 0 && (errno != EACCES || !broker_there()))
		return refuse_open(path, why);
	if (fd < 0 && (fd = open_granted(path, why)) < 0)
		return fd;
	if (fstat(fd, st) != 0)
		rc = sl_errf(why, SL_EIO, "%s", strerror(errno));
	else if (!S_ISREG(st->st_mode))
		rc = sl_errf(why, SL_EINVAL, "%s", kind_of(st->st_mode));
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int file_open(const char *path, struct sl_err *why)
{
	struct stat st;
	return open_regular(path, 0, &st, why);
}

int file_stat(const char *path, struct stat *st)
{
	struct broker_file f;
	if (stat(path, st) == 0)
		return 0;
	if (errno != EACCES || !broker_there())
		return -1;
	int rc = broker_look(path, &f);
	errno = rc == -EPERM ? EACCES : -rc;
	if (rc < 0)
		return -1;
	*st = (struct stat){.st_mode = f.mode, .st_size = (off_t)f.bytes, .st_dev = f.dev, .st_ino = f.ino};
	return 0;
}

int file_open_private(const char *path, struct sl_err *why)
{
	struct stat st;
	int fd = open_regular(path, O_NOFOLLOW, &st, why);
	if (fd < 0 || ((st.st_mode & 077) == 0 && st.st_uid == geteuid()))
		return fd;
	close(fd);
	return sl_errf(why, SL_EINVAL, "must be a file of your own with mode 0600");
}

static int too_large(size_t most, struct sl_err *why)
{
	bool mib = most >= 1 << 20 && most % (1 << 20) == 0, kib = !mib && most >= 1 << 10 && most % (1 << 10) == 0;
	return sl_errf(why, SL_ELIMIT, "larger than %zu %s",
		       mib   ? most >> 20
		       : kib ? most >> 10
			     : most,
		       mib   ? "MiB"
		       : kib ? "KiB"
			     : "bytes");
}

void file_folder(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
	snprintf(out, size, "%.*s", (int)n, slash == NULL ? "." : path);
}

int file_make_private(const char *path, const void *bytes, size_t n)
{
	char aside[PATH_MAX];
	if ((size_t)snprintf(aside, sizeof aside, "%s.XXXXXX", path) >= sizeof aside) {
		errno = ENAMETOOLONG;
		return SL_EIO;
	}
	int fd = mkostemp(aside, O_CLOEXEC);
	if (fd < 0)
		return SL_EIO;
	bool made = file_write(fd, bytes, n) == 0 && fsync(fd) == 0 && (link(aside, path) == 0 || errno == EEXIST);
	int e = errno;
	close(fd);
	unlink(aside);
	errno = e;
	return made ? 0 : SL_EIO;
}

int file_read_fd(int fd, size_t most, struct sl_buf *out, struct sl_err *why)
{
	struct stat st;
	size_t before = out->len;
	if (fstat(fd, &st) == 0 && st.st_size > 0 && (size_t)st.st_size > most)
		return too_large(most, why);
	for (;;) {
		/* Up to one byte past the limit, to detect a file that grows meanwhile. */
		size_t room = most - (out->len - before) + 1;
		uint8_t *at;
		int rc = buf_reserve(out, room < PIECE ? room : PIECE, &at);
		if (rc != 0)
			return rc == SL_ELIMIT ? too_large(most, why) : sl_errf(why, rc, "no memory");
		ssize_t n = -1;
		if (fault_hit(FAULT_READ))
			errno = EIO;
		else
			n = read(fd, at, room < PIECE ? room : PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sl_errf(why, SL_EIO, "%s", strerror(errno));
		if (n == 0)
			return 0;
		buf_commit(out, (size_t)n);
		if (out->len - before > most)
			return too_large(most, why);
	}
}

size_t file_read_text(const char *root, const char *path, char *text, size_t size)
{
	char whole[PATH_MAX];
	size_t n = 0;
	ssize_t got;
	int fd = -1;
	if ((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) < sizeof whole)
		fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	while (fd >= 0 && n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	if (fd >= 0)
		(void)close(fd);
	return n;
}

int file_write(int fd, const void *p, size_t n)
{
	for (const char *at = p; n > 0;) {
		ssize_t wrote = write(fd, at, n);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return SL_EIO;
		at += wrote;
		n -= (size_t)wrote;
	}
	return 0;
}

int file_read(const char *path, size_t most, struct sl_buf *out, struct sl_err *why)
{
	buf_init(out, most + PIECE);
	int fd = file_open(path, why);
	if (fd < 0)
		return fd;
	int rc = file_read_fd(fd, most, out, why);
	close(fd);
	return rc;
}
