/* SPDX-License-Identifier: Apache-2.0
 *
 * The broker: a process without rights asks the supervisor, over a socket of messages, to open what the configuration
 * names and what only root may open. This is both ends of the wire; what is granted is the supervisor's decision
 * (cmd/serve/grant.h). One request at a time, one answer each; every wait has a deadline.
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
	BROKER_MALFORMED, /* never asked: what came is no request */
	BROKER_OPEN,      /* a regular file, for reading → descriptor */
	BROKER_LOOK,      /* a name's broker_file */
	BROKER_APPEND,    /* a log: made when it is not there → descriptor */
	BROKER_ROTATE,    /* a log becomes LOG.1 */
	BROKER_BIND,      /* binds the caller's socket to an address */
	BROKER_LISTEN,    /* a unix socket that listens → descriptor, broker_file */
	BROKER_ADOPT,     /* the permissions of one that another process has bound → broker_file */
	BROKER_REMOVE,    /* removes it, if the file is still the same */
	BROKER_N_OPS,
};

enum { BROKER_PATH_MOST = 4095 };

struct broker_file {
	mode_t mode;
	uint64_t bytes, dev, ino;
};

/* ---- the process that asks ---- */

/* From now on. Takes fd, one end of a SOCK_SEQPACKET pair; -1: there is no broker. */
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

/* 1: *out is a request, to be answered; 0: none is there; SL_ECLOSED. Does not block. */
int broker_receive(int fd, struct broker_asked *out);
/* result: a descriptor to pass (stays the caller's), 0, or -errno. file may be NULL. Closes asked->sock. An answer that
 * finds no room is dropped: the other side's deadline is for that. */
void broker_answer(int fd, struct broker_asked *asked, int result, const struct broker_file *file);

#endif
