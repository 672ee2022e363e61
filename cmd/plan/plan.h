/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PLAN_H
#define CMD_PLAN_H

/* `sluice plan`: the exit status. */
int cmd_plan(int argc, char **argv);

#endif
