/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proto/proto_wire.h"

#include <string.h>

/* ---- writing ---- */

void proto_w_f32(struct proto_writer *w, float f)
{
	uint32_t v;
	memcpy(&v, &f, sizeof v);
	proto_w_u32(w, v);
}

void proto_w_str(struct proto_writer *w, struct proto_str s, size_t max)
{
	if (s.n > max) {
		w->rc = w->rc ? w->rc : SL_EINVAL;
		return;
	}
	proto_w_u32(w, (uint32_t)s.n);
	proto_w_bytes(w, s.at, s.n);
}

void proto_w_pair(struct proto_writer *w, struct proto_id_f32 v)
{
	proto_w_u32(w, v.id);
	proto_w_f32(w, v.v);
}

static size_t fields_put(uint8_t *to, const void *message, const struct proto_field *fields, size_t n_fields)
{
	size_t at = 0;
	for (size_t i = 0; i < n_fields; at += fields[i++].n)
		proto_copy_scalar(to + at, (const char *)message + fields[i].at, fields[i].n);
	return at;
}

void proto_w_fields(struct proto_writer *w, const void *message, const struct proto_field *fields, size_t n_fields)
{
	uint8_t *to;
	size_t n = 0; /* exactly: a buffer may be bounded by its longest frame */
	for (size_t i = 0; i < n_fields; i++)
		n += fields[i].n;
	if (w->rc == 0 && (w->rc = buf_reserve(w->out, n, &to)) == 0)
		buf_commit(w->out, fields_put(to, message, fields, n_fields));
}

struct proto_writer proto_w_begin(struct sl_buf *out, uint8_t type, uint64_t id)
{
	struct proto_writer w = {.out = out, .start = out->len};
	proto_w_u32(&w, 0); /* patched by proto_w_end */
	proto_w_u8(&w, type);
	proto_w_u8(&w, PROTO_VERSION);
	proto_w_u16(&w, 0);
	proto_w_u64(&w, id);
	return w;
}

/* Patches the length, or takes the whole frame back on failure. */
int proto_w_end(struct proto_writer *w)
{
	if (w->rc == 0) {
		uint8_t *head = buf_data(w->out) + w->start;
		size_t n = w->out->len - w->start - PROTO_HEAD_BYTES;
		if (n > proto_type_max(head[4])) {
			w->rc = SL_EINVAL;
		} else {
			for (int i = 0; i < 4; i++)
				head[i] = (uint8_t)(n >> (8 * i));
			return 0;
		}
	}
	buf_cut(w->out, w->start);
	return w->rc;
}

/* ---- reading ---- */

float proto_r_f32(struct proto_reader *r)
{
	uint32_t v = proto_r_u32(r);
	float f;
	memcpy(&f, &v, sizeof f);
	return f;
}

void proto_r_fields(struct proto_reader *r, void *message, const struct proto_field *fields, size_t n_fields)
{
	static const uint8_t nothing[8];
	for (size_t i = 0; i < n_fields; i++) {
		const uint8_t *from = proto_r_bytes(r, fields[i].n);
		proto_copy_scalar((char *)message + fields[i].at, from != NULL ? from : nothing, fields[i].n);
	}
}

struct proto_str proto_r_str(struct proto_reader *r, size_t max)
{
	size_t n = proto_r_u32(r);
	if (n > max)
		r->bad = true;
	const uint8_t *at = proto_r_bytes(r, n);
	return (struct proto_str){.at = at ? (const char *)at : "", .n = at ? n : 0};
}

struct proto_id_f32 proto_pair_at(const uint8_t *at)
{
	struct proto_reader r = {.p = at, .left = 8};
	struct proto_id_f32 v = {.id = proto_r_u32(&r)};
	v.v = proto_r_f32(&r);
	return v;
}

int proto_r_end(const struct proto_reader *r, uint8_t type, struct sl_err *err)
{
	if (r->bad)
		return sl_errf(err, SL_EPROTO, "%s frame: truncated or a length out of bounds", proto_type_name(type));
	if (r->left != 0)
		return sl_errf(err, SL_EPROTO, "%s frame: %zu bytes too many", proto_type_name(type), r->left);
	return 0;
}

int proto_out_of_bounds(struct sl_err *err, uint8_t type, const char *field)
{
	return sl_errf(err, SL_EPROTO, "%s frame: %s out of bounds", proto_type_name(type), field);
}
