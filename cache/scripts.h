/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that are more than one command of Redis, as Lua. All of them read and write only keys
 * with their KEYS' tag. mem_ops.c does the same in memory.
 */
#ifndef CACHE_SCRIPTS_H
#define CACHE_SCRIPTS_H

enum cache_script { SCRIPT_PUT, SCRIPT_DELETE, SCRIPT_APPEND, SCRIPT_READ, SCRIPT_LIST, N_SCRIPTS };

extern const char *const cache_scripts[N_SCRIPTS];

#endif
