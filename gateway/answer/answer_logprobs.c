/* SPDX-License-Identifier: Apache-2.0
 *
 * Log probabilities as JSON. A token need not be whole characters: `bytes` has it exactly, `token`
 * as well as text can.
 */
#include <math.h>

#include "base/json/json_out.h"
#include "base/utf8.h"
#include "gateway/answer/answer.h"

int answer_put_number(struct sl_buf *out, float logprob)
{
	if (isnan(logprob))
		return buf_append_str(out, "null");
	/* What no other program prints lower: OpenAI's floor for what is as good as impossible. */
	return buf_printf(out, "%.8g", (double)(logprob < -9999 ? -9999 : logprob + 0.0F)); /* no "-0" */
}

int answer_put_piece(struct sl_buf *out, struct proto_str piece, bool hex)
{
	const uint8_t *p = (const uint8_t *)piece.at;
	int rc = buf_append_str(out, "\"");
	for (size_t i = 0; rc == 0 && i < piece.n;) {
		uint32_t cp;
		int len = utf8_decode(p + i, piece.n - i, &cp);
		if (len > 0) {
			uint8_t *at;
			rc = buf_reserve(out, JSON_ESCAPED_MAX((size_t)len), &at);
			if (rc == 0)
				buf_commit(out, (size_t)(json_escape((char *)at, (const char *)p + i, (size_t)len) -
							 (char *)at));
		} else {
			rc = hex ? buf_printf(out, "\\\\x%02x", p[i]) : buf_append_str(out, "\xef\xbf\xbd");
		}
		i += len > 0 ? (size_t)len : 1;
	}
	return rc == 0 ? buf_append_str(out, "\"") : rc;
}

int answer_put_name(const struct answer *a, struct sl_buf *out, uint32_t id, struct proto_str piece, bool hex)
{
	return a->out.tokens_as_ids && id < PROTO_NO_ID ? buf_printf(out, "\"token_id:%u\"", id)
							: answer_put_piece(out, piece, hex);
}

static int put_bytes(struct sl_buf *out, struct proto_str piece)
{
	int rc = buf_append_str(out, ",\"bytes\":[");
	for (size_t i = 0; rc == 0 && i < piece.n; i++)
		rc = buf_printf(out, "%s%u", i > 0 ? "," : "", (unsigned)(uint8_t)piece.at[i]);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

/* Without the closing brace. */
static int put_token(const struct answer *a, struct sl_buf *out, uint32_t id, struct proto_str piece, float logprob)
{
	int rc = buf_append_str(out, "{\"token\":");
	if (rc == 0)
		rc = answer_put_name(a, out, id, piece, false);
	if (rc == 0)
		rc = buf_append_str(out, ",\"logprob\":");
	if (rc == 0)
		rc = answer_put_number(out, logprob);
	return rc == 0 ? put_bytes(out, piece) : rc;
}

int answer_put_logprob(const struct answer *a, struct sl_buf *list, const struct gen_token *t)
{
	struct proto_str left = t->pieces;
	int rc = list->len > 0 ? buf_append_str(list, ",") : 0;
	if (rc == 0)
		rc = put_token(a, list, t->id, proto_piece_next(&left), t->logprob);
	if (rc == 0)
		rc = buf_append_str(list, ",\"top_logprobs\":[");
	bool first = true;
	for (uint8_t i = 0; rc == 0 && i < t->n_top; i++) {
		struct proto_str piece = proto_piece_next(&left);
		if (t->tops[i].v == -INFINITY) /* fewer were reported */
			continue;
		rc = first ? 0 : buf_append_str(list, ",");
		first = false;
		if (rc == 0)
			rc = put_token(a, list, t->tops[i].id, piece, t->tops[i].v);
		if (rc == 0)
			rc = buf_append_str(list, "}");
	}
	return rc == 0 ? buf_append_str(list, "]}") : rc;
}
