/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATEWAY_UNSERVED_H
#define GATEWAY_UNSERVED_H

#include <stdbool.h>

/* A sentence: what to use instead of a path that no route serves by this method. NULL: it is none of a known API. */
const char *unserved_instead(const char *method, const char *path);

#endif
