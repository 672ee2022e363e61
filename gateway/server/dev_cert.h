/* SPDX-License-Identifier: Apache-2.0
 *
 * A certificate for development: made when there is none, kept in the state folder.
 */
#ifndef GATEWAY_DEV_CERT_H
#define GATEWAY_DEV_CERT_H

#include "base/err.h"

/* Makes state_dir/tls/cert.pem and key.pem (0600; EC P-256, self-signed, localhost, 127.0.0.1, ::1)
 * unless they are there and valid for another day. */
int gw_dev_cert_ensure(const char *state_dir, struct sl_err *err);

#endif
