"""Encrypted connections: the credentials of scheduler, workers and client, checked before use.

``--tls DIR`` names a folder with ca.pem (whom to trust), cert.pem (who we are, signed by that) and
key.pem (its private key). All processes of a cluster use the same three. Without ``--tls``, what
Dask's own configuration says under ``distributed.comm`` holds; where that says nothing, a cluster
that penstock starts gets credentials of its own (credentials.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, UsageError, causes

if TYPE_CHECKING:
    from distributed import Security

_ROLES = ("client", "scheduler", "worker")
_PREFIX = "DASK_DISTRIBUTED__COMM__"
_SETTINGS = ("ciphers", "min-version", "max-version")


def security(spec: ClusterSpec) -> Security | None:
    """Return the ``distributed.Security`` that the user named, or None.

    What is started with one listens to encrypted connections only, and checks that the other side
    has a certificate of the same authority.
    """
    if spec.no_tls:
        _refuse_required(spec)
        return None
    found = _configured() if spec.tls is None else of_folder(spec.tls)
    if found is not None:
        source = "Dask's configuration" if spec.tls is None else str(spec.tls)
        _check(found, source)
    return found


def tls_environment(used: Security | None) -> dict[str, str]:
    """Return the variables by which processes started elsewhere use the same credentials.

    They name files, which must lie under the same path there.
    """
    import dask

    if used is None:
        return {}
    values = {"TLS__CA_FILE": used.tls_ca_file}
    for role in _ROLES:
        for part in ("cert", "key"):
            values[f"TLS__{role.upper()}__{part.upper()}"] = getattr(used, f"tls_{role}_{part}")
    for name in _SETTINGS:
        values[f"TLS__{name.upper().replace('-', '_')}"] = dask.config.get(
            f"distributed.comm.tls.{name}", None
        )
    values["REQUIRE_ENCRYPTION"] = used.require_encryption
    return {_PREFIX + name: str(value) for name, value in values.items() if value is not None}


@contextmanager
def refusals_explained(address: str, used: Security | None) -> Iterator[None]:
    """Turn what a client says when only one side encrypts, or trusts another authority, into words.

    ``address`` is the scheduler's, ``used`` what ``security`` returned for the client.
    """
    if used is None and address.startswith("tls://"):
        raise UsageError(
            f"the scheduler at {address} wants encrypted connections, and there are no credentials",
            remedy="Give the folder with its certificates: --tls DIR",
        )
    if used is not None and used.require_encryption and address.startswith("tcp://"):
        raise UsageError(
            f"the scheduler's address {address} means plain connections, and --tls encrypted ones",
            expected=address.replace("tcp://", "tls://"),
            remedy="Use that address, or leave --tls out if the scheduler does not encrypt",
        )
    try:
        yield
    except (OSError, TypeError) as error:
        cause = _cause(error, ssl.SSLError)
        if cause is not None or (used is None and _cause(error, ConnectionResetError) is not None):
            raise ClusterError(
                f"the scheduler at {address} and this client cannot agree on encryption",
                got=_reason(cause or error),
                remedy="Both need certificates of one authority: give the folder that the "
                "scheduler was started with as --tls DIR, and an address that begins with tls://",
            ) from error
        raise


def of_folder(folder: Path) -> Security:
    """Return the ``distributed.Security`` of a folder with ca.pem, cert.pem and key.pem."""
    from distributed import Security

    # Workers have another current directory.
    folder = folder.expanduser().absolute()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        _readable(folder / name)
    if "ENCRYPTED" in (folder / "key.pem").read_text(errors="replace"):
        raise UsageError(
            f"{folder / 'key.pem'} is protected with a passphrase, which no process could type",
            remedy="Store it without one (openssl pkey -in key.pem -out plain.pem), readable for "
            "its owner only",
        )
    files: dict[str, Any] = {"tls_ca_file": str(folder / "ca.pem")}
    for role in _ROLES:
        files[f"tls_{role}_cert"] = str(folder / "cert.pem")
        files[f"tls_{role}_key"] = str(folder / "key.pem")
    return Security(require_encryption=True, **files)


def _refuse_required(spec: ClusterSpec) -> None:
    import dask

    if spec.tls is not None:
        raise UsageError("--tls and --no-tls exclude each other")
    if dask.config.get("distributed.comm.require-encryption", None):
        raise UsageError(
            "Dask's configuration asks for encryption, and --no-tls for none",
            remedy="Leave --no-tls out, or distributed.comm.require-encryption",
        )


def _readable(path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}, which --tls names",
            expected="ca.pem, cert.pem and key.pem in that folder",
            got=error.strerror,
        ) from error


def _configured() -> Security | None:
    import dask
    from distributed import Security

    tls = "distributed.comm.tls"
    named = [f"{tls}.ca-file", *(f"{tls}.{role}.cert" for role in _ROLES)]
    required = dask.config.get("distributed.comm.require-encryption", None)
    if not required and not any(dask.config.get(name, None) for name in named):
        return None
    used = Security()
    for role in _ROLES:
        if used.tls_ca_file and getattr(used, f"tls_{role}_cert"):
            return used
    raise UsageError(
        "Dask's configuration asks for encryption and names no credentials",
        expected=f"{tls}.ca-file and a certificate and key for each of {', '.join(_ROLES)}",
        remedy="Add them, or give a folder with ca.pem, cert.pem and key.pem: --tls DIR",
    )


def _check(used: Security, source: str) -> None:
    """Load what was found, and let both ends of a connection meet in memory.

    A certificate that ran out, or that another authority signed, is reported here and now; across a
    network both ends would only see that the other one hung up.
    """
    remedy = "Make the three files again, or name another folder: --tls DIR"
    try:
        contexts = {
            role: used.get_connection_args(role)["ssl_context"]
            for role in _ROLES
            if getattr(used, f"tls_{role}_cert")
        }
        listener = (
            used.get_listen_args("scheduler")["ssl_context"] if "scheduler" in contexts else None
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(
            f"the credentials in {source} cannot be used",
            expected="certificates and keys in PEM form that belong together",
            got=_reason(error),
            remedy=remedy,
        ) from error
    if listener is None:
        return
    for role in ("worker", "client"):
        if role in contexts:
            try:
                _meet(contexts[role], listener)
            except ssl.SSLError as error:
                raise UsageError(
                    f"scheduler and {role} could not connect with the credentials in {source}",
                    expected="certificates that are valid now and signed by the authority in "
                    "the ca file",
                    got=_reason(error),
                    remedy=remedy,
                ) from error


def _meet(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # TLS 1.3 needs one round trip, older ones two; a failure shows at the end that finds it.
    for end in ends * 4:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    found = causes(error) if error is not None else iter(())
    return next((one for one in found if isinstance(one, kind)), None)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
