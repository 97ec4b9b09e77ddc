#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds blockswap and runs every test: bootstrap, configure, build, ctest, then the Python interoperability tests.
# Ends with one line "N passed, N failed"; the exit status is not 0 when anything failed. BLOCKSWAP_BUILD_DIR chooses
# another build directory than build/release, BLOCKSWAP_JOBS the number of parallel jobs (default: the cores).
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "${root}" || exit 1
build="${BLOCKSWAP_BUILD_DIR:-build/release}"
jobs="${BLOCKSWAP_JOBS:-$(nproc)}"

fail() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 1
}

deploy/bootstrap.sh || fail "bootstrap failed"
toolchain="$(deploy/toolchain-dir.sh)"

# Objects of another checkout of the same sources serve as well: paths are taken relative to this one.
export CCACHE_BASEDIR="${root}" CCACHE_NOHASHDIR=1
cmake --preset release -B "${build}" || fail "configuring failed"
cmake --build "${build}" -j "${jobs}" || fail "building failed"

reports="${build}/reports"
mkdir -p "${reports}"
rm -f "${reports}"/*.xml
status=0

# Device lanes and compute threads of two tests share the cores: waiting threads must not spin.
export OMP_WAIT_POLICY=passive
ctest --test-dir "${build}" --output-on-failure -j "${jobs}" --output-junit "${root}/${reports}/ctest.xml" ||
  status=1
BLOCKSWAP_BIN_DIR="$(cd "${build}" && pwd)/bin" "${toolchain}/venv/bin/python" -m pytest tests/interop tests/deploy \
  -p no:cacheprovider --junitxml "${reports}/interop.xml" || status=1

"${toolchain}/venv/bin/python" - "${reports}" <<'PYTHON' || status=1
import pathlib, sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
for name in ("ctest.xml", "interop.xml"):
    report = pathlib.Path(sys.argv[1]) / name
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    if not cases:
        print(f"run.sh: no test ran that {name} should report", file=sys.stderr)
        failed += 1
    for case in cases:
        reason = case.find("skipped")
        asked_to_skip = reason is not None and not reason.get("message", "").startswith("Unable to find executable")
        if asked_to_skip or case.get("status") == "disabled":
            skipped += 1
        elif reason is not None or case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(failed != 0)
PYTHON
exit "${status}"
