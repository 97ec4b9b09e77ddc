# SPDX-License-Identifier: Apache-2.0
"""F135: a LibTorch or CUDA that does not fit stops the configuration with a sentence that says what to do."""

import subprocess

import pytest


class Tree:
    """A LibTorch and a CUDA include directory as the checks see them."""

    def __init__(self, folder, source_root):
        self.torch, self.cuda = folder / "torch", folder / "cuda"
        self.script = source_root / "deploy/cmake/BlockswapToolkits.cmake"
        (self.torch / "lib").mkdir(parents=True)
        (self.torch / "include/torch/headeronly").mkdir(parents=True)
        self.cuda.mkdir()
        self.version(2, 11, 0)
        (self.torch / "lib/libc10.so").write_bytes(b"\x7fELF\0_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE\0")
        (self.torch / "lib/libtorch_cuda.so").write_bytes(b"\x7fELF")
        (self.cuda / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  13000\n")

    def version(self, *parts):
        names = ("MAJOR", "MINOR", "PATCH")
        (self.torch / "include/torch/headeronly/version.h").write_text(
            "".join(f"#define TORCH_VERSION_{name} {part}\n" for name, part in zip(names, parts)))

    def check(self):
        return subprocess.run(["cmake", f"-DTORCH={self.torch}", f"-DCUDA_INCLUDE={self.cuda}", "-P", self.script],
                              capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path, source_root):
    return Tree(tmp_path, source_root)


def sentence(done):
    """CMake wraps messages; one line again."""
    assert done.returncode != 0, done.stdout + done.stderr
    return " ".join(done.stderr.split())


def test_what_fits_passes_and_is_named(tree):
    done = tree.check()
    assert done.returncode == 0, done.stderr
    assert "torch 2.11.0 cuda 13.0" in done.stdout


def test_F135_the_old_string_abi_is_named(tree):
    (tree.torch / "lib/libc10.so").write_bytes(b"\x7fELF\0_ZN3c105ErrorC1ESs\0")
    said = sentence(tree.check())
    assert "old string ABI" in said and "deploy/bootstrap.sh" in said


def test_F135_a_cpu_only_build_is_named_with_the_option_that_wants_it(tree):
    (tree.torch / "lib/libtorch_cuda.so").unlink()
    said = sentence(tree.check())
    assert "CPU-only" in said and "BLOCKSWAP_WITH_CUDA=OFF" in said


def test_F135_a_missing_or_older_cuda_is_named(tree):
    (tree.cuda / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  12080\n")
    assert "is 12.8, 13 is needed" in sentence(tree.check())
    (tree.cuda / "cuda_runtime_api.h").unlink()
    said = sentence(tree.check())
    assert "no CUDA runtime headers" in said and "BLOCKSWAP_WITH_CUDA=OFF" in said


def test_F135_another_version_or_an_empty_directory_is_named(tree):
    tree.version(2, 9, 1)
    assert "is 2.9.1, 2.11 is needed" in sentence(tree.check())
    (tree.torch / "lib/libc10.so").unlink()
    assert "is not a LibTorch 2.11" in sentence(tree.check())


def test_F135_the_programs_say_what_they_were_built_with(programs):
    said = programs.run("blockswap-worker", "version").stdout
    assert "LibTorch 2.11." in said and "CUDA 13." in said and "string ABI 1" in said
    assert "string ABI 1" in programs.run("blockswapd", "--version").stdout
