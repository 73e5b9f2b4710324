"""PyTorch, NumPy, OpenMP and multiprocessing do their work in a job's container, with all that holds it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import docker
import docker_images
import pytest
from docker.types import Mount
from docker_support import Registry

from mingora_worker.runtimes.docker.settings import RESULTS, Box, arguments

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


@pytest.fixture(scope="module")
def image(registry: Registry) -> str:
    return registry.pull(docker_images.with_torch(registry))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    project, output = tmp_path / "project", tmp_path / "output"
    (project / "results").mkdir(parents=True)
    output.mkdir()
    output.chmod(0o777)
    project.chmod(0o755)
    (project / "main.py").write_text(textwrap.dedent(TRAINING))
    return Box(
        name=f"mingora-test-torch-{tmp_path.parent.name}-{tmp_path.name}", labels={}, user="61000:61000",
        memory_mib=3072, scratch_mib=512, cpus=2, pids=256, project=project, output=Mount(RESULTS, str(output), "bind"),
        output_bytes=256 << 20, log_bytes=8 << 20, env=QUICK,
    )  # fmt: skip


def result(image: str, box: Box, output: Path) -> Any:
    """What the training wrote in a container of these settings, which must end well."""
    client = docker.from_env()
    try:
        container = client.containers.create(image, ["python3", "main.py"], **arguments(box))
        try:
            container.start()
            ended = container.wait(timeout=300)
            assert ended["StatusCode"] == 0, container.logs().decode()
            said = container.logs().decode()
        finally:
            container.remove(force=True)
    finally:
        client.close()
    assert "not permitted" not in said
    return json.loads((output / "result.json").read_text())


def test_a_training_works_in_a_jobs_container(image: str, box: Box, tmp_path: Path) -> None:
    found = result(image, box, tmp_path / "output")
    first, last = found.pop("losses")
    assert last < 0.5 < first
    assert found == {
        "openmp": True, "threads": 2, "matrix": [600**3, 600**3], "spawned": 1000, "forked": 1000, "reduced": 30,
        "compiled": True,
    }  # fmt: skip
    assert (tmp_path / "output" / "model.pt").stat().st_size > 0
