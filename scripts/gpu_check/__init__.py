# SPDX-License-Identifier: MIT
"""The parts of scripts/gpu-check.

main        what a call does, in order
arguments   the command line
build       CMake builds for a device: the fallback on the GPU machine, and what is packed
pack        the folder of binaries that runs on a bare GPU machine
elf         run paths and glibc versions of ELF files
binaries    what a stage needs to know about the programs that it starts
device      `halfscope doctor`, read: the GPU, the driver, the libraries
libraries   where cuBLASLt, cuDNN and tools of the CUDA toolkit are
processes   starts programs, reads them line by line, stops them in time
output      the terminal
evidence    the report and its logs, written after every finished piece
report      the Markdown of the report
stage_*     one module per stage: run(context) does the work, render(data) describes it
ncu         reads what Nsight Compute prints
gtest       reads what GoogleTest prints
kernels     reads what halfscope says about the kernels of a lane
bits_table  the table operator x variant
sources     the commit and the digest of the sources
context     what a stage works with
stop        the error that ends a call
"""
