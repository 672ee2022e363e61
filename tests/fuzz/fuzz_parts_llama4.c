/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Llama 4 writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_LLAMA4
#define PARTS_THINK PARTS_REASONING_THINK
#include "tests/fuzz/parts_target.h"
