/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings stand in a table of fixed size, so that the handler needs no lock: a slot is taken and left by one atomic
 * exchange of its pointer. A ring that is left is not freed but kept for the next thread, because a dump may be reading
 * it.
 */
#include "base/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

_Thread_local struct flight_ring *flight_own;

const struct flight_kind_info flight_kinds[FLIGHT_N_KINDS] = {
    [FLIGHT_NONE] = {"none", {NULL}},
    [FLIGHT_STEP] = {"step", {"model", "rows", "prompt_rows", "sequences", "waiting"}},
    [FLIGHT_LANDED] = {"landed", {"model", "rows", "took_us", "free_pages", NULL}},
    [FLIGHT_PREEMPT] = {"preempt", {"model", "sequence", "tokens", "total", NULL}},
    [FLIGHT_START] = {"start", {"model", "sequence", "prompt", "cached", "miss"}},
    [FLIGHT_ADMIT] = {"admit", {"priority", "prompt", "waited_us", "max_tokens", "runs"}},
    [FLIGHT_END] = {"end", {"status", "tokens", "ttft_us", "total_us", "failed"}},
    [FLIGHT_REFUSE] = {"refuse", {"status", "route", "total_us", NULL}},
    [FLIGHT_LOAD] = {"load", {"why", "predicted_ms", "retry_ms", NULL}},
    [FLIGHT_CASCADE] = {"cascade", {"plan", "why", "switched", "score_permille", NULL}},
    [FLIGHT_ENGINE] = {"engine", {"up", "epoch", NULL}},
    [FLIGHT_STORE] = {"store", {"state", "before", NULL}},
    [FLIGHT_CONTROL] = {"control", {"what", NULL}},
};

static const char magic[8] = {'S', 'L', 'F', 'L', 'I', 'G', 'H', 'T'};

/* A ring whose thread has left is in `spare`. */
static _Atomic(struct flight_ring *) rings[FLIGHT_RINGS], spare[FLIGHT_RINGS];

static char process_name[FLIGHT_NAME];
static int folder_fd = -1;
static atomic_flag dumping = ATOMIC_FLAG_INIT;

/* ---- rings ---- */

static struct flight_ring *take_spare(unsigned n_events)
{
	for (int i = 0; i < FLIGHT_RINGS; i++) {
		struct flight_ring *r = atomic_exchange(&spare[i], NULL), *none = NULL;
		if (r == NULL)
			continue;
		if (r->n_events == n_events)
			return r;
		if (!atomic_compare_exchange_strong(&spare[i], &none, r))
			i--; /* another thread has put one here: look at it, too */
	}
	return NULL;
}

static struct flight_ring *make(unsigned n_events)
{
	struct flight_ring *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	r->n_events = n_events;
	r->events = sl_zalloc_n(n_events, sizeof *r->events);
	if (r->events != NULL)
		return r;
	sl_free(r);
	return NULL;
}

/* False: the table is full. */
static bool put(_Atomic(struct flight_ring *) *table, struct flight_ring *r)
{
	for (int i = 0; i < FLIGHT_RINGS; i++) {
		struct flight_ring *none = NULL;
		if (atomic_compare_exchange_strong(&table[i], &none, r))
			return true;
	}
	return false;
}

void flight_open(const char *name, unsigned n_events)
{
	unsigned n = 2;
	if (flight_own != NULL || folder_fd < 0)
		return;
	while (n < n_events && n < FLIGHT_MOST_EVENTS)
		n *= 2;
	struct flight_ring *r = take_spare(n);
	if (r == NULL && (r = make(n)) == NULL)
		return;
	atomic_store(&r->count, 0);
	for (unsigned i = 0; i < n; i++)
		atomic_store_explicit(&r->events[i][FLIGHT_W_NUMBER], 0, memory_order_relaxed);
	snprintf(r->name, sizeof r->name, "%s", name);
	if (put(rings, r))
		flight_own = r;
	else if (!put(spare, r))
		BUG("flight: more rings than slots");
}

void flight_close(void)
{
	struct flight_ring *r = flight_own;
	if (r == NULL)
		return;
	flight_own = NULL;
	for (int i = 0; i < FLIGHT_RINGS; i++) {
		struct flight_ring *it = r;
		if (atomic_compare_exchange_strong(&rings[i], &it, NULL))
			break;
	}
	/* Each ring is in one of the tables, and both have as many slots as there can be rings. */
	BUG_IF(!put(spare, r), "flight: more rings than slots");
}

/* ---- dumps: all of it may run in a signal's handler ---- */

static bool write_all(int fd, const void *bytes, size_t n)
{
	const char *at = bytes;
	while (n > 0) {
		ssize_t k = write(fd, at, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += k;
		n -= (size_t)k;
	}
	return true;
}

static bool dump_ring(int fd, const struct flight_ring *r)
{
	struct flight_ring_head h = {.n_events = r->n_events, .count = atomic_load(&r->count)};
	memcpy(h.name, r->name, sizeof h.name);
	if (!write_all(fd, &h, sizeof h) || !write_all(fd, r->events, r->n_events * sizeof *r->events))
		return false;
	uint64_t after = atomic_load(&r->count);
	return write_all(fd, &after, sizeof after);
}

static uint64_t unix_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool flight_dump(int fd, int reason)
{
	struct flight_ring *all[FLIGHT_RINGS];
	struct flight_dump_head h = {.version = FLIGHT_VERSION,
				     .pid = (uint32_t)getpid(),
				     .reason = (uint32_t)reason,
				     .unix_ns = unix_ns(),
				     .now_ns = clock_now_ns()};
	memcpy(h.magic, magic, sizeof magic);
	memcpy(h.process, process_name, sizeof h.process);
	for (int i = 0; i < FLIGHT_RINGS; i++)
		if ((all[h.n_rings] = atomic_load(&rings[i])) != NULL)
			h.n_rings++;
	bool good = write_all(fd, &h, sizeof h);
	for (uint32_t i = 0; good && i < h.n_rings; i++)
		good = dump_ring(fd, all[i]);
	return good;
}

static void name_file(char out[FLIGHT_NAME + 16], int number)
{
	size_t n = strlen(process_name);
	memcpy(out, process_name, n);
	out[n] = '-';
	out[n + 1] = (char)('0' + number);
	memcpy(out + n + 2, ".flight", sizeof ".flight");
}

/* The first name that is free, or the oldest file's. */
static void choose_file(char out[FLIGHT_NAME + 16])
{
	struct stat st;
	int oldest = 0;
	struct timespec when = {.tv_sec = 0};
	_Static_assert(FLIGHT_FILES <= 10, "a number is one digit");
	for (int i = 0; i < FLIGHT_FILES; i++) {
		name_file(out, i);
		if (fstatat(folder_fd, out, &st, AT_SYMLINK_NOFOLLOW) != 0)
			return;
		bool older = st.st_mtim.tv_sec < when.tv_sec ||
			     (st.st_mtim.tv_sec == when.tv_sec && st.st_mtim.tv_nsec < when.tv_nsec);
		if (i == 0 || older) {
			oldest = i;
			when = st.st_mtim;
		}
	}
	name_file(out, oldest);
}

/* One line, unless standard error would block. */
static void tell(const char *what, const char *file)
{
	char line[160];
	size_t n = 0;
	const char *const parts[] = {process_name, what, file, "\n"};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		size_t k = strlen(parts[i]);
		if (k > sizeof line - n)
			break;
		memcpy(line + n, parts[i], k);
		n += k;
	}
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&fd, 1, 0) == 1)
		(void)!write(STDERR_FILENO, line, n);
}

static void dump_to_file(int reason)
{
	char name[FLIGHT_NAME + 16];
	if (folder_fd < 0 || atomic_flag_test_and_set(&dumping))
		return;
	choose_file(name);
	/* A new file: whoever reads the old one keeps it. */
	unlinkat(folder_fd, name, 0);
	int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	bool good = fd >= 0 && flight_dump(fd, reason);
	if (fd >= 0)
		close(fd);
	tell(good ? ": the flight recorder was written to flight/" : ": can't write the flight recorder to flight/",
	     name);
	atomic_flag_clear(&dumping);
}

static void on_request(int number)
{
	int saved = errno;
	dump_to_file(number);
	errno = saved;
}

static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { N_FAULTS = sizeof faults / sizeof *faults };
static struct sigaction before[N_FAULTS];

/* What handled the signal before gets it next: the instruction that failed runs again when this returns, and a signal
 * that a program sent is raised again. A stack that is full leaves no room for this. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)context;
	for (int i = 0; i < N_FAULTS; i++)
		sigaction(faults[i], &before[i], NULL);
	dump_to_file(number);
	if (info->si_code <= 0)
		raise(number);
	errno = saved;
}

/* ---- the start ---- */

static int open_folder(const char *folder, struct sl_err *err)
{
	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EIO, "%s: can't be made: %s", folder, strerror(errno));
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return folder_fd >= 0 ? 0 : sl_errf(err, SL_EIO, "%s: can't be opened: %s", folder, strerror(errno));
}

int flight_start(const char *process, const char *folder, struct sl_err *err)
{
	BUG_IF(folder_fd >= 0 || strlen(process) >= FLIGHT_NAME, "flight: started twice, or a long name");
	snprintf(process_name, sizeof process_name, "%s", process);
	int rc = open_folder(folder, err);
	struct sigaction ask = {.sa_handler = rc == 0 ? on_request : SIG_IGN, .sa_flags = SA_RESTART};
	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigset_t asked;
	sigemptyset(&ask.sa_mask);
	sigfillset(&fault.sa_mask);
	for (int i = 0; i < N_FAULTS; i++) { /* one that happens in the handler ends the process */
		sigdelset(&fault.sa_mask, faults[i]);
		if (rc == 0)
			sigaction(faults[i], &fault, &before[i]);
	}
	sigaction(SIGUSR1, &ask, NULL);
	sigemptyset(&asked);
	sigaddset(&asked, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &asked, NULL);
	return rc;
}

/* ---- reading ---- */

struct reading {
	const uint8_t *at;
	size_t left;
};

static bool take(struct reading *r, void *out, size_t n)
{
	if (n > r->left)
		return false;
	memcpy(out, r->at, n);
	r->at += n;
	r->left -= n;
	return true;
}

static bool is_whole(const uint64_t w[FLIGHT_WORDS], uint64_t number)
{
	return w[FLIGHT_W_NUMBER] == number && w[FLIGHT_W_KIND] > FLIGHT_NONE && w[FLIGHT_W_KIND] < FLIGHT_N_KINDS;
}

/* events: of the ring's slots. Numbers from 1 on. */
static void report(const struct flight_ring_head *h, uint64_t after, const uint8_t *events,
		   void (*on_event)(void *ctx, const char *thread, const struct flight_event *e), void *ctx)
{
	char name[FLIGHT_NAME + 1] = "";
	memcpy(name, h->name, sizeof h->name);
	/* The slot after the newest may have been in the making. */
	uint64_t first = after + 1 > h->n_events ? after + 2 - h->n_events : 1;
	for (uint64_t number = first; number <= h->count; number++) {
		uint64_t w[FLIGHT_WORDS];
		memcpy(w, events + ((number - 1) & (h->n_events - 1)) * sizeof w, sizeof w);
		if (!is_whole(w, number))
			continue;
		struct flight_event e = {.now_ns = w[FLIGHT_W_TIME], .kind = (uint32_t)w[FLIGHT_W_KIND]};
		memcpy(e.values, &w[FLIGHT_W_VALUES], sizeof e.values);
		on_event(ctx, name, &e);
	}
}

int flight_read(const void *bytes, size_t n, struct flight_dump_head *head,
		void (*on_event)(void *ctx, const char *thread, const struct flight_event *e), void *ctx,
		struct sl_err *err)
{
	struct reading r = {bytes, n};
	if (!take(&r, head, sizeof *head) || memcmp(head->magic, magic, sizeof magic) != 0)
		return sl_errf(err, SL_EPROTO, "it is not a dump of the flight recorder");
	if (head->version != FLIGHT_VERSION)
		return sl_errf(err, SL_EPROTO, "its version is %u, this program reads %u", head->version,
			       FLIGHT_VERSION);
	head->process[FLIGHT_NAME - 1] = '\0';
	for (uint32_t i = 0; i < head->n_rings; i++) {
		struct flight_ring_head h;
		uint64_t after;
		if (!take(&r, &h, sizeof h) || h.n_events == 0 || h.n_events > FLIGHT_MOST_EVENTS ||
		    (h.n_events & (h.n_events - 1)) != 0)
			return sl_errf(err, SL_EPROTO, "it is damaged or was not written to its end");
		const uint8_t *events = r.at;
		const size_t size = h.n_events * FLIGHT_WORDS * sizeof(uint64_t);
		if (size > r.left)
			return sl_errf(err, SL_EPROTO, "it is damaged or was not written to its end");
		r.at += size;
		r.left -= size;
		if (!take(&r, &after, sizeof after) || after < h.count || after > UINT64_MAX / 2)
			return sl_errf(err, SL_EPROTO, "it is damaged or was not written to its end");
		report(&h, after, events, on_event, ctx);
	}
	return 0;
}
