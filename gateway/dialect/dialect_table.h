/* SPDX-License-Identifier: Apache-2.0
 *
 * Shorthand for the rows of messages_table.c and ollama_table.c; request_table.h defines their meaning.
 */
#ifndef GATEWAY_DIALECT_TABLE_H
#define GATEWAY_DIALECT_TABLE_H

#include "gateway/request/request_harmless.h"
#include "gateway/request/request_table.h"

#define HONOURED(endpoints_, name_, types_, ...)                                                             \
	{                                                                                                    \
		.name = name_, .endpoints = endpoints_, .types = types_, .does = FIELD_HONOURED, __VA_ARGS__ \
	}
#define IGNORED(endpoints_, name_, types_)                                                     \
	{                                                                                      \
		.name = name_, .endpoints = endpoints_, .types = types_, .does = FIELD_IGNORED \
	}
#define REFUSED(endpoints_, name_, types_, harmless_, instead_)                                                        \
	{                                                                                                              \
		.name = name_, .endpoints = endpoints_, .types = types_, .does = FIELD_REFUSED, .harmless = harmless_, \
		.instead = instead_                                                                                    \
	}
#define INTO(value_) .value = VALUE_##value_
#define RANGE(lo_, hi_) .lo = lo_, .hi = hi_
#define ABOVE(lo_, hi_) .lo = lo_, .hi = hi_, .above = true

#endif
