/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/disk/disk_format.h"

#include <string.h>
#include <xxhash.h>

static const char head_magic[8] = {'S', 'L', 'K', 'V', 'S', 'E', 'G', '\n'};
enum { RECORD_MAGIC = 0x52564b53 };

_Static_assert(sizeof(struct disk_record) + DISK_MAX_TOKENS * sizeof(int32_t) <= DISK_BLOCK, "a head is one block");
_Static_assert(offsetof(struct disk_record, sum) + sizeof(struct disk_key) == sizeof(struct disk_record),
	       "the sum is last, without padding");

static struct disk_key of_hash(XXH128_hash_t h) { return (struct disk_key){.lo = h.low64, .hi = h.high64}; }

static struct disk_key record_sum(uint64_t seed, const struct disk_record *r, const int32_t *tokens)
{
	XXH128_hash_t head = XXH3_128bits_withSeed(r, offsetof(struct disk_record, sum), seed);
	XXH128_hash_t rest = XXH3_128bits_withSeed(tokens, r->n_tokens * sizeof *tokens, head.low64);
	return (struct disk_key){.lo = rest.low64, .hi = rest.high64 ^ head.high64};
}

struct disk_record disk_record_of(const struct disk_page *p, uint64_t created_s, size_t half)
{
	return (struct disk_record){.kind = DISK_PAGE,
				    .n_tokens = (uint32_t)p->n_tokens,
				    .model = p->model,
				    .key = p->key,
				    .parent = p->parent,
				    .owner = p->owner,
				    .created_s = created_s,
				    .payload_bytes = 2 * (uint64_t)half,
				    .depth = p->depth};
}

bool disk_record_is(const struct disk_record *r, const int32_t *tokens, const struct disk_page *p, size_t half)
{
	return r->kind == DISK_PAGE && r->n_tokens == p->n_tokens && r->payload_bytes == 2 * (uint64_t)half &&
	       r->depth == p->depth && disk_key_equal(r->model, p->model) && disk_key_equal(r->key, p->key) &&
	       disk_key_equal(r->parent, p->parent) && memcmp(tokens, p->tokens, p->n_tokens * sizeof *tokens) == 0;
}

void disk_record_seal(uint64_t seed, struct disk_record *r, const int32_t *tokens, uint8_t block[DISK_BLOCK])
{
	r->magic = RECORD_MAGIC;
	r->version = DISK_VERSION;
	r->sum = record_sum(seed, r, tokens);
	memset(block, 0, DISK_BLOCK);
	memcpy(block, r, sizeof *r);
	if (r->n_tokens > 0)
		memcpy(block + sizeof *r, tokens, r->n_tokens * sizeof *tokens);
}

int disk_record_check(uint64_t seed, const uint8_t block[DISK_BLOCK], uint64_t segment, uint64_t at, uint64_t end,
		      struct disk_record *out, const int32_t **tokens)
{
	memcpy(out, block, sizeof *out);
	*tokens = (const int32_t *)(const void *)(block + sizeof *out);
	if (out->magic != RECORD_MAGIC || out->version != DISK_VERSION || out->n_tokens > DISK_MAX_TOKENS ||
	    out->kind < DISK_PAGE || out->kind > DISK_ERASE || out->segment != segment || out->at != at)
		return SL_EINVAL;
	if (out->payload_bytes > DISK_MAX_PAYLOAD || at > end || end - at < disk_record_room(out->payload_bytes))
		return SL_EINVAL;
	return disk_key_equal(out->sum, record_sum(seed, out, *tokens)) ? 0 : SL_EINVAL;
}

static struct disk_key head_sum(uint64_t seed, const struct disk_segment_head *h)
{
	return of_hash(XXH3_128bits_withSeed(h, offsetof(struct disk_segment_head, sum), seed));
}

void disk_head_seal(uint64_t seed, uint64_t number, uint64_t created_s, uint8_t block[DISK_BLOCK])
{
	struct disk_segment_head h = {
	    .version = DISK_VERSION, .block = DISK_BLOCK, .number = number, .created_s = created_s};
	memcpy(h.magic, head_magic, sizeof h.magic);
	h.sum = head_sum(seed, &h);
	memset(block, 0, DISK_BLOCK);
	memcpy(block, &h, sizeof h);
}

int disk_head_check(uint64_t seed, const uint8_t block[DISK_BLOCK], uint64_t number, struct disk_segment_head *out)
{
	memcpy(out, block, sizeof *out);
	if (memcmp(out->magic, head_magic, sizeof head_magic) != 0)
		return SL_EPROTO;
	if (out->version != DISK_VERSION || out->block != DISK_BLOCK)
		return SL_EUNSUPPORTED;
	if (!disk_key_equal(out->sum, head_sum(seed, out)))
		return SL_EUNSUPPORTED; /* damaged, or sealed with another secret */
	return out->number == number ? 0 : SL_EINVAL;
}

struct disk_key disk_payload_sum(uint64_t seed, const void *k, const void *v, size_t half)
{
	XXH128_hash_t of_k = XXH3_128bits_withSeed(k, half, seed);
	XXH128_hash_t of_v = XXH3_128bits_withSeed(v, half, of_k.low64);
	return (struct disk_key){.lo = of_v.low64, .hi = of_v.high64 ^ of_k.high64};
}
