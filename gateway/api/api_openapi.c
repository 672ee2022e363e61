/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /openapi.json: gateway/openapi.json, embedded in the executable.
 */
#include "base/err.h"
#include "gateway/exchange/exchange.h"
#include "gateway/api/handlers.h"
#include "gateway/api/www.h"

void api_openapi(struct exchange *x)
{
	const struct www_file *f = www_find("openapi.json");
	BUG_IF(f == NULL, "openapi.json is not embedded");
	exchange_reply(x, 200, f->content_type, NULL, 0, f->bytes, f->n_bytes);
}
