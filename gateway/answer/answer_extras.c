/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of an answer beyond OpenAI's API, with vLLM's names and forms: token_ids and stop_reason of a choice,
 * prompt_logprobs of a prompt.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/answer/answer.h"

enum { MAX_PROMPT = 32 << 20 };

struct answer_stops {
	struct proto_str at[PROTO_MAX_STOPS];
	char bytes[];
};

bool answer_keep_stops(struct answer *a, const struct proto_submit *s)
{
	size_t n = 0;
	for (int i = 0; i < s->n_stops; i++)
		n += s->stops[i].n;
	if (n == 0)
		return true;
	a->stops = sl_zalloc(sizeof *a->stops + n);
	if (a->stops == NULL)
		return false;
	char *at = a->stops->bytes;
	for (int i = 0; i < s->n_stops; i++) {
		memcpy(at, s->stops[i].at, s->stops[i].n);
		a->stops->at[i] = (struct proto_str){at, s->stops[i].n};
		at += s->stops[i].n;
	}
	return true;
}

void answer_note_stop(struct answer *a, struct answer_run *run, unsigned index, uint8_t i)
{
	struct answer_choice *c = &a->choices[index];
	if (answer_live(run))
		c->stop = (uint8_t)gen_choice_stop(run->gen, i, &c->stop_at);
	if (c->stop == PROTO_STOP_STRING && (a->stops == NULL || c->stop_at >= PROTO_MAX_STOPS))
		c->stop = PROTO_STOP_NONE;
}

bool answer_stop_string(const struct answer *a, const struct answer_choice *c, struct proto_str *out)
{
	if (c->stop != PROTO_STOP_STRING)
		return false;
	*out = a->stops->at[c->stop_at];
	return true;
}

int answer_take_id(struct answer *a, struct answer_choice *c, uint32_t id)
{
	return a->out.token_ids && id < PROTO_NO_ID ? buf_printf(&c->ids, c->ids.len > 0 ? ",%u" : "%u", id) : 0;
}

static int put_stop(const struct answer *a, const struct answer_choice *c, struct sl_buf *out)
{
	if (c->stop == PROTO_STOP_NONE)
		return 0;
	int rc = buf_append_str(out, ",\"stop_reason\":");
	if (rc != 0)
		return rc;
	if (c->stop == PROTO_STOP_ID)
		return buf_append_uint(out, c->stop_at);
	return json_out_string(out, a->stops->at[c->stop_at].at, a->stops->at[c->stop_at].n);
}

int answer_put_extras(const struct answer *a, const struct answer_choice *c, bool ended, struct sl_buf *out)
{
	int rc = a->out.token_ids ? buf_append_str(out, ",\"token_ids\":[") : 0;
	if (rc == 0 && c->ids.len > 0)
		rc = buf_append(out, buf_data(&c->ids), c->ids.len);
	if (rc == 0 && a->out.token_ids)
		rc = buf_append_str(out, "]");
	return rc == 0 && ended ? put_stop(a, c, out) : rc;
}

/* ---- log probabilities of a prompt ---- */

/* "ID":{"logprob":…,"rank":…,"decoded_token":…}. rank 0: unknown. */
static int put_entry(struct sl_buf *out, struct proto_id_f32 t, int rank, struct proto_str piece, bool first)
{
	int rc = buf_printf(out, "%s\"%u\":{\"logprob\":", first ? "" : ",", t.id);
	if (rc == 0)
		rc = answer_put_number(out, t.v);
	if (rc == 0)
		rc = rank > 0 ? buf_printf(out, ",\"rank\":%d", rank) : buf_append_str(out, ",\"rank\":null");
	if (rc == 0)
		rc = buf_append_str(out, ",\"decoded_token\":");
	if (rc == 0)
		rc = answer_put_piece(out, piece, false);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

/* The token, then its likeliest rivals. */
static int put_token(struct sl_buf *out, const struct proto_prompt_logprobs *m, uint16_t i, struct proto_str *pieces)
{
	struct proto_id_f32 own = proto_prompt_logprob_at(m, i, 0);
	struct proto_str piece = proto_piece_next(pieces);
	int rank = 0, rc = buf_append_str(out, isnan(own.v) ? "null" : "{");
	for (uint8_t k = 1; k <= m->n_top; k++)
		if (proto_prompt_logprob_at(m, i, k).id == own.id && !isnan(proto_prompt_logprob_at(m, i, k).v))
			rank = k;
	if (rc == 0 && !isnan(own.v))
		rc = put_entry(out, own, rank, piece, true);
	for (uint8_t k = 1; k <= m->n_top; k++) {
		struct proto_id_f32 rival = proto_prompt_logprob_at(m, i, k);
		piece = proto_piece_next(pieces);
		if (rc == 0 && !isnan(own.v) && !isnan(rival.v) && rival.id != own.id)
			rc = put_entry(out, rival, k, piece, false);
	}
	return rc == 0 && !isnan(own.v) ? buf_append_str(out, "}") : rc;
}

void answer_on_prompt(struct subscriber *s, const struct proto_prompt_logprobs *m)
{
	struct answer_run *run = list_entry(s, struct answer_run, sub);
	struct proto_str pieces = m->pieces.all;
	int rc = 0;
	if (m->first == 0) { /* also when it was submitted again */
		buf_dispose(&run->prompt);
		buf_init(&run->prompt, MAX_PROMPT);
		run->prompt_lost = false;
	}
	for (uint16_t i = 0; i < m->n && rc == 0 && !run->prompt_lost; i++) {
		rc = run->prompt.len > 0 ? buf_append_str(&run->prompt, ",") : 0;
		if (rc == 0)
			rc = put_token(&run->prompt, m, i, &pieces);
	}
	run->prompt_lost = run->prompt_lost || rc != 0;
}

int answer_put_prompt(const struct answer *a, const struct answer_run *run, struct sl_buf *out)
{
	(void)a;
	if (run->prompt_lost)
		return SL_ELIMIT;
	if (run->prompt.len == 0)
		return 0;
	int rc = buf_append_str(out, ",\"prompt_logprobs\":[");
	if (rc == 0)
		rc = buf_append(out, buf_data(&run->prompt), run->prompt.len);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}
