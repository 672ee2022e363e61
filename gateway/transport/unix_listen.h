/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening on unix sockets. SO_REUSEPORT does not work for paths, so all threads share one socket.
 */
#ifndef GATEWAY_UNIX_LISTEN_H
#define GATEWAY_UNIX_LISTEN_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

/* "0660": octal, permissions only. */
bool unix_mode_parse(const char *text, mode_t *out);
/* Sets the permissions of the socket at path; a link is not followed. 0 with *st; -1: there is no socket, or errno. */
int unix_listen_mode(const char *path, mode_t mode, struct stat *st);
/* Can the process listen on path? 0, or SL_EIO and one line in *err. Removes nothing. */
int unix_listen_check(const char *path, struct sl_err *err);
/* False: path is empty or too long. */
bool unix_address(const char *path, struct sockaddr_un *out);
/* A descriptor of a listening socket, which the caller owns, or SL_EIO, SL_ENOMEM. A stale socket file is replaced; any
 * other file at that path is an error. given: an inherited socket that listens on path, taken; negative: none. Any
 * thread. */
int unix_listen_open(const char *path, mode_t mode, int given, struct sl_err *err);
/* Call it once for each successful open, after closing the descriptor. The last call removes the socket file, unless
 * another process has replaced it or stays is set (another process listens on the same socket). */
void unix_listen_release(const char *path, bool stays);

#endif
