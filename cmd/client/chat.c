/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice chat`: a conversation in a terminal, or one answer for a prompt from the command line or a pipe.
 */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/out_file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cmd/client/chat_input.h"
#include "cmd/client/chat_turn.h"
#include "cmd/client/client.h"
#include "cmd/client/term_text.h"
#include "cmd/config/cmd.h"

enum { TOOLS_MAX = 1 << 20, CHAT_FILE_MAX = 64 << 20, NAME_MAX_BYTES = 256, CALLS_IN_A_ROW = 16 };

static const char usage[] =
    "usage: sluice chat [--model NAME] [--system TEXT] [--temperature T] [--seed N]\n"
    "                   [--max-tokens N] [--tools FILE] [--verbose] [PROMPT]\n"
    "\n"
    "Without PROMPT it reads messages from the terminal; /help lists its commands. With PROMPT, or\n"
    "with a message on standard input, it prints the answer and ends.\n"
    "\n"
    "  --model NAME      the model (auto where the server has it, else its first)\n"
    "  --system TEXT     instructions that come first\n"
    "  --temperature T   0 to 2\n"
    "  --seed N          makes answers repeatable\n"
    "  --max-tokens N    the longest answer\n"
    "  --tools FILE      an array of tools; what the model calls is shown, and its result asked for\n"
    "  --verbose         tokens and times after each answer\n" CLIENT_USAGE;

static const char commands[] =
    "  /model [NAME]   shows or changes the model     /models   lists them\n"
    "  /system [TEXT]  shows or sets the instructions /again    answers the last message anew\n"
    "  /save FILE      writes the conversation        /load FILE  continues one\n"
    "  /clear          forgets the conversation       /quit     ends (Ctrl-D)\n"
    "  \"\"\"             begins and ends a message of several lines; Ctrl-C stops an answer\n";

struct chat {
	struct client_options o;
	struct http_client *client;
	const char *model_option, *system_option, *tools_path;
	double temperature;
	uint32_t seed, max_tokens;
	bool verbose;
	char model[NAME_MAX_BYTES];
	json_t *messages, *tools; /* owned; tools: NULL without --tools */
	bool styled;              /* standard output is a terminal */
	struct term_text text, thought;
	bool has_thought, has_text;
};

static int complain(const char *what)
{
	fprintf(stderr, "sluice chat: %s\n", what);
	return 1;
}

/* ---- the answer, as it comes ---- */

static void on_thought(void *ctx, const char *s, size_t n)
{
	struct chat *c = ctx;
	if (!c->styled)
		return;
	if (!c->has_thought)
		term_text_init(&c->thought, stdout, false, true);
	c->has_thought = true;
	term_text_put(&c->thought, s, n);
	fflush(stdout);
}

static void end_thought(struct chat *c)
{
	if (!c->has_thought)
		return;
	term_text_end(&c->thought);
	fputs("\n\n", stdout);
	c->has_thought = false;
}

static void on_text(void *ctx, const char *s, size_t n)
{
	struct chat *c = ctx;
	end_thought(c);
	c->has_text = true;
	term_text_put(&c->text, s, n);
	fflush(stdout);
}

/* Names and arguments come from the model: shown as text. */
static void put_call_text(struct chat *c, const char *s, size_t n)
{
	struct term_text t;
	term_text_init(&t, stdout, !c->styled, true);
	t.code = true; /* no markup in it */
	t.at_start = false;
	term_text_put(&t, s, n);
	term_text_end(&t);
	fflush(stdout);
}

static void on_call_name(void *ctx, const char *name)
{
	struct chat *c = ctx;
	end_thought(c);
	fputs(c->has_text ? "\n" : "", stdout);
	c->has_text = true;
	put_call_text(c, "-> ", 3);
	put_call_text(c, name, strlen(name));
	put_call_text(c, " ", 1);
}

static void on_call_arguments(void *ctx, const char *s, size_t n) { put_call_text(ctx, s, n); }

/* ---- requests ---- */

static json_t *request_of(const struct chat *c)
{
	json_t *messages = json_array(), *r;
	if (c->system_option != NULL && c->system_option[0] != '\0')
		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "system", "content", c->system_option));
	json_array_extend(messages, c->messages);
	r = json_pack("{s:s,s:o}", "model", c->model, "messages", messages);
	if (c->temperature >= 0)
		json_object_set_new(r, "temperature", json_real(c->temperature));
	if (c->seed > 0)
		json_object_set_new(r, "seed", json_integer(c->seed));
	if (c->max_tokens > 0)
		json_object_set_new(r, "max_tokens", json_integer(c->max_tokens));
	if (c->tools != NULL)
		json_object_set(r, "tools", c->tools);
	return r;
}

static void report(const struct chat *c, const struct chat_turn *turn)
{
	double seconds = (double)turn->us_all / 1e6;
	if (strcmp(turn->finish, "length") == 0)
		fprintf(stderr, "(cut at the length limit)\n");
	if (client_stopped)
		fprintf(stderr, "(stopped)\n");
	if (c->verbose)
		fprintf(stderr, "(%s: %" PRIu64 " tokens in, %" PRIu64 " out, first after %.2f s, %.1f a second, %s)\n",
			turn->model, turn->n_prompt, turn->n_completion, (double)turn->us_first / 1e6,
			seconds > 0 ? (double)turn->n_completion / seconds : 0, turn->finish[0] ? turn->finish : "-");
}

static void add_message(struct chat *c, const char *role, const char *text)
{
	json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", role, "content", text));
}

/* Asks for the results of an answer's calls. False: it has none, or none were given. */
static bool take_results(struct chat *c, const struct chat_turn *turn)
{
	const json_t *calls = json_object_get(turn->message, "tool_calls");
	struct sl_buf line;
	size_t i;
	json_t *call;
	bool all = json_array_size(calls) > 0 && isatty(STDIN_FILENO);
	buf_init(&line, CHAT_INPUT_MAX);
	for (i = 0; i < json_array_size(calls); i++) {
		call = json_array_get(calls, i);
		if (!all)
			break;
		all = chat_input_read("result> ", &line) && line.len > 0 && buf_cstr(&line) != NULL;
		if (all)
			json_array_append_new(c->messages,
					      json_pack("{s:s,s:O,s:s}", "role", "tool", "tool_call_id",
							json_object_get(call, "id"), "content", buf_cstr(&line)));
	}
	buf_dispose(&line);
	return all;
}

/* One answer to the conversation as it stands. 0; 1: it failed; 2: it has calls whose results were given. */
static int answer_once(struct chat *c)
{
	const struct chat_sink sink = {on_text, on_thought, on_call_name, on_call_arguments, c};
	struct chat_turn turn;
	json_t *request = request_of(c);
	c->has_thought = c->has_text = false;
	term_text_init(&c->text, stdout, !c->styled, false);
	client_stopped = 0;
	client_stop_on_signals();
	int rc = request != NULL ? chat_turn_run(c->client, request, &sink, &client_stopped, &turn) : SL_ENOMEM;
	if (isatty(STDIN_FILENO))
		signal(SIGINT, SIG_IGN); /* at the prompt it ends nothing */
	json_decref(request);
	end_thought(c);
	term_text_end(&c->text);
	if (c->has_text)
		fputc('\n', stdout);
	fflush(stdout);
	if (request == NULL)
		return complain("no memory");
	report(c, &turn);
	if (turn.message != NULL)
		json_array_append(c->messages, turn.message);
	if (rc != 0)
		complain(turn.why[0] != '\0' ? turn.why : "no memory");
	int result = rc != 0;
	if (rc == 0 && take_results(c, &turn))
		result = 2;
	chat_turn_dispose(&turn);
	return result;
}

static int answer(struct chat *c)
{
	for (int i = 0; i < CALLS_IN_A_ROW; i++) {
		int rc = answer_once(c);
		if (rc != 2)
			return rc;
	}
	return complain("the model called tools too often in a row");
}

/* ---- models ---- */

/* The ids of the server's models: a new array; NULL after a message. */
static json_t *models_of(struct chat *c)
{
	struct http_call call = {.method = "GET", .path = "/v1/models"};
	char why[512];
	json_t *ids = NULL;
	if (http_call_run(c->client, &call, NULL) == 0 && call.end == HTTP_DONE && call.status == 200) {
		json_t *all = json_loadb((const char *)buf_data(&call.text), call.text.len, 0, NULL);
		ids = json_array();
		const json_t *data = json_object_get(all, "data");
		for (size_t i = 0; i < json_array_size(data); i++)
			json_array_append(ids, json_object_get(json_array_get(data, i), "id"));
		json_decref(all);
	} else {
		http_call_explain(&call, why, sizeof why);
		fprintf(stderr, "sluice chat: %s: %s\n", c->o.url, why);
		if (call.status == 401)
			fputs("sluice chat: put the API key into SLUICE_KEY or a --key-file\n", stderr);
	}
	http_call_dispose(&call);
	return ids;
}

static int choose_model(struct chat *c)
{
	const char *name = c->model_option;
	json_t *ids = name == NULL ? models_of(c) : NULL, *id;
	size_t i;
	if (name == NULL && ids == NULL)
		return 1;
	for (i = 0; i < json_array_size(ids); i++) {
		id = json_array_get(ids, i);
		const char *s = json_string_value(id);
		if (s != NULL && (name == NULL || strcmp(s, "auto") == 0))
			name = s;
	}
	if (name != NULL)
		snprintf(c->model, sizeof c->model, "%s", name);
	json_decref(ids);
	return name != NULL ? 0 : complain("the server has no model");
}

static void list_models(struct chat *c)
{
	json_t *ids = models_of(c);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));
		if (id != NULL && !text_has_control(id, strlen(id)))
			printf("%s%s\n", id, strcmp(id, c->model) == 0 ? " *" : "");
	}
	json_decref(ids);
}

/* ---- files ---- */

static void save(const struct chat *c, const char *path)
{
	struct out_file out;
	struct sl_err err = {0};
	json_t *all = json_pack("{s:s,s:s,s:O}", "model", c->model, "system",
				c->system_option != NULL ? c->system_option : "", "messages", c->messages);
	char *text = all != NULL ? json_dumps(all, JSON_INDENT(2)) : NULL;
	json_decref(all);
	if (text == NULL) {
		complain("no memory");
		return;
	}
	int rc = out_file_open(path, true, &out, &err);
	if (rc == 0 && file_write(out.fd, text, strlen(text)) != 0) {
		out_file_abort(&out);
		rc = sl_errf(&err, SL_EIO, "%s: can't be written", path);
	} else if (rc == 0) {
		rc = out_file_finish(&out, &err);
	}
	sl_free(text);
	if (rc != 0)
		complain(err.text);
	else
		printf("saved to %s\n", path);
}

static bool are_messages(const json_t *messages)
{
	size_t i;
	json_t *m;
	if (!json_is_array(messages))
		return false;
	for (i = 0; i < json_array_size(messages); i++) {
		m = json_array_get(messages, i);
		if (!json_is_string(json_object_get(m, "role")))
			return false;
	}
	return true;
}

static void load(struct chat *c, const char *path, char **system)
{
	struct sl_buf text;
	struct sl_err why;
	json_t *all = NULL;
	if (file_read(path, CHAT_FILE_MAX, &text, &why) != 0) {
		fprintf(stderr, "sluice chat: %s: %s\n", path, why.text);
	} else {
		all = json_loadb((const char *)buf_data(&text), text.len, 0, NULL);
		if (!are_messages(json_object_get(all, "messages"))) {
			fprintf(stderr, "sluice chat: %s: not a saved conversation\n", path);
		} else {
			const char *s = json_string_value(json_object_get(all, "system"));
			json_decref(c->messages);
			c->messages = json_incref(json_object_get(all, "messages"));
			sl_free(*system);
			*system = s != NULL && s[0] != '\0' ? sl_strdup(s) : NULL;
			c->system_option = *system;
			printf("%zu messages\n", json_array_size(c->messages));
		}
	}
	json_decref(all);
	buf_dispose(&text);
}

static int load_tools(struct chat *c)
{
	struct sl_buf text;
	struct sl_err why;
	json_error_t where;
	if (c->tools_path == NULL)
		return 0;
	if (file_read(c->tools_path, TOOLS_MAX, &text, &why) != 0) {
		fprintf(stderr, "sluice chat: %s: %s\n", c->tools_path, why.text);
	} else {
		c->tools = json_loadb((const char *)buf_data(&text), text.len, 0, &where);
		if (c->tools == NULL)
			fprintf(stderr, "sluice chat: %s:%d: %s\n", c->tools_path, where.line, where.text);
		else if (!json_is_array(c->tools))
			fprintf(stderr, "sluice chat: %s: not an array of tools\n", c->tools_path);
	}
	buf_dispose(&text);
	return json_is_array(c->tools) ? 0 : 1;
}

/* ---- the conversation ---- */

/* Removes what followed the last message of the user. */
static bool step_back(struct chat *c)
{
	for (size_t n = json_array_size(c->messages); n > 0; n--) {
		const char *role = json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role"));
		if (role != NULL && strcmp(role, "user") == 0)
			return true;
		json_array_remove(c->messages, n - 1);
	}
	return false;
}

/* A line that begins with a slash. False: it ends the chat. */
static bool command(struct chat *c, char *line, char **system)
{
	char *argument = line + strcspn(line, " ");
	if (*argument != '\0')
		*argument++ = '\0';
	bool has = *argument != '\0';
	if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0 || strcmp(line, "/bye") == 0)
		return false;
	if (strcmp(line, "/models") == 0) {
		list_models(c);
	} else if (strcmp(line, "/model") == 0) {
		if (has)
			snprintf(c->model, sizeof c->model, "%s", argument);
		printf("model: %s\n", c->model);
	} else if (strcmp(line, "/system") == 0) {
		if (has) {
			sl_free(*system);
			*system = sl_strdup(argument);
			c->system_option = *system;
		}
		printf("system: %s\n", c->system_option != NULL ? c->system_option : "(none)");
	} else if (strcmp(line, "/clear") == 0) {
		json_array_clear(c->messages);
	} else if (strcmp(line, "/again") == 0) {
		if (step_back(c))
			answer(c);
	} else if (strcmp(line, "/save") == 0 && has) {
		save(c, argument);
	} else if (strcmp(line, "/load") == 0 && has) {
		load(c, argument, system);
	} else {
		fputs(commands, stdout);
	}
	return true;
}

static int converse(struct chat *c)
{
	struct sl_buf line;
	char *system = NULL;
	bool on = true;
	buf_init(&line, CHAT_INPUT_MAX);
	signal(SIGINT, SIG_IGN);
	printf("%s at %s; /help lists commands\n", c->model, c->o.url);
	while (on && chat_input_read(">>> ", &line)) {
		const char *text = buf_cstr(&line);
		if (text == NULL || line.len == 0)
			continue;
		if (text[0] == '/') {
			on = command(c, (char *)buf_data(&line), &system);
			continue;
		}
		if (!utf8_valid(text, line.len)) {
			complain("the message is not UTF-8");
			continue;
		}
		add_message(c, "user", text);
		answer(c);
	}
	buf_dispose(&line);
	sl_free(system);
	return 0;
}

/* The prompt from the command line, or all of standard input. */
static int answer_one(struct chat *c, const char *prompt)
{
	struct sl_buf text;
	struct sl_err why;
	int rc = 0;
	buf_init(&text, CHAT_INPUT_MAX);
	if (prompt == NULL || strcmp(prompt, "-") == 0) {
		rc = file_read_fd(STDIN_FILENO, CHAT_INPUT_MAX, &text, &why);
		prompt = rc == 0 ? buf_cstr(&text) : NULL;
		if (rc != 0)
			complain(why.text);
	}
	if (rc == 0 && (prompt == NULL || prompt[0] == '\0' || !utf8_valid(prompt, strlen(prompt)))) {
		complain("the prompt is empty, or not UTF-8");
		rc = SL_EINVAL;
	}
	if (rc == 0) {
		add_message(c, "user", prompt);
		rc = answer(c);
	}
	buf_dispose(&text);
	return rc != 0;
}

int cmd_chat(int argc, char **argv)
{
	struct chat c = {.temperature = -1};
	struct sl_err err = {0};
	const char *prompt = NULL;
	const struct client_option own[] = {
	    {"--model", CLIENT_TEXT, &c.model_option, 0, 0},
	    {"--system", CLIENT_TEXT, &c.system_option, 0, 0},
	    {"--tools", CLIENT_TEXT, &c.tools_path, 0, 0},
	    {"--temperature", CLIENT_REAL, &c.temperature, 0, 2},
	    {"--seed", CLIENT_UINT, &c.seed, 1, UINT32_MAX},
	    {"--max-tokens", CLIENT_UINT, &c.max_tokens, 1, UINT32_MAX},
	    {"--verbose", CLIENT_FLAG, &c.verbose, 0, 0},
	};
	int rc = client_options_read(&c.o, own, sizeof own / sizeof *own, argc, argv, usage, &prompt);
	if (rc != 0)
		return rc;
	if (http_client_create(&c.o.server, &c.client, &err) != 0)
		return complain(err.text);
	c.messages = json_array();
	c.styled = isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL;
	rc = load_tools(&c);
	if (rc == 0)
		rc = choose_model(&c);
	if (rc == 0) {
		chat_input_init();
		rc = prompt == NULL && isatty(STDIN_FILENO) ? converse(&c) : answer_one(&c, prompt);
	}
	json_decref(c.messages);
	json_decref(c.tools);
	http_client_destroy(c.client);
	return rc;
}
