from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from parakeet_mps import contract
from parakeet_mps.choices import make_plan
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.model_config import ConfigError, Locations, ModelConfig, recogniser_config, write_repository
from parakeet_mps.plan import Plan
from parakeet_mps.settings import Settings

ROOT = Path(__file__).parent.parent
DEFAULT = make_plan(Settings(), Hardware(cpu_cores=2, memory_mb=8192, shm_mb=1024))
IN_GIT = Locations("models/demo.nemo", "run/checkpoint", ".", "run/load.lock", "run/heartbeats")


def parsed(plan: Plan, locations: Locations = IN_GIT) -> model_config_pb2.ModelConfig:
    return text_format.Parse(recogniser_config(plan, locations).render(), model_config_pb2.ModelConfig())


def gpu_plan() -> Plan:
    gpu = Gpu(0, "GPU-1", "NVIDIA H200", 143771, "Default", 132)
    return make_plan(Settings(), Hardware(16, 131072, 65536, (gpu,), mps_control=True))


def test_the_configuration_in_git_is_what_the_default_plan_renders() -> None:
    in_git = ROOT / "triton_model_repo" / contract.ASR_MODEL / "config.pbtxt"
    assert in_git.read_text() == recogniser_config(DEFAULT, IN_GIT).render()


def test_names_types_and_shapes_are_the_contract() -> None:
    config = parsed(DEFAULT)
    assert (config.name, config.backend) == (contract.ASR_MODEL, "python")
    (audio, hotwords), (recognition,) = config.input, config.output
    assert (audio.name, audio.data_type, list(audio.dims)) == (contract.AUDIO_INPUT, model_config_pb2.TYPE_FP32, [-1])
    assert (hotwords.name, hotwords.optional) == (contract.HOTWORDS_INPUT, True)
    assert (hotwords.data_type, list(hotwords.dims)) == (model_config_pb2.TYPE_UINT8, [-1])
    assert recognition.name == contract.RECOGNITION_OUTPUT
    assert (recognition.data_type, list(recognition.dims)) == (model_config_pb2.TYPE_UINT8, [-1])


def test_utterances_of_different_lengths_may_share_a_batch() -> None:
    config = parsed(DEFAULT)
    assert all(tensor.allow_ragged_batch for tensor in config.input)
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8, 16]
    assert config.dynamic_batching.max_queue_delay_microseconds == 2_000


def test_the_queue_is_bounded_in_length_and_time() -> None:
    policy = parsed(DEFAULT).dynamic_batching.default_queue_policy
    assert policy.max_queue_size == 256
    assert policy.default_timeout_microseconds == 60_000_000
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.REJECT
    assert policy.allow_timeout_override


def test_instances_are_placed_on_the_chosen_device() -> None:
    (cpu,) = parsed(DEFAULT).instance_group
    assert (cpu.count, cpu.kind) == (1, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    (gpu,) = parsed(gpu_plan()).instance_group
    assert (gpu.count, gpu.kind, list(gpu.gpus)) == (4, model_config_pb2.ModelInstanceGroup.KIND_GPU, [0])


def test_the_model_gets_its_parameters_as_text() -> None:
    config = parsed(
        gpu_plan(), Locations('/models/a "b" \\ é.nemo', "/run/checkpoint", "/app", "/run/load.lock", "/run/heartbeats")
    )
    values = {key: value.string_value for key, value in config.parameters.items()}
    assert values == {
        "model_path": '/models/a "b" \\ é.nemo',
        "unpacked": "/run/checkpoint",
        "package_path": "/app",
        "device": "cuda",
        "torch_threads": "1",
        "active_thread_percentage": "25",
        "multiprocessors": "132",
        "memory_limit_mb": str((143771 - 2048) // 4),
        "load_lock": "/run/load.lock",
        "heartbeats": "/run/heartbeats",
    }


@pytest.mark.parametrize("value", ["${MODEL}", "$(pwd)/x", "{{ model }}", "<MODEL_PATH>", "a\nb"])
def test_a_leftover_placeholder_or_control_character_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match="string_value"):
        recogniser_config(DEFAULT, Locations(value, "/run/checkpoint", "/app", "/lock", "/beats")).render()


def test_a_boolean_must_be_written_as_a_word() -> None:
    with pytest.raises(ConfigError, match="allow"):
        ModelConfig({"allow": None}).render()


def test_the_repository_is_written_anew_with_the_model_file(tmp_path: Path) -> None:
    source, target = tmp_path / "git", tmp_path / "run"
    (source / contract.ASR_MODEL / "1").mkdir(parents=True)
    (source / contract.ASR_MODEL / "1" / "model.py").write_text("# model\n")
    (target / "stale_model").mkdir(parents=True)
    write_repository(DEFAULT, IN_GIT, source, target)
    files = sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file())
    assert files == ["parakeet_asr/1/model.py", "parakeet_asr/config.pbtxt"]
