"""Passwords in arguments, which everybody on a machine can read, moved into the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from widemax.stores.addresses import SCHEMES, PostgresAddress

VARIABLE = "PGPASSWORD"


def hide_passwords() -> None:
    """Start the program again, in its place, if a password stands among its arguments.

    The list of processes shows arguments to all users, the environment to nobody else. An address
    that cannot be taken apart is left to the verb, which refuses it.
    """
    words, passwords = without_passwords(sys.orig_argv[1:])
    if not passwords or os.name != "posix":
        return
    if len(passwords) > 1:
        raise ValueError("addresses with two passwords: keep them in ~/.pgpass instead")
    os.environ[VARIABLE] = passwords.pop()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *words])


def without_passwords(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return arguments without the passwords of addresses, and the passwords.

    >>> without_passwords(["train", "--from=postgresql://ann:secret@db/shop"])
    (['train', '--from=postgresql://ann@db/shop'], {'secret'})
    """
    shown, passwords = [], set()
    for word in words:
        option, equals, value = word.partition("=")
        before, text = (f"{option}=", value) if equals and option.startswith("--") else ("", word)
        if text.startswith(SCHEMES):
            try:
                address = PostgresAddress(text)
            except ValueError:
                shown.append(word)
                continue
            if address.password:
                passwords.add(address.password)
                word = f"{before}{address}"
        shown.append(word)
    return shown, passwords
