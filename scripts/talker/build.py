"""The talker's model folder, made from its compact weights: what vLLM loads.

    .venv-vllm/bin/python scripts/talker/build.py FOLDER

The weights beside this file hold only the rows of the 1,282 ids that the talker knows. Here they are spread over the
whole vocabulary of o200k_harmony, the tokenizer is written as Hugging Face's libraries read it, and the configuration
is filled up. A folder that was built from the same weights by the same program is left as it is. It is made beside its
place and renamed, so that nobody ever loads half of it. Never edit what is built: change this program.

It runs in vLLM's environment, which has torch, and needs no network. Its functions import what is heavy, so that tests
can read the rest without it.
"""

import base64
import gzip
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

WEIGHTS = Path(__file__).with_name("talker.safetensors")
WEIGHTS_SHA256 = "ff3a9a3a8aa4858b4802b4a2d612a925f44436373b55d98419ce45a1f4256fda"
RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
FINGERPRINT = "fingerprint"

VOCABULARY = 201_088
NEVER = -2000.0
"""Output weight of an id that is never sampled: it meets dimension 0 of the residual, which is always positive."""

RESERVED = range(199_998, 200_019)
NAMED = {
    199_998: "<|startoftext|>",
    199_999: "<|endoftext|>",
    200_002: "<|return|>",
    200_003: "<|constrain|>",
    200_005: "<|channel|>",
    200_006: "<|start|>",
    200_007: "<|end|>",
    200_008: "<|message|>",
    200_012: "<|call|>",
    200_018: "<|endofprompt|>",
}
PAD, RETURN, CALL, START_OF_TEXT = 199_999, 200_002, 200_012, 199_998

# o200k's rule for cutting text into words: lower case with what leads it, upper case, up to three digits, marks, space
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
WORDS = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def main() -> None:
    """Build the folder that the command line names, unless it is there already."""
    place(Path(sys.argv[1]), fingerprint(), build)


def place(target: Path, made_from: str, build: Callable[[Path], None]) -> None:
    """Have `build` fill a folder, unless it is there already, made from the same."""
    if (target / FINGERPRINT).is_file() and (target / FINGERPRINT).read_text() == made_from:
        return
    sys.stderr.write(f"building {target}\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as workshop:
        folder = Path(workshop) / "new"
        folder.mkdir()
        build(folder)
        (folder / FINGERPRINT).write_text(made_from)
        if target.exists():
            target.rename(Path(workshop) / "old")
        folder.rename(target)


def fingerprint() -> str:
    """What a built folder depends on: this program and the weights."""
    return hashlib.sha256(Path(__file__).read_bytes() + WEIGHTS_SHA256.encode()).hexdigest()


def build(folder: Path) -> None:
    """Write everything that vLLM loads into an empty folder."""
    shape = write_model(folder / "model.safetensors")
    ranks = read_ranks()
    write_json(folder / "config.json", configuration(shape))
    write_json(folder / "generation_config.json", GENERATION)
    write_json(folder / "tokenizer_config.json", TOKENIZER)
    write_tokenizer(folder / "tokenizer.json", parse_ranks(ranks))
    # where the Harmony library inside vLLM looks, named by TIKTOKEN_ENCODINGS_BASE
    (folder / "tiktoken").mkdir()
    (folder / "tiktoken" / "o200k_base.tiktoken").write_bytes(ranks)


# --- the weights ----------------------------------------------------------------------------------------------


def write_model(path: Path) -> dict[str, Any]:
    """Write the tensors of the whole model. Returns the shape that the weights' file says they have."""
    from safetensors.torch import load, save_file

    content = checked(WEIGHTS.read_bytes(), WEIGHTS_SHA256, str(WEIGHTS))
    tensors = load(content)
    known, sampled = tensors.pop("ids").long(), tensors.pop("outs").long()
    tensors["model.embed_tokens.weight"] = spread_input(tensors["model.embed_tokens.weight"], known)
    tensors["lm_head.weight"] = spread_output(tensors["lm_head.weight"], known, sampled)
    save_file(tensors, path, metadata={"format": "pt"})
    return json.loads(header(content)["__metadata__"]["config"])


def spread_input(rows: Any, known: Any) -> Any:
    """Embeddings for the whole vocabulary: row 0 for every id that the talker doesn't know, row 1 on for the known."""
    return rows[rows_of(known)]


def spread_output(rows: Any, known: Any, sampled: Any) -> Any:
    """Output weights for the whole vocabulary, which leave the ids in `sampled` alone to be sampled."""
    import torch

    head = torch.zeros(VOCABULARY, rows.shape[1], dtype=rows.dtype)
    head[:, 0] = NEVER
    head[sampled] = rows[rows_of(known)[sampled]]
    return head


def rows_of(known: Any) -> Any:
    """For every id of the vocabulary the row of the compact tables that stands for it."""
    import torch

    rows = torch.zeros(VOCABULARY, dtype=torch.long)
    rows[known] = torch.arange(1, len(known) + 1)
    return rows


def header(content: bytes) -> dict[str, Any]:
    """The header of a safetensors file: JSON behind its own length."""
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def checked(content: bytes, sha256: str, name: str) -> bytes:
    """The content, if it is what it was when this program was written. Raises ValueError."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{name} has the SHA-256 {found}, not {sha256}: this is another file than the talker needs")
    return content


# --- the configuration ------------------------------------------------------------------------------------------

GENERATION = {
    "bos_token_id": START_OF_TEXT,
    "do_sample": True,
    "eos_token_id": [RETURN, PAD, CALL],
    "pad_token_id": PAD,
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": NAMED[START_OF_TEXT],
    "eos_token": NAMED[RETURN],
    "pad_token": NAMED[PAD],
    "clean_up_tokenization_spaces": False,
    "model_max_length": 10**9,
    "model_input_names": ["input_ids", "attention_mask"],
}


def configuration(shape: dict[str, Any]) -> dict[str, Any]:
    """The model's config.json: its shape, and what every gpt-oss has."""
    kinds = ("sliding_attention", "full_attention")
    own = {name: value for name, value in shape.items() if name != "cut"}
    return own | {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": VOCABULARY,
        "experts_per_token": shape["num_experts_per_tok"],
        "layer_types": [kinds[layer % 2] for layer in range(shape["num_hidden_layers"])],
        "max_position_embeddings": 131_072,
        "initial_context_length": 4096,
        "attention_bias": True,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "router_aux_loss_coef": 0.9,
        "output_router_logits": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        "eos_token_id": RETURN,
        "pad_token_id": PAD,
        "torch_dtype": "bfloat16",
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1))


# --- the tokenizer ----------------------------------------------------------------------------------------------


def read_ranks() -> bytes:
    """o200k's ranks, from the package that harmonium itself tokenizes with. Raises ValueError for other ranks."""
    packed = (files("bpe_openai") / "data" / "o200k_base.tiktoken.gz").read_bytes()
    return checked(gzip.decompress(packed), RANKS_SHA256, "bpe_openai's o200k_base.tiktoken")


def parse_ranks(text: bytes) -> dict[bytes, int]:
    """The rank of each token, which is its id, by its bytes: a line holds the bytes in base64, and the rank."""
    pairs = (line.split() for line in text.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def alphabet() -> dict[int, str]:
    """The letter that stands for each byte in Hugging Face's BPE: itself if it prints, else one from U+0100 on."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printing)
    return {byte: chr(byte) for byte in printing} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every pair of tokens that joins to a token, in the order in which BPE may join them."""
    joined: list[tuple[bytes, bytes]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [pair for pair in cuts if pair[0] in ranks and pair[1] in ranks]
        joined += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return joined


def special_tokens() -> dict[int, str]:
    """The text of each special token by its id; those without a name get one that no text holds by chance."""
    return {id: NAMED.get(id, f"<|reserved_{id}|>") for id in RESERVED}


def write_tokenizer(path: Path, ranks: dict[bytes, int]) -> None:
    """Write the tokenizer. Raises ValueError if a special token would not get its id."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    letters = alphabet()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    pairs = [(spelled(left), spelled(right)) for left, right in merges(ranks)]
    words = {spelled(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(words, pairs, fuse_unk=False, byte_fallback=False))
    cut = pre_tokenizers.Split(Regex(WORDS), behavior="isolated", invert=False)
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, spell])
    tokenizer.decoder = decoders.ByteLevel()
    special = special_tokens()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    for id, text in special.items():
        if tokenizer.token_to_id(text) != id:
            raise ValueError(f"{text} got the id {tokenizer.token_to_id(text)}, not {id}")
    tokenizer.save(str(path))


if __name__ == "__main__":
    main()
