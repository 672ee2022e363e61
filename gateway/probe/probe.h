/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: a stream that shows what lies between a client and this server, for `sluice doctor`. GET /v1/probe sends
 * numbered events at known times; when they arrive shows what buffers them or closes a quiet connection. The first one
 * says how the request came here: protocol, host, the client's address and the fields about it that proxies wrote.
 * GET /v1/probe/{id} says how that stream ended, which shows whether a disconnect comes through.
 *
 * No model runs and nothing is counted against a limit, so probes are few and end: PROBE_MAX at a time in the process,
 * PROBE_TENANT_MAX of one tenant, each for at most PROBE_MS_MAX. A process that stops ends its probes soon, without
 * their last event.
 *
 * Thread: the request's; the directory of ends is shared.
 */
#ifndef GATEWAY_PROBE_H
#define GATEWAY_PROBE_H

struct exchange;

enum {
	PROBE_MAX = 32,
	PROBE_TENANT_MAX = 16,
	PROBE_EVENTS_MAX = 100,
	PROBE_INTERVAL_MS_MAX = 10000,
	PROBE_QUIET_MS_MAX = 120000,
	PROBE_MS_MAX = 130000, /* events * interval_ms + quiet_ms */
};

/* GET /v1/probe?events=N&interval_ms=N&quiet_ms=N: N events, then silence, then one last event. */
void probe_stream(struct exchange *x);
/* GET /v1/probe/{id}: {"id", "state": "running" | "complete" | "left"}; 404 after many others, and to other tenants. */
void probe_end(struct exchange *x);

#endif
