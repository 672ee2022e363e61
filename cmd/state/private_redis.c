/* SPDX-License-Identifier: Apache-2.0
 *
 * The private redis-server: in the state folder (0700), on a unix socket that only its owner may open, without TCP,
 * with an append-only file. It changes its directory, so its socket has a name relative to that and one for us. When
 * its memory is full, it evicts the least recently used of the keys that expire: limits in use stay longest.
 */
#include "cmd/state/private_redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIR_ARG = 2 };

static bool find_along_path(const char *name, char *out, size_t size)
{
	const char *path = getenv("PATH");
	if (path == NULL)
		path = "/usr/local/bin:/usr/bin:/bin";
	while (*path != '\0') {
		size_t n = strcspn(path, ":");
		struct stat st;
		/* An empty or relative folder would depend on the working directory. */
		if (*path == '/' && (size_t)snprintf(out, size, "%.*s/%s", (int)n, path, name) < size &&
		    access(out, X_OK) == 0 && stat(out, &st) == 0 && S_ISREG(st.st_mode))
			return true;
		path += n + (path[n] == ':');
	}
	out[0] = '\0';
	return false;
}

bool private_redis_find(struct private_redis *r, const char *state, uint64_t memory_bytes)
{
	snprintf(r->dir, sizeof r->dir, "%s/redis", state);
	snprintf(r->socket, sizeof r->socket, "%s/run/redis.sock", state);
	snprintf(r->address, sizeof r->address, "unix:%s", r->socket);
	snprintf(r->memory, sizeof r->memory, "%llu", (unsigned long long)memory_bytes);
	/* --dir first: the other paths are relative to it. */
	const char *const argv[] = {"redis-server",
				    "--dir",
				    r->dir,
				    "--port",
				    "0",
				    "--unixsocket",
				    "../run/redis.sock",
				    "--unixsocketperm",
				    "700",
				    "--appendonly",
				    "yes",
				    "--appendfsync",
				    "everysec",
				    "--save",
				    "",
				    "--maxmemory",
				    r->memory,
				    "--maxmemory-policy",
				    "volatile-lru",
				    "--logfile",
				    "redis.log",
				    "--loglevel",
				    "warning",
				    "--daemonize",
				    "no",
				    NULL};
	_Static_assert(sizeof argv <= sizeof r->argv, "room for the command line");
	memcpy(r->argv, argv, sizeof argv);
	return find_along_path("redis-server", r->exe, sizeof r->exe);
}

void private_redis_starts_in_state(struct private_redis *r) { r->argv[DIR_ARG] = "redis"; }

int private_redis_prepare(const struct private_redis *r, struct sl_err *err)
{
	if (mkdir(r->dir, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EIO, "can't create %s: %s", r->dir, strerror(errno));
	return 0;
}
