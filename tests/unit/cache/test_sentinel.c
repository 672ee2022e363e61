/* SPDX-License-Identifier: Apache-2.0
 *
 * Sentinels: their addresses, and what a link does with what they answer. A server on this thread's loop plays the
 * sentinel; where it names itself, the link's second connection shows that it was believed. Real sentinels and a
 * failover are in tests/e2e/sentinel.test.mjs.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "base/fault.h"
#include "cache/redis_check.h"
#include "cache/sentinel.h"
#include "tests/support/cache_rig.h"

#define N(a) (sizeof(a) / sizeof *(a))

/* ---- addresses ---- */

static void addresses_are_read(void **state)
{
	(void)state;
	struct sentinel_set s;
	struct sl_err err = {0};
	assert_int_equal(sentinel_parse("sentinel:main.1@127.0.0.1:26379,[::1]:5,127.0.0.2:65535", &s, &err), 0);
	assert_string_equal(s.name, "main.1");
	assert_int_equal(s.n, 3);
	assert_string_equal(s.of[0].host, "127.0.0.1");
	assert_int_equal(s.of[0].port, 26379);
	assert_string_equal(s.of[1].host, "::1");
	assert_int_equal(s.of[1].port, 5);
	assert_int_equal(s.of[2].port, 65535);
	static const char *const wrong[] = {"sentinel:",
					    "sentinel:@127.0.0.1:1",
					    "sentinel:main",
					    "sentinel:ma in@127.0.0.1:1",
					    "sentinel:main@",
					    "sentinel:main@127.0.0.1",
					    "sentinel:main@127.0.0.1:",
					    "sentinel:main@127.0.0.1:0",
					    "sentinel:main@127.0.0.1:65536",
					    "sentinel:main@127.0.0.1:1x",
					    "sentinel:main@127.0.0.1:1,",
					    "sentinel:main@,127.0.0.1:1",
					    "sentinel:main@:1",
					    "sentinel:main@no-such-host.invalid:1",
					    "sentinel:m@0:1,0:1,0:1,0:1,0:1,0:1,0:1,0:1,0:1"};
	for (size_t i = 0; i < N(wrong); i++) {
		err.text[0] = '\0';
		if (sentinel_parse(wrong[i], &s, &err) == 0 || strstr(err.text, "cache address sentinel:") == NULL)
			fail_msg("%s: %s", wrong[i], err.text);
	}
	char name[SENTINEL_NAME_MOST + 64];
	snprintf(name, sizeof name, "sentinel:%0*d@127.0.0.1:1", SENTINEL_NAME_MOST + 1, 0);
	assert_int_not_equal(sentinel_parse(name, &s, &err), 0);
}

/* ---- a sentinel ---- */

struct player {
	struct rig g;
	struct evconnlistener *listener;
	char address[64];
	int port, n_accepts, n_questions, n_scripts, n_auths;
	const char *answer; /* "": none. "%d" is its own port */
	bool closes;
};

static void on_input(struct bufferevent *b, void *arg)
{
	struct player *p = arg;
	struct evbuffer *in = bufferevent_get_input(b);
	size_t n = evbuffer_get_length(in);
	const char *text = (const char *)evbuffer_pullup(in, -1);
	char answer[256];
	bool asks = memmem(text, n, "GET-MASTER-ADDR", 15) != NULL, auth = memmem(text, n, "AUTH", 4) != NULL;
	p->n_questions += asks;
	p->n_auths += auth;
	p->n_scripts += !asks && memmem(text, n, "SCRIPT", 6) != NULL;
	evbuffer_drain(in, n);
	if (auth)
		bufferevent_write(b, "+OK\r\n", 5);
	if (!asks)
		return;
	snprintf(answer, sizeof answer, p->answer, p->port); /* NOLINT: the test's own formats */
	bufferevent_write(b, answer, strlen(answer));
	if (p->closes)
		bufferevent_free(b);
}

static void on_end(struct bufferevent *b, short what, void *arg)
{
	(void)what, (void)arg;
	bufferevent_free(b);
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int n, void *arg)
{
	(void)a, (void)n;
	struct player *p = arg;
	struct bufferevent *b = bufferevent_socket_new(evconnlistener_get_base(l), fd, BEV_OPT_CLOSE_ON_FREE);
	p->n_accepts++;
	bufferevent_setcb(b, on_input, NULL, on_end, p);
	bufferevent_enable(b, EV_READ | EV_WRITE);
}

static void open_player(struct player *p, const char *answer, const char *password_file)
{
	/* Both families, where there are both: a name may stand for either. */
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, got;
	socklen_t room = sizeof got;
	memset(p, 0, sizeof *p);
	p->answer = answer;
	rig_init(&p->g);
	p->listener =
	    evconnlistener_new_bind(p->g.base, on_accept, p, LEV_OPT_CLOSE_ON_FREE, -1, (void *)&six, sizeof six);
	if (p->listener == NULL)
		p->listener = evconnlistener_new_bind(p->g.base, on_accept, p, LEV_OPT_CLOSE_ON_FREE, -1, (void *)&four,
						      sizeof four);
	assert_non_null(p->listener);
	assert_int_equal(getsockname(evconnlistener_get_fd(p->listener), (void *)&got, &room), 0);
	p->port = ntohs(got.sin_port); /* in the same place in both */
	snprintf(p->address, sizeof p->address, "sentinel:main@127.0.0.1:%d", p->port);
	p->g.cfg.store = CACHE_REDIS;
	p->g.cfg.address = p->address;
	p->g.cfg.sentinel_password_file = password_file;
	p->g.cfg.backoff_least_ms = 5;
	p->g.cfg.backoff_most_ms = 10;
	rig_open(&p->g);
}

static void close_player(struct player *p)
{
	evconnlistener_free(p->listener);
	p->listener = NULL;
	cache_client_destroy(p->g.cl);
	cache_destroy(p->g.cache);
	event_base_loop(p->g.base, EVLOOP_NONBLOCK); /* closed connections */
	event_base_free(p->g.base);
}

/* What the link says of answers that help nothing; it goes on asking. */
static void useless_answers_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *answer, *says;
		bool closes;
	} cases[] = {{"*-1\r\n", "it knows no Redis of that name", false},
		     {"-ERR no such thing\r\n", "ERR no such thing", false},
		     {"-NOAUTH Authentication required.\r\n", "NOAUTH", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n$6\r\n999999\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$4\r\na/;b\r\n$4\r\n6379\r\n", "an answer that a sentinel doesn't give", false},
		     {"*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n", "an answer that a sentinel doesn't give", false},
		     {"+PONG\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$999999999\r\n", "Protocol error", true},
		     {"", "closed", true},
		     {"*2\r\n$22\r\nno-such-host.invalid.x\r\n$4\r\n6379\r\n", "no-such-host.invalid.x", false}};
	for (size_t i = 0; i < N(cases); i++) {
		struct player p;
		open_player(&p, cases[i].answer, NULL);
		p.closes = cases[i].closes;
		rig_turn_until_state(&p.g, CACHE_IS_DOWN);
		const char *text = cache_client_state_text(p.g.cl);
		if (strstr(text, "the sentinel at 127.0.0.1, port") == NULL ||
		    (strstr(text, cases[i].says) == NULL && !cases[i].closes))
			fail_msg("%zu: %s", i, text);
		rig_turn_until(&p.g, &p.n_questions, 2);
		assert_int_equal(p.n_scripts, 0);
		close_player(&p);
	}
}

static void the_named_one_is_used(void **state)
{
	(void)state;
	static const char *const answers[] = {"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n",
					      "*2\r\n$9\r\nlocalhost\r\n$5\r\n%05d\r\n"};
	for (size_t i = 0; i < N(answers); i++) {
		struct player p;
		open_player(&p, answers[i], NULL);
		rig_turn_until(&p.g, &p.n_scripts, 1);
		assert_true(p.n_questions >= 1);
		assert_int_equal(p.n_auths, 0);
		close_player(&p);
	}
}

static void a_password_is_for_the_sentinel(void **state)
{
	(void)state;
	char path[] = "/tmp/sluice-sentinel-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, "secret\n", 7) == 7);
	close(fd);
	struct player p;
	open_player(&p, "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n", path);
	unlink(path);
	rig_turn_until(&p.g, &p.n_scripts, 1);
	assert_int_equal(p.n_auths, p.n_questions); /* not for the Redis that it names */
	close_player(&p);
}

/* A mute one costs the time for connecting, then the next attempt asks again. */
static void a_mute_one_is_left(void **state)
{
	(void)state;
	struct player p;
	open_player(&p, "", NULL);
	cache_client_destroy(p.g.cl); /* while it is asked */
	cache_destroy(p.g.cache);
	p.g.cfg.connect_timeout_ms = 30;
	rig_open(&p.g);
	rig_turn_until_state(&p.g, CACHE_IS_DOWN);
	assert_non_null(strstr(cache_client_state_text(p.g.cl), "no answer within 30 ms"));
	p.answer = "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n";
	rig_turn_until(&p.g, &p.n_scripts, 1);
	close_player(&p);
}

/* ---- a resolver that hangs ---- */

static atomic_int n_hanging;
static sem_t released;

/* In place of the C library's. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
	static _Thread_local int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	const bool numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0; /* needs no resolver */
	if (!numeric && host != NULL && strcmp(host, "hangs.invalid") == 0) {
		atomic_fetch_add(&n_hanging, 1);
		while (sem_wait(&released) != 0)
			;
		atomic_fetch_sub(&n_hanging, 1);
		return EAI_AGAIN;
	}
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(host, port, hints, out);
}

/* Each attempt leaves a thread that waits for the resolver, up to a bound; all of them outlive the client. */
static void lookups_that_hang_are_bounded(void **state)
{
	(void)state;
	struct player p;
	open_player(&p, "", NULL);
	cache_client_destroy(p.g.cl);
	cache_destroy(p.g.cache);
	assert_int_equal(sem_init(&released, 0, 0), 0);
	p.answer = "*2\r\n$13\r\nhangs.invalid\r\n$4\r\n6379\r\n";
	p.g.cfg.connect_timeout_ms = 30;
	rig_open(&p.g);
	const uint64_t end = clock_now_ns() + RIG_PATIENCE_MS * NS_PER_MS;
	while (strstr(cache_client_state_text(p.g.cl), "no memory or thread to look up hangs.invalid") == NULL) {
		assert_true(clock_now_ns() < end);
		rig_turn_until(&p.g, &p.n_questions, p.n_questions + 1);
	}
	close_player(&p);
	while (atomic_load(&n_hanging) < SENTINEL_MOST_LOOKUPS && clock_now_ns() < end)
		sched_yield();
	assert_int_equal(atomic_load(&n_hanging), SENTINEL_MOST_LOOKUPS);
	for (int i = 0; i < SENTINEL_MOST_LOOKUPS; i++)
		sem_post(&released);
	while (atomic_load(&n_hanging) > 0 && clock_now_ns() < end)
		sched_yield();
	assert_int_equal(atomic_load(&n_hanging), 0);
}

/* ---- the doctor's look ---- */

/* A sentinel on a thread of its own, since redis_check blocks: it answers one connection. */
struct speaker {
	int fd, port;
	const char *answer;
};

static void *speak(void *arg)
{
	struct speaker *s = arg;
	char question[512];
	int fd = accept(s->fd, NULL, NULL);
	if (fd >= 0 && read(fd, question, sizeof question) > 0)
		(void)!write(fd, s->answer, strlen(s->answer));
	if (fd >= 0)
		close(fd);
	return NULL;
}

static int check_with(const char *answer, struct redis_facts *facts, struct sl_err *err)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t room = sizeof at;
	struct speaker s = {.fd = socket(AF_INET, SOCK_STREAM, 0), .answer = answer};
	struct cache_config cfg;
	char address[64];
	pthread_t thread;
	assert_int_equal(bind(s.fd, (void *)&at, sizeof at) | listen(s.fd, 1) | getsockname(s.fd, (void *)&at, &room),
			 0);
	snprintf(address, sizeof address, "sentinel:main@127.0.0.1:%d", ntohs(at.sin_port));
	cache_config_init(&cfg);
	cfg.address = address;
	cfg.connect_timeout_ms = RIG_PATIENCE_MS;
	assert_int_equal(pthread_create(&thread, NULL, speak, &s), 0);
	int rc = redis_check(&cfg, facts, err);
	pthread_join(thread, NULL);
	close(s.fd);
	return rc;
}

static void the_doctor_names_useless_answers(void **state)
{
	(void)state;
	static const struct {
		const char *answer, *says;
		bool refused;
	} cases[] = {{"*-1\r\n", "it knows no Redis of that name", false},
		     {"-NOAUTH Authentication required.\r\n", "NOAUTH", true},
		     {"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$9\r\n127.0.0.1\r\n$-1\r\n", "an answer that a sentinel doesn't give", false},
		     {"*2\r\n$-1\r\n$4\r\n6379\r\n", "an answer that a sentinel doesn't give", false},
		     {"+PONG\r\n", "an answer that a sentinel doesn't give", false},
		     {"", "no answer to SENTINEL", false}};
	for (size_t i = 0; i < N(cases); i++) {
		struct redis_facts facts;
		struct sl_err err = {0};
		assert_int_not_equal(check_with(cases[i].answer, &facts, &err), 0);
		if (strstr(err.text, "the sentinel at 127.0.0.1, port") == NULL ||
		    strstr(err.text, cases[i].says) == NULL)
			fail_msg("%zu: %s", i, err.text);
		assert_true(facts.of_sentinel);
		assert_int_equal(facts.is_refused, cases[i].refused);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(addresses_are_read),
	    cmocka_unit_test(useless_answers_are_named),
	    cmocka_unit_test(the_named_one_is_used),
	    cmocka_unit_test(a_password_is_for_the_sentinel),
	    cmocka_unit_test(a_mute_one_is_left),
	    cmocka_unit_test(lookups_that_hang_are_bounded),
	    cmocka_unit_test(the_doctor_names_useless_answers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
