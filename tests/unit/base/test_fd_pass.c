/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of descriptors over a socket: whole, large, in pieces that do not fit together, and gone peers.
 * What is refused leaks nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd_pass.h"

static int n_open(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static ino_t inode(int fd)
{
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void sets_arrive_whole(void **state)
{
	static const size_t sizes[] = {0, 1, 200, 201, 450};
	static struct fd_pass_set sent, got;
	static struct fd_pass_in in;
	int ends[2], before = n_open();
	(void)state;
	assert_int_equal(fd_pass_pair(ends), 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		for (sent.n = 0; sent.n < sizes[i]; sent.n++)
			assert_true((sent.fds[sent.n] = dup(ends[sent.n % 2])) >= 0);
		assert_int_equal(fd_pass_receive(ends[1], &in, &got), 0);
		assert_int_equal(fd_pass_send(ends[0], sent.fds, sent.n), 0);
		assert_int_equal(fd_pass_receive(ends[1], &in, &got), 1);
		assert_int_equal(got.n, sizes[i]);
		for (size_t k = 0; k < got.n; k++) {
			assert_int_equal(inode(got.fds[k]), inode(sent.fds[k]));
			assert_true(fcntl(got.fds[k], F_GETFD) & FD_CLOEXEC);
		}
		fd_pass_set_dispose(&sent);
		fd_pass_set_dispose(&got);
	}
	/* What was sent before the sender went is there, then its end. */
	int one = dup(0);
	assert_int_equal(fd_pass_send(ends[0], &one, 1), 0);
	close(one);
	close(ends[0]);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), 1);
	fd_pass_set_dispose(&got);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), SL_ECLOSED);
	assert_int_equal(fd_pass_send(ends[1], NULL, 0), SL_EIO);
	close(ends[1]);
	assert_int_equal(n_open(), before);
	assert_int_equal(fd_pass_send(-1, NULL, FD_PASS_MAX + 1), SL_ELIMIT);
}

/* One message as fd_pass.c writes it, or not quite. */
static void send_raw(int sock, uint32_t at, uint32_t total, size_t bytes, int n_fds)
{
	uint32_t head[3] = {at, total, 0};
	union {
		char bytes[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control = {.bytes = ""};
	struct iovec iov = {.iov_base = head, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
		memset(CMSG_DATA(c), 0, (size_t)n_fds * sizeof(int)); /* descriptor 0 */
	}
	assert_int_equal(sendmsg(sock, &msg, 0), bytes);
}

static void what_does_not_fit_is_refused(void **state)
{
	static struct fd_pass_in in;
	static struct fd_pass_set got;
	static const struct {
		uint32_t at, total;
		size_t bytes;
		int n_fds;
	} wrong[] = {
	    {1, 2, 8, 1}, /* not the first */
	    {0, 1, 8, 2}, /* more than it says */
	    {0, FD_PASS_MAX + 1, 8, 1},
	    {0, 1, 4, 1},
	    {0, 1, 12, 1},
	};
	int ends[2], before = n_open();
	(void)state;
	assert_int_equal(fd_pass_pair(ends), 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		send_raw(ends[0], wrong[i].at, wrong[i].total, wrong[i].bytes, wrong[i].n_fds);
		assert_int_equal(fd_pass_receive(ends[1], &in, &got), SL_EPROTO);
		assert_int_equal(n_open(), before + 2);
	}
	/* A set that is begun and never ended makes room for the next; pieces of two do not mix. */
	send_raw(ends[0], 0, 4, 8, 2);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), 0);
	send_raw(ends[0], 0, 1, 8, 1);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), 1);
	assert_int_equal(got.n, 1);
	fd_pass_set_dispose(&got);
	send_raw(ends[0], 0, 4, 8, 2);
	send_raw(ends[0], 2, 3, 8, 1);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), SL_EPROTO);
	assert_int_equal(n_open(), before + 2);
	send_raw(ends[0], 0, 4, 8, 2);
	assert_int_equal(fd_pass_receive(ends[1], &in, &got), 0);
	fd_pass_in_dispose(&in);
	assert_int_equal(n_open(), before + 2);
	close(ends[0]);
	close(ends[1]);
}

static void no_descriptors_left(void **state)
{
	static struct fd_pass_in in;
	static struct fd_pass_set got;
	int ends[2], fds[3] = {0, 0, 0};
	struct rlimit lim, tight;
	(void)state;
	assert_int_equal(fd_pass_pair(ends), 0);
	assert_int_equal(fd_pass_send(ends[0], fds, 3), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	tight = lim;
	int before = n_open(), next = dup(0);
	close(next);
	tight.rlim_cur = (rlim_t)next + 1; /* room for one */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	int rc = fd_pass_receive(ends[1], &in, &got);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	assert_int_equal(rc, SL_EPROTO);
	assert_int_equal(n_open(), before);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sets_arrive_whole),
	    cmocka_unit_test(what_does_not_fit_is_refused),
	    cmocka_unit_test(no_descriptors_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
