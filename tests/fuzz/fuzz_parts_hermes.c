/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Qwen and Hermes write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_HERMES
#define PARTS_THINK PARTS_REASONING_THINK
#include "tests/fuzz/parts_target.h"
