# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matvec.h
# A product reads what shrink makes while shrink may still run.
s|kn_begin(); /\* what shrink made is there \*/|;|
/kn_lora_added(adds/,/^}/s/^}/	if (lora != NULL)\n		kn_begin();\n}/
