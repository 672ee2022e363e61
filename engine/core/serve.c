/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine process: the server and the engine it serves. The socket is bound before the engine starts its threads,
 * because the umask belongs to the process, and accepts while models load, so a gateway sees each become ready.
 */
#include "base/beat.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/core/server.h"

static int be_submit(void *be, uint64_t id, const struct proto_submit *req) { return engine_submit(be, id, req); }

static int be_count(void *be, uint64_t id, const struct proto_count *req) { return engine_count(be, id, req); }

static void be_credit(void *be, uint64_t id, uint32_t n_tokens) { engine_credit(be, id, n_tokens); }

static void be_cancel(void *be, uint64_t id) { engine_cancel(be, id); }

static void be_hand(void *be, uint64_t id, const struct proto_hand *m) { engine_hand(be, id, m); }

static void be_keep(void *be, const struct proto_keep *k) { engine_keep(be, k); }

static void be_erase(void *be, const struct proto_erase *m) { engine_erase(be, m); }
static int be_adapter(void *be, uint64_t id, const struct proto_adapter *ask) { return engine_adapter(be, id, ask); }

static void be_stats(void *be, struct proto_stats *out) { engine_stats(be, out); }

static int be_prefixes(void *be, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n)
{
	return engine_prefixes(be, cursor, anew, changes, n);
}

static bool be_load(void *be, int index, struct proto_load *out) { return engine_load(be, index, out); }

static int be_n_models(void *be) { return engine_n_models(be); }

static void be_model_info(void *be, int index, struct proto_model *out) { engine_model_info(be, index, out); }

const struct eng_backend engine_backend = {
    .submit = be_submit,
    .count = be_count,
    .credit = be_credit,
    .cancel = be_cancel,
    .hand = be_hand,
    .keep = be_keep,
    .erase = be_erase,
    .adapter = be_adapter,
    .stats = be_stats,
    .prefixes = be_prefixes,
    .load = be_load,
    .n_models = be_n_models,
    .model_info = be_model_info,
};

/* A failed device is lost to this process; a new process may find it again. */
static void on_fault(void *server)
{
	log_error("a device failed: the engine exits to be restarted");
	server_fail(server);
}

static int create(const void *cfg, struct server *s, void **be, struct sl_err *err)
{
	struct eng_config with_fault = *(const struct eng_config *)cfg;
	struct engine *e;
	with_fault.on_fault = on_fault;
	with_fault.on_fault_ctx = s;
	int rc = engine_create(&with_fault, hub_post, server_hub(s), &e, err);
	if (rc != 0)
		return rc;
	hub_attach(server_hub(s), &engine_backend, e);
	*be = e;
	return 0;
}

static void destroy(void *be) { engine_destroy(be); }

int engine_serve(const struct eng_config *cfg, const struct eng_server_config *srv)
{
	static const struct server_backend backend = {"engine", create, destroy};
	return server_serve(srv, &backend, cfg);
}
