/* SPDX-License-Identifier: Apache-2.0 */
#include "base/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/broker.h"
#include "base/clock.h"
#include "base/file.h"

struct line_file {
	pthread_mutex_t lock;
	int fd; /* -1: reopening failed */
	uint64_t max_bytes;
	char *path, *before; /* FILE, FILE.1 */
	uint64_t looked_ns;  /* when the broker last looked up its name */
	bool torn;           /* its last line has no end */
};

enum { LOOK_MS = 1000 };

static int open_file(const char *path)
{
	struct stat st;
	/* O_NONBLOCK: opening a FIFO without a reader must not block. Only regular files can be rotated. */
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
	if (fd < 0 && errno == EACCES && broker_there() && (fd = broker_append(path)) < 0) {
		errno = fd == -EPERM ? EACCES : -fd;
		return -1;
	}
	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

int line_file_open(const char *key, const char *path, uint64_t max_bytes, struct line_file **out, struct sl_err *err)
{
	struct line_file *f = sl_zalloc(sizeof *f);
	size_t n = strlen(path);
	if (f == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", key);
	pthread_mutex_init(&f->lock, NULL);
	f->fd = -1;
	f->max_bytes = max_bytes;
	f->path = sl_strdup(path);
	f->before = sl_zalloc(n + 3);
	int rc = f->path == NULL || f->before == NULL ? sl_errf(err, SL_ENOMEM, "%s: no memory", key) : 0;
	if (rc == 0) {
		snprintf(f->before, n + 3, "%s.1", path);
		f->fd = open_file(path);
		if (f->fd < 0)
			rc = sl_errf(err, SL_EIO, "%s: %.300s: %s", key, path,
				     errno == ENXIO || errno == EINVAL ? "not a regular file" : strerror(errno));
	}
	if (rc != 0) {
		line_file_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

void line_file_close(struct line_file *f)
{
	if (f == NULL)
		return;
	if (f->fd >= 0)
		close(f->fd);
	pthread_mutex_destroy(&f->lock);
	sl_free(f->path);
	sl_free(f->before);
	sl_free(f);
}

static void reopen(struct line_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = open_file(f->path);
}

/* Does the name now refer to another file, or to none? */
static bool is_replaced(struct line_file *f, const struct stat *own)
{
	struct stat named;
	/* With a broker, the look-up may be a request to the supervisor: once a second at most. */
	if (broker_there() && clock_now_ns() - f->looked_ns < LOOK_MS * NS_PER_MS)
		return false;
	f->looked_ns = clock_now_ns();
	return file_stat(f->path, &named) != 0 || named.st_ino != own->st_ino || named.st_dev != own->st_dev;
}

static void make_room(struct line_file *f, size_t n)
{
	struct stat own;
	if (f->fd < 0 || fstat(f->fd, &own) != 0 || is_replaced(f, &own)) {
		reopen(f);
		if (f->fd < 0 || fstat(f->fd, &own) != 0)
			return;
	}
	if (f->max_bytes == 0 || own.st_size == 0 || (uint64_t)own.st_size + n <= f->max_bytes)
		return;
	/* If renaming fails, the file grows: no line is lost. */
	if (rename(f->path, f->before) != 0 && errno == EACCES)
		(void)broker_rotate(f->path);
	reopen(f);
}

/* A line that was cut off (a full disk) is ended first, so that it spoils no other. */
static bool write_all(struct line_file *f, const char *lines, size_t n)
{
	if (f->fd < 0)
		return false;
	if (f->torn && write(f->fd, "\n", 1) != 1)
		return false;
	ssize_t done = write(f->fd, lines, n);
	f->torn = done > 0 && done < (ssize_t)n;
	if (f->torn)
		errno = ENOSPC;
	return done == (ssize_t)n;
}

bool line_file_write(struct line_file *f, const void *lines, size_t n)
{
	pthread_mutex_lock(&f->lock);
	make_room(f, n);
	bool written = write_all(f, lines, n);
	int why = errno;
	pthread_mutex_unlock(&f->lock);
	errno = why;
	return written;
}
