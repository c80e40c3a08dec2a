"""Certificates of an authority of the tests' own."""

import shutil
import subprocess

import pytest

KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


def make_certificates(folder):
    """Write ca.pem, cert.pem and key.pem with the commands that docs/cluster.md names."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    folder.mkdir()
    authority = f"req -x509 {KEY} -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"
    request = f"req {KEY} -nodes -subj /CN=penstock -keyout key.pem -out cert.csr"
    signature = "x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem"
    for command in (authority, request, f"{signature} -days 2"):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder
