/* SPDX-License-Identifier: Apache-2.0
 *
 * The levels. One pass can create work for another: a removed character joins its neighbours, a removed tag uncovers
 * Markdown. So a level is repeated until a round changes nothing. If that takes more than ROUNDS, which only a crafted
 * text does, the text stays unchanged. In both cases cleansing the result again returns it unchanged.
 *
 * Full does not begin with light: blanks in preformatted HTML are code, and only full recognises them.
 *
 * A round is linear and the number of rounds is bounded, so the whole is linear.
 */
#include "gateway/cleanse/cleanse.h"

#include <string.h>

#include "base/err.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { ROUNDS = 6 };

/* Buffers: the text, the output of a pass, and for each level the texts before the round and before the level. */
enum { AT, SPARE, LAST_LIGHT, ORIGIN_LIGHT, LAST_FULL, ORIGIN_FULL, N_BUFFERS };

static const char *text_of(const struct sl_buf *b) { return b->len > 0 ? (const char *)buf_data(b) : ""; }

static int copy(struct sl_buf *to, const struct sl_buf *from)
{
	buf_clear(to, SIZE_MAX);
	return buf_append(to, text_of(from), from->len);
}

/* Applies a pass to b[AT]. */
static int run(cleanse_pass *pass, struct sl_buf b[N_BUFFERS])
{
	buf_clear(&b[SPARE], SIZE_MAX);
	int rc = pass(text_of(&b[AT]), b[AT].len, &b[SPARE]);
	if (rc == 0) {
		struct sl_buf made = b[SPARE];
		b[SPARE] = b[AT];
		b[AT] = made;
	}
	return rc;
}

static int light_round(struct sl_buf b[N_BUFFERS])
{
	int rc = run(cleanse_chars, b);
	return rc != 0 ? rc : run(cleanse_blanks, b);
}

static int repeat(enum cleanse_level level, struct sl_buf b[N_BUFFERS]);

static int full_round(struct sl_buf b[N_BUFFERS])
{
	int rc;
	if ((rc = run(cleanse_html, b)) != 0 || (rc = run(cleanse_markdown, b)) != 0)
		return rc;
	return repeat(CLEANSE_LIGHT, b);
}

/* Applies a level to b[AT]. The text stays unchanged if the rounds do not settle, if it would become empty (an empty
 * message has another meaning), or if it would exceed the bound. */
static int repeat(enum cleanse_level level, struct sl_buf b[N_BUFFERS])
{
	struct sl_buf *last = &b[level == CLEANSE_LIGHT ? LAST_LIGHT : LAST_FULL];
	struct sl_buf *origin = &b[level == CLEANSE_LIGHT ? ORIGIN_LIGHT : ORIGIN_FULL];
	int rc = copy(origin, &b[AT]);
	for (int i = 0; i < ROUNDS && rc == 0; i++) {
		if (cleanse_scan(level, text_of(&b[AT]), b[AT].len) == CLEANSE_CLEAN)
			return 0;
		if ((rc = copy(last, &b[AT])) != 0)
			break;
		rc = level == CLEANSE_LIGHT ? light_round(b) : full_round(b);
		if (rc == SL_ELIMIT || (rc == 0 && b[AT].len == 0)) {
			rc = 0;
			break;
		}
		if (rc == 0 && b[AT].len == last->len && memcmp(text_of(&b[AT]), text_of(last), last->len) == 0)
			return 0;
	}
	return rc != 0 ? rc : copy(&b[AT], origin);
}

static int cleanse_dirty(enum cleanse_level level, const char *text, size_t n, struct sl_buf *out)
{
	struct sl_buf b[N_BUFFERS];
	int rc;
	for (int i = 0; i < N_BUFFERS; i++)
		buf_init(&b[i], n > SIZE_MAX / CLEANSE_GROWTH ? SIZE_MAX : n * CLEANSE_GROWTH);
	rc = buf_append(&b[AT], text, n);
	if (rc == 0)
		rc = repeat(level, b);
	if (rc == 0)
		rc = buf_append(out, text_of(&b[AT]), b[AT].len);
	for (int i = 0; i < N_BUFFERS; i++)
		buf_dispose(&b[i]);
	return rc;
}

int cleanse(enum cleanse_level level, const char *text, size_t n, struct sl_buf *out, struct cleanse_stats *stats)
{
	size_t before = out->len;
	bool dirty = level != CLEANSE_OFF && n > 0 && cleanse_scan(level, text, n) == CLEANSE_DIRTY;
	int rc = dirty ? cleanse_dirty(level, text, n, out) : n > 0 ? buf_append(out, text, n) : 0;
	if (rc != 0 || stats == NULL)
		return rc;
	size_t made = out->len - before;
	stats->bytes_in += n;
	stats->bytes_out += made;
	stats->n_texts++;
	if (dirty && (made != n || memcmp(buf_data(out) + before, text, n) != 0))
		stats->n_changed++;
	return 0;
}

uint64_t cleanse_saved(const struct cleanse_stats *stats)
{
	return stats->bytes_in > stats->bytes_out ? stats->bytes_in - stats->bytes_out : 0;
}
