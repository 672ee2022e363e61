/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests' records: a JSON line for each answer, to a file or to standard error (etc/metrics.md lists its members). A
 * record holds figures and names of the configuration: no text of a prompt or an answer, no key, and its tenant only as
 * a digest under a key of this installation (STATE/records.key).
 *
 * Any thread. A thread of its own writes; what it can't take or write is counted, and logged once until a line is
 * written again.
 */
#ifndef GATEWAY_RECORD_H
#define GATEWAY_RECORD_H

#include "base/buf.h"
#include "base/err.h"
#include "gateway/observe/observe.h"

struct records;

/* to: a path, or "stderr". sample: the share of answers that are recorded. 0, or a code with *err, which names the key.
 */
int records_create(const char *to, double sample, const char *state_dir, struct records **out, struct sl_err *err);
void records_put(struct records *r, const struct observed *o, enum observed_verdict v);
/* Lines that wait are written after it (aside_wait). NULL allowed. */
void records_destroy(struct records *r);

/* Appends o's line. tenant: the digest's number. */
int record_print(struct sl_buf *out, const struct observed *o, enum observed_verdict v, uint64_t tenant,
		 uint64_t unix_ms);

#endif
