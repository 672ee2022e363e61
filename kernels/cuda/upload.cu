/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from the host's memory, usually a file's mapping, to the device. Host code.
 *
 * A matrix comes in pieces. Threads read a piece into one of two pieces of pinned memory, a copy aside brings it to one
 * of two pieces of device memory, and the stream packs it from there (pack.cu). Only the next use of the same piece of
 * memory waits: while threads read piece n + 1, piece n is on the bus or being packed.
 *
 * VERSIONS
 *  1  one copy from pageable memory a piece, in order with packing. The runtime stages it in one thread: some 6 to
 *     10 GB/s, less where the file is not in memory, since nothing is read meanwhile.
 *  2  this one. Counted for 16 GB: four readers copy 25 to 40 GB/s from the page cache, the bus takes 25 (PCIe 4) or 50
 *     (PCIe 5), packing reads and writes 32 GB at some 2 TB/s, 16 ms: 0.4 to 0.7 s instead of 2. From a disk of
 *     7 GB/s 2.3 s, where several readers are what keeps its queue filled. Not measured on a device.
 */
#include <pthread.h>
#include <string.h>

#include "kernels/cuda/backend.h"

enum { READERS = 4, LEAST_READ = 1 << 20 }; /* bytes that are worth a thread */

struct part {
	const uint8_t *from;
	uint8_t *to;
	size_t n;
};

static void *read_part(void *part)
{
	const struct part *p = (const struct part *)part;
	memcpy(p->to, p->from, p->n);
	return NULL;
}

/* The last part is the caller's, as are those that get no thread. */
static void read_piece(uint8_t *to, const uint8_t *from, size_t bytes)
{
	struct part parts[READERS];
	pthread_t threads[READERS];
	bool running[READERS] = {};
	size_t n = bytes / LEAST_READ, each;
	n = n < 1 ? 1 : n < READERS ? n : (size_t)READERS;
	each = bytes / n;
	for (size_t i = 0; i < n; i++) {
		parts[i] = {from + i * each, to + i * each, i + 1 < n ? each : bytes - i * each};
		running[i] = i + 1 < n && pthread_create(&threads[i], NULL, read_part, &parts[i]) == 0;
		if (!running[i])
			read_part(&parts[i]);
	}
	for (size_t i = 0; i < n; i++)
		if (running[i])
			(void)pthread_join(threads[i], NULL);
}

static int mark_of(int upload) { return KN_STEPS_AHEAD + upload; }

/* Waits until nothing uses the upload's memory any more. */
static int await(struct kn_backend *b, int upload)
{
	int rc = b->uploads[upload].busy ? dev_await(b->dev, mark_of(upload)) : 0;
	b->uploads[upload].busy = false;
	return rc;
}

int kn_cuda_bring(struct kn_backend *b, const void *from, size_t bytes, void *to, uint8_t **at)
{
	struct kn_upload *u = &b->uploads[b->next_upload];
	int rc = await(b, b->next_upload);
	if (rc == 0 && to == NULL)
		rc = kn_cuda_room(b, &u->stage, bytes);
	if (rc == 0)
		rc = kn_cuda_host_room(b, &u->pinned, bytes);
	if (rc != 0)
		return rc;
	*at = (uint8_t *)(to != NULL ? to : u->stage.at);
	if (!u->pinned.pinned)
		return dev_copy_in(b->dev, *at, from, bytes);
	read_piece((uint8_t *)u->pinned.at, (const uint8_t *)from, bytes);
	rc = dev_aside(b->dev, *at, u->pinned.at, bytes);
	return rc == 0 ? dev_aside_before(b->dev) : rc;
}

int kn_cuda_brought(struct kn_backend *b)
{
	int upload = b->next_upload;
	b->next_upload = (upload + 1) % KN_UPLOADS;
	b->uploads[upload].busy = true;
	return dev_mark(b->dev, mark_of(upload));
}

void kn_cuda_uploads_end(struct kn_backend *b)
{
	for (int i = 0; i < KN_UPLOADS; i++) {
		struct kn_upload *u = &b->uploads[i];
		(void)await(b, i); /* a fault stays in the device */
		kn_cuda_host_room_free(b, &u->pinned);
		if (u->stage.at != NULL)
			dev_free(b->dev, u->stage.at);
		u->stage = {};
	}
}
