/* SPDX-License-Identifier: Apache-2.0
 *
 * The broker: an unprivileged process asks the supervisor, over a message socket, to open files and sockets that the
 * configuration names and only root may open. Both ends of the protocol are here; cmd/serve/grant.h decides what is
 * granted. Each process has one request in flight and every wait has a deadline.
 *
 * A process without a broker (started by hand) gets -EPERM from every request.
 */
#ifndef BASE_BROKER_H
#define BASE_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum broker_op {
	BROKER_MALFORMED, /* never sent: the message is no request */
	BROKER_OPEN,      /* a regular file, for reading → descriptor */
	BROKER_LOOK,      /* a name's broker_file */
	BROKER_APPEND,    /* a log, created if missing → descriptor */
	BROKER_ROTATE,    /* a log becomes LOG.1 */
	BROKER_BIND,      /* binds the caller's socket to an address */
	BROKER_LISTEN,    /* a listening unix socket → descriptor, broker_file */
	BROKER_ADOPT,     /* sets the permissions of a socket that another process has bound → broker_file */
	BROKER_REMOVE,    /* removes it if it is still the same file */
	BROKER_N_OPS,
};

enum { BROKER_PATH_MOST = 4095 };

struct broker_file {
	mode_t mode;
	uint64_t bytes, dev, ino;
};

/* ---- the client ---- */

/* Takes fd, one end of a SOCK_SEQPACKET pair, for all later requests; -1: no broker. */
void broker_use(int fd);
bool broker_there(void);
/* Results: a descriptor (close-on-exec) or 0; -errno of the supervisor's attempt; -EPERM: not granted, or no broker;
 * -ETIMEDOUT. Any thread. */
int broker_open(const char *path);
int broker_look(const char *path, struct broker_file *out);
int broker_append(const char *path);
int broker_rotate(const char *path);
int broker_bind(int sock, const struct sockaddr *sa, socklen_t len);
int broker_listen(const char *path, mode_t mode, struct broker_file *out);
int broker_adopt(const char *path, mode_t mode, struct broker_file *out);
int broker_remove(const char *path, uint64_t dev, uint64_t ino);

/* ---- the supervisor ---- */

struct broker_asked {
	enum broker_op op;
	uint32_t serial;
	mode_t mode;
	uint64_t dev, ino;
	char path[BROKER_PATH_MOST + 1]; /* of every op but BROKER_BIND */
	struct sockaddr_storage sa;      /* of BROKER_BIND, with its length and the socket (owned) */
	socklen_t sa_len;
	int sock; /* -1 */
};

/* 1: *out is a request to answer; 0: none is queued; SL_ECLOSED. Does not block. */
int broker_receive(int fd, struct broker_asked *out);
/* result: a descriptor to pass (stays the caller's), 0, or -errno. file may be NULL. Closes asked->sock. An answer that
 * does not fit into the socket is dropped; the client's deadline covers that. */
void broker_answer(int fd, struct broker_asked *asked, int result, const struct broker_file *file);

#endif
