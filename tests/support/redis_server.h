/* SPDX-License-Identifier: Apache-2.0
 *
 * A private redis-server for a test: its own folder, a unix socket, no TCP, no persistence. redis_server_start starts
 * it; redis_server_stop ends it, or the kernel if the test dies.
 */
#ifndef TESTS_SUPPORT_REDIS_SERVER_H
#define TESTS_SUPPORT_REDIS_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

struct redis_server {
	char dir[64];
	char socket[80];
	char address[96];     /* for cache_config */
	pid_t pid;            /* 0: not running */
	redisContext *direct; /* a blocking connection of the test's own */
};

static inline bool redis_server_installed(void)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path == NULL ? "/usr/bin" : path), *rest = copy, file[512];
	bool found = false;
	for (char *dir; !found && (dir = strsep(&rest, ":")) != NULL;) {
		snprintf(file, sizeof file, "%s/redis-server", dir);
		found = access(file, X_OK) == 0;
	}
	free(copy);
	return found;
}

/* A pause between two polls of something outside this process. */
static inline void redis_server_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

static inline void redis_server_name(struct redis_server *s)
{
	const char *tmp = getenv("TMPDIR");
	snprintf(s->dir, sizeof s->dir, "%.40s/redis-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	BUG_IF(mkdtemp(s->dir) == NULL, "%s: %s", s->dir, strerror(errno));
	snprintf(s->socket, sizeof s->socket, "%s/s", s->dir);
	snprintf(s->address, sizeof s->address, "unix:%s", s->socket);
}

/* Starts it in its folder (made when there is none yet) with up to six more arguments; returns once it answers
 * anything. */
static inline void redis_server_start(struct redis_server *s, const char *const *more)
{
	if (s->dir[0] == '\0')
		redis_server_name(s);
	const char *argv[24] = {"redis-server", "--port", "0", "--unixsocket", s->socket, "--dir",
				s->dir,         "--save", "",  "--appendonly", "no",      "--hz",
				"100"};
	size_t n = 13;
	for (size_t i = 0; more != NULL && more[i] != NULL && i < 6; i++)
		argv[n++] = more[i];
	unlink(s->socket);
	s->pid = fork();
	BUG_IF(s->pid < 0, "fork: %s", strerror(errno));
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		execvp("redis-server", (char *const *)argv);
		_exit(127);
	}
	for (int tries = 0;; tries++) {
		BUG_IF(tries == 5000 || waitpid(s->pid, NULL, WNOHANG) != 0, "redis-server doesn't start");
		redisContext *c = redisConnectUnix(s->socket);
		if (c != NULL && c->err == 0) {
			redisReply *r = redisCommand(c, "PING");
			if (r != NULL) {
				freeReplyObject(r);
				s->direct = c;
				return;
			}
		}
		if (c != NULL)
			redisFree(c);
		redis_server_pause();
	}
}

static inline void redis_server_kill(struct redis_server *s)
{
	if (s->direct != NULL)
		redisFree(s->direct);
	s->direct = NULL;
	if (s->pid <= 0)
		return;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

static inline void redis_server_stop(struct redis_server *s)
{
	redis_server_kill(s);
	if (s->dir[0] == '\0')
		return;
	unlink(s->socket);
	BUG_IF(rmdir(s->dir) != 0, "%s: %s", s->dir, strerror(errno));
	s->dir[0] = '\0';
}

/* One command of the test's own; the reply is the caller's (freeReplyObject). */
#define redis_server_ask(s, ...)                                                 \
	({                                                                       \
		redisReply *reply_ = redisCommand((s)->direct, __VA_ARGS__);     \
		BUG_IF(reply_ == NULL, "redis-server: %s", (s)->direct->errstr); \
		reply_;                                                          \
	})
/* The same for commands whose answer is a number or irrelevant. */
#define redis_server_number(s, ...)                                                     \
	({                                                                              \
		redisReply *got_ = redis_server_ask(s, __VA_ARGS__);                    \
		BUG_IF(got_->type == REDIS_REPLY_ERROR, "redis-server: %s", got_->str); \
		long long number_ = got_->integer;                                      \
		freeReplyObject(got_);                                                  \
		number_;                                                                \
	})

#endif
