/* SPDX-License-Identifier: Apache-2.0
 *
 * Static probes (USDT) for bpftrace, perf, SystemTap and gdb: provider sluice, a probe for each kind of event of the
 * flight recorder with its values. A probe that nobody traces is one instruction that does nothing. They are built
 * where <sys/sdt.h> is (Debian: systemtap-sdt-dev), unless SLUICE_NO_PROBES is defined; nothing is linked.
 */
#ifndef BASE_PROBES_H
#define BASE_PROBES_H

#if !defined SLUICE_NO_PROBES && defined __has_include
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(sluice, name, a, b, c, d, e)
#endif
#endif

#ifndef PROBE5
#define PROBE5(name, a, b, c, d, e) ((void)(a), (void)(b), (void)(c), (void)(d), (void)(e))
#endif

#endif
