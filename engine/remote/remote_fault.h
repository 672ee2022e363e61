/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of the upstream: what clients are told, what the breaker counts, what a second try may help.
 *
 * Pure, except for remote_fault_log.
 */
#ifndef ENGINE_REMOTE_FAULT_H
#define ENGINE_REMOTE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "engine/remote/remote_http.h"

/* What a client gets. */
struct remote_failure {
	uint8_t error; /* enum proto_error */
	uint32_t retry_after_s;
	char message[PROTO_MAX_MESSAGE];
};

/* Of a call that has failed (remote_call_failed). A message of the upstream is passed on where it concerns the request
 * itself; others could describe the upstream's insides. */
void remote_failure_of(const struct remote_call *c, struct remote_failure *out);
/* An error object, as OpenAI's API has it: its message on one line, its code and the field it is about, or "". False:
 * there is no message. */
struct remote_error {
	char message[300], code[64], param[64];
};
bool remote_error_read(const char *json, size_t n, struct remote_error *out);

/* Of an error's code: a full server is not a broken one. SERVER: it says nothing of that. */
enum proto_fault remote_fault_of_error(const char *code);

/* Does the fault say that the upstream as a whole can't be used? */
bool remote_fault_breaks(enum proto_fault fault);
/* May the same request be sent again? Only while no byte of a response came. */
bool remote_fault_retries(const struct remote_call *c);
const char *remote_fault_name(enum proto_fault fault);

/* Logs a fault: the first of its kind, and then one a minute with the number since. */
struct remote_fault_notes {
	uint64_t last_ns[PROTO_FAULTS], unsaid[PROTO_FAULTS];
};
void remote_fault_log(struct remote_fault_notes *notes, const char *url, enum proto_fault fault, const char *why,
		      uint64_t now_ns);

#endif
