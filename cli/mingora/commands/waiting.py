"""What `wait` and `submit --wait` do alike: wait, tell what changes, and show the end."""

from __future__ import annotations

from mingora.api_texts import state_text
from mingora.commands.context import Context
from mingora.errors import ApiError, TransportError
from mingora.i18n import _
from mingora.jobs import Job
from mingora.output import harmless, pairs

TAIL_BYTES = 4096
TAIL_LINES = 20


def wait_and_show(context: Context, job_id: str, timeout: float | None) -> int:
    """Waits for a job and shows it; a failed one with the end of its log. The exit code is the job's."""
    out = context.out
    context.interrupted = _("Detached; {job} goes on. Come back with: mingora wait {job}").format(job=job_id)
    job = context.client.wait(job_id, timeout, on_change=lambda job: _tell(context, job))
    if job["state"] == "failed" and not out.as_json:
        _show_tail(context, job)
    out.emit({"job": dict(job)}, pairs(job.rows()))
    return job.exit_code


def _tell(context: Context, job: Job) -> None:
    state = context.out.colour(harmless(state_text(job["state"])), job["state"], context.out.stderr)
    attempt = job.get("attempt") or 1
    if job["state"] == "queued" and job.get("attempt"):
        state += " " + _("(again, after attempt {number})").format(number=attempt)
    elif attempt > 1:
        state += " " + _("(attempt {number})").format(number=attempt)
    context.out.note_coloured(f"{harmless(job['id'])}: {state}")


def _show_tail(context: Context, job: Job) -> None:
    rank = next((rank["rank"] for rank in job.get("ranks") or [] if rank.get("exitCode")), 0)
    try:
        text = context.client.logs(job["id"], rank=rank, tail=TAIL_BYTES)
    except (ApiError, TransportError):
        return  # the job's end is what was asked for; its log can be asked for again
    lines = text.splitlines()[-TAIL_LINES:]
    if lines:
        context.out.note(_("The end of the log of rank {rank}:").format(rank=rank))
        context.out.note("\n".join(f"  {line}" for line in lines))
