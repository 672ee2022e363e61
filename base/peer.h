/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is at the other end of a unix socket: the kernel says it (SO_PEERCRED, unix(7)). For a socket that was connected
 * that is the process that called listen().
 */
#ifndef BASE_PEER_H
#define BASE_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* Processes of this user are trusted as well as our own and root's. Once, before threads start. */
void peer_trust(uid_t uid);
/* Whether the peer is one of those. *who: its user, (uid_t)-1 when the kernel does not tell. */
bool peer_is_trusted(int fd, uid_t *who);

#endif
