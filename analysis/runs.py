"""One record per run: its identity, what became of it, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from analysis.ingest import FileResult
from analysis.merge import Steps
from analysis.parse import Event

OK, FAILED, DIVERGED, INCOMPLETE, NO_DATA = "ok", "failed", "diverged", "incomplete", "no-data"
OWN = frozenset({"hosts", "job_id", "threads"})  # may differ between ranks or attempts
SIGNALS = {9: "SIGKILL", 15: "SIGTERM", 6: "SIGABRT", 11: "SIGSEGV", 2: "SIGINT", 10: "SIGUSR1", 12: "SIGUSR2"}


@dataclass
class Run:
    """All that is known of one run; `identity` is what `ecg_run` said, else what `ecg_launch` said."""

    run: str
    identity: dict[str, Any] = field(default_factory=dict)
    identified: bool = False  # ecg_run was there: without it a run cannot be compared
    launch: dict[str, Any] = field(default_factory=dict)  # what ecg_launch said: how and where it was started
    status: str = INCOMPLETE
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    timing: dict[str, Any] = field(default_factory=dict)
    eval_loss: float | None = None
    metrics: dict[str, Any] | None = None  # of the test, after fine-tuning
    peak_memory: float | None = None
    uncalibrated: str = ""

    @property
    def world(self) -> int | None:
        return self.identity.get("world")


class Story:
    """Folds the events of one run, file by file, each file in its order."""

    def __init__(self, run: str):
        self.run = Run(run)
        self.launch: dict[str, Any] = {}
        self.stops: dict[tuple[str, int | None], dict[str, Any]] = {}
        self.ends: dict[tuple[str, int | None], dict[str, Any]] = {}
        self.exit: dict[str, Any] | None = None
        self.eval_step = -1
        self.identities: dict[int, dict[str, Any]] = {}  # by rank, the last that each stated
        self.said: set[str] = set()
        self.complaint = ""
        self.resumed: set[int] = set()  # first steps of the attempts that went on from a state

    def tell(self, file: str, event: Event) -> None:
        value, where = event.value, (file, event.rank)
        if event.key == "ecg_launch":
            self.launch = value
            self.exit = None  # a launch after an exit is a new attempt
        elif event.key == "ecg_run":
            self._identify(where, value)
        elif event.key == "run_stop":
            self.stops[where] = event.metadata
        elif event.key == "ecg_end":
            self.ends[where] = value
        elif event.key == "ecg_exit":
            self.exit = value
        elif event.key == "ecg_eval" and (value.get("step") or 0) >= self.eval_step:
            self.eval_step = value.get("step") or 0
            loss = value.get("loss")
            self.run.eval_loss = loss if isinstance(loss, int | float) else None
        elif event.key == "ecg_resume":
            self.resumed.add((value.get("step") or 0) + 1)
        elif event.key == "ecg_metrics":
            self.run.metrics = value  # every worker holds the whole test
        elif event.key == "ecg_calibration_unavailable":
            self.run.uncalibrated = str(value)

    def _identify(self, where: tuple[str, int | None], value: dict[str, Any]) -> None:
        rank = where[1] or 0
        for other, known in self.identities.items():
            for name in sorted(known.keys() & value.keys() - OWN - self.said):
                if known[name] != value[name]:
                    self.said.add(name)
                    between = "between attempts" if other == rank else f"between ranks {other} and {rank}"
                    self.run.notes.append(f"{name} differs {between}: {known[name]} / {value[name]}")
        self.identities[rank] = value
        # What an earlier attempt ended with is not the end of this one.
        self.stops.pop(where, None)
        self.ends.pop(where, None)

    def close(self) -> Run:
        """Settle identity, memory and notes; the status needs the steps and comes later (`settle`)."""
        run = self.run
        run.identified = bool(self.identities)
        run.launch = dict(self.launch)
        run.identity = self.identities[min(self.identities)] if run.identified else dict(self.launch)
        peaks = [e["peak_memory_bytes"] for e in self.ends.values() if e.get("peak_memory_bytes") is not None]
        run.peak_memory = max(peaks, default=None)
        return run

    def settle(self) -> None:
        """Decide the status from the ends that were told and the steps that were found."""
        run, steps = self.run, self.run.steps
        rc = None if self.exit is None else self.exit.get("rc")
        aborted = [(rank, m.get("reason")) for (_, rank), m in self.stops.items() if m.get("status") != "success"]
        ends = [e for e in self.ends.values() if e.get("status") not in (None, "ok", "success")]
        said = next((f"{why} (rank {rank})" if rank else str(why) for rank, why in aborted if why), "")
        said = said or next((str(e["reason"]) for e in ends if e.get("reason")), "")
        if self.exit and self.exit.get("reason"):  # the launch knows what no worker could tell any more
            said = f"{self.exit['reason']}: {said}" if said else f"{self.exit['reason']}, {exit_reason(rc or 0)}"
        if steps.not_finite_at is not None:
            run.status, run.reason = DIVERGED, f"loss is not finite at step {steps.not_finite_at}"
        elif any(e.get("status") == DIVERGED for e in ends):
            run.status, run.reason = DIVERGED, said or "diverged"
        elif rc:
            run.status, run.reason = FAILED, said or exit_reason(rc) + (f": {self.complaint}" if self.complaint else "")
        elif aborted or ends:
            run.status, run.reason = FAILED, said or "aborted, no reason given"
        elif self.stops:
            run.status = OK
        elif not (self.launch or run.identified or steps.count):
            run.status, run.reason = NO_DATA, "no readable line"
        else:
            run.status = INCOMPLETE
            planned = run.identity.get("steps")
            at = f"after step {steps.last}" if steps.count else "before the first step"
            run.reason = f"cut off {at}" + (f" of {planned}" if planned and steps.count else "") + ", no run_stop"
            if rc == 0:
                run.reason += " although the exit status is 0"


def exit_reason(rc: int) -> str:
    """Say what an exit status tells, and no more."""
    if rc > 128 and rc - 128 in SIGNALS:
        return f"exit status {rc} ({SIGNALS[rc - 128]})"
    return f"exit status {rc}"


def gather(files: list[FileResult]) -> dict[str, Story]:
    """Return the story of every run, in the order in which runs are first met; files without a line give a
    run of no data.
    """
    stories: dict[str, Story] = {}
    labels: dict[str, bool] = {}
    for file in files:
        labels[file.source.label] = labels.get(file.source.label, False) or bool(file.runs)
        for run in sorted(file.runs):
            stories.setdefault(run, Story(run))
            if len(file.runs) == 1:  # else nobody knows whose it is
                stories[run].complaint = file.complaint or stories[run].complaint
        for event in file.events:
            stories[event.run].tell(file.source.shown, event)
    for label, known in labels.items():
        if not known and label not in stories:
            stories[label] = Story(label)
    return stories
