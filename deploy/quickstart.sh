#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh checkout to a trained adapter: bootstrap, build, start blockswapd on a temporary state directory, and run the example
# job on the host device with a memory budget below what it needs with the whole model resident, so that its blocks are swapped.
#
#   deploy/quickstart.sh [--output DIR] [--keep]
#
#   --output DIR   where the job's outputs go (default: build/quickstart)
#   --keep         leave the server running afterwards, and say how to reach and stop it
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
output="${root}/build/quickstart"
keep=false
state=""
server_pid=""

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 1
}

parse_arguments() {
  while (($# > 0)); do
    case "$1" in
      --output)
        (($# >= 2)) || fail "--output needs a directory"
        output="$(realpath -m -- "$2")"
        shift 2
        ;;
      --keep)
        keep=true
        shift
        ;;
      -h | --help)
        sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      *) fail "unknown argument '$1'; see --help" ;;
    esac
  done
}

# shellcheck disable=SC2317  # called by the trap
cleanup() {
  local status=$?
  if [[ -n "${server_pid}" ]] && { [[ "${keep}" == false ]] || ((status != 0)); }; then
    kill -TERM "${server_pid}" 2>/dev/null || true
    wait "${server_pid}" 2>/dev/null || true
    server_pid=""
  fi
  if [[ -n "${state}" && -z "${server_pid}" ]]; then
    if ((status != 0)) && [[ -s "${state}/server.log" ]]; then
      printf 'quickstart: the last lines of the server:\n' >&2
      tail -n 20 "${state}/server.log" >&2
    fi
    rm -rf "${state}"
  fi
}

build() {
  say "bootstrap"
  deploy/bootstrap.sh
  toolchain="$(deploy/toolchain-dir.sh)"
  say "build"
  export CCACHE_BASEDIR="${root}" CCACHE_NOHASHDIR=1
  cmake --preset release >"${state}/configure.log" || {
    cat "${state}/configure.log" >&2
    fail "configuring failed"
  }
  cmake --build build/release -j "${BLOCKSWAP_JOBS:-$(nproc)}" --target blockswapd blockswap blockswap-worker
  bin="${root}/build/release/bin"
}

make_data() {
  say "example data: handwritten digits of scikit-learn, and a small Qwen-Image base model"
  mkdir -p "${state}/models" "${output}"
  cp -R deploy/examples/digits-base "${state}/models/"
  "${toolchain}/venv/bin/python" deploy/examples/make_digits.py --output "${state}/datasets"
}

start_server() {
  say "server"
  # The defaults, but a socket and a port of its own: another server of this user is not disturbed.
  "${bin}/blockswapd" --state-dir "${state}" --socket "${state}/blockswapd.sock" --http 127.0.0.1:0 \
    --outputs "${output}" --offer-host true >"${state}/server.log" 2>&1 &
  server_pid=$!
  export BLOCKSWAP_SERVER="unix:${state}/blockswapd.sock"
  local try
  for ((try = 0; try < 100; try++)); do
    kill -0 "${server_pid}" 2>/dev/null || fail "blockswapd ended at its start"
    if "${bin}/blockswap" server info 2>/dev/null; then
      return
    fi
    sleep 0.2
  done
  fail "blockswapd did not answer within 20 seconds"
}

# Fails unless the job could not have run without swapping, and bytes really crossed the link.
prove_swapping() {
  local job="$1" port address
  "${bin}/blockswap" get "${job}" -o json >"${state}/job.json"
  "${toolchain}/venv/bin/python" - "${state}/job.json" <<'PYTHON'
import json, sys

plan = json.load(open(sys.argv[1]))["plan"]
mib = 1 << 20
model, budget, device = (int(plan[key]) for key in ("model_bytes", "vram_budget_bytes", "device_bytes"))
print(f"the model's weights alone are {model / mib:.2f} MiB, the budget for everything on the device is {budget / mib:.2f} MiB:")
print(f"{plan['blocks_to_swap']} of {plan['num_blocks']} blocks waited in host memory, planned use {device / mib:.2f} MiB")
if plan["blocks_to_swap"] < 1 or not device <= budget < model:
    sys.exit("quickstart: this job swapped nothing, or did not have to")
PYTHON
  port="$(cat "${state}/http.port")"
  address="http://127.0.0.1:${port}/metrics"
  say "metrics: curl -s ${address}"
  curl -fsS "${address}" >"${state}/metrics.txt"
  grep -E '^blockswap_(swap_(bytes|transfers|stall_seconds|prefetch)_total|swap_blocks|worker_device_memory_use_peak_bytes|train_steps_total)' \
    "${state}/metrics.txt" || fail "the server exports no swap metrics"
  awk '/^blockswap_swap_bytes_total\{.*direction="h2d"/ { sum += $NF } END { exit !(sum > 0) }' "${state}/metrics.txt" ||
    fail "no byte went from host to device: nothing was swapped"
}

main() {
  parse_arguments "$@"
  cd "${root}"
  # Short, because the path of a socket has at most 107 bytes.
  state="$(mktemp -d /tmp/blockswap-XXXXXX)"
  trap cleanup EXIT
  trap 'exit 130' INT TERM
  build
  make_data
  start_server

  say "plan: blockswap plan deploy/examples/digits.yaml"
  "${bin}/blockswap" plan deploy/examples/digits.yaml --set device=host

  say "job: blockswap submit deploy/examples/digits.yaml --follow"
  local job
  job="digits-$(date +%s)"
  "${bin}/blockswap" submit deploy/examples/digits.yaml --set device=host --id "${job}" --follow

  say "result"
  local adapter="${output}/${job}/digits-lora.safetensors"
  [[ -s "${adapter}" ]] || fail "the adapter is missing: ${adapter}"
  [[ -s "${output}/${job}/samples/sheet.png" ]] || fail "no pictures in ${output}/${job}/samples"
  printf 'adapter:  %s\n' "${adapter}"
  printf 'pictures: %s (first row before training, last row after)\n' "${output}/${job}/samples/sheet.png"
  prove_swapping "${job}"

  if [[ "${keep}" == true ]]; then
    say "the server goes on"
    printf 'reach it:  export BLOCKSWAP_SERVER=%s\nstop it:   kill %s\n' "${BLOCKSWAP_SERVER}" "${server_pid}"
    printf 'its state: %s\n' "${state}"
    disown "${server_pid}"
  fi
}

main "$@"
exit  # the shell reads a script as it runs it: nothing after this line may run when the file is replaced meanwhile
