/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams in the store, with a real redis-server: what a dead gateway left is planted there, and this one goes on with
 * it, leaves it to another that lives, or tells why nobody can; with the nth allocation failing, too.
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "gateway/answer/answer_priv.h"
#include "tests/support/chat_store.h"

enum { MOST_PASSES = 2000, STRIDE = 11, DEAD_PID = 1, KEY_BYTES = 256, VALUE_BYTES = 8192 };

#define CHAT "POST /v1/chat/completions"
#define RESUMABLE "x-sluice-events: 1\r\n"
#define BODY                                                                    \
	"{\"model\":\"m\",\"stream\":true,\"seed\":1,\"logit_bias\":{\"3\":1}," \
	"\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define GREEDY_BODY                                           \
	"{\"model\":\"m\",\"stream\":true,\"temperature\":0," \
	"\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define DEAD "00000000deadbeef"
#define OTHER "00000000cafe0000"

/* What the store has of a stream that has told one event. */
struct left {
	char id[REPLAY_MAX_ID];
	uint64_t tenant;
	char head[VALUE_BYTES], events[VALUE_BYTES];
	size_t n_head, n_events;
	char lease[VALUE_BYTES]; /* of a process that is not there any more */
};

static const char *name_of(const struct cache_key *key)
{
	static char name[KEY_BYTES];
	snprintf(name, sizeof name, "sluice:%s", key->text);
	return name;
}

static const char *stream_key(const struct left *l, enum replay_name name)
{
	struct cache_key key;
	replay_key(&key, name, l->tenant, l->id);
	return name_of(&key);
}

static const char *lease_key(const char *owner)
{
	struct cache_key key;
	replay_lease_key(&key, owner);
	return name_of(&key);
}

static bool exists(const char *key) { return redis_server_number(&server, "EXISTS %s", key) == 1; }

static size_t copy_reply(redisReply *r, char *out)
{
	assert_int_equal(r->type, REDIS_REPLY_STRING);
	assert_true(r->len < VALUE_BYTES);
	size_t n = r->len;
	memcpy(out, r->str, n);
	freeReplyObject(r);
	return n;
}

static bool is_up(struct chat_rig *c) { return app_ready(c->app) && cache_client_state(c->r.t.cache) == CACHE_IS_UP; }

static bool forget_log(struct chat_rig *c, const struct left *l)
{
	struct replay_log *log = replay_find(c->app->replay, l->id, l->tenant);
	struct replay_usage usage;
	if (log == NULL)
		return true;
	bool ended = replay_ended(log, &usage);
	if (ended)
		replay_forget(log);
	replay_unref(log);
	return ended;
}

static int set_up(void **state)
{
	if (!redis_server_installed())
		return 0;
	return chat_store_set_up(state);
}

static bool named(struct chat_rig *c, int fd, char *id)
{
	(void)answer_ended(c, fd);
	c->answer[c->n_answer] = '\0';
	const char *at = strstr(c->answer, "x-sluice-stream-id: ");
	if (at == NULL || strstr(at, "\"role\"") == NULL)
		return false;
	snprintf(id, REPLAY_MAX_ID, "%.*s", (int)strcspn(at + 20, "\r"), at + 20);
	return true;
}

static void stop_stream(struct chat_rig *c, const struct left *l)
{
	char target[128];
	snprintf(target, sizeof target, "DELETE /v1/streams/%s", l->id);
	ask(c, target, "", "");
}

/* Begins a stream whose engine says nothing yet, and takes what the store then has of it. */
static void capture_of(struct chat_rig *c, struct left *l, const char *body)
{
	CHAT_UNTIL(c, is_up(c));
	memset(l, 0, sizeof *l);
	c->silent = true;
	int fd = send_request(c, CHAT, RESUMABLE, body);
	CHAT_UNTIL(c, named(c, fd, l->id));
	l->tenant = list_entry(c->app->answers.next, struct answer, in_app)->key->tenant;
	CHAT_UNTIL(c, exists(stream_key(l, REPLAY_EVENTS)));
	l->n_head = copy_reply(redis_server_ask(&server, "GET %s", stream_key(l, REPLAY_HEAD)), l->head);
	l->n_events = copy_reply(redis_server_ask(&server, "LINDEX %s 0", stream_key(l, REPLAY_EVENTS)), l->events);
	close(fd);
	stop_stream(c, l);
	CHAT_UNTIL(c, is_quiet(c));
	assert_true(forget_log(c, l));
	c->silent = false;
	char *owner = memmem(l->head, l->n_head, store_of(c)->owner, strlen(DEAD));
	BUG_IF(owner == NULL, "a head without its owner");
	memcpy(owner, DEAD, strlen(DEAD));
	CHAT_UNTIL(c, exists(lease_key(store_of(c)->owner)));
	copy_reply(redis_server_ask(&server, "GET %s", lease_key(store_of(c)->owner)), l->lease);
	/* The first process is always there, but did not begin then. */
	snprintf(l->lease + strcspn(l->lease, " "), 64, " %d 1", DEAD_PID);
}

static void capture(struct chat_rig *c, struct left *l) { capture_of(c, l, BODY); }

/* As its gateway left it when it died: with a lease that a process of this machine held. */
static void plant(const struct left *l)
{
	redis_server_number(&server, "FLUSHALL");
	redis_server_number(&server, "SET %s %b", stream_key(l, REPLAY_HEAD), l->head, l->n_head);
	redis_server_number(&server, "RPUSH %s %b", stream_key(l, REPLAY_EVENTS), l->events, l->n_events);
	redis_server_number(&server, "SET %s %s", lease_key(DEAD), l->lease);
}

static int get(struct chat_rig *c, const struct left *l, const char *fields)
{
	char target[128];
	snprintf(target, sizeof target, "GET /v1/streams/%s", l->id);
	return send_request(c, target, fields, "");
}

static void read_stream(struct chat_rig *c, const struct left *l, const char *fields)
{
	take_answer(c, get(c, l, fields));
}

static void check_whole(struct chat_rig *c)
{
	static const char *const parts[] = {"HTTP/1.1 200",      "id: 0\n", "\"role\"",          "id: 1\n",
					    "\"content\":\"a\"", "id: 2\n", "\"content\":\"b\"", "id: 3\n",
					    "\"content\":\"c\"", "id: 4\n", "\"stop\"",          "id: 5\n",
					    "data: [DONE]"};
	const char *at = c->answer;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		at = strstr(at, parts[i]);
		if (at == NULL) {
			fail_msg("no %s in %s", parts[i], c->answer);
			return;
		}
	}
}

/* ---- */

static void a_dead_one_is_gone_on_with(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture(c, &l);
	plant(&l);
	int64_t before = metric_get(&replay_m_continued);
	read_stream(c, &l, "");
	check_whole(c);
	assert_int_equal(metric_get(&replay_m_continued), before + 1);
	CHAT_UNTIL(c, is_quiet(c));
	assert_int_equal(n_running(c), 0);
	assert_false(exists(stream_key(&l, REPLAY_HEAD)));
	/* Another process that asks finds all of it. */
	assert_true(forget_log(c, &l));
	read_stream(c, &l, "last-event-id: 2\r\n");
	assert_null(strstr(c->answer, "id: 2\n"));
	assert_non_null(strstr(c->answer, "\"content\":\"c\""));
	assert_non_null(strstr(c->answer, "data: [DONE]"));
	assert_true(forget_log(c, &l));
	read_stream(c, &l, "last-event-id: 5\r\n");
	assert_non_null(strstr(c->answer, "HTTP/1.1 204"));
	assert_int_equal(metric_get(&replay_m_continued), before + 1);
}

/* The sweep finds it in the list of what its gateway was running. */
static void nobody_asks_for_it(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	struct cache_key key;
	char text[160];
	const char *digest;
	capture(c, &l);
	plant(&l);
	replay_owner_key(&key, REPLAY_RUN, DEAD "-0", l.id);
	digest = key.text + key.len - CACHE_DIGEST_LEN;
	snprintf(text, sizeof text, "\001r %016llx %s", (unsigned long long)l.tenant, l.id);
	redis_server_number(&server, "SET %s %s", name_of(&key), text);
	redis_server_number(&server, "ZADD sluice:{run-" DEAD "-0}:replay:index 9999999999999 %s", digest);
	cache_key_make(&key, CACHE_REPLAY, "gateways", DEAD, strlen(DEAD));
	snprintf(text, sizeof text, "\001" DEAD " 1 %lld", (long long)clock_unix_s());
	redis_server_number(&server, "SET %s %s", name_of(&key), text);
	redis_server_number(&server, "ZADD sluice:{gateways}:replay:index 9999999999999 %s",
			    key.text + key.len - CACHE_DIGEST_LEN);
	int64_t before = metric_get(&replay_m_continued);
	CHAT_UNTIL(c, metric_get(&replay_m_continued) == before + 1);
	CHAT_UNTIL(c, is_quiet(c));
	read_stream(c, &l, "");
	check_whole(c);
}

static bool has(struct chat_rig *c, int fd, const char *what)
{
	(void)answer_ended(c, fd);
	c->answer[c->n_answer] = '\0';
	return strstr(c->answer, what) != NULL;
}

/* One that claimed it lives: it is read from the store. That dies too: it is gone on with here. */
static void another_one_claimed_it(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	struct cache_key key;
	capture(c, &l);
	plant(&l);
	replay_owner_key(&key, REPLAY_CLAIMS, DEAD "-0", l.id);
	redis_server_number(&server, "SET %s %s", name_of(&key), "\001" OTHER "-0");
	redis_server_number(&server, "SET %s %s", lease_key(OTHER), "\001- 1 1");
	int64_t before = metric_get(&replay_m_continued);
	int fd = get(c, &l, "");
	CHAT_UNTIL(c, has(c, fd, "\"role\""));
	/* It has been looked at, and found to be alive. */
	char note[KEY_BYTES];
	replay_owner_key(&key, REPLAY_NOTE_READ, OTHER "-0", l.id);
	snprintf(note, sizeof note, "%s", name_of(&key));
	CHAT_UNTIL(c, exists(note));
	assert_int_equal(metric_get(&replay_m_continued), before);
	redis_server_number(&server, "DEL %s", lease_key(OTHER));
	take_answer(c, fd);
	check_whole(c);
	assert_int_equal(metric_get(&replay_m_continued), before + 1);
}

static void add_event(const struct left *l, const char *event)
{
	char batch[256];
	int n = snprintf(batch, sizeof batch, "%016d%08d%016zu\001%s", 1, 1, l->n_events, event);
	redis_server_number(&server, "RPUSH %s %b", stream_key(l, REPLAY_EVENTS), batch, (size_t)n);
}

static void another_answer_ends_it(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture(c, &l);
	plant(&l);
	add_event(&l, "data: {\"something\":\"else\"}\n\n");
	read_stream(c, &l, "");
	assert_non_null(strstr(c->answer, "\"something\":\"else\""));
	assert_non_null(strstr(c->answer, "id: 2\ndata: {\"error\""));
	assert_non_null(strstr(c->answer, "not_continued"));
	assert_null(strstr(c->answer, "[DONE]"));
	CHAT_UNTIL(c, is_quiet(c));
	assert_int_equal(n_running(c), 0);
	/* Who had more is told as well. */
	read_stream(c, &l, "last-event-id: 40\r\n");
	assert_non_null(strstr(c->answer, "not_continued"));
}

/* Its request was too large for the store. */
static void without_its_request_it_ends(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture(c, &l);
	l.n_head = strnlen(l.head, l.n_head) + 1;
	plant(&l);
	read_stream(c, &l, "");
	assert_non_null(strstr(c->answer, "\"role\""));
	assert_non_null(strstr(c->answer, "not_continued"));
	CHAT_UNTIL(c, is_quiet(c));
	l.n_head = 9;
	assert_true(forget_log(c, &l));
	plant(&l);
	read_stream(c, &l, "");
	assert_non_null(strstr(c->answer, "not_continued"));
	CHAT_UNTIL(c, is_quiet(c));
}

/* An older version drew tokens in another way, or did not say how: its draws do not mix with ours. */
static void draws_of_another_version_end_it(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture(c, &l);
	char now[24];
	snprintf(now, sizeof now, "\"draw\":%d", ANSWER_DRAW);
	char *draw = memmem(l.head, l.n_head, now, strlen(now));
	assert_non_null(draw);
	static const char *const before[] = {"\"draw\":1", "\"drew\":2"};
	for (int i = 0; i < 2; i++) {
		int64_t ended = metric_get(&replay_m_uncontinued), continued = metric_get(&replay_m_continued);
		memcpy(draw, before[i], strlen(before[i]));
		plant(&l);
		read_stream(c, &l, "");
		assert_non_null(strstr(c->answer, "\"role\""));
		assert_non_null(strstr(c->answer, "id: 1\ndata: {\"error\""));
		assert_non_null(strstr(c->answer, "not_continued"));
		assert_non_null(strstr(c->answer, "draws tokens in another way"));
		assert_null(strstr(c->answer, "[DONE]"));
		assert_int_equal(metric_get(&replay_m_uncontinued), ended + 1);
		assert_int_equal(metric_get(&replay_m_continued), continued);
		CHAT_UNTIL(c, is_quiet(c));
		assert_int_equal(n_running(c), 0);
		assert_true(forget_log(c, &l));
	}
}

/* Without draws it does not matter how they are made. */
static void greedy_answers_outlive_the_draw(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture_of(c, &l, GREEDY_BODY);
	char *draw = memmem(l.head, l.n_head, "\"draw\":", 7);
	assert_non_null(draw);
	draw[7] = '1';
	plant(&l);
	read_stream(c, &l, "");
	check_whole(c);
}

static void stopped_before_it_goes_on(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	capture(c, &l);
	plant(&l);
	c->silent = true;
	stop_stream(c, &l);
	assert_non_null(strstr(c->answer, "HTTP/1.1 204"));
	read_stream(c, &l, "");
	assert_non_null(strstr(c->answer, "\"role\""));
	assert_non_null(strstr(c->answer, "\"finish_reason\":\"stop\""));
	assert_non_null(strstr(c->answer, "[DONE]"));
	CHAT_UNTIL(c, is_quiet(c));
	assert_int_equal(n_running(c), 0);
}

/* ---- a store that fails ---- */

static void written_when_the_store_is_back(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l = {0};
	CHAT_UNTIL(c, is_up(c));
	redis_server_kill(&server);
	CHAT_UNTIL(c, cache_client_state(c->r.t.cache) != CACHE_IS_UP);
	ask(c, CHAT, RESUMABLE, BODY);
	check_whole(c);
	assert_true(named(c, -1, l.id));
	l.tenant = auth_find_name(c->app->auth, "k")->tenant;
	read_stream(c, &l, "last-event-id: 3\r\n");
	assert_non_null(strstr(c->answer, "[DONE]"));
	assert_int_equal(store_of(c)->n_spools, 1);
	assert_true(forget_log(c, &l));
	read_stream(c, &l, "");
	assert_non_null(strstr(c->answer, "HTTP/1.1 503"));
	redis_server_start(&server, NULL);
	CHAT_UNTIL(c, store_of(c)->n_spools == 0);
	read_stream(c, &l, "");
	check_whole(c);
}

static bool settled(struct chat_rig *c, const struct left *l) { return is_quiet(c) && forget_log(c, l); }

/* Each takes a wait or two, so some are left out. */
static void every_allocation(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	struct left l;
	long n = 0, passes, whole = 0;
	capture(c, &l);
	json_mem_install();
	do {
		n += n < 20 ? 1 : STRIDE;
		assert_true(n < MOST_PASSES);
		plant(&l);
		CHAT_UNTIL(c, is_up(c));
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		read_stream(c, &l, "");
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (strstr(c->answer, "[DONE]") != NULL) {
			check_whole(c);
			whole++;
		}
		CHAT_UNTIL(c, settled(c, &l));
		assert_int_equal(n_running(c), 0);
		CHAT_UNTIL(c, n_generations() == 0);
	} while (passes >= n);
	json_set_alloc_funcs(malloc, free);
	print_message("%ld allocations, %ld times whole all the same\n", n, whole);
	assert_true(n > 50 && whole > 0);
}

static void every_allocation_of_a_spool(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	long n = 0, passes;
	json_mem_install();
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, is_up(c));
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, CHAT, RESUMABLE, BODY);
		CHAT_UNTIL(c, is_quiet(c));
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		assert_int_equal(n_running(c), 0);
	} while (passes >= n);
	json_set_alloc_funcs(malloc, free);
	assert_true(n > 20);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    T(a_dead_one_is_gone_on_with),      T(nobody_asks_for_it),
	    T(another_one_claimed_it),          T(another_answer_ends_it),
	    T(without_its_request_it_ends),     T(stopped_before_it_goes_on),
	    T(draws_of_another_version_end_it), T(greedy_answers_outlive_the_draw),
	    T(written_when_the_store_is_back),  T(every_allocation),
	    T(every_allocation_of_a_spool),
	};
	signal(SIGPIPE, SIG_IGN);
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
