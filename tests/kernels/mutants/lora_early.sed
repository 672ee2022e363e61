# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.cu
# A product reads what shrink makes while shrink may still run.
s|kn_begin(); /\* what shrink made is there \*/|;|
/matvec_lora(struct/,/^}/s/multiply<TYPE, 1>(p, &lora);/multiply<TYPE, 1>(p, \&lora); kn_begin();/
