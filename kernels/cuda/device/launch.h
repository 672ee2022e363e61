/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches as data. KN_LAUNCH packs a kernel and its arguments into a command, which either runs at once or, while a
 * list is recorded (list.h), is appended to it. A command is flat memory whose unused bytes are zero: two commands
 * with equal bytes do the same.
 *
 * Packing converts arguments to the kernel's parameter types, so a call looks and behaves like a plain launch.
 */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include <string.h>

struct dev;

/* KN_PRODUCT: a product of the vendor's library (library.h). KN_AFTER, KN_STEP_OVER: only in emulation queues
 * (emu_queue.h). */
enum kn_command_kind : uint32_t { KN_CALL, KN_COPY, KN_COPY_OUT, KN_PRODUCT, KN_AFTER, KN_STEP_OVER };

enum { KN_COMMAND_ALIGN = 64, KN_MAX_ARGS = 40 };

/* The arguments follow it. */
struct alignas(KN_COMMAND_ALIGN) kn_command {
	uint32_t bytes; /* including the arguments; a multiple of KN_COMMAND_ALIGN */
	uint32_t kind;
	const void *kernel;
	/* Returns the address of each argument; in tests, with where NULL, it runs the kernel's body for the current
	 * thread. */
	void (*thunk)(const struct kn_command *c, void **where);
	const char *name; /* static */
	uint32_t grid[3], block[3];
	uint32_t shared, n_args;
};

/* The arguments of KN_COPY and KN_COPY_OUT. */
struct kn_copy {
	void *to;
	const void *from;
	size_t bytes;
};

static inline void *kn_args_of(const struct kn_command *c) { return const_cast<struct kn_command *>(c + 1); }

template <class... P> struct kn_args;
template <> struct kn_args<> {
};
template <class H, class... T> struct kn_args<H, T...> {
	H head;
	struct kn_args<T...> tail;
};

static inline void kn_args_set(struct kn_args<> *) {}

template <class H, class... T, class A, class... B>
static inline void kn_args_set(struct kn_args<H, T...> *to, const A &first, const B &...rest)
{
	to->head = first;
	kn_args_set(&to->tail, rest...);
}

#ifdef KN_EMULATED
template <class K, class... D> static inline void kn_args_use(K kernel, struct kn_args<> *, const D &...done)
{
	kernel(done...);
}

template <class K, class H, class... T, class... D>
static inline void kn_args_use(K kernel, struct kn_args<H, T...> *a, const D &...done)
{
	kn_args_use(kernel, &a->tail, done..., a->head);
}
#endif

static inline void kn_args_use(struct kn_args<> *, void **) {}

template <class H, class... T> static inline void kn_args_use(struct kn_args<H, T...> *a, void **where)
{
	*where = &a->head;
	kn_args_use(&a->tail, where + 1);
}

template <class... P> struct kn_thunk {
	static void use(const struct kn_command *c, void **where)
	{
		struct kn_args<P...> *args = (struct kn_args<P...> *)kn_args_of(c);
#ifdef KN_EMULATED
		if (where == NULL) {
			kn_args_use((void (*)(P...))c->kernel, args);
			return;
		}
#endif
		kn_args_use(args, where);
	}
};

/* Room for a command, zero except for kind and bytes: at the end of the recorded list, or in *here, which is then
 * passed to kn_command_end. NULL after a fault. */
struct kn_command *kn_command_begin(struct dev *d, uint32_t kind, uint32_t bytes, struct kn_command *here);
/* Runs the command unless it is in a list. 0 or SL_EIO. */
int kn_command_end(struct dev *d, const struct kn_command *c, const struct kn_command *here);

/* Records or runs a command that carries args and launches no kernel. 0 or SL_EIO. */
template <class A> static inline int kn_command_of(struct dev *d, uint32_t kind, const char *name, const A &args)
{
	struct {
		struct kn_command c;
		A args;
	} here;
	struct kn_command *c = kn_command_begin(d, kind, sizeof here, &here.c);
	if (c == NULL)
		return SL_EIO;
	c->name = name;
	*(A *)kn_args_of(c) = args;
	return kn_command_end(d, c, &here.c);
}

template <class... P, class... A>
static int kn_launch(struct dev *d, const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
		     const A &...args)
{
	static_assert(sizeof...(P) == sizeof...(A) && sizeof...(P) <= KN_MAX_ARGS, "a kernel's arguments");
	struct one {
		struct kn_command c;
		struct kn_args<P...> args;
	} here;
	struct kn_command *c = kn_command_begin(d, KN_CALL, sizeof here, &here.c);
	if (c == NULL)
		return SL_EIO;
	c->kernel = (const void *)kernel;
	c->thunk = kn_thunk<P...>::use;
	c->name = name;
	c->grid[0] = grid.x, c->grid[1] = grid.y, c->grid[2] = grid.z;
	c->block[0] = block.x, c->block[1] = block.y, c->block[2] = block.z;
	c->shared = (uint32_t)shared;
	c->n_args = sizeof...(P);
	kn_args_set((struct kn_args<P...> *)kn_args_of(c), args...);
#ifdef KN_STANDIN
	static const uint32_t sizes[] = {(uint32_t)sizeof(P)...};
	standin_kernel(dev_host(d), c, sizeof here, sizes);
#endif
	return kn_command_end(d, c, &here.c);
}

/* 0 or SL_EIO. A kernel with several template arguments needs parentheses. */
#define KN_LAUNCH(d, kernel, grid, threads, shared_bytes, ...) \
	kn_launch(d, #kernel, kernel, dim3(grid), dim3(threads), shared_bytes, __VA_ARGS__)

#endif
