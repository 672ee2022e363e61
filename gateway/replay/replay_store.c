/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's part of the streams in the store: its name, the lease of its process, notes from other gateways. The
 * process has one lease, renewed by its first thread; the supervisor detects a hung process.
 *
 * A lease identifies its process: the machine's boot, the namespace of process ids, its own and its start time. A
 * gateway in the same namespace sees at once that the process has gone, without waiting for the lease to expire: after
 * a crash the next gateway continues the last one's streams within milliseconds.
 */
#include "gateway/replay/replay_store_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/loop/random.h"

enum { LEAST_NOTES_MS = 50, SOON_MS = 20, HOUR_MS = 3600 * 1000, PLACE_BYTES = 160, STAT_BYTES = 1024 };

struct metric replay_m_spools =
    METRIC_OF(METRIC_GAUGE, "sluice_replay_spools", NULL, "Event streams that are being written to the store");
METRICS(replay_m_spools);
struct metric replay_m_failures = METRIC_OF(METRIC_COUNTER, "sluice_replay_store_failures_total", NULL,
					    "Writes of event streams that the store did not take at once");
METRICS(replay_m_failures);
struct metric replay_m_lost =
    METRIC_OF(METRIC_COUNTER, "sluice_replay_store_lost_total", NULL,
	      "Event streams that only this process has, because the store did not take them");
METRICS(replay_m_lost);
struct metric replay_m_follows =
    METRIC_OF(METRIC_GAUGE, "sluice_replay_follows", NULL, "Event streams of other gateways that are read here");
METRICS(replay_m_follows);
struct metric replay_m_continued =
    METRIC_OF(METRIC_COUNTER, "sluice_replay_continued_total", NULL, "Answers of dead gateways continued here");
METRICS(replay_m_continued);
struct metric replay_m_uncontinued = METRIC_OF(METRIC_COUNTER, "sluice_replay_uncontinued_total", NULL,
					       "Answers of dead gateways that could not be continued");
METRICS(replay_m_uncontinued);

/* ---- keys ---- */

static void make_key(struct cache_key *out, const char *tenant, const char *before, const char *id)
{
	char part[REPLAY_MAX_ID + 16];
	int n = snprintf(part, sizeof part, "%s%s", before, id);
	cache_key_make(out, CACHE_REPLAY, tenant, part, (size_t)n);
}

void replay_key(struct cache_key *out, enum replay_name name, uint64_t tenant, const char *id)
{
	char text[24];
	snprintf(text, sizeof text, "%016llx", (unsigned long long)tenant);
	make_key(out, text, name == REPLAY_EVENTS ? "events " : "head ", id);
}

void replay_owner_key(struct cache_key *out, enum replay_list list, const char *owner, const char *id)
{
	static const char *const lists[] = {"run", "claims", "notes", "notes"};
	static const char *const before[] = {"", "", "stop ", "read "};
	char tenant[REPLAY_OWNER_CHARS + 16];
	snprintf(tenant, sizeof tenant, "%s-%s", lists[list], owner);
	make_key(out, tenant, before[list], id);
}

void replay_lease_key(struct cache_key *out, const char *owner)
{
	cache_key_make(out, CACHE_REPLAY, "leases", owner, strcspn(owner, "-"));
}

uint64_t replay_run_ms(const struct gw_app *app) { return app->t->cfg->resume.keep_ms + HOUR_MS; }

/* ---- processes ---- */

enum process { PROCESS_UNKNOWN, PROCESS_NONE, PROCESS_THERE };

/* Its state, and its start time. A process that can't be examined (no free descriptor, for example) counts as alive. */
static enum process read_stat(long pid, char *state, unsigned long long *began)
{
	char path[64], text[STAT_BYTES];
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? PROCESS_NONE : PROCESS_UNKNOWN;
	ssize_t n = read(fd, text, sizeof text - 1);
	int code = errno;
	close(fd);
	if (n <= 0)
		return n < 0 && code == ESRCH ? PROCESS_NONE : PROCESS_UNKNOWN;
	text[n] = '\0';
	/* After the name, which may contain any character: the state, 18 more fields, the start time. */
	char *at = strrchr(text, ')');
	if (at == NULL || at[1] == '\0' || at[2] == '\0')
		return PROCESS_UNKNOWN;
	*state = at[2];
	at += 2;
	for (int i = 0; i < 19; i++)
		if ((at = strchr(at + 1, ' ')) == NULL)
			return PROCESS_UNKNOWN;
	*began = strtoull(at + 1, NULL, 10);
	return PROCESS_THERE;
}

/* Boot and namespace of process ids; "" if unknown. */
static void read_place(char out[PLACE_BYTES])
{
	char boot[64] = "", space[64] = "";
	ssize_t m = readlink("/proc/self/ns/pid", space, sizeof space - 1);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
	if (fd >= 0)
		close(fd);
	boot[strcspn(boot, "\n ")] = '\0';
	space[strcspn(space, " ")] = '\0';
	out[0] = '\0';
	if (n > 0 && m > 0)
		snprintf(out, PLACE_BYTES, "%s/%s", boot, space);
}

/* The lease's text, made once. */
static char lease_text[PLACE_BYTES + 64], gateway_name[REPLAY_GATEWAY_CHARS], place[PLACE_BYTES];

static void make_names(void)
{
	char state;
	unsigned long long began = 0;
	uint64_t name;
	BUG_IF(!random_u64(&name), "no random bytes");
	snprintf(gateway_name, sizeof gateway_name, "%016llx", (unsigned long long)name);
	read_place(place);
	if (read_stat((long)getpid(), &state, &began) != PROCESS_THERE)
		place[0] = '\0';
	snprintf(lease_text, sizeof lease_text, "%s %ld %llu", place[0] != '\0' ? place : "-", (long)getpid(), began);
}

static void need_names(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_names);
}

const char *replay_lease_text(void)
{
	need_names();
	return lease_text;
}

bool replay_lease_is_of_dead(const void *lease, size_t n)
{
	char text[sizeof lease_text], state = 0;
	unsigned long long began = 0, then;
	need_names();
	if (n >= sizeof text || place[0] == '\0')
		return false;
	memcpy(text, lease, n);
	text[n] = '\0';
	size_t n_place = strcspn(text, " ");
	if (n_place != strlen(place) || memcmp(text, place, n_place) != 0 || text[n_place] == '\0')
		return false;
	char *end;
	long pid = strtol(text + n_place, &end, 10);
	then = strtoull(end, NULL, 10);
	if (pid <= 0 || then == 0)
		return false;
	enum process is = read_stat(pid, &state, &began);
	return is == PROCESS_NONE || (is == PROCESS_THERE && (began != then || state == 'Z' || state == 'X'));
}

/* ---- the lease ---- */

static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	(void)op, (void)r; /* the next beat tries again */
}

static void on_beat(struct gw_timer *timer)
{
	struct replay_store *s = list_entry(timer, struct replay_store, beat);
	struct cache_key key;
	char text[64];
	bool up = replay_store_up(s);
	gw_timer_start(&s->app->t->timers, &s->beat, (up ? REPLAY_BEAT_MS : SOON_MS) * NS_PER_MS);
	if (cache_op_busy(&s->lease_op) || cache_op_busy(&s->gateway_op) || !up)
		return;
	replay_lease_key(&key, gateway_name);
	cache_put(s->cache, &s->lease_op, &key, REPLAY_VERSION, lease_text, strlen(lease_text), REPLAY_LEASE_MS,
		  on_renewed);
	int n = snprintf(text, sizeof text, "%s %lld %lld", gateway_name, (long long)s->app->t->cfg->threads,
			 (long long)clock_unix_s());
	cache_key_make(&key, CACHE_REPLAY, "gateways", gateway_name, strlen(gateway_name));
	cache_put(s->cache, &s->gateway_op, &key, REPLAY_VERSION, text, (size_t)n, replay_run_ms(s->app), on_renewed);
}

/* ---- notes ---- */

static uint64_t notes_ms(const struct replay_store *s)
{
	uint64_t ms = s->app->t->cfg->resume.grace_ms / 4;
	return ms < LEAST_NOTES_MS ? LEAST_NOTES_MS : ms < REPLAY_BEAT_MS ? ms : REPLAY_BEAT_MS;
}

static void on_notes(struct cache_op *op, const struct cache_result *r)
{
	struct replay_store *s = list_entry(op, struct replay_store, notes_op);
	for (size_t i = 0; r->code == 0 && i < r->n_items; i++) {
		if (r->items[i].n != CACHE_DIGEST_LEN)
			continue;
		list_each_safe(it, next, &s->spools) {
			if (spool_is_noted((struct spool *)(void *)it, r->items[i].bytes))
				break;
		}
	}
}

static void on_notes_due(struct gw_timer *timer)
{
	struct replay_store *s = list_entry(timer, struct replay_store, notes);
	char tenant[REPLAY_OWNER_CHARS + 16];
	gw_timer_start(&s->app->t->timers, &s->notes, notes_ms(s) * NS_PER_MS);
	if (s->n_spools == 0 || cache_op_busy(&s->notes_op) || !replay_store_up(s))
		return;
	snprintf(tenant, sizeof tenant, "notes-%s", s->owner);
	cache_list(s->cache, &s->notes_op, CACHE_REPLAY, tenant, on_notes);
}

/* ---- errands: deletions that no caller waits for ---- */

struct errand {
	struct list node;
	struct cache_op op;
};

static void errand_free(struct errand *e)
{
	cache_cancel(&e->op);
	list_remove(&e->node);
	sl_free(e);
}

static void on_errand(struct cache_op *op, const struct cache_result *r)
{
	(void)r;
	errand_free(list_entry(op, struct errand, op));
}

static void delete_key(struct replay_store *s, const struct cache_key *key)
{
	struct errand *e = sl_zalloc(sizeof *e);
	if (e == NULL)
		return; /* it expires */
	list_push_back(&s->errands, &e->node);
	cache_delete(s->cache, &e->op, key, on_errand);
}

void replay_store_forget(struct gw_app *app, const char *id, uint64_t tenant)
{
	struct cache_key key;
	if (app->replay_store == NULL)
		return;
	replay_key(&key, REPLAY_EVENTS, tenant, id);
	delete_key(app->replay_store, &key);
	replay_key(&key, REPLAY_HEAD, tenant, id);
	delete_key(app->replay_store, &key);
}

/* ---- life ---- */

int replay_store_create(struct gw_app *app, struct replay_store **out)
{
	*out = NULL;
	if (app->t->cache == NULL || cache_client_state(app->t->cache) == CACHE_IS_MEMORY)
		return 0;
	struct replay_store *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return SL_ENOMEM;
	need_names();
	s->app = app;
	s->cache = app->t->cache;
	snprintf(s->owner, sizeof s->owner, "%s-%d", gateway_name, app->t->index);
	list_init(&s->spools);
	list_init(&s->follows);
	list_init(&s->errands);
	gw_timer_init(&s->beat, on_beat);
	gw_timer_init(&s->notes, on_notes_due);
	if (app->t->index == 0)
		gw_timer_start(&app->t->timers, &s->beat, 0);
	gw_timer_start(&app->t->timers, &s->notes, notes_ms(s) * NS_PER_MS);
	*out = s;
	return 0;
}

void replay_store_destroy(struct replay_store *s)
{
	if (s == NULL)
		return;
	BUG_IF(!list_empty(&s->follows), "a copy of a stream outlives its store");
	list_each_safe(it, next, &s->spools)
		spool_stop((struct spool *)(void *)it);
	list_each_safe(it, next, &s->errands)
		errand_free(list_entry(it, struct errand, node));
	gw_timer_stop(&s->app->t->timers, &s->beat);
	gw_timer_stop(&s->app->t->timers, &s->notes);
	cache_cancel(&s->lease_op);
	cache_cancel(&s->gateway_op);
	cache_cancel(&s->notes_op);
	sl_free(s);
}

bool replay_store_busy(const struct replay_store *s)
{
	return s != NULL && replay_store_up(s) && (s->n_spools > 0 || !list_empty(&s->errands));
}

bool replay_store_on(const struct replay_store *s) { return s != NULL && s->app->t->cfg->resume.store; }

const char *replay_store_owner(const struct replay_store *s) { return s->owner; }
