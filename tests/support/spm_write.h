/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece models for tests, written by the definition of their message (engine/token/spm_model.h has the source).
 */
#ifndef TESTS_SPM_WRITE_H
#define TESTS_SPM_WRITE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine/token/tokenizer.h"

struct spm_file {
	size_t n;
	uint8_t bytes[1 << 16];
};

static inline void sw_byte(struct spm_file *f, unsigned byte)
{
	if (f->n < sizeof f->bytes)
		f->bytes[f->n++] = (uint8_t)byte;
}

static inline void sw_varint(struct spm_file *f, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		sw_byte(f, (unsigned)(v & 0x7F) | 0x80);
	sw_byte(f, (unsigned)v);
}

/* A field of bytes, and one of a number. */
static inline void sw_bytes(struct spm_file *f, unsigned number, const void *at, size_t n)
{
	sw_varint(f, number << 3 | 2);
	sw_varint(f, n);
	for (size_t i = 0; i < n; i++)
		sw_byte(f, ((const uint8_t *)at)[i]);
}

static inline void sw_number(struct spm_file *f, unsigned number, uint64_t v)
{
	sw_varint(f, number << 3);
	sw_varint(f, v);
}

static inline void sw_piece(struct spm_file *f, const char *text, float score, enum tok_attr type)
{
	static struct spm_file piece;
	uint32_t bits;
	memcpy(&bits, &score, sizeof bits);
	piece.n = 0;
	sw_bytes(&piece, 1, text, strlen(text));
	if (bits != 0)
		sw_varint(&piece, 2 << 3 | 5);
	for (int i = 0; i < 4 && bits != 0; i++)
		sw_byte(&piece, bits >> 8 * i & 0xFF);
	if (type != TOK_NORMAL)
		sw_number(&piece, 3, type);
	sw_bytes(f, 1, piece.bytes, piece.n);
}

/* <unk>, <s> and </s>, and with fallback all bytes after them. */
static inline void sw_begin(struct spm_file *f, bool fallback)
{
	f->n = 0;
	sw_piece(f, "<unk>", 0, TOK_UNKNOWN);
	sw_piece(f, "<s>", 0, TOK_CONTROL);
	sw_piece(f, "</s>", 0, TOK_CONTROL);
	for (unsigned i = 0; i < 256 && fallback; i++) {
		char text[8];
		snprintf(text, sizeof text, "<0x%02X>", i);
		sw_piece(f, text, 0, TOK_BYTE);
	}
}

/* kind: 1 Unigram, 2 BPE. */
static inline void sw_trainer(struct spm_file *f, unsigned kind, bool fallback)
{
	static struct spm_file spec;
	spec.n = 0;
	sw_number(&spec, 3, kind);
	sw_number(&spec, 35, fallback);
	sw_bytes(f, 2, spec.bytes, spec.n);
}

static inline void sw_normalizer(struct spm_file *f, const void *charsmap, size_t n, bool prefix, bool collapse)
{
	static struct spm_file spec;
	spec.n = 0;
	if (n > 0)
		sw_bytes(&spec, 2, charsmap, n);
	sw_number(&spec, 3, prefix);
	sw_number(&spec, 4, collapse);
	sw_bytes(f, 3, spec.bytes, spec.n);
}

static inline struct proto_str sw_text(const struct spm_file *f)
{
	return (struct proto_str){(const char *)f->bytes, f->n};
}

#endif
