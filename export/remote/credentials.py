"""Tokens and certificates for requests to a server.

A token is only sent over TLS, and never appears in an error message.
"""

import os
import re
import ssl
from pathlib import Path

HIDDEN = "[token]"


def read_token(variable=None, file=None):
    """The token from an environment variable or a file; None if neither is given.

    Raises:
        ValueError: there is none, or it is not valid in a header. The message does not contain it.
    """
    if variable is not None:
        where, token = f"the environment variable {variable}", os.environ.get(variable, "")
    elif file is not None:
        where = f"the file {file}"
        try:
            token = Path(file).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise ValueError(f"the token cannot be read: {error}") from error
    else:
        return None
    try:
        return check_token(token.strip())
    except ValueError as error:
        raise ValueError(f"{error}; {where} has another text or none") from None


def check_token(token):
    """The token, if it is valid in a header. A newline in it could add another header."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("token must be visible ASCII characters without spaces, at least one")
    return token


def check_transport(where, encrypted, ca, token):
    """Raises a ValueError if `ca` or `token` is given for a connection without encryption."""
    for name, value in (("ca", ca), ("token", token)):
        if value is not None and not encrypted:
            raise ValueError(f"{name} needs https:// or grpcs://, got {where!r}")


def tls_context(ca=None):
    """The SSL context for REST: trusts the authorities in a PEM file, or else the system's."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else Path(ca))
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ValueError(f"ca must be a PEM file of certificates, got {ca!r}: {reason}") from error


def channel_credentials(ca=None):
    """The channel credentials for gRPC, like `tls_context`."""
    import grpc

    tls_context(ca)  # checks the file; gRPC reports a wrong file only at connection, unclearly
    return grpc.ssl_channel_credentials(None if ca is None else Path(ca).read_bytes())


def distrust(reason):
    """Why a certificate is not trusted, from an exception or gRPC's details; None: other errors."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return reason.verify_message
    if isinstance(reason, str):
        found = re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:\]]*)|(Hostname Verification.*)", reason)
        return found and (found[1] or found[2]).strip()
    return None
