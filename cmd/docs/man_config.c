/* SPDX-License-Identifier: Apache-2.0
 *
 * sluice.yaml(5): type, default and range of each key from the schema, its meaning from the comments of
 * etc/sluice.yaml. There a comment describes the keys that follow it up to the next comment or blank line. Comment
 * lines that are indented further are kept as they are: they show lists and their items.
 */
#include <string.h>

#include "base/file.h"
#include "cmd/config/schema.h"
#include "cmd/docs/docs.h"

enum { MOST = 1 << 20, DEEPEST = 6, KEYS_MOST = 32, ROWS_MOST = 1024, PATH_BYTES = 128, TEXT_BYTES = 64 };

struct walk {
	FILE *to;
	const struct conf_row *rows;
	struct sl_buf comment; /* without "# " */
	bool closed;           /* keys followed the comment */
	const struct conf_row *keys[KEYS_MOST];
	size_t n_keys;
	char path[DEEPEST][PATH_BYTES]; /* of the key at each depth */
	bool top;                       /* nothing was written yet */
	char section[PATH_BYTES];       /* a group of keys that the comment introduces */
	size_t list_depth;              /* deeper lines are items of a list; 0: none */
	bool seen[ROWS_MOST];
};

/* ---- what the schema knows ---- */

static const char *type_name(const struct conf_row *r)
{
	switch (r->type) {
	case CONF_STRING: return "text";
	case CONF_BOOL: return "true or false";
	case CONF_INT: return "whole number";
	case CONF_FLOAT: return "number";
	case CONF_BYTES: return "size";
	case CONF_DURATION: return "time";
	case CONF_ENUM: return "one of";
	case CONF_ADDRESS: return "address";
	case CONF_STRINGS: return "list of texts";
	case CONF_LIST: return "list";
	}
	return "";
}

struct unit {
	double size;
	const char *name;
};

static void put_amount(double v, const struct unit *units, char out[TEXT_BYTES])
{
	while (v == 0 || v < units->size || v / units->size != (double)(uint64_t)(v / units->size)) {
		if (units->size <= 1)
			break;
		units++;
	}
	snprintf(out, TEXT_BYTES, "%.15g%s", v / units->size, units->name);
}

static void put_bound(const struct conf_row *r, double v, char out[TEXT_BYTES])
{
	static const struct unit bytes[] = {
	    {1099511627776.0, "TiB"}, {1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}, {1, ""}};
	static const struct unit times[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
	if (r->type == CONF_BYTES)
		put_amount(v, bytes, out);
	else if (r->type == CONF_DURATION)
		put_amount(v, times, out);
	else
		snprintf(out, TEXT_BYTES, "%.15g", v);
}

static void put_range(FILE *to, const struct conf_row *r)
{
	char least[TEXT_BYTES], most[TEXT_BYTES];
	if (r->min == 0 && r->max == 0)
		return;
	put_bound(r, r->min, least);
	put_bound(r, r->max, most);
	if (r->type == CONF_STRING)
		fprintf(to, r->min > 0 ? " of %s to %s bytes" : "%.0s of at most %s bytes", least, most);
	else if (r->type == CONF_STRINGS || r->type == CONF_LIST)
		fprintf(to, " of at most %s", most);
	else
		fprintf(to, ", %s to %s", least, most);
}

static void put_facts(FILE *to, const struct conf_row *r, bool root)
{
	fputs(type_name(r), to);
	for (size_t i = 0; r->type == CONF_ENUM && r->choices[i] != NULL; i++) {
		fputs(i > 0 ? ", " : " ", to);
		docs_roff(to, r->choices[i], strlen(r->choices[i]));
	}
	put_range(to, r);
	if (r->fallback == NULL && r->type != CONF_LIST)
		fputs("; required", to);
	else if (r->fallback != NULL && r->fallback[0] != '\0') {
		fputs("; default ", to);
		docs_roff(to, r->fallback, strlen(r->fallback));
	}
	if (root && sluice_config_restart(r->key) != RESTART_NOT)
		fprintf(to, "; a change needs %s",
			sluice_config_restart(r->key) == RESTART_ALL ? "a restart" : "an upgrade or a restart");
	fputs(".\n", to);
}

static void put_items(FILE *to, const struct conf_row *list)
{
	fputs(".RS\n", to);
	for (const struct conf_row *r = list->item_rows; r->key != NULL; r++) {
		fprintf(to, ".TP\n.BI %s \\ ", list->key);
		fprintf(to, "%s\n", r->key);
		put_facts(to, r, false);
	}
	fputs(".RE\n", to);
}

/* ---- comments ---- */

/* after_heading: roff warns about a paragraph directly after one. */
static void put_comment(struct walk *w, bool after_heading)
{
	const char *at = (const char *)buf_data(&w->comment), *end = at + w->comment.len;
	bool verbatim = false, paragraph = !after_heading;
	for (; at < end; at = strchr(at, '\n') + 1) {
		size_t n = strcspn(at, "\n");
		bool shown = n > 2 && at[0] == ' ' && at[1] == ' ';
		if (verbatim && !shown)
			fputs(".fi\n", w->to);
		paragraph = paragraph || shown != verbatim || n == 0;
		if (n > 0 && paragraph && !(at == (const char *)buf_data(&w->comment) && after_heading))
			fputs(".PP\n", w->to);
		if (shown && !verbatim)
			fputs(".nf\n", w->to);
		verbatim = shown;
		docs_roff(w->to, at, n);
		if (n > 0) {
			fputs("\n", w->to);
			paragraph = false;
		}
	}
	if (verbatim)
		fputs(".fi\n", w->to);
	buf_clear(&w->comment, SIZE_MAX);
}

static void flush(struct walk *w)
{
	if (w->section[0] != '\0')
		fprintf(w->to, ".SS %s\n", w->section);
	for (size_t i = 0; i < w->n_keys; i++)
		fprintf(w->to, i == 0 ? ".TP\n.B %s\n" : ".TQ\n.B %s\n", w->keys[i]->key);
	if (w->n_keys > 0 && w->comment.len > 0)
		fputs(".RS 7\n", w->to);
	bool inner = w->n_keys > 0 && w->comment.len > 0;
	for (size_t i = 0; i < w->n_keys; i++) {
		if (w->n_keys > 1)
			fprintf(w->to, ".br\n.I %s\n", w->keys[i]->key);
		put_facts(w->to, w->keys[i], true);
	}
	put_comment(w, w->section[0] != '\0' || w->top);
	w->top = false;
	for (size_t i = 0; i < w->n_keys; i++)
		if (w->keys[i]->type == CONF_LIST)
			put_items(w->to, w->keys[i]);
	if (inner)
		fputs(".RE\n", w->to);
	w->n_keys = 0;
	w->closed = false;
	w->section[0] = '\0';
}

/* ---- the file ---- */

static const struct conf_row *find_row(struct walk *w, const char *path)
{
	for (size_t i = 0; w->rows[i].key != NULL && i < ROWS_MOST; i++) {
		if (strcmp(w->rows[i].key, path) == 0) {
			w->seen[i] = true;
			return &w->rows[i];
		}
	}
	return NULL;
}

static int on_comment(struct walk *w, const char *text, size_t n)
{
	if (w->closed)
		flush(w);
	if (n > 0 && text[0] == ' ') {
		text++;
		n--;
	}
	int rc = buf_append(&w->comment, text, n);
	return rc == 0 ? buf_append(&w->comment, "\n", 1) : rc;
}

static int on_key(struct walk *w, size_t depth, const char *name, size_t n, struct sl_err *err)
{
	char *path = w->path[depth];
	size_t above = depth > 0 ? strlen(w->path[depth - 1]) + 1 : 0;
	if (above + n >= PATH_BYTES)
		return sl_errf(err, SL_ELIMIT, "a key is too long");
	snprintf(path, PATH_BYTES, "%s%s%.*s", depth > 0 ? w->path[depth - 1] : "", depth > 0 ? "." : "", (int)n, name);
	const struct conf_row *r = find_row(w, path);
	w->list_depth = 0;
	if (r == NULL) { /* a group: its comment is a text of its own */
		if (w->closed)
			flush(w);
		snprintf(w->section, sizeof w->section, "%s", path);
		flush(w);
		return 0;
	}
	if (w->n_keys == KEYS_MOST)
		return sl_errf(err, SL_ELIMIT, "too many keys follow one comment");
	w->keys[w->n_keys++] = r;
	w->closed = true;
	w->list_depth = r->type == CONF_LIST ? depth + 1 : 0;
	return 0;
}

static int on_line(struct walk *w, const char *line, size_t n, struct sl_err *err)
{
	size_t indent = 0;
	while (indent < n && line[indent] == ' ')
		indent++;
	const char *at = line + indent;
	size_t left = n - indent, depth = indent / 2;
	if (left == 0) {
		flush(w);
		return 0;
	}
	if (at[0] == '#')
		return on_comment(w, at + 1, left - 1);
	if (w->list_depth > 0 && depth >= w->list_depth)
		return 0;
	size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
	if (name == 0 || name >= left || at[name] != ':' || depth >= DEEPEST)
		return sl_errf(err, SL_EINVAL, "not a key: %.*s", (int)left, at);
	return on_key(w, depth, at, name, err);
}

static int walk_file(struct walk *w, const struct sl_buf *text, struct sl_err *err)
{
	const char *at = (const char *)buf_data(text), *end = at + text->len;
	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((stop != NULL ? stop : end) - at);
		int rc = on_line(w, at, n, err);
		if (rc != 0)
			return rc;
		at += n + 1;
	}
	flush(w);
	for (size_t i = 0; w->rows[i].key != NULL && i < ROWS_MOST; i++)
		if (!w->seen[i])
			return sl_errf(err, SL_EINVAL, "the file does not document %s", w->rows[i].key);
	return 0;
}

int docs_man_config(FILE *to, const char *path, struct sl_err *err)
{
	static struct walk w;
	struct sl_buf text;
	w = (struct walk){.to = to, .top = true, .rows = sluice_config_rows()};
	buf_init(&w.comment, MOST);
	int rc = file_read(path, MOST, &text, err);
	if (rc == 0) {
		docs_title(to, "SLUICE.YAML 5", "File Formats");
		fputs(".SH NAME\nsluice.yaml \\- configuration of sluice\n"
		      ".SH SYNOPSIS\n.I /etc/sluice/sluice.yaml\n"
		      ".SH DESCRIPTION\n",
		      to);
		rc = walk_file(&w, &text, err);
		fputs(".SH SEE ALSO\n.BR sluice (1)\n", to);
	}
	buf_dispose(&text);
	buf_dispose(&w.comment);
	return rc;
}
