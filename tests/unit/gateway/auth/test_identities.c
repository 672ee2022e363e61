/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of the store as a thread remembers them: for how long, how many, who pays for unknown ones, and
 * what holds when the store fails. Secrets of browser tokens: made once, agreed on, kept in a file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "gateway/auth/identities.h"
#include "gateway/auth/token_secrets.h"
#include "tests/support/cache_rig.h"
#include "tests/support/redis_server.h"

enum { KNOWN_MS = 30000, UNKNOWN_MS = 2000, STALE_MS = 300000, MOST = 8 };

struct world {
	struct rig g;
	struct identities *all;
	uint64_t now_ns;
};

static struct redis_server server;

static void open_world(struct world *w, const char *address)
{
	struct identities_config cfg;
	memset(w, 0, sizeof *w);
	rig_init(&w->g);
	w->g.cfg.now_us = NULL;
	if (address != NULL) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = address;
		w->g.cfg.op_timeout_ms = 2000;
	}
	rig_open(&w->g);
	identities_config_init(&cfg);
	cfg.seed = 1; /* with which the tests' addresses do not collide */
	cfg.most_known = cfg.most_unknown = cfg.most_asked = MOST;
	cfg.tries = 100;
	cfg.tries_per_s = 1;
	w->all = identities_create(w->g.cl, &cfg);
	assert_non_null(w->all);
	w->now_ns = 1000 * NS_PER_S;
}

static void close_world(struct world *w)
{
	clock_fake(NULL);
	identities_destroy(w->all);
	rig_close(&w->g);
}

static int set_up(void **state)
{
	static struct world w;
	open_world(&w, NULL);
	*state = &w;
	return 0;
}

static int tear_down(void **state)
{
	close_world(*state);
	return 0;
}

static void digest_of(unsigned n, uint8_t out[IDENTITY_DIGEST_BYTES])
{
	memset(out, 0, IDENTITY_DIGEST_BYTES);
	memcpy(out, &n, sizeof n);
}

static void put(struct world *w, unsigned n, int64_t revoked_s)
{
	struct identity id = {
	    .name = "k", .tier = "paid", .tenant = "t", .start = "s", .created_s = 1, .revoked_s = revoked_s};
	uint8_t digest[IDENTITY_DIGEST_BYTES];
	struct cache_key key;
	struct sl_buf b;
	struct answer a = {0};
	snprintf(id.name, sizeof id.name, "k%u", n);
	buf_init(&b, IDENTITY_RECORD_MAX);
	assert_int_equal(identity_print(&b, &id), 0);
	digest_of(n, digest);
	identity_key(&key, digest);
	cache_put(w->g.cl, &a.op, &key, IDENTITY_VERSION, buf_data(&b), b.len, 0, on_answer);
	assert_int_equal(rig_wait(&w->g, &a)->code, 0);
	answer_reset(&a);
	buf_dispose(&b);
}

struct look {
	struct identity_wait wait;
	int n_done;
	enum identity_verdict v;
	char name[IDENTITY_NAME_MAX + 1];
};

static void on_found(struct identity_wait *w, enum identity_verdict v, const struct identity *id)
{
	struct look *l = (struct look *)(void *)w;
	l->n_done++;
	l->v = v;
	assert_true((id != NULL) == (v == IDENTITY_KNOWN));
	if (id != NULL)
		memcpy(l->name, id->name, sizeof l->name);
}

static const struct net_addr peer = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}};

static const struct net_addr other_peer = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}},
			     third_peer = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3}};

static void begin_from(struct world *w, struct look *l, unsigned n, const struct net_addr *from)
{
	uint8_t digest[IDENTITY_DIGEST_BYTES];
	const struct identity *id = NULL;
	memset(l, 0, sizeof *l);
	list_init(&l->wait.node);
	l->wait.done = on_found;
	digest_of(n, digest);
	clock_fake(&w->now_ns);
	enum identity_verdict v = identities_find(w->all, digest, from, &l->wait, &id);
	clock_fake(NULL);
	if (v != IDENTITY_ASKED)
		on_found(&l->wait, v, id);
}

static void begin(struct world *w, struct look *l, unsigned n) { begin_from(w, l, n, &peer); }

static void finish(struct world *w, struct look *l)
{
	struct timeval tick = {.tv_usec = 20000};
	uint64_t end = clock_now_ns() + RIG_PATIENCE_MS * NS_PER_MS;
	while (l->n_done == 0) {
		assert_true(clock_now_ns() < end);
		event_base_loopexit(w->g.base, &tick);
		/* The store lives in real time, what is remembered in the test's. */
		event_base_loop(w->g.base, EVLOOP_ONCE);
	}
}

/* *asked: the store was. */
static enum identity_verdict look(struct world *w, unsigned n, bool *asked)
{
	struct look l;
	begin(w, &l, n);
	*asked = l.n_done == 0;
	finish(w, &l);
	if (l.v == IDENTITY_KNOWN) {
		char name[16];
		snprintf(name, sizeof name, "k%u", n);
		assert_string_equal(l.name, name);
	}
	return l.v;
}

/* The times that entries are given are of the real clock: they end within the life of the test's. */
static void pass(struct world *w, uint64_t ms)
{
	__atomic_store_n(&w->now_ns, clock_now_ns() + ms * NS_PER_MS,
			 __ATOMIC_RELAXED); /* the store's thread reads it */
}

static void what_is_known_is_remembered_for_its_time(void **state)
{
	struct world *w = *state;
	bool asked;
	put(w, 1, 0);
	pass(w, 0);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	assert_true(asked);
	put(w, 1, 77); /* revoked */
	pass(w, KNOWN_MS - 2000);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	assert_false(asked);
	pass(w, KNOWN_MS + 1);
	assert_int_equal(look(w, 1, &asked), IDENTITY_UNKNOWN);
	assert_true(asked);
	/* Unknown for two seconds. */
	put(w, 1, 0);
	pass(w, UNKNOWN_MS - 1500);
	assert_int_equal(look(w, 1, &asked), IDENTITY_UNKNOWN);
	assert_false(asked);
	pass(w, UNKNOWN_MS + 1);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	assert_true(asked);
}

static void many_wait_for_one_answer(void **state)
{
	struct world *w = *state;
	struct look l[3], gone;
	put(w, 5, 0);
	pass(w, 0);
	for (int i = 0; i < 3; i++)
		begin(w, &l[i], 5);
	begin(w, &gone, 5);
	assert_int_equal(identities_count(w->all).asked, 1);
	identity_wait_cancel(&gone.wait);
	for (int i = 0; i < 3; i++) {
		finish(w, &l[i]);
		assert_int_equal(l[i].v, IDENTITY_KNOWN);
		assert_int_equal(l[i].n_done, 1);
	}
	assert_int_equal(gone.n_done, 0);
}

static void what_is_unknown_never_displaces_what_is_known(void **state)
{
	struct world *w = *state;
	bool asked;
	for (unsigned n = 1; n <= MOST; n++)
		put(w, n, 0);
	pass(w, 0);
	for (unsigned n = 1; n <= MOST; n++)
		assert_int_equal(look(w, n, &asked), IDENTITY_KNOWN);
	for (unsigned n = 100; n < 100 + 5 * MOST; n++)
		assert_int_equal(look(w, n, &asked), IDENTITY_UNKNOWN);
	struct identities_counts c = identities_count(w->all);
	assert_int_equal(c.known, MOST);
	assert_int_equal(c.unknown, MOST);
	assert_int_equal(c.asked, 0);
	for (unsigned n = 1; n <= MOST; n++) {
		assert_int_equal(look(w, n, &asked), IDENTITY_KNOWN);
		assert_false(asked);
	}
	/* One more that is good takes the place of the one that was not used for longest. */
	put(w, 50, 0);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	assert_int_equal(look(w, 50, &asked), IDENTITY_KNOWN);
	assert_int_equal(identities_count(w->all).known, MOST);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	assert_false(asked);
	assert_int_equal(look(w, 2, &asked), IDENTITY_KNOWN);
	assert_true(asked);
}

static void questions_at_once_are_bounded(void **state)
{
	struct world *w = *state;
	struct look l[MOST], more;
	pass(w, 0);
	/* Half of them an address may have, the others are left to others. */
	for (unsigned i = 0; i < MOST / 2; i++)
		begin_from(w, &l[i], 200 + i, &peer);
	begin_from(w, &more, 300, &peer);
	assert_int_equal(more.v, IDENTITY_TOO_MANY);
	assert_int_equal(more.n_done, 1);
	for (unsigned i = MOST / 2; i < MOST; i++)
		begin_from(w, &l[i], 200 + i, &other_peer);
	begin_from(w, &more, 301, &third_peer);
	assert_int_equal(more.v, IDENTITY_UNAVAILABLE);
	assert_int_equal(more.n_done, 1);
	for (unsigned i = 0; i < MOST; i++) {
		finish(w, &l[i]);
		assert_int_equal(l[i].v, IDENTITY_UNKNOWN);
	}
}

static void an_address_pays_for_unknown_keys_only(void **state)
{
	struct world *w = *state;
	bool asked;
	put(w, 1, 0);
	put(w, 2, 0);
	pass(w, 0);
	for (unsigned i = 0; i < 300; i++) { /* good ones cost nothing */
		pass(w, (uint64_t)(KNOWN_MS + 1) * (i & 1));
		assert_int_equal(look(w, 1 + (i & 1), &asked), IDENTITY_KNOWN);
	}
	pass(w, 0);
	unsigned n = 1000;
	while (look(w, n, &asked) == IDENTITY_UNKNOWN)
		n++;
	assert_int_equal(look(w, ++n, &asked), IDENTITY_TOO_MANY);
	assert_in_range(n, 1090, 1110);
	assert_int_equal(look(w, 1, &asked), IDENTITY_KNOWN);
	/* Good keys of the same address are found, also those that were never seen. */
	put(w, 3, 0);
	put(w, 4, 0);
	assert_int_equal(look(w, 3, &asked), IDENTITY_KNOWN);
	assert_true(asked);
	assert_int_equal(look(w, ++n, &asked), IDENTITY_TOO_MANY);
	assert_int_equal(look(w, 4, &asked), IDENTITY_KNOWN);
	/* One a second comes back. */
	pass(w, 3500);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(look(w, 5000 + i, &asked), IDENTITY_UNKNOWN);
	assert_int_equal(look(w, 6000, &asked), IDENTITY_TOO_MANY);
}

static void without_memory_nothing_is_kept(void **state)
{
	struct world *w = *state;
	struct look l;
	put(w, 9, 0);
	pass(w, 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	begin(w, &l, 9);
	fault_disarm_all();
	assert_int_equal(l.v, IDENTITY_UNAVAILABLE);
	bool asked;
	assert_int_equal(look(w, 9, &asked), IDENTITY_KNOWN);
}

static void when_the_store_fails_what_was_known_is_believed_for_a_while(void **state)
{
	static struct world w;
	bool asked;
	(void)state;
	if (!redis_server_installed()) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	redis_server_start(&server, NULL);
	open_world(&w, server.address);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	put(&w, 3, 0);
	pass(&w, 0);
	assert_int_equal(look(&w, 3, &asked), IDENTITY_KNOWN);
	redis_server_kill(&server);
	pass(&w, KNOWN_MS + 1);
	assert_int_equal(look(&w, 3, &asked), IDENTITY_KNOWN);
	assert_true(asked);
	assert_int_equal(look(&w, 4, &asked), IDENTITY_UNAVAILABLE);
	assert_int_equal(identities_count(w.all).unknown, 0);
	/* The clock of what is remembered can't be turned further back than it was set: so forward. */
	struct look l;
	pass(&w, STALE_MS + KNOWN_MS);
	clock_fake(&w.now_ns);
	begin(&w, &l, 3);
	clock_fake(&w.now_ns);
	while (l.n_done == 0)
		event_base_loop(w.g.base, EVLOOP_ONCE);
	clock_fake(NULL);
	assert_int_equal(l.v, IDENTITY_UNAVAILABLE);
	close_world(&w);
	redis_server_stop(&server);
}

/* ---- secrets of browser tokens ---- */

struct secret_look {
	struct secret_wait wait;
	int n_done;
	enum secret_verdict v;
	uint8_t secret[BROWSER_TOKEN_SECRET_BYTES];
};

static void on_secret(struct secret_wait *w, enum secret_verdict v, const uint8_t *secret)
{
	struct secret_look *l = (struct secret_look *)(void *)w;
	l->n_done++;
	l->v = v;
	if (secret != NULL)
		memcpy(l->secret, secret, sizeof l->secret);
}

static void look_at_secret(struct rig *g, struct token_secrets *s, int64_t period, struct secret_look *l)
{
	const uint8_t *secret = NULL;
	memset(l, 0, sizeof *l);
	list_init(&l->wait.node);
	l->wait.done = on_secret;
	enum secret_verdict v = token_secrets_find(s, period, &l->wait, &secret);
	if (v != SECRET_ASKED)
		on_secret(&l->wait, v, secret);
	rig_turn_until(g, &l->n_done, 1);
}

static void secrets_are_files_without_redis(void **state)
{
	struct world *w = *state;
	char dir[] = "/tmp/sluice-secrets-XXXXXX", path[128], command[128];
	int64_t today = token_secrets_period(clock_unix_s());
	struct secret_look a, b, c;
	struct stat st;
	assert_non_null(mkdtemp(dir));
	struct token_secrets *one = token_secrets_create(w->g.cl, dir), *two = token_secrets_create(w->g.cl, dir);
	look_at_secret(&w->g, one, today, &a);
	look_at_secret(&w->g, two, today, &b);
	assert_int_equal(a.v, SECRET_THERE);
	assert_memory_equal(a.secret, b.secret, sizeof a.secret);
	look_at_secret(&w->g, one, today - 1, &c);
	assert_int_equal(c.v, SECRET_THERE);
	assert_memory_not_equal(a.secret, c.secret, sizeof a.secret);
	look_at_secret(&w->g, one, today - 2, &c);
	assert_int_equal(c.v, SECRET_NONE);
	look_at_secret(&w->g, one, today + 2, &c);
	assert_int_equal(c.v, SECRET_NONE);
	snprintf(path, sizeof path, "%s/token-secrets/%lld", dir, (long long)today);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, BROWSER_TOKEN_SECRET_BYTES);
	/* One that others may read is not used. */
	token_secrets_destroy(two);
	assert_int_equal(chmod(path, 0644), 0);
	two = token_secrets_create(w->g.cl, dir);
	look_at_secret(&w->g, two, today, &b);
	assert_int_equal(b.v, SECRET_UNAVAILABLE);
	token_secrets_destroy(one);
	token_secrets_destroy(two);
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* Days three apart share a slot: whoever waits for the one is told when the clock has come to the other. */
static void a_clock_that_is_set_while_a_secret_is_awaited(void **state)
{
	static struct secret_look a, b;
	const uint8_t *secret;
	const int64_t day_s = 86400, day = 20000;
	int64_t now_s = day * day_s;
	struct rig g;
	(void)state;
	if (!redis_server_installed()) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	redis_server_start(&server, NULL);
	rig_init(&g);
	g.cfg.store = CACHE_REDIS;
	g.cfg.address = server.address;
	rig_open(&g);
	rig_turn_until_state(&g, CACHE_IS_UP);
	struct token_secrets *s = token_secrets_create(g.cl, "/nowhere");
	clock_fake_unix(&now_s);
	list_init(&a.wait.node);
	list_init(&b.wait.node);
	a.wait.done = b.wait.done = on_secret;
	assert_int_equal(token_secrets_find(s, day, &a.wait, &secret), SECRET_ASKED);
	now_s -= 2 * day_s;
	assert_int_equal(token_secrets_find(s, day - 3, &b.wait, &secret), SECRET_ASKED);
	assert_int_equal(a.n_done, 1);
	assert_int_equal(a.v, SECRET_UNAVAILABLE);
	rig_turn_until(&g, &b.n_done, 1);
	assert_int_equal(b.v, SECRET_THERE);
	clock_fake_unix(NULL);
	token_secrets_destroy(s);
	rig_close(&g);
	redis_server_stop(&server);
}

static void gateways_agree_on_secrets_in_redis(void **state)
{
	static struct rig g[2];
	struct token_secrets *s[2];
	struct secret_look l[2];
	int64_t today = token_secrets_period(clock_unix_s());
	(void)state;
	if (!redis_server_installed()) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	redis_server_start(&server, NULL);
	for (int i = 0; i < 2; i++) {
		rig_init(&g[i]);
		g[i].cfg.store = CACHE_REDIS;
		g[i].cfg.address = server.address;
		rig_open(&g[i]);
		s[i] = token_secrets_create(g[i].cl, "/nonexistent");
		look_at_secret(&g[i], s[i], today, &l[i]);
		assert_int_equal(l[i].v, SECRET_THERE);
	}
	assert_memory_equal(l[0].secret, l[1].secret, sizeof l[0].secret);
	for (int i = 0; i < 2; i++) {
		token_secrets_destroy(s[i]);
		rig_close(&g[i]);
	}
	redis_server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_known_is_remembered_for_its_time, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(many_wait_for_one_answer, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_unknown_never_displaces_what_is_known, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(questions_at_once_are_bounded, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_address_pays_for_unknown_keys_only, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(without_memory_nothing_is_kept, set_up, tear_down),
	    cmocka_unit_test(when_the_store_fails_what_was_known_is_believed_for_a_while),
	    cmocka_unit_test_setup_teardown(secrets_are_files_without_redis, set_up, tear_down),
	    cmocka_unit_test(gateways_agree_on_secrets_in_redis),
	    cmocka_unit_test(a_clock_that_is_set_while_a_secret_is_awaited),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
