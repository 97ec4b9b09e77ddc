#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The slow soaks that tests/run.sh leaves out, in at most ten minutes, on what a release build left in build/release
# (BLOCKSWAP_BUILD_DIR chooses another directory). Prints a table; the exit status is 1 when a bar does not hold or a
# program is missing. Arguments go to tests/soak/soak.py: --seconds N for fewer short jobs, --only NAME.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$(cd "${BLOCKSWAP_BUILD_DIR:-${root}/build/release}" && pwd)"
export OMP_WAIT_POLICY=passive
exec "$("${root}/deploy/toolchain-dir.sh")/venv/bin/python" "${root}/tests/soak/soak.py" --build "${build}" "$@"
