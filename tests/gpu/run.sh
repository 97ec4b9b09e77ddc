#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks blockswap on one NVIDIA GPU in under six minutes and prints one JSON object. Needs the built binaries and the torch wheel,
# no gRPC and no server.
#
#   tests/gpu/run.sh [--bin DIR] [--device cuda:0] [--scratch DIR] [--dry-run]
#   tests/gpu/run.sh --pack DIR [--bin DIR]     copies gpu_check with the libraries a bare machine lacks to DIR
#
# --dry-run takes the host device and tiny sizes: the same code without a GPU. The exit status is not 0 when a check failed.
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
bin="${root}/build/release/bin"
device="cuda:0"
scratch=""
dry_run=0
pack=""
usage() { sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --bin) bin="${2:?}"; shift 2 ;;
    --device) device="${2:?}"; shift 2 ;;
    --scratch) scratch="${2:?}"; shift 2 ;;
    --pack) pack="${2:?}"; shift 2 ;;
    --dry-run) dry_run=1; shift ;;
    *) usage ;;
  esac
done
check="${bin}/gpu_check"
[ -x "${check}" ] || { printf 'run.sh: %s is not there; build the target gpu_check\n' "${check}" >&2; exit 2; }

# Libraries that travel with the program: all but the C library's own and torch's, which come with the machine and the wheel.
if [ -n "${pack}" ]; then
  mkdir -p "${pack}/lib"
  cp "${check}" "${BASH_SOURCE[0]}" "${pack}/"
  ldd "${check}" | awk '$3 ~ /^\// {print $3}' |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libutil|ld-linux[^/]*)\.so|/libtorch|/libc10|/libcu|/libnv' |
    while read -r library; do cp -L "${library}" "${pack}/lib/"; done
  exit 0
fi
[ -d "${bin}/lib" ] && export LD_LIBRARY_PATH="${bin}/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}"

if [ -z "${scratch}" ]; then
  # The block stack is read twice: from memory where that has room for it.
  scratch="${TMPDIR:-/tmp}"
  free_kib="$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)"
  [ "${free_kib:-0}" -gt $((48 * 1024 * 1024)) ] && scratch=/dev/shm
fi
arguments=(--device "${device}" --scratch "${scratch}")
[ "${dry_run}" = 1 ] && arguments=(--device host --tiny --scratch "${TMPDIR:-/tmp}")
report="$(mktemp)" || exit 1
race_log="$(mktemp)" || exit 1
trap 'rm -f "${report}" "${race_log}"' EXIT

export OMP_WAIT_POLICY=passive
timeout 300 "${check}" "${arguments[@]}" >"${report}"
status=$?

# The ring once more under the race checker, where it is installed. Tiny: it slows a kernel a hundredfold.
race="\"not run: no compute-sanitizer\""
if [ "${dry_run}" = 1 ]; then
  race="\"not run: no GPU in a dry run\""
elif command -v compute-sanitizer >/dev/null 2>&1; then
  if timeout 60 compute-sanitizer --tool racecheck --error-exitcode 9 \
    "${check}" --device "${device}" --tiny --only ring >"${race_log}" 2>&1; then
    race="\"clean\""
  else
    race="\"failed with status $?\""
    cat "${race_log}" >&2
    status=1
  fi
fi
if [ ! -s "${report}" ]; then
  printf '{"ok": false, "error": "gpu_check ended with status %s before it reported"}\n' "${status}"
  exit 1
fi
# The race checker's word joins the object: its last line is the closing brace.
sed '$d' "${report}" | sed '$s/$/,/'
printf '  "racecheck": %s\n}\n' "${race}"
exit "${status}"
