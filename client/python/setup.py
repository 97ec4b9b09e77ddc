# SPDX-License-Identifier: Apache-2.0
"""Makes the stubs from proto/ when the package is built, so that they are never older than the API."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
SERVICES = ("training", "admin", "job", "event")


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        from grpc_tools import protoc

        source = HERE.parents[1] / "proto"
        if not (source / "blockswap/v1/training.proto").exists():
            raise SystemExit(f"{source} has no blockswap/v1/*.proto: build from a checkout of blockswap")
        common = pathlib.Path(protoc.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{source}", f"-I{common}", f"--python_out={self.build_lib}",
                     f"--pyi_out={self.build_lib}", f"--grpc_python_out={self.build_lib}"]
        if protoc.main(arguments + [f"blockswap/v1/{name}.proto" for name in SERVICES]) != 0:
            raise SystemExit("protoc failed")
        (pathlib.Path(self.build_lib) / "blockswap/v1/__init__.py").touch()


setup(cmdclass={"build_py": BuildWithStubs})
