/* SPDX-License-Identifier: Apache-2.0
 *
 * What changes the service. Reload and drain are the supervisor's: the gateway asks it (base/beat.h). Without one, it
 * sends itself the signal that would have come.
 */
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/flight.h"
#include "base/log.h"
#include "gateway/admin/admin.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/observe/history.h"
#include "gateway/request/json_mem.h"

enum { BODY_MOST = 4096 };

/* To the main thread, which reads its signals by a descriptor. */
static bool signal_self(int number) { return syscall(SYS_tgkill, getpid(), getpid(), number) == 0; }

static void ask(struct exchange *x, const char *action, enum beat_ask what, int number)
{
	if (!admin_gate(x, ADMIN_ACT))
		return;
	admin_audit(x, "%s", action);
	flight_note(FLIGHT_CONTROL, (uint64_t)what, 0, 0, 0, 0);
	if (beat_ask(what) || signal_self(number))
		exchange_reply(x, 202, "application/json", NULL, 0, "{\"accepted\":true}", 17);
	else
		exchange_refuse(x, 503, "overloaded", NULL, "The supervisor could not be asked.");
}

void admin_reload(struct exchange *x) { ask(x, "reload", BEAT_ASK_RELOAD, SIGHUP); }
void admin_drain(struct exchange *x) { ask(x, "drain", BEAT_ASK_END, SIGTERM); }
void admin_flight(struct exchange *x) { ask(x, "flight", BEAT_ASK_FLIGHT, SIGUSR1); }

void admin_history(struct exchange *x)
{
	struct sl_buf out;
	if (!admin_gate(x, ADMIN_LOOK))
		return;
	static const struct http_field no_store = {"cache-control", "no-store"};
	buf_init(&out, HISTORY_BYTES);
	if (history_print(&out) == 0)
		exchange_reply(x, 200, "application/json", &no_store, 1, buf_data(&out), out.len);
	else
		exchange_reply_no_memory(x);
	buf_dispose(&out);
}

/* ---- levels of the log ---- */

static void reply_levels(struct exchange *x)
{
	struct log_levels now;
	json_t *levels = json_object();
	log_get_levels(&now);
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		json_object_set_new(levels, log_subsystem_names[i], json_string(log_level_names[now.least[i]]));
	exchange_reply_json_no_store(x, json_pack("{s:s, s:o}", "object", "log_levels", "levels", levels));
}

void admin_log(struct exchange *x)
{
	if (admin_gate(x, ADMIN_LOOK))
		reply_levels(x);
}

/* The index of s in names, which end with NULL; -1: it is none of them. */
static int index_of(const char *const *names, const char *s)
{
	for (int i = 0; s != NULL && names[i] != NULL; i++)
		if (strcmp(names[i], s) == 0)
			return i;
	return -1;
}

/* False with x answered. */
static bool take_levels(struct exchange *x, json_t *levels, struct log_levels *out)
{
	const char *name;
	json_t *v;
	if (!json_is_object(levels) || json_object_size(levels) == 0)
		return exchange_refuse(x, 400, "invalid_value", "levels",
				       "levels is an object of subsystems and their levels.");
	json_object_foreach(levels, name, v)
	{
		const int of = index_of(log_subsystem_names, name),
			  level = index_of(log_level_names, json_string_value(v));
		if (of < 0)
			return exchange_refuse(x, 400, "invalid_value", "levels",
					       "levels: %.64s is no subsystem of the log.", name);
		if (level < 0)
			return exchange_refuse(x, 400, "invalid_value", "levels",
					       "levels.%s must be debug, info, warn or error.",
					       log_subsystem_names[of]);
		out->least[of] = (uint8_t)level;
	}
	return true;
}

static void audit_levels(const struct exchange *x, const struct log_levels *before, const struct log_levels *now)
{
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		if (before->least[i] != now->least[i])
			admin_audit(x, "log level of %s from %s to %s", log_subsystem_names[i],
				    log_level_names[before->least[i]], log_level_names[now->least[i]]);
}

void admin_log_set(struct exchange *x)
{
	struct log_levels before, now;
	if (!admin_gate(x, ADMIN_ACT))
		return;
	json_error_t where;
	json_t *body = x->body.len <= BODY_MOST
			   ? json_mem_load(exchange_body(x), x->body.len, JSON_REJECT_DUPLICATES, &where)
			   : NULL;
	log_get_levels(&before);
	now = before;
	if (!json_is_object(body)) {
		exchange_refuse(x, 400, NULL, NULL, "The body must be a JSON object of at most %d bytes.", BODY_MOST);
	} else if (take_levels(x, json_object_get(body, "levels"), &now)) {
		audit_levels(x, &before, &now);
		log_set_levels(&now);
		engine_link_levels(x->app->link);
		reply_levels(x);
	}
	json_decref(body);
}
