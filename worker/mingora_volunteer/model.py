"""The base model on this machine and the LoRA adapter on it: loaded strictly, from safetensors alone, without network.

No code and no pickle of a model's folder is ever run: weights in another format are refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read by the libraries as they are loaded: no network, no word to anybody, no progress bars beside our own.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    TRANSFORMERS_VERBOSITY="error",
)

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError, safe_open

from mingora.errors import MingoraError, UsageProblem
from mingora_volunteer.messages import MAX_MODULES, MAX_RANK, BadAnswer, Info
from mingora_volunteer.texts import _

MAX_INDEX_BYTES = 64 << 20
MAX_REASON = 300
INDEX = "model.safetensors.index.json"
# Where a coordinator doesn't tell alpha, the proportion of the protocol page's example: r 16, alpha 32.
ALPHA_PER_RANK = 2.0
_SHARD = re.compile(r"[A-Za-z0-9._-]+\.safetensors")
_LORA_NAME = re.compile(r"(?:.*\.)?([A-Za-z0-9_]+)\.lora_A\.weight")


class Unfit(MingoraError):
    """The coordinator's adapter doesn't sit on this base model."""


@dataclass(frozen=True)
class Lora:
    """How an adapter sits on the base model: rank, alpha, and the names of the modules that it adapts."""

    rank: int
    alpha: float
    modules: tuple[str, ...]


def check_folder(folder: Path) -> None:
    """Raises `UsageProblem` for a folder that isn't a model's, or whose weights aren't safetensors."""
    if not (folder / "config.json").is_file():
        raise UsageProblem(
            _("--base-model {path}: there is no model in this folder.").format(path=folder),
            hint=_("It takes a folder with config.json, the tokenizer and *.safetensors files."),
        )
    shards = ["model.safetensors"]
    if (folder / INDEX).is_file():
        shards = _shards(folder / INDEX)
    if not all(_SHARD.fullmatch(name) and (folder / name).is_file() for name in shards):
        raise UsageProblem(
            _("--base-model {path}: the weights aren't in safetensors files.").format(path=folder),
            hint=_("Pickled weights (.bin, .pt) can run code and aren't loaded; get the model as safetensors."),
        )


def _shards(index: Path) -> list[str]:
    try:
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise ValueError
        return [str(name) for name in set(json.loads(index.read_bytes())["weight_map"].values())]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageProblem(_("{path} can't be read.").format(path=index)) from error


def load_tokenizer(folder: Path) -> Any:
    """The model's own tokenizer. Raises `UsageProblem`."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
        )
        files = list(tokenizer.vocab_files_names.values())
    except Exception as error:  # the libraries raise whatever a damaged file leads them to
        raise UsageProblem(
            _("--base-model {path}: the tokenizer can't be loaded: {reason}").format(path=folder, reason=_short(error))
        ) from error
    if files and not any((folder / name).is_file() for name in files):  # the library makes an empty one up
        raise UsageProblem(
            _("--base-model {path}: there is no tokenizer in this folder.").format(path=folder),
            hint=_("Copy the model's own tokenizer files there, such as {files}.").format(
                files=", ".join(sorted(files))
            ),
        )
    return tokenizer


def precision(device: torch.device) -> torch.dtype:
    """The base model's numbers: bfloat16 on a GPU that computes with it, else float32. The adapter is float32."""
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32


def load_base(folder: Path, device: torch.device) -> Any:
    """The base model. Raises `UsageProblem`."""
    loader: Any = transformers.AutoModelForCausalLM
    try:
        base, loading = loader.from_pretrained(
            str(folder),
            dtype=precision(device),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except Exception as error:  # as above
        raise UsageProblem(
            _("--base-model {path}: the model can't be loaded: {reason}").format(path=folder, reason=_short(error))
        ) from error
    if missing := sorted(loading["missing_keys"]):  # they would be random numbers
        raise UsageProblem(_("--base-model {path}: the weights lack {name}.").format(path=folder, name=missing[0]))
    return base.to(device)


def adapt(base: Any, lora: Lora, seed: int, folder: Path) -> Any:
    """The base model with a fresh adapter, as `tohum` makes it, in training mode; `base` becomes a part of it.

    Raises `Unfit`, after which `base` is as it was.
    """
    torch.manual_seed(seed)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        target_modules=list(lora.modules),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        model = get_peft_model(base, config)
    except ValueError as error:
        raise _unfit(folder, _("no module {names}.").format(names=", ".join(lora.modules))) from error
    return model.train()


def adapter_of(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's own parameters by the names of PEFT's files; writing into them changes the model."""
    parameters = ((name, each.detach()) for name, each in model.named_parameters() if each.requires_grad)
    return {name.replace(".default", ""): each for name, each in parameters}  # PEFT's name of an only adapter


def read_adapter(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of an adapter file.

    Raises `Unfit` for what isn't safetensors of float32 numbers, `BadAnswer` for numbers that aren't finite.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except (SafetensorError, OSError) as error:
        raise Unfit(_("The coordinator's adapter is no safetensors file.")) from error
    if not all(tensor.dtype == torch.float32 for tensor in tensors.values()):
        raise Unfit(_("The coordinator's adapter isn't of float32 numbers."))
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise BadAnswer(
            _("The adapter that the coordinator gave out has numbers that aren't finite: the fault is there.")
        )
    return tensors


def lora_of(info: Info, tensors: Mapping[str, torch.Tensor]) -> Lora:
    """What the coordinator tells of its adapter; what it doesn't, the tensors' names and shapes show."""
    found = {match[1]: tensors[name] for name in tensors if (match := _LORA_NAME.fullmatch(name))}
    ranks = {tensor.shape[0] for tensor in found.values() if tensor.ndim == 2}
    rank = info.rank or (ranks.pop() if len(ranks) == 1 else 0)
    modules = info.modules or tuple(sorted(found))
    if not found or not 1 <= rank <= MAX_RANK or not 1 <= len(modules) <= MAX_MODULES:
        raise Unfit(_("The coordinator's adapter isn't a LoRA."))
    return Lora(rank, info.alpha or ALPHA_PER_RANK * rank, modules)


def place_adapter(model: Any, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Writes the tensors into the model. Names and shapes have to be exactly the model's: else `Unfit`."""
    own = adapter_of(model)
    if missing := sorted(own.keys() - tensors.keys()):
        raise _unfit(folder, _("it lacks {name}.").format(name=missing[0]))
    if extra := sorted(tensors.keys() - own.keys()):
        raise _unfit(folder, _("it has {name}, which this model hasn't.").format(name=extra[0]))
    for name in sorted(own):
        if own[name].shape != tensors[name].shape:
            text = _("{name} has the shape {theirs}, and {own} in this model.")
            theirs, here = list(tensors[name].shape), list(own[name].shape)
            raise _unfit(folder, text.format(name=name, theirs=theirs, own=here))
    for name, parameter in own.items():
        parameter.copy_(tensors[name])


def check_tokens(model: Any, tokens: torch.Tensor) -> None:
    """Raises `UsageProblem` for tokens that the model doesn't know."""
    if int(tokens.max()) >= model.get_input_embeddings().weight.shape[0]:
        raise UsageProblem(_("The tokenizer in the base model's folder isn't this model's."))


def check_sequence(model: Any, sequence: int) -> None:
    """Raises `Unfit` for sequences longer than the model takes."""
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and sequence > most:
        raise Unfit(
            _("The coordinator asks for {asked} tokens in a row; this model takes {most}.").format(
                asked=sequence, most=most
            )
        )


def _short(error: Exception) -> str:
    return str(error)[:MAX_REASON]


def _unfit(folder: Path, detail: str) -> Unfit:
    return Unfit(
        _("The coordinator's adapter doesn't fit the model in {path}: {detail}").format(path=folder, detail=detail),
        hint=_("Is it the base model that the coordinator names?"),
    )
