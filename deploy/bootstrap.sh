#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a Debian 12 or Ubuntu 24.04 machine ready to build blockswap: installs the distribution packages that are
# missing, then fills the directory that deploy/toolchain-dir.sh names with a Python environment of pinned, hashed
# packages. Running it again costs less than a second; an interrupted run is completed by the next one.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

packages=(
  # C++ libraries
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libcivetweb-dev libsqlite3-dev libyaml-cpp-dev libtomlplusplus-dev
  nlohmann-json3-dev libcli11-dev libspdlog-dev libssl-dev libpng-dev zlib1g-dev
  libgtest-dev libgmock-dev libbenchmark-dev libfiu-dev
  # build
  cmake ninja-build g++ pkg-config ccache mold python3-venv
  # packages: cpack asks dpkg-shlibdeps; tests of the unit ask systemd-analyze
  dpkg-dev systemd
  # tests: promtool, fault injection, a client for the HTTP port
  prometheus fiu-utils strace curl ca-certificates
)
# A browser for the built-in page. Ubuntu has it as a snap only, which containers cannot install: its test says that it is skipped.
if grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
  packages+=(chromium chromium-driver)
fi

say() { printf 'bootstrap: %s\n' "$*"; }
fail() {
  printf 'bootstrap: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [[ "$(id -u)" == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "need root to run '$1': run as root or install sudo"
  fi
}

missing_packages() {
  local installed
  installed="$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/^installed //p' || true)"
  comm -23 <(printf '%s\n' "${packages[@]}" | sort -u) <(printf '%s\n' "${installed}" | sort -u)
}

# While this file says 101, no package may start its service. One that is there already (containers) is left alone.
forbid_services() {
  if [[ -e /usr/sbin/policy-rc.d ]]; then
    return
  fi
  trap allow_services EXIT
  printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
  as_root chmod 755 /usr/sbin/policy-rc.d
}

allow_services() {
  if [[ -n "$(trap -p EXIT)" ]]; then
    as_root rm -f /usr/sbin/policy-rc.d
    trap - EXIT
  fi
}

# The package of promtool brings a Prometheus server as a service; only the tool is wanted, so no service may start.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is not a Debian or Ubuntu system; install the equivalents of: ${packages[*]}"
  local missing
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "distribution packages: all ${#packages[@]} present"
    return
  fi
  say "distribution packages: installing ${missing[*]}"
  forbid_services
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
  if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
    as_root systemctl disable --now prometheus.service || true  # wanted: no service at the next boot either
  fi
  allow_services
}

# The distribution's own interpreter first: it does not vanish when someone changes a version manager's default.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 python3.12 python3.11 python3; do
    if "${candidate}" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
        >/dev/null 2>&1; then
      command -v "${candidate}"
      return
    fi
  done
  fail "no python 3.11 or 3.12 with the venv module found"
}

# BLOCKSWAP_PYPI_NVCC=1 takes the compiler of the lock even where the system has one.
has_cuda13_compiler() {
  local candidate
  if [[ "${BLOCKSWAP_PYPI_NVCC:-0}" == 1 ]]; then
    return 1
  fi
  for candidate in nvcc /usr/local/cuda/bin/nvcc; do
    if [[ "$("${candidate}" --version 2>/dev/null || true)" == *"release 13."* ]]; then
      return 0
    fi
  done
  return 1
}

# Removes packages whose files are not all there with the recorded size: the remains of an interrupted install, which
# pip would take for installed.
drop_incomplete_packages() {
  "$1" - <<'PYTHON'
import importlib.metadata, os, shutil

for distribution in list(importlib.metadata.distributions()):
    if os.path.basename(distribution._path).startswith("pip-"):
        continue
    files = distribution.files
    complete = bool(files) and all(
        os.path.exists(f.locate()) and (f.size is None or os.path.getsize(f.locate()) == f.size) for f in files)
    if not complete:
        print("bootstrap: removing the incomplete", distribution._path.name)
        shutil.rmtree(distribution._path)
PYTHON
}

# install_locked STAMP LOCK: installs LOCK unless STAMP says that it was installed before.
install_locked() {
  local stamp="${toolchain}/$1" lock="${here}/$2" python="${toolchain}/venv/bin/python"
  if [[ -e "${stamp}" ]]; then
    return
  fi
  if [[ ! -x "${python}" ]] || ! "${python}" -m pip --version >/dev/null 2>&1; then
    say "python environment: creating ${toolchain}/venv"
    rm -rf "${toolchain}/venv"
    "$(find_python)" -m venv "${toolchain}/venv"
  fi
  drop_incomplete_packages "${python}"
  say "python environment: installing $(grep -c == "${lock}") packages of deploy/$2 (this can take minutes)"
  # --no-deps: the lock is complete, and pip check proves it.
  "${python}" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "${lock}"
  "${python}" -m pip check --disable-pip-version-check
  date -u +%Y-%m-%dT%H:%M:%SZ >"${stamp}.partial"
  mv "${stamp}.partial" "${stamp}"
}

main() {
  install_packages
  toolchain="$("${here}/toolchain-dir.sh")"
  mkdir -p "${toolchain}"
  exec 9>"${toolchain}/lock"
  flock 9
  install_locked complete requirements.lock
  if has_cuda13_compiler; then
    say "CUDA compiler: the system's"
  else
    install_locked complete-nvcc requirements-nvcc.lock
    say "CUDA compiler: the toolchain's"
  fi
  say "toolchain: ${toolchain}"
}

main
exit  # the shell reads a script as it runs it: nothing after this line may run when the file is replaced meanwhile
