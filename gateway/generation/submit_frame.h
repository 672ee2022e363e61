/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's SUBMIT, encoded once. Code that may have to send it again (a prompt that waits for a slot, a degraded or
 * displaced request, the cascade, a gateway that continues a dead one's answer) holds a reference, copies `s`, changes
 * scalars in the copy and submits that: the link copies the encoded bytes and patches their head.
 *
 * Immutable and counted; any thread.
 */
#ifndef GATEWAY_SUBMIT_FRAME_H
#define GATEWAY_SUBMIT_FRAME_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/proto/proto.h"

struct submit_frame {
	atomic_uint refs;
	struct proto_submit s; /* decoded; its strings and records, and s.frame, borrow from bytes */
	struct sl_buf bytes;   /* the whole frame, id 0 */
};

/* s: without given tokens. SL_ENOMEM; SL_ELIMIT, SL_EINVAL: a field is outside its bound. */
int submit_frame_create(const struct proto_submit *s, struct submit_frame **out);
/* Of a frame's n bytes from another gateway, copied. SL_ENOMEM, SL_EPROTO. */
int submit_frame_read(const uint8_t *bytes, size_t n, struct submit_frame **out);
struct submit_frame *submit_frame_ref(struct submit_frame *f); /* NULL allowed, as in unref */
void submit_frame_unref(struct submit_frame *f);
/* Counts a SUBMIT that was encoded; for those of the link, which are not kept. */
void submit_frame_count(void);

#endif
