/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line is one write(2) on a descriptor opened with O_APPEND, so lines of two processes (during an upgrade) do not
 * mix. The process that finds the file too large renames it; at its next line, the other sees that the name refers to
 * another file and opens that. A line of at most some KiB goes to the page cache, so the event loop does not wait for a
 * disk.
 */
#include "gateway/cascade/cascade_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/broker.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/metrics.h"

struct cascade_log {
	pthread_mutex_t lock;
	int fd; /* -1: reopening failed */
	uint64_t max_bytes;
	char *path, *before; /* FILE, FILE.1 */
	uint64_t looked_ns;  /* when the broker last looked up its name */
};

enum { LOOK_MS = 1000 };

COUNTER(lost_total, "sluice_cascade_log_lost_total",
	"Outcomes of the cascade that could not be written to the file cascade.log");

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

int cascade_log_open(const char *path, uint64_t max_bytes, struct cascade_log **out, struct sl_err *err)
{
	struct cascade_log *log = sl_zalloc(sizeof *log);
	size_t n = strlen(path);
	if (log == NULL)
		return sl_errf(err, SL_ENOMEM, "cascade.log: no memory");
	pthread_mutex_init(&log->lock, NULL);
	log->fd = -1;
	log->max_bytes = max_bytes;
	log->path = sl_strdup(path);
	log->before = sl_zalloc(n + 3);
	int rc = log->path == NULL || log->before == NULL ? sl_errf(err, SL_ENOMEM, "cascade.log: no memory") : 0;
	if (rc == 0) {
		snprintf(log->before, n + 3, "%s.1", path);
		log->fd = open_file(path);
		if (log->fd < 0)
			rc = sl_errf(err, SL_EIO, "cascade.log: %.300s: %s", path,
				     errno == ENXIO || errno == EINVAL ? "not a regular file" : strerror(errno));
	}
	if (rc != 0) {
		cascade_log_close(log);
		return rc;
	}
	*out = log;
	return 0;
}

void cascade_log_close(struct cascade_log *log)
{
	if (log == NULL)
		return;
	if (log->fd >= 0)
		close(log->fd);
	pthread_mutex_destroy(&log->lock);
	sl_free(log->path);
	sl_free(log->before);
	sl_free(log);
}

static void reopen(struct cascade_log *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = open_file(log->path);
}

/* Does the name now refer to another file, or to none? */
static bool is_replaced(struct cascade_log *log, const struct stat *own)
{
	struct stat named;
	/* With a broker, the look-up may be a request to the supervisor: once a second at most. */
	if (broker_there() && clock_now_ns() - log->looked_ns < LOOK_MS * NS_PER_MS)
		return false;
	log->looked_ns = clock_now_ns();
	return file_stat(log->path, &named) != 0 || named.st_ino != own->st_ino || named.st_dev != own->st_dev;
}

static void make_room(struct cascade_log *log, size_t n)
{
	struct stat own;
	if (log->fd < 0 || fstat(log->fd, &own) != 0 || is_replaced(log, &own)) {
		reopen(log);
		if (log->fd < 0 || fstat(log->fd, &own) != 0)
			return;
	}
	if (log->max_bytes == 0 || own.st_size == 0 || (uint64_t)own.st_size + n <= log->max_bytes)
		return;
	/* If renaming fails, the file grows: no line is lost. */
	if (rename(log->path, log->before) != 0 && errno == EACCES)
		(void)broker_rotate(log->path);
	reopen(log);
}

void cascade_log_write(struct cascade_log *log, const void *line, size_t n)
{
	pthread_mutex_lock(&log->lock);
	make_room(log, n);
	bool written = log->fd >= 0 && write(log->fd, line, n) == (ssize_t)n;
	pthread_mutex_unlock(&log->lock);
	metric_add(&lost_total, !written);
}
