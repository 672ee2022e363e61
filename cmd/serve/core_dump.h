/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CORE_DUMP_H
#define CMD_CORE_DUMP_H

#include <stdbool.h>

/* Unless allowed, a crash of this process or its children leaves no copy of its memory, which holds prompts, answers
 * and keys. */
void core_dump_settle(bool allowed);

#endif
