/* SPDX-License-Identifier: Apache-2.0
 *
 * The signal handler uses the list of mappings. It may take no lock, so slots are atomics and the message is prepared
 * when the file is opened. A mapping that finds no free slot still works, but the message lacks its name.
 */
#include "engine/file/map_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/out_file.h"

enum { N_SLOTS = 4096 };

struct slot {
	_Atomic(uintptr_t) at; /* 0: free */
	atomic_size_t bytes;
	_Atomic(char *) message;
};

static struct slot slots[N_SLOTS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

static int remember(const struct map_file *m, const char *path)
{
	static const char what[] = "the file became shorter while it was in use, or can't be read: stopping";
	size_t n = strlen(path) + sizeof what + 16;
	char *message = sl_alloc(n);
	if (message == NULL)
		return SL_ENOMEM;
	snprintf(message, n, "sluice: %s: %s\n", path, what);
	pthread_mutex_lock(&slots_lock);
	struct slot *s = slots;
	while (s < slots + N_SLOTS && atomic_load(&s->message) != NULL)
		s++;
	if (s < slots + N_SLOTS) {
		atomic_store(&s->message, message);
		atomic_store(&s->bytes, m->bytes);
		atomic_store(&s->at, (uintptr_t)m->at);
		message = NULL;
	}
	pthread_mutex_unlock(&slots_lock);
	sl_free(message);
	return 0;
}

static void forget(const struct map_file *m)
{
	pthread_mutex_lock(&slots_lock);
	for (struct slot *s = slots; s < slots + N_SLOTS; s++) {
		if (atomic_load(&s->at) != (uintptr_t)m->at)
			continue;
		atomic_store(&s->at, 0);
		sl_free(atomic_exchange(&s->message, NULL));
		break;
	}
	pthread_mutex_unlock(&slots_lock);
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	uintptr_t where = (uintptr_t)info->si_addr;
	(void)context;
	for (struct slot *s = slots; s < slots + N_SLOTS; s++) {
		uintptr_t at = atomic_load(&s->at);
		if (at == 0 || where < at || where - at >= atomic_load(&s->bytes))
			continue;
		const char *message = atomic_load(&s->message);
		out_file_drop(); /* the partial output of a command that converts this file */
		if (message != NULL && write(STDERR_FILENO, message, strlen(message)) < 0)
			_exit(MAP_FILE_EXIT + 1);
		_exit(MAP_FILE_EXIT);
	}
	/* Not ours: the instruction runs again and ends the process. */
	signal(sig, SIG_DFL);
}

static bool holds(const struct slot *s, uintptr_t from, size_t bytes)
{
	uintptr_t first = atomic_load(&s->at), n = atomic_load(&s->bytes);
	return first != 0 && from >= first && from - first <= n && bytes <= n - (from - first);
}

bool map_file_has(const void *at, size_t bytes)
{
	for (const struct slot *s = slots; s < slots + N_SLOTS; s++)
		if (holds(s, (uintptr_t)at, bytes))
			return true;
	return false;
}

void map_file_let_go(const void *at, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at;
	for (struct slot *s = slots; s < slots + N_SLOTS; s++) {
		if (!holds(s, from, bytes))
			continue;
		uintptr_t to = (from + bytes) / page * page;
		from = (from + page - 1) / page * page;
		if (from < to)
			(void)madvise((void *)from, to - from, MADV_DONTNEED); /* kept, it costs memory only */
		return;
	}
}

void map_file_guard(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}

static uint64_t ns_of(const struct timespec *t) { return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec; }

static int open_file(const char *path, struct stat *st, int *fd, struct sl_err *err)
{
	struct sl_err why = {0};
	*fd = file_open(path, &why);
	if (*fd < 0)
		return sl_errf(err, SL_EIO, "%s: %s", path, why.text);
	if (fstat(*fd, st) == 0)
		return 0;
	close(*fd);
	return sl_errf(err, SL_EIO, "%s: %m", path);
}

int map_file_open(const char *path, struct map_file *out, struct sl_err *err)
{
	struct stat st;
	int fd;
	*out = (struct map_file){0};
	if (open_file(path, &st, &fd, err) != 0)
		return SL_EIO;
	size_t bytes = (size_t)st.st_size;
	void *map = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	int rc = 0;
	if (bytes == 0)
		rc = sl_errf(err, SL_EINVAL, "%s: empty file", path);
	else if (map == MAP_FAILED)
		rc = sl_errf(err, SL_EIO, "%s: can't be mapped: %m", path);
	else
		*out = (struct map_file){
		    .at = map, .bytes = bytes, .modified_ns = ns_of(&st.st_mtim), .changed_ns = ns_of(&st.st_ctim)};
	close(fd);
	if (rc == 0 && remember(out, path) != 0) {
		munmap(map, bytes);
		*out = (struct map_file){0};
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	return rc;
}

static int read_all(const char *path, int fd, uint8_t *to, size_t bytes, struct sl_err *err)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(fd, to + done, bytes - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sl_errf(err, SL_EIO, "%s: %m", path);
		if (n == 0)
			return sl_errf(err, SL_EIO, "%s: it became shorter while it was read", path);
		done += (size_t)n;
	}
	return 0;
}

static int read_opened(const char *path, int fd, const struct stat *before, uint64_t most, struct map_file *out,
		       struct sl_err *err)
{
	struct stat after;
	size_t bytes = (size_t)before->st_size;
	if (bytes == 0)
		return sl_errf(err, SL_EINVAL, "%s: empty file", path);
	if (bytes > most)
		return sl_errf(err, SL_ELIMIT, "%s: it has %zu bytes, more than the %llu that it may have", path, bytes,
			       (unsigned long long)most);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu bytes", path, bytes);
	*out = (struct map_file){
	    .at = at, .bytes = bytes, .modified_ns = ns_of(&before->st_mtim), .changed_ns = ns_of(&before->st_ctim)};
	int rc = read_all(path, fd, at, bytes, err);
	if (rc == 0 && (fstat(fd, &after) != 0 || after.st_size != before->st_size ||
			ns_of(&after.st_mtim) != out->modified_ns || ns_of(&after.st_ctim) != out->changed_ns))
		rc = sl_errf(err, SL_EIO, "%s: it changed while it was read", path);
	if (rc != 0)
		map_file_close(out);
	return rc;
}

int map_file_read(const char *path, uint64_t most, struct map_file *out, struct sl_err *err)
{
	struct stat st;
	int fd;
	*out = (struct map_file){0};
	if (open_file(path, &st, &fd, err) != 0)
		return SL_EIO;
	int rc = read_opened(path, fd, &st, most, out, err);
	close(fd);
	return rc;
}

void map_file_close(struct map_file *m)
{
	if (m->at != NULL) {
		forget(m);
		munmap((void *)(uintptr_t)m->at, m->bytes);
	}
	*m = (struct map_file){0};
}
