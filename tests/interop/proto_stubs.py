# SPDX-License-Identifier: Apache-2.0
"""The Python modules of proto/, made on the spot."""

import pathlib
import sys
import types

from grpc_tools import protoc


def make_stubs(source_root, directory):
    """The modules generated from proto/blockswap/v1, as attributes training, admin, job, event and their stubs."""
    names = ("training", "admin", "job", "event")
    arguments = ["protoc", f"-I{source_root / 'proto'}", f"-I{pathlib.Path(protoc.__file__).parent / '_proto'}"]
    arguments += [f"--python_out={directory}", f"--grpc_python_out={directory}"]
    assert protoc.main(arguments + [f"blockswap/v1/{name}.proto" for name in names]) == 0
    sys.path.insert(0, str(directory))
    try:
        from blockswap.v1 import admin_pb2, admin_pb2_grpc, event_pb2, job_pb2, training_pb2, training_pb2_grpc
    finally:
        sys.path.remove(str(directory))
    return types.SimpleNamespace(
        admin=admin_pb2,
        admin_stub=admin_pb2_grpc.AdminServiceStub,
        event=event_pb2,
        job=job_pb2,
        training=training_pb2,
        training_stub=training_pb2_grpc.TrainingServiceStub,
    )
