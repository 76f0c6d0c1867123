# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the scripts share; they source it. Nothing here runs by itself.

# The repository, whatever directory the script was called from.
# shellcheck disable=SC2034  # the scripts use it
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {  # die CODE MESSAGE...: one line on standard error
  local code=$1
  shift
  echo "${0##*/}: $*" >&2
  exit "$code"
}

# How many compilers at a time: one per processor, but no more than memory allows, since a file
# with heavy templates takes most of a gigabyte. A container's own limit counts.
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
