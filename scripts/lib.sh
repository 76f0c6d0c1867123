# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Functions that the scripts share; they source this file.

# The repository's root, whatever the working directory.
# shellcheck disable=SC2034  # the scripts use it
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build

die() {  # die CODE MESSAGE...: prints one line to standard error and exits
  local code=$1
  shift
  echo "${0##*/}: $*" >&2
  exit "$code"
}

phase() {  # phase NUMBER/ALL TITLE: prints a heading
  printf '\n== %s  %s\n' "$1" "$2"
}

# Prints the number of parallel compilers: one per processor, but no more than memory allows,
# because a file with heavy templates takes almost a gigabyte. Respects a container's limit.
build_jobs() {
  local cpus kib limit jobs
  cpus=$(nproc)
  kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then
    limit=$(< /sys/fs/cgroup/memory.max)
    if [[ $limit != max ]] && ((limit / 1024 < kib)); then kib=$((limit / 1024)); fi
  fi
  jobs=$((kib / 900000))
  ((jobs < cpus)) || jobs=$cpus
  ((jobs > 0)) || jobs=1
  echo "$jobs"
}

span() {  # span SECONDS: prints "40 s" or "3 min"
  if (($1 < 90)); then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# Reads Ninja's output and prints the progress; passes everything else on unchanged, above all
# warnings and errors. On a terminal, one line is updated in place.
show_progress() {
  local line ready all percent told=-1 start=$SECONDS left lines=0
  while IFS= read -r line; do
    if [[ ! $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      if [[ $line == 'ninja: no work to do.' ]]; then continue; fi
      if [[ -t 1 ]]; then printf '\r\033[K'; fi
      printf '%s\n' "$line"
      continue
    fi
    if [[ $line == *'] Re-'* ]]; then continue; fi  # CMake looks for new files
    ready=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    percent=$((100 * ready / all))
    left=
    if ((ready < all && SECONDS - start >= 10 && ready >= all / 20)); then
      left=", about $(span $(((SECONDS - start) * (all - ready) / ready))) left"
    fi
    if [[ -t 1 ]]; then
      printf '\r\033[K  %d of %d steps%s' "$ready" "$all" "$left"
      lines=1
    elif ((percent / 10 > told / 10 || told < 0)); then
      printf '  %d of %d steps%s\n' "$ready" "$all" "$left"
      told=$percent
    fi
  done
  if ((lines)); then printf '\n'; fi
}

# shellcheck disable=SC2120  # options are optional
# configure [OPTION...]: configures the build folder with the preset `dev`. Prints only what was
# found for the GPU and the viewer, or what went wrong.
configure() {
  mkdir -p "$build"
  # Presets are looked up in the working directory.
  if ! (cd "$root" && cmake --preset dev "$@") > "$build/configure.log" 2>&1; then
    cat "$build/configure.log" >&2
    die 1 "CMake could not configure the build, see above; if the folder was moved, delete $build"
  fi
  sed -n -e 's/^-- HalfScope /  /p' -e '/^CMake Warning/,/^$/p' "$build/configure.log"
}

# Succeeds if this machine has a GPU.
has_gpu() {
  compgen -G '/dev/nvidia[0-9]*' > /dev/null || compgen -G '/usr/lib/wsl/lib/libcuda.so*' > /dev/null
}

# build TARGET...: builds what is missing or out of date.
build() {
  local start=$SECONDS
  NINJA_STATUS='[%f/%t] ' cmake --build "$build" --parallel "$(build_jobs)" --target "$@" 2>&1 |
    show_progress || die 1 "the build failed, see above"
  echo "  done in $(span $((SECONDS - start)))"
}
