/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench_box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_folder.h"

enum { UP_S = 120, LOOK_MS = 20, CONFIG_BYTES = 8192, REPLY_BYTES = 512 };

void bench_box_hash(const char *key, char out[65]) { cache_sha256_hex(key, strlen(key), out); }

int bench_box_open(struct bench_box *b, struct sl_err *err)
{
	*b = (struct bench_box){0};
	int rc = bench_folder_make(b->dir, sizeof b->dir, err);
	if (rc != 0)
		return rc;
	snprintf(b->config, sizeof b->config, "%s/sluice.yaml", b->dir);
	snprintf(b->log, sizeof b->log, "%s/log", b->dir);
	snprintf(b->socket, sizeof b->socket, "%s/engine.sock", b->dir);
	return 0;
}

static int write_config(const struct bench_box *b, const char *engine, const char *gateway, uint16_t port,
			struct sl_err *err)
{
	char text[CONFIG_BYTES];
	int n = snprintf(text, sizeof text,
			 "state: %s/state\nlog:\n  level: error\ncache:\n  store: memory\n"
			 "engine:\n  socket: %s\n%sgateway:\n  https: off\n  http: 127.0.0.1:%u\n%s",
			 b->dir, b->socket, engine, port, gateway);
	return n < (int)sizeof text ? bench_folder_write(b->config, text, err) : SL_ELIMIT;
}

static bool is_ready(const struct load_target *t)
{
	static const char ask[] = "GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
	char reply[REPLY_BYTES] = "";
	int fd = socket(t->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && connect(fd, (const struct sockaddr *)&t->addr, t->addr_bytes) == 0 &&
		  send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof ask - 1) &&
		  recv(fd, reply, sizeof reply - 1, 0) > 0;
	if (fd >= 0)
		close(fd);
	return ok && strncmp(reply, "HTTP/1.1 200", 12) == 0;
}

int bench_box_start_engine(struct bench_box *b, bool echo, int cpu, struct sl_err *err)
{
	static char config_flag[] = "-c", echo_flag[] = "--echo", name[] = "engine";
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char *argv[] = {(char *)bench_server(), name, config_flag, b->config, echo ? echo_flag : NULL, NULL};
	if (strlen(b->socket) >= sizeof un.sun_path)
		return sl_errf(err, SL_EINVAL, "%s: too long for a socket's path", b->socket);
	memcpy(un.sun_path, b->socket, strlen(b->socket) + 1);
	int rc = bench_child_start(&b->engine, argv, cpu, b->log, err);
	return rc == 0 ? bench_child_await(&b->engine, (struct sockaddr *)&un, sizeof un, name, b->log, err) : rc;
}

int bench_box_start(struct bench_box *b, const char *engine, const char *gateway, bool echo, struct sl_err *err)
{
	static char config_flag[] = "-c", name[] = "gateway";
	char *argv[] = {(char *)bench_server(), name, config_flag, b->config, NULL};
	char url[64];
	uint16_t port = bench_free_port();
	uint64_t deadline = clock_now_ns() + UP_S * NS_PER_S;
	snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
	int rc = load_target_parse(url, &b->target, err);
	if (rc == 0)
		rc = write_config(b, engine, gateway, port, err);
	if (rc == 0)
		rc = bench_box_start_engine(b, echo, -1, err);
	if (rc == 0)
		rc = bench_child_start(&b->gateway, argv, -1, b->log, err);
	while (rc == 0 && !is_ready(&b->target)) {
		if (!bench_child_alive(&b->gateway) || !bench_child_alive(&b->engine) || clock_now_ns() > deadline)
			return bench_child_no_start(bench_child_alive(&b->engine) ? "gateway" : "engine", b->log, err);
		usleep(LOOK_MS * 1000);
	}
	return rc;
}

void bench_box_stop(struct bench_box *b)
{
	bench_child_stop(&b->gateway);
	bench_child_stop(&b->engine);
}

void bench_box_close(struct bench_box *b)
{
	bench_box_stop(b);
	bench_folder_remove(b->dir);
}
