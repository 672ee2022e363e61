/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvidia-ml.so for tests: one device at 0000:1b:00.0, and what a test wants of it.
 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { FINE, NO_START, SILENT, HANGS, BARE, LIES, COOL, HOT };

static atomic_int mode, n_begun, n_hanging, n_answers;

void fake_nvml_mode(int how) { mode = how; }

int fake_nvml_begun(void) { return n_begun; }

int fake_nvml_hanging(void) { return n_hanging; }

int nvmlInit_v2(void)
{
	n_begun += mode != NO_START;
	return mode == NO_START ? 9 : 0;
}

int nvmlShutdown(void)
{
	n_begun--;
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
	static int device;
	*out = &device;
	return strcmp(pci, "0000:1b:00.0") == 0 ? 0 : 6;
}

static int answer(void)
{
	n_hanging++;
	for (int i = 0; i < 2000 && mode == HANGS; i++)
		usleep(10000);
	n_hanging--;
	if (mode == LIES)
		return n_answers++ % 7 == 0 ? 15 : 0;
	if (mode == HANGS)
		mode = FINE; /* after twenty seconds */
	return mode == SILENT ? 15 : 0;
}

int nvmlDeviceGetUtilizationRates(void *d, unsigned *out)
{
	(void)d;
	out[0] = mode == LIES ? 4000000000u : 87;
	out[1] = 41;
	return answer();
}

int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *out)
{
	(void)d;
	out[0] = 1000000;
	out[1] = 400000;
	out[2] = mode == LIES ? ~0ull : 600000;
	return answer();
}

int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out)
{
	(void)d;
	*out = mode == LIES ? ~0u : 64;
	return sensor == 0 ? answer() : 2;
}

int nvmlDeviceGetPowerUsage(void *d, unsigned *out)
{
	(void)d;
	*out = mode == LIES ? ~0u : 512345;
	return answer();
}

int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out)
{
	(void)d;
	*out = 700000;
	return answer();
}

int nvmlDeviceGetClockInfo(void *d, int which, unsigned *out)
{
	(void)d;
	*out = mode == LIES ? ~0u : which == 1 ? 1755 : which == 2 ? 3201 : 1;
	return answer();
}

/* Idle, software power, hardware thermal, and an unknown bit; lies change each time. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out)
{
	static atomic_int n_lies;
	(void)d;
	*out = 0x1 | 0x4 | 0x40 | 0x10000;
	if (mode == COOL || (mode == LIES && n_lies++ % 2 == 0))
		*out = 0x1;
	return mode == BARE ? 3 : answer();
}

int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *out)
{
	(void)d;
	*out = mode == LIES ? ~0ull : type == 1 && counter == 0 ? 3 : 77;
	return mode == BARE ? 3 : answer();
}

int nvmlDeviceGetNvLinkState(void *d, unsigned link, int *active)
{
	(void)d;
	*active = link != 2;
	return mode == BARE || link >= 6 ? 2 : answer();
}

/* By link and counter: 0 replays, 2 and 3 wrong checksums. */
int nvmlDeviceGetNvLinkErrorCounter(void *d, unsigned link, int counter, unsigned long long *out)
{
	(void)d;
	*out = mode == LIES ? ~0ull : counter == 0 ? 10 * link : counter == 2 ? 100 : counter == 3 ? 1000 : 7;
	return mode == BARE || link >= 6 ? 2 : answer();
}

int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *out)
{
	(void)d;
	*out = 4;
	return mode == BARE ? 3 : answer();
}

int nvmlDeviceGetPcieThroughput(void *d, int direction, unsigned *out)
{
	(void)d;
	*out = mode == LIES ? ~0u : direction == 0 ? 2000 : 3000;
	return mode == BARE ? 3 : answer();
}

struct event {
	void *device;
	unsigned long long type, data;
	unsigned gpu, compute;
};

static atomic_int n_events, n_sets, xid;

/* The next n waits have an Xid. */
void fake_nvml_xids(int n, int which)
{
	xid = which;
	n_events = n;
}

int fake_nvml_sets(void) { return n_sets; }

int nvmlEventSetCreate(void **out)
{
	static int set;
	*out = &set;
	n_sets += mode != BARE;
	return mode == BARE ? 3 : 0;
}

int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set)
{
	(void)d;
	(void)set;
	return types == 8 ? 0 : 2;
}

int nvmlEventSetWait_v2(void *set, struct event *out, unsigned ms)
{
	(void)set;
	if (ms != 0)
		return 2; /* it would hold up the other figures */
	*out = (struct event){.type = 8, .data = mode == LIES ? ~0ull : (unsigned)xid};
	if (mode == LIES)
		return 0; /* without end */
	if (n_events == 0)
		return 10;
	n_events--;
	return 0;
}

int nvmlEventSetFree(void *set)
{
	(void)set;
	n_sets--;
	return 0;
}
