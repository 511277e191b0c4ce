"""The talker's GGUF file, made from its compact weights: what llama.cpp loads.

    .venv/bin/python scripts/talker/for_llama.py FILE

As build.py makes the folder that vLLM loads, in two seconds and without torch: it takes PyPI's `gguf` and NumPy. The
names of tensors and keys are those of llama.cpp's own converter. A file that was built from the same weights by the
same programs, as a small file beside it tells, is left as it is.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import build
import gguf
import numpy as np

CONTROL, UNUSED, NORMAL = gguf.TokenType.CONTROL, gguf.TokenType.UNUSED, gguf.TokenType.NORMAL


def main() -> None:
    """Build the file that the command line names, unless it is there already."""
    target = Path(sys.argv[1])
    made_from = hashlib.sha256(Path(__file__).read_bytes() + build.fingerprint().encode()).hexdigest()
    mark = target.with_name(f"{target.name}.{build.FINGERPRINT}")
    if target.is_file() and mark.is_file() and mark.read_text() == made_from:
        return
    sys.stderr.write(f"building the talker as {target}\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, workshop = tempfile.mkstemp(dir=target.parent, prefix=".talker-")
    os.close(handle)
    write(Path(workshop))
    Path(workshop).replace(target)
    mark.write_text(made_from)


def write(path: Path) -> None:
    """Write the whole file."""
    content = build.checked(build.WEIGHTS.read_bytes(), build.WEIGHTS_SHA256, str(build.WEIGHTS))
    head = build.header(content)
    shape: dict[str, Any] = build.json.loads(head.pop("__metadata__")["config"])
    writer = gguf.GGUFWriter(path, "gpt-oss")
    _describe(writer, build.configuration(shape))
    _add_vocabulary(writer)
    tensors = _Tensors(writer, content, head)
    tensors.add_tables()
    for layer in range(shape["num_hidden_layers"]):
        tensors.add_layer(layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, model: dict[str, Any]) -> None:
    """The model's shape. Which layers have a sliding window llama.cpp knows of the architecture."""
    writer.add_name("talker")
    writer.add_context_length(model["max_position_embeddings"])
    writer.add_embedding_length(model["hidden_size"])
    writer.add_block_count(model["num_hidden_layers"])
    writer.add_feed_forward_length(model["intermediate_size"])
    writer.add_expert_feed_forward_length(model["intermediate_size"])
    writer.add_head_count(model["num_attention_heads"])
    writer.add_head_count_kv(model["num_key_value_heads"])
    writer.add_key_length(model["head_dim"])
    writer.add_value_length(model["head_dim"])
    writer.add_layer_norm_rms_eps(model["rms_norm_eps"])
    writer.add_sliding_window(model["sliding_window"])
    writer.add_expert_count(model["num_local_experts"])
    writer.add_expert_used_count(model["num_experts_per_tok"])
    writer.add_rope_freq_base(model["rope_theta"])
    rope = model["rope_scaling"]
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """o200k_harmony, in the letters in which Hugging Face's BPE spells bytes."""
    letters, ranks = build.alphabet(), build.parse_ranks(build.read_ranks())
    texts, types = [f"[PAD{id}]" for id in range(build.VOCABULARY)], [int(UNUSED)] * build.VOCABULARY

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    for token, id in ranks.items():
        texts[id], types[id] = spelled(token), int(NORMAL)
    for id, text in build.special_tokens().items():
        texts[id], types[id] = text, int(CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([f"{spelled(left)} {spelled(right)}" for left, right in build.merges(ranks)])
    writer.add_bos_token_id(build.START_OF_TEXT)
    writer.add_eos_token_id(build.RETURN)
    writer.add_pad_token_id(build.PAD)
    writer.add_add_bos_token(False)


class _Tensors:
    """The tensors of the compact weights, as llama.cpp has them."""

    def __init__(self, writer: gguf.GGUFWriter, content: bytes, head: dict[str, Any]) -> None:
        self._writer, self._head = writer, head
        self._body = memoryview(content)[8 + int.from_bytes(content[:8], "little") :]

    def add_tables(self) -> None:
        """The embeddings, spread over the whole vocabulary, and the output weights."""
        known, sampled = self._ids("ids"), self._ids("outs")
        rows = np.zeros(build.VOCABULARY, dtype=np.int64)
        rows[known] = np.arange(1, len(known) + 1)
        self._add("token_embd.weight", self._read("model.embed_tokens.weight")[rows])
        compact = self._read("lm_head.weight")
        head = np.zeros((build.VOCABULARY, compact.shape[1]), dtype=np.float32)
        head[:, 0] = build.NEVER
        head[sampled] = compact[rows[sampled]]
        self._add("output.weight", head)
        self._add("output_norm.weight", self._read("model.norm.weight"))

    def add_layer(self, layer: int) -> None:
        """A layer: attention with its sinks, the router, and the experts, whose gate and up are interleaved."""
        theirs, ours = f"model.layers.{layer}.", f"blk.{layer}."
        for name, norm in (("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")):
            self._add(f"{ours}{name}.weight", self._read(f"{theirs}{norm}.weight"))
        for name, part in (("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"), ("attn_output", "o")):
            for kind in ("weight", "bias"):
                self._add(f"{ours}{name}.{kind}", self._read(f"{theirs}self_attn.{part}_proj.{kind}"))
        self._add(f"{ours}attn_sinks.weight", self._read(f"{theirs}self_attn.sinks"))
        for kind in ("weight", "bias"):
            self._add(f"{ours}ffn_gate_inp.{kind}", self._read(f"{theirs}mlp.router.{kind}"), exact=True)
        experts = f"{theirs}mlp.experts."
        self._add(f"{ours}ffn_down_exps.weight", self._read(f"{experts}down_proj").transpose(0, 2, 1))
        self._add(f"{ours}ffn_down_exps.bias", self._read(f"{experts}down_proj_bias"), exact=True)
        both, biases = (
            self._read(f"{experts}gate_up_proj").transpose(0, 2, 1),
            self._read(f"{experts}gate_up_proj_bias"),
        )
        for name, start in (("ffn_gate_exps", 0), ("ffn_up_exps", 1)):
            self._add(f"{ours}{name}.weight", both[:, start::2])
            self._add(f"{ours}{name}.bias", biases[..., start::2], exact=True)

    def _add(self, name: str, tensor: Any, *, exact: bool = False) -> None:
        tensor = np.ascontiguousarray(tensor, dtype=np.float32)
        if exact or tensor.ndim < 2:
            self._writer.add_tensor(name, tensor)
        else:
            kind = gguf.GGMLQuantizationType.BF16
            self._writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)

    def _ids(self, name: str) -> Any:
        told = self._head[name]
        kind = {"I64": np.int64, "I32": np.int32}[told["dtype"]]
        return self._raw(name, kind).astype(np.int64)

    def _read(self, name: str) -> Any:
        """A tensor of bfloat16, which NumPy doesn't know, as float32."""
        return (self._raw(name, np.uint16).astype(np.uint32) << 16).view(np.float32)

    def _raw(self, name: str, kind: Any) -> Any:
        told = self._head[name]
        start, end = told["data_offsets"]
        return np.frombuffer(self._body[start:end], dtype=kind).reshape(told["shape"])


if __name__ == "__main__":
    main()
