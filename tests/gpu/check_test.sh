#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What scripts/gpu-check makes of its stages, with stand-ins for the GPU and everything that is
# built for it: reports that calls complete, that a cut-off run keeps and that other sources empty,
# failures, and where CUDA's libraries are looked for.
#   check_test.sh SCRIPTS     SCRIPTS: the folder
# shellcheck disable=SC2016  # the stand-ins expand it
set -euo pipefail
scripts=$1
work=$(mktemp -d)
started=
# shellcheck disable=SC2317  # the trap calls it
finish() {
  if [[ -n $started ]]; then kill -KILL -- "-$started" 2> /dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT
repo=$work/repo
mkdir -p "$repo" "$work/tools" "$work/toolkit/bin" "$work/site"
cp -R "$scripts" "$repo/scripts"
export GIT_CEILING_DIRECTORIES=$work HALFSCOPE_COMMIT=abc1234 LD_LIBRARY_PATH='' fake=$work

stand_in() {  # stand_in FILE: a program of what standard input says
  { echo '#!/usr/bin/env bash'; cat; } > "$1"
  chmod +x "$1"
}
stand_in "$work/tools/nvidia-smi" <<< 'echo "GPU 0: NVIDIA Test 100"'
stand_in "$work/tools/ldconfig" <<< 'cat "$fake/known" 2> /dev/null'
stand_in "$work/toolkit/bin/nvcc" <<< 'echo "Cuda compilation tools, release 13.0, V13.0.48"'
stand_in "$work/tools/ctest" << 'EOF'
cat "$fake/ctest"
mkdir -p "$2/Testing/Temporary"
printf '%s\n' "[ RUN      ] A.B" "[  SKIPPED ] A.B" "[  SKIPPED ] A.B (0 ms)" \
  "float32 cuda: 5 of 5 sampled elements explained" > "$2/Testing/Temporary/LastTest.log"
EOF
# It finds what is named to it, and the toolkit's headers; what it builds is what follows here.
stand_in "$work/tools/cmake" << 'EOF'
echo "cmake $*" >> "$fake/calls"
case $1 in
  --version) echo "cmake version 3.25.1" ;;
  --build)
    mkdir -p "$2/bin"
    cp "$fake"/built/* "$2/bin" ;;
  *)
    while (($# > 0)); do
      case $1 in
        -B) cache=$2/CMakeCache.txt; : > "$cache" ;;
        -DHALFSCOPE_*_INCLUDE=*) entry=${1#-D}; echo "${entry/=/:PATH=}" >> "$cache" ;;
      esac
      shift
    done
    for library in CUBLASLT:cublasLt.h CUDNN:cudnn_version.h; do
      entry=HALFSCOPE_${library%:*}_INCLUDE:PATH
      if grep -q "^$entry=" "$cache"; then continue; fi
      if [[ -e $fake/toolkit/include/${library#*:} ]]; then
        echo "$entry=$fake/toolkit/include" >> "$cache"
      else
        echo "$entry=HALFSCOPE_${library%:*}_INCLUDE-NOTFOUND" >> "$cache"
      fi
    done ;;
esac
EOF
mkdir "$work/built"
# The loader's part: it finds what ldconfig knows and what is on its path.
stand_in "$work/built/halfscope" << 'EOF'
found() {  # found NAME FILE
  local folder
  grep -qsF "$2" "$fake/known" && echo "$1 13.0" && return
  for folder in ${LD_LIBRARY_PATH//:/ }; do
    [[ -e $folder/$2 ]] && echo "$1 13.0" && return
  done
  echo "$1 not found"
}
case $1 in
  doctor)
    printf 'GPU\n  CUDA toolkit 13.0\n  %s, ' "$(found cuBLASLt libcublasLt.so.13)"
    printf '%s\n  device 0: %s, compute capability 9.0\n' "$(found cuDNN libcudnn.so.9)" \
      "$(cat "$fake/device")" ;;
  train)
    touch "$fake/trains"
    if [[ -e $fake/hang ]]; then sleep 60; fi
    echo "a \"loss\" of 0.5"
    echo "float32 fc gemm: a kernel" >&2 ;;
  report) echo '{"kernels": [{"lane": "cuda", "text": "all of them", "sites": []}]}' > "$4" ;;
  runs) echo '[{"lanes": 5}]' ;;
  fprev) echo "a tree of $*" ;;
esac
EOF
stand_in "$work/built/gpu_step_bench" <<< 'echo "lenet float32 PyTorch 1.5"
exit "$(cat "$fake/bench")"'
stand_in "$work/built/gpu_layer_bench" <<< 'printf "fc1 \"forward\"\t\\\\0.25\a\n"'
stand_in "$work/built/gpu_test" <<< 'echo "[  PASSED  ] 1 test."'
# A python3 of this machine looks in the folder of packages; without one, the answer is given.
if ! command -v python3 > /dev/null; then
  stand_in "$work/tools/python3" <<< 'if [[ $1 == -c ]]; then echo "$fake/site"; else cat; fi'
fi
export PYTHONPATH=$work/site PATH=$work/tools:$work/toolkit/bin:$PATH
echo "NVIDIA Test 100" > "$work/device"
echo 0 > "$work/bench"
passing='1/2 Test  #3: gpu_on_device ................   Passed    0.10 sec
2/2 Test #14: gpu_backend_on_device ........   Passed   12.00 sec'
echo "$passing" > "$work/ctest"

failed=0
fail() {
  echo "$what: $*"
  failed=1
}
check() {  # check CODE ARGUMENT...: runs it
  local expected=$1 status=0
  shift
  rm -f "$work/calls"
  "$repo/scripts/gpu-check" "$@" > "$work/out" 2>&1 || status=$?
  if ((status != expected)); then
    fail "exit code $status, not $expected: $(tail -n 3 "$work/out")"
  fi
}
says() { grep -qF -- "$2" "$1" || fail "$1 does not say \"$2\""; }
lacks() { if grep -qF -- "$2" "$1"; then fail "$1 says \"$2\""; fi; }
valid() {  # the JSON is some, if there is a program that can tell
  if [[ -x $work/tools/python3 ]]; then return; fi
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$json" || fail "$json is no JSON"
}
markdown=$repo/docs/gpu/nvidia-test-100.md
json=$repo/docs/gpu/nvidia-test-100.json

what="no libraries"
mkdir "$work/toolkit/include"
touch "$work/toolkit/include"/{cublasLt,cudnn_version}.h
check 1 --stage tests
says "$work/out" "cuBLASLt not found,cuDNN not found"
if [[ -e $markdown ]]; then fail "there is a report"; fi

what="libraries that the loader knows"
printf '\tlibcublasLt.so.13 => a\n\tlibcudnn.so.9 => b\n' > "$work/known"
check 0 --stage tests --report "$work/report"
lacks "$work/out" "cmake version"  # the build from before is still of these sources
says "$markdown" "| gpu_backend_on_device | passed |"
says "$markdown" "at commit abc1234."
says "$markdown" "| build | passed |"
lacks "$markdown" "## Training steps"
lacks "$markdown" "Python packages"
says "$markdown" "[  SKIPPED ] A.B"
says "$markdown" "5 of 5 sampled elements explained"
lacks "$markdown" "[ RUN"
says "$json" '"gpu_on_device": "passed"'
says "$json" '"bench": null'
says "$json" '"failed": []'
valid
cmp "$work/report/nvidia-test-100.md" "$markdown" || fail "another copy"
cmp "$work/report/nvidia-test-100.json" "$json" || fail "another copy"
if [[ -e $work/calls ]]; then fail "built again: $(< "$work/calls")"; fi

what="a second call"
check 0 --stage orders --stage bench
says "$markdown" "| gpu_backend_on_device | passed |"
says "$markdown" "lenet float32 PyTorch 1.5"
says "$markdown" "== e4m3, [128 x 256] times [256 x 128]"
says "$json" '"bench": "lenet float32 PyTorch 1.5"'
valid

what="a run that is cut off"
touch "$work/hang"
rm -f "$work/trains"
echo "${passing/backend/other}" > "$work/ctest"
set -m
"$repo/scripts/gpu-check" --stage tests --stage run > "$work/out" 2>&1 &
started=$!
set +m
for ((i = 0; i < 300; ++i)); do
  if [[ -e $work/trains ]]; then break; fi
  sleep 0.1
done
[[ -e $work/trains ]] || fail "it never came to the second stage"
{ kill -KILL -- "-$started"; wait "$started" || true; } 2> /dev/null
started=
rm "$work/hang"
says "$markdown" "| gpu_other_on_device | passed |"
lacks "$markdown" "| gpu_backend_on_device |"  # replaced
says "$markdown" "lenet float32 PyTorch 1.5"
lacks "$markdown" "lenet, 100 steps"
valid
check 0 --stage run
says "$markdown" "| gpu_other_on_device | passed |"
says "$markdown" 'a "loss" of 0.5'
says "$markdown" "cuda: all of them"
says "$json" '"runs": [{"lanes": 5}]'
valid

what="failures"
echo "${passing/   Passed/***Skipped}" > "$work/ctest"
check 1 --stage tests
says "$markdown" "| tests | failed |"
says "$json" '"gpu_on_device": "skipped"'
says "$json" '"failed": ["tests"]'
echo 'No tests were found!!!' > "$work/ctest"
check 1 --stage tests
echo "$passing" > "$work/ctest"
echo 3 > "$work/bench"
check 1 --stage bench --stage tests
says "$markdown" "| tests | passed |"
says "$markdown" "| bench | failed |"
says "$markdown" "lenet float32 PyTorch 1.5"
valid
echo 0 > "$work/bench"
check 2 --stage all
check 2 --sanitize-seconds soon
check 2 --stage

what="another commit"
HALFSCOPE_COMMIT=def5678 check 0 --stage layers
says "$work/calls" "cmake --build"
says "$markdown" "at commit def5678."
says "$json" '"layers": "fc1 \"forward\"\t\\0.25"'
valid
lacks "$markdown" "| tests |"
export HALFSCOPE_COMMIT=def5678
what="a changed file"
check 0 --stage tests
lacks "$work/out" "== build"
echo "int main() {}" > "$repo/main.cpp"
check 0 --stage bench
says "$work/calls" "cmake --build"
lacks "$markdown" "| tests |"
what="another device"
echo "NVIDIA Other" > "$work/device"
check 0 --stage layers
lacks "$repo/docs/gpu/nvidia-other.md" "PyTorch 1.5"
says "$repo/docs/gpu/nvidia-other.md" 'fc1 "forward"'
echo "NVIDIA Test 100" > "$work/device"

what="all stages"
stand_in "$work/tools/compute-sanitizer" <<< 'echo "[  PASSED  ] 1 test."'
check 1 --sanitize-seconds 5  # the stand-in passes too few tests
for title in Build Tests "lenet, 100 steps, on both" "What computed the products" \
  "The order of the library's sums" "Training steps against PyTorch" "Products layer by layer" \
  compute-sanitizer "halfscope doctor"; do
  says "$markdown" "## $title"
done
says "$json" '"memcheck": "1 of 9 tests passed'
says "$json" '"failed": ["sanitize"]'
lacks "$json" null
valid

what="libraries and headers of Python packages"
rm "$work/known" "$work/toolkit/include"/*
mkdir -p "$work/site/nvidia"/{cu13,cudnn,other}/{lib,include}
touch "$work/site/nvidia/cu13/lib/libcublasLt.so.13" "$work/site/nvidia/cu13/include/cublasLt.h"
touch "$work/site/nvidia/cudnn/lib/libcudnn.so.9" "$work/site/nvidia/cudnn/include/cudnn_version.h"
check 0 --stage build
says "$markdown" "loaded from Python packages: nvidia/cu13/lib nvidia/cudnn/lib"
of_system() { compgen -G "/usr/include/$1" || compgen -G "/usr/include/*-linux-gnu/$1"; }
for library in CUBLASLT:cublasLt.h:cu13 CUDNN:cudnn_version.h:cudnn; do
  IFS=: read -r macro header package <<< "$library"
  flag=-DHALFSCOPE_${macro}_INCLUDE=$work/site/nvidia/$package/include
  if of_system "$header" > /dev/null; then
    lacks "$work/calls" "$flag"
  else
    says "$work/calls" "$flag"
  fi
done
what="cuDNN of Python alone"
touch "$work/toolkit/include/cublasLt.h"
echo "libcublasLt.so.13" > "$work/known"
check 0 --stage build
lacks "$work/calls" "-DHALFSCOPE_CUBLASLT_INCLUDE"
says "$markdown" "loaded from Python packages: nvidia/cudnn/lib"
lacks "$markdown" "nvidia/cu13"
what="a library of another toolkit"
echo "libcublasLt.so.12" > "$work/known"
check 0 --stage build
says "$markdown" "loaded from Python packages: nvidia/cu13/lib"
what="no header"
rm -r "$work/toolkit/include" "$work/site/nvidia/cu13/include"
if ! of_system cublasLt.h > /dev/null; then
  check 1 --stage build
  says "$work/out" "cublasLt.h was not found"
fi
what="no GPU"
stand_in "$work/tools/nvidia-smi" <<< 'exit 9'
check 3
exit "$failed"
