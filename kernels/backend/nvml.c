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
};

struct kn_nvml {
	void *so;
	struct calls call;
	nvml_device device;
	bool begun;
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
	return get(so, "nvmlInit_v2", &c->init) && get(so, "nvmlShutdown", &c->shutdown) &&
	       get(so, "nvmlDeviceGetHandleByPciBusId_v2", &c->by_pci);
}

void kn_nvml_close(struct kn_nvml *n)
{
	if (n->begun)
		n->call.shutdown();
	if (n->so != NULL)
		dlclose(n->so);
	sl_free(n);
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

static uint32_t links_of(const struct kn_nvml *n)
{
	uint32_t up = 0;
	for (unsigned i = 0; n->call.nvlink != NULL && i < MAX_LINKS; i++) {
		int active = 0;
		if (n->call.nvlink(n->device, i, &active) != NVML_SUCCESS)
			break; /* it has no more */
		up += active == 1;
	}
	return up;
}

/* Beyond what any device has. */
static const uint64_t most_memory = (uint64_t)1 << 50, most_errors = (uint64_t)1 << 48;
enum { MOST_CELSIUS = 150, MOST_MILLIWATTS = 10 * 1000 * 1000, MOST_MHZ = 20000 };

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
	if (s->ecc_uncorrected > most_errors) {
		s->ecc_uncorrected = 0;
		s->absurd = "count of memory errors";
	}
}

int kn_nvml_read(struct kn_nvml *n, struct kn_device_state *out)
{
	const struct calls *c = &n->call;
	struct nvml_utilization busy;
	struct nvml_memory memory;
	unsigned celsius;
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
		out->ecc_uncorrected = errors;
	out->milliwatts = power_of(n, c->power);
	out->limit_milliwatts = power_of(n, c->power_limit);
	out->sm_mhz = clock_of(n, CLOCK_SM);
	out->memory_mhz = clock_of(n, CLOCK_MEMORY);
	out->nvlinks = links_of(n);
	check(out);
	return answered > 0 ? 0 : SL_EIO;
}
