# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_prompts.h
# A prompt's last block lacks the sink.
s/if (last \&\& c.attn.sinks != NULL)/if (!last \&\& c.attn.sinks != NULL)/
