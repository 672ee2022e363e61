# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Which rows have which adapter goes to where the step in flight has it.
s/return kn_cuda_lora_stage(/if (b->sets[1 - b->set].staged.bytes >= b->sets[b->set].staged.bytes) here = (int32_t *)b->sets[1 - b->set].staged.at + (here - (int32_t *)b->sets[b->set].staged.at);\n&/
