"""The credentials of a cluster that penstock starts: made for it, and removed with it.

Scheduler, workers and clients show each other one certificate, which only the holder of its key
can show, and speak TLS. Key and certificate are files in a folder that only their owner can enter;
ranks and jobs get the folder's path, never its contents.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.daemon.registry import state_folder
from penstock.cluster.security import of_folder, security
from penstock.cluster.spec import ClusterSpec
from penstock.temporary import TemporaryFolder

if TYPE_CHECKING:
    from distributed import Security

# Clocks of hosts differ; the key is deleted long before this ends.
_BEFORE, _VALID = timedelta(days=1), timedelta(days=3650)
_UNUSED = (
    *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("crl_sign", "encipher_only", "decipher_only"),
)


@contextmanager
def credentials(spec: ClusterSpec, folder: Path | None) -> Iterator[Security | None]:
    """Give the ``distributed.Security`` of a cluster that starts; None for --no-tls.

    Credentials that the user named hold. Otherwise they are made below ``folder``, which only the
    owner can read; None: below the state folder, which other hosts see if the home is shared.
    """
    named = security(spec)
    if named is not None or spec.no_tls:
        yield named
    elif folder is not None:
        yield of_folder(make_credentials(folder / "tls"))
    else:
        state = state_folder()
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFolder(".credentials", state) as shared:
            yield of_folder(make_credentials(shared / "tls"))


def make_credentials(folder: Path) -> Path:
    """Write ca.pem, cert.pem and key.pem to ``folder``, a new folder for its owner only."""
    shown, key = certificate()
    folder.mkdir(mode=0o700)
    for name, text in (("ca.pem", shown), ("cert.pem", shown), ("key.pem", key)):
        _write(folder / name, text)
    return folder


def _write(path: Path, text: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(text)


def as_files(used: Security, folder: Path) -> Security:
    """Return ``used`` with files instead of texts, which another process can read."""
    from distributed import Security

    if used is None or not any("\n" in str(text) for _, text in _parts(used)):
        return used
    folder.mkdir(mode=0o700)
    files: dict[str, Any] = {"require_encryption": used.require_encryption}
    for name, text in _parts(used):
        files[name] = text
        if text is not None and "\n" in text:
            _write(folder / name, text.encode())
            files[name] = str(folder / name)
    return Security(**files)


def _parts(used: Security) -> list[tuple[str, str | None]]:
    names = [
        f"tls_{role}_{part}"
        for role in ("client", "scheduler", "worker")
        for part in ("cert", "key")
    ]
    return [(name, getattr(used, name)) for name in ("tls_ca_file", *names)]


def certificate() -> tuple[bytes, bytes]:
    """Return a self-signed certificate and its key, both as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"penstock-{secrets.token_hex(8)}")])
    now = datetime.now(UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage: dict[str, Any] = dict.fromkeys(_UNUSED, False)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _VALID)
        # Strict OpenSSL requires these of an authority, and of both ends of a connection.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True
        )
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
