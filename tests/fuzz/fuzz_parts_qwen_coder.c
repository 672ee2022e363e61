/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Qwen3-Coder writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_QWEN_CODER
#define PARTS_THINK PARTS_REASONING_THINK
#include "tests/fuzz/parts_target.h"
