/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/conversation/response_prompt.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 64 };

static const struct gw_prompt_config *find(const struct gw_config *cfg, const char *id, const char *version)
{
	const struct gw_prompt_config *all = cfg->prompts.items;
	for (size_t i = 0; i < cfg->prompts.n; i++)
		if (strcmp(all[i].name, id) == 0 &&
		    (version == NULL || all[i].version[0] == '\0' || strcmp(all[i].version, version) == 0))
			return &all[i];
	return NULL;
}

/* Finds the next {{name}} from p on; blanks around the name are ignored. Returns where it begins; NULL: none. */
static const char *next_variable(const char *p, char name[MAX_NAME], const char **end)
{
	for (; (p = strstr(p, "{{")) != NULL; p += 2) {
		const char *from = p + 2 + strspn(p + 2, " ");
		size_t n = strcspn(from, " {}\n");
		const char *close = from + n + strspn(from + n, " ");
		if (n == 0 || n >= MAX_NAME || strncmp(close, "}}", 2) != 0)
			continue;
		memcpy(name, from, n);
		name[n] = '\0';
		*end = close + 2;
		return p;
	}
	return NULL;
}

static int fill(const struct gw_prompt_config *prompt, const json_t *variables, struct sl_buf *out,
		struct request_error *e)
{
	const char *p = prompt->text, *at, *end;
	char name[MAX_NAME], param[96];
	int rc = 0;
	while (rc == 0 && (at = next_variable(p, name, &end)) != NULL) {
		const json_t *v = json_object_get(variables, name);
		snprintf(param, sizeof param, "prompt.variables.%s", name);
		if (v == NULL)
			return request_missing(e, param);
		rc = buf_append(out, p, (size_t)(at - p));
		if (rc == 0)
			rc = buf_append(out, json_string_value(v), json_string_length(v));
		p = end;
	}
	return rc == 0 ? buf_append_str(out, p) : rc;
}

static bool names(const char *text, const char *wanted)
{
	char name[MAX_NAME];
	const char *end = text;
	while (next_variable(end, name, &end) != NULL)
		if (strcmp(name, wanted) == 0)
			return true;
	return false;
}

static int check_given(const struct gw_prompt_config *prompt, json_t *variables, struct request_error *e)
{
	for (void *i = json_object_iter(variables); i != NULL; i = json_object_iter_next(variables, i)) {
		const char *name = json_object_iter_key(i);
		char param[96];
		snprintf(param, sizeof param, "prompt.variables.%s", name);
		if (!names(prompt->text, name))
			return request_bad(e, "unknown_variable", param, "The prompt '%s' has no variable '%.64s'.",
					   prompt->name, name);
	}
	return 0;
}

int response_prompt_apply(const struct gw_config *cfg, struct response_request *r, struct request_error *e)
{
	*e = (struct request_error){0};
	if (r->prompt_id == NULL)
		return 0;
	const struct gw_prompt_config *prompt = find(cfg, r->prompt_id, r->prompt_version);
	if (prompt == NULL) {
		request_bad(e, "prompt_not_found", r->prompt_version != NULL ? "prompt.version" : "prompt.id",
			    "No prompt '%.64s'%s%.32s is configured.", r->prompt_id,
			    r->prompt_version != NULL ? " of version " : "",
			    r->prompt_version != NULL ? r->prompt_version : "");
		return SL_ENOTFOUND;
	}
	struct sl_buf text;
	buf_init(&text, REQUEST_MAX_PROMPT);
	int rc = check_given(prompt, r->prompt_variables, e);
	if (rc == 0)
		rc = request_too_long(fill(prompt, r->prompt_variables, &text, e), "prompt.variables", e);
	if (rc == 0) {
		json_t *message = json_pack("{s:s, s:s, s:s, s:[{s:s, s:s%}]}", "type", "message", "role", "developer",
					    "status", "completed", "content", "type", "input_text", "text",
					    text.len > 0 ? (const char *)buf_data(&text) : "", text.len);
		rc = message == NULL || json_array_insert_new(r->input, 0, message) != 0 ? SL_ENOMEM : 0;
	}
	buf_dispose(&text);
	return rc;
}
