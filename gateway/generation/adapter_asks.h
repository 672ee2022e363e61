/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that are loaded or unloaded on several engines at once. Each engine answers for itself, and the last answer
 * ends the ask:
 *
 *   good       an engine has done it, and the others have no such folder, path or adapter
 *   an error   otherwise: the first engine's that tried, or else the first one's, with the engine's name before it
 *
 * What some engines have done stays when others fail: the same ask can be made again.
 */
#ifndef GATEWAY_ADAPTER_ASKS_H
#define GATEWAY_ADAPTER_ASKS_H

#include <stdint.h>

#include "base/list.h"
#include "base/proto/proto.h"

struct engine_conn;

struct adapter_asks {
	struct list all; /* that have not ended */
	uint64_t next_id;
};

struct adapter_engine {
	struct engine_conn *conn;
	const char *name; /* borrowed; "": the only one */
};

enum { ADAPTER_ASK_ENGINES = 16 };

void adapter_asks_init(struct adapter_asks *a);
/* done and ctx are as of engine_link_adapter. *id is of no sequence on any connection. SL_ECLOSED: n is 0; SL_ELIMIT,
 * SL_ENOMEM: no engine was asked. */
int adapter_asks_send(struct adapter_asks *a, const struct proto_adapter *req, const struct adapter_engine *engines,
		      int n, void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
/* Its done will not come. Nothing when it has. */
void adapter_asks_forget(struct adapter_asks *a, uint64_t id);

#endif
