/* SPDX-License-Identifier: Apache-2.0
 *
 * Three slots: yesterday, today, tomorrow. A slot offers the store a new random secret, which the store keeps unless it
 * has one (cache_put_absent), and uses the one that the store then has; so simultaneous gateways agree. A file works
 * the same way (file_make_private).
 */
#include "gateway/auth/token_secrets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

enum { SLOTS = 3, PERIOD_S = 86400, KEPT_PERIODS = 3, RETRY_MS = 1000, SECRET_VERSION = 1, PATH_BYTES = 4096 };

struct slot {
	struct token_secrets *home;
	int64_t period; /* -1: none yet */
	bool there;
	uint8_t secret[BROWSER_TOKEN_SECRET_BYTES]; /* offered, then agreed on */
	uint64_t retry_ns; /* earliest retry after a failed file; the store has its own circuit breaker */
	struct cache_op op;
	struct list waiters;
};

struct token_secrets {
	struct cache_client *client;
	const char *state_dir;
	struct slot slots[SLOTS];
};

int64_t token_secrets_period(int64_t unix_s) { return unix_s / PERIOD_S; }

static void call_waiters(struct slot *s, enum secret_verdict v)
{
	struct list waiters;
	uint8_t secret[BROWSER_TOKEN_SECRET_BYTES];
	memcpy(secret, s->secret, sizeof secret);
	list_init(&waiters);
	list_move_all(&s->waiters, &waiters);
	while (!list_empty(&waiters)) {
		struct secret_wait *w = list_entry(waiters.next, struct secret_wait, node);
		list_remove(&w->node);
		w->done(w, v, v == SECRET_THERE ? secret : NULL);
	}
	OPENSSL_cleanse(secret, sizeof secret);
}

/* ---- in the store ---- */

static void on_kept(struct cache_op *op, const struct cache_result *r)
{
	struct slot *s = list_entry(op, struct slot, op);
	bool well = r->code == 0 && (!r->found || r->n == sizeof s->secret);
	if (well && r->found)
		memcpy(s->secret, r->bytes, sizeof s->secret);
	if (!well)
		log_warn("cannot get the secret for browser tokens from the store: %s",
			 r->code != 0 ? sl_code_name(r->code) : "wrong size");
	s->there = well;
	call_waiters(s, well ? SECRET_THERE : SECRET_UNAVAILABLE);
}

static void ask_store(struct slot *s)
{
	struct cache_key key;
	char part[32];
	int n = snprintf(part, sizeof part, "browser tokens %lld", (long long)s->period);
	cache_key_make(&key, CACHE_IDENTITY, "secrets", part, (size_t)n);
	cache_put_absent(s->home->client, &s->op, &key, SECRET_VERSION, s->secret, sizeof s->secret,
			 (uint64_t)KEPT_PERIODS * PERIOD_S * 1000, on_kept);
}

/* ---- in a file ---- */

/* SL_ENOTFOUND: no file. */
static int read_file(const char *path, uint8_t *secret)
{
	struct stat st;
	int fd = file_open_private(path, NULL), rc = SL_EINVAL;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && st.st_size == BROWSER_TOKEN_SECRET_BYTES)
		rc = read(fd, secret, BROWSER_TOKEN_SECRET_BYTES) == BROWSER_TOKEN_SECRET_BYTES ? 0 : SL_EIO;
	close(fd);
	return rc;
}

static void remove_old(const char *dir, int64_t oldest)
{
	DIR *d = opendir(dir);
	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		char *end;
		long long period = strtoll(e->d_name, &end, 10);
		if (end != e->d_name && *end == '\0' && period < oldest)
			unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d != NULL)
		closedir(d);
}

static int ask_file(struct slot *s)
{
	char dir[PATH_BYTES - 32], path[PATH_BYTES];
	if ((size_t)snprintf(dir, sizeof dir, "%s/token-secrets", s->home->state_dir) >= sizeof dir)
		return SL_ELIMIT;
	snprintf(path, sizeof path, "%s/%lld", dir, (long long)s->period);
	int rc = read_file(path, s->secret);
	if (rc != SL_ENOTFOUND)
		return rc;
	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return SL_EIO;
	if (RAND_bytes(s->secret, sizeof s->secret) != 1)
		return SL_EIO;
	rc = file_make_private(path, s->secret, sizeof s->secret);
	if (rc != 0)
		return rc;
	remove_old(dir, s->period - KEPT_PERIODS);
	return read_file(path, s->secret);
}

/* ---- look-up ---- */

enum secret_verdict token_secrets_find(struct token_secrets *all, int64_t period, struct secret_wait *w,
				       const uint8_t **out)
{
	int64_t today = token_secrets_period(clock_unix_s());
	if (period < today - 1 || period > today + 1 || period < 0)
		return SECRET_NONE;
	struct slot *s = &all->slots[period % SLOTS];
	if (s->period != period) {
		cache_cancel(&s->op);
		call_waiters(s, SECRET_UNAVAILABLE); /* they wait for another day: the clock was set */
		OPENSSL_cleanse(s->secret, sizeof s->secret);
		s->period = period;
		s->there = false;
		s->retry_ns = 0;
	}
	if (!s->there && !cache_op_busy(&s->op)) {
		if (s->retry_ns != 0 && clock_now_ns() < s->retry_ns)
			return SECRET_UNAVAILABLE;
		bool in_file = cache_client_state(all->client) == CACHE_IS_MEMORY;
		int rc = in_file ? ask_file(s) : RAND_bytes(s->secret, sizeof s->secret) == 1 ? 0 : SL_EIO;
		if (rc != 0) {
			s->retry_ns = clock_now_ns() + RETRY_MS * NS_PER_MS;
			log_warn("cannot get the secret for browser tokens in %s/token-secrets: %s", all->state_dir,
				 sl_code_name(rc));
			return SECRET_UNAVAILABLE;
		}
		s->there = in_file;
		if (!in_file)
			ask_store(s);
	}
	if (s->there) {
		*out = s->secret;
		return SECRET_THERE;
	}
	list_push_back(&s->waiters, &w->node);
	return SECRET_ASKED;
}

void secret_wait_cancel(struct secret_wait *w) { list_remove(&w->node); }

struct token_secrets *token_secrets_create(struct cache_client *client, const char *state_dir)
{
	struct token_secrets *all = sl_zalloc(sizeof *all);
	if (all == NULL)
		return NULL;
	all->client = client;
	all->state_dir = state_dir;
	for (int i = 0; i < SLOTS; i++) {
		all->slots[i].home = all;
		all->slots[i].period = -1;
		list_init(&all->slots[i].waiters);
	}
	return all;
}

void token_secrets_destroy(struct token_secrets *all)
{
	if (all == NULL)
		return;
	for (int i = 0; i < SLOTS; i++) {
		BUG_IF(!list_empty(&all->slots[i].waiters), "auth: a secret is freed while requests wait for it");
		cache_cancel(&all->slots[i].op);
		OPENSSL_cleanse(all->slots[i].secret, sizeof all->slots[i].secret);
	}
	sl_free(all);
}
