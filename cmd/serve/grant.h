/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers a confined child's requests to the broker (base/broker.h). Granted are only: reading files that the
 * configuration names for it (the engine: models; the gateway: certificates, keys, passwords, weights of the cascade),
 * writing the configured log, binding the configured addresses.
 */
#ifndef CMD_GRANT_H
#define CMD_GRANT_H

#include "base/broker.h"
#include "cmd/state/privileges.h"
#include "cmd/config/schema.h"

enum grant_role { GRANT_ENGINE, GRANT_GATEWAY };

struct grants {
	const struct sluice_config *now, *next; /* next: of the upgrade in progress; NULL */
	int state_fd;
	int engine; /* of GRANT_ENGINE: its number, as in engines_upstream */
	const struct run_user *user;
};

/* Does a configured address include this one? */
bool grant_covers(const struct conf_address *a, const struct sockaddr_storage *sa, socklen_t len);
/* Answers one request that waits on fd. 1; 0: none waits; SL_ECLOSED. */
int grant_one(const struct grants *g, enum grant_role role, int fd);

#endif
