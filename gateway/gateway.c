/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway process: the real application put into process.c, and the certificate's place.
 */
#include "gateway/gateway.h"

#include <stdio.h>

#include "base/log.h"
#include "gateway/app.h"
#include "gateway/process.h"
#include "gateway/transport.h"

enum { PATH_BYTES = 4096 };

/* Without certificate files in the configuration the development pair is used. */
static int choose_certificate(struct gw_config *cfg, char *cert, char *key, struct sl_err *err)
{
	bool has_cert = cfg->cert_file != NULL && cfg->cert_file[0] != '\0';
	bool has_key = cfg->key_file != NULL && cfg->key_file[0] != '\0';
	if (has_cert != has_key)
		return sl_errf(err, SL_EINVAL,
			       "a certificate and its key are given together or not at all");
	if (!gateway_wants_dev_cert(cfg))
		return 0;
	int rc = gw_dev_cert_ensure(cfg->state_dir, err);
	if (rc != 0)
		return rc;
	snprintf(cert, PATH_BYTES, "%s/tls/cert.pem", cfg->state_dir);
	snprintf(key, PATH_BYTES, "%s/tls/key.pem", cfg->state_dir);
	cfg->cert_file = cert;
	cfg->key_file = key;
	return 0;
}

bool gateway_serves_tls(const struct gw_config *cfg)
{
	const struct gw_listener_config *more = cfg->listeners.items;
	for (size_t i = 0; i < cfg->listeners.n; i++)
		if (more[i].tls)
			return true;
	return !cfg->https.off;
}

bool gateway_wants_dev_cert(const struct gw_config *cfg)
{
	return gateway_serves_tls(cfg) && cfg->certificates.n == 0 &&
	       (cfg->cert_file == NULL || cfg->cert_file[0] == '\0');
}

int gateway_check(const struct gw_config *cfg, struct sl_err *err)
{
	return transport_check_ports(cfg, err);
}

int gateway_run(const struct gw_config *cfg)
{
	static const struct gw_app_ops ops = {app_create, app_destroy, app_ready, app_busy, &app_http};
	struct gw_config own = *cfg;
	char cert[PATH_BYTES], key[PATH_BYTES];
	struct sl_err err = {0};
	if (choose_certificate(&own, cert, key, &err) != 0) {
		log_error("%s", err.text);
		return GATEWAY_EXIT_CONFIG;
	}
	return gateway_serve(&own, &ops);
}
