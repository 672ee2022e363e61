# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/stages.h
# Every block of rows reads the first one.
s#tile = first_tile + (int)(at#tile = (int)(at#
