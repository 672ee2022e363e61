/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs process.c with the real application, and sets the certificate's path at the start and at each reload.
 */
#include "gateway/server/gateway.h"

#include <stdio.h>

#include "base/log.h"
#include "gateway/api/app.h"
#include "gateway/server/dev_cert.h"
#include "gateway/server/process.h"
#include "gateway/auth/snapshot.h"
#include "gateway/observe/sinks.h"
#include "gateway/transport/tls_context.h"
#include "gateway/transport/transport.h"

enum { LAST_WRITES_MS = 2000 }; /* of records and traces, at the end */

/* Uses the development pair if the configuration names no certificate. */
static int choose_certificate(struct gw_snapshot *s, struct sl_err *err)
{
	struct gw_config *cfg = &s->cfg;
	bool has_cert = cfg->cert_file != NULL && cfg->cert_file[0] != '\0';
	bool has_key = cfg->key_file != NULL && cfg->key_file[0] != '\0';
	if (has_cert != has_key)
		return sl_errf(err, SL_EINVAL, "a certificate needs a key, and a key needs a certificate");
	if (!gateway_wants_dev_cert(cfg))
		return 0;
	int rc = gw_dev_cert_ensure(cfg->state_dir, err);
	if (rc != 0)
		return rc;
	snprintf(s->cert, sizeof s->cert, "%s/tls/cert.pem", cfg->state_dir);
	snprintf(s->key, sizeof s->key, "%s/tls/key.pem", cfg->state_dir);
	cfg->cert_file = s->cert;
	cfg->key_file = s->key;
	return 0;
}

int gateway_check(const struct gw_config *cfg, struct sl_err *err)
{
	struct tls_context *tls = NULL;
	int rc = transport_check_ports(cfg, err);
	if (rc == 0 && gateway_serves_tls(cfg) && !gateway_wants_dev_cert(cfg))
		rc = tls_context_create(cfg, &tls, err);
	tls_context_unref(tls);
	return rc;
}

/* The caller's load, then the certificate's path. */
static int load(void *ctx, const struct gw_snapshot *now, struct gw_snapshot **out, struct sl_err *err)
{
	const struct gw_reload *inner = ctx;
	int rc = inner->load(inner->ctx, now, out, err);
	if (rc != 0)
		return rc;
	rc = choose_certificate(*out, err);
	if (rc != 0)
		gw_snapshot_unref(*out);
	return rc;
}

int gateway_run(struct gw_snapshot *first, const struct gw_reload *reload)
{
	static const struct gw_app_ops ops = {app_create, app_destroy, app_ready,  app_busy,
					      &app_http,  app_prepare, app_reload, app_expire};
	const struct gw_reload with_certificate = {load, (void *)(uintptr_t)reload};
	struct sl_err err = {0};
	if (choose_certificate(first, &err) != 0) {
		log_error("%s", err.text);
		gw_snapshot_unref(first);
		return GATEWAY_EXIT_CONFIG;
	}
	int status = gateway_serve_snapshot(first, &ops, reload != NULL ? &with_certificate : NULL);
	sinks_wait(LAST_WRITES_MS);
	return status;
}
