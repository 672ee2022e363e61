/* SPDX-License-Identifier: Apache-2.0
 *
 * A profiler's ranges (NVTX), declared for the stand-in.
 */
#ifndef TESTS_STANDIN_NVTX_H
#define TESTS_STANDIN_NVTX_H

extern "C" int nvtxRangePushA(const char *name);
extern "C" int nvtxRangePop(void);

#endif
