/* SPDX-License-Identifier: Apache-2.0
 *
 * A generation whose engine has died, made again on another one: the same SUBMIT with the same seed makes the same
 * tokens, so those that the log has are skipped and the answer goes on. A checksum over the ids of each choice proves
 * it: an engine that makes others (another quantization, other arithmetic) is found at the seam, before a foreign token
 * is sent.
 *
 * Belongs to its generation; no sockets. The SUBMIT's frame is held until the end, or of a stream that can't be resumed
 * until its first token.
 */
#ifndef GATEWAY_REMAKE_H
#define GATEWAY_REMAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"

struct submit_frame;
struct remake;

/* s: as it was submitted; its texts are the frame's, of which a reference is taken. begun: also once tokens have come.
 * now: when it was submitted. NULL: no memory. */
struct remake *remake_create(struct submit_frame *frame, const struct proto_submit *s, bool begun, uint64_t now_ns);
void remake_destroy(struct remake *r); /* NULL allowed */
/* As it was submitted first. */
const struct proto_submit *remake_submitted(const struct remake *r);
/* The same with what is left of the deadline. False: it can't be made again at any time, or nothing is left. */
bool remake_left(const struct remake *r, uint64_t now_ns, struct proto_submit *out);
/* What to submit again, with what is left of the deadline and without the pace for tokens that were sent. NULL: it
 * can't be made again. */
const struct proto_submit *remake_begin(struct remake *r, uint64_t now_ns);
/* The decoded tokens without those that were there before, which may be none. False: they are others. */
bool remake_take(struct remake *r, const struct proto_tokens *m, struct proto_tokens *rest);
/* All that was there before has come again. */
bool remake_is_even(const struct remake *r);
/* Is it needed no longer, now that tokens have come? */
bool remake_is_spent(const struct remake *r);

#endif
