"""Encryption: certificates of both sides, read again by a server when they change."""

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc

from radixkv.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. A server needs certificate and key; a client only to identify itself.

    Attributes
    ----------
    certificate
        Of this side; None: it does not identify itself.
    key
        Its key.
    ca
        What the other side's certificate must be signed by. A server with it takes only clients
        with such a certificate; a client without it trusts what gRPC trusts.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        """For `add_secure_port`.

        Returns
        -------
        grpc.ServerCredentials
            They follow the files.

        Raises
        ------
        InvalidArgumentError
            For files that cannot be read.
        """
        if self.certificate is None or self.key is None:
            raise InvalidArgumentError(
                "certificate and key must be given for a server; got one of them, or neither"
            )
        return _Reloading(self).credentials()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a client's channel.

        Returns
        -------
        grpc.ChannelCredentials
            Of the files as they are now.

        Raises
        ------
        InvalidArgumentError
            For files that cannot be read.
        """
        if (self.certificate is None) != (self.key is None):
            # gRPC would end the process.
            raise InvalidArgumentError(
                "certificate and key must be given together; got one of them"
            )
        contents = _read(self.ca), _read(self.key), _read(self.certificate)
        self._check()
        return grpc.ssl_channel_credentials(*contents)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now.

        Returns
        -------
        grpc.ServerCertificateConfiguration
            For gRPC.
        """
        key, certificate = _read(self.key), _read(self.certificate)
        assert key is not None
        assert certificate is not None
        self._check()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], _read(self.ca))

    def _check(self) -> None:
        """Raises InvalidArgumentError for files that gRPC would refuse without naming them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.certificate is not None:
                # A password would be asked for on the terminal.
                context.load_cert_chain(self.certificate, self.key, password="")
        except ssl.SSLError as error:
            raise InvalidArgumentError(
                f"{self.certificate} and {self.key} must be a certificate and its key, both PEM "
                f"without a password: {error}"
            ) from error
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise InvalidArgumentError(
                f"{self.ca} must have certificates in PEM: {error}"
            ) from error

    def stamps(self) -> tuple[int, ...]:
        """Changes when a file does.

        Returns
        -------
        tuple[int, ...]
            One a file.
        """
        paths = (self.certificate, self.key, self.ca)
        return tuple(Path(path).stat().st_mtime_ns for path in paths if path is not None)


class _Reloading:
    """Looks at each handshake whether the files changed; broken ones leave the old in use."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._first = tls.configuration()
        self._stamps = tls.stamps()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            cast(Any, self._fetch),  # it may return None, which gRPC's stubs leave out
            require_client_authentication=self._tls.ca is not None,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """None: as before."""
        with self._lock:
            try:
                stamps = self._tls.stamps()
                if stamps == self._stamps:
                    return None
                configuration = self._tls.configuration()
            except (OSError, InvalidArgumentError):
                return None
            self._stamps = stamps
            return configuration


def _read(path: Path | None) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from error
