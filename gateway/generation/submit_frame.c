/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/submit_frame.h"

#include "base/alloc.h"
#include "base/metrics.h"

COUNTER(encoded_total, "sluice_submits_encoded_total",
	"SUBMIT frames encoded; one that is sent again is not encoded again");

void submit_frame_count(void) { metric_add(&encoded_total, 1); }

enum { ROOM_BYTES = 192 }; /* what most frames have beside their prompt: head, scalars, lengths */

/* With room for so many bytes. */
static struct submit_frame *create(size_t room)
{
	struct submit_frame *f = sl_zalloc(sizeof *f);
	uint8_t *at;
	if (f == NULL)
		return NULL;
	atomic_init(&f->refs, 1);
	buf_init(&f->bytes, PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD);
	if (buf_reserve(&f->bytes, room, &at) == SL_ENOMEM) {
		submit_frame_unref(f);
		return NULL;
	}
	return f;
}

/* rc: of filling it. */
static int finish(struct submit_frame *f, int rc, struct submit_frame **out)
{
	buf_trim(&f->bytes); /* kept as long as the answer is */
	const uint8_t *at = buf_data(&f->bytes);
	size_t n = f->bytes.len;
	if (rc == 0)
		rc = n > PROTO_HEAD_BYTES ? proto_get_submit(at + PROTO_HEAD_BYTES, n - PROTO_HEAD_BYTES, &f->s, NULL)
					  : SL_EPROTO;
	if (rc == 0 && f->s.n_given > 0)
		rc = SL_EPROTO;
	if (rc != 0) {
		submit_frame_unref(f);
		return rc;
	}
	f->s.frame = (struct proto_str){(const char *)at, n};
	*out = f;
	return 0;
}

int submit_frame_create(const struct proto_submit *s, struct submit_frame **out)
{
	struct submit_frame *f = create(s->prompt.n + ROOM_BYTES);
	if (f == NULL)
		return SL_ENOMEM;
	submit_frame_count();
	return finish(f, proto_put_submit(&f->bytes, 0, s), out);
}

int submit_frame_read(const uint8_t *bytes, size_t n, struct submit_frame **out)
{
	struct submit_frame *f = create(n);
	return f != NULL ? finish(f, buf_append(&f->bytes, bytes, n), out) : SL_ENOMEM;
}

struct submit_frame *submit_frame_ref(struct submit_frame *f)
{
	if (f != NULL)
		atomic_fetch_add(&f->refs, 1);
	return f;
}

void submit_frame_unref(struct submit_frame *f)
{
	if (f == NULL || atomic_fetch_sub(&f->refs, 1) > 1)
		return;
	buf_dispose(&f->bytes);
	sl_free(f);
}
