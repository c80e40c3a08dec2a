"""Encrypted connections: the credentials of scheduler, workers and client.

``--tls DIR`` names a folder with ca.pem (the trusted authority), cert.pem (the certificate, signed
by it) and key.pem (its private key). All processes of a cluster use the same three. Without
``--tls``, Dask's configuration under ``distributed.comm`` holds; if it has none, a cluster that
penstock starts gets its own credentials (credentials.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError

if TYPE_CHECKING:
    from distributed import Security

_ROLES = ("client", "scheduler", "worker")
_PREFIX = "DASK_DISTRIBUTED__COMM__"


def security(spec: ClusterSpec) -> Security | None:
    """Return the ``distributed.Security`` that the user named, or None.

    A process with one accepts encrypted connections only, from peers with a certificate of the same
    authority.
    """
    import dask

    if spec.no_tls:
        required = dask.config.get("distributed.comm.require-encryption", None)
        if spec.tls is not None or required:
            what = "--tls" if spec.tls is not None else "Dask's configuration, which encrypts"
            raise UsageError(f"--no-tls contradicts {what}")
        return None
    return _configured() if spec.tls is None else of_folder(spec.tls)


def tls_environment(used: Security | None) -> dict[str, str]:
    """Return the variables that give processes started elsewhere the same credentials.

    They name files, which must have the same path there.
    """
    if used is None:
        return {}
    values = {"TLS__CA_FILE": used.tls_ca_file}
    for role in _ROLES:
        for part in ("cert", "key"):
            values[f"TLS__{role.upper()}__{part.upper()}"] = getattr(used, f"tls_{role}_{part}")
    values["REQUIRE_ENCRYPTION"] = used.require_encryption
    return {_PREFIX + name: str(value) for name, value in values.items() if value is not None}


def of_folder(folder: Path) -> Security:
    """Return the ``distributed.Security`` of a folder with ca.pem, cert.pem and key.pem."""
    from distributed import Security

    # Workers have another current directory.
    folder = folder.expanduser().absolute()
    files: dict[str, Any] = {"tls_ca_file": str(folder / "ca.pem")}
    for role in _ROLES:
        files[f"tls_{role}_cert"] = str(folder / "cert.pem")
        files[f"tls_{role}_key"] = str(folder / "key.pem")
    used = Security(require_encryption=True, **files)
    try:
        used.get_connection_args("scheduler")
    except OSError as error:  # ssl.SSLError is a subclass
        raise UsageError(
            f"the credentials in {folder} cannot be used",
            expected="ca.pem, cert.pem and key.pem in PEM form, of one authority",
            got=str(error),
        ) from error
    return used


def _configured() -> Security | None:
    import dask
    from distributed import Security

    tls = "distributed.comm.tls"
    named = [f"{tls}.ca-file", *(f"{tls}.{role}.cert" for role in _ROLES)]
    required = dask.config.get("distributed.comm.require-encryption", None)
    if not required and not any(dask.config.get(name, None) for name in named):
        return None
    return Security()
