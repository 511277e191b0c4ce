"""Eyes for the talker: an encoder of pictures with random weights, in a file that llama.cpp calls `mmproj`.

A picture of whatever size is PICTURE_TOKENS. The model says nothing of sense about it; but a real server reads it, and
keeps it in its cache.
"""

from pathlib import Path
from typing import Any

from tests.support.llama.talker import LlamaProcess, built

SIDE, PATCH, WIDTH = 4, 16, 64
TALKER_WIDTH = 128
PICTURE_TOKENS = SIDE**2


def seeing_server(folder: Path) -> LlamaProcess:
    """A server of the talker with its eyes, which are written into the folder. Skips the test where it can't be."""
    built()
    return LlamaProcess(**{"mmproj.path": str(_written(folder / "eyes.gguf"))})


def _written(path: Path) -> Path:
    """The file: a tower of CLIP's and two layers to the model's width, as LLaVA's first models had them."""
    import gguf

    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("mlp")
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_vision_image_size(SIDE * PATCH)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(WIDTH)
    writer.add_vision_feed_forward_length(WIDTH)
    writer.add_vision_projection_dim(TALKER_WIDTH)
    writer.add_vision_block_count(2)
    writer.add_vision_head_count(2)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    for name, tensor in _tensors().items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors() -> dict[str, Any]:
    """All weights, by llama.cpp's names."""
    import numpy as np

    layers = [f"v.blk.{number}." for number in range(2)]
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (WIDTH,),
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.position_embd.weight": (1 + PICTURE_TOKENS, WIDTH),
        "mm.0.weight": (TALKER_WIDTH, WIDTH),
        "mm.2.weight": (TALKER_WIDTH, TALKER_WIDTH),
    }
    squares = ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down")
    shapes |= {f"{layer}{name}.weight": (WIDTH, WIDTH) for layer in layers for name in squares}
    norms = ["v.pre_ln", *(f"{layer}{name}" for layer in layers for name in ("ln1", "ln2"))]
    biases = dict.fromkeys((*norms, *(f"{layer}{name}" for layer in layers for name in squares)), WIDTH)
    biases |= {"mm.0": TALKER_WIDTH, "mm.2": TALKER_WIDTH}
    random = np.random.default_rng(7)
    found: dict[str, Any] = {name: random.normal(0, 0.2, shape) for name, shape in shapes.items()}
    found |= {f"{name}.weight": np.ones(WIDTH) for name in norms}
    found |= {f"{name}.bias": np.zeros(width) for name, width in biases.items()}
    return {name: tensor.astype(np.float32) for name, tensor in found.items()}
