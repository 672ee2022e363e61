/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits that are not of one connection: how many of an address, memory, an answer's whole time. Who
 * is over one is told, nobody else notices, and it ends when its cause does.
 */
#include "tests/support/transport_rig.h"

#include <pthread.h>

#include "gateway/transport/addr_count.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/forwarded.h"
#include "gateway/transport/pressure.h"

enum { MANY = 10, THREADS = 4, ROUNDS = 20000 };

static struct rig rig;
static uint64_t now;
static char loopback_block[] = "127.0.0.0/8";
static char *loopback[] = {loopback_block};

static const char get[] = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n";
static const char never[] = "GET /never HTTP/1.1\r\nHost: h\r\n\r\n";
static const char post[] = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";

static int setup(void **state)
{
	(void)state;
	rig_config(&rig);
	rig_start(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_stop(&rig);
	assert_int_equal(addr_count_entries(), 0);
	return 0;
}

/* Sends and reads one answer of a fixed length, or to the end of the connection. "": closed. */
static void ask(int fd, const char *text, char out[1024])
{
	struct sl_buf in;
	time_t end = rig_now() + RIG_PATIENCE_S;
	buf_init(&in, 1 << 20);
	rig_send(&rig, fd, text, strlen(text));
	for (bool open = true; open;) {
		assert_true(rig_now() <= end);
		open = rig_recv(fd, &in);
		snprintf(out, 1024, "%.*s", (int)(in.len < 1023 ? in.len : 1023),
			 in.len > 0 ? (const char *)buf_data(&in) : "");
		const char *body = strstr(out, "\r\n\r\n"), *n = strstr(out, "content-length: ");
		if (body != NULL && n != NULL && strlen(body + 4) >= (size_t)atoi(n + 16))
			break;
		if (open)
			rig_turn(&rig);
	}
	buf_dispose(&in);
}

static void expect(int fd, const char *text, int status)
{
	char out[1024], begin[32];
	ask(fd, text, out);
	snprintf(begin, sizeof begin, "HTTP/1.1 %d ", status);
	if (strncmp(out, begin, strlen(begin)) != 0)
		fail_msg("wanted %d: %s", status, out);
	if (status == 429 || status == 503)
		assert_non_null(strstr(out, "retry-after: 1\r\n"));
}

static bool is_closed(int fd)
{
	char out[1024];
	ask(fd, get, out);
	return out[0] == '\0';
}

/* ---- addresses ---- */

static void connections_over_the_limit_are_told(void **state)
{
	(void)state;
	int fd[MANY];
	rig.cfg.limits.connections_per_address = 4;
	for (int i = 0; i < 4; i++) {
		fd[i] = rig_connect(&rig);
		expect(fd[i], get, 200);
	}
	/* Four more are told, with the connection's end; further ones are closed. */
	for (int i = 4; i < 8; i++)
		fd[i] = rig_connect(&rig);
	RIG_UNTIL(&rig, rig.tr->n_conns == 8);
	for (int i = 8; i < MANY; i++) {
		fd[i] = rig_connect(&rig);
		assert_true(is_closed(fd[i]));
	}
	for (int i = 4; i < 8; i++) {
		char out[1024];
		ask(fd[i], get, out);
		assert_non_null(strstr(out, "HTTP/1.1 429 "));
		assert_non_null(strstr(out, "connection: close\r\n"));
		assert_non_null(strstr(out, "retry-after: 1\r\n"));
	}
	/* Those below it do not notice. */
	for (int i = 0; i < 4; i++)
		expect(fd[i], get, 200);
	assert_int_equal(rig.n_requests, 8);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
	int again = rig_connect(&rig);
	expect(again, get, 200);
	close(again);
}

static void requests_over_the_limit_are_told(void **state)
{
	(void)state;
	int fd[3], other;
	rig.cfg.limits.streams_per_address = 3;
	for (int i = 0; i < 3; i++) {
		fd[i] = rig_connect(&rig);
		rig_send(&rig, fd[i], never, strlen(never));
	}
	RIG_UNTIL(&rig, rig.n_requests == 3);
	other = rig_connect(&rig);
	expect(other, get, 429);
	expect(other, post, 429);
	close(fd[0]);
	RIG_UNTIL(&rig, rig.n_closed == 1);
	/* The same connection goes on. */
	expect(other, get, 200);
	close(fd[1]);
	close(fd[2]);
	close(other);
}

static void exempt_addresses_are_not_counted(void **state)
{
	(void)state;
	int fd[MANY];
	rig.cfg.limits.connections_per_address = 1;
	rig.cfg.limits.streams_per_address = 1;
	rig.cfg.limits.exempt_addresses = (struct conf_strings){loopback, 1};
	transport_reload(rig.tr);
	for (int i = 0; i < MANY; i++) {
		fd[i] = rig_connect(&rig);
		rig_send(&rig, fd[i], never, strlen(never));
	}
	RIG_UNTIL(&rig, rig.n_requests == MANY);
	assert_int_equal(addr_count_entries(), 0);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
}

/* Behind a proxy each client has a limit of its own, and the proxy none. */
static void clients_behind_a_proxy_are_counted(void **state)
{
	(void)state;
	static const char *const clients[] = {"192.0.2.1", "192.0.2.2", "2001:db8:0:1::1", "2001:db8:0:2::1"};
	static const char *const same[] = {"192.0.2.1", "192.0.2.2", "2001:db8:0:1:9::", "2001:db8:0:2::2"};
	char text[256];
	int fd[4], other;
	rig.cfg.limits.connections_per_address = 1;
	rig.cfg.limits.streams_per_address = 1;
	rig.cfg.trusted_proxies = (struct conf_strings){loopback, 1};
	rig.cfg.forwarded = FORWARDED_X_FORWARDED_FOR;
	transport_reload(rig.tr);
	for (int i = 0; i < 4; i++) {
		fd[i] = rig_connect(&rig);
		snprintf(text, sizeof text, "GET /never HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %s\r\n\r\n",
			 clients[i]);
		rig_send(&rig, fd[i], text, strlen(text));
	}
	RIG_UNTIL(&rig, rig.n_requests == 4);
	assert_int_equal(addr_count_entries(), 4);
	other = rig_connect(&rig);
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof text, "GET /small HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %s\r\n\r\n", same[i]);
		expect(other, text, 429);
	}
	expect(other, "GET /small HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.3\r\n\r\n", 200);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	close(other);
}

static void *count_about(void *arg)
{
	unsigned r = (unsigned)(uintptr_t)arg;
	struct net_addr a = {{0}};
	struct addr_count *held[8] = {NULL};
	for (int i = 0; i < ROUNDS; i++) {
		r = r * 1664525 + 1013904223;
		int at = (int)(r >> 28) & 7;
		if (held[at] != NULL) {
			addr_give(held[at], (enum addr_kind)(at & 1));
			held[at] = NULL;
			continue;
		}
		a.b[1] = (uint8_t)(r >> 16 & 15);
		a.b[15] = (uint8_t)(r >> 8); /* in one /64 */
		if (addr_take(&a, (enum addr_kind)(at & 1), &held[at]) < 1)
			return arg;
	}
	for (int at = 0; at < 8; at++)
		addr_give(held[at], (enum addr_kind)(at & 1));
	return NULL;
}

static void counts_hold_under_threads(void **state)
{
	(void)state;
	pthread_t id[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&id[i], NULL, count_about, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;
		pthread_join(id[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(addr_count_entries(), 0);
}

/* ---- memory ---- */

static uint64_t resident(void)
{
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %llu", &pages), 1);
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A turn with the tick, however long ago the last one was. */
static void tick(void)
{
	event_active(rig.tr->tick, EV_TIMEOUT, 1);
	rig_turn(&rig);
}

/* Until the level is what it should be under that limit. */
static void press(uint64_t limit, enum pressure level)
{
	rig.cfg.limits.memory = limit;
	time_t end = rig_now() + RIG_PATIENCE_S;
	do {
		assert_true(rig_now() <= end);
		now += 200 * NS_PER_MS;
		tick();
	} while (pressure_now() != level);
}

static void memory_is_shed(void **state)
{
	(void)state;
	now = clock_now_ns();
	clock_fake(&now);
	int idle = rig_connect(&rig), busy = rig_connect(&rig);
	struct sl_buf in;
	buf_init(&in, 1 << 20);
	expect(idle, get, 200);
	rig_send(&rig, busy, never, strlen(never));
	RIG_UNTIL(&rig, rig.n_requests == 2);
	press(resident() * 15 / 16, PRESSURE_SHED);
	/* Idle connections end, open requests go on. */
	rig_read_end(&rig, idle, &in);
	assert_int_equal(in.len, 0);
	buf_dispose(&in);
	close(idle);
	assert_int_equal(rig.n_closed, 1);
	int other = rig_connect(&rig);
	expect(other, post, 503);
	close(other);
	other = rig_connect(&rig);
	expect(other, get, 200);
	assert_int_equal(rig.n_requests, 3);
	close(other);
	/* Far over it nobody is let in. */
	press(resident() / 2, PRESSURE_FULL);
	other = rig_connect(&rig);
	assert_true(is_closed(other));
	close(other);
	press(resident() * 2, PRESSURE_NONE);
	other = rig_connect(&rig);
	expect(other, post, 200);
	close(other);
	press(1, PRESSURE_FULL);
	press(0, PRESSURE_NONE);
	close(busy);
}

/* ---- time ---- */

/* A reader that takes a little now and then is never stalled; the answer's own time ends it. */
static void an_answer_has_a_whole_time(void **state)
{
	(void)state;
	enum { STEP_MS = 12000, RESPONSE_MS = 60000, TAKEN = 1 << 20 };
	static const char big[] = "GET /big?80000000 HTTP/1.1\r\nHost: h\r\n\r\n";
	static char taken[TAKEN];
	now = clock_now_ns();
	clock_fake(&now);
	rig.tr->response.after_ns = RESPONSE_MS * NS_PER_MS;
	rig.cfg.limits.response_ms = RESPONSE_MS;
	int fd = rig_connect_to(&rig, false, 4096), steps = 0;
	rig_send(&rig, fd, big, strlen(big));
	RIG_UNTIL(&rig, rig.n_requests == 1);
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (rig.n_closed == 0) {
		assert_true(rig_now() <= end);
		now += STEP_MS * NS_PER_MS;
		steps++;
		size_t before = rig.pulled;
		while (rig.pulled == before && rig.n_closed == 0) {
			(void)!recv(fd, taken, sizeof taken, MSG_DONTWAIT);
			assert_true(rig_now() <= end);
			tick();
		}
	}
	assert_true(steps >= RESPONSE_MS / STEP_MS);
	assert_int_equal(rig.closed[HTTP_CLOSE_TIMEOUT], 1);
	assert_true(rig.pulled < 80000000);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(connections_over_the_limit_are_told), T(requests_over_the_limit_are_told),
	    T(exempt_addresses_are_not_counted),    T(clients_behind_a_proxy_are_counted),
	    T(counts_hold_under_threads),           T(memory_is_shed),
	    T(an_answer_has_a_whole_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
