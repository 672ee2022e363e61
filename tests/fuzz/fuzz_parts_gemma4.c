/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Gemma 4 and FunctionGemma write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_GEMMA4
#define PARTS_THINK PARTS_REASONING_GEMMA4
#include "tests/fuzz/parts_target.h"
