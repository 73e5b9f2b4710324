"""The platform's codes and states in the reader's language; what isn't known here keeps the server's own words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mingora.errors import ApiError, MingoraError
from mingora.i18n import _, choose_language

_TOLD_FIRST = ("network", "quota")


def people_text(error: MingoraError) -> str:
    """The error's text for people."""
    if not isinstance(error, ApiError):
        return error.message
    texts = {
        "invalid_token": _("The login is not valid any more."),
        "bad_credentials": _("The name or the password is wrong."),
        "insufficient_scope": _("This login is not allowed to do that."),
        "not_found": _("There is no such thing, or it is not yours."),
        "key_conflict": _("This key already belongs to a job with other content."),
        "object_in_use": _("A job still needs this file."),
        "job_not_finished": _("The job has not finished; stop it first: mingora cancel JOB"),
        "invalid_job": _("The platform refuses this job:"),
        "rate_limited": _("Too many requests."),
        "internal": _("The platform has a fault; its operator finds more in its log."),
        "unavailable": _("The platform is not available just now."),
    }
    text = texts.get(error.code, error.message)
    if error.fields.get("reason") == "disk_full":
        text = _("The platform's disk is full; its operator has to make room.")
    path = error.fields.get("path")
    return f"{path}: {text}" if path and error.code in texts else text


def login_hint() -> str:
    """What mends a token that the platform refuses."""
    if os.environ.get("MINGORA_TOKEN"):
        return _("MINGORA_TOKEN is set and decides; unset it, or set a valid one.")
    return _("Log in again: mingora login")


def reason_text(reason: Mapping[str, str]) -> str:
    """Why a job ended: the code, and the platform's English sentence with its meaning in other languages."""
    texts = {
        "exit_code": _("the command ended with an error"),
        "signal": _("a signal ended the command"),
        "memory_exceeded": _("the memory budget was exceeded"),
        "output_limit": _("the job filled the room for its results"),
        "log_limit": _("the job wrote more log than is kept"),
        "timed_out": _("the time limit was reached"),
        "command_not_found": _("the command was not found"),
        "input_corrupt": _("an input file is damaged"),
        "inputs_unavailable": _("the input files could not be fetched"),
        "quota_exceeded": _("the account's limit is reached"),
        "result_refused": _("a result file can't be kept"),
        "worker_stopped": _("the worker was stopped"),
        "worker_error": _("the worker had a fault"),
        "engine_lost": _("the machine's container engine went away"),
        "disk_full": _("the machine's disk is full"),
        "lease_lost": _("the machine was not heard from any more"),
        "ready_deadline": _("not every machine was ready in time"),
        "cancelled": _("the job was cancelled"),
        "peer_failed": _("another rank failed"),
    }
    code, message = reason["code"], reason["message"]
    if choose_language() == "en" or code not in texts:
        return f"{code}: {message}"
    return f"{code}: {texts[code]} ({message})"


def state_text(state: str) -> str:
    """A job's or a machine's state."""
    texts = {
        "queued": _("queued"),
        "reserved": _("reserved"),
        "running": _("running"),
        "stopping": _("stopping"),
        "succeeded": _("succeeded"),
        "failed": _("failed"),
        "cancelled": _("cancelled"),
        "idle": _("idle"),
        "busy": _("busy"),
        "paused": _("paused"),
        "away": _("away"),
    }
    return texts.get(state, state)


def waiting_text(found: Mapping[str, Any]) -> str:
    """What a job waits for, from the platform's explanation: its English sentence, or the gist in other languages."""
    if choose_language() == "en":
        return str(found["summary"])
    if not found["waiting"]:
        return _("{job} is {state}.").format(job=found["jobId"], state=state_text(found["state"]))
    fitting = sum(not node["problems"] for node in found["nodes"])
    text = _("The job waits; {fitting} of {all} machines could take it now.")
    return f"{text.format(fitting=fitting, all=len(found['nodes']))} ({found['summary']})"


def problem_text(problem: Mapping[str, str]) -> str:
    """What keeps a machine from a job."""
    texts = {
        "paused": _("it is paused"),
        "away": _("it is not asking for work"),
        "busy": _("it runs another job"),
        "runtime": _("it does not run such jobs"),
        "cpu": _("it has too few CPUs"),
        "memory": _("it has too little memory"),
        "gpu": _("it offers no GPU"),
        "gpu_busy": _("its GPU is used by another job"),
        "gpu_shared": _("another worker offers the same GPU"),
        "network_group": _("it is in another network group"),
        "cluster_network": _("it does not take jobs that need a network group"),
        "image": _("its image is another one"),
        "fingerprint": _("its environment is another one"),
        "data": _("it lacks local data"),
    }
    code, message = problem["code"], problem["message"]
    return message if choose_language() == "en" or code not in texts else f"{texts[code]} ({message})"


def job_profile_text(profile: Mapping[str, Any]) -> str:
    """What of a rank's profile matters most to a job's owner; the rest is in `--json`."""
    return profile_text({name: profile[name] for name in _TOLD_FIRST if name in profile} or profile)


def profile_text(profile: Mapping[str, Any]) -> str:
    """What keeps a container's job in, as the worker proved it: one line of the profile's names and values."""
    return ", ".join(f"{name} {_setting(value)}" for name, value in profile.items() if value is not None)


def _setting(value: object) -> str:
    return (_("yes") if value else _("no")) if isinstance(value, bool) else str(value)
