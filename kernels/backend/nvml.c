/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML by dlopen (nvml.h). Its types and numbers are part of a stable binary interface, so the ones used are declared
 * here. A function that an older library lacks, or a device does not support, leaves its figure 0.
 */
#include "kernels/backend/nvml.h"

#include <dlfcn.h>
#include <string.h>

#include "base/alloc.h"

enum { NVML_SUCCESS = 0, TEMPERATURE_GPU = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { UNCORRECTED = 1, VOLATILE_ECC = 0, MAX_LINKS = 18 };
/* nvmlNvLinkErrorCounter_t, nvmlPcieUtilCounter_t, nvmlEventTypeXidCriticalError. */
enum { LINK_REPLAY = 0, LINK_CRC_FLIT = 2, LINK_CRC_DATA = 3, PCIE_SENT = 0, PCIE_RECEIVED = 1, EVENT_XID = 8 };
enum { MOST_EVENTS = 64 /* taken at once */ };

/* nvmlClocksThrottleReason… */
enum {
	REASON_IDLE = 0x1,
	REASON_SOFTWARE_POWER = 0x4,
	REASON_HARDWARE_SLOWDOWN = 0x8,
	REASON_SOFTWARE_THERMAL = 0x20,
	REASON_HARDWARE_THERMAL = 0x40,
	REASON_HARDWARE_POWER = 0x80,
};

struct nvml_utilization {
	unsigned gpu, memory;
};

struct nvml_memory {
	unsigned long long total, free, used;
};

typedef struct nvml_device *nvml_device;
typedef struct nvml_events *nvml_events;

struct nvml_event {
	nvml_device device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

struct calls {
	int (*init)(void);
	int (*shutdown)(void);
	int (*by_pci)(const char *pci, nvml_device *out);
	/* Those may be NULL. */
	int (*utilization)(nvml_device d, struct nvml_utilization *out);
	int (*memory)(nvml_device d, struct nvml_memory *out);
	int (*temperature)(nvml_device d, int sensor, unsigned *out);
	int (*power)(nvml_device d, unsigned *milliwatts);
	int (*power_limit)(nvml_device d, unsigned *milliwatts);
	int (*clock)(nvml_device d, int which, unsigned *mhz);
	int (*reasons)(nvml_device d, unsigned long long *out);
	int (*ecc)(nvml_device d, int type, int counter, unsigned long long *out);
	int (*nvlink)(nvml_device d, unsigned link, int *active);
	int (*link_errors)(nvml_device d, unsigned link, int counter, unsigned long long *out);
	int (*pcie_replays)(nvml_device d, unsigned *out);
	int (*pcie_rate)(nvml_device d, int direction, unsigned *kib_a_second);
	int (*events_create)(nvml_events *out);
	int (*events_register)(nvml_device d, unsigned long long types, nvml_events set);
	int (*events_wait)(nvml_events set, struct nvml_event *out, unsigned ms);
	int (*events_free)(nvml_events set);
};

struct kn_nvml {
	void *so;
	struct calls call;
	nvml_device device;
	bool begun;
	nvml_events events; /* NULL: the driver reports none */
	/* Counts as they were read last: a driver that errs for a moment is no reset. */
	uint64_t ecc, replays, crc, pcie, xids;
	uint32_t last_xid;
};

/* ISO C has no cast from an object to a function. */
static bool get(void *so, const char *name, void *out)
{
	void *symbol = dlsym(so, name);
	memcpy(out, &symbol, sizeof symbol);
	return symbol != NULL;
}

static bool get_all(void *so, struct calls *c)
{
	(void)get(so, "nvmlDeviceGetUtilizationRates", &c->utilization);
	(void)get(so, "nvmlDeviceGetMemoryInfo", &c->memory);
	(void)get(so, "nvmlDeviceGetTemperature", &c->temperature);
	(void)get(so, "nvmlDeviceGetPowerUsage", &c->power);
	(void)get(so, "nvmlDeviceGetEnforcedPowerLimit", &c->power_limit);
	(void)get(so, "nvmlDeviceGetClockInfo", &c->clock);
	if (!get(so, "nvmlDeviceGetCurrentClocksEventReasons", &c->reasons))
		(void)get(so, "nvmlDeviceGetCurrentClocksThrottleReasons", &c->reasons);
	(void)get(so, "nvmlDeviceGetTotalEccErrors", &c->ecc);
	(void)get(so, "nvmlDeviceGetNvLinkState", &c->nvlink);
	(void)get(so, "nvmlDeviceGetNvLinkErrorCounter", &c->link_errors);
	(void)get(so, "nvmlDeviceGetPcieReplayCounter", &c->pcie_replays);
	(void)get(so, "nvmlDeviceGetPcieThroughput", &c->pcie_rate);
	(void)get(so, "nvmlEventSetCreate", &c->events_create);
	(void)get(so, "nvmlDeviceRegisterEvents", &c->events_register);
	(void)get(so, "nvmlEventSetWait_v2", &c->events_wait);
	(void)get(so, "nvmlEventSetFree", &c->events_free);
	return get(so, "nvmlInit_v2", &c->init) && get(so, "nvmlShutdown", &c->shutdown) &&
	       get(so, "nvmlDeviceGetHandleByPciBusId_v2", &c->by_pci);
}

void kn_nvml_close(struct kn_nvml *n)
{
	if (n->events != NULL)
		n->call.events_free(n->events);
	if (n->begun)
		n->call.shutdown();
	if (n->so != NULL)
		dlclose(n->so);
	sl_free(n);
}

/* Without it there are no Xids, which a device in a container or another driver may not report. */
static void watch_xids(struct kn_nvml *n)
{
	const struct calls *c = &n->call;
	if (c->events_create == NULL || c->events_register == NULL || c->events_wait == NULL ||
	    c->events_free == NULL || c->events_create(&n->events) != NVML_SUCCESS) {
		n->events = NULL;
		return;
	}
	if (c->events_register(n->device, EVENT_XID, n->events) == NVML_SUCCESS)
		return;
	c->events_free(n->events);
	n->events = NULL;
}

int kn_nvml_open(const char *library, const char *pci, struct kn_nvml **out, struct sl_err *err)
{
	struct kn_nvml *n = sl_zalloc(sizeof *n);
	int rc = 0, said = 0;
	if (n == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for NVML");
	n->so = dlopen(library != NULL ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (n->so == NULL)
		rc = sl_errf(err, SL_ENOTFOUND, "%s", dlerror());
	else if (!get_all(n->so, &n->call))
		rc = sl_errf(err, SL_ENOTFOUND, "NVML lacks a function: %s", dlerror());
	else if ((said = n->call.init()) != NVML_SUCCESS)
		rc = sl_errf(err, SL_ENOTFOUND, "NVML does not start: code %d", said);
	else
		n->begun = true;
	if (rc == 0 && (said = n->call.by_pci(pci, &n->device)) != NVML_SUCCESS)
		rc = sl_errf(err, SL_ENOTFOUND, "NVML knows no device %s: code %d", pci, said);
	if (rc != 0) {
		kn_nvml_close(n);
		return rc;
	}
	watch_xids(n);
	*out = n;
	return 0;
}

static uint32_t slowed_of(unsigned long long reasons)
{
	uint32_t out = 0;
	if (reasons & (REASON_SOFTWARE_POWER | REASON_HARDWARE_POWER))
		out |= KN_SLOWED_POWER;
	if (reasons & (REASON_SOFTWARE_THERMAL | REASON_HARDWARE_THERMAL))
		out |= KN_SLOWED_THERMAL;
	if (reasons & REASON_HARDWARE_SLOWDOWN)
		out |= KN_SLOWED_HARDWARE;
	const unsigned long long told = REASON_IDLE | REASON_SOFTWARE_POWER | REASON_HARDWARE_POWER |
					REASON_SOFTWARE_THERMAL | REASON_HARDWARE_THERMAL | REASON_HARDWARE_SLOWDOWN;
	if (reasons & ~told)
		out |= KN_SLOWED_OTHER;
	return out;
}

/* The figure, or 0 where the device has none. */
static uint32_t clock_of(const struct kn_nvml *n, int which)
{
	unsigned mhz = 0;
	return n->call.clock != NULL && n->call.clock(n->device, which, &mhz) == NVML_SUCCESS ? mhz : 0;
}

static uint32_t power_of(const struct kn_nvml *n, int (*call)(nvml_device d, unsigned *milliwatts))
{
	unsigned milliwatts = 0;
	return call != NULL && call(n->device, &milliwatts) == NVML_SUCCESS ? milliwatts : 0;
}

/* Beyond what any device has. */
static const uint64_t most_memory = (uint64_t)1 << 50, most_errors = (uint64_t)1 << 48;
enum { MOST_CELSIUS = 150, MOST_MILLIWATTS = 10 * 1000 * 1000, MOST_MHZ = 20000, MOST_XID = 9999 };
static const unsigned most_pcie_kib = 1u << 30; /* 1 TiB a second */

/* count: of a call that succeeded. */
static void take_count(struct kn_device_state *s, uint64_t *kept, uint64_t count, const char *name)
{
	if (count <= most_errors)
		*kept = count;
	else
		s->absurd = name;
}

/* Adds one link's counter. False: the link has none. */
static bool add_link(const struct kn_nvml *n, unsigned link, int counter, uint64_t *sum)
{
	unsigned long long count = 0;
	if (n->call.link_errors(n->device, link, counter, &count) != NVML_SUCCESS)
		return false;
	*sum = count > most_errors || *sum > most_errors ? UINT64_MAX : *sum + count;
	return true;
}

static void read_links(struct kn_nvml *n, unsigned n_links, struct kn_device_state *s)
{
	uint64_t replays = 0, crc = 0;
	bool any = false, all = true;
	for (unsigned i = 0; n->call.link_errors != NULL && i < n_links; i++) {
		bool has = add_link(n, i, LINK_REPLAY, &replays) && add_link(n, i, LINK_CRC_FLIT, &crc) &&
			   add_link(n, i, LINK_CRC_DATA, &crc);
		any = any || has;
		all = all && has;
	}
	/* The sum of some links would look like a reset. */
	if (!any || !all)
		return;
	take_count(s, &n->replays, replays, "count of NVLink replays");
	take_count(s, &n->crc, crc, "count of NVLink checksum errors");
}

static uint64_t pcie_rate(const struct kn_nvml *n, int direction, struct kn_device_state *s)
{
	unsigned kib = 0;
	if (n->call.pcie_rate == NULL || n->call.pcie_rate(n->device, direction, &kib) != NVML_SUCCESS)
		return 0;
	if (kib <= most_pcie_kib)
		return (uint64_t)kib * 1024;
	s->absurd = "PCIe throughput";
	return 0;
}

/* A driver with endless events is asked again later. */
static void read_xids(struct kn_nvml *n, struct kn_device_state *s)
{
	struct nvml_event e = {0};
	for (int i = 0; n->events != NULL && i < MOST_EVENTS; i++) {
		if (n->call.events_wait(n->events, &e, 0) != NVML_SUCCESS)
			return;
		if ((e.type & EVENT_XID) == 0)
			continue;
		if (e.data > MOST_XID) {
			s->absurd = "Xid";
			continue;
		}
		n->xids++;
		n->last_xid = (uint32_t)e.data;
	}
}

static uint32_t links_of(const struct kn_nvml *n, unsigned *seen)
{
	uint32_t up = 0;
	for (unsigned i = 0; n->call.nvlink != NULL && i < MAX_LINKS; i++) {
		int active = 0;
		if (n->call.nvlink(n->device, i, &active) != NVML_SUCCESS)
			break; /* it has no more */
		*seen = i + 1;
		up += active == 1;
	}
	return up;
}

static void bound(struct kn_device_state *s, uint32_t *figure, uint32_t most, const char *name)
{
	if (*figure <= most)
		return;
	*figure = 0;
	s->absurd = name;
}

/* A driver that errs is not believed. */
static void check(struct kn_device_state *s)
{
	bound(s, &s->busy_percent, 100, "utilization");
	bound(s, &s->memory_busy_percent, 100, "memory utilization");
	bound(s, &s->celsius, MOST_CELSIUS, "temperature");
	bound(s, &s->milliwatts, MOST_MILLIWATTS, "power");
	bound(s, &s->limit_milliwatts, MOST_MILLIWATTS, "power limit");
	bound(s, &s->sm_mhz, MOST_MHZ, "clock");
	bound(s, &s->memory_mhz, MOST_MHZ, "memory clock");
	if (s->memory_bytes > most_memory || s->memory_used_bytes > s->memory_bytes) {
		s->memory_bytes = s->memory_used_bytes = 0;
		s->absurd = "memory";
	}
}

static void put_counts(const struct kn_nvml *n, struct kn_device_state *out)
{
	out->ecc_uncorrected = n->ecc;
	out->nvlink_replays = n->replays;
	out->nvlink_crc = n->crc;
	out->pcie_replays = n->pcie;
	out->xids = n->xids;
	out->last_xid = n->last_xid;
}

int kn_nvml_read(struct kn_nvml *n, struct kn_device_state *out)
{
	const struct calls *c = &n->call;
	struct nvml_utilization busy;
	struct nvml_memory memory;
	unsigned celsius, replays, n_links = 0;
	unsigned long long reasons, errors;
	int answered = 0;
	*out = (struct kn_device_state){0};
	if (c->utilization != NULL && c->utilization(n->device, &busy) == NVML_SUCCESS) {
		out->busy_percent = busy.gpu;
		out->memory_busy_percent = busy.memory;
		answered++;
	}
	if (c->memory != NULL && c->memory(n->device, &memory) == NVML_SUCCESS) {
		out->memory_bytes = memory.total;
		out->memory_used_bytes = memory.used;
		answered++;
	}
	if (c->temperature != NULL && c->temperature(n->device, TEMPERATURE_GPU, &celsius) == NVML_SUCCESS) {
		out->celsius = celsius;
		answered++;
	}
	if (c->reasons != NULL && c->reasons(n->device, &reasons) == NVML_SUCCESS)
		out->slowed = slowed_of(reasons);
	if (c->ecc != NULL && c->ecc(n->device, UNCORRECTED, VOLATILE_ECC, &errors) == NVML_SUCCESS)
		take_count(out, &n->ecc, errors, "count of memory errors");
	out->milliwatts = power_of(n, c->power);
	out->limit_milliwatts = power_of(n, c->power_limit);
	out->sm_mhz = clock_of(n, CLOCK_SM);
	out->memory_mhz = clock_of(n, CLOCK_MEMORY);
	out->nvlinks = links_of(n, &n_links);
	read_links(n, n_links, out);
	if (c->pcie_replays != NULL && c->pcie_replays(n->device, &replays) == NVML_SUCCESS)
		take_count(out, &n->pcie, replays, "count of PCIe replays");
	out->pcie_sent = pcie_rate(n, PCIE_SENT, out);
	out->pcie_received = pcie_rate(n, PCIE_RECEIVED, out);
	read_xids(n, out);
	put_counts(n, out);
	check(out);
	return answered > 0 ? 0 : SL_EIO;
}
