# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` and the Debian packages: what is in them, and that the programs run from there."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

SYSTEMD_EXPOSURE_LIMIT = 3.0  # of 10; a unit without any hardening has 9.6


def run(*command, **keywords):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **keywords)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}{done.stderr}",
                    pytrace=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def build(programs):
    return programs.directory.parent


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", build, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def packages(build, tmp_path_factory):
    """Name -> file of each Debian package, built from what is built."""
    folder = tmp_path_factory.mktemp("packages")
    run("cpack", "-G", "DEB", "-B", folder, "-D", f"CPACK_OUTPUT_FILE_PREFIX={folder}", cwd=build)
    return {run("dpkg-deb", "-f", file, "Package").strip(): file for file in sorted(folder.glob("*.deb"))}


def dynamic(program):
    return run("readelf", "-d", program)


def test_programs_are_installed_and_run(installed):
    assert "blockswapd" in run(installed / "bin/blockswapd", "--version")
    assert "blockswap" in run(installed / "bin/blockswap", "version")
    assert (installed / "bin/blockswap-install-torch").stat().st_mode & 0o111
    assert (installed / "share/blockswap/requirements.lock").exists()


def test_the_worker_finds_libtorch_beside_itself_and_names_no_path_of_the_build(installed, build):
    worker = installed / "bin/blockswap-worker"
    paths = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic(worker))
    assert paths == ["$ORIGIN/../lib/blockswap/site/torch/lib"]
    built = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic(build / "bin/blockswap-worker"))
    wheel = pathlib.Path(next(part for part in built[0].split(":") if part.endswith("torch/lib")))
    site = installed / "lib/blockswap/site"
    site.parent.mkdir(parents=True)
    site.symlink_to(wheel.parents[1])
    said = run(worker, "version", env={key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"})
    assert "libtorch" in said.lower()
    site.unlink()


def test_programs_are_hardened(installed):
    for name in ("blockswapd", "blockswap", "blockswap-worker"):
        program = installed / "bin" / name
        header = run("readelf", "-h", program)
        assert "DYN (Position-Independent Executable" in header, f"{name} is not position independent"
        segments = run("readelf", "-lW", program)
        assert "GNU_RELRO" in segments
        assert re.search(r"GNU_STACK.* RW ", segments), f"{name} has an executable stack"
        assert re.search(r"\bNOW\b", dynamic(program)), f"{name} binds lazily"
        symbols = run("readelf", "--dyn-syms", "-W", program)
        assert "__stack_chk_fail" in symbols, f"{name} does not check its stack"


def test_two_packages_with_what_they_need(packages):
    assert set(packages) == {"blockswap", "blockswap-worker"}
    listing = run("dpkg-deb", "-c", packages["blockswap"])
    for path in ("usr/local/bin/blockswapd", "usr/bin/blockswapd"):
        if f"./{path}\n" in listing:
            break
    else:
        pytest.fail(f"no blockswapd in\n{listing}")
    for part in ("bin/blockswap\n", "man/man1/blockswap.1", "bash-completion/completions/blockswap\n", "lib/systemd/system/blockswapd.service", "lib/sysusers.d/blockswap.conf",
                 "blockswap/blockswapd.toml", "SECURITY.md"):
        assert part in listing, part
    assert "site-packages" not in listing and "__pycache__" not in listing
    needs = run("dpkg-deb", "-f", packages["blockswap"], "Depends")
    for library in ("libc6", "libgrpc++", "libprotobuf", "libsqlite3"):
        assert library in needs, needs
    assert "libgrpc++" in run("dpkg-deb", "-f", packages["blockswap-worker"], "Depends")
    for name in packages:
        assert re.fullmatch(r"\d+\.\d+\.\d+", run("dpkg-deb", "-f", packages[name], "Version").strip())


def test_settings_survive_an_upgrade_and_scripts_are_there(packages, tmp_path):
    run("dpkg-deb", "-e", packages["blockswap"], tmp_path / "control")
    conffiles = (tmp_path / "control/conffiles").read_text().split()
    assert len(conffiles) == 1 and conffiles[0].endswith("/blockswap/blockswapd.toml")
    assert conffiles[0].lstrip("/") in run("dpkg-deb", "-c", packages["blockswap"])
    for script in ("postinst", "prerm", "postrm"):
        assert (tmp_path / "control" / script).stat().st_mode & 0o111
    assert "rm -rf" not in (tmp_path / "control/postrm").read_text(), "jobs and results stay, also at purge"


@pytest.fixture(scope="module")
def unit(installed, tmp_path_factory):
    """The installed unit with a path that exists, so that systemd can look at the program."""
    text = (installed / "lib/systemd/system/blockswapd.service").read_text()
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={installed}/bin/blockswapd", text, flags=re.MULTILINE)
    file = tmp_path_factory.mktemp("unit") / "blockswapd.service"
    file.write_text(text)
    return file


def test_systemd_finds_nothing_wrong_with_the_unit(unit):
    said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    assert "blockswapd.service" not in said, said


def test_the_unit_is_confined_but_sees_the_gpu(unit):
    said = run("systemd-analyze", "security", "--offline=true", unit)
    exposure = float(re.search(r"Overall exposure level for blockswapd.service: ([0-9.]+)", said).group(1))
    assert exposure <= SYSTEMD_EXPOSURE_LIMIT, said
    text = unit.read_text()
    for line in ("Type=notify", "PrivateDevices=no", "DeviceAllow=char-nvidia*", "LimitMEMLOCK=infinity", "Delegate=yes",
                 "KillMode=process", "Restart=on-failure"):
        assert re.search(f"^{re.escape(line)}", text, flags=re.MULTILINE), line
    assert "MemoryDenyWriteExecute=yes" not in text, "torch and the driver compile kernels while they run"


def test_every_tool_is_there():
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "readelf", "systemd-analyze"):
        assert shutil.which(tool), f"{tool} is missing: run deploy/bootstrap.sh"
