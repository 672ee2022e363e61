/* SPDX-License-Identifier: Apache-2.0
 *
 * Accounting of an HTTP/2 peer's frames, for limits that the library lacks or applies too late. The library drops
 * frames of unknown types without a callback, so this file parses the frame heads of the input once more: nine bytes a
 * frame.
 */
#include "gateway/transport/h2_guard.h"

#include "base/clock.h"

enum { HEADERS = 1, CONTINUATION = 9 };
enum {
	FIRST_UNKNOWN_TYPE = 0x0a, /* RFC 9113 defines 0 to 9 */
	UPDATES_DUE_MAX = 20000,   /* credit for a peer that updates its windows late */
};

static struct h2_bucket bucket(int64_t per_s, int64_t burst, uint64_t now_ns)
{
	return (struct h2_bucket){(double)burst, per_s, burst, now_ns};
}

void h2_guard_init(struct h2_guard *g, const struct gw_limits *lim, size_t skip, uint64_t now_ns)
{
	*g = (struct h2_guard){.skip = skip};
	g->block_max = (size_t)lim->header_bytes * H2_HEAD_OVER;
	g->resets = bucket(lim->resets_per_s, lim->resets_burst, now_ns);
	g->peer_resets = bucket(lim->resets_per_s, lim->resets_burst, now_ns);
	g->refused = bucket(lim->refused_per_s, lim->refused_burst, now_ns);
	g->control = bucket(lim->control_frames_per_s, lim->control_frames_burst, now_ns);
}

bool h2_bucket_take(struct h2_bucket *b, uint64_t now_ns)
{
	double gained = (double)(now_ns - b->at_ns) / (double)NS_PER_S * (double)b->per_s;
	b->at_ns = now_ns;
	b->level = b->level + gained > (double)b->burst ? (double)b->burst : b->level + gained;
	if (b->level < 1)
		return false;
	b->level -= 1;
	return true;
}

bool h2_guard_stream_id(struct h2_guard *g, int32_t id)
{
	if (id > g->newest) {
		g->newest = id;
		g->ring[g->ring_at++ % H2_RING] = id;
		return true;
	}
	for (int i = 0; i < H2_RING; i++)
		if (g->ring[i] == id)
			return true;
	return false;
}

void h2_guard_data_sent(struct h2_guard *g)
{
	if (g->updates_due < UPDATES_DUE_MAX)
		g->updates_due += 2;
}

bool h2_guard_update_due(struct h2_guard *g)
{
	if (g->updates_due == 0)
		return false;
	g->updates_due--;
	return true;
}

size_t h2_guard_frames(struct h2_guard *g, const uint8_t *data, size_t n, bool *head_over)
{
	size_t found = 0;
	*head_over = false;
	while (n > 0) {
		size_t take = g->skip < n ? g->skip : n;
		g->skip -= take;
		data += take;
		n -= take;
		while (n > 0 && g->n_head < H2_FRAME_HEAD) {
			g->head[g->n_head++] = *data++;
			n--;
		}
		if (g->n_head < H2_FRAME_HEAD)
			break;
		g->n_head = 0;
		g->skip = (size_t)g->head[0] << 16 | (size_t)g->head[1] << 8 | g->head[2];
		found += g->head[3] >= FIRST_UNKNOWN_TYPE;
		if (g->head[3] == HEADERS)
			g->block = g->skip;
		else if (g->head[3] == CONTINUATION)
			g->block += g->skip;
		else
			g->block = 0;
		*head_over = *head_over || g->block > g->block_max;
	}
	return found;
}
