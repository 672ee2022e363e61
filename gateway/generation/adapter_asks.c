/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/adapter_asks.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "gateway/generation/engine_conn.h"
#include "gateway/generation/engine_link.h"

_Static_assert((int)ADAPTER_ASK_ENGINES >= (int)ENGINE_LINK_MAX, "each engine has a part");

/* Above the identifiers of all connections. */
#define FIRST_ID (UINT64_C(0xff) << 56)

struct adapter_ask {
	struct list in_all;
	uint64_t id;
	void (*done)(void *ctx, const struct proto_counted *m);
	void *ctx;
	int n_parts, n_left;
	bool good, lost; /* an engine has done it; the only one has gone */
	uint8_t error;   /* enum proto_error */
	char message[PROTO_MAX_MESSAGE + 1];
	struct adapter_part {
		struct adapter_ask *ask;
		struct adapter_engine engine;
		uint64_t id; /* on its connection; 0: it has answered */
	} parts[ADAPTER_ASK_ENGINES];
};

void adapter_asks_init(struct adapter_asks *a)
{
	list_init(&a->all);
	a->next_id = FIRST_ID;
}

/* The engine has nothing to do with it. */
static bool is_others(uint8_t error) { return error == PROTO_ERR_NO_FOLDER || error == PROTO_ERR_NO_MODEL; }

static void take_error(struct adapter_ask *k, const char *engine, uint8_t error, struct proto_str why)
{
	if (k->error != 0 && (!is_others(k->error) || is_others(error)))
		return;
	k->error = error;
	if (engine[0] != '\0')
		snprintf(k->message, sizeof k->message, "Engine %s: %.*s", engine, (int)why.n, why.at);
	else
		snprintf(k->message, sizeof k->message, "%.*s", (int)why.n, why.at);
}

static void finish(struct adapter_ask *k)
{
	bool good = k->error == 0 || (k->good && is_others(k->error));
	const struct proto_str none = {"", 0};
	const struct proto_counted m = {.error = good ? 0 : k->error,
					.message = {k->message, good ? 0 : strlen(k->message)},
					.ids = none,
					.text = none};
	list_remove(&k->in_all);
	k->done(k->ctx, k->lost ? NULL : &m);
	sl_free(k);
}

static void on_answer(void *ctx, const struct proto_counted *m)
{
	struct adapter_part *p = ctx;
	struct adapter_ask *k = p->ask;
	static const char gone[] = "It stopped unexpectedly. It is being restarted.";
	p->id = 0;
	if (m == NULL && p->engine.name[0] == '\0')
		k->lost = true;
	else if (m == NULL)
		take_error(k, p->engine.name, PROTO_ERR_NOT_READY, (struct proto_str){gone, sizeof gone - 1});
	else if (m->error != 0)
		take_error(k, p->engine.name, m->error, m->message);
	else
		k->good = true;
	if (--k->n_left == 0)
		finish(k);
}

static void drop(struct adapter_ask *k)
{
	for (int i = 0; i < k->n_parts; i++)
		if (k->parts[i].id != 0)
			engine_conn_uncount(k->parts[i].engine.conn, k->parts[i].id);
	list_remove(&k->in_all);
	sl_free(k);
}

int adapter_asks_send(struct adapter_asks *a, const struct proto_adapter *req, const struct adapter_engine *engines,
		      int n, void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id)
{
	int rc = n > 0 ? 0 : SL_ECLOSED, first_error = 0;
	struct adapter_ask *k = rc == 0 ? sl_zalloc(sizeof *k) : NULL;
	if (k == NULL)
		return rc != 0 ? rc : SL_ENOMEM;
	k->done = done;
	k->ctx = ctx;
	for (int i = 0; i < n; i++) {
		struct adapter_part *p = &k->parts[k->n_parts];
		*p = (struct adapter_part){.ask = k, .engine = engines[i]};
		rc = engine_conn_adapter(p->engine.conn, req, on_answer, p, &p->id);
		if (rc == 0) {
			k->n_parts++;
			continue;
		}
		static const char busy[] = "Too much waits for it.";
		first_error = first_error != 0 ? first_error : rc;
		take_error(k, p->engine.name, PROTO_ERR_OVERLOADED, (struct proto_str){busy, sizeof busy - 1});
	}
	if (k->n_parts == 0) {
		sl_free(k);
		return first_error;
	}
	k->n_left = k->n_parts;
	k->id = *id = a->next_id++;
	list_push_back(&a->all, &k->in_all);
	return 0;
}

void adapter_asks_forget(struct adapter_asks *a, uint64_t id)
{
	list_each_safe(it, tmp, &a->all) {
		struct adapter_ask *k = list_entry(it, struct adapter_ask, in_all);
		if (k->id == id)
			drop(k);
	}
}
