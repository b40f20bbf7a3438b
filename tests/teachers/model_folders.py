"""Small model folders that tests make with the real libraries, with random weights."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from consilience.files.card import Card, write_card

CLASSES = ["ant", "bee", "cow"]
WORDS = ["the", "cat", "dog", "sat", "on", "mat", "a", "bird", "flew", "over", "##s"]
TEXTS = ["the cat sat on a mat", "dogs", "a bird flew over the dog " * 9, "", "on Mats"]
"""Of several lengths; one is longer than the networks read, one is empty, one has a word that is unknown."""
LONGEST = 24
_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_KINDS: dict[str, dict[str, Any]] = {
    "bert": {**_SMALL, "max_position_embeddings": LONGEST},
    "roberta": {**_SMALL, "max_position_embeddings": LONGEST + 2, "pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": {
        "dim": 16,
        "n_layers": 1,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": LONGEST,
    },
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LONGEST, "pad_token_id": 0},
    "xlnet": {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 32, "pad_token_id": 0},
    "convbert": {**_SMALL, "embedding_size": 16, "max_position_embeddings": LONGEST},
    "vit": {**_SMALL, "image_size": 16, "patch_size": 8},
    "deit": {**_SMALL, "image_size": 16, "patch_size": 8},
    "resnet": {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"},
}
_IMAGES = {
    "vit": "ViTImageProcessorPil",
    "deit": "DeiTImageProcessorPil",
    "resnet": "ConvNextImageProcessorPil",
}


def save(path: Path, *parts: Any) -> Path:
    """Save what the library made, without its progress bars."""
    with contextlib.redirect_stderr(io.StringIO()):
        for part in parts:
            part.save_pretrained(path)
    return path


def tokenizer(pad: str = "[PAD]") -> Any:
    """A tokenizer that knows eleven words."""
    from transformers import BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    return BertTokenizer(vocab=vocabulary, model_max_length=LONGEST, pad_token=pad)


def network(kind: str, architecture: str, **config: Any) -> Any:
    """A network of three classes with random weights."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    settings = {**_KINDS[kind], "id2label": dict(enumerate(CLASSES)), **config}
    if kind not in _IMAGES:
        settings["vocab_size"] = 5 + len(WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = getattr(transformers, architecture)(CONFIG_MAPPING[kind](**settings))
        for name, value in module.named_parameters():  # biases begin at 0, where a slip would not show
            if name.endswith("bias"):
                torch.nn.init.normal_(value)
    return module.eval()


def text_folder(path: Path, kind: str = "bert", **config: Any) -> tuple[Path, Any, Any]:
    """Save a sequence classifier; return its folder, network and tokenizer."""
    names = {
        "bert": "Bert",
        "roberta": "Roberta",
        "distilbert": "DistilBert",
        "gpt2": "GPT2",
        "xlnet": "XLNet",
        "convbert": "ConvBert",
    }
    module = network(kind, f"{names[kind]}ForSequenceClassification", **config)
    tokens = tokenizer("[UNK]" if kind == "roberta" else "[PAD]")
    if kind != "bert":
        tokens.model_input_names = ["input_ids", "attention_mask"]
    save(path, module, tokens)
    if kind != "bert":
        change_json(path / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    return path, module, tokens


def image_folder(
    path: Path, kind: str = "vit", architecture: str = "", **config: Any
) -> tuple[Path, Any, Any]:
    """Save an image classifier; return its folder, network and image processor."""
    import transformers

    names = {"vit": "ViT", "deit": "DeiT", "resnet": "ResNet"}
    module = network(kind, architecture or f"{names[kind]}ForImageClassification", **config)
    size = {"shortest_edge": 16} if kind == "resnet" else {"height": 16, "width": 16}
    more = {"crop_size": size} if kind == "deit" else {}
    processor = getattr(transformers, _IMAGES[kind])(size=size, **more)
    return save(path, module, processor), module, processor


def sentence_folder(path: Path, *, normalize: bool = True, **pooling: Any) -> Path:
    """Save an encoder as sentence-transformers does."""
    module = network("bert", "BertModel")
    save(path, module, tokenizer())
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 16, **(pooling or {"pooling_mode_mean_tokens": True})}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (path / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 12, "do_lower_case": False})
    )
    return path


def change_json(path: Path, **values: Any) -> None:
    """Set keys of a JSON file; ... removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content = {key: value for key, value in {**content, **values}.items() if value is not ...}
    path.write_text(json.dumps(content))


def images(n: int = 6, height: int = 20, width: int = 30) -> np.ndarray:
    """Images (n, height, width, 3) of noise."""
    return np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def image_onnx(path: Path, weights: Any, bias: Any, shape: tuple[int, ...], card: Card) -> Path:
    """Write a linear model of images (n, *shape) as ONNX: weights (d, k) and bias (k,); and its card."""
    import onnx

    tensor, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    inputs, outputs = [tensor("x", kind, ["n", *shape])], [tensor("logits", kind, ["n", len(bias)])]
    flat = onnx.helper.make_node("Flatten", ["x"], ["flat"])
    last = onnx.helper.make_node("Gemm", ["flat", "W", "b"], ["logits"])
    parts = [
        onnx.numpy_helper.from_array(np.float32(one), name) for one, name in ((weights, "W"), (bias, "b"))
    ]
    graph = onnx.helper.make_graph([flat, last], "images", inputs, outputs, parts)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), str(path))
    write_card(path.with_suffix(".card.json"), card)
    return path
