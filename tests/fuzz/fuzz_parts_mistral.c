/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Mistral's models write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_MISTRAL
#define PARTS_THINK PARTS_REASONING_MISTRAL
#include "tests/fuzz/parts_target.h"
