"""Who asks a server, and whether it is the one that it says it is: tokens and certificates.

A token goes over TLS alone, and no message of an error has it.
"""

import os
import re
import ssl
from pathlib import Path

HIDDEN = "[token]"


def read_token(variable=None, file=None):
    """The token in an environment variable or in a file; None where neither is named.

    Raises:
        ValueError: there is none, or it cannot stand in a header. It is not in the message.
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
    """The token, if it can stand in a header: else it could bring a header of its own."""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("token must be visible ASCII characters without spaces, at least one")
    return token


def check_transport(where, encrypted, ca, token):
    """Raises a ValueError if an authority or a token is given for what is not encrypted."""
    if not encrypted:
        for name, value in (("ca", ca), ("token", token)):
            if value is not None:
                raise ValueError(f"{name} needs https:// or grpcs://, got {where!r}")


def tls_context(ca=None):
    """What REST checks a certificate with: the authorities in the file `ca`, else the system's.

    Raises:
        ValueError: it is no such file.
    """
    try:
        return ssl.create_default_context(cafile=None if ca is None else Path(ca))
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ValueError(f"ca must be a PEM file of certificates, got {ca!r}: {reason}") from error


def channel_credentials(ca=None):
    """What gRPC checks a certificate with: as `tls_context`."""
    import grpc

    tls_context(ca)  # gRPC says what is wrong with a file only when it connects, and not in words
    return grpc.ssl_channel_credentials(None if ca is None else Path(ca).read_bytes())


def distrust(reason):
    """Why a certificate was not trusted, by an exception or by the details of gRPC; else None."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return reason.verify_message
    if isinstance(reason, str):
        found = re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:\]]*)|(Hostname Verification.*)", reason)
        return found and (found[1] or found[2]).strip()
    return None
