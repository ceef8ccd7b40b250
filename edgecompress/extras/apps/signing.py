"""Detached signatures beside a package, FILE.minisig: Ed25519, as the program minisign makes and checks them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import atomic_file
from edgecompress.core.errors import InputError, blamed

if TYPE_CHECKING:
    from minisign import PublicKey, SecretKey

SUFFIX = ".minisig"
PASSWORD = "EDGECOMPRESS_KEY_PASSWORD"  # the variable that holds a secret key's password, where nobody can be asked
LARGEST = 1 << 16  # bytes of a key or a signature: they have some hundred


def secret(file: Path) -> SecretKey:
    """The secret key in a file that `minisign -G` made, ready to sign. Raises InputError.

    An encrypted one is opened with the password in EDGECOMPRESS_KEY_PASSWORD, or asks for it on a terminal.
    """
    from minisign import Error, SecretKey

    try:
        key = SecretKey.from_bytes(_small(file))
        if key.is_encrypted():
            key.decrypt(_password(file))
    except (OSError, Error) as error:
        raise blamed(error)(f"{file}: not a minisign secret key, or it cannot be decrypted: {error}") from error
    return key


def _small(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(LARGEST)


def _password(file: Path) -> str:
    if password := os.environ.get(PASSWORD):
        return password
    if not sys.stdin.isatty():
        raise InputError(f"{file}: is encrypted, and there is no terminal to ask for its password; set {PASSWORD}")
    import getpass

    return getpass.getpass(f"Password of {file}: ")


def sign(file: Path, key: SecretKey) -> Path:
    """Writes FILE.minisig and returns it; the same file and key give the same bytes."""
    name = "".join(char if char.isascii() and char.isprintable() else "?" for char in file.name)
    with file.open("rb") as content:
        signature = key.sign(content, prehash=True, trusted_comment=f"file:{name}\thashed")
    place = signature_of(file)
    atomic_file.write(place, bytes(signature) + b"\n")
    return place


def signature_of(file: Path) -> Path:
    """Where the signature of a file lies."""
    return file.with_name(file.name + SUFFIX)


def public(key: str) -> PublicKey:
    """A public key: a file, or the line of 56 characters itself. Raises InputError."""
    from minisign import Error, PublicKey

    try:
        return PublicKey.from_bytes(_small(Path(key))) if Path(key).is_file() else PublicKey.from_base64(key)
    except (OSError, ValueError, Error) as error:
        raise blamed(error)(f"--key {key[:200]}: neither a file with a minisign public key nor such a key") from error


def check(file: Path, key: PublicKey) -> None:
    """Raises InputError unless FILE.minisig is the signature of the file's bytes with that key."""
    from minisign import Error, Signature

    beside = signature_of(file)
    try:
        signature = Signature.from_bytes(_small(beside))
        with file.open("rb") as content:
            key.verify(content, signature)
    except FileNotFoundError as error:
        raise InputError(f"{beside.name}: is missing") from error
    except (OSError, ValueError, Error) as error:
        raise InputError(f"{beside.name}: is not a valid signature of this file by that key: {error}") from error
