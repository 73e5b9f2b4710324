"""Volunteers and a coordinator as real processes: three of them train together, and trouble doesn't end it."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from e2e_proxy import CuttingProxy
from e2e_support import REPOSITORY, environment, until
from safetensors.torch import load, load_file, save_file
from service.volunteer.tiny_model import held_out_loss, lora_model, make_adapter, make_base_model, make_text
from transformers import PreTrainedTokenizerFast

from mingora.errors import TransportError
from mingora_volunteer.address import parse_address
from mingora_volunteer.exchange import Exchanger
from mingora_volunteer.protocol import Coordinator

NAMES = ("ali", "veli", "ayşe")
# A rate at which rounding stays rounding: AdamW makes of a gradient near 0 a whole step, to one side or the other.
ROUNDS, STEPS, BATCH, SEQUENCE, RATE, SEED = 5, 20, 4, 48, 1e-3, 7
DECAY, OUTER_RATE = 0.5, 1.0
MINIMAL = REPOSITORY / "services" / "coordinator_v1" / "examples" / "minimal_coordinator.py"

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.req("VOL-1")]


class Process:
    """A program whose output can be looked at while it runs."""

    def __init__(self, *command: str) -> None:
        self.output = ""
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
            env=environment(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def says(self, pattern: str) -> re.Match[str]:
        """Waits for it."""

        def said() -> bool:
            assert self.process.poll() is None or re.search(pattern, self.output), self.output
            return re.search(pattern, self.output) is not None

        until(said, 120, f"{pattern!r} in {self.output!r}")
        found = re.search(pattern, self.output)
        assert found is not None
        return found

    def ends(self, seconds: float = 240) -> int:
        code = self.process.wait(seconds)
        self._reader.join()
        assert "Traceback" not in self.output, self.output
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs that end with the test."""
    started: list[Process] = []

    def begin(*command: str | Path) -> Process:
        started.append(Process(sys.executable, *map(str, command)))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model, a text, and the adapter to begin with."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("volunteer")
    make_adapter(make_base_model(folder / "model"), folder / "initial.safetensors")
    (folder / "text.txt").write_text(make_text(1, 600), encoding="utf-8")
    return folder


def coordinator(start: Start, folder: Path, data: Path, *options: str, port: str = "0") -> tuple[Process, str]:
    """The real one, and its address."""
    process = start(
        "-m", "mingora_coordinator", "serve", "--initial", folder / "initial.safetensors", "--data-dir", data,
        "--port", port, "--base-model", "Tiny/Base", "--batch-size", str(BATCH), "--seq", str(SEQUENCE),
        "--lr", str(RATE), "--seed", str(SEED), *options,
    )  # fmt: skip
    return process, process.says(r"http://127\.0\.0\.1:\d+")[0]


def volunteer(start: Start, folder: Path, url: str, name: str, *options: str) -> Process:
    return start(
        "-m", "mingora_volunteer", "--url", url, "--isci", name, "--base-model", folder / "model",
        "--data", folder / "text.txt", "--device", "cpu", *options,
    )  # fmt: skip


def get(url: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        return response.read()
    finally:
        connection.close()


Adapter = dict[str, torch.Tensor]


class Simulation:
    """The same training in one process, after the protocol page alone."""

    def __init__(self, folder: Path) -> None:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder / "model"))
        text = (folder / "text.txt").read_text(encoding="utf-8")
        self.ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        torch.manual_seed(SEED)
        self.model = lora_model(folder / "model").train()
        self.parameters = {
            name.replace(".default", ""): value for name, value in self.model.named_parameters() if "lora_" in name
        }

    def round(self, name: str, number: int, part: int, parts: int, start: Adapter, steps: int) -> Adapter:
        n = len(self.ids) // parts
        own = self.ids[part * n : (part + 1) * n]
        with torch.no_grad():
            for key, value in self.parameters.items():
                value.copy_(start[key])
        optimiser = torch.optim.AdamW(self.parameters.values(), lr=RATE, betas=(0.9, 0.95))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
        chance = random.Random(f"{name}-{number}")
        for _step in range(steps):
            begins = [chance.randrange(n - SEQUENCE + 1) for _row in range(BATCH)]
            windows = torch.tensor([own[begin : begin + SEQUENCE] for begin in begins])
            loss = self.model(input_ids=windows, labels=windows).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
            optimiser.step()
            schedule.step()
        return {key: value.detach().clone() for key, value in self.parameters.items()}


class Nesterov:
    """The page's reference outer step, in float64."""

    def __init__(self) -> None:
        self.buffer: dict[str, Any] = {}

    def step(self, start: Adapter, results: list[Adapter]) -> Adapter:
        made = {}
        for key, value in start.items():
            w = value.double().numpy()
            delta = w - np.mean([result[key].double().numpy() for result in results], axis=0)
            self.buffer[key] = DECAY * self.buffer.get(key, 0.0) + delta
            made[key] = torch.from_numpy(w - OUTER_RATE * (delta + DECAY * self.buffer[key])).float()
        return made


@pytest.mark.req("COORD-3")
def test_three_volunteers_train_together_as_one_process_would(start: Start, folder: Path, tmp_path: Path) -> None:
    server, url = coordinator(
        start, folder, tmp_path / "data",
        "--rounds", str(ROUNDS), "--min-results", "3", "--inner-steps", str(STEPS), "--outer", "nesterov",
    )  # fmt: skip
    volunteers = {name: volunteer(start, folder, url, name) for name in NAMES}
    for process in volunteers.values():
        assert process.ends() == 0, process.output
    final = get(url, "/agirlik")
    assert json.loads(get(url, "/durum"))["tur"] == ROUNDS and server.process.poll() is None

    simulation, outer, adapter = Simulation(folder), Nesterov(), load_file(folder / "initial.safetensors")
    losses = [held_out_loss(folder / "model", folder / "initial.safetensors")]
    for number in range(ROUNDS):
        parts = {}
        for name, process in volunteers.items():
            said = re.findall(
                rf"Round {number} \(of 5\): slice (\d) \(of 3\) of the data, {STEPS} steps", process.output
            )
            assert len(said) == 1, process.output
            parts[name] = int(said[0])
        assert sorted(parts.values()) == [0, 1, 2]
        results = [simulation.round(name, number, part, 3, adapter, STEPS) for name, part in parts.items()]
        adapter = outer.step(adapter, results)
        save_file(adapter, tmp_path / "round.safetensors")
        losses.append(held_out_loss(folder / "model", tmp_path / "round.safetensors"))
    published = load(final)
    assert published.keys() == adapter.keys()
    for key, value in published.items():
        assert torch.allclose(value, adapter[key], rtol=0, atol=1e-5), key
    (tmp_path / "final.safetensors").write_bytes(final)
    assert losses == sorted(losses, reverse=True) and losses[0] - losses[-1] > 0.1
    assert held_out_loss(folder / "model", tmp_path / "final.safetensors") == pytest.approx(losses[-1], abs=1e-4)


@pytest.mark.req("MINI-1")
def test_a_volunteer_trains_with_the_minimal_coordinator(start: Start, folder: Path) -> None:
    server = start(MINIMAL, "--baslangic", folder / "initial.safetensors", "--tur", "2", "--en-az", "1", "--port", "0")
    url = server.says(r"http://127\.0\.0\.1:\d+")[0]
    process = volunteer(start, folder, url, "ali", "--max-upload", "1M")
    assert process.ends() == 0, process.output
    assert process.output.count("was accepted") == 2
    assert load(get(url, "/agirlik")).keys() == load_file(folder / "initial.safetensors").keys()


@pytest.mark.req("COORD-6")
def test_a_coordinator_that_dies_and_comes_back_does_not_end_the_training(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    options = ("--rounds", "3", "--min-results", "1", "--inner-steps", "200")
    server, url = coordinator(start, folder, tmp_path / "data", *options)
    process = volunteer(start, folder, url, "ali")
    process.says("Round 1 ")
    server.close()
    process.says("Trying again")
    coordinator(start, folder, tmp_path / "data", *options, port=url.rpartition(":")[2])
    assert process.ends() == 0, process.output
    assert json.loads(get(url, "/durum"))["tur"] == 3
    assert all(process.output.count(f"Round {number} ") == 1 for number in range(3))  # nothing was trained twice


def test_lines_that_break_delay_the_training_and_no_more(start: Start, folder: Path, tmp_path: Path) -> None:
    _server, url = coordinator(
        start, folder, tmp_path / "data", "--rounds", "2", "--min-results", "1", "--inner-steps", "5"
    )
    proxy = CuttingProxy(int(url.rpartition(":")[2]), seed=1)
    proxy.share = 1.0
    process = volunteer(start, folder, proxy.url, "ali")
    process.says("Trying again")
    proxy.share = 0.1
    assert process.ends() == 0, process.output
    proxy.close()
    assert json.loads(get(url, "/durum"))["tur"] == 2 and proxy.cuts > 0


def test_a_broken_download_goes_on_where_it_broke_at_the_real_coordinator(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    _server, url = coordinator(start, folder, tmp_path / "data", "--rounds", "1", "--min-results", "1")
    proxy = CuttingProxy(int(url.rpartition(":")[2]), seed=2)
    proxy.share = 0.7
    asked: list[dict[str, str]] = []

    class Watched:
        def __init__(self) -> None:
            self.inner: Any = Exchanger(parse_address(proxy.url))

        def exchange(self, *words: Any, **more: Any) -> Any:
            asked.append(more["headers"])
            return self.inner.exchange(*words, **more)

    whole = (folder / "initial.safetensors").read_bytes()
    digest = hashlib.sha256(whole).hexdigest()
    while not any("Range" in headers for headers in asked):
        link = Coordinator(cast(Any, Watched()), "ali", tmp_path)
        for _attempt in range(200):
            try:
                received = link.adapter(digest, lambda _done, _total: None)
                break
            except TransportError:
                continue
        assert received.read_bytes() == whole
        received.unlink()
    proxy.close()


@pytest.mark.parametrize(("choice", "accepted"), [("finish", 1), ("abandon", 0)])
def test_a_stop_finishes_or_abandons_the_round_as_asked(
    start: Start, folder: Path, tmp_path: Path, choice: str, accepted: int
) -> None:
    _server, url = coordinator(
        start, folder, tmp_path / "data", "--rounds", "2", "--min-results", "2", "--inner-steps", "300"
    )
    process = volunteer(start, folder, url, "ali", "--on-stop", choice)
    process.says("Round 0 ")
    process.process.send_signal(signal.SIGTERM)
    assert process.ends() == 0, process.output
    assert process.output.rstrip().endswith("Stopped.")
    assert process.output.count("was accepted") == accepted
    assert json.loads(get(url, "/durum"))["bekleyen_sonuc"] == ["ali"] * accepted


def test_a_first_signal_ends_what_has_nothing_to_finish(start: Start, folder: Path) -> None:
    """While the model is loaded, and while a coordinator that took the request says nothing for ever."""
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        for seconds in (0.0, 0.3, 0.6, 0.9):  # among them the moments when PyTorch takes no exception
            loading = volunteer(start, folder, url, "ali")
            loading.says("Loading the model")
            time.sleep(seconds)
            loading.process.send_signal(signal.SIGTERM)
            assert loading.ends() == 0 and loading.output.rstrip().endswith("Stopped."), loading.output
            assert "Trying again" not in loading.output
        silent.settimeout(120)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hanging = volunteer(start, folder, url, "ali")
        connection, _peer = silent.accept()
        with connection:
            assert connection.recv(1000).startswith(b"GET /gorev")
            hanging.process.send_signal(signal.SIGINT)
            assert hanging.ends(100) == 0 and hanging.output.rstrip().endswith("Stopped."), hanging.output
