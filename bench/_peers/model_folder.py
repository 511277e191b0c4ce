"""The folder of a model without weights: the tokenizer and the configuration of gpt-oss, as smg reads them.

.venv-peer-smg/bin/python -m bench._peers.model_folder FOLDER
"""

import json
import sys
from pathlib import Path

from scripts.talker.build import NAMED, RESERVED, parse_ranks, read_ranks, write_tokenizer

CONFIGURATION = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "vocab_size": 201_088,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 131_072,
    "eos_token_id": 200_002,
    "pad_token_id": 199_999,
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": NAMED[RESERVED[0]],
    "eos_token": "<|return|>",
    "pad_token": "<|endoftext|>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 10**9,
    "model_input_names": ["input_ids", "attention_mask"],
}


def main(folder: Path) -> None:
    """Write it, into a folder that is there."""
    ranks = read_ranks()
    (folder / "tiktoken").mkdir()
    (folder / "tiktoken" / "o200k_base.tiktoken").write_bytes(ranks)
    (folder / "config.json").write_text(json.dumps(CONFIGURATION))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    write_tokenizer(folder / "tokenizer.json", parse_ranks(ranks))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
