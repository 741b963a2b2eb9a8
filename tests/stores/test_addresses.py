"""Passwords of addresses are used, and neither shown nor kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from widemax.cli.passwords import without_passwords
from widemax.stores.addresses import PostgresAddress, location_of, place_of
from widemax.stores.postgres import check_table_name

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"postgresql://ann:{SECRET}@db/shop", "postgresql://ann@db/shop"),
        (f"postgres://ann:{SECRET}@db:5433/shop", "postgresql://ann@db:5433/shop"),
        (f"postgresql://ann@db/shop?password={SECRET}", "postgresql://ann@db/shop"),
        (
            f"postgresql://ann:{SECRET}@/shop?host=/run/pg&sslmode=require",
            "postgresql://ann@/shop?host=/run/pg&sslmode=require",
        ),
        (f"postgresql://ann:{SECRET}@[::1]:5433/shop", "postgresql://ann@[::1]:5433/shop"),
        (f"postgresql://ann:{SECRET}@a:1,b:2/shop", "postgresql://ann@a:1,b:2/shop"),
    ],
)
def test_an_address_is_shown_without_its_password(given, shown):
    address = place_of(given)
    assert isinstance(address, PostgresAddress)
    assert address == str(address) == location_of(given) == shown
    assert SECRET not in repr(address) + f"{address}"
    assert address.password == SECRET
    assert SECRET in address.with_password()
    assert place_of(address).password == SECRET


@pytest.mark.parametrize(
    "given",
    [
        f"postgresql://ann:{SECRET}#x@db/shop",
        f"postgresql://ann:{SECRET}/x@db/shop",
        f"postgresql://ann:{SECRET} x@db/shop",
        f"postgresql://ann:{SECRET}",
        f"postgresql://ann@db/shop?sslpassword={SECRET}",
        f"postgresql://ann@db/shop?pass={SECRET}",
    ],
)
def test_what_cannot_be_taken_apart_is_refused_without_being_repeated(given):
    with pytest.raises(ValueError, match="the address of a database must") as caught:
        place_of(given)
    assert SECRET not in str(caught.value)


def test_a_path_is_no_address():
    with pytest.raises(ValueError, match="must be a text, and not a path") as caught:
        place_of(Path(f"postgresql://ann:{SECRET}@db/shop"))
    assert SECRET not in str(caught.value)
    assert place_of("shop.duckdb") == Path("shop.duckdb")


def test_arguments_lose_their_passwords():
    words = ["train", f"postgresql://ann:{SECRET}@db/shop", "--query", "select 'a=b'"]
    shown, passwords = without_passwords(words)
    assert shown == ["train", "postgresql://ann@db/shop", "--query", "select 'a=b'"]
    assert passwords == {SECRET}
    assert without_passwords(["recommend", "run"]) == (["recommend", "run"], set())


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
def test_the_list_of_processes_shows_no_password(tmp_path):
    plugin = tmp_path / "shows_itself.py"
    plugin.write_text(
        "import os, pathlib\n"
        "print('shown', pathlib.Path('/proc/self/cmdline').read_bytes())\n"
        "print('kept', os.environ.get('PGPASSWORD'))\n"
    )
    address = f"postgresql://ann:{SECRET}@127.0.0.1:1/shop"
    command = [sys.executable, "-m", "widemax", "--plugin", str(plugin), "export", "run", address]
    environment = {name: value for name, value in os.environ.items() if name != "PGPASSWORD"}
    done = subprocess.run(
        [*command, "--to", "pgvector"], capture_output=True, text=True, env=environment, check=False
    )
    shown, kept = done.stdout.splitlines()[:2]
    assert shown.startswith("shown")
    assert SECRET not in shown
    assert "ann@127.0.0.1" in shown
    assert kept == f"kept {SECRET}"
    assert done.returncode == 2
    assert SECRET not in done.stderr


@pytest.mark.parametrize(
    "name",
    ["", "a b", 'a"b', "a;b", "a.b.c", "1a", "é", "a" * 41, "a--", "a\0", "a'", "a\n", ".a", "$a"],
)
def test_hostile_names_of_tables_are_refused(name):
    with pytest.raises(ValueError, match="table must be a name of at most 40 letters"):
        check_table_name(name)
