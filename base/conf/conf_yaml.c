/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML file as a small tree, from libyaml's events.
 *
 * It reads events, not libyaml's documents: a document has aliases already resolved, but here aliases, anchors and tags
 * are errors with a position. Every dimension is bounded (bytes, depth, nodes, children), so a hostile file costs a
 * bounded amount of memory and time. Scalars with control characters are refused here, once, so that no key or value
 * can break a log line or a message later.
 */
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/conf/conf_priv.h"
#include "base/file.h"
#include "base/text.h"

struct reader {
	yaml_parser_t parser;
	const char *path;
	size_t n_nodes;
	const uint8_t *bytes;
	size_t n_bytes;
};

void conf_node_free(struct conf_node *n)
{
	if (n == NULL)
		return;
	for (size_t i = 0; i < n->n; i++)
		conf_node_free(n->kids[i]);
	sl_free(n->kids);
	sl_free(n->text);
	sl_free(n);
}

static int fail_at(const struct reader *r, const yaml_mark_t *at, const char *what, struct sl_err *err)
{
	return sl_errf(err, SL_EINVAL, "%s:%zu:%zu: %s", r->path, at->line + 1, at->column + 1, what);
}

/* libyaml's own complaint. Its reader (encoding) errors carry a byte offset and no mark. */
static int fail_parse(const struct reader *r, struct sl_err *err)
{
	const yaml_parser_t *p = &r->parser;
	if (p->error == YAML_MEMORY_ERROR)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", r->path);
	yaml_mark_t at = p->problem_mark;
	if (p->error == YAML_READER_ERROR) {
		at.line = 0;
		at.column = 0;
		size_t end = p->problem_offset < r->n_bytes ? p->problem_offset : r->n_bytes;
		for (size_t i = 0; i < end; i++) {
			at.column++;
			if (r->bytes[i] == '\n') {
				at.line++;
				at.column = 0;
			}
		}
	}
	char what[256];
	snprintf(what, sizeof what, "not YAML: %s%s%s", p->problem ? p->problem : "unreadable", p->context ? " " : "",
		 p->context ? p->context : "");
	return fail_at(r, &at, what, err);
}

static int next_event(struct reader *r, yaml_event_t *ev, struct sl_err *err)
{
	if (!yaml_parser_parse(&r->parser, ev))
		return fail_parse(r, err);
	return 0;
}

/* Rejects aliases, anchors and tags. */
static int check_event(const struct reader *r, const yaml_event_t *ev, struct sl_err *err)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;
	switch (ev->type) {
	case YAML_ALIAS_EVENT:
		return fail_at(r, &ev->start_mark,
			       "aliases (*name) are not allowed; a text that begins with * needs "
			       "quotes",
			       err);
	case YAML_SCALAR_EVENT:
		anchor = ev->data.scalar.anchor;
		tag = ev->data.scalar.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = ev->data.mapping_start.anchor;
		tag = ev->data.mapping_start.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = ev->data.sequence_start.anchor;
		tag = ev->data.sequence_start.tag;
		break;
	default: break;
	}
	if (anchor != NULL)
		return fail_at(r, &ev->start_mark, "anchors (&name) are not allowed", err);
	if (tag != NULL)
		return fail_at(r, &ev->start_mark, "tags (!name) are not allowed", err);
	return 0;
}

static int node_add(const struct reader *r, struct conf_node *to, struct conf_node *kid, struct sl_err *err)
{
	if (to->n == CONF_MAX_CHILDREN)
		return sl_errf(err, SL_ELIMIT, "%s:%u:%u: more than %d entries here", r->path, kid->line, kid->column,
			       to->kind == CONF_NODE_MAPPING ? CONF_MAX_CHILDREN / 2 : CONF_MAX_CHILDREN);
	if (to->n == to->cap) {
		size_t cap = to->cap ? to->cap * 2 : 8;
		struct conf_node **kids = sl_realloc_n(to->kids, cap, sizeof *kids);
		if (kids == NULL)
			return sl_errf(err, SL_ENOMEM, "%s: no memory", r->path);
		to->kids = kids;
		to->cap = cap;
	}
	to->kids[to->n++] = kid;
	return 0;
}

static int check_key(const struct reader *r, const struct conf_node *map, const struct conf_node *key,
		     struct sl_err *err)
{
	if (key->kind != CONF_NODE_SCALAR)
		return sl_errf(err, SL_EINVAL, "%s:%u:%u: a key must be a word", r->path, key->line, key->column);
	for (size_t i = 0; i < map->n; i += 2) {
		if (strcmp(map->kids[i]->text, key->text) == 0)
			return sl_errf(err, SL_EINVAL, "%s:%u:%u: %.80s: given twice, first on line %u", r->path,
				       key->line, key->column, key->text, map->kids[i]->line);
	}
	return 0;
}

static int read_node(struct reader *r, const yaml_event_t *ev, int depth, struct conf_node **out, struct sl_err *err);

/* The children of a mapping or sequence up to its end event. */
static int read_kids(struct reader *r, struct conf_node *n, int depth, struct sl_err *err)
{
	for (;;) {
		yaml_event_t ev;
		int rc = next_event(r, &ev, err);
		if (rc != 0)
			return rc;
		if (ev.type == YAML_MAPPING_END_EVENT || ev.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&ev);
			return 0;
		}
		struct conf_node *kid = NULL;
		rc = read_node(r, &ev, depth + 1, &kid, err);
		yaml_event_delete(&ev);
		if (rc == 0 && n->kind == CONF_NODE_MAPPING && n->n % 2 == 0)
			rc = check_key(r, n, kid, err);
		if (rc == 0)
			rc = node_add(r, n, kid, err);
		if (rc != 0) {
			conf_node_free(kid);
			return rc;
		}
	}
}

static int read_node(struct reader *r, const yaml_event_t *ev, int depth, struct conf_node **out, struct sl_err *err)
{
	int rc = check_event(r, ev, err);
	if (rc != 0)
		return rc;
	if (depth > CONF_MAX_DEPTH)
		return fail_at(r, &ev->start_mark, "nested too deeply", err);
	if (++r->n_nodes > CONF_MAX_NODES)
		return fail_at(r, &ev->start_mark, "too many values in one file", err);

	struct conf_node *n = sl_zalloc(sizeof *n);
	if (n == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", r->path);
	n->line = (unsigned)ev->start_mark.line + 1;
	n->column = (unsigned)ev->start_mark.column + 1;
	if (ev->type == YAML_SCALAR_EVENT) {
		const char *text = (const char *)ev->data.scalar.value;
		size_t len = ev->data.scalar.length;
		n->kind = CONF_NODE_SCALAR;
		n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
		if (text_has_control(text, len))
			rc = fail_at(r, &ev->start_mark, "line breaks and control characters are not allowed in a text",
				     err);
		else if ((n->text = sl_strndup(text, len)) == NULL)
			rc = sl_errf(err, SL_ENOMEM, "%s: no memory", r->path);
	} else {
		n->kind = ev->type == YAML_MAPPING_START_EVENT ? CONF_NODE_MAPPING : CONF_NODE_SEQUENCE;
		rc = read_kids(r, n, depth, err);
	}
	if (rc != 0) {
		conf_node_free(n);
		return rc;
	}
	*out = n;
	return 0;
}

static int read_stream(struct reader *r, struct conf_node **out, struct sl_err *err)
{
	struct conf_node *root = NULL;
	for (;;) {
		yaml_event_t ev;
		int rc = next_event(r, &ev, err); /* after an error: no event */
		yaml_event_type_t type = ev.type;
		if (type == YAML_DOCUMENT_START_EVENT && root != NULL)
			rc = fail_at(r, &ev.start_mark, "a second document is not allowed", err);
		else if (type == YAML_SCALAR_EVENT || type == YAML_MAPPING_START_EVENT ||
			 type == YAML_SEQUENCE_START_EVENT || type == YAML_ALIAS_EVENT)
			rc = read_node(r, &ev, 1, &root, err);
		yaml_event_delete(&ev);
		if (rc != 0) {
			conf_node_free(root);
			return rc;
		}
		if (type == YAML_STREAM_END_EVENT) {
			*out = root;
			return 0;
		}
	}
}

int conf_yaml_read(const char *path, struct conf_node **out, struct sl_err *err)
{
	struct sl_buf bytes;
	struct sl_err why = {0};
	int rc = file_read(path, CONF_MAX_FILE_BYTES, &bytes, &why);
	if (rc != 0)
		rc = sl_errf(err, rc == SL_ENOTFOUND ? SL_EIO : rc,
			     rc == SL_ELIMIT || rc == SL_ENOMEM ? "%s: %s" : "%s: can't be opened: %s", path, why.text);
	struct reader r = {.path = path};
	if (rc == 0 && !yaml_parser_initialize(&r.parser))
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	if (rc == 0) {
		r.bytes = bytes.len ? buf_data(&bytes) : (const uint8_t *)"";
		r.n_bytes = bytes.len;
		yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
		yaml_parser_set_input_string(&r.parser, r.bytes, r.n_bytes);
		rc = read_stream(&r, out, err);
		yaml_parser_delete(&r.parser);
	}
	buf_dispose(&bytes);
	return rc;
}
