/* SPDX-License-Identifier: Apache-2.0
 *
 * A page is killed by its head: overwritten by one that says so and has no tokens. The payload's blocks are given back
 * by punching a hole, which file systems do a block at a time; those that can't keep the bytes until the whole file
 * goes. Heads of dead records stay, so that a scan finds the next record.
 */
#include "engine/disk/disk_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"

enum { WIPE_BYTES = 64 << 10, SPARE_BYTES = 256 << 20 /* of the disk that stays free */ };

static int put(int fd, const void *bytes, size_t n, uint64_t at)
{
	const uint8_t *from = bytes;
	while (n > 0) {
		ssize_t got = fault_hit(FAULT_WRITE) ? (errno = EIO, -1) : pwrite(fd, from, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			errno = got == 0 ? ENOSPC : errno;
			return SL_EIO;
		}
		from += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* SL_EINVAL: the file ends before. */
static int get(int fd, void *bytes, size_t n, uint64_t at)
{
	uint8_t *to = bytes;
	while (n > 0) {
		ssize_t got = fault_hit(FAULT_READ) ? (errno = EIO, -1) : pread(fd, to, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got == 0 ? SL_EINVAL : SL_EIO;
		to += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/* ---- files ---- */

void disk_segment_name(uint64_t number, char out[DISK_NAME])
{
	snprintf(out, DISK_NAME, "%016llx.kv", (unsigned long long)number);
}

bool disk_segment_number(const char *name, uint64_t *number)
{
	char again[DISK_NAME];
	*number = strtoull(name, NULL, 16);
	disk_segment_name(*number, again);
	return strcmp(name, again) == 0;
}

static struct disk_segment *new_segment(uint64_t number)
{
	struct disk_segment *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return NULL;
	list_init(&s->link);
	list_init(&s->entries);
	s->number = number;
	s->fd = -1;
	return s;
}

void disk_segment_close(struct disk_segment *s)
{
	BUG_IF(!list_empty(&s->entries), "a segment with pages is closed");
	if (s->fd >= 0)
		close(s->fd);
	list_remove(&s->link);
	sl_free(s);
}

void disk_segment_unlink(int folder, struct disk_segment *s)
{
	char name[DISK_NAME];
	disk_segment_name(s->number, name);
	(void)unlinkat(folder, name, 0);
	s->sealed = s->gone = true;
	s->held = 0;
}

int disk_segment_create(int folder, uint64_t seed, uint64_t number, uint64_t created_s, struct disk_segment **out)
{
	uint8_t block[DISK_BLOCK];
	char name[DISK_NAME];
	struct disk_segment *s = new_segment(number);
	if (s == NULL)
		return SL_ENOMEM;
	disk_segment_name(number, name);
	disk_head_seal(seed, number, created_s, block);
	s->created_s = created_s;
	s->fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->fd < 0 || put(s->fd, block, sizeof block, 0) != 0) {
		int e = errno;
		if (s->fd >= 0)
			disk_segment_unlink(folder, s);
		disk_segment_close(s);
		errno = e;
		return SL_EIO;
	}
	s->end = s->held = DISK_BLOCK;
	*out = s;
	return 0;
}

int disk_segment_open(int folder, uint64_t seed, uint64_t number, struct disk_segment **out)
{
	uint8_t block[DISK_BLOCK];
	char name[DISK_NAME];
	struct disk_segment_head head;
	struct stat st;
	struct disk_segment *s = new_segment(number);
	if (s == NULL)
		return SL_ENOMEM;
	disk_segment_name(number, name);
	s->fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int rc = s->fd < 0 ? SL_EIO : 0;
	if (rc == 0 && (fstat(s->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()))
		rc = SL_EPROTO;
	if (rc == 0)
		rc = get(s->fd, block, sizeof block, 0);
	if (rc == 0)
		rc = disk_head_check(seed, block, number, &head);
	if (rc != 0) {
		int e = errno;
		disk_segment_close(s);
		errno = e;
		return rc;
	}
	s->sealed = true;
	s->created_s = head.created_s;
	s->end = (uint64_t)st.st_size;
	s->held = (uint64_t)st.st_blocks * 512 < s->end ? (uint64_t)st.st_blocks * 512 : s->end;
	*out = s;
	return 0;
}

/* ---- writing ---- */

static int check_room(int fd, uint64_t bytes)
{
	struct statvfs v;
	if (fstatvfs(fd, &v) != 0)
		return SL_EIO;
	/* Some file systems do not say how large they are. */
	if (v.f_blocks == 0 || (uint64_t)v.f_bavail * v.f_frsize >= bytes + SPARE_BYTES)
		return 0;
	errno = ENOSPC;
	return SL_EIO;
}

/* What is left of a record that could not be written goes. */
static int give_up(struct disk_segment *s)
{
	int e = errno;
	s->sealed = true;
	(void)!ftruncate(s->fd, (off_t)s->end);
	errno = e;
	return SL_EIO;
}

static int put_head(struct disk_segment *s, uint64_t seed, struct disk_record *r, const int32_t *tokens)
{
	uint8_t block[DISK_BLOCK];
	r->segment = s->number;
	disk_record_seal(seed, r, tokens, block);
	return put(s->fd, block, sizeof block, r->at);
}

static void grow(struct disk_segment *s, uint64_t bytes, uint64_t *at)
{
	*at = s->end;
	s->end += bytes;
	s->held += bytes;
}

int disk_segment_append(struct disk_segment *s, uint64_t seed, const struct disk_page *p, uint64_t created_s,
			const void *k, const void *v, size_t half, uint64_t *at)
{
	static const uint8_t zeros[DISK_BLOCK];
	uint64_t payload = s->end + DISK_BLOCK, bytes = 2 * (uint64_t)half, room = disk_record_room(bytes);
	struct disk_record r = disk_record_of(p, created_s, half);
	r.at = s->end;
	r.payload_sum = disk_payload_sum(seed, k, v, half);
	if (check_room(s->fd, room) != 0 || put(s->fd, k, half, payload) != 0 ||
	    put(s->fd, v, half, payload + half) != 0 ||
	    put(s->fd, zeros, disk_payload_room(bytes) - bytes, payload + bytes) != 0 ||
	    put_head(s, seed, &r, p->tokens) != 0)
		return give_up(s);
	grow(s, room, at);
	return 0;
}

int disk_segment_append_erase(struct disk_segment *s, uint64_t seed, uint64_t owner, uint64_t created_s, uint64_t *at)
{
	struct disk_record r = {.kind = DISK_ERASE, .at = s->end, .owner = owner, .created_s = created_s};
	if (put_head(s, seed, &r, NULL) != 0)
		return give_up(s);
	grow(s, DISK_BLOCK, at);
	return disk_segment_sync(s);
}

static int wipe_bytes(int fd, uint64_t at, uint64_t n)
{
	static const uint8_t zeros[WIPE_BYTES];
	for (uint64_t done = 0; done < n; done += WIPE_BYTES) {
		uint64_t left = n - done;
		if (put(fd, zeros, left < WIPE_BYTES ? (size_t)left : WIPE_BYTES, at + done) != 0)
			return SL_EIO;
	}
	return 0;
}

int disk_segment_kill(struct disk_segment *s, uint64_t seed, uint64_t at, bool wipe, uint64_t *freed)
{
	uint8_t block[DISK_BLOCK];
	struct disk_record r;
	const int32_t *tokens;
	*freed = 0;
	int rc = get(s->fd, block, sizeof block, at);
	if (rc == 0)
		rc = disk_record_check(seed, block, s->number, at, s->end, &r, &tokens);
	if (rc != 0)
		return rc;
	struct disk_record dead = {.kind = DISK_DEAD, .at = at, .payload_bytes = r.payload_bytes};
	if (put_head(s, seed, &dead, NULL) != 0)
		return SL_EIO;
	uint64_t room = disk_payload_room(r.payload_bytes);
	if (room == 0)
		return 0;
	if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at + DISK_BLOCK), (off_t)room) == 0) {
		*freed = room;
		s->held -= room < s->held ? room : s->held;
		return 0;
	}
	return wipe ? wipe_bytes(s->fd, at + DISK_BLOCK, room) : 0;
}

int disk_segment_sync(struct disk_segment *s) { return fdatasync(s->fd) == 0 ? 0 : SL_EIO; }

/* ---- reading ---- */

int disk_segment_read(const struct disk_segment *s, uint64_t seed, uint64_t at, const struct disk_page *p, void *k,
		      void *v, size_t half)
{
	uint8_t block[DISK_BLOCK];
	struct disk_record r;
	const int32_t *tokens;
	int rc = get(s->fd, block, sizeof block, at);
	if (rc == 0)
		rc = disk_record_check(seed, block, s->number, at, UINT64_MAX, &r, &tokens);
	if (rc != 0)
		return rc;
	if (!disk_record_is(&r, tokens, p, half))
		return SL_EINVAL;
	rc = get(s->fd, k, half, at + DISK_BLOCK);
	if (rc == 0)
		rc = get(s->fd, v, half, at + DISK_BLOCK + half);
	if (rc != 0)
		return rc;
	return disk_key_equal(r.payload_sum, disk_payload_sum(seed, k, v, half)) ? 0 : SL_EINVAL;
}

void disk_segment_ahead(const struct disk_segment *s, uint64_t at, uint64_t bytes)
{
	(void)posix_fadvise(s->fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
}

int disk_segment_scan(const struct disk_segment *s, uint64_t seed, uint64_t *at, uint8_t block[DISK_BLOCK],
		      struct disk_record *out, const int32_t **tokens, uint64_t *torn)
{
	for (; *at + DISK_BLOCK <= s->end; *at += DISK_BLOCK) {
		int rc = get(s->fd, block, DISK_BLOCK, *at);
		if (rc == SL_EIO)
			return rc;
		if (rc == 0 && disk_record_check(seed, block, s->number, *at, s->end, out, tokens) == 0)
			return 0;
		++*torn;
	}
	return SL_ENOTFOUND;
}
