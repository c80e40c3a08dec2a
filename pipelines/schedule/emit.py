"""A flow's schedule for those who have a scheduler: systemd, cron, Kubernetes or Airflow."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.pipelines.schedule.cron import Cron
from penstock.pipelines.schedule.options import seconds_before_retry


@dataclass(frozen=True)
class Entry:
    """What is to be run, and when."""

    name: str
    flow: Path
    cron: Cron
    zone: str | None
    settings: tuple[str, ...] = ()
    retries: int = 0
    backoff: float = 60.0

    @property
    def words(self) -> list[str]:
        """The command."""
        found = [_program(), "run", str(self.flow)]
        for one in self.settings:
            found += ["--set", one]
        return found


def _program() -> str:
    script = Path(sys.executable).with_name("penstock")
    return str(script) if script.exists() else "penstock"


def systemd(entry: Entry) -> str:
    """Return a service and a timer, one after the other."""
    command = " ".join(_quoted(word) for word in entry.words)
    again = ""
    if entry.retries:
        again = (
            f"Restart=on-failure\nRestartSec={entry.backoff:g}\n"
            "# A flow that is wrong in itself is so again.\nRestartPreventExitStatus=2\n"
            "# systemd restarts a service of this type from version 244 on.\n"
        )
    limits = ""
    if entry.retries:
        limits = (
            f"StartLimitBurst={entry.retries + 1}\n"
            f"StartLimitIntervalSec={max(3600, int(entry.backoff * (entry.retries + 1) * 100))}\n"
        )
    calendars = "".join(f"OnCalendar={line}\n" for line in entry.cron.calendar(entry.zone))
    return (
        f"# ~/.config/systemd/user/penstock-{entry.name}.service\n"
        f"[Unit]\nDescription=penstock run {entry.flow.name}\n{limits}\n"
        f"[Service]\nType=oneshot\nWorkingDirectory={_path(entry.flow.parent)}\n"
        f"ExecStart={command}\n{again}\n"
        f"# ~/.config/systemd/user/penstock-{entry.name}.timer\n"
        f"[Unit]\nDescription=penstock run {entry.flow.name}, {entry.cron.text}\n\n"
        f"[Timer]\n{calendars}# A run that was missed while the machine was off starts at once.\n"
        "Persistent=true\n\n[Install]\nWantedBy=timers.target\n\n"
        f"# systemctl --user daemon-reload && systemctl --user enable --now "
        f"penstock-{entry.name}.timer\n"
    )


def crontab(entry: Entry) -> str:
    """Return lines of a crontab; two runs never overlap, because ``penstock run`` takes a lock."""
    # An unescaped % is a newline to cron.
    command = " ".join(shlex.quote(word) for word in entry.words).replace("%", r"\%")
    if entry.retries:
        inner = " ".join(shlex.quote(word) for word in entry.words)
        waits = [f"{seconds_before_retry(n, entry.backoff):g}" for n in range(entry.retries)]
        # Exit code 2: the flow is wrong in itself, and is so again.
        script = (
            f"for wait in {' '.join(waits)} 0; do {inner}; code=$?; "
            "case $code in 0|2) exit $code;; esac; sleep $wait; done; exit $code"
        )
        command = f"sh -c {shlex.quote(script)}".replace("%", r"\%")
    zone = ""
    if entry.zone:
        zone = (
            "# CRON_TZ is cronie's: it counts for all lines below, and Debian's cron knows no zone "
            f"but the machine's.\nCRON_TZ={entry.zone}\n"
        )
    return f"{zone}{entry.cron.text} {command}\n"


def kubernetes(entry: Entry, image: str) -> str:
    """Return a CronJob; the flow's folder must be in the image, or mounted at the same path."""
    zone = f"  timeZone: {json.dumps(entry.zone)}\n" if entry.zone else ""
    words = ["penstock", *entry.words[1:]]
    # A CronJob's name has at most 52 characters, and ends with a letter or digit.
    name = f"penstock-{entry.name}".lower().replace("_", "-")[:52].rstrip("-.")
    command = "".join(f"                - {json.dumps(word)}\n" for word in words)
    failing = ""
    if entry.retries:
        failing = (
            "      # A flow that is wrong in itself is so again.\n"
            "      podFailurePolicy:\n        rules:\n          - action: FailJob\n"
            "            onExitCodes:\n              containerName: penstock\n"
            "              operator: In\n              values: [2]\n"
        )
    return (
        "apiVersion: batch/v1\nkind: CronJob\n"
        f"metadata:\n  name: {name}\n"
        f"spec:\n  schedule: {json.dumps(entry.cron.text)}\n{zone}"
        "  concurrencyPolicy: Forbid\n  startingDeadlineSeconds: 3600\n"
        "  jobTemplate:\n    spec:\n"
        f"      backoffLimit: {entry.retries}\n{failing}"
        "      template:\n        spec:\n          restartPolicy: Never\n"
        "          containers:\n            - name: penstock\n"
        f"              image: {json.dumps(image)}\n"
        f"              workingDir: {json.dumps(str(entry.flow.parent))}\n"
        f"              command:\n{command}"
    )


def airflow(entry: Entry) -> str:
    """Return a DAG of one task: penstock tracks the dependencies, and what is done."""
    zone = repr(entry.zone or "UTC")
    command = " ".join(shlex.quote(word) for word in entry.words)
    # Airflow renders commands with Jinja, to which braces mean something.
    raw = json.dumps("{% raw %}" + command + "{% endraw %}")
    return (
        '"""Runs a flow of penstock."""\n\nfrom datetime import timedelta\n\nimport pendulum\n'
        "from airflow import DAG\n\n"
        "try:\n    from airflow.providers.standard.operators.bash import BashOperator\n"
        "except ImportError:  # before Airflow 3\n"
        "    from airflow.operators.bash import BashOperator\n\n"
        f"with DAG(\n    dag_id={json.dumps('penstock_' + entry.name)},\n"
        f"    schedule={json.dumps(entry.cron.text)},\n"
        f"    start_date=pendulum.datetime(2026, 1, 1, tz={zone}),\n"
        "    catchup=False,\n    max_active_runs=1,\n) as dag:\n"
        f'    BashOperator(\n        task_id="run",\n        bash_command={raw},\n'
        f"        cwd={json.dumps(str(entry.flow.parent))},\n        retries={entry.retries},\n"
        f"        retry_delay=timedelta(seconds={entry.backoff:g}),\n"
        "        retry_exponential_backoff=True,\n    )\n"
    )


def _quoted(word: str) -> str:
    """Return a word of ExecStart, in which systemd expands % and $."""
    safe = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    safe = safe.replace("\n", "\\n")
    return safe if re.fullmatch(r"[\w@%+=:,./-]+", safe) else f'"{safe}"'


def _path(path: Path) -> str:
    return str(path).replace("%", "%%")
