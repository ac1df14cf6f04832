"""A master that cannot be used is refused before Spark starts, in a sentence."""

from __future__ import annotations

import pathlib
import socket
import time

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

from ospltool.analytics.case import CaseError
from ospltool.analytics.spark import check_master

SITE = """<configuration>
<property><name>yarn.resourcemanager.{name}</name>
  <value>{value}</value></property>
</configuration>"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("master", "told"),
    [
        ("nonsense", "no such master"),
        ("mesos://zk:5050", "no such master"),
        ("spark://127.0.0.1:{port}", "cannot be reached"),
        ("k8s://https://127.0.0.1:{port}", "cannot be reached"),
        ("k8s://127.0.0.1:{port}", "cannot be reached"),
        ("sc://127.0.0.1:{port}/;token=x", "cannot be reached"),
        ("yarn", "HADOOP_CONF_DIR"),
    ],
)
def test_what_is_not_there_is_said_at_once(master: str, told: str, port: int) -> None:
    begin = time.monotonic()
    with pytest.raises(CaseError, match=told):
        check_master(master.format(port=port), {})
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("name", ["address", "address.rm1", "hostname"])
def test_the_resource_manager_of_yarn_is_looked_for(name: str, port: int, tmp_path: pathlib.Path) -> None:
    environ = {"HADOOP_CONF_DIR": str(tmp_path)}
    with pytest.raises(CaseError, match=r"yarn-site\.xml"):
        check_master("yarn", environ)
    (tmp_path / "yarn-site.xml").write_text(SITE.format(name=name, value=f"127.0.0.1:{port}"))
    with pytest.raises(CaseError, match="cannot be reached"):
        check_master("yarn", environ)
    with socket.create_server(("127.0.0.1", port)):
        check_master("yarn", environ)
    (tmp_path / "yarn-site.xml").write_text(SITE.format(name=name, value="${rm}:8032"))
    check_master("yarn", environ)


def test_what_answers_is_taken(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}", {})
        check_master(f"k8s://https://127.0.0.1:{port}", {})
    check_master("local[2]", {})
