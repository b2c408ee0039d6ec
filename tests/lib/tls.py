"""An authority of a test's own, and certificates by it."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Certified:
    """Files: the authority, which clients have to trust, and a server's certificate with its key."""

    authority: Path
    certificate: Path
    key: Path


def certified(folder: Path, *names: str) -> Certified:
    """For a server of these names; one may be an IPv4 address."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    end = begin + datetime.timedelta(days=30)

    def subject(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def named(name: str) -> x509.GeneralName:
        is_address = name.replace(".", "").isdigit()
        return x509.IPAddress(ipaddress.ip_address(name)) if is_address else x509.DNSName(name)

    def made(whose: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(subject("eyas tests"), subject(whose), key.public_key())
        builder = (
            builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        )
        return builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)

    of_authority, of_server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = made("eyas tests", of_authority, True).sign(of_authority, hashes.SHA256())
    server = made(names[0], of_server, False)
    server = server.add_extension(
        x509.SubjectAlternativeName([named(name) for name in names]), critical=False
    )
    files = Certified(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    certificate = server.sign(of_authority, hashes.SHA256())
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        of_server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
