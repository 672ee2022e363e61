/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CORE_DUMP_H
#define CMD_CORE_DUMP_H

#include <stdbool.h>

/* For this process and those that it starts. Unless they are allowed a crash leaves nothing of the memory
 * anywhere: prompts, answers and keys are in it. */
void core_dump_settle(bool allowed);

#endif
