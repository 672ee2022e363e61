/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Gemma 3 writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_GEMMA
#define PARTS_THINK PARTS_REASONING_THINK
#include "tests/fuzz/parts_target.h"
