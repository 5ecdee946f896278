#!/bin/sh -e
# Makes kernels.spv of kernels.cl, with clang-15 and llvm-spirv-15, and has spirv-val look at it.
cd "$(dirname "$0")"
bitcode=$(mktemp)
trap 'rm -f "$bitcode"' EXIT
clang-15 -c -target spir64 -cl-std=CL3.0 -Xclang -finclude-default-header -O2 -emit-llvm -o "$bitcode" kernels.cl
llvm-spirv-15 --spirv-max-version=1.2 "$bitcode" -o kernels.spv
spirv-val kernels.spv
