/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of the engine protocol's frames, little endian. Private to base/proto*.c. Writer and reader
 * keep one sticky failure: a coder goes through all of its fields, then asks once.
 */
#ifndef BASE_PROTO_WIRE_H
#define BASE_PROTO_WIRE_H

#include <endian.h>
#include <string.h>

#include "base/proto/proto.h"

/* Records of one frame are all of one size. */
#define PROTO_PAIR_BYTES 8u
#define PROTO_TOKEN_BYTES(n_top) (12u + PROTO_PAIR_BYTES * (n_top))
#define PROTO_PROMPT_TOKEN_BYTES(n_top) (PROTO_PAIR_BYTES * (1u + (n_top)))

struct proto_writer {
	struct sl_buf *out;
	size_t start; /* length of out before the frame */
	int rc;
};

struct proto_writer proto_w_begin(struct sl_buf *out, uint8_t type, uint64_t id);

static inline void proto_w_bytes(struct proto_writer *w, const void *p, size_t n)
{
	if (w->rc == 0)
		w->rc = buf_append(w->out, p, n);
}

static inline void proto_w_uint(struct proto_writer *w, uint64_t v, size_t n_bytes)
{
	uint64_t le = htole64(v);
	proto_w_bytes(w, &le, n_bytes);
}

static inline void proto_w_u8(struct proto_writer *w, uint8_t v) { proto_w_uint(w, v, 1); }
static inline void proto_w_u16(struct proto_writer *w, uint16_t v) { proto_w_uint(w, v, 2); }
static inline void proto_w_u32(struct proto_writer *w, uint32_t v) { proto_w_uint(w, v, 4); }
static inline void proto_w_u64(struct proto_writer *w, uint64_t v) { proto_w_uint(w, v, 8); }
void proto_w_f32(struct proto_writer *w, float f);
void proto_w_str(struct proto_writer *w, struct proto_str s, size_t max);
void proto_w_pair(struct proto_writer *w, struct proto_id_f32 v);
/* Patches the length, or takes the whole frame back on failure. */
int proto_w_end(struct proto_writer *w);

#define PROTO_COPY(bits)                    \
	case (bits) / 8: {                  \
		uint##bits##_t v;           \
		memcpy(&v, from, sizeof v); \
		v = htole##bits(v);         \
		memcpy(to, &v, sizeof v);   \
		break;                      \
	}

/* A scalar from the host's order to little endian, or back. One load and one store: a SUBMIT has 35 of them. */
static inline void proto_copy_scalar(void *to, const void *from, size_t n)
{
	switch (n) {
		PROTO_COPY(16)
		PROTO_COPY(32)
		PROTO_COPY(64)
	default: *(uint8_t *)to = *(const uint8_t *)from;
	}
}

/* A scalar member of a message: its offset in the struct, and its bytes there and on the wire (1, 2, 4 or 8). */
struct proto_field {
	uint16_t at, n;
};
#define PROTO_SCALAR(n)                                                                       \
	(sizeof(struct {                                                                      \
		_Static_assert((n) == 1 || (n) == 2 || (n) == 4 || (n) == 8, "not a scalar"); \
		char c[n];                                                                    \
	}))
#define PROTO_FIELD(type, member)                                                 \
	{                                                                         \
		offsetof(type, member), PROTO_SCALAR(sizeof(((type *)0)->member)) \
	}

void proto_w_fields(struct proto_writer *w, const void *message, const struct proto_field *fields, size_t n_fields);

struct proto_reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

/* NULL, and everything after it fails, when there are not n bytes. */
static inline const uint8_t *proto_r_bytes(struct proto_reader *r, size_t n)
{
	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	const uint8_t *at = r->p;
	r->p += n;
	r->left -= n;
	return at;
}

/* These are read many times for each token that passes: with a constant length it is one load. */
static inline uint64_t proto_r_uint(struct proto_reader *r, size_t n_bytes)
{
	const uint8_t *at = proto_r_bytes(r, n_bytes);
	uint64_t v = 0;
	if (at != NULL)
		memcpy(&v, at, n_bytes);
	return le64toh(v);
}

static inline uint8_t proto_r_u8(struct proto_reader *r) { return (uint8_t)proto_r_uint(r, 1); }
static inline uint16_t proto_r_u16(struct proto_reader *r) { return (uint16_t)proto_r_uint(r, 2); }
static inline uint32_t proto_r_u32(struct proto_reader *r) { return (uint32_t)proto_r_uint(r, 4); }
static inline uint64_t proto_r_u64(struct proto_reader *r) { return proto_r_uint(r, 8); }
float proto_r_f32(struct proto_reader *r);
struct proto_str proto_r_str(struct proto_reader *r, size_t max);
struct proto_id_f32 proto_pair_at(const uint8_t *at);
void proto_r_fields(struct proto_reader *r, void *message, const struct proto_field *fields, size_t n_fields);
/* 0 when all was there and nothing is left. */
int proto_r_end(const struct proto_reader *r, uint8_t type, struct sl_err *err);
int proto_out_of_bounds(struct sl_err *err, uint8_t type, const char *field);

#endif
