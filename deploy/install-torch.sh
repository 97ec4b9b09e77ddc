#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts LibTorch where an installed blockswap-worker looks for it: the wheel and NVIDIA's libraries of deploy/requirements.lock, by
# hash, without their Python dependencies. The worker is not shipped with them: they are 4 GB and change less often.
#
#   install-torch.sh [--prefix PREFIX]     default /usr; fills PREFIX/lib/blockswap/site
#
# Running it again with the same lock does nothing; an interrupted run leaves the old directory as it was.
set -euo pipefail

fail() {
  printf 'install-torch: %s\n' "$*" >&2
  exit 1
}

prefix=/usr
while (($# > 0)); do
  case "$1" in
    --prefix)
      (($# >= 2)) || fail "--prefix needs a directory"
      prefix="$2"
      shift 2
      ;;
    -h | --help)
      sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
lock=""
for candidate in "${here}/requirements.lock" "${here}/../share/blockswap/requirements.lock"; do
  [[ -f "${candidate}" ]] && lock="${candidate}" && break
done
[[ -n "${lock}" ]] || fail "requirements.lock is neither beside this script nor in ../share/blockswap"

# A package of the lock is a line NAME==VERSION with its hashes on the lines that follow.
selected="$(awk '/^[a-z0-9]/ { keep = /^(torch|nvidia-[a-z0-9-]+)==/ } keep' "${lock}")"
grep -q '^torch==' <<<"${selected}" || fail "${lock} names no torch"
wanted="$(sha256sum <<<"${selected}" | cut -d' ' -f1)"

site="${prefix}/lib/blockswap/site"
if [[ "$(cat "${site}/.complete" 2>/dev/null || true)" == "${wanted}" ]]; then
  printf 'install-torch: %s is complete\n' "${site}"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail "python3 with pip is needed: install python3-pip"

mkdir -p "${prefix}/lib/blockswap"
partial="$(mktemp -d "${prefix}/lib/blockswap/site.partial.XXXXXX")"
trap 'rm -rf "${partial}"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
  --target "${partial}" -r /dev/stdin <<<"${selected}"
chmod 755 "${partial}"
printf '%s\n' "${wanted}" >"${partial}/.complete"
rm -rf "${site}.old"
[[ ! -e "${site}" ]] || mv "${site}" "${site}.old"
mv "${partial}" "${site}"
rm -rf "${site}.old"
printf 'install-torch: %s holds LibTorch\n' "${site}"
