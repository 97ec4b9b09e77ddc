# SPDX-License-Identifier: Apache-2.0
"""The channel to a server: a Unix socket, or TLS with a token or a client certificate."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Any

import grpc

MAX_TOKEN_BYTES = 4096


def read_token(path: pathlib.Path) -> str:
    """The one word in `path`. ValueError when it has none, or everybody may read the file; the token is in no message."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
            raise ValueError(f"everybody on this machine may read the token file {path}; chmod 0600 {path}")
        token = file.read(MAX_TOKEN_BYTES + 1).strip()
    if not token or len(token) > MAX_TOKEN_BYTES or not all(0x20 < byte < 0x7F for byte in token):
        raise ValueError(f"there is no token, one word in one line, in {path}")
    return token.decode("ascii")


def channel_to(target: str, credentials: grpc.ChannelCredentials | None, **files: Any) -> grpc.Channel:
    if target.startswith("/"):
        target = f"unix:{target}"
    if credentials is None:
        credentials = _credentials(target, **files)
    return grpc.secure_channel(target, credentials)


def _credentials(target: str, *, token_file: Any, tls_ca: Any, tls_cert: Any, tls_key: Any) -> grpc.ChannelCredentials:
    token_path = _named(token_file, "BLOCKSWAP_TOKEN_FILE")
    token = read_token(token_path) if token_path else None
    if target.startswith("unix:"):
        channel = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    else:
        certificate, key = _named(tls_cert, "BLOCKSWAP_TLS_CERT"), _named(tls_key, "BLOCKSWAP_TLS_KEY")
        if token is None and certificate is None:
            raise ValueError(f"{target} takes a token: name its file with token_file or BLOCKSWAP_TOKEN_FILE")
        if (certificate is None) != (key is None):
            raise ValueError("a client certificate and its key go together: tls_cert and tls_key")
        authority = _named(tls_ca, "BLOCKSWAP_TLS_CA")
        channel = grpc.ssl_channel_credentials(*(path.read_bytes() if path else None for path in (authority, key, certificate)))
    if token is None:
        return channel
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(token))


def _named(path: Any, variable: str) -> pathlib.Path | None:
    name = path or os.environ.get(variable)
    return pathlib.Path(name) if name else None
