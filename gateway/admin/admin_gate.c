/* SPDX-License-Identifier: Apache-2.0
 *
 * One bucket of tokens for each kind of request, shared by the threads: looking walks all answers, and an action may
 * start processes.
 */
#define LOG_SUBSYSTEM LOG_ADMIN

#include "gateway/admin/admin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "gateway/exchange/exchange.h"

static struct bucket {
	uint64_t full_ns; /* when it is full again */
	const uint64_t each_ns, burst_ns;
} buckets[] = {
    [ADMIN_LOOK] = {0, NS_PER_S / ADMIN_LOOKS_PER_S, NS_PER_S / ADMIN_LOOKS_PER_S *ADMIN_LOOKS_BURST},
    [ADMIN_ACT] = {0, NS_PER_S / ADMIN_ACTS_PER_S, NS_PER_S / ADMIN_ACTS_PER_S *ADMIN_ACTS_BURST},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool take(struct bucket *b, uint64_t now)
{
	pthread_mutex_lock(&lock);
	const uint64_t full = (b->full_ns > now ? b->full_ns : now) + b->each_ns;
	const bool may = full <= now + b->burst_ns;
	if (may)
		b->full_ns = full;
	pthread_mutex_unlock(&lock);
	return may;
}

bool admin_gate(struct exchange *x, enum admin_kind kind)
{
	return take(&buckets[kind], clock_now_ns()) ||
	       exchange_refuse(x, 429, "too_many_requests", NULL, "Too many administrators' requests at once.");
}

void admin_audit(const struct exchange *x, const char *fmt, ...)
{
	enum { DIGEST_SHOWN = 6 };
	char digest[2 * DIGEST_SHOWN + 1] = "", what[512];
	const char *peer = http_request(x->stream)->peer;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	hex_put(x->key->digest, DIGEST_SHOWN, digest);
	peer = peer[0] != '\0' ? peer : "unix";
	const struct log_field fields[] = {{.name = "action", .text = what},
					   {.name = "key", .text = x->key->name},
					   {.name = "key_sha256", .text = digest},
					   {.name = "client", .text = peer},
					   {.name = "request_id", .text = x->id}};
	log_fields(LOG_INFO, fields, sizeof fields / sizeof *fields,
		   "administrator: %s, key %s (sha256 %s), from %s, %s", what, x->key->name, digest, peer, x->id);
}
