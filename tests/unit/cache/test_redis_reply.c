/* SPDX-License-Identifier: Apache-2.0
 *
 * What Redis may answer: bounds of replies, errors by their names, and for every operation the shapes
 * that are an answer and the many that are none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tests/support/redis_reader.h"

/* The reply to text, whole or (in pieces) byte by byte; NULL: the reader refuses or wants more. */
static redisReply *read_text(struct reply_reader *r, const char *text, size_t n, bool in_pieces)
{
	void *reply = NULL;
	for (size_t at = 0; at < n && reply == NULL; at += in_pieces ? 1 : n) {
		if (redisReaderFeed(r->ac.c.reader, text + at, in_pieces ? 1 : n) != REDIS_OK ||
		    redisReaderGetReply(r->ac.c.reader, &reply) != REDIS_OK)
			return NULL;
	}
	return reply;
}

/* What work of that type makes of text; items and values are checked to be readable. */
static int result_of(enum work_type type, const char *text, size_t n, struct cache_result *out)
{
	int rc = 0;
	for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
		struct reply_reader r;
		struct answered_work a;
		reply_reader_open(&r);
		answered_work_init(&a, type);
		redisReply *reply = read_text(&r, text, n, in_pieces);
		assert_non_null(reply);
		rc = redis_result(&a.w, reply, out);
		if (rc != 0)
			assert_null(a.w.out);
		else
			rc = out->code;
		sl_free(a.w.out);
		reply_free(&r, reply);
		reply_reader_close(&r);
	}
	return rc;
}

#define RESULT(type, text, out) result_of(type, text, sizeof(text) - 1, out)

static void errors_are_known_by_their_first_word(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum cache_failure failure;
		int code;
		enum error_action action;
	} all[] = {
	    {"LOADING Redis is loading the dataset in memory", FAILED_LOADING, SL_EAGAIN, ERROR_OF_SERVER},
	    {"OOM command not allowed when used memory > 'maxmemory'.", FAILED_OOM, SL_ELIMIT, ERROR_OF_SERVER},
	    {"READONLY You can't write against a read only replica.", FAILED_READONLY, SL_EAGAIN, ERROR_RECONNECT},
	    {"NOAUTH Authentication required.", FAILED_NOAUTH, SL_EIO, ERROR_RECONNECT},
	    {"WRONGPASS invalid username-password pair", FAILED_NOAUTH, SL_EIO, ERROR_RECONNECT},
	    {"NOPERM this user has no permissions", FAILED_NOAUTH, SL_EIO, ERROR_OF_SERVER},
	    {"MOVED 3999 127.0.0.1:6381", FAILED_MOVED, SL_EIO, ERROR_OF_SERVER},
	    {"CLUSTERDOWN Hash slot not served", FAILED_MOVED, SL_EAGAIN, ERROR_OF_SERVER},
	    {"MISCONF Redis is configured to save RDB snapshots", FAILED_READONLY, SL_EAGAIN, ERROR_OF_SERVER},
	    {"BUSY Redis is busy running a script.", FAILED_BUSY, SL_EAGAIN, ERROR_OF_SERVER},
	    {"WRONGTYPE Operation against a key", FAILED_WRONG_TYPE, SL_EPROTO, ERROR_OF_CALL},
	    {"NOSCRIPT No matching script.", FAILED_OTHER, SL_EAGAIN, ERROR_NOSCRIPT},
	    {"ERR unknown command", FAILED_OTHER, SL_EIO, ERROR_OF_CALL},
	    {"LOADINGS", FAILED_OTHER, SL_EIO, ERROR_OF_CALL},
	    {"OOM", FAILED_OOM, SL_ELIMIT, ERROR_OF_SERVER},
	    {"", FAILED_OTHER, SL_EIO, ERROR_OF_CALL},
	    {"ERR Error running script (call to f_6b1bf486c8): @user_script:1: -OOM command not allowed", FAILED_OOM,
	     SL_ELIMIT, ERROR_OF_SERVER},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		redisReply r = {.type = REDIS_REPLY_ERROR, .len = strlen(all[i].text)};
		char text[128];
		snprintf(text, sizeof text, "%s", all[i].text);
		r.str = text;
		struct redis_error e = redis_error_of(&r);
		if (e.failure != all[i].failure || e.code != all[i].code || e.action != all[i].action)
			fail_msg("%s: %d, %d, %d", all[i].text, (int)e.failure, e.code, (int)e.action);
	}
}

static void a_value_has_its_version(void **state)
{
	(void)state;
	struct cache_result r;
	assert_int_equal(RESULT(WORK_GET,
				"$4\r\n\x01"
				"abc\r\n",
				&r),
			 0);
	assert_int_equal(r.n, 3);
	assert_int_equal(RESULT(WORK_GET, "$1\r\n\x01\r\n", &r), 0);
	assert_int_equal(r.n, 0);
	assert_int_equal(RESULT(WORK_GET,
				"$4\r\n\x02"
				"abc\r\n",
				&r),
			 SL_ENOTFOUND);
	assert_int_equal(RESULT(WORK_GET, "$0\r\n\r\n", &r), SL_ENOTFOUND);
	assert_int_equal(RESULT(WORK_GET, "$-1\r\n", &r), SL_ENOTFOUND);
	assert_int_equal(RESULT(WORK_GET, ":1\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_GET, "+OK\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_GET, "*0\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_PUT, "+OK\r\n", &r), 0);
	assert_int_equal(RESULT(WORK_PUT, "$-1\r\n", &r), 0);
	assert_int_equal(RESULT(WORK_PUT, "$1\r\n\x01\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_PUT_ABSENT, "$2\r\n\x01x\r\n", &r), 0);
	assert_true(r.found);
	assert_int_equal(RESULT(WORK_PUT_ABSENT, "$2\r\n\x02x\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_PUT_ABSENT, ":7\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_DELETE, ":2\r\n", &r), 0);
	assert_true(r.found);
	assert_int_equal(RESULT(WORK_DELETE, ":0\r\n", &r), 0);
	assert_false(r.found);
	assert_int_equal(RESULT(WORK_DELETE, "+OK\r\n", &r), SL_EPROTO);
}

#define HEAD "*4\r\n:0\r\n:3\r\n:9\r\n"
#define BATCH(first, n) "$41\r\n" first n "0000000000000000x\r\n"

static void a_logs_batches_have_no_gaps(void **state)
{
	(void)state;
	struct cache_result r;
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n:0\r\n:3\r\n:9\r\n", &r), 0);
	assert_int_equal(r.next_seq, 9);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n:1\r\n:3\r\n:9\r\n", &r), SL_ERANGE);
	assert_int_equal(r.next_seq, 9);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n:7\r\n:3\r\n:9\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n:0\r\n:9\r\n:3\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n:0\r\n:-9\r\n:3\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*2\r\n:0\r\n:3\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_APPEND, "*3\r\n$1\r\n0\r\n:3\r\n:9\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, "*3\r\n:2\r\n:0\r\n:0\r\n", &r), SL_ENOTFOUND);
	assert_int_equal(RESULT(WORK_LOG_READ, "*3\r\n:0\r\n:3\r\n:9\r\n", &r), 0);
	assert_int_equal(r.n_items, 0);
	/* The work asks from 5. */
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("0000000000000004", "00000005"), &r), 0);
	assert_int_equal(r.n_items, 1);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("0000000000000006", "00000003"), &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("0000000000000004", "00000006"), &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("0000000000000004", "00000000"), &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("00000000000000 4", "00000001"), &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD BATCH("-000000000000004", "00000001"), &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD "$3\r\nabc\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ, HEAD ":3\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ,
				"*5\r\n:0\r\n:3\r\n:9\r\n" BATCH("0000000000000004", "00000002")
				    BATCH("0000000000000007", "00000001"),
				&r),
			 SL_EPROTO);
	assert_int_equal(RESULT(WORK_LOG_READ,
				"*5\r\n:0\r\n:3\r\n:9\r\n" BATCH("0000000000000004", "00000002")
				    BATCH("0000000000000006", "00000001"),
				&r),
			 0);
	assert_int_equal(r.n_items, 2);
}

#define DIGEST "$64\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n"

static void lists_and_answers_of_procedures(void **state)
{
	(void)state;
	struct cache_result r;
	assert_int_equal(RESULT(WORK_LIST, "*0\r\n", &r), 0);
	assert_int_equal(RESULT(WORK_LIST, "*2\r\n" DIGEST DIGEST, &r), 0);
	assert_int_equal(r.n_items, 2);
	assert_int_equal(RESULT(WORK_LIST, "*1\r\n$3\r\nabc\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LIST, "*1\r\n$-1\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_LIST, "*-1\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_EVAL, "*3\r\n:1\r\n$2\r\nab\r\n:-5\r\n", &r), 0);
	assert_int_equal(r.n_values, 3);
	assert_int_equal(RESULT(WORK_EVAL, "*0\r\n", &r), 0);
	assert_int_equal(RESULT(WORK_EVAL, "*1\r\n*1\r\n:1\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_EVAL, "*1\r\n-ERR inside\r\n", &r), SL_EPROTO);
	assert_int_equal(RESULT(WORK_EVAL, ":1\r\n", &r), SL_EPROTO);
	char many[16 + 4 * (CACHE_MAX_VALUES + 1)];
	size_t n = (size_t)snprintf(many, sizeof many, "*%d\r\n", CACHE_MAX_VALUES + 1);
	for (int i = 0; i <= CACHE_MAX_VALUES; i++, n += 4)
		memcpy(many + n, ":1\r\n", 4);
	assert_int_equal(result_of(WORK_EVAL, many, n, &r), SL_EPROTO);
}

static bool refuses(const char *text, size_t n, bool asked)
{
	struct reply_reader r;
	reply_reader_open(&r);
	if (!asked)
		r.ac.replies.head = NULL;
	redisReply *reply = read_text(&r, text, n, false);
	bool refused = r.ac.c.reader->err != 0;
	if (reply != NULL)
		reply_free(&r, reply);
	reply_reader_close(&r);
	return refused;
}

static void replies_without_bounds_end_the_connection(void **state)
{
	(void)state;
	static const char *const hostile[] = {
	    "*1000000000\r\n",
	    "*4611686018427387904\r\n",
	    "*-5\r\n",
	    "$-7\r\n",
	    "$99999999999999999999\r\n",
	    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
	    "HTTP/1.1 400 Bad Request\r\n\r\n",
	    ":abc\r\n",
	    "?\r\n",
	    /* Each array small, all together too many. */
	    "*16384\r\n*16384\r\n",
	};
	for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
		if (!refuses(hostile[i], strlen(hostile[i]), true))
			fail_msg("accepted: %s", hostile[i]);
	assert_false(refuses("*16384\r\n:1\r\n", 12, true));
	/* An answer that nobody asked for, and an error that Redis tells whom it won't have. */
	assert_true(refuses("+OK\r\n", 5, false));
	assert_true(refuses("*3\r\n", 4, false));
	assert_false(refuses("-ERR max number of clients reached\r\n", 36, false));
}

static void without_memory_there_is_no_reply(void **state)
{
	(void)state;
	const char *text = HEAD BATCH("0000000000000004", "00000005");
	bool whole = false;
	for (long nth = 1; !whole; nth++) {
		struct reply_reader r;
		struct answered_work a;
		struct cache_result out;
		reply_reader_open(&r);
		answered_work_init(&a, WORK_LOG_READ);
		fault_arm(FAULT_ALLOC, nth, 1);
		redisReply *reply = read_text(&r, text, strlen(text), false);
		int rc = reply == NULL ? SL_ENOMEM : redis_result(&a.w, reply, &out);
		fault_disarm_all();
		assert_true(rc == 0 || rc == SL_ENOMEM);
		whole = rc == 0;
		sl_free(a.w.out);
		if (reply != NULL)
			reply_free(&r, reply);
		reply_reader_close(&r);
		assert_true(nth < 50);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(errors_are_known_by_their_first_word),
	    cmocka_unit_test(a_value_has_its_version),
	    cmocka_unit_test(a_logs_batches_have_no_gaps),
	    cmocka_unit_test(lists_and_answers_of_procedures),
	    cmocka_unit_test(replies_without_bounds_end_the_connection),
	    cmocka_unit_test(without_memory_there_is_no_reply),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
