/* SPDX-License-Identifier: Apache-2.0
 *
 * The development certificate. It is created if there is none and kept in the state folder.
 */
#ifndef GATEWAY_DEV_CERT_H
#define GATEWAY_DEV_CERT_H

#include "base/err.h"

/* Creates state_dir/tls/cert.pem and key.pem (0600; EC P-256, self-signed, for localhost, 127.0.0.1 and ::1), unless
 * they exist and stay valid for a day. */
int gw_dev_cert_ensure(const char *state_dir, struct sl_err *err);

#endif
