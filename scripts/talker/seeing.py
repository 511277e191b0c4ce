"""A toy model that sees, of random weights: what vLLM loads as Idefics3, which takes no torchvision.

    .venv-vllm/bin/python scripts/talker/seeing.py FOLDER

`scripts/vllm-cpu --model seeing` builds it once and serves it. It says nothing of sense: what counts is that a server
with a real vision encoder, a chat template and a prefix cache reads pictures. Each byte is a token, and so is each mark
of the template. It runs in vLLM's environment, and needs no network.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import build

MARKS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<global-img>",
)
PADS = ("<image>", *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)))

PART = "{% if part.type == 'text' %}{{ part.text }}{% else %}<image>{% endif %}"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}" + PART + "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SIZE, HEADS, LAYERS = 128, 2, 2
SEED = 7


def main() -> None:
    """Build the folder that the command line names, unless it is there already."""
    programs = Path(__file__).read_bytes() + Path(build.__file__).read_bytes()
    build.place(Path(sys.argv[1]), hashlib.sha256(programs).hexdigest(), write)


def write(folder: Path) -> None:
    """Write everything that vLLM loads into an empty folder."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    ids = write_tokenizer(folder)
    config = Idefics3Config(
        text_config={
            "model_type": "llama",
            "vocab_size": 320,
            "hidden_size": SIZE,
            "intermediate_size": 2 * SIZE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "max_position_embeddings": 65_536,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "hidden_size": SIZE,
            "intermediate_size": 2 * SIZE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "image_size": 64,
            "patch_size": 8,
        },
        scale_factor=2,
        image_token_id=ids["<image>"],
        pad_token_id=ids["<|endoftext|>"],
    )
    torch.manual_seed(SEED)
    model = Idefics3ForConditionalGeneration(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    build.write_json(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "processor_class": "Idefics3Processor",
            "do_convert_rgb": True,
            "do_image_splitting": False,
            "do_resize": True,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "do_pad": True,
            "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 64},
        },
    )
    build.write_json(folder / "processor_config.json", {"image_seq_len": 16, "processor_class": "Idefics3Processor"})


def write_tokenizer(folder: Path) -> dict[str, int]:
    """Write a tokenizer with a token for each byte and each mark; the ids of the marks."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: id for id, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer: Any = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in (*MARKS, *PADS)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"PreTrainedTokenizerFast"', '"Qwen2TokenizerFast"'))
    return {mark: wrapped.convert_tokens_to_ids(mark) for mark in (*MARKS, *PADS)}


if __name__ == "__main__":
    main()
