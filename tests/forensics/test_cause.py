"""`ospltool explain FILE`: what a text is, what went wrong first, why, and what to do."""

from __future__ import annotations

import gzip
import io
import json
import pathlib

import pytest

from ospltool.cli.app import main
from ospltool.trace.meaning.reports import meaning_of, report_meanings

RULE = "=" * 88 + "\n"
LINE = "-" * 88 + "\n"


def report(text: str, kind: str = "ERROR", at: str = "1700000000.000000001", process: str = "app <1>") -> str:
    """A report of 6.9, of an application."""
    return (
        f"{RULE}Report      : {kind}\nDate        : 2023-11-14T22:13:20+0000\nDescription : {text}\n"
        f"Node        : host\nProcess     : {process}\nThread      : main 7f\n"
        f"Internals   : 6.9.210323OSS///some::function/s_file.c/7/0/{at}/0\n"
    )


def stack(*sections: str) -> str:
    """A stack of an API call of 6.9; the cause is the last section."""
    head = (
        f"{RULE}Context     : dds_topic_create\nDate        : 2023-11-14T22:13:20+0000\nNode        : host\n"
        "Process     : app <1>\nThread      : 1\nInternals   : dds_topic.c/181/6.9.181127OSS/a/b/0\n"
    )
    parts = (f"{LINE}Report      : {one}\nInternals   : f/f.c/1/3/1700000000.000000001\n" for one in sections)
    return head + "".join(parts)


OLD = (
    f"{RULE}Report      : ERROR\nDate        : Sun Dec 11 06:04:57 2011\nDescription : c_open failed\n"
    "Node        : host\nProcess     : /opt/java <2335>\nThread      : main thread 7b\n"
    "Internals   : V5.3.0p3/u_kernelOpen/u_kernel.c/735/0/118363685\n"
)
COMMERCIAL = (
    f"{RULE}Report      : ERROR\nDate        : 2024-07-05T12:45:47+0500\n"
    "Description : Failed to checkout license feature 'OPENSPLICE_SPLICED'\n"
    "              No license for product (-1) '/opt/license'\n"
    "Node        : host\nProcess     : java.exe <2>\nThread      : spliced 6436\n"
    "Internals   : P838/6.10.4p2/0f/1b/Licensing/ospl_license.c/187/0/1720165547.559523500/-1\n"
)
LEASE = (
    "Splice-daemon failed to renew its lease within the configured lease expiry-time (10.000000000). "
    "The lease renewal took 7639.742325646 s."
)
CONFIGURATION = """<OpenSplice>
  <Domain><Name>d</Name><Id>3</Id><Service name="durability"><Command>durability</Command></Service></Domain>
  <DurabilityService name="durability"><NameSpaces><NameSpace name="a"><Partition>p</Partition></NameSpace>
    <Policy nameSpace="b" durability="Durable" aligner="true" alignee="Initial"/></NameSpaces>
  </DurabilityService>
</OpenSplice>
"""
TRACE = "1510766331.{} {} ({}) -> {}\n"
LATER = TRACE.format("923106032", "COMPLETE", "a", "x")
WRONG = "<General><MaxMesageSize a='b'/></General>"

CONFIGURATION_WITH_A_CHANNEL = """<OpenSplice>
<Domain><Name>a</Name><Id>0</Id><Service name="n"><Command>networking</Command></Service></Domain>
<NetworkService name="n">
<Channels><Channel name="x"><PortNr>54400</PortNr></Channel></Channels></NetworkService>
</OpenSplice>"""
CASES: dict[str, tuple[str, dict[str, str]]] = {
    **{
        f"level {level}": (
            report("note", "INFO") + report("Quux was frobbed", level),
            {"First": f"line 12, {shown}Quux was frobbed (app"},
        )
        for level, shown in {
            "CRITICAL ERROR": "CRITICAL: ",
            "FATAL ERROR": "FATAL: ",
            "CRITICAL": "CRITICAL: ",
            "FATAL": "FATAL: ",
            "DIRE": "ERROR: ",
        }.items()
    },
    "a report without a level": (
        report("Quux was frobbed").replace("Report      : ERROR\n", "") + report("note", "INFO"),
        {"First": "nothing: it reports no error and no warning; 1 report has no level"},
    ),
    "a library": (
        report("LoadLibrary error: 127") + report("Problem opening 'cmsoap'"),
        {
            "What": "log of OpenSplice 6.9.210323OSS: 2 reports",
            "First": "line 4, ERROR: LoadLibrary error: 127",
            "Why": "error 127",
            "Do": "<Service>",
        },
    ),
    **{
        f"a supervisor, {how}": (
            report(f"The service 'durability' of domain \"n3\" restarting: {how}", "WARNING"),
            {"First": how, "Why": why, "Do": "FailureAction" if "ended" in how else "Domain/Lease"},
        )
        for how, why in {
            "the node ended unexpectedly (killed by signal 9)": "killed by SIGKILL",
            "the node ended unexpectedly (exit code 70)": "ended by itself (exit code 70)",
            "the node did not renew its lease within 10 s": "for 10 s",
        }.items()
    },
    "a stack": (
        stack(
            "Create kernel entity failed. For Topic: <T>",
            "Create Topic <T> failed: Unmatching QoS Policy: 'Durability'.",
        ),
        {
            "First": "line 12, ERROR: Create Topic <T> failed",
            "Why": "Topic T exists in the domain with another Durability",
        },
    ),
    "another type": (
        stack(
            "Create kernel entity failed. For Topic: <T>",
            'Precondition not met: Create Topic "T" failed: type <a::B> differs existing type <a::C>.',
        ),
        {"Why": "exists in the domain with type a::C, and this process creates it with type a::B"},
    ),
    "an effect before its cause": (
        report("Unable to connect to domain id = 0.") + report("Failed to checkout license feature 'X'"),
        {
            "First": "Unable to connect",
            "Why": "no valid licence for X; the report names the places where it looked. (line 12",
        },
    ),
    "another process says nothing of this one": (
        report("Unable to connect to domain id = 0.")
        + report("Could not find any key file: x", process="b <2>"),
        {
            "Why": "The application could not join the domain",
            "Also": "line 12, ERROR: Could not find any key file",
        },
    ),
    "no valid licence": (
        COMMERCIAL,
        {"What": "OpenSplice 6.10.4p2", "Why": "no valid licence for OPENSPLICE_SPLICED"},
    ),
    "an old release without times": (
        OLD,
        {
            "What": "OpenSplice 5.3.0p3: 1 report",
            "First": "Sun Dec 11 06:04:57 2011, line 4",
            "Why": "did not find the domain",
        },
    ),
    "a hibernation, again and again": (
        report(LEASE)
        + report("note", "INFO")
        + report(LEASE.replace("7639", "12"), at="1700009000.000000001"),
        {
            "First": "2 times in all, the last at 2023-11-15T00:43:20Z",
            "Why": "The lease was not renewed for 7639.7 s, longer than the 10 s that it lasts",
        },
    ),
    "a service that died before its lease is reported": (
        report("Service 'durability' died", process="spliced <1>")
        + report(
            LEASE.replace("Splice-daemon", "Durability"), at="1700000009.000000001", process="durability <2>"
        ),
        {
            "First": "line 4, ERROR: Service 'durability' died (spliced <1>, host)",
            "Why": "The lease was not renewed for 7639.7 s, longer than the 10 s that it lasts",
        },
    ),
    "heartbeats that a process missed since it stood still itself": (
        report(LEASE) + report("Missed heartbeat for node -294965296.", "INFO", "1700000001.000000001"),
        {"Also": "Missed heartbeat for node -294965296.: The same cause."},
    ),
    "an id that is printed with a sign": (
        report("Missed heartbeat for node -294965296.", "INFO"),
        {"Why": "The node with id 4000002000 was not heard in time"},
    ),
    "two texts of one cause": (
        COMMERCIAL
        + report(
            "Cannot acquire license for feature OPENSPLICE_SPLICED. It will exit.", "FATAL", process="q <2>"
        ),
        {
            "First": "OPENSPLICE_SPLICED' (java.exe <2>, host)",
            "Also": "line 13, FATAL: Cannot acquire license",
        },
    ),
    "every kind of reports of one moment": (
        report(LEASE)
        + report("Unknown service 'splicedaemon' died") * 3
        + report("Failed to update service state to 4.")
        + "".join(report(f"Quux was {one}") for one in ("frobbed", "barred", "bazzed")),
        {
            "First": "took 7639.742325646 s. (app <1>, host)",
            "Also": "line 12, 3 times, the last at 2023-11-14T22:13:20Z, ERROR: Unknown service",
        },
    ),
    "more kinds than are shown": (
        "".join(
            report(f"Quux was {one}") for one in ("foo", "frobbed", "barred", "bazzed", "quuxed", "gone")
        ),
        {"Also": "line 28, ERROR: Quux was bazzed 2 more kinds of reports, at lines 36, 44"},
    ),
    "a stack that names two causes": (
        stack(
            *(
                f"Create Topic <T> failed: Unmatching QoS Policy: '{one}'."
                for one in ("Reliability", "Durability")
            )
        ),
        {
            "First": "line 9, ERROR: Create Topic",
            "Also": "line 12, ERROR: Create Topic <T> failed: Unmatching",
        },
    ),
    "a crash before a heartbeat is missed": (
        report("The durability service can by identified by ID: 1660", "INFO", process="tsn <7>")
        + report("Missed heartbeat for node 5.", "INFO", "1699990000.000000001")
        + report("Exception (signal 6) occurred in process", "INFO", process="tsn <7>")
        + report("Missed heartbeat for node - heartbeat id : 1660. (x)", "WARNING", "1700000009.000000001"),
        {
            "First": "line 20, INFO: Exception (signal 6) occurred in process (tsn <7>, host)",
            "Why": "The process crashed with signal 6",
            "Also": "line 28, WARNING: Missed heartbeat for node - heartbeat id : 1660. (x) (it is tsn <7>)",
        },
    ),
    "a peer of Windows that ended": (
        report("UDP recvmsg sock 2760: ret -1 errno 10054"),
        {"Why": "a port to which this process sent is closed", "Do": "Nothing"},
    ),
    "no signal handlers": (
        report("Did not install signal handlers to cleanup resources.", "WARNING"),
        {"Do": "LD_PRELOAD to libjsig.so"},
    ),
    "runs that were stopped": (
        report("++ The service 'splicedaemon' is now operational.", "INFO")
        + report("Termination request (signal 15) received from PID 3, UID 0", "INFO")
        + report("== The service 'splicedaemon' has now terminated.", "INFO")
        + report("++ The service 'splicedaemon' is now operational.", "INFO", process="app <2>"),
        {"First": "; 2 starts of the domain service, 1 stopped by signal 15, 1 without an end in the log"},
    ),
    "what no rule knows": (
        report("one thing", "INFO") + report("Quux was frobbed"),
        {
            "First": "line 12, ERROR: Quux was frobbed (app <1>, host)",
            "Why": "unknown: no rule knows this report.",
        },
    ),
    "a missed heartbeat, which is no error in 6.9": (
        report("Missed heartbeat for node 198994775. (DCPSPublication is complete)", "INFO"),
        {"First": "line 4, INFO: Missed heartbeat", "Why": "node with id 198994775 was not heard in time"},
    ),
    "a warning that harms nothing is not the first": (
        report("Locale with LC_NUMERIC ',' detected", "WARNING")
        + report("writer 1:2 considering reader 3:4 non-responsive", "WARNING", "1700000900.000000001"),
        {"First": "line 12, WARNING: writer 1:2 considering reader", "Also": "line 4, WARNING: Locale"},
    ),
    "a missed heartbeat long before a warning": (
        report("Missed heartbeat for node 5.", "INFO")
        + report("writer 1:2 considering reader 3:4 non-responsive", "WARNING", "1700001300.000000001"),
        {
            "First": "line 4, INFO: Missed heartbeat",
            "Look at": "given --level INFO",
            "Also": "line 12, WARNING: writer",
        },
    ),
    "reports of two machines, not in order of time": (
        report("Quux was frobbed", at="1700009000.000000001")
        + report("Quux was frobbed").replace("host", "other"),
        {"First": "2 times in all, by 2 processes, from 2023-11-14T22:13:20Z to 2023-11-15T00:43:20Z"},
    ),
    "the most frequent of many kinds": (
        "".join(report(f"Quux was {one}") for one in ("foo", "frobbed", "barred", "bazzed", "quuxed"))
        + report("Quux was gone") * 3,
        {"Also": "line 44, 3 times, the last at 2023-11-14T22:13:20Z, ERROR: Quux was gone"},
    ),
    "warnings beside an error": (
        report("Quux was frobbed") + report("Quux is slow", "WARNING"),
        {"First": "ERROR: Quux was frobbed", "Also": "line 12, WARNING: Quux is slow"},
    ),
    "an unknown warning right before an error": (
        report("Quux is slow", "WARNING") + report("Quux was frobbed"),
        {"First": "ERROR: Quux was frobbed", "Also": "line 4, WARNING: Quux is slow"},
    ),
    "an interface of several": (
        report("using network interface e0 (10.0.0.1) selected arbitrarily from: e0, e1", "WARNING"),
        {"Why": "takes e0 (10.0.0.1)", "Do": "NetworkInterfaceAddress"},
    ),
    "starts beside a warning": (
        report("++ The service 'splicedaemon' is now operational.", "INFO")
        + report("Quux is slow", "WARNING"),
        {"First": "Quux is slow", "Also": "1 start of the domain service, without an end in the log"},
    ),
    "a log with other files behind it": (
        report("note", "INFO") + TRACE.format("823106032", "COMPLETE", "a", "x") + CONFIGURATION,
        {"First": "nothing", "Also": "line 9: a durability trace begins here, which was not looked at"},
    ),
    "a trace with a log behind it": (
        TRACE.format("823106032", "COMPLETE", "a", "x") * 30 + report("note", "INFO"),
        {"What": "trace of OpenSplice: 1 run", "Also": "line 31: a log of reports begins here"},
    ),
    "the traces of two nodes": (
        (TRACE.format("823106032", "INIT", "a", "x") + LATER * 15) * 2,
        {"Also": "run 2 begins at 2017-11-15T17:18:51.823Z, before run 1 ends: these are the traces"},
    ),
    "two containers": (
        "".join(f"n1-1  | {one}app-1 | hello\n" for one in [LATER] * 30),
        {"What": "durability trace", "Also": "lines of 2 programs are mixed here (app-1, n1-1)"},
    ),
    "a file for OpenSplice": (
        "export OSPL_URI=file:///no/ospl.xml",
        {
            "First": "line 1: there is no file /no/ospl.xml",
            "Why": "OpenSplice does not start if it cannot read",
        },
    ),
    "a trace whose first line was cut": (
        TRACE.format("823106032", "COMPLETE", "a", "x")[6:] + LATER * 25,
        {"What": "1 run from 2017-11-15T17:18:51Z to 17:18:51"},
    ),
    "a log with zero bytes": (
        ("\0" * 500).join([report("note", "INFO") + "Descr", report("Quux was frobbed")])
        + ("\0" * 9 + report("x", "INFO")),
        {
            "What": ": 3 reports",
            "First": "line 12, ERROR: Quux",
            "Also": "line 9: 500 zero bytes, as after a loss",
        },
    ),
    "a log in a block of Markdown": (
        "The log:\n```\n" + report("Quux was frobbed") + "```\nWhat is wrong?\n",
        {"What": ": 1 report from 2023-11-14T22:13:20Z", "First": "2023-11-14T22:13:20.000Z, line 6"},
    ),
    "a log with tabs": (
        report("Quux was frobbed").replace("      :", "\t:").replace("   :", "\t:"),
        {"What": ": 1 report from 2023-11-14T22:13:20Z", "First": "line 4, ERROR: Quux was frobbed (app <1>"},
    ),
    "two domains": (
        report("note", "INFO") + report("note", "INFO").replace("001/0", "001/99"),
        {"What": "2 reports of domains 0 and 99 from"},
    ),
    "a quiet log": (report("++ The service 'durability' is now operational.", "INFO"), {"First": "nothing"}),
    "a log copied from a terminal": (
        "$ tail ospl-error.log\n" + report("Topic 'a.idl' is not created. Name has invalid syntax."),
        {
            "What": "log of OpenSplice 6.9.210323OSS: 1 report",
            "First": "line 5",
            "Why": "a.idl is no name of a topic",
        },
    ),
    "a configuration": (
        CONFIGURATION,
        {
            "What": "configuration of OpenSplice",
            "First": "line 3, error DUR2",
            "Why": "OpenSplice",
            "Look at": "ospltool explain DUR",
        },
    ),
    "settings of Cyclone DDS": (
        "export CYCLONEDDS_URI='<General>\n<MaxMesageSize>9000B</MaxMesageSize></General>'",
        {"What": "settings of Cyclone DDS", "First": "line 2, error DUR750", "Do": "MaxMessageSize"},
    ),
    "an interface that this machine lacks, in a deprecated setting": (
        "CYCLONEDDS_URI='<General><NetworkInterfaceAddress>nope7</NetworkInterfaceAddress></General>'",
        {
            "First": "line 1, warning DUR759: this machine has no interface and no address 'nope7'",
            "Why": "Cyclone DDS does not start with it on this machine.",
            "Do": "ip -br addr",
            "Also": "line 1, warning DUR755: <NetworkInterfaceAddress> is deprecated",
        },
    ),
    "an error after a deprecated setting": (
        "<General><NetworkInterfaceAddress>nope7</NetworkInterfaceAddress>\n<AllowMulticast>q</AllowMulticast></General>",
        {"First": "line 2, error DUR751", "Also": "line 1, warning DUR759"},
    ),
    "a log in no directory": (
        "<Tracing><Verbosity>config</Verbosity><OutputFile>/no/such/directory/log</OutputFile></Tracing>",
        {"First": "line 1, warning DUR763", "Why": "on this machine if it traces to that file."},
    ),
    "a configuration that starts": (
        CONFIGURATION.replace('nameSpace="b"', 'nameSpace="a"'),
        {
            "First": "no error, but 1 warning and 3 hints; line 4, warning DUR401",
            "Why": "After a split and a reconnection both sides keep what they have",
        },
    ),
    "a configuration with what only ospltool ignores": (
        "<OpenSplice><Domain><Name>d</Name><Id>3</Id><SingleProcess>true</SingleProcess></Domain></OpenSplice>",
        {
            "First": "nothing: the check finds nothing",
            "Look at": "given --target ospltool, if an ospltool node is to run with it",
        },
    ),
    "settings in several lines of YAML": (
        "CYCLONEDDS_URI: >-\n  <CycloneDDS><Domain>\n    <Internal/>\n  </Domain></CycloneDDS>\nb: failed\n",
        {"What": "settings of Cyclone DDS", "First": "nothing: the check finds nothing"},
    ),
    "a part of settings with a comma": (
        "<General><AllowMulticast>true</AllowMulticast></General>,",
        {"What": "settings of Cyclone DDS", "First": "nothing: the check finds nothing"},
    ),
    "a part of settings": (
        "<Tracing><Verbosity>lots</Verbosity></Tracing>",
        {"What": "settings of Cyclone DDS", "First": "error DUR751"},
    ),
    "a trace that does not get operational": (
        TRACE.format("823106032", "INIT", "mainThread", "x")
        + TRACE.format("834950581", "DISCOVER_FELLOWS_GROUPS", "mainThread", "----ENTERING STATE----")
        + TRACE.format(
            "934950581",
            "DISCOVER_FELLOWS_GROUPS",
            "mainThread",
            "Waiting for local groups to get complete...",
        )
        + TRACE.format("934950581", "DISCOVER_FELLOWS_GROUPS", "statusThread", "x").replace("6331.", "6399."),
        {
            "What": "durability trace of OpenSplice: 1 run",
            "First": "did not become operational: it is in state DISCOVER_FELLOWS_GROUPS since 2017-11-15",
            "Why": "Its main thread last wrote: Waiting for local groups",
        },
    ),
    "a part of a trace": (
        "".join(
            TRACE.format(f"8231060{n:02}", "DISCOVER_FELLOWS_GROUPS", "mainThread", "x") for n in range(30)
        ),
        {"First": "nothing: no rule of `trace anomalies` finds anything in it; it ends in state DISC"},
    ),
    "a trace with a fault": (
        TRACE.format("823106032", "COMPLETE", "a", "x")
        + TRACE.format("923106032", "COMPLETE", "a", "Injecting data from disk for group p.T failed (0)."),
        {"First": "line 2: ", "Why": ""},
    ),
    "lines of Cyclone DDS": (
        "1700000000.1 [0] python3: eth7: does not match an available interface.\nfailed to create domain\n",
        {"What": "2 lines of text, 2 of which", "First": "line 1:", "Why": "network interface eth7"},
    ),
    "an effect before its cause in a terminal": (
        "rmw_create_node: failed to create domain\nlo: does not match an available interface\n",
        {"First": "line 1: rmw_create_node", "Why": "network interface lo, which this machine does not have"},
    ),
    "output of the check": (
        "x.xml:1:88: error[DUR750] <General> has no element 'Q'\n",
        {"Do": "ospltool explain DUR750"},
    ),
    "settings of Cyclone DDS that are not there": (
        "1700000000.1 [0] ros2: can't open configuration file file:///no/c.xml\nrmw_create_node: failed\n",
        {"First": "line 1:", "Why": "cannot read file:///no/c.xml"},
    ),
    **{
        line: (line + "\n", {"Why": why})
        for line, why in {
            "1700000000.1 [0] a: lo: the same interface may not be selected twice": "interface lo twice",
            "ddsi_udp_conn_write to udp/10.0.0.9:7410 failed with retcode -1": "refused to send packets",
            "malformed packet received from vendor 1.15 state parse:heartbeat <0>": "vendor id 1.15",
            "SPDP (vendor 1.1): invalid qos/parameters": "vendor id 1.1 announces",
            "config: //CycloneDDS/Domain/General: Interfaces: unknown element (f.xml line 5)": (
                "have the element Interfaces in //CycloneDDS/Domain/General, where"
            ),
            "config: //CycloneDDS/Domain/Discovery/ParticipantIndex/#text: 'x': neither (f.xml line 9)": (
                "ParticipantIndex/#text: 'x': neither. No participant"
            ),
            "ddsi_udp_conn_write to udp/10.0.0.9:7410 failed with retcode -5": "buffers were full",
            "1.5 [1] a: failed to increase socket send buffer size to at least 9 bytes, current is 5": (
                "send buffer of at least 9 bytes"
            ),
            "1.5 [0] a: lo/192.168.1.2: do not match the same interface": "name lo by a name and an address",
            "log: `enp4s0: does not match an available interface` + 1": "the network interface enp4s0, which",
            "is slow: failed to create domain\nwho knows": "a line before this one says why. No line here",
        }.items()
    },
    **{
        line: (f"1700000000.1 [0] a: {line}\nwhat is this\n", {"First": "nothing: no line reports an error"})
        for line in (
            "config: //CycloneDDS/Domain/General: 'NetworkInterfaceAddress': deprecated element (u+0 line 1)",
            "config: //CycloneDDS/Domain/Internal/A: setting moved to //CycloneDDS/Domain/B (x line 2)",
            "config: Domain/General/Interfaces/NetworkInterface[@name]: lo {0}",
            "config: Domain/Tracing/Category/#text: fatal,error,warning {0}",
            "failed to increase socket receive buffer size to 1048576 bytes, continuing with 425984 bytes",
            "eth5: optional interface was not found.",
        )
    },
    **{
        name: (f"<CycloneDDS><Domain>{text}</Domain></CycloneDDS>", expected)
        for name, text, expected in (
            (
                "a setting whose nearest name takes no text",
                "<Threads><Thread Name='recv'><ScheduleClass>Realtime</ScheduleClass></Thread></Threads>",
                {"First": "no element 'ScheduleClass'", "Do": "Did you mean Scheduling/Class?"},
            ),
            (
                "a variable that is set elsewhere",
                "<General><Interfaces><NetworkInterface name='${NO7}'/></Interfaces></General>",
                {"First": "'${NO7}' is empty, because a variable is not set here"},
            ),
        )
    },
    "an attribute that is missing": (
        CONFIGURATION_WITH_A_CHANNEL,
        {"First": "lacks the required attribute 'reliable'", "Do": 'reliable="true" or reliable="false"'},
    ),
    "shared memory whose library is not here": (
        "<Domain><SharedMemory><Enable>true</></></>",
        {"First": "line 1, warning DUR768", "Do": "Install the library"},
    ),
    "output of Cyclone DDS behind a report": (
        report("Quux is slow", "WARNING") + "1789006683.215504 [0] ros2: x7: does not match an interface\n",
        {"Also": "output of Cyclone DDS begins here, which was not looked at"},
    ),
    "the second of two settings": (
        "export CYCLONEDDS_URI='<General/>'\nexport CYCLONEDDS_URI='<General><Foo/></General>'\n",
        {"First": "line 2, error DUR750: <General> has no element 'Foo'"},
    ),
    "settings beside the name of a file that is not here": (
        "export CYCLONEDDS_URI=/no/c.xml\ncat > /no/c.xml <<X\n@\nX\n".replace(
            "@", "<CycloneDDS><Domain><General><Foo/></General></Domain></CycloneDDS>"
        ),
        {"First": "line 3, error DUR750: <General> has no element 'Foo'"},
    ),
    "an exception of C++ behind a line of Cyclone DDS": (
        f"1.5 [0] a: x7: does not match an available interface\n{'=' * 79}\nContext     : org::eclipse\n",
        {"First": "line 1: 1.5", "Why": "the network interface x7"},
    ),
    "one report many times": (
        "[0] a: x: does not match an available interface\n" * 2,
        {"First": "interface; 2 times in all", "Also": ""},
    ),
    "a line without end": ("x: " * 100_000 + "\nfailed to create domain\n", {"First": "line 2: failed"}),
    "a schema that is not found": (
        report("Failed to open configuration syntax file: /x/metaconfig.xml")
        + report("Quux is slow", "WARNING"),
        {"First": "ERROR: Failed to open", "Why": "etc/metaconfig.xml) was not found"},
    ),
    **{
        f"settings in {text}": (
            text.replace(
                "@", "<CycloneDDS><Domain><General><MaxMesageSize a='b'/></General></Domain></CycloneDDS>"
            ),
            {
                "What": "settings of Cyclone DDS",
                "First": f"line {line}, error DUR750: <General> has no element",
            },
        )
        for text, line in {
            "export CYCLONEDDS_URI=@": 1,
            'set -e\nexport CYCLONEDDS_URI="@" OTHER="<x>"\nros2 topic list > out\n': 2,
            "$ cat cyclonedds.xml\n@\n$ \n": 2,
            "services:\n  a:\n    environment:\n      - CYCLONEDDS_URI=@\n    command: a > b\n": 4,
            "env:\n  CYCLONEDDS_URI: |\n    @\n": 3,
            "env:\n- name: CYCLONEDDS_URI\n  value: '@'\n": 3,
            "FROM ros:humble\nENV CYCLONEDDS_URI @\nRUN true\n": 2,
            '[Service]\nEnvironment="CYCLONEDDS_URI=@"\nUser=a\n': 2,
            "set CYCLONEDDS_URI=@": 1,
            "# export CYCLONEDDS_URI=/old.xml\nexport CYCLONEDDS_URI=@": 2,
            "os.environ['CYCLONEDDS_URI'] = '@'": 1,
            "PS> $env:CYCLONEDDS_URI = '@'": 1,
            "kind: ConfigMap\ndata:\n  cyclonedds.xml: |\n    @\n": 4,
        }.items()
    },
    **{
        f"a file in {text}": (text, {"First": f"line {line}: there is no file /no/c.xml on this machine"})
        for text, line in {
            "export CYCLONEDDS_URI=/no/c.xml": 1,
            "file:///no/c.xml": 1,
            "a\nENV CYCLONEDDS_URI file:///no/c.xml\n": 2,
            "SetEnvironmentVariable('CYCLONEDDS_URI', 'file:///no/c.xml')": 1,
        }.items()
    },
    "a file and settings": (
        "/no/c.xml,<General/>",
        {"First": "line 1, error DUR001: '/no/c.xml' stands for a file here, which cannot be read"},
    ),
    "a template within the settings": (
        "{{- if .Values.dds }}\n<CycloneDDS><Domain Id='{{ .Values.id }}'/></CycloneDDS>\n{{- end }}\n",
        {"What": "is a template", "First": "line 1, error DUR008: this is a template: render it first"},
    ),
    "an unknown complaint": (
        "all fine\nfrob: cannot quux\n",
        {"First": "line 2 is the first that reads like an error: frob: cannot quux", "Why": "unknown"},
    ),
}

UNKNOWN: dict[str, tuple[bytes, str]] = {
    "prose": (
        b"The service may crash as died leases and running out of shared memory show.\n",
        "no line of it",
    ),
    "nothing": (b" \n", "is empty"),
    "bytes": (bytes(range(256)) * 4, "is no text"),
    "a file that names itself": (b"export CYCLONEDDS_URI=given", "given names another file: explain given"),
    "an address": (b"https://a.b/c/d.xml", "no line of it is known"),
    "other XML": (b"<project><a/></project>", "root <project>: no configuration"),
    "an empty directory of one's own": (b"", "is empty"),
}


def parts_of(out: str) -> dict[str, str]:
    """The parts of an answer by their titles, each on one line."""
    found: dict[str, str] = {}
    title = ""
    for line in out.splitlines():
        if line[:9].strip():
            title = line[:9].strip().rstrip(":")
        found[title] = " ".join(filter(None, (found.get(title, ""), line[9:].strip())))
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_explained(
    name: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = CASES[name]
    path = tmp_path / "given"
    path.write_text(text)
    assert main(["explain", str(path)]) == 0
    out = capfd.readouterr().out
    found = parts_of(out)
    assert {title: part for title, part in expected.items() if part not in found.get(title, "")} == {}, out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["explain", "-", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)["data"]
    assert expected.get("Why", "") in answer["why"]


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_unknown_is_said(
    name: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, expected = UNKNOWN[name]
    path = tmp_path / "given"
    path.write_bytes(data.replace(b"given", bytes(path)))
    assert main(["explain", str(path)]) == 2
    assert expected in capfd.readouterr().err.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig", "latin-1"])
def test_a_log_is_read_as_other_tools_wrote_it(
    encoding: str,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Internals   : the end of another report\n" + report("LoadLibrary error: 126")
    path = tmp_path / "given"
    data = text.replace("\n", "\r\n").encode(encoding)
    path.write_bytes(data)
    assert main(["explain", str(path)]) == 0
    assert parts_of(capfd.readouterr().out)["First"].endswith("ERROR: LoadLibrary error: 126 (app <1>, host)")
    assert main(["trace", str(path)]) == 0
    assert "LoadLibrary error: 126" in capfd.readouterr().out
    packed = gzip.compress(text.encode())
    for given, damage in ((packed, False), (packed[:-9], True)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert main(["explain", "-"]) == 0
        found = parts_of(capfd.readouterr().out)
        assert "LoadLibrary error: 126" in found["First"]
        assert ("it cannot be read beyond byte" in found.get("Also", "")) is damage


def test_anomalies_of_a_log_keep_values_apart_and_causes_whole(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ospl-info.log"
    started = report("++ The service 'splicedaemon' is now operational.", "INFO")
    path.write_text(
        report(LEASE)
        + report(LEASE.replace("7639", "50"), at="1700009000.000000001")
        + stack(
            "Quux failed.\n" + "              The most common causes are none of these.\n" * 9,
            "The frob is barred",
        )
        + "".join(started.replace("<1>", f"<{pid}>") for pid in range(4))
        + report("== The service 'splicedaemon' has now terminated.", "INFO")
    )
    assert main(["trace", "anomalies", str(path)]) == 1
    out = capfd.readouterr().out
    assert "ERROR 2 times, at first: Splice-daemon" in out
    assert "The lease was not renewed for 7639.7 s" in out
    assert "none of these. The frob is barred" in out
    assert "unknown: how 3 of 4 starts of the domain service on" in out


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "; it has no configuration, log or trace"),
        ({"a.xml": CONFIGURATION}, ": name a file, or run `ospltool check given`\n"),
        ({"a.log": report("c_open failed")}, ": name a file, or run `ospltool trace anomalies given`\n"),
        (
            {"a.xml": CONFIGURATION, "b/a.log": report("c_open failed")},
            ": name a file, or run `ospltool check given` or `ospltool trace anomalies given`\n",
        ),
    ],
)
def test_of_a_directory_the_commands_are_named_that_find_something_in_it(
    files: dict[str, str], expected: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        path = tmp_path / "given" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "given").mkdir(exist_ok=True)
    assert main(["explain", "given"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("ospltool: given is a directory")
    assert expected in err


@pytest.mark.parametrize("subject", ["no/such.log", "mastrPriority"])
def test_a_name_is_that_of_a_file_or_of_what_can_be_explained(
    subject: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", subject]) == 2
    assert "there is no such file either" in capfd.readouterr().err


def test_control_characters_never_reach_the_terminal(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b[2Jb"
    path.write_text(report("Topic '\x1b]0;x\x07' is not created. Name has invalid syntax."))
    assert main(["explain", str(path)]) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_causes_come_before_what_follows_from_them() -> None:
    kinds = [(one.is_harmless, one.follows) for one in report_meanings()]
    assert all(one.why.endswith(".") and one.remedy.endswith(".") for one in report_meanings())
    following = [number for number, (harmless, follows) in enumerate(kinds) if follows and not harmless]
    assert kinds[min(following) : max(following) + 1] == [(False, True)] * len(following)
    assert meaning_of("a report of nothing") is None


def test_stories_without_times_are_in_the_order_of_the_log(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ospl-error.log"
    path.write_text(OLD.replace("c_open failed", "zuux was frobbed") + OLD.replace("c_open failed", "A quux"))
    assert main(["trace", "anomalies", str(path)]) in {0, 1}
    out = capfd.readouterr().out
    assert 0 < out.find("zuux was frobbed") < out.find("A quux")
    assert "1970" not in out
