/* SPDX-License-Identifier: Apache-2.0
 *
 * A listening socket stays open for as long as its address is served. When one process ends, connections wait in the
 * socket's queue, and the next process accepts them. Binding the address again with SO_REUSEPORT would create a second
 * queue, and closing the first socket would reset the connections in its queue.
 *
 * A socket is identified by the address it listens on, so only descriptors are sent. With several threads an address
 * has several sockets (SO_REUSEPORT), among which the kernel spreads connections. So each socket needs a thread that
 * accepts, even if the new process has fewer threads; listener.c distributes them.
 *
 * Ownership: the table owns its descriptors and callers get duplicates. Publishing empties the table: a descriptor left
 * open here would keep a queue that no thread serves. Thread: a lock guards the table, which is used at start only.
 */
#include "gateway/transport/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/log.h"

static struct {
	pthread_mutex_t lock;
	int sock; /* to the supervisor; -1 */
	struct fd_pass_set given, used;
	bool taken[FD_PASS_MAX]; /* for each in given: it is in used too */
	bool any;                /* sockets were received; never reset */
	bool lost;               /* a socket could not be noted, so nothing is published */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .sock = -1};

static bool same_address(const struct sockaddr *a, const struct sockaddr_storage *b)
{
	if (a->sa_family != b->ss_family)
		return false;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *x = (const void *)a, *y = (const void *)b;
		return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;
		return x->sin6_port == y->sin6_port && x->sin6_scope_id == y->sin6_scope_id &&
		       memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0;
	}
	if (a->sa_family == AF_UNIX) {
		const struct sockaddr_un *x = (const void *)a, *y = (const void *)b;
		return strncmp(x->sun_path, y->sun_path, sizeof x->sun_path) == 0;
	}
	return false;
}

static bool listens(int fd)
{
	int on = 0;
	socklen_t len = sizeof on;
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on != 0;
}

int handover_open(int fd, struct sl_err *err)
{
	struct fd_pass_in in = {.total = 0};
	if (fd <= 0)
		return 0;
	table.sock = fd;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		return sl_errf(err, SL_EIO, "the supervisor's socket: %s", strerror(errno));
	int rc = fd_pass_receive(fd, &in, &table.given);
	fd_pass_in_dispose(&in);
	if (rc < 0)
		return sl_errf(err, SL_EIO, "the supervisor's socket: no listeners received");
	table.any = table.given.n > 0;
	for (size_t i = 0; i < table.given.n; i++) {
		if (!listens(table.given.fds[i]))
			return sl_errf(err, SL_EIO, "a socket from the supervisor does not listen");
	}
	return 0;
}

int handover_hold(const int *fds, size_t n)
{
	int rc = 0;
	pthread_mutex_lock(&table.lock);
	for (size_t i = 0; rc == 0 && i < n && table.given.n < FD_PASS_MAX; i++) {
		int own = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (own >= 0)
			table.given.fds[table.given.n++] = own;
		else
			rc = SL_EIO;
	}
	pthread_mutex_unlock(&table.lock);
	return rc;
}

/* With the lock held. The index in given of the k-th socket on that address; given.n: none. */
static size_t find(const struct sockaddr *sa, size_t k)
{
	for (size_t i = 0; i < table.given.n; i++) {
		struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
		socklen_t n = sizeof at;
		if (getsockname(table.given.fds[i], (struct sockaddr *)&at, &n) == 0 && same_address(sa, &at) &&
		    k-- == 0)
			return i;
	}
	return table.given.n;
}

bool handover_given(void) { return table.any; }

size_t handover_count(const struct sockaddr *sa)
{
	size_t n = 0;
	pthread_mutex_lock(&table.lock);
	while (find(sa, n) < table.given.n)
		n++;
	pthread_mutex_unlock(&table.lock);
	return n;
}

/* With the lock held. */
static void note(int fd)
{
	int own = table.used.n < FD_PASS_MAX ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (own < 0)
		table.lost = true;
	else
		table.used.fds[table.used.n++] = own;
}

int handover_take(const struct sockaddr *sa, size_t k)
{
	int fd = SL_EIO;
	pthread_mutex_lock(&table.lock);
	size_t i = find(sa, k);
	if (i < table.given.n) {
		fd = fcntl(table.given.fds[i], F_DUPFD_CLOEXEC, 3);
		if (fd >= 0 && !table.taken[i])
			note(fd);
		table.taken[i] = true;
	}
	pthread_mutex_unlock(&table.lock);
	return fd >= 0 ? fd : SL_EIO;
}

void handover_note(int fd)
{
	pthread_mutex_lock(&table.lock);
	if (table.sock >= 0)
		note(fd);
	pthread_mutex_unlock(&table.lock);
}

static void empty_table(void)
{
	fd_pass_set_dispose(&table.given);
	fd_pass_set_dispose(&table.used);
	memset(table.taken, 0, sizeof table.taken);
	table.lost = false;
}

int handover_publish(void)
{
	int rc = 0;
	pthread_mutex_lock(&table.lock);
	if (table.sock >= 0)
		rc = table.lost ? SL_ELIMIT : fd_pass_send(table.sock, table.used.fds, table.used.n);
	if (rc != 0)
		log_warn("can't hand over the listeners; the next upgrade will be refused");
	empty_table();
	pthread_mutex_unlock(&table.lock);
	return rc;
}

void handover_close(void)
{
	empty_table();
	if (table.sock >= 0)
		close(table.sock);
	table.sock = -1;
}
