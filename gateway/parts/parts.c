/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream: puts tokens into the queue and runs the states until one waits.
 */
#include "gateway/parts/parts.h"

#include <string.h>

#include "base/alloc.h"
#include "gateway/parts/parts_priv.h"

static bool stopped_step(struct parts *p)
{
	lex_consume(p, p->queue.len);
	return false;
}

static bool (*const steps[ST_N])(struct parts *p) = {
    [ST_TEXT] = text_step,       [ST_HEAD] = head_step,       [ST_MEMBERS] = members_step, [ST_ARGS] = args_step,
    [ST_TAGS] = tags_step,       [ST_VALUE] = value_step,     [ST_PYTHON] = python_step,   [ST_AFTER] = after_step,
    [ST_BETWEEN] = between_step, [ST_STOPPED] = stopped_step,
};

static void work(struct parts *p)
{
	while (p->rc == 0 && steps[p->state](p))
		;
}

/* ---- markers ---- */

static void learn_markers(struct parts *p, const struct parts_init *init)
{
	const char *all[PARTS_MAX_LITERALS];
	size_t n = parts_format_literals(init->format, init->reasoning, all, PARTS_MAX_LITERALS);
	BUG_IF(n > PARTS_MAX_LITERALS, "%zu literals", n);
	for (size_t k = 0; k < init->n_markers; k++)
		for (size_t i = 0; i < n; i++)
			if (strcmp(all[i], init->markers[k].text) == 0)
				p->known[k / 8] |= (uint8_t)(1u << (k % 8));
}

static size_t find_marker(const struct parts *p, int32_t id)
{
	size_t k = 0;
	while (k < p->n_markers && p->markers[k].id != id)
		k++;
	return k;
}

/* ---- lifetime ---- */

static void begin(struct parts *p, const struct parts_init *init)
{
	p->begins = true;
	p->kind = TEXT_CONTENT;
	if (init->starts_in_reasoning)
		out_switch(p, TEXT_REASONING);
	if (p->format->forms[0].syntax == PARTS_SYNTAX_CHANNEL)
		p->state = ST_HEAD;
}

int parts_create(const struct parts_init *init, struct parts **out)
{
	*out = NULL;
	if ((unsigned)init->format >= PARTS_N_FORMATS || (unsigned)init->reasoning >= PARTS_N_REASONINGS ||
	    init->n_markers > PARTS_MAX_MARKERS || init->on_event == NULL)
		return SL_EINVAL;
	struct parts *p = sl_zalloc(sizeof *p);
	if (p == NULL)
		return SL_ENOMEM;
	p->format = parts_format_desc(init->format);
	p->reasoning = parts_reasoning_desc(init->reasoning);
	p->tools = init->tools;
	p->markers = init->markers;
	p->n_markers = init->n_markers;
	p->one_call = init->one_call;
	p->on_event = init->on_event;
	p->ctx = init->ctx;
	p->text[TEXT_REASONING].fresh = true;
	buf_init(&p->queue, BUF_MOST);
	buf_init(&p->out, BUF_MOST);
	learn_markers(p, init);
	text_init(p);
	begin(p, init);
	*out = p;
	return 0;
}

void parts_destroy(struct parts *p)
{
	if (p == NULL)
		return;
	buf_dispose(&p->queue);
	buf_dispose(&p->out);
	sl_free(p);
}

int parts_copy(const struct parts *p, parts_on_event *on_event, void *ctx, struct parts **out)
{
	struct parts *copy = sl_alloc(sizeof *copy);
	*out = NULL;
	if (copy == NULL)
		return SL_ENOMEM;
	*copy = *p;
	copy->on_event = on_event;
	copy->ctx = ctx;
	buf_init(&copy->queue, BUF_MOST);
	buf_init(&copy->out, BUF_MOST);
	int rc = buf_append(&copy->queue, buf_data(&p->queue), p->queue.len);
	if (rc != 0) {
		parts_destroy(copy);
		return rc;
	}
	*out = copy;
	return 0;
}

int parts_feed(struct parts *p, int32_t id, const char *text, size_t n)
{
	size_t k = id >= 0 ? find_marker(p, id) : p->n_markers;
	if (p->rc != 0 || p->state == ST_STOPPED)
		return p->rc != 0 ? p->rc : PARTS_STOP;
	if (k == p->n_markers)
		out_failed(p, lex_push_text(p, text, n));
	else if (p->known[k / 8] >> (k % 8) & 1)
		out_failed(p, lex_push_marker(p, k));
	work(p);
	out_flush(p);
	return p->rc != 0 ? p->rc : p->state == ST_STOPPED ? PARTS_STOP : 0;
}

int parts_finish(struct parts *p)
{
	p->final = true;
	work(p);
	if (p->state != ST_STOPPED)
		out_finish(p);
	return p->rc;
}

bool parts_reasons(const struct parts *p) { return p->kind == TEXT_REASONING; }

int parts_calls(const struct parts *p) { return p->n_calls; }
