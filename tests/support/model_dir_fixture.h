/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixture of tests that work in a folder of their own: cmocka_unit_test_setup_teardown(test, setup, teardown).
 */
#ifndef TESTS_MODEL_DIR_FIXTURE_H
#define TESTS_MODEL_DIR_FIXTURE_H

#include "base/fault.h"
#include "tests/support/model_dir.h"

static char dir[128];

static int setup(void **arg)
{
	(void)arg;
	md_make(dir);
	return 0;
}

static int teardown(void **arg)
{
	(void)arg;
	fault_disarm_all();
	md_remove(dir);
	return 0;
}

#endif
