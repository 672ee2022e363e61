/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket file outlives its process. The kernel shows whether it is stale: a connection is refused only when no
 * process listens. A lock on the folder (released by the kernel with the process) is held from that check until the
 * file has been replaced, so that two processes can't do it at once.
 *
 * The permissions are set on the socket before it is bound, and Linux copies them to the file: it is never open to more
 * users than configured.
 *
 * In a process with a broker (base/broker.h) the broker does all of this, because only root may write to the folder.
 *
 * Thread: any; the list of shared sockets is under one lock, and opening is rare.
 */
#include "gateway/transport/unix_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/broker.h"
#include "base/file.h"

enum { BACKLOG = 1024, LOCK_TRIES = 100, LOCK_PAUSE_US = 10000 };

struct shared {
	struct shared *next;
	struct sockaddr_un sa;
	int fd, users;
	dev_t dev;
	ino_t ino;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all;

bool unix_mode_parse(const char *text, mode_t *out)
{
	size_t n = strspn(text, "01234567");
	if (n == 0 || n > 4 || text[n] != '\0')
		return false;
	unsigned long mode = strtoul(text, NULL, 8);
	*out = (mode_t)mode;
	return mode <= 0777;
}

bool unix_address(const char *path, struct sockaddr_un *out)
{
	size_t n = strlen(path);
	memset(out, 0, sizeof *out);
	out->sun_family = AF_UNIX;
	if (n == 0 || n >= sizeof out->sun_path)
		return false;
	memcpy(out->sun_path, path, n);
	return true;
}

static int make_address(const char *path, struct sockaddr_un *sa, struct sl_err *err)
{
	return unix_address(path, sa) ? 0 : sl_errf(err, SL_EINVAL, "%.40s…: too long for a socket's path", path);
}

/* What exists at the path: 0 nothing, 1 a stale socket, or SL_EIO. */
static int look(const struct sockaddr_un *sa, struct sl_err *err)
{
	struct stat st;
	if (lstat(sa->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : sl_errf(err, SL_EIO, "%s: %s", sa->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return sl_errf(err, SL_EIO, "%s: exists and is not a socket", sa->sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sl_errf(err, SL_EIO, "%s: can't create a socket: %s", sa->sun_path, strerror(errno));
	int e = connect(fd, (const struct sockaddr *)sa, sizeof *sa) == 0 ? 0 : errno;
	close(fd);
	if (e == ECONNREFUSED)
		return 1;
	if (e == 0 || e == EAGAIN)
		return sl_errf(err, SL_EIO, "%s: another program listens there", sa->sun_path);
	return sl_errf(err, SL_EIO, "%s: %s", sa->sun_path, strerror(e));
}

int unix_listen_check(const char *path, struct sl_err *err)
{
	struct sockaddr_un sa;
	int rc = make_address(path, &sa, err);
	if (rc == 0 && !broker_there())
		rc = look(&sa, err);
	return rc < 0 ? rc : 0;
}

/* Sets the mode of the socket itself; links are not followed. */
int unix_listen_mode(const char *path, mode_t mode, struct stat *st)
{
	char self[32];
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = -1;
	if (fd < 0)
		return -1;
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	if (fstat(fd, st) == 0 && S_ISSOCK(st->st_mode))
		rc = chmod(self, mode);
	close(fd);
	return rc;
}

/* A descriptor of the folder, locked. */
static int lock_folder(const char *path, struct sl_err *err)
{
	char folder[sizeof((struct sockaddr_un *)NULL)->sun_path];
	file_folder(path, folder, sizeof folder);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return sl_errf(err, SL_EIO, "%s: %s", folder, strerror(errno));
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
		if (i == LOCK_TRIES) {
			close(fd);
			return sl_errf(err, SL_EIO, "%s: the folder is locked", folder);
		}
		usleep(LOCK_PAUSE_US);
	}
	return fd;
}

static int bind_there(struct shared *s, mode_t mode, struct sl_err *err)
{
	struct stat st;
	int stale = look(&s->sa, err);
	if (stale < 0)
		return stale;
	if (stale > 0 && unlink(s->sa.sun_path) != 0)
		return sl_errf(err, SL_EIO, "%s: can't remove the stale socket: %s", s->sa.sun_path, strerror(errno));
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || fchmod(s->fd, mode) != 0 || bind(s->fd, (const struct sockaddr *)&s->sa, sizeof s->sa) != 0 ||
	    unix_listen_mode(s->sa.sun_path, mode, &st) != 0 || listen(s->fd, BACKLOG) != 0) {
		int e = errno;
		if (s->fd >= 0)
			close(s->fd);
		return sl_errf(err, SL_EIO, "%s: cannot listen: %s", s->sa.sun_path, strerror(e));
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return 0;
}

/* Uses a socket that another process has bound. Its file may have another mode or be missing. */
static void adopt(struct shared *s, int given, mode_t mode)
{
	struct stat st;
	s->fd = given;
	if (unix_listen_mode(s->sa.sun_path, mode, &st) == 0) {
		s->dev = st.st_dev;
		s->ino = st.st_ino;
	}
}

static int ask_broker(struct shared *s, int given, mode_t mode, struct sl_err *err)
{
	struct broker_file f = {0};
	int rc = given >= 0 ? broker_adopt(s->sa.sun_path, mode, &f) : broker_listen(s->sa.sun_path, mode, &f);
	if (rc < 0 && given < 0)
		return sl_errf(err, SL_EIO,
			       rc == -EADDRINUSE ? "%s: another program listens there" : "%s: cannot listen: %s",
			       s->sa.sun_path, strerror(-rc));
	s->fd = given >= 0 ? given : rc;
	s->dev = (dev_t)f.dev;
	s->ino = (ino_t)f.ino;
	return 0;
}

static int open_here(struct shared *s, const char *path, int given, mode_t mode, struct sl_err *err)
{
	int rc = 0, folder = lock_folder(path, err);
	if (folder < 0)
		return folder;
	if (given >= 0)
		adopt(s, given, mode);
	else
		rc = bind_there(s, mode, err);
	close(folder);
	return rc;
}

static int open_shared(const char *path, mode_t mode, int given, struct shared **out, struct sl_err *err)
{
	struct shared *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	int rc = make_address(path, &s->sa, err);
	if (rc == 0)
		rc = broker_there() ? ask_broker(s, given, mode, err) : open_here(s, path, given, mode, err);
	if (rc != 0) {
		sl_free(s);
		return rc;
	}
	s->next = all;
	all = s;
	*out = s;
	return 0;
}

static struct shared **find(const char *path)
{
	struct shared **at = &all;
	while (*at != NULL && strcmp((*at)->sa.sun_path, path) != 0)
		at = &(*at)->next;
	return at;
}

/* Under the lock. */
static void close_shared(struct shared **at, bool stays)
{
	struct shared *s = *at;
	struct stat st;
	*at = s->next;
	if (!stays && broker_there())
		(void)broker_remove(s->sa.sun_path, s->dev, s->ino);
	else if (!stays && lstat(s->sa.sun_path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino)
		unlink(s->sa.sun_path);
	close(s->fd);
	sl_free(s);
}

int unix_listen_open(const char *path, mode_t mode, int given, struct sl_err *err)
{
	int rc = 0, fd = -1;
	pthread_mutex_lock(&lock);
	struct shared **at = find(path), *s = *at;
	if (s == NULL)
		rc = open_shared(path, mode, given, &s, err);
	if (given >= 0 && (rc != 0 || s->fd != given))
		close(given); /* they share the first */
	if (rc == 0) {
		fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			rc = sl_errf(err, SL_EIO, "%s: no descriptor: %s", path, strerror(errno));
		else
			s->users++;
		if (s->users == 0)
			close_shared(find(path), given >= 0);
	}
	pthread_mutex_unlock(&lock);
	return rc != 0 ? rc : fd;
}

void unix_listen_release(const char *path, bool stays)
{
	pthread_mutex_lock(&lock);
	struct shared **at = find(path);
	BUG_IF(*at == NULL, "%s was not opened", path);
	if (--(*at)->users == 0)
		close_shared(at, stays);
	pthread_mutex_unlock(&lock);
}
