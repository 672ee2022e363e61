/* SPDX-License-Identifier: Apache-2.0
 *
 * The process at the other end of a unix socket, from the kernel (SO_PEERCRED, unix(7)). For a connected socket that is
 * the process that called listen().
 */
#ifndef BASE_PEER_H
#define BASE_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* Processes of this user are trusted as well as our own and root's. Once, before threads start. */
void peer_trust(uid_t uid);
/* Is the peer one of those users? *uid: its user; (uid_t)-1: unknown. */
bool peer_is_trusted(int fd, uid_t *uid);

#endif
