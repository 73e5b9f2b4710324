"""The platform's error codes in the reader's language; a code that isn't here keeps the server's own words."""

from __future__ import annotations

from mingora.errors import ApiError, MingoraError
from mingora.i18n import _


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
    path = error.fields.get("path")
    return f"{path}: {text}" if path and error.code in texts else text
