/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as DeepSeek's models write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_DEEPSEEK
#define PARTS_THINK PARTS_REASONING_THINK
#include "tests/fuzz/parts_target.h"
