/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's own file (tokenizer.model): a protocol buffer of the message ModelProto, of which this reads what
 * decides ids. Source: sentencepiece_model.proto of the SentencePiece library (Kudo, Richardson 2018), and the
 * encoding of protocol buffers.
 */
#ifndef ENGINE_SPM_MODEL_H
#define ENGINE_SPM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"

struct spm_model {
	struct proto_str *pieces; /* [n], borrowed from the file */
	float *scores;            /* [n] */
	int32_t *attrs;           /* [n] of enum tok_attr, whose numbers are the file's */
	size_t n, cap;
	bool unigram;       /* else BPE by scores */
	bool byte_fallback; /* with all 256 byte pieces */
	bool prefix;        /* a space is put before a text */
	bool collapse;      /* spaces at both ends are dropped, runs of them are one */
	struct proto_str charsmap, bos, eos;
	int32_t unknown; /* the one piece for unknown text */
};

/* Borrows data until spm_dispose; *out is to be disposed of after an error too. SL_EINVAL, SL_ENOMEM;
 * SL_EUNSUPPORTED names the kind of model or the setting. */
int spm_read(const char *data, size_t n, struct spm_model *out, struct sl_err *err);
void spm_dispose(struct spm_model *m);

#endif
