# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/memory.cu
# Slots of pages are freed while copies are on their way.
s/(void)dev_sync(b->dev); .. copies may be in flight.*//
