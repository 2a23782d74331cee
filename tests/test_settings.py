import pytest

from parakeet_mps.contract import PREFERRED_BATCH_SIZES
from parakeet_mps.settings import AUTO, SettingError, Settings, describe


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_every_row_of_the_table_is_read_from_its_variable() -> None:
    settings = Settings.from_env({"PORT": "9000", "MODEL": "x.nemo", "MPS": "OFF", "CUDA_VISIBLE_DEVICES": "1"})
    assert (settings.port, settings.model, settings.mps) == (9000, "x.nemo", "off")
    assert settings.cuda_visible_devices == "1"


def test_an_empty_variable_means_the_default_but_empty_cuda_visible_devices_means_no_gpu() -> None:
    settings = Settings.from_env({"PORT": "", "CUDA_VISIBLE_DEVICES": ""})
    assert settings.port == 8002
    assert settings.cuda_visible_devices == ""


def test_the_largest_preferred_batch_is_the_default_maximum() -> None:
    assert Settings().max_batch_size == max(PREFERRED_BATCH_SIZES)


def test_a_count_may_be_left_to_the_planner() -> None:
    assert Settings.from_env({"MPS_INSTANCE_COUNT": "auto"}).mps_instance_count == AUTO


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("PORT", "80000", "a whole number from 1 to 65535"),
        ("PORT", "-1", "a whole number from 1 to 65535"),
        ("PORT", "²", "a whole number from 1 to 65535"),
        ("MPS_INSTANCE_COUNT", "0", "from 1 to 48, or auto"),
        ("MPS", "maybe", "auto, on, off"),
        ("TRITON_URL", "triton", "host:port"),
        ("TRITON_URL", "http://triton:8001", "host:port"),
        ("TRITON_URL", "triton:99999", "host:port"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "http://host:port"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "http://host:port"),
    ],
)
def test_a_bad_value_is_refused_with_variable_value_and_what_is_allowed(
    variable: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        Settings.from_env({variable: value})
    assert variable in str(refusal.value)
    assert repr(value) in str(refusal.value)
    assert allowed in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("127.0.0.1:8001", True),
        ("localhost:9001", True),
        ("[::1]:8001", True),
        ("triton:8001", False),
        ("10.0.0.7:8001", False),
    ],
)
def test_a_triton_on_another_machine_is_told_from_one_to_start_here(url: str, local: bool) -> None:
    assert Settings.from_env({"TRITON_URL": url}).triton_is_local is local


@pytest.mark.parametrize(
    ("role", "url", "triton", "gateway"),
    [
        ("all", "127.0.0.1:8001", True, True),
        ("all", "triton:8001", False, True),
        ("triton", "triton:8001", True, False),
        ("gateway", "127.0.0.1:8001", False, True),
    ],
)
def test_the_role_decides_what_is_started(role: str, url: str, triton: bool, gateway: bool) -> None:
    settings = Settings.from_env({"ROLE": role, "TRITON_URL": url})
    assert (settings.starts_triton, settings.starts_gateway) == (triton, gateway)


def test_the_description_lists_every_setting_with_default_and_help() -> None:
    rows = {variable: (default, text) for variable, default, text in describe()}
    assert rows["PORT"][0] == "8002"
    assert rows["MPS_INSTANCE_COUNT"][0] == "auto"
    assert all(text.endswith(".") for _, text in rows.values())
