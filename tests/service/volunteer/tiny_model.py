"""A base model small enough for tests, of the architecture that volunteers train, with a text and an adapter for it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK, ALPHA = 4, 8
_WHO = ("the river", "a quiet miller", "the old bridge", "her neighbour", "the north wind", "a tired courier")
_DOES = ("carries", "remembers", "counts", "hides", "repairs", "follows")
_WHAT = ("seven lanterns", "the last letter", "a basket of quinces", "every footstep", "the broken wheel")
_WHEN = ("before the rain", "after supper", "in late autumn", "while nobody looks", "at the third bell")


def make_text(seed: int, sentences: int) -> str:
    """Sentences of a small grammar, so that there is something to learn."""
    chance = random.Random(seed)
    parts = (_WHO, _DOES, _WHAT, _WHEN)
    return "".join(" ".join(chance.choice(part) for part in parts).capitalize() + ".\n" for _ in range(sentences))


def make_base_model(folder: Path) -> Path:
    """A Qwen3 of two layers with a tokenizer of its own, as Hugging Face keeps a model, in safetensors."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([make_text(0, 200)], trainer)
    wrapped: Any = PreTrainedTokenizerFast
    wrapped(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(str(folder))
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(str(folder))
    return folder


def lora_model(base_model: Path, alpha: float = ALPHA) -> Any:
    """The base model with a fresh adapter on it."""
    base = AutoModelForCausalLM.from_pretrained(str(base_model), dtype=torch.float32)
    config = LoraConfig(r=RANK, lora_alpha=alpha, target_modules=list(MODULES), task_type="CAUSAL_LM")  # type: ignore[arg-type]
    return get_peft_model(base, config)


def make_adapter(base_model: Path, path: Path, seed: int = 0) -> Path:
    """The adapter that a training begins with."""
    torch.manual_seed(seed)
    save_file(get_peft_model_state_dict(lora_model(base_model), save_embedding_layers=False), path)
    return path


def held_out_loss(base_model: Path, adapter: Path) -> float:
    """The mean loss of base model and adapter on a text that nobody trained on."""
    model = lora_model(base_model)
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = load_file(adapter)
    assert own.keys() == tensors.keys()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(base_model))
    ids = torch.tensor(tokenizer(make_text(99, 60), add_special_tokens=False)["input_ids"])
    windows = ids[: len(ids) // 64 * 64].reshape(-1, 64)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
        return float(model.eval()(input_ids=windows, labels=windows).loss)
