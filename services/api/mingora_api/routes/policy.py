"""``GET /policy``: limits, intervals and the JSON Schema of job.json; ``GET /account``: who is calling."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from mingora_api.domain.inputs import MAX_INPUTS
from mingora_api.domain.spec import FEATURES, SCHEMA
from mingora_api.routes import schemas
from mingora_common import __version__
from mingora_common.auth import READ
from mingora_common.clock import rfc3339
from mingora_common.filepaths import MAX_PATH_BYTES
from mingora_common.http import needs, principal
from mingora_common.openapi import describe
from mingora_common.wake import MAX_WAIT_SECONDS

PART_SIZE_BYTES = 2 * 1024 * 1024
MAX_LOG_BYTES = 100 * 1024 * 1024
INTERVALS = {
    "claimSeconds": 15,
    "heartbeatSeconds": 15,
    "leaseTtlSeconds": 60,
    "jobPollSeconds": 10,
    "barrierPollSeconds": 5,
    "maxWaitSeconds": int(MAX_WAIT_SECONDS),
    "pageRefreshSeconds": 30,
}

blueprint = Blueprint("policy", __name__)


@blueprint.get("/policy")
@needs(READ)
@describe("Limits, intervals and part sizes.", {200: schemas.POLICY})
def show_policy() -> Response:
    limits = principal().limits
    return jsonify(
        apiVersion=1,
        server=f"mingora {__version__}",
        limits={
            "maxFileBytes": limits.max_file_bytes,
            "maxBytes": limits.max_bytes,
            "maxFiles": limits.max_files,
            "maxJobs": limits.max_jobs,
            "maxNodes": limits.max_nodes,
            "maxLogBytes": MAX_LOG_BYTES,
            "maxInputs": MAX_INPUTS,
            "maxPathBytes": MAX_PATH_BYTES,
        },
        partSizeBytes=PART_SIZE_BYTES,
        intervals=INTERVALS,
        features=list(FEATURES),
        fees={"model": "0.00", "currency": "CNY", "usageVerified": False},
        jobSchema=SCHEMA,
    )


@blueprint.get("/account")
@needs(READ)
@describe("Who is calling.", {200: schemas.ACCOUNT})
def show_account() -> Response:
    caller = principal()
    return jsonify(
        id=caller.account_id,
        name=caller.account_name,
        tenant=caller.tenant_name,
        token={
            "id": caller.token_id,
            "kind": caller.kind,
            "scopes": sorted(caller.scopes),
            "expiresAt": rfc3339(caller.expires_at),
        },
    )
