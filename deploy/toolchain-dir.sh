#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the directory that deploy/bootstrap.sh fills with the pinned Python environment (LibTorch and, where the
# machine has none, the CUDA compiler). The name changes with the pins and the distribution, so that two checkouts
# with different pins do not disturb each other. BLOCKSWAP_TOOLCHAIN overrides it.
set -euo pipefail

if [[ -n "${BLOCKSWAP_TOOLCHAIN:-}" ]]; then
  printf '%s\n' "${BLOCKSWAP_TOOLCHAIN}"
  exit 0
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
distribution="unknown"
if [[ -r /etc/os-release ]]; then
  # shellcheck disable=SC1091
  distribution="$(. /etc/os-release && printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-rolling}")"
fi
key="$({
  cat "${here}/requirements.lock" "${here}/requirements-nvcc.lock"
  printf '%s\n' "${distribution}"
} | sha256sum | cut -c1-12)"
printf '%s/blockswap/toolchain-%s\n' "${XDG_CACHE_HOME:-${HOME}/.cache}" "${key}"
