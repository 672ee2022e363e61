# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# A row sees the position after its own.
s/pos < a.span.to ? s/pos <= a.span.to ? s/
