/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that take more than one Redis command, as Lua. They access only keys with the tag of their KEYS. mem_ops.c
 * does the same in memory.
 */
#ifndef CACHE_SCRIPTS_H
#define CACHE_SCRIPTS_H

enum cache_script { SCRIPT_PUT, SCRIPT_DELETE, SCRIPT_APPEND, SCRIPT_READ, SCRIPT_LIST, N_SCRIPTS };

extern const char *const cache_scripts[N_SCRIPTS];

#endif
