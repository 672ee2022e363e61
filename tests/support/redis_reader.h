/* SPDX-License-Identifier: Apache-2.0
 *
 * hiredis' reader with the functions of cache/redis_reply.c, without a connection, as if awaiting one answer; and a
 * work of every type to convert results for.
 */
#ifndef TESTS_SUPPORT_REDIS_READER_H
#define TESTS_SUPPORT_REDIS_READER_H

#include "base/alloc.h"
#include "cache/redis_priv.h"

struct reply_reader {
	redisAsyncContext ac;
	redisCallback waiting;
	struct redis_guard guard;
};

static inline void reply_reader_open(struct reply_reader *r)
{
	*r = (struct reply_reader){0};
	r->ac.c.reader = redisReaderCreate();
	BUG_IF(r->ac.c.reader == NULL, "no reader");
	r->ac.replies.head = &r->waiting;
	redis_reply_attach(&r->ac, &r->guard);
}

static inline void reply_reader_close(struct reply_reader *r) { redisReaderFree(r->ac.c.reader); }

static inline void reply_free(struct reply_reader *r, redisReply *reply) { r->ac.c.reader->fn->freeObject(reply); }

/* A work in the state in which its answer arrives. */
struct answered_work {
	struct cache_work w;
	struct cache_key key;
};

static inline void answered_work_init(struct answered_work *a, enum work_type type)
{
	*a = (struct answered_work){.w = {.type = type, .version = 1, .seq = 5, .n_keys = 1}};
	a->w.keys = &a->key;
	cache_key_make(&a->key, CACHE_REPLAY, "tenant", "k", 1);
}

#endif
