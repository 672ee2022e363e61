/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/disk: the input is the first 256 bytes of each block of a segment file, behind four bytes that name blocks
 * which get valid sums, so that what they say is followed. A scan ends, and what it finds lies in the file, and is what
 * a read then finds.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/disk/disk_segment.h"
#include "tests/fuzz/fuzz.h"

enum { SEED = 77, HALF = 100, BLOCKS = 15, OF_BLOCK = 256 };

static const int32_t tokens[4] = {1, 2, 3, 4};
static const struct disk_page page = {
    .model = {1, 2}, .key = {3, 4}, .parent = {5, 6}, .tokens = tokens, .n_tokens = 4, .depth = 1, .owner = 9};

static struct disk_segment *made(int fd, uint64_t end)
{
	struct disk_segment *s = sl_zalloc(sizeof *s);
	FUZZ_REQUIRE(s != NULL);
	list_init(&s->link);
	list_init(&s->entries);
	s->number = 1;
	s->fd = fd;
	s->end = end;
	return s;
}

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	uint8_t k[HALF], v[HALF];
	uint64_t at;
	if (i > 2)
		return 0;
	int fd = memfd_create("seed", MFD_CLOEXEC);
	struct disk_segment *s = made(fd, DISK_BLOCK);
	memset(k, 1, sizeof k);
	memset(v, 2, sizeof v);
	for (size_t n = 0; n <= i; n++)
		FUZZ_REQUIRE(disk_segment_append(s, SEED, &page, 5, k, v, HALF, &at) == 0);
	if (i == 2)
		FUZZ_REQUIRE(disk_segment_append_erase(s, SEED, 9, 5, &at) == 0);
	size_t n = 4;
	memset(out, 0, 4);
	for (uint64_t block = 0; block < s->end && n + OF_BLOCK <= max; block += DISK_BLOCK, n += OF_BLOCK)
		FUZZ_REQUIRE(pread(fd, out + n, OF_BLOCK, (off_t)block) >= 0);
	disk_segment_close(s);
	return n;
}

/* Valid sums for the records that begin in these blocks, whatever they say. */
static void seal(uint8_t *file, size_t n, const uint8_t *where)
{
	for (int i = 0; i < 4; i++) {
		size_t at = (size_t)where[i] % 16 * DISK_BLOCK;
		struct disk_record r;
		uint8_t block[DISK_BLOCK];
		int32_t its[DISK_MAX_TOKENS];
		if (where[i] < 16 || at + DISK_BLOCK > n)
			continue;
		memcpy(&r, file + at, sizeof r);
		memcpy(its, file + at + sizeof r, sizeof its);
		r.segment = 1;
		r.at = at;
		r.kind = DISK_PAGE + r.kind % 3;
		r.n_tokens %= DISK_MAX_TOKENS + 1;
		disk_record_seal(SEED, &r, its, block);
		memcpy(file + at, block, sizeof block);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static uint8_t file[BLOCKS * DISK_BLOCK], block[DISK_BLOCK], k[HALF], v[HALF];
	struct disk_record r;
	const int32_t *its;
	struct disk_segment_head head;
	uint64_t at = DISK_BLOCK, torn = 0, freed, last = 0;
	if (n < 4)
		return 0;
	size_t blocks = (n - 4) / OF_BLOCK < BLOCKS ? (n - 4) / OF_BLOCK : BLOCKS, size = blocks * DISK_BLOCK;
	memset(file, 0, sizeof file);
	for (size_t i = 0; i < blocks; i++)
		memcpy(file + i * DISK_BLOCK, data + 4 + i * OF_BLOCK, OF_BLOCK);
	seal(file, size, data);
	if (size >= DISK_BLOCK)
		(void)disk_head_check(SEED, file, 1, &head);
	int fd = memfd_create("segment", MFD_CLOEXEC);
	FUZZ_REQUIRE(fd >= 0 && write(fd, file, size) == (ssize_t)size);
	struct disk_segment *s = made(fd, size);
	while (disk_segment_scan(s, SEED, &at, block, &r, &its, &torn) == 0) {
		FUZZ_REQUIRE(at > last && at + disk_record_room(r.payload_bytes) <= size &&
			     r.n_tokens <= DISK_MAX_TOKENS);
		struct disk_page p = {.model = r.model,
				      .key = r.key,
				      .parent = r.parent,
				      .tokens = its,
				      .n_tokens = r.n_tokens,
				      .depth = r.depth};
		int rc = disk_segment_read(s, SEED, at, &p, k, v, HALF);
		FUZZ_REQUIRE(rc == 0 || rc == SL_EINVAL);
		p.depth++;
		FUZZ_REQUIRE(disk_segment_read(s, SEED, at, &p, k, v, HALF) == SL_EINVAL);
		if (torn % 2 == 1)
			FUZZ_REQUIRE(disk_segment_kill(s, SEED, at, true, &freed) == 0);
		last = at;
		at += disk_record_room(r.payload_bytes);
	}
	FUZZ_REQUIRE(torn <= size / DISK_BLOCK);
	disk_segment_close(s);
	return 0;
}
