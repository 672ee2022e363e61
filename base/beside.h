/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BESIDE_H
#define BASE_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of `name` in the folder of the running executable. False if it does not fit or the folder is unknown;
 * whether the file exists is not checked. */
bool beside_executable(const char *name, char *out, size_t size);

#endif
