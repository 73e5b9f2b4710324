"""Makes this worker a node of the user's account, and keeps it one (AUTH-9).

The user's login is needed once; from then on the node's own token is used, however long ago the login ended.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from mingora import credentials
from mingora.errors import ApiError, MingoraError, NotLoggedIn, TlsError
from mingora.server import parse_server
from mingora.transport import Transport
from mingora_worker import __version__
from mingora_worker.api import bad_answer, transient
from mingora_worker.backoff import Backoff
from mingora_worker.config import Config
from mingora_worker.console import Console
from mingora_worker.machine import Machine
from mingora_worker.runtimes.base import Offer
from mingora_worker.state import NodeRecord, Root, RootProblem
from mingora_worker.texts import _

AGENT = f"mingora-worker/{__version__}"


class Registrar:
    """`offer` is what can be run here; `pause` sleeps between tries and raises when the worker is to stop."""

    def __init__(
        self,
        root: Root,
        config: Config,
        machine: Machine,
        offer: Callable[[], Offer],
        console: Console,
        pause: Callable[[float], object],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._config = config
        self._machine = machine
        self._offer = offer
        self._console = console
        self._pause = pause
        self._told: Offer | None = None
        self._environ = dict(os.environ if environ is None else environ)
        if config.server is not None:
            self._environ["MINGORA_URL"] = config.server
        if config.ca_file is not None:
            self._environ["MINGORA_CA_FILE"] = config.ca_file

    @property
    def outdated(self) -> bool:
        """Whether the platform was told of another offer than the one there is now."""
        return self._told is not None and self._told != self._offer()

    def need_login(self) -> None:
        """Raises `NotLoggedIn` when `begin` couldn't but fail, before anything long is done for it."""
        record = self._root.node()
        if record is None or not record.token:
            self._login(record)

    def begin(self) -> NodeRecord:
        """The node to work as: brought up to date by its own token, or registered by the user's login.

        Raises `NotLoggedIn` without either, `RootProblem` when the folder is another platform's node.
        """
        record = self._root.node()
        if record is None or not record.token:
            return self._by_login(record)
        wanted = self._environ.get("MINGORA_URL") or record.server
        if parse_server(wanted).origin != parse_server(record.server).origin:
            raise RootProblem(
                _("{path} belongs to a node of {server}.").format(path=self._root.path, server=record.server),
                hint=_("Give another --root for another platform."),
            )
        record.ca_file = self._environ.get("MINGORA_CA_FILE") or record.ca_file
        try:
            answer = self._post(record, record.token)
        except ApiError as error:
            if error.status in {401, 404}:
                return self.renew(record)
            raise
        return self._keep(record, answer)

    def probe(self) -> str:
        """Whether the platform is reached and knows this worker, in words; tries once and registers nothing new.

        A worker that can offer nothing isn't told of: there the user's login is tried instead.
        """
        record = self._root.node()
        if record is not None and record.token and self._offer().runtimes:
            try:
                self._post(record, record.token, tries=1)
                return _("platform: {server} knows this node ({node})").format(server=record.server, node=record.id)
            except ApiError as error:
                if error.status not in {401, 404}:
                    raise
        login = self._login(record)
        try:
            with Transport(login.server, ca_file=login.ca_file, token=login.token, user_agent=AGENT) as transport:
                name = transport.request_json("GET", "/account", attempts=1, timeout=20).data["name"]
        except ApiError as error:
            raise self._explained(error) from error
        return _("platform: {server}, logged in as {name}").format(server=login.server, name=name)

    def renew(self, record: NodeRecord) -> NodeRecord:
        """Registers the node again by the user's login, after its own token was refused."""
        self._console.event("token_refused", _("The platform refuses the node's token; registering again."))
        return self._by_login(record)

    def _by_login(self, record: NodeRecord | None) -> NodeRecord:
        login = self._login(record)
        ca_file = login.ca_file or (record.ca_file if record else None)
        if record is None or parse_server(record.server).origin != parse_server(login.server).origin:
            record = NodeRecord(login.server, secrets.token_hex(32))
        record.ca_file = ca_file
        self._root.save_node(record)  # the key first: a lost answer must not leave a second node behind
        try:
            answer = self._post(record, login.token)
        except ApiError as error:
            raise self._explained(error) from error
        return self._keep(record, answer)

    def _login(self, record: NodeRecord | None) -> credentials.Credentials:
        if record is not None:
            self._environ.setdefault("MINGORA_URL", record.server)
        try:
            return credentials.load(self._environ)
        except NotLoggedIn as error:
            raise NotLoggedIn(error.message, hint=error.hint or login_hint()) from error

    def _explained(self, error: ApiError) -> MingoraError:
        """A refusal of the user's login, with what to do about it."""
        if error.status == 401:
            return NotLoggedIn(_("The platform refuses your login: it has ended."), hint=login_hint())
        if error.code == "quota_exceeded":
            error.hint = _("Remove nodes that are no longer used, or ask the operator for a higher limit.")
        return error

    def _post(self, record: NodeRecord, token: str, *, tries: int | None = None) -> Mapping[str, Any]:
        """Repeats while the platform can't be reached, up to `tries` times if given.

        A certificate that isn't trusted is for a person to mend.
        """
        backoff, offer = Backoff(), self._offer()
        with Transport(record.server, ca_file=record.ca_file, token=token, user_agent=AGENT) as transport:
            while True:
                try:
                    answer = transport.request_json(
                        "POST", "/nodes", body=self._body(record, offer), idempotent=True, attempts=1, timeout=20
                    ).data
                    node = {"id": str(answer["id"]), "token": answer["token"], "name": str(answer["name"])}
                except (KeyError, TypeError) as error:
                    raise bad_answer() from error
                except MingoraError as error:
                    tries = None if tries is None else tries - 1
                    if not transient(error) or isinstance(error, TlsError) or tries == 0:
                        raise
                    self._console.trouble(error)
                    self._pause(backoff.failed(error))
                else:
                    self._told = offer
                    return node

    def _body(self, record: NodeRecord, offer: Offer) -> dict[str, Any]:
        machine, config = self._machine, self._config
        body = {
            "nodeKey": record.key,
            "name": config.name,
            "version": __version__,
            "platform": machine.platform,
            "machineId": machine.machine_id,
            "cpu": machine.cpu,
            "memoryMiB": machine.memory_mib,
            "gpu": None if machine.gpu is None else machine.gpu.as_json(),
            "runtimes": list(offer.runtimes),
            "imageDigest": offer.image_digest,
            "fingerprint": machine.fingerprint,
            "networkGroup": config.network_group,
            "allowClusterNetwork": config.allow_cluster_network,
            "labels": config.labels,
            "data": sorted(config.data),
        }
        if offer.isolation is not None:  # a platform that is older than this worker doesn't know the word
            body["isolation"] = dict(offer.isolation)
        return body

    def _keep(self, record: NodeRecord, answer: Mapping[str, Any]) -> NodeRecord:
        record.id = answer["id"]
        record.token = answer["token"] or record.token
        self._root.save_node(record)
        text = _("Registered as {name} ({node}) at {server}.")
        self._console.event(
            "registered", text.format(name=answer["name"], node=record.id, server=record.server), node=record.id
        )
        return record


def login_hint() -> str:
    return _("Log in on this machine, then start the worker again: mingora login")
