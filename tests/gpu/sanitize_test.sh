#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What scripts/gpu-sanitize makes of a compute-sanitizer that finds errors, none, or nothing to do.
#   sanitize_test.sh SCRIPT GPU_TEST     GPU_TEST: the program whose tests the script names
set -euo pipefail
script=$1
gpu_test=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/bin" "$work/tools"
ln -s "$gpu_test" "$work/build/bin/gpu_test"

failed=0
expect() {  # expect WHAT CODE PATTERN...: of the last run, one pattern for each line
  local what=$1 code=$2 i
  shift 2
  if ((status != code)); then
    echo "$what: exit code $status, not $code"
    failed=1
  fi
  if ((${#lines[@]} != $#)); then
    printf '%s: %d lines, not %d: %s\n' "$what" "${#lines[@]}" "$#" "${lines[*]}"
    failed=1
  fi
  for ((i = 1; i <= $#; ++i)); do
    if [[ ! ${lines[i - 1]-} =~ ${!i} ]]; then
      echo "$what: \"${lines[i - 1]-}\" is not \"${!i}\""
      failed=1
    fi
  done
}
run() {  # run [SECONDS]
  status=0
  PATH=$work/tools:$PATH "$script" "$work/build" "$@" > "$work/out" 2> "$work/err" || status=$?
  mapfile -t lines < "$work/out"
}
tool() {  # tool TEXT: the compute-sanitizer that is found does this
  {
    echo '#!/usr/bin/env bash'
    echo "echo \"\$*\" >> \"$work/calls\""
    echo "$1"
  } > "$work/tools/compute-sanitizer"
  chmod +x "$work/tools/compute-sanitizer"
  rm -f "$work/calls"
}

# Of this machine's own, if it has one, nothing is wanted.
compiler=$(command -v nvcc || true)
if ! command -v compute-sanitizer > /dev/null && [[ ! -x ${compiler%/*}/compute-sanitizer ]]; then
  run
  expect "without the tool" 0 '^compute-sanitizer not there$'
fi

# It counts the tests of the filter, as a program would that passes them all.
# shellcheck disable=SC2016  # the tool expands it
count='filter=${*: -1}; filter=${filter#*=}; n=$(tr -cd : <<< "$filter" | wc -c); passed=$((n + 1))'
tool "$count; echo \"========= COMPUTE-SANITIZER\"; echo \"[  PASSED  ] \$passed tests.\""
run
expect "clean" 0 '^memcheck no errors \(9 tests, ' '^racecheck no errors \(8 tests, ' \
  '^synccheck no errors \(8 tests, '
names=0
while read -r call; do
  # Every test that is named exists.
  filter=${call##*--gtest_filter=}
  wanted=$(tr ':' '\n' <<< "$filter" | wc -l)
  there=$("$gpu_test" --gtest_list_tests "--gtest_filter=$filter" | grep -c '^  ')
  if ((wanted != there)); then
    echo "of $filter $there tests are there"
    failed=1
  fi
  names=$((names + wanted))
done < "$work/calls"
if ((names != 25)); then
  echo "$names names in all calls, not 25"
  failed=1
fi

tool 'if [[ $* == *racecheck* ]]; then echo "========= Error: Race reported between Write access"
echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 99; fi
echo "[  PASSED  ] 9 tests."'
run
expect "a race" 1 '^memcheck no errors' '^racecheck errors: .*Race reported between' \
  '^synccheck 9 of 8'

tool 'echo "========= Invalid __global__ read of size 4 bytes"; sleep 60'
run 1
expect "errors before the time is over" 1 '^memcheck errors: 1 Invalid __global__ read' \
  '^racecheck not run: no time left$' '^synccheck not run: no time left$'
tool 'sleep 60'
run 1
expect "no end" 0 '^memcheck stopped after 1 s, no errors until then$' '^racecheck not run' \
  '^synccheck not run'
tool 'echo "[  PASSED  ] 0 tests."'
run
expect "skipped tests" 1 '^memcheck 0 of 9 tests passed' '^racecheck 0 of 8' '^synccheck 0 of 8'
tool 'echo "no device"; exit 1'
run
expect "a tool that does not start" 1 '^memcheck exit code 1: no device$' '^racecheck exit' \
  '^synccheck exit'
status=0
"$script" "$work/none" > "$work/out" 2> "$work/err" || status=$?
lines=()
expect "no build" 2
exit "$failed"
