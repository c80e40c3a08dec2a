"""A flow's schedule for those who have a scheduler: systemd, cron, Kubernetes or Airflow.

Airflow passes the day on which a run was due; the others the day on which its first attempt begins.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shlex
import sys
from pathlib import Path

from penstock.errors import warn
from penstock.pipelines.schedule.entry import Entry
from penstock.pipelines.schedule.options import seconds_before_retry

_AHEAD = dt.timedelta(400)  # in which a skipped time is looked for


def systemd(entry: Entry) -> str:
    """Return a service and a timer, one after the other."""
    _warn_of_gap(entry)
    calendars = "".join(f"OnCalendar={line}\n" for line in entry.cron.calendar(entry.zone))
    return (
        f"# ~/.config/systemd/user/penstock-{entry.name}.service\n"
        f"[Unit]\nDescription=penstock run {entry.flow.name}\n\n"
        f"[Service]\nType=oneshot\nWorkingDirectory={_path(entry.flow.parent)}\n"
        f"ExecStart=/bin/sh -c {_quoted(_shell(entry))}\n\n"
        f"# ~/.config/systemd/user/penstock-{entry.name}.timer\n"
        f"[Unit]\nDescription=penstock run {entry.flow.name}, {entry.cron.text}\n\n"
        f"[Timer]\n{calendars}# A run that was missed while the machine was off starts at once.\n"
        "Persistent=true\n\n[Install]\nWantedBy=timers.target\n\n"
        "# loginctl enable-linger: units of a user also run without a login\n"
        f"# systemctl --user daemon-reload && systemctl --user enable --now "
        f"penstock-{entry.name}.timer\n"
    )


def crontab(entry: Entry) -> str:
    """Return lines of a crontab; two runs never overlap, because ``penstock run`` takes a lock."""
    command = f"sh -c {shlex.quote(_shell(entry))}"
    zone = ""
    if entry.zone:
        zone = (
            "# CRON_TZ is cronie's: it counts for all lines below, and Debian's cron knows no zone "
            f"but the machine's.\nCRON_TZ={entry.zone}\n"
        )
    escaped = command.replace("%", r"\%")  # an unescaped % is a newline to cron
    return f"{zone}{entry.cron.text} {escaped}\n"


def kubernetes(entry: Entry, image: str) -> str:
    """Return a CronJob; the flow's folder must be in the image, or mounted at the same path."""
    zone = f"  timeZone: {json.dumps(entry.zone)}\n" if entry.zone else ""
    # A CronJob's name has at most 52 characters, and ends with a letter or digit.
    name = f"penstock-{entry.name}".lower().replace("_", "-")[:52].rstrip("-.")
    words = ["/bin/sh", "-c", _shell(entry, "penstock")]
    command = "".join(f"                - {json.dumps(word)}\n" for word in words)
    return (
        "apiVersion: batch/v1\nkind: CronJob\n"
        f"metadata:\n  name: {name}\n"
        f"spec:\n  schedule: {json.dumps(entry.cron.numbers)}\n{zone}"
        "  concurrencyPolicy: Forbid\n  startingDeadlineSeconds: 3600\n"
        "  jobTemplate:\n    spec:\n"
        "      backoffLimit: 0\n"
        "      template:\n        spec:\n          restartPolicy: Never\n"
        "          containers:\n            - name: penstock\n"
        f"              image: {json.dumps(image)}\n"
        f"              workingDir: {json.dumps(str(entry.flow.parent))}\n"
        f"              command:\n{command}"
    )


def airflow(entry: Entry) -> str:
    """Return a DAG of one task: penstock tracks the dependencies, and what is done."""
    words, home = json.dumps([_program(), *entry.words()]), json.dumps(str(entry.flow.parent))
    zone = entry.zone or "UTC"
    return (
        '"""Runs a flow of penstock."""\n\nimport subprocess\nfrom datetime import timedelta\n\n'
        "import pendulum\nfrom airflow import DAG\n"
        "from airflow.exceptions import AirflowException, AirflowFailException\n\n"
        "try:\n    from airflow.providers.standard.operators.python import PythonOperator\n"
        "except ImportError:  # before Airflow 3\n"
        "    from airflow.operators.python import PythonOperator\n\n\n"
        "def run(data_interval_end, ti):\n"
        f"    day = data_interval_end.in_timezone({zone!r}).to_date_string()\n"
        f"    attempt = f'{{ti.try_number}}/{entry.retries + 1}'\n"
        f"    words = [*{words}, '--date', day, '--attempt', attempt]\n"
        f"    code = subprocess.call(words, cwd={home})\n"
        "    if code == 2:  # the flow is wrong in itself, and is so again\n"
        "        raise AirflowFailException('penstock run: exit code 2')\n"
        "    if code:\n"
        "        raise AirflowException(f'penstock run: exit code {code}')\n\n\n"
        f"with DAG(\n    dag_id={json.dumps('penstock_' + entry.name)},\n"
        f"    schedule={json.dumps(entry.cron.text)},\n"
        f"    start_date=pendulum.datetime(2026, 1, 1, tz={zone!r}),\n"
        "    catchup=False,\n    max_active_runs=1,\n) as dag:\n"
        f'    PythonOperator(\n        task_id="run",\n        python_callable=run,\n'
        f"        retries={entry.retries},\n"
        f"        retry_delay=timedelta(seconds={entry.backoff:g}),\n"
        "        retry_exponential_backoff=True,\n    )\n"
    )


def _shell(entry: Entry, program: str | None = None) -> str:
    """Return the command with its retries, all of the day that it is in the schedule's zone."""
    zone = f"TZ={shlex.quote(entry.zone)} " if entry.zone else ""
    command = f'{shlex.join([program or _program(), *entry.words()])} --date "$day"'
    if not entry.retries:
        return f"day=$({zone}date +%F); exec {command}"
    waits = [f"{seconds_before_retry(n, entry.backoff):g}" for n in range(entry.retries)]
    # Exit code 2: the flow is wrong in itself, and is so again. In a container, the shell alone is
    # signalled.
    return (
        f"day=$({zone}date +%F); n=0; trap 'kill $run; wait $run; exit 143' TERM; "
        f"for wait in {' '.join(waits)} 0; do n=$((n+1)); "
        f"{command} --attempt $n/{entry.retries + 1} & run=$!; wait $run; code=$?; "
        "case $code in 0|2) exit $code;; esac; sleep $wait; done; exit $code"
    )


def _program() -> str:
    script = Path(sys.executable).with_name("penstock")
    return str(script) if script.exists() else "penstock"


def _warn_of_gap(entry: Entry) -> None:
    """Warn of a time that clocks skip: systemd leaves the run of that day out."""
    minutes, hours = entry.cron.values[:2]
    if entry.cron.any[0] or entry.cron.any[1]:
        return
    now = dt.datetime.now(dt.UTC)
    due = itertools.takewhile(lambda one: one < now + _AHEAD, entry.cron.times(entry.zone, now))
    for one in due:
        if one.minute not in minutes or one.hour not in hours:
            warn(
                f"clocks in {entry.zone or 'this zone'} go forward over a time of the schedule on "
                f"{one:%Y-%m-%d}, and systemd skips that run: choose another time, such as 04:30"
            )
            return


def _quoted(word: str) -> str:
    """Return a word of ExecStart, in which systemd expands % and $."""
    safe = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return '"{}"'.format(safe.replace("\n", "\\n"))


def _path(path: Path) -> str:
    return str(path).replace("%", "%%")
