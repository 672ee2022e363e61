/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests ask of the stand-in for CUDA's runtime: C functions that libsluice-cuda-standin.so exports, found by
 * dlsym. The emulation's own, which tests call on either, work here too: sluice_emulation_memory, _no_memory, _alive,
 * _fail, _eager, _early_copies, _waits_for_copies, _order.
 */
#ifndef TESTS_STANDIN_API_H
#define TESTS_STANDIN_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls so far. Bytes are those of copies given, whether they have run or not. */
struct standin_counts {
	uint64_t launches;                                    /* cudaLaunchKernel outside captures */
	uint64_t captured;                                    /* launches, copies and fills that became nodes */
	uint64_t captures;                                    /* cudaStreamBeginCapture */
	uint64_t instantiated;                                /* cudaGraphInstantiate that succeeded */
	uint64_t graph_launches, graph_nodes;                 /* and the nodes that they ran */
	uint64_t copies_in, copies_out, copies_within, fills; /* host to device, device to host, on the device */
	uint64_t pageable_in, pageable_out;                   /* of these copies, those from and to pageable memory */
	uint64_t bytes_in, bytes_out;
	uint64_t allocations, frees, host_allocations, host_frees;
	uint64_t waits;   /* cudaStreamSynchronize, cudaEventSynchronize */
	uint64_t queries; /* cudaEventQuery */
	uint64_t records, stream_waits;
	uint64_t products, products_e4m3; /* of the vendor's library; of them, of eight bits */
};
void sluice_standin_counts(struct standin_counts *out);

/* The order of calls: the last ones, oldest first. */
enum standin_event_kind {
	STANDIN_LAUNCH,
	STANDIN_COPY_IN,
	STANDIN_COPY_OUT,
	STANDIN_COPY_WITHIN,
	STANDIN_FILL,
	STANDIN_GRAPH,
	STANDIN_RECORD,
	STANDIN_STREAM_WAIT,
	STANDIN_WAIT, /* the host waits: a stream, an event */
	STANDIN_ALLOC,
	STANDIN_FREE,
	STANDIN_CAPTURE,
	STANDIN_PRODUCT,
};

struct standin_event {
	enum standin_event_kind kind;
	int stream;  /* a small number; -1: none */
	bool pinned; /* copies: the host's side */
	const void *to, *from;
	size_t bytes;
	const char *name; /* of a kernel; else NULL. Static */
	int pending;      /* operations of all streams that had not run yet when the call was made */
};
/* Copies up to `max` of the calls since the last sluice_standin_log_clear, from the `skip`-th on, and returns how many
 * it copied. Of more than 65,536 the oldest are lost. */
size_t sluice_standin_log(size_t skip, struct standin_event *out, size_t max);
void sluice_standin_log_clear(void);

/* The n-th call of that name from now on returns that error, without effect; n 0: none. One name at a time. */
void sluice_standin_fail(const char *call, int n, int error);

/* f runs in a thread of its own at the beginning of each capture; NULL: none does. */
void sluice_standin_on_capture(void (*f)(void *ctx), void *ctx);

/* A thread of kernels of that name, as the source has it, needs so many bytes of local memory; no other's does. */
void sluice_standin_local_memory(const char *kernel, size_t bytes);

/* What there is now. */
struct standin_alive {
	int streams, events, graphs, executables, device_pieces, pinned_pieces, pending;
};
void sluice_standin_alive(struct standin_alive *out);

/* What the device is: compute capability (90), driver's CUDA version (13000), devices (1), whether the device reads
 * pageable memory itself. 0 keeps what is set. */
struct standin_device {
	int capability, driver, devices, coherent;
};
void sluice_standin_device(const struct standin_device *d);

/* The vendor's library, libcublasLt.so.13 beside the stand-in, exports this for tests. */
struct standin_library {
	bool missing;     /* cublasLtCreate fails */
	size_t version;   /* cublasLtGetVersion */
	int ways;         /* algorithms it names for each product */
	int scales_since; /* the version from which it knows scale modes */
	int capability;   /* of the device that it sees */
};
void sluice_standin_library(const struct standin_library *set);

/* ---- between the runtime's and the library's stand-in ---- */

struct standin_product {
	int numbers, n_out, n_in, n_rows, way; /* numbers: enum dev_numbers */
	const void *w, *x;
	float *y;
	const float *w_scale, *x_scale; /* NULL: none */
	void *workspace;
	size_t workspace_bytes;
	void (*run)(const struct standin_product *p);
};

struct standin_calls {
	/* Gives a product to the stream; 0 or a cudaError. */
	int (*product)(void *stream, const struct standin_product *p);
	void (*finding)(const char *text);
	int (*capability)(void);
};

#ifdef __cplusplus
}
#endif
#endif
