/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/handover/hand_area.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"

static const char magic[8] = {'S', 'L', 'H', 'A', 'N', 'D', '1', '\n'};
enum { HAND_VERSION = 1, HAND_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Blocks of the head; sections follow. */
static uint32_t head_blocks(void) { return (uint32_t)((sizeof(struct hand_head) + DISK_BLOCK - 1) / DISK_BLOCK); }

static int fill(int fd, uint32_t n_blocks, uint32_t writers)
{
	struct hand_head *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED)
		return SL_EIO;
	uint32_t at = head_blocks(), each = (n_blocks - at) / (uint32_t)__builtin_popcount(writers);
	memcpy(h->magic, magic, sizeof magic);
	h->version = HAND_VERSION;
	h->n_blocks = n_blocks;
	for (uint32_t i = 0; i < HAND_WRITERS; i++) {
		bool has = (writers & 1u << i) != 0;
		h->sections[i].first = has ? at : 0;
		h->sections[i].n_blocks = has ? each : 0;
		at += has ? each : 0;
	}
	bool drawn = getrandom(h->secret, sizeof h->secret, 0) == (ssize_t)sizeof h->secret;
	munmap(h, sizeof *h);
	return drawn ? 0 : SL_EIO;
}

int hand_area_make(uint64_t bytes, uint32_t writers, int *fd)
{
	uint64_t n = bytes / DISK_BLOCK;
	if (writers == 0 || writers >= 1u << HAND_WRITERS || n > UINT32_MAX ||
	    n < head_blocks() + (uint64_t)HAND_LEAST_BLOCKS * (uint32_t)__builtin_popcount(writers))
		return SL_EINVAL;
	int made = memfd_create("sluice-handover", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (made < 0)
		return SL_EIO;
	if (ftruncate(made, (off_t)(n * DISK_BLOCK)) != 0 || fill(made, (uint32_t)n, writers) != 0 ||
	    fcntl(made, F_ADD_SEALS, HAND_SEALS) != 0) {
		int saved = errno;
		close(made);
		errno = saved;
		return SL_EIO;
	}
	*fd = made;
	return 0;
}

/* Takes the constants of the head, if they make sense. */
static bool read_head(struct hand_area *a)
{
	const struct hand_head *h = a->head;
	if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != HAND_VERSION || h->n_blocks != a->n_blocks)
		return false;
	for (uint32_t i = 0; i < HAND_WRITERS; i++) {
		a->first[i] = h->sections[i].first;
		a->count[i] = h->sections[i].n_blocks;
		if (a->count[i] > 0 && (a->first[i] < head_blocks() || a->first[i] > a->n_blocks ||
					a->count[i] > a->n_blocks - a->first[i]))
			return false;
	}
	a->seed = XXH3_64bits(h->secret, sizeof h->secret);
	return true;
}

int hand_area_map(int fd, struct hand_area **out)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & HAND_SEALS) != HAND_SEALS || fstat(fd, &st) != 0 ||
	    st.st_size < (off_t)sizeof(struct hand_head) || st.st_size / DISK_BLOCK > UINT32_MAX)
		return SL_EINVAL;
	struct hand_area *a = sl_zalloc(sizeof *a);
	if (a == NULL)
		return SL_ENOMEM;
	a->bytes = (uint64_t)st.st_size;
	a->n_blocks = (uint32_t)(a->bytes / DISK_BLOCK);
	void *at = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		sl_free(a);
		return SL_EIO;
	}
	a->head = at;
	a->blocks = at;
	if (!read_head(a)) {
		hand_area_unmap(a);
		return SL_EINVAL;
	}
	*out = a;
	return 0;
}

void hand_area_unmap(struct hand_area *a)
{
	if (a == NULL)
		return;
	munmap(a->blocks, a->bytes);
	sl_free(a);
}

bool hand_area_has_writer(const struct hand_area *a, uint32_t number)
{
	return number < HAND_WRITERS && a->count[number] > 0;
}

struct disk_key hand_area_model(const struct hand_area *a, const void *what, size_t n)
{
	return disk_key_model(a->head->secret, sizeof a->head->secret, what, n);
}
