/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Redis may answer: any bytes, in pieces, to any operation. Replies stay within their bounds, a
 * result lies inside its reply, log batches join without a gap.
 * Input: the operation, the size of pieces, then the bytes of the connection.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/redis_reader.h"

enum { N_TYPES = WORK_EVAL + 1 };

static const struct {
	enum work_type type;
	const char *text;
} seeds[] = {
    {WORK_GET, "$4\r\n\1abc\r\n$-1\r\n+OK\r\n"},
    {WORK_PUT, "+OK\r\n$-1\r\n-OOM command not allowed\r\n"},
    {WORK_PUT_ABSENT, "$2\r\n\1x\r\n:1\r\n"},
    {WORK_DELETE, ":1\r\n:0\r\n-READONLY x\r\n"},
    {WORK_LOG_APPEND, "*3\r\n:0\r\n:3\r\n:9\r\n*3\r\n:1\r\n:3\r\n:9\r\n"},
    {WORK_LOG_READ, "*5\r\n:0\r\n:3\r\n:9\r\n$41\r\n0000000000000004000000020000000000000000x\r\n"
		    "$40\r\n0000000000000006000000010000000000000041\r\n"},
    {WORK_LIST, "*1\r\n$64\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n"},
    {WORK_EVAL, "*4\r\n:1\r\n$2\r\nab\r\n:-5\r\n$0\r\n\r\n*2\r\n*1\r\n:1\r\n$-1\r\n"},
    {WORK_EVAL, "-ERR Error running script (call to f): @user_script:1: -BUSY x\r\n"},
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	if (i >= sizeof seeds / sizeof *seeds || strlen(seeds[i].text) + 2 > max)
		return 0;
	out[0] = (uint8_t)seeds[i].type;
	out[1] = (uint8_t)(i * 3);
	memcpy(out + 2, seeds[i].text, strlen(seeds[i].text));
	return strlen(seeds[i].text) + 2;
}

/* Every byte that is lent can be read. */
static unsigned touch(const void *p, size_t n)
{
	unsigned sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += ((const uint8_t *)p)[i];
	return sum;
}

static volatile unsigned sink;

static void look(enum work_type type, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ERROR) {
		struct redis_error e = redis_error_of(reply);
		FUZZ_REQUIRE(e.code < 0 && e.failure < N_FAILURES);
		return;
	}
	struct answered_work a;
	struct cache_result r;
	answered_work_init(&a, type);
	int rc = redis_result(&a.w, reply, &r);
	FUZZ_REQUIRE(rc <= 0 && (rc == 0 || a.w.out == NULL));
	if (rc == 0) {
		sink += touch(r.bytes, r.n);
		uint64_t next = 0;
		for (size_t i = 0; i < r.n_items; i++) {
			sink += touch(r.items[i].bytes, r.items[i].n);
			if (type != WORK_LOG_READ)
				continue;
			FUZZ_REQUIRE(i == 0 ? r.items[i].first_seq <= a.w.seq : r.items[i].first_seq == next);
			next = r.items[i].first_seq + r.items[i].n_items;
			FUZZ_REQUIRE(next > r.items[i].first_seq && next <= r.next_seq);
		}
		FUZZ_REQUIRE(r.n_values <= CACHE_MAX_VALUES);
		for (size_t i = 0; i < r.n_values; i++)
			if (r.values[i].p != NULL)
				sink += touch(r.values[i].p, r.values[i].n);
	}
	sl_free(a.w.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < 2)
		return 0;
	enum work_type type = (enum work_type)(data[0] % N_TYPES);
	size_t piece = data[1] == 0 ? n : data[1];
	struct reply_reader r;
	reply_reader_open(&r);
	bool going = true;
	for (size_t at = 2; at < n && going; at += piece) {
		size_t m = n - at < piece ? n - at : piece;
		void *reply = NULL;
		going = redisReaderFeed(r.ac.c.reader, (const char *)data + at, m) == REDIS_OK;
		while (going && (going = redisReaderGetReply(r.ac.c.reader, &reply) == REDIS_OK) && reply != NULL) {
			look(type, reply);
			reply_free(&r, reply);
			reply = NULL;
		}
	}
	reply_reader_close(&r);
	return 0;
}
