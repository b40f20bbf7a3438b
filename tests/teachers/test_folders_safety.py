"""The files of a model folder, checked as data. Nothing here needs transformers."""

import json
from pathlib import Path

import pytest

from consilience.exceptions import InvalidInputError, TeacherError, UnsafeFileError
from consilience.teachers import as_teacher
from consilience.teachers.folders import MAX_FILES, Folder, list_files, source_sha256


def folder_of(path: Path, **files: object) -> Path:
    """Write files, given as texts or as what JSON holds; ``config_json`` is config.json."""
    path.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        place = path / key.replace("_json", ".json")
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def opened(path: Path) -> Folder:
    return Folder(path, path.name, list_files(path, path.name))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "config.json is not JSON"),
        ('{"model_type": "bert", "model_type": "vit"}', "the key 'model_type' is given twice"),
        ([1], "config.json must hold a JSON object"),
        (" " * (16 * 2**20 + 1), "config.json has 16777217 bytes; at most"),
        ("[" * 100_000, "config.json is not JSON"),
    ],
)
def test_json_that_is_refused(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=message):
        as_teacher(folder_of(tmp_path / "model", config_json=content))


@pytest.mark.parametrize("link", ["config.json", "weights", "1_Pooling/config.json"])
def test_links_are_refused(tmp_path: Path, link: str) -> None:
    path = folder_of(tmp_path / "model", config_json={"model_type": "bert"})
    (path / link).parent.mkdir(exist_ok=True)
    (path / link).unlink(missing_ok=True)
    (path / link).symlink_to(tmp_path)
    with pytest.raises(UnsafeFileError, match=r"is a link, which may lead outside.*--local-dir"):
        as_teacher(path)


def test_hidden_files_do_not_matter(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "model", config_json={"model_type": "bert"})
    (path / ".cache").mkdir()
    (path / ".cache" / "lock").symlink_to(tmp_path)
    (path / ".gitattributes").symlink_to(tmp_path)
    assert list_files(path, "model") == {"config.json"}


def test_a_folder_of_very_many_files_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FILES > 1000
    monkeypatch.setattr("consilience.teachers.folders.MAX_FILES", 2)
    with pytest.raises(TeacherError, match="more than 2 files"):
        as_teacher(folder_of(tmp_path / "model", a="", b="", c=""))


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        (
            "config.json",
            {"auto_map": {"AutoModel": "evil.M"}},
            r"asks for code of its own \(auto_map\), which",
        ),
        (
            "tokenizer_config.json",
            {"a": [{"auto_map": ["evil.T", None]}]},
            "tokenizer_config.json of 'model' asks",
        ),
        ("preprocessor_config.json", {"trust_remote_code": True}, "asks for code of its own"),
        (
            "config.json",
            {"text_config": {"attn_implementation": "org/kernel"}},
            "sets attn_implementation to 'org",
        ),
        ("config.json", {"attn_implementation": {}}, "sets attn_implementation to"),
        ("config.json", {"transformers_weights": "../other.safetensors"}, "sets transformers_weights to"),
        # a name of old, which the library still reads; and what it hands to the loader of a tokenizer
        ("sentence_roberta_config.json", {"attn_implementation": "org/kernel"}, "sets attn_implement"),
        (
            "sentence_bert_config.json",
            {"tokenizer_args": {"tokenizer_file": "/other.json"}},
            "sets tokenizer",
        ),
        ("sentence_xlnet_config.json", {"model_kwargs": {"a": 1}}, "sets model_kwargs to"),
    ],
)
def test_settings_that_reach_for_more(file: str, settings: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError, match=message):
        opened(folder_of(tmp_path / "model", **{file: settings})).check_settings()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "must be an object with weight_map"),
        ({"weight_map": {"a": "../evil.safetensors"}}, "named without any path; it is '../evil.safetensors'"),
        ({"weight_map": {"a": "C:\\evil.safetensors"}}, "named without any path"),
        ({"weight_map": {"a": "/evil.safetensors"}}, "named without any path"),
        ({"weight_map": {"a": "evil.bin"}}, "a .safetensors file, named without any path; it is 'evil.bin'"),
        ({"weight_map": {"a": 7}}, "a .safetensors file, named without any path; it is 7"),
        ({"weight_map": {"a": "one.safetensors"}}, "one.safetensors is missing"),
    ],
)
def test_shards_lie_in_the_folder(tmp_path: Path, index: object, message: str) -> None:
    path = folder_of(tmp_path / "model", **{"model.safetensors.index.json": index})
    (tmp_path / "evil.safetensors").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        opened(path).weight_files()
    assert message in str(caught.value)


def test_weights_are_safetensors(tmp_path: Path) -> None:
    shards = {"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}
    path = folder_of(tmp_path / "m", **{"model.safetensors.index.json": shards, "2.safetensors": ""})
    (path / "pytorch_model.bin").write_text("")
    with pytest.raises(TeacherError, match=r"only in 'pytorch_model.bin': a pickle, .* save_pretrained"):
        opened(path).weight_files()
    (path / "1.safetensors").write_text("")
    assert opened(path).weight_files() == ("1.safetensors", "2.safetensors")


def test_a_checksum_is_of_names_and_contents(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "m", a="1", b="2")
    first = source_sha256(path)
    (path / "model.card.json").write_text("{}")  # but not of the card, which holds it
    assert source_sha256(path) == first
    (path / "a").rename(path / "c")
    renamed = source_sha256(path)
    (path / "c").write_text("3")
    assert len({first, renamed, source_sha256(path)}) == 3


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, object]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str) -> dict[str, object]:
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}}}


LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|\s+"
)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (split("(a+)+$"), "the pattern"),
        (split("x|(a|aa)*b"), "the pattern"),
        (split(r"\\(a{9}){9}"), "the pattern"),
        (split("a{9}{9}{9}"), "the pattern"),
        (split(r"(a+)\1"), "the pattern"),
        (split("(?#[)(a+)+(?#])"), "the pattern"),
        ({"normalizer": {"type": "Sequence", "normalizers": [replace("a", "a" * 10)] * 3}}, "times as long"),
        ({"normalizer": {"normalizers": [replace("x*", "y", "Regex")] * 7}}, "times as long"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 101}}, "times as long"),
        ({"model": {"max_input_chars_per_word": 10**18}}, "max_input_chars_per_word 10"),
        ({"model": {"max_input_chars_per_word": "x"}}, "max_input_chars_per_word 'x'"),
        ({"post_processor": {"single": [{}] * 1000}}, "a list of 1000 entries"),
        (split(LLAMA), ""),
        ({"normalizer": {"normalizers": [replace("``", '"'), replace(" {2,}", " ", "Regex")]}}, ""),
        ({"model": {"vocab": {"Regex": 7, "(a+)+": 8}, "max_input_chars_per_word": 100}}, ""),
    ],
)
def test_rules_of_tokenizers_that_explode_are_refused(rules: object, words: str, tmp_path: Path) -> None:
    folder = opened(folder_of(tmp_path / "model", tokenizer_json=rules))
    if not words:
        folder.check_tokenizer()
        return
    with pytest.raises(TeacherError, match=rf"has a tokenizer.json with .*{words}.*Export the model to ONNX"):
        folder.check_tokenizer()
