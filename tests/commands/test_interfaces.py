"""A domain whose settings name a network interface of another host: said in one sentence, with its place."""

from __future__ import annotations

import pytest

from ospltool.cli.domains import watched
from tests.commands.shell import Shell

FAR, OTHER = "192.0.2.77", "192.0.2.78"
SETTING = "//OpenSplice/DDSI2Service/General/NetworkInterfaceAddress"


@pytest.fixture
def fleet(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """n1 is on another host, n2 anywhere, in the file `far.toml` n1 alone."""
    monkeypatch.delenv("CYCLONEDDS_URI", raising=False)
    network = "<DDSI2Service><General>\n<NetworkInterfaceAddress>{}</NetworkInterfaceAddress></General>"
    for name, interface in (("n1", FAR), ("n2", "127.0.0.1")):
        path = shell.write(name)
        text = path.read_text().replace(
            "</OpenSplice>", f"{network.format(interface)}</DDSI2Service></OpenSplice>"
        )
        path.write_text(text)
    nodes = [f'[[node]]\nname = "{name}"\nfile = "{name}.xml"\n' for name in ("n1", "n2")]
    (shell.root / "far.toml").write_text(nodes[0])
    (shell.root / "fleet.toml").write_text("".join(nodes))
    return shell


@pytest.mark.parametrize(
    "command",
    [
        "health far.toml",
        "top --json far.toml",
        "metrics far.toml",
        "record far.toml --once",
        "doctor n1.xml",
        "cat T n1.xml",
    ],
)
def test_an_interface_of_another_host_is_one_sentence_with_its_place(fleet: Shell, command: str) -> None:
    code, out, err = fleet.run(*command.split())
    (line,) = err.splitlines()
    assert (code, out) == (3, "")
    before, _, rest = line.partition(f": {SETTING}: ")
    assert before.rpartition("n1.xml:")[2].replace(":", "").isdigit(), line
    assert rest.startswith(f"this machine has no network interface '{FAR}'; it has ")
    assert rest.endswith("; AUTO takes the first suitable one, CYCLONEDDS_URI may name another")


def test_an_interface_of_cyclonedds_uri_is_one_sentence(
    fleet: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = f"<General><Interfaces><NetworkInterface address='{OTHER}'/></Interfaces></General>"
    monkeypatch.setenv("CYCLONEDDS_URI", f"<CycloneDDS><Domain>{given}</Domain></CycloneDDS>")
    for command in ("health --domain 7", "persistence status", "health far.toml"):
        code, _, err = fleet.run(*command.split())
        (line,) = err.splitlines()
        assert code == 3
        assert f"CYCLONEDDS_URI: this machine has no network interface '{OTHER}'; it has " in line


def test_a_fleet_is_watched_through_the_settings_that_this_machine_can_use(fleet: Shell) -> None:
    """Each host has its own address in its own file: the first node's is of another host."""
    (one,) = watched("fleet.toml", None)
    assert one.place.configuration is not None
    assert one.place.configuration.domain.name == "n2"
    assert one.expected.nodes == ("n1", "n2")
