/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/gw_config.h"

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
