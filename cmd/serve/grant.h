/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process without rights is granted (base/broker.h): to read files that the configuration names for it, and
 * nothing else; to write the one log it names; to bind the addresses it names. The engine gets models, the gateway
 * certificates, keys, passwords and weights of the cascade.
 */
#ifndef CMD_GRANT_H
#define CMD_GRANT_H

#include "base/broker.h"
#include "cmd/state/privileges.h"
#include "cmd/config/schema.h"

enum grant_role { GRANT_ENGINE, GRANT_GATEWAY };

struct grants {
	const struct sluice_config *now, *next; /* next: of an upgrade that is under way; NULL */
	int state_fd;
	const struct run_user *user;
};

/* Answers one request that waits on fd. 1; 0: none does; SL_ECLOSED. */
int grant_one(const struct grants *g, enum grant_role role, int fd);

#endif
