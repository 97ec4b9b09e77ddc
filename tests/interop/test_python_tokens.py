# SPDX-License-Identifier: Apache-2.0
"""The Python package over TLS and over the Unix socket, with tokens from files."""

import os

import pytest

from test_cli_tokens import make_token, server  # noqa: F401
from test_python_client import blockswap  # noqa: F401


def test_a_token_from_a_file_opens_tls_and_narrows_the_socket(blockswap, server, monkeypatch):  # noqa: F811
    token = make_token(server, "python", "viewer")
    files = {"token_file": token, "tls_ca": server.directory / "tls.crt"}
    with blockswap.Client(f"localhost:{server.port}", **files) as client:
        assert client.devices() and list(client.list()) == []
        with pytest.raises(blockswap.Error) as denied:
            client.cancel("some-job")
        assert denied.value.reason == "ACCESS_DENIED"
    monkeypatch.setenv("BLOCKSWAP_TOKEN_FILE", str(token))
    monkeypatch.setenv("BLOCKSWAP_TLS_CA", str(server.directory / "tls.crt"))
    with blockswap.Client(f"localhost:{server.port}") as client:
        assert client.devices()
    with blockswap.Client(f"unix:{server.socket}") as client:
        assert client.devices()
        with pytest.raises(blockswap.Error) as denied:
            client.cancel("some-job")
        assert denied.value.reason == "ACCESS_DENIED"


def test_a_revoked_token_is_out(blockswap, server):  # noqa: F811
    token = make_token(server, "python-gone", "viewer")
    server.run("token", "revoke", "python-gone", "-y")
    with blockswap.Client(f"localhost:{server.port}", token_file=token, tls_ca=server.directory / "tls.crt") as client:
        with pytest.raises(blockswap.Error) as refused:
            client.devices()
        assert refused.value.reason == "TOKEN_INVALID"


def test_what_cannot_be_sent_safely_is_refused_here(blockswap, server, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.delenv("BLOCKSWAP_TOKEN_FILE", raising=False)
    with pytest.raises(ValueError, match="token_file"):
        blockswap.Client(f"localhost:{server.port}")
    open_file = tmp_path / "token"
    open_file.write_text("bst_secret")
    os.chmod(open_file, 0o644)
    with pytest.raises(ValueError, match="chmod 0600") as refused:
        blockswap.Client(f"localhost:{server.port}", token_file=open_file)
    assert "bst_secret" not in str(refused.value)
    os.chmod(open_file, 0o600)
    open_file.write_text("two words")
    with pytest.raises(ValueError, match="no token"):
        blockswap.Client(f"localhost:{server.port}", token_file=open_file)
    open_file.write_text("bst_secret")
    with pytest.raises(ValueError, match="go together"):
        blockswap.Client(f"localhost:{server.port}", token_file=open_file, tls_cert=server.directory / "tls.crt")
