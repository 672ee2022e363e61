/* SPDX-License-Identifier: Apache-2.0
 *
 * A message is a list of fields, each a number, a type and a value; unknown fields are skipped by their type. The
 * reader never looks beyond the message that it is in, and a message here has at most one level below it.
 */
#include "engine/token/spm_model.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/token/tokenizer_source.h"

enum { MAX_PIECES = 1 << 24, MAX_PIECE_BYTES = UINT16_MAX };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { UNIGRAM = 1, BPE = 2 }; /* TrainerSpec.model_type */

struct message {
	const uint8_t *at, *end;
	bool bad;
};

struct field {
	uint64_t number;
	int type;
	uint64_t value;         /* of WIRE_VARINT, WIRE_64 and WIRE_32 */
	struct proto_str bytes; /* of WIRE_BYTES */
};

struct reading {
	struct spm_model *m;
	struct sl_err *err;
	uint64_t kind;
};

/* ---- the encoding ---- */

static struct message message_of(struct proto_str s)
{
	const uint8_t *at = (const uint8_t *)s.at;
	return (struct message){.at = at, .end = at + s.n};
}

static uint64_t read_varint(struct message *m)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
		uint8_t byte = *m->at++;
		v |= (uint64_t)(byte & 0x7F) << shift;
		if (byte < 0x80)
			return v;
	}
	m->bad = true;
	return 0;
}

static uint64_t read_fixed(struct message *m, unsigned n)
{
	uint64_t v = 0;
	if ((size_t)(m->end - m->at) < n) {
		m->bad = true;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)m->at[i] << 8 * i;
	m->at += n;
	return v;
}

static struct proto_str read_bytes(struct message *m)
{
	uint64_t n = read_varint(m);
	if (m->bad || n > (size_t)(m->end - m->at)) {
		m->bad = true;
		return (struct proto_str){"", 0};
	}
	struct proto_str s = {(const char *)m->at, (size_t)n};
	m->at += n;
	return s;
}

/* False at the end, and where the message is malformed. */
static bool next_field(struct message *m, struct field *f)
{
	if (m->bad || m->at == m->end)
		return false;
	uint64_t tag = read_varint(m);
	*f = (struct field){.number = tag >> 3, .type = (int)(tag & 7), .bytes = {"", 0}};
	switch (f->type) {
	case WIRE_VARINT: f->value = read_varint(m); break;
	case WIRE_64: f->value = read_fixed(m, 8); break;
	case WIRE_32: f->value = read_fixed(m, 4); break;
	case WIRE_BYTES: f->bytes = read_bytes(m); break;
	default: m->bad = true;
	}
	if (f->number == 0)
		m->bad = true;
	return !m->bad;
}

static bool is_field(const struct field *f, uint64_t number, int type)
{
	return f->number == number && f->type == type;
}

static bool is_flag(const struct field *f, uint64_t number, bool *out)
{
	if (!is_field(f, number, WIRE_VARINT))
		return false;
	*out = f->value != 0;
	return true;
}

static int malformed(struct reading *r, const char *what)
{
	return sl_errf(r->err, SL_EINVAL, "the model's %s is malformed", what);
}

static int unsupported(struct reading *r, const char *what)
{
	return sl_errf(r->err, SL_EUNSUPPORTED, "%s is not supported", what);
}

/* ---- the messages ---- */

static int reserve(struct reading *r)
{
	struct spm_model *m = r->m;
	if (m->n < m->cap)
		return 0;
	size_t cap = m->cap * 2 + 1024;
	struct proto_str *pieces = sl_realloc_n(m->pieces, cap, sizeof *pieces);
	m->pieces = pieces != NULL ? pieces : m->pieces;
	float *scores = pieces != NULL ? sl_realloc_n(m->scores, cap, sizeof *scores) : NULL;
	m->scores = scores != NULL ? scores : m->scores;
	int32_t *attrs = scores != NULL ? sl_realloc_n(m->attrs, cap, sizeof *attrs) : NULL;
	if (attrs == NULL)
		return sl_errf(r->err, SL_ENOMEM, "no memory for the pieces");
	m->attrs = attrs;
	m->cap = cap;
	return 0;
}

static float float_of(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* SentencePiece {piece 1, score 2, type 3}. */
static int read_piece(struct reading *r, struct proto_str bytes)
{
	struct message in = message_of(bytes);
	struct proto_str piece = {"", 0};
	struct field f;
	float score = 0;
	uint64_t type = TOK_NORMAL;
	while (next_field(&in, &f)) {
		if (is_field(&f, 1, WIRE_BYTES))
			piece = f.bytes;
		else if (is_field(&f, 2, WIRE_32))
			score = float_of((uint32_t)f.value);
		else if (is_field(&f, 3, WIRE_VARINT))
			type = f.value;
	}
	if (in.bad || piece.n == 0 || piece.n > MAX_PIECE_BYTES || type < TOK_NORMAL || type > TOK_BYTE ||
	    score - score != 0 || r->m->n == MAX_PIECES)
		return sl_errf(r->err, SL_EINVAL, "piece %zu is malformed", r->m->n);
	int rc = reserve(r);
	if (rc != 0)
		return rc;
	r->m->pieces[r->m->n] = piece;
	r->m->scores[r->m->n] = score;
	r->m->attrs[r->m->n++] = (int32_t)type;
	return 0;
}

/* TrainerSpec {model_type 3, treat_whitespace_as_suffix 24, byte_fallback 35, bos_piece 46, eos_piece 47}. */
static int read_trainer(struct reading *r, struct proto_str bytes)
{
	struct message in = message_of(bytes);
	struct field f;
	bool suffix = false;
	while (next_field(&in, &f)) {
		if (is_field(&f, 3, WIRE_VARINT))
			r->kind = f.value;
		else if (is_field(&f, 46, WIRE_BYTES))
			r->m->bos = f.bytes;
		else if (is_field(&f, 47, WIRE_BYTES))
			r->m->eos = f.bytes;
		else if (!is_flag(&f, 24, &suffix))
			(void)is_flag(&f, 35, &r->m->byte_fallback);
	}
	if (in.bad)
		return malformed(r, "trainer_spec");
	return suffix ? unsupported(r, "treat_whitespace_as_suffix") : 0;
}

/* NormalizerSpec {precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4, escape_whitespaces 5}. */
static int read_normalizer(struct reading *r, struct proto_str bytes)
{
	struct message in = message_of(bytes);
	struct field f;
	bool escape = true;
	while (next_field(&in, &f))
		if (is_field(&f, 2, WIRE_BYTES))
			r->m->charsmap = f.bytes;
		else if (!is_flag(&f, 3, &r->m->prefix) && !is_flag(&f, 4, &r->m->collapse))
			(void)is_flag(&f, 5, &escape);
	if (in.bad)
		return malformed(r, "normalizer_spec");
	return escape ? 0 : unsupported(r, "escape_whitespaces false");
}

/* What decoding would change further. */
static int read_denormalizer(struct reading *r, struct proto_str bytes)
{
	struct message in = message_of(bytes);
	struct field f;
	size_t n = 0;
	while (next_field(&in, &f))
		n = is_field(&f, 2, WIRE_BYTES) ? f.bytes.n : n;
	if (in.bad)
		return malformed(r, "denormalizer_spec");
	return n == 0 ? 0 : unsupported(r, "a denormalizer_spec with a table");
}

/* ---- the whole ---- */

static int check_bytes(struct reading *r)
{
	bool has[256] = {false};
	int n = 0;
	for (size_t i = 0; i < r->m->n; i++) {
		if (r->m->attrs[i] != TOK_BYTE)
			continue;
		int byte = tok_byte_written(r->m->pieces[i]);
		if (byte < 0)
			return sl_errf(r->err, SL_EINVAL, "piece %zu is of a byte but not written as one", i);
		n += !has[byte];
		has[byte] = true;
	}
	if (r->m->byte_fallback && n < 256)
		return sl_errf(r->err, SL_EINVAL, "byte_fallback needs 256 pieces of bytes, and there are %d", n);
	return 0;
}

static int check(struct reading *r)
{
	struct spm_model *m = r->m;
	size_t n_unknown = 0, n_unused = 0;
	if (r->kind != UNIGRAM && r->kind != BPE)
		return unsupported(r, "a model_type other than unigram and bpe");
	m->unigram = r->kind == UNIGRAM;
	for (size_t i = 0; i < m->n; i++) {
		n_unused += m->attrs[i] == TOK_UNUSED;
		if (m->attrs[i] != TOK_UNKNOWN)
			continue;
		m->unknown = (int32_t)i;
		n_unknown++;
	}
	if (n_unknown != 1)
		return sl_errf(r->err, SL_EINVAL, "%zu pieces are for unknown text, not one", n_unknown);
	/* They are merged through and taken apart again. */
	if (n_unused > 0 && !m->unigram)
		return unsupported(r, "a bpe model with unused pieces");
	return check_bytes(r);
}

int spm_read(const char *data, size_t n, struct spm_model *out, struct sl_err *err)
{
	struct message in = message_of((struct proto_str){data, n});
	struct reading r = {.m = out, .err = err, .kind = UNIGRAM};
	struct field f;
	int rc = 0;
	*out = (struct spm_model){
	    .prefix = true, .collapse = true, .charsmap = {"", 0}, .bos = {"<s>", 3}, .eos = {"</s>", 4}};
	while (rc == 0 && next_field(&in, &f)) {
		if (is_field(&f, 1, WIRE_BYTES))
			rc = read_piece(&r, f.bytes);
		else if (is_field(&f, 2, WIRE_BYTES))
			rc = read_trainer(&r, f.bytes);
		else if (is_field(&f, 3, WIRE_BYTES))
			rc = read_normalizer(&r, f.bytes);
		else if (is_field(&f, 5, WIRE_BYTES))
			rc = read_denormalizer(&r, f.bytes);
	}
	if (rc == 0 && in.bad)
		rc = sl_errf(err, SL_EINVAL, "not a SentencePiece model: malformed at byte %zu",
			     (size_t)(in.at - (const uint8_t *)data));
	return rc != 0 ? rc : check(&r);
}

void spm_dispose(struct spm_model *m)
{
	sl_free(m->pieces);
	sl_free(m->scores);
	sl_free(m->attrs);
	*m = (struct spm_model){0};
}
