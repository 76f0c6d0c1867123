# SPDX-License-Identifier: MIT
"""The parts of scripts/gpu-check.

main        runs the steps of a call, in order
arguments   the command line
build       CMake builds for a device: for packing, and as the fallback on the GPU machine
pack        the folder of binaries that runs on a bare GPU machine
elf         run paths and glibc versions of ELF files
binaries    the programs that stages start
device      reads `halfscope doctor`: the GPU, the driver, the libraries
libraries   finds cuBLASLt, cuDNN and the tools of the CUDA toolkit
processes   starts programs, reads them line by line, stops them in time
output      the terminal
evidence    the report and its logs, written after every finished piece
report      the Markdown of the report
stage_*     one module per stage: run(context) does the work, render(data) describes it
ncu         reads Nsight Compute's output
gtest       reads GoogleTest's output
kernels     reads halfscope's output about the kernels of a lane
bits_table  the table operator x variant
sources     the commit and the digest of the sources
context     the environment of a stage
stop        the error that ends a call
"""
