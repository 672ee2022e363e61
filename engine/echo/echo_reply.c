/* SPDX-License-Identifier: Apache-2.0
 *
 * The next tokens of an echo sequence: its words, a clock, silence or its end, and its agreement with a draft prefix.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/echo/echo_priv.h"

static void on_die(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
	_exit(ECHO_EXIT_DIED);
}

bool echo_hangs(const struct echo_seq *s)
{
	const struct eng_echo_config *cfg = &s->e->cfg;
	return s->e->dying || (cfg->hang_after > 0 && s->n_made >= (uint32_t)cfg->hang_after) ||
	       s->n_made - s->n_used >= s->drives.hang_at;
}

bool echo_fails(const struct echo_seq *s)
{
	const struct eng_echo_config *cfg = &s->e->cfg;
	return (cfg->fail_after > 0 && s->n_made >= (uint32_t)cfg->fail_after) ||
	       s->n_made - s->n_used >= s->drives.fail_at;
}

bool echo_ended(const struct echo_seq *s) { return !s->clock && !s->round && s->at >= s->n_words_bytes; }

/* What the pieces of a frame's tokens are found in. */
struct echo_frame {
	const struct proto_token *tokens;
	uint16_t n;
	const char *text;
};

static struct proto_str piece_of(const void *ctx, uint32_t id)
{
	const struct echo_frame *f = ctx;
	size_t at = 0;
	for (uint16_t i = 0; i < f->n; i++) {
		if (f->tokens[i].id == id)
			return (struct proto_str){f->text + at, f->tokens[i].n_bytes};
		at += f->tokens[i].n_bytes;
	}
	return (struct proto_str){"", 0};
}

/* Bytes of the next token of the words; they begin again when they go round. */
static size_t next_word(struct echo_seq *s)
{
	if (s->at >= s->n_words_bytes)
		s->at = 0;
	size_t bytes = echo_token_bytes(s->words + s->at, s->n_words_bytes - s->at);
	s->at += bytes;
	return bytes;
}

static uint32_t id_of(const struct echo_seq *s, uint32_t index)
{
	return ECHO_FIRST_ID + index + (index >= s->drives.differ_at ? ECHO_OWN_IDS : 0);
}

static float logprob_of(const struct echo_seq *s)
{
	return s->n_made >= s->drives.unsure_at ? -4 : -0.125f * (float)(s->n_made % 8);
}

void echo_take_given(struct echo_seq *s, const struct proto_submit *req, uint32_t n_begun)
{
	static const char differ[] = "differ ";
	uint32_t most = req->n_given, n = 0;
	if (strncmp(s->words, differ, sizeof differ - 1) == 0) {
		unsigned long at = strtoul(s->words + sizeof differ - 1, NULL, 10);
		most = most < at ? most : (uint32_t)at;
	}
	while (n < most && proto_given_at(req, (uint16_t)n) == id_of(s, n))
		n++;
	s->given = req->n_given > 0;
	s->n_used = n > req->n_keep ? n : req->n_keep;
	s->n_used = s->given ? s->n_used : n_begun;
	s->verified = (struct proto_verified){.n_agreed = n, .n_used = s->n_used};
	for (; s->n_made < s->n_used && !echo_ended(s); s->n_made++) {
		if (!s->clock)
			next_word(s);
	}
	s->n_made = s->n_used;
	s->max_tokens = s->max_tokens < UINT32_MAX - s->n_used ? s->max_tokens + s->n_used : UINT32_MAX;
}

void echo_tell_verified(struct echo_seq *s)
{
	struct eng_event ev = {.kind = ENG_VERIFIED, .id = s->node.key, .u.verified = s->verified};
	if (s->given)
		hub_post(s->e->hub, &ev);
	s->given = false;
}

void echo_send_tokens(struct echo_seq *s, uint32_t want)
{
	struct echo *e = s->e;
	struct proto_token tokens[ECHO_FRAME_TOKENS];
	struct proto_id_f32 likeliest[ECHO_FRAME_TOKENS]; /* itself: it knows no other */
	char text[ECHO_FRAME_TOKENS * (ECHO_MAX_WORD + 2)];
	size_t n_text = 0;
	uint16_t n = 0;
	while (n < want && !echo_hangs(s) && !echo_ended(s) && !echo_fails(s)) {
		size_t bytes;
		if (s->clock) {
			if (e->stepping)
				memcpy(text + n_text, e->stamp, ECHO_CLOCK_BYTES);
			else
				echo_write_stamp(text + n_text, clock_now_ns());
			bytes = ECHO_CLOCK_BYTES;
		} else {
			size_t tilde = s->n_made >= s->drives.differ_at;
			bytes = next_word(s);
			if (tilde)
				text[n_text] = '~';
			memcpy(text + n_text + tilde, s->words + s->at - bytes, bytes);
			bytes += tilde;
			/* Going round, the last word needs its space. */
			if (s->round && s->at >= s->n_words_bytes && !echo_is_space(s->words[s->n_words_bytes - 1]))
				text[n_text + bytes++] = ' ';
		}
		tokens[n] = (struct proto_token){.id = id_of(s, s->n_made),
						 .logprob = s->wants_logprobs ? logprob_of(s) : NAN,
						 .n_bytes = (uint16_t)bytes};
		likeliest[n] = (struct proto_id_f32){tokens[n].id, tokens[n].logprob};
		n_text += bytes;
		n++;
		s->n_made++;
		e->tokens_made++;
		if (e->cfg.die_after > 0 && e->tokens_made >= (uint64_t)e->cfg.die_after) {
			const struct timeval soon = {.tv_usec = ECHO_DIE_MS * 1000};
			e->dying = true;
			event_base_once(e->base, -1, EV_TIMEOUT, on_die, NULL, &soon);
		}
	}
	if (n == 0)
		return;
	s->credit -= n;
	e->stats.steps++;
	e->stats.decode_tokens += n;
	e->figures[s->model].decode_tokens += n;
	const struct echo_frame frame = {tokens, n, text};
	struct eng_event ev = {.kind = ENG_TOKENS,
			       .id = s->node.key,
			       .u.tokens = {.n = n,
					    .choice = s->choice,
					    .tokens = tokens,
					    .n_top = s->wants_top,
					    .tops = likeliest,
					    .text = {.at = text, .n = n_text},
					    .pieces = {.of = s->wants_logprobs ? piece_of : NULL, .ctx = &frame}}};
	hub_post(e->hub, &ev);
}
