"""A round's training on a real, tiny model: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import json
import math
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from service.volunteer.tiny_model import ALPHA, MODULES, RANK, held_out_loss, lora_model
from transformers import PreTrainedTokenizerFast

from mingora.errors import MingoraError, UsageProblem
from mingora_volunteer import data
from mingora_volunteer.data import batches, read_tokens
from mingora_volunteer.loop import Diverged
from mingora_volunteer.messages import BadAnswer, Info, Task
from mingora_volunteer.model import Lora, Unfit, check_folder, load_tokenizer, lora_of, read_adapter
from mingora_volunteer.train import Trainer, choose_device

TASK = Task(0, 5, 1, 3, 6, 2, 48, 5e-3, 0, "0" * 64)
INFO = Info("Tiny/Base", RANK, float(ALPHA), MODULES)
CPU = torch.device("cpu")


def ignore(_done: int, _total: int, _loss: float) -> None: ...


@pytest.fixture
def trainer(base_model: Path, text: Path, tmp_path: Path) -> Trainer:
    return Trainer(base_model, text, CPU, "ali", tmp_path)


@pytest.fixture
def copied(base_model: Path, tmp_path: Path) -> Path:
    """A base model that a test may damage."""
    return Path(shutil.copytree(base_model, tmp_path / "copied"))


@pytest.mark.req("VOL-1")
def test_a_round_is_the_algorithm_of_the_protocol_page(
    trainer: Trainer, base_model: Path, adapter: Path, text: Path
) -> None:
    """Held against the page, written out plainly with PyTorch's own scheduler.

    Alpha is so large that the gradients are to be clipped, by a different share at each step.
    """
    alpha = 1000.0
    steps: list[tuple[int, int, float]] = []
    result = load_file(trainer.train(TASK, replace(INFO, alpha=alpha), adapter, lambda *step: steps.append(step)))
    ids = PreTrainedTokenizerFast.from_pretrained(str(base_model))(text.read_text(), add_special_tokens=False).input_ids
    n = len(ids) // 3
    own = ids[n : 2 * n]
    torch.manual_seed(0)
    model = lora_model(base_model, alpha).train()
    start = load_file(adapter)
    parameters = {
        name.replace(".default", ""): parameter for name, parameter in model.named_parameters() if "lora_" in name
    }
    assert parameters.keys() == start.keys() == result.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(start[name])
    optimiser = torch.optim.AdamW(parameters.values(), lr=TASK.rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=TASK.steps)
    chance = random.Random("ali-0")
    losses, norms = [], []
    for _step in range(TASK.steps):
        rows = []
        for _row in range(TASK.batch):
            begin = chance.randrange(n - TASK.sequence + 1)
            rows.append(own[begin : begin + TASK.sequence])
        windows = torch.tensor(rows)
        loss = model(input_ids=windows, labels=windows).loss
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)))
        optimiser.step()
        schedule.step()
    assert min(norms) > 1.0 and max(norms) > 1.2 * min(norms)
    assert [step[:2] for step in steps] == [(done + 1, TASK.steps) for done in range(TASK.steps)]
    assert [step[2] for step in steps] == pytest.approx(losses, abs=1e-5)
    for name, tensor in result.items():
        assert torch.allclose(tensor, parameters[name], rtol=0, atol=1e-5), name
        assert tensor.dtype == torch.float32 and not torch.equal(tensor, start[name])


@pytest.mark.req("VOL-1")
def test_a_round_does_not_depend_on_the_rounds_before(copied: Path, adapter: Path, text: Path, tmp_path: Path) -> None:
    """Not even where the base model drops some of its numbers by chance."""
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.2}))
    trainer = Trainer(copied, text, CPU, "ali", tmp_path)
    for number in (0, 1):
        trainer.train(replace(TASK, round=number), INFO, adapter, ignore)
    again = load_file(trainer.train(replace(TASK, round=2), INFO, adapter, ignore))
    (tmp_path / "new").mkdir()
    new = Trainer(copied, text, CPU, "ali", tmp_path / "new").train(replace(TASK, round=2), Info(), adapter, ignore)
    assert all(torch.equal(tensor, again[name]) for name, tensor in load_file(new).items())
    assert (tmp_path / "new" / "result.safetensors").read_bytes() == (tmp_path / "result.safetensors").read_bytes()


@pytest.mark.req("VOL-1")
def test_the_training_helps(trainer: Trainer, base_model: Path, adapter: Path) -> None:
    before = held_out_loss(base_model, adapter)
    assert held_out_loss(base_model, trainer.train(replace(TASK, steps=20), INFO, adapter, ignore)) < before - 0.05


@pytest.mark.req("VOL-1")
def test_what_a_coordinator_does_not_tell_is_read_from_its_adapter(adapter: Path) -> None:
    tensors = read_adapter(adapter)
    assert lora_of(Info(), tensors) == Lora(RANK, 2.0 * RANK, tuple(sorted(MODULES)))
    assert lora_of(INFO, tensors) == Lora(RANK, float(ALPHA), MODULES)
    assert lora_of(Info(alpha=3.0), tensors).alpha == 3.0
    for nothing in ({}, {"x.lora_A.weight": torch.zeros(4)}, {"weight": torch.zeros(2, 2)}):
        with pytest.raises(Unfit):
            lora_of(Info(), nothing)


def _renamed(tensors: dict[str, torch.Tensor]) -> None:
    name = min(tensors)
    tensors[name + "x"] = tensors.pop(name)


def _missing(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[min(tensors)]


def _added(tensors: dict[str, torch.Tensor]) -> None:
    tensors["base_model.model.lm_head.weight"] = torch.zeros(1)


def _turned(tensors: dict[str, torch.Tensor]) -> None:
    name = min(tensors)
    tensors[name] = tensors[name].T.contiguous()


def _scalar(tensors: dict[str, torch.Tensor]) -> None:
    tensors[min(tensors)] = torch.zeros(1)


def _half(tensors: dict[str, torch.Tensor]) -> None:
    tensors[min(tensors)] = tensors[min(tensors)].half()


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("change", [_renamed, _missing, _added, _turned, _scalar, _half], ids=lambda f: f.__name__)
def test_an_adapter_has_to_fit_exactly(
    trainer: Trainer, adapter: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    tensors = load_file(adapter)
    change(tensors)
    save_file(tensors, tmp_path / "other.safetensors")
    with pytest.raises(Unfit):
        trainer.train(TASK, INFO, tmp_path / "other.safetensors", ignore)


@pytest.mark.req("VOL-1")
def test_what_does_not_fit_is_named_and_how(trainer: Trainer, adapter: Path, tmp_path: Path) -> None:
    whole = load_file(adapter)
    name = min(whole)
    other = tmp_path / "other.safetensors"
    for tensors, told in (
        ({each: whole[each] for each in whole if each != name}, f"it lacks {name}"),
        (whole | {"x.weight": torch.zeros(1)}, "it has x.weight"),
        (whole | {name: torch.zeros(RANK, 7)}, rf"{name} has the shape \[{RANK}, 7\], and \[{RANK}, 128\] in"),
    ):
        save_file(tensors, other)
        with pytest.raises(Unfit, match=told):
            trainer.train(TASK, INFO, other, ignore)
    with pytest.raises(Unfit, match="no module absent"):
        trainer.train(TASK, Info(modules=("absent",)), adapter, ignore)


@pytest.mark.req("VOL-1")
def test_weights_that_are_no_lora_are_said_to_be_none(trainer: Trainer, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file({"model.layers.0.self_attn.q_proj.weight": torch.zeros(4, 4)}, other)
    for info in (Info(), INFO):
        with pytest.raises(Unfit, match="isn't a LoRA"):
            trainer.train(TASK, info, other, ignore)


@pytest.mark.req("VOL-1")
def test_another_adapter_takes_the_place_of_the_one_before(
    trainer: Trainer, base_model: Path, adapter: Path, text: Path, tmp_path: Path
) -> None:
    """What the first one, of another shape, left on the model would change the second one's training."""
    small = {name: each[:2] if "lora_A" in name else each[:, :2] for name, each in load_file(adapter).items()}
    save_file({name: each.contiguous() for name, each in small.items()}, tmp_path / "small.safetensors")
    trainer.train(TASK, Info(), tmp_path / "small.safetensors", ignore)
    again = load_file(trainer.train(replace(TASK, seed=3), INFO, adapter, ignore))
    (tmp_path / "new").mkdir()
    new = Trainer(base_model, text, CPU, "ali", tmp_path / "new")
    for name, tensor in load_file(new.train(replace(TASK, seed=3), INFO, adapter, ignore)).items():
        assert torch.equal(tensor, again[name])


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("info", [replace(INFO, rank=8), replace(INFO, modules=("q_proj",)), Info(modules=("absent",))])
def test_an_adapter_that_is_not_what_bilgi_says_is_refused(trainer: Trainer, adapter: Path, info: Info) -> None:
    with pytest.raises(Unfit):
        trainer.train(TASK, info, adapter, ignore)


@pytest.mark.req("VOL-1", "COORD-4")
def test_an_adapter_that_is_a_pickle_is_not_opened(trainer: Trainer, tmp_path: Path) -> None:
    (tmp_path / "adapter").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(Unfit):
        trainer.train(TASK, INFO, tmp_path / "adapter", ignore)


@pytest.mark.req("VOL-1")
def test_a_training_without_finite_numbers_has_no_result(trainer: Trainer, adapter: Path, tmp_path: Path) -> None:
    for value, kind in ((3e38, Diverged), (math.nan, BadAnswer), (math.inf, BadAnswer)):
        tensors = {name: torch.full_like(tensor, value) for name, tensor in load_file(adapter).items()}
        save_file(tensors, tmp_path / "other.safetensors")
        with pytest.raises(kind):
            trainer.train(TASK, INFO, tmp_path / "other.safetensors", ignore)
    assert not (tmp_path / "result.safetensors").exists()
    assert trainer.train(TASK, INFO, adapter, ignore).exists()  # the next round is none the worse


@pytest.mark.req("VOL-1")
def test_too_little_text_is_told_with_what_is_needed(trainer: Trainer, adapter: Path) -> None:
    with pytest.raises(UsageProblem, match=str(48 * 5000)):
        trainer.train(replace(TASK, part=0, parts=5000), INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_a_longer_row_than_the_model_takes_is_refused(trainer: Trainer, adapter: Path) -> None:
    with pytest.raises(Unfit, match="512"):
        trainer.train(replace(TASK, sequence=513), INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_a_window_may_be_the_whole_slice() -> None:
    task = replace(TASK, sequence=10, part=2)
    (first, *_more) = batches(torch.arange(32, dtype=torch.int32), task, "ali")
    assert first.dtype == torch.int64 and first.tolist() == [list(range(20, 30))] * 2
    with pytest.raises(UsageProblem):
        next(batches(torch.arange(29, dtype=torch.int32), task, "ali"))


@pytest.mark.req("VOL-1")
def test_a_long_text_is_read_in_pieces(
    base_model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = load_tokenizer(base_model)
    whole = read_tokens(text, tokenizer)
    monkeypatch.setattr(data, "CHUNK", 2000)
    pieces = read_tokens(text, tokenizer)
    assert tokenizer.decode(pieces) == tokenizer.decode(whole) == text.read_text()
    (tmp_path / "odd").write_bytes("ğ\r\n中文\n".encode() * 500)
    assert tokenizer.decode(read_tokens(tmp_path / "odd", tokenizer)) == "ğ\r\n中文\n" * 500
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "empty", tmp_path / "latin", tmp_path / "absent", tmp_path):
        with pytest.raises(UsageProblem):
            read_tokens(path, tokenizer)


class Harmful:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.req("VOL-1", "COORD-4")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickled_weights_are_refused(copied: Path, name: str) -> None:
    (copied / "model.safetensors").unlink()
    (copied / name).write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(UsageProblem, match="safetensors"):
        check_folder(copied)


@pytest.mark.req("VOL-1", "COORD-4")
@pytest.mark.parametrize(
    "shard", ["pytorch_model.bin", "../model.safetensors", "/model.safetensors", "absent.safetensors", 7]
)
def test_an_index_may_name_safetensors_beside_it_alone(copied: Path, shard: Any) -> None:
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful()))
    index = copied / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": shard}}))
    with pytest.raises(UsageProblem, match="safetensors"):
        check_folder(copied)
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    check_folder(copied)
    for wrong in ("[]", "{", json.dumps({"weight_map": []})):
        index.write_text(wrong)
        with pytest.raises(UsageProblem):
            check_folder(copied)


@pytest.mark.req("VOL-1", "COORD-4")
def test_code_in_a_models_folder_is_never_run(copied: Path, text: Path, adapter: Path, tmp_path: Path) -> None:
    (copied / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful()))
    config = json.loads((copied / "config.json").read_text())
    own = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model", "AutoTokenizer": ["evil.T", None]}
    (copied / "config.json").write_text(json.dumps(config | {"auto_map": own}))
    Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)
    (copied / "config.json").write_text(json.dumps(config | {"auto_map": own, "model_type": "own_kind"}))
    with pytest.raises(UsageProblem):
        Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)
    assert not (tmp_path / "ran").exists()


@pytest.mark.req("VOL-1")
def test_a_folder_without_a_tokenizer_is_not_taken_for_an_empty_text(copied: Path, text: Path, tmp_path: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UsageProblem, match="no tokenizer"):
        Trainer(copied, text, CPU, "ali", tmp_path)


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_folder_without_a_model_is_told_in_a_sentence(copied: Path, text: Path, tmp_path: Path, missing: str) -> None:
    (copied / missing).unlink()
    with pytest.raises(UsageProblem):
        check_folder(copied)
        Trainer(copied, text, CPU, "ali", tmp_path)


DAMAGED = [b"{", b"[]", b"\xff", b"{}", b'{"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["q q"]}}']


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_folder_is_told_in_a_sentence(
    copied: Path, text: Path, adapter: Path, tmp_path: Path, name: str, damage: bytes
) -> None:
    (copied / name).write_bytes(damage)
    with pytest.raises(UsageProblem):
        Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_weights_that_lack_something_are_not_filled_with_random_numbers(
    copied: Path, text: Path, adapter: Path, tmp_path: Path
) -> None:
    tensors = load_file(copied / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageProblem, match="up_proj"):
        Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_another_models_tokenizer_is_noticed(copied: Path, text: Path, adapter: Path, tmp_path: Path) -> None:
    tensors = load_file(copied / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:50].contiguous()
    save_file(tensors, copied / "model.safetensors", {"format": "pt"})
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"vocab_size": 50}))
    with pytest.raises(UsageProblem, match="tokenizer"):
        Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_a_device_that_fails_is_told_in_a_sentence(trainer: Trainer, adapter: Path) -> None:
    def fail(_done: int, _total: int, _loss: float) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(MingoraError, match="illegal memory access"):
        trainer.train(TASK, INFO, adapter, fail)


@pytest.mark.req("VOL-1")
@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, None])
def test_damaged_weights_are_told_in_a_sentence(
    copied: Path, text: Path, adapter: Path, tmp_path: Path, damage: bytes | None
) -> None:
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000] if damage is None else damage)
    with pytest.raises(MingoraError):
        Trainer(copied, text, CPU, "ali", tmp_path).train(TASK, INFO, adapter, ignore)


@pytest.mark.req("VOL-1")
def test_devices() -> None:
    assert choose_device("cpu") == CPU and choose_device(None).type in {"cpu", "cuda"}
    for name in ("cuda:99", "nothing", "meta"):
        with pytest.raises(UsageProblem):
            choose_device(name)
