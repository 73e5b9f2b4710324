"""PyTorch, NumPy, OpenMP and multiprocessing do their work in a job's container, with all that holds it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import docker_images
import docker_runtime
import pytest
from docker_support import Registry

from mingora_worker.console import Console
from mingora_worker.runtimes.docker.limits import Allowance
from mingora_worker.runtimes.docker.reference import parse_reference
from mingora_worker.runtimes.docker.runtime import DockerRuntime

MEMORY_MIB = 3072

pytestmark = [
    pytest.mark.engine("docker"),
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),  # the image has a gigabyte
    pytest.mark.req("WORK-7"),
]

TRAINING = """
    import json, pathlib, warnings
    import numpy, torch
    import torch.multiprocessing as multiprocessing
    from torch import distributed, nn
    from torch.utils.data import DataLoader, TensorDataset

    def add_one(tensor, sums):
        tensor += 1  # in memory that the parent shares
        sums.put(tensor.sum().item())

    def shared(method, strategy):
        multiprocessing.set_sharing_strategy(strategy)
        context = multiprocessing.get_context(method)
        tensor, sums = torch.zeros(1000).share_memory_(), context.Queue()
        child = context.Process(target=add_one, args=(tensor, sums))
        child.start()
        assert sums.get(timeout=100) == 1000
        child.join()
        return tensor.sum().item()

    def reduce(rank, sums):
        distributed.init_process_group("gloo", "tcp://127.0.0.1:29500", rank=rank, world_size=2)
        value = torch.ones(10) * (rank + 1)
        distributed.all_reduce(value)
        distributed.destroy_process_group()
        if rank == 0:
            sums.put(value.sum().item())

    def reduced():
        sums = multiprocessing.get_context("spawn").Queue()
        multiprocessing.spawn(reduce, (sums,), nprocs=2)
        return sums.get(timeout=100)

    def main():
        warnings.simplefilter("error")
        torch.manual_seed(0)
        torch.set_num_threads(2)
        inputs = torch.from_numpy(numpy.random.default_rng(0).normal(size=(512, 4)).astype("float32"))
        targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        loader = DataLoader(TensorDataset(inputs, targets), 64, num_workers=2, persistent_workers=True)
        losses = []
        for _ in range(15):
            for batch, wanted in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(batch), wanted)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        square = numpy.ones((600, 600))
        result = {
            "losses": [losses[0], losses[-1]],
            "openmp": "OpenMP" in torch.__config__.parallel_info(),
            "threads": torch.get_num_threads(),
            "matrix": [(square @ square).sum(), (torch.ones(600, 600) @ torch.ones(600, 600)).sum().item()],
            "spawned": shared("spawn", "file_descriptor"),
            "forked": shared("fork", "file_system"),
            "reduced": reduced(),
        }
        torch.save(model.state_dict(), "results/model.pt")
        warnings.simplefilter("default")
        with torch.no_grad():
            result["compiled"] = torch.allclose(torch.compile(model)(inputs), model(inputs), atol=1e-5)
        pathlib.Path("results/result.json").write_text(json.dumps(result))

    if __name__ == "__main__":
        main()
"""
# Without these two torch compiles half a minute of what isn't asked here: tries of vector instructions, and headers.
QUICK = {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


@pytest.fixture
def runtime(registry: Registry, tmp_path: Path) -> Iterator[DockerRuntime]:
    """A worker's runtime on the image, with two CPUs for its jobs."""
    (tmp_path / "jobs").mkdir()
    allowance = Allowance(tmp_path, MEMORY_MIB, 2)
    made = DockerRuntime(
        tmp_path, parse_reference(docker_images.with_torch(registry)), allowance, Console(stream=StringIO())
    )
    try:
        made.prepare()
        yield made
    finally:
        made.clear()
        made.close()


def test_a_training_works_in_a_jobs_container(runtime: DockerRuntime) -> None:
    ran = docker_runtime.run(
        runtime, ["python3", "main.py"], files={"main.py": textwrap.dedent(TRAINING)}, env=QUICK,
        resources={"memoryMiB": MEMORY_MIB}, timeoutSeconds=300,
    )  # fmt: skip
    assert ran.end == ("succeeded", 0, None), ran.text
    assert "not permitted" not in ran.text and ran.refused == []
    found = json.loads(ran.results["result.json"])
    first, last = found.pop("losses")
    assert last < 0.5 < first
    assert found == {
        "openmp": True, "threads": 2, "matrix": [600**3, 600**3], "spawned": 1000, "forked": 1000, "reduced": 30,
        "compiled": True,
    }  # fmt: skip
    assert set(ran.results) == {"model.pt", "result.json"}
